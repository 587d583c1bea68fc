//! The kernel driver reported an error that no other rule covers.

use std::collections::BTreeMap;

use evidence::signals::hardware::XID;
use evidence::{Quote, Source};

use super::xid::{self, Class};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "xid-reported",
    title: "the GPU driver reported an error (Xid)",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::KernelLog],
    why: "The driver numbers the errors it reports. Some are caused by a program (13, 31, 43, 45: an illegal address, or the end of a \
          process) and do not mean a hardware fault; others mean that the GPU or its firmware failed and must be reset.",
    fix: "Look the number up in NVIDIA's catalogue. For a failed GPU: drain the node, `nvidia-smi -r -i GPU` or reboot, update driver and firmware, \
          and replace the GPU if it comes back. For a program's error: find the first failing process and run it with CUDA_LAUNCH_BLOCKING=1 \
          or compute-sanitizer.",
    references: &[
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
        "https://docs.nvidia.com/deploy/xid-errors/index.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&XID], Source::KernelLog)?;
    let mut by_number: BTreeMap<u64, (u64, Vec<&str>, Vec<&Quote>)> = BTreeMap::new();
    for it in found {
        let Some(number) = xid::number(it) else { continue };
        let (count, gpus, quotes) = by_number.entry(number).or_default();
        *count += it.count;
        let gpu = xid::gpu(it);
        if !gpus.contains(&gpu) {
            gpus.push(gpu);
        }
        quotes.push(&it.quote);
    }
    Ok(by_number
        .into_iter()
        .filter_map(|(number, (count, gpus, quotes))| one(number, count, &gpus, &quotes))
        .collect())
}

fn one(number: u64, count: u64, gpus: &[&str], quotes: &[&Quote]) -> Option<Finding> {
    let known = xid::meaning(number);
    let (severity, tail) = match known.map(|it| it.class) {
        // Other rules report these.
        Some(Class::Memory | Class::Link | Class::Lost) => return None,
        Some(Class::Program) => (Severity::Info, ": caused by the program, not a fault of the GPU"),
        Some(Class::Gpu) => (Severity::Error, ": the GPU must be reset"),
        Some(Class::Note) => (Severity::Info, ""),
        None => (Severity::Warning, ""),
    };
    let meaning = known.map_or("a number that plumb does not know", |it| it.text);
    let gpu_names = if gpus.len() == 1 { gpus.join("") } else { format!("{} GPUs", gpus.len()) };
    let times = if count == 1 { String::new() } else { format!(", {count} times") };
    let message = format!("Xid {number} on {gpu_names}{times} ({meaning}){tail}");
    let finding =
        Finding::new(Confidence::Certain, message).severity(severity).seen_all(quotes.iter().copied());
    Some(gpus.iter().fold(finding, Finding::about_gpu))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    #[test]
    fn a_programs_error_is_said_to_be_one() {
        let log = "[1.0] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, name=python, Ch 00000008, intr 00000000. MMU Fault\n\
                   [1.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=78, name=python, Ch 00000009, intr 00000000. MMU Fault\n";
        let found = findings(&RULE, log);
        assert_eq!(found[0].severity, Some(Severity::Info));
        assert!(found[0].message.starts_with("Xid 31 on 0000:3b:00, 2 times"), "{}", found[0].message);
    }

    #[test]
    fn a_failed_gpu_is_an_error() {
        let log = "NVRM: Xid (PCI:0000:17:00): 119, pid=9, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP!\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Error));
        let old = "NVRM: Xid (0000:03:00): 999, Channel 00000001\n";
        assert_eq!(findings(&RULE, old)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn what_follows_another_error_counts_as_that_one() {
        quiet(
            &RULE,
            "NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149\n",
        );
    }

    #[test]
    fn leaves_memory_links_and_lost_gpus_to_their_rules() {
        for number in [48, 74, 79, 95, 149] {
            quiet(&RULE, &format!("NVRM: Xid (PCI:0000:17:00): {number}, something\n"));
        }
    }
}
