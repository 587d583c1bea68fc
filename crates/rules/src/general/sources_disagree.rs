//! Two sources describe the machine of the job differently.

use evidence::{Missing, Quote, Source};
use job::{Conflict, Invariant, Known, Violation};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "sources-disagree",
    title: "the input describes the machine in two ways",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "plumb derives the NVLink paths, NICs and bandwidth that are normal here from the machine. If a note or a topology belongs to \
          another machine or to another container, other findings may be wrong.",
    fix: "Give plumb logs, notes and `nvidia-smi topo -m` of the same machine, and correct the instance type where it is wrong. A \
          container that has only some of the machine's GPUs sees only those: then nothing needs to change.",
    references: &["plumb docs/doctor.md, what it reads"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    if log.job.machines.is_empty() && !log.has(Source::JobOutput) {
        return Err(Missing(Source::JobOutput));
    }
    let devices = log.job.violations.iter().filter_map(devices);
    Ok(log.job.conflicts.iter().map(|conflict| finding(log, conflict)).chain(devices).collect())
}

/// Ranks that use GPUs which another source does not show.
fn devices(violation: &Violation) -> Option<Finding> {
    let message = match &violation.invariant {
        Invariant::MoreRanksThanGpus { ranks, gpus, source } => {
            format!(
                "NCCL runs {ranks} ranks on one node, but {source} has {gpus} GPU{}",
                if *gpus == 1 { "" } else { "s" }
            )
        }
        Invariant::DeviceNotVisible { rank, device, visible } => {
            format!(
                "rank {rank} uses CUDA device {device}, which CUDA_VISIBLE_DEVICES={visible} does not give it"
            )
        }
        _ => return None,
    };
    Some(Finding::new(Confidence::Certain, message).seen_all(&violation.quotes))
}

fn finding(log: &Log, conflict: &Conflict) -> Finding {
    let values: Vec<&str> = conflict.values.iter().map(|it| &*it.value).collect();
    let message = format!(
        "sources disagree about the {}: {}; plumb uses {}",
        conflict.subject,
        values.join(" and "),
        values.first().unwrap_or(&"none")
    );
    Finding::new(Confidence::Certain, message).seen_all(conflict.values.iter().filter_map(|it| line(log, it)))
}

/// The line that gives a value, or at which the description that does begins.
fn line<'a>(log: &'a Log, value: &'a Known<Box<str>>) -> Option<&'a Quote> {
    value.quote().or_else(|| job::machine::description_quote(&log.case, &value.source))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{check, findings, quiet, read};

    const NAME: &str =
        "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n";
    const MATRIX: &str = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";

    #[test]
    fn a_note_names_another_machine() {
        let found = findings(&RULE, &format!("{NAME}instance-type: p5.48xlarge\n"));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].message,
            "sources disagree about the instance type: p4d.24xlarge and p5.48xlarge; plumb uses p4d.24xlarge"
        );
        let lines: Vec<&str> = found[0].quotes().map(|it| &*it.text).collect();
        assert!(
            lines[0].contains("Running on p4d.24xlarge") && lines[1].contains("p5.48xlarge"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_matrix_has_fewer_gpus() {
        let found = findings(&RULE, &format!("{NAME}{MATRIX}"));
        assert_eq!(found[0].message, "sources disagree about the number of GPUs: 8 and 2; plumb uses 8");
        let lines: Vec<&str> = found[0].quotes().map(|it| &*it.text).collect();
        assert!(lines[0].contains("p4d.24xlarge") && lines[1].contains("GPU0"), "{lines:?}");
    }

    #[test]
    fn nccl_uses_more_gpus_than_the_matrix_has() {
        let log = "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n";
        assert_eq!(
            findings(&RULE, &format!("{log}{MATRIX}"))[0].message,
            "NCCL runs 8 ranks on one node, but nvidia-smi topo -m has 2 GPUs"
        );
    }

    #[test]
    fn one_source_or_several_that_agree() {
        quiet(&RULE, NAME);
        quiet(&RULE, &format!("{NAME}instance-type: p4d.24xlarge\n"));
        assert!(findings(&RULE, MATRIX).is_empty());
        assert!(check(&RULE, &read("")).is_err());
    }
}
