//! NCCL returned an error and no rule knows why.

use evidence::Source;

use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-call-failed",
    title: "an NCCL call failed and the input does not show why",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::NcclLog],
    why: "NCCL returned an error to the program. The warning that explains it is not in this input.",
    fix: "Collect the logs of all ranks with NCCL_DEBUG=INFO, from the start of the job, and give plumb all of them: the log of the rank \
          that failed first shows the cause.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Log(check)],
};

/// Findings come from [`check_last`], after all other rules.
fn check(log: &Log) -> Checked {
    log.nccl_log().map(|_| Vec::new())
}

/// A propagated error (`FILE:LINE -> CODE`), and no finding of severity error.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    if findings.iter().any(|it| it.severity() == Severity::Error) {
        return Vec::new();
    }
    let failed = log.case.processes.iter().enumerate().find_map(|(index, process)| {
        let seen = process.facts.propagated.iter().find(|it| matches!(it.value, 1..=6 | 8))?;
        let in_passing = matches!(seen.value, 2 | 3) && went_well(log, index);
        (!in_passing).then_some((process, seen))
    });
    let Some((process, seen)) = failed else { return Vec::new() };
    let meaning = match seen.value {
        1 => "a CUDA call failed",
        2 => "a system call failed",
        3 => "an internal check failed",
        4 => "an argument was invalid",
        5 => "NCCL was used wrongly",
        6 => "a peer died or the network failed",
        _ => "a timeout",
    };
    let message = format!("{} got error {} from NCCL ({meaning})", process.name(), seen.value);
    vec![Finding::new(Confidence::Certain, message).seen(&seen.quote).about_host(&process.host)]
}

/// Whether the process made its communicators: a plugin or network that was tried and left aside,
/// and the sockets that close at the end, leave such errors behind.
fn went_well(log: &Log, index: usize) -> bool {
    let members =
        log.case.communicators.iter().flat_map(|it| it.members.values()).filter(|it| it.process == index);
    members.clone().count() > 0 && members.clone().all(evidence::Member::is_complete)
}

#[cfg(test)]
mod tests {
    use crate::testing::ids;

    #[test]
    fn an_error_without_a_cause_is_an_error() {
        assert_eq!(ids("n:1:2 [0] NCCL INFO init.cc:1093 -> 1\n"), ["nccl-call-failed"]);
    }

    #[test]
    fn errors_in_passing_are_none() {
        let log = "n:1:1 [0] NCCL INFO transport/net_ib.cc:852 -> 3\n\
                   n:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 60 commId 0x4 - Init COMPLETE\n";
        assert!(ids(log).is_empty());
        assert_eq!(ids(&log.replace("-> 3", "-> 6")), ["nccl-call-failed"]);
    }

    #[test]
    fn with_a_cause_it_is_silent() {
        let log = "n:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n\
                   n:1:2 [0] NCCL INFO init.cc:1093 -> 5\n";
        assert_eq!(ids(log), ["duplicate-gpu"]);
    }
}
