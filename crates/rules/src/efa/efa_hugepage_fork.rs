//! Data loaders cannot fork because EFA holds the machine's huge pages.

use evidence::Source;
use evidence::signals::efa::{FORK_CALL, FORK_NO_MEMORY};

use super::{efa_in_use, sign_of_efa};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-hugepage-fork",
    title: "fork() fails for lack of memory while EFA holds huge pages",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The EFA provider takes huge pages for its buffers. A forked data loader needs as many again, the system has none left, and \
          fork() fails with ENOMEM although memory is free.",
    fix: "Set `FI_EFA_USE_HUGE_PAGE=0` (a small cost in speed). If the job does not use EFA, or it still fails, the host is short of \
          memory: check `free -g`, the container's memory limit and vm.overcommit_memory, and use fewer `num_workers`.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/179",
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&FORK_NO_MEMORY], Source::JobOutput)?;
    if found.is_empty() || log.job.settings.named("FI_EFA_USE_HUGE_PAGE").any(|it| it.text() == "0") {
        return Ok(Vec::new());
    }
    let forked: Vec<_> = log.case.sightings_of(&FORK_CALL).collect();
    let efa = sign_of_efa(log);
    let finding = if efa.is_some() || efa_in_use(log) {
        Finding::new(
            Confidence::Likely,
            "fork() failed for lack of memory in a job that uses EFA, whose buffers hold the huge pages",
        )
    } else {
        Finding::new(
            Confidence::Possible,
            "fork() failed for lack of memory; on EFA instances the provider's huge pages are the usual cause",
        )
    };
    let finding = finding
        .by(log, &found)
        .seen_all(forked.iter().map(|it| &it.quote))
        .seen_all(efa.and_then(|it| it.quote));
    Ok(vec![finding.or("host-oom-kill")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const FORK: &str = "    self.pid = os.fork()\nOSError: [Errno 12] Cannot allocate memory\n";

    #[test]
    fn efa_makes_it_likely() {
        let log = format!("a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)\n{FORK}");
        assert_eq!(findings(&RULE, &log)[0].confidence, Confidence::Likely);
        assert_eq!(findings(&RULE, FORK)[0].confidence, Confidence::Possible);
    }

    #[test]
    fn quiet_when_huge_pages_are_off_or_locked_memory_is_meant() {
        quiet(&RULE, &format!("export FI_EFA_USE_HUGE_PAGE=0\n{FORK}"));
        quiet(&RULE, "Libfabric error: (-12) Cannot allocate memory\n");
    }
}
