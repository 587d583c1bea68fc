//! Memory of a GPU is broken.

use evidence::Source;
use evidence::signals::hardware::{ECC_COUNTER, ROW_REMAPPING, UNCORRECTABLE_ECC};

use super::xid::{self, Class};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-ecc-error",
    title: "a GPU has uncorrectable memory errors",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The program read GPU memory that is broken beyond correction. The process on that GPU dies, and the others wait for it or fail \
          with network errors: those are consequences. It is neither a lack of memory nor a fault of the program.",
    fix: "Drain the node. `nvidia-smi -q -d ECC,ROW_REMAPPER` and `dmesg | grep Xid` name the GPU. Reset it (`nvidia-smi -r -i GPU`) or reboot, \
          so that bad rows are remapped; if it comes back, or a remapping failed, replace the GPU.",
    references: &[
        "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html",
        "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let said = log.find_signals(&[&UNCORRECTABLE_ECC], Source::JobOutput);
    let kernel: Vec<_> = xid::of_class(log, &[Class::Memory]).collect();
    if kernel.is_empty() {
        if let Some(finding) = said.as_ref().map_or(true, Vec::is_empty).then(|| counted(log)).flatten() {
            return Ok(vec![finding]);
        }
        let said = said?;
        if said.is_empty() {
            return Ok(Vec::new());
        }
        let message = "CUDA reports an uncorrectable ECC error in GPU memory";
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &said)]);
    }
    let mut finding = None;
    for (it, meaning) in &kernel {
        let message = || format!("the GPU at {} reports Xid {}: {}", xid::gpu(it), meaning.xid, meaning.text);
        let next = finding.unwrap_or_else(|| Finding::new(Confidence::Certain, message()));
        finding = Some(next.seen(&it.quote).about_gpu(xid::gpu(it)));
    }
    let finding = finding.map(|it| it.by(log, &said.unwrap_or_default()));
    // Single bit errors are corrected; they only warn of worse ones.
    let mild = kernel.iter().all(|it| it.1.xid == 92);
    Ok(finding.map(|it| if mild { it.severity(Severity::Warning) } else { it }).into_iter().collect())
}

/// What notes and the counters of `nvidia-smi -q` show, where no line reports an error.
fn counted(log: &Log) -> Option<Finding> {
    if let Some((it, meaning)) = xid::named(log, &[Class::Memory]) {
        let message = format!("the input mentions Xid {}: {}", meaning.xid, meaning.text);
        return Some(Finding::new(Confidence::Likely, message).seen(&it.quote));
    }
    let remapping: Vec<_> = log.case.sightings_of(&ROW_REMAPPING).collect();
    if let Some(first) = remapping.first() {
        let spent = remapping.iter().any(|it| it.quote.text.contains("Failure"));
        let (message, severity) = if spent {
            ("a GPU could not replace a broken row of its memory", Severity::Error)
        } else {
            ("a GPU needs a reset to replace broken rows of its memory", Severity::Warning)
        };
        return Some(Finding::new(Confidence::Likely, message).severity(severity).seen(&first.quote));
    }
    let hit = log.case.sightings_of(&ECC_COUNTER).find(|it| {
        let count = it.get("count").rsplit(':').next().unwrap_or_default();
        count.trim().parse::<u64>().is_ok_and(|it| it > 0)
    })?;
    let message = "the counters of a GPU show uncorrectable memory errors";
    Some(Finding::new(Confidence::Likely, message).severity(Severity::Warning).seen(&hit.quote))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_tracebacks_and_kernel_logs() {
        let traceback = "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n";
        assert_eq!(findings(&RULE, traceback)[0].entities[0].name, "1");
        let kernel = "[ 1.2] NVRM: Xid (PCI:0000:17:00): 48, pid=4242, name=python, An uncorrectable double bit error (DBE) has been detected\n";
        assert_eq!(
            findings(&RULE, kernel)[0].message,
            "the GPU at 0000:17:00 reports Xid 48: a double bit ECC error"
        );
    }

    #[test]
    fn corrected_errors_only_warn() {
        let kernel = "NVRM: Xid (PCI:0000:17:00): 92, pid=1, High single-bit ECC error rate\n";
        assert_eq!(findings(&RULE, kernel)[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn counters_of_nvidia_smi() {
        let pending = "    Remapped Rows\n        Uncorrectable Error               : 4\n        Pending                           : Yes\n";
        assert_eq!(findings(&RULE, pending)[0].severity, Some(Severity::Warning));
        let spent = "        Remapping Failure Occurred        : Yes\n";
        assert_eq!(findings(&RULE, spent)[0].severity, Some(Severity::Error));
        assert_eq!(findings(&RULE, "            DRAM Uncorrectable                        : 3\n").len(), 1);
        quiet(
            &RULE,
            "            DRAM Uncorrectable                        : 0\n        Pending                           : No\n\
             \x20       Remapping Failure Occurred        : No\n",
        );
    }

    #[test]
    fn other_xids_and_lacking_memory_are_not_it() {
        quiet(&RULE, "NVRM: Xid (PCI:0000:17:00): 31, pid=1, name=python, Ch 00000008\n");
        quiet(&RULE, "torch.OutOfMemoryError: CUDA out of memory.\n");
    }
}
