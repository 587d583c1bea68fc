//! NCCL printed a warning that no rule knows.

use std::collections::BTreeSet;

use evidence::{Kind, Process, Quote, Source, Spot};
use job::failure::{is_harmless, is_messenger};

use super::job_failed::shorten;

use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "unexplained-warning",
    title: "NCCL printed a warning that plumb does not know",
    severity: Severity::Info,
    role: Role::Consequence,
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

/// Warnings that no finding explains: neither as evidence, nor by a signal that the evidence of a finding carries too.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    let shown: BTreeSet<Spot> =
        findings.iter().flat_map(|it| it.finding.quotes()).map(|it| it.spot).collect();
    let explained: BTreeSet<&str> =
        findings.iter().flat_map(|it| it.finding.quotes()).flat_map(|it| signals_in(&it.text)).collect();
    let is_cause = |it: &&Found| {
        it.severity() == Severity::Error
            && it.rule.role == Role::Cause
            && it.finding.confidence > Confidence::Possible
    };
    // With a cause at hand, a rule that knows a line and does not take it has left it to that cause.
    let cause = findings.iter().any(|it| is_cause(&it));
    let unknown: Vec<(&Process, &Quote)> = log
        .case
        .processes
        .iter()
        .flat_map(|process| process.facts.warnings.first.iter().map(move |warning| (process, &warning.quote)))
        .filter(|(_, quote)| {
            !shown.contains(&quote.spot)
                && !is_harmless(&quote.text)
                && !signals_in(&quote.text).any(|it| cause || explained.contains(it))
        })
        .collect();
    let Some((process, first)) = unknown.iter().find(|it| !is_messenger(&it.1.text)).or(unknown.first())
    else {
        return Vec::new();
    };
    let text = first.text.split_once("NCCL WARN ").map_or(&*first.text, |it| it.1).trim();
    let others = match unknown.len() {
        1 => String::new(),
        n => format!("; {} more that no rule explains", n - 1),
    };
    let message = format!("{} printed `{}`{others}", process.name(), shorten(text));
    let fatal = log.job.outcome.state.is_bad()
        && log.job.outcome.lines.iter().any(|it| unknown.iter().any(|u| u.1 == it));
    let finding =
        Finding::new(Confidence::Certain, message).seen(first).seen_all(unknown.iter().map(|it| it.1));
    let known = findings
        .iter()
        .any(|it| it.severity() == Severity::Error && it.finding.confidence > Confidence::Possible);
    vec![if fatal && !known { finding.severity(Severity::Error) } else { finding }]
}

/// The names of the signals in a line that report a problem.
fn signals_in(text: &str) -> impl Iterator<Item = &'static str> {
    evidence::signals::book()
        .find(text.as_bytes())
        .into_iter()
        .map(|it| it.signal)
        .filter(|it| it.kind != Kind::Notes)
        .map(|it| it.name)
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
