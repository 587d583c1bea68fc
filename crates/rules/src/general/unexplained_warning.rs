//! NCCL printed a warning that no rule knows.

use evidence::Source;
use job::failure::is_messenger;

use super::nccl_message::{Unexplained, is_cause, unexplained};

use crate::sentence::shorten;
use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "unexplained-warning",
    title: "NCCL printed a warning that plumb does not know",
    severity: Severity::Info,
    role: Role::Unexplained,
    needs: &[Source::NcclLog],
    why: "An NCCL warning usually means that something failed. No rule explains this one, so plumb shows it.",
    fix: "Read the lines around it, and the earliest warning of the job first: later ones are often consequences.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Log(check)],
};

/// Findings come from [`check_last`], after all other rules.
fn check(log: &Log) -> Checked {
    log.nccl_log().map(|_| Vec::new())
}

/// Warnings that neither a finding explains nor the catalogue of messages has.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    let all = unexplained(log, findings);
    let unknown: Vec<&Unexplained<'_>> = all.iter().filter(|it| it.known.is_none()).collect();
    let Some(first) = unknown.iter().find(|it| !is_messenger(&it.quote.text)).or(unknown.first()) else {
        return Vec::new();
    };
    let others = match unknown.len() {
        1 => String::new(),
        n => format!("; {} more that no rule explains", n - 1),
    };
    let message = format!("{} printed `{}`{others}", first.who, shorten(first.text()));
    let finding = Finding::new(Confidence::Possible, message)
        .seen(first.quote)
        .seen_all(unknown.iter().map(|it| it.quote));
    let explained = findings.iter().any(is_cause);
    let failed = log.job.outcome.state.is_bad();
    vec![if failed && !explained { finding.severity(Severity::Error) } else { finding }]
}

#[cfg(test)]
mod tests {
    use crate::testing::ids;

    #[test]
    fn an_unknown_warning_is_shown() {
        assert_eq!(
            ids("n:1:2 [0] x.cc:1 NCCL WARN The moon is in the wrong house\n"),
            ["unexplained-warning"]
        );
    }

    #[test]
    fn a_known_one_is_left_to_its_rule() {
        let log = "n:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
        assert!(!ids(log).contains(&"unexplained-warning"));
    }
}
