//! NCCL printed a warning that no rule knows.

use std::collections::BTreeSet;

use evidence::{Kind, Source};

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

/// Warnings that are not evidence of a finding and in which no signal was seen.
pub(crate) fn check_last(log: &Log, _: &[Found]) -> Vec<Finding> {
    let is_problem = |it: &evidence::Signal| it.kind != Kind::Notes;
    let known: BTreeSet<_> =
        log.case.sightings.iter().filter(|it| is_problem(it.signal)).map(|it| it.quote.spot).collect();
    let unknown: Vec<_> = log
        .case
        .processes
        .iter()
        .flat_map(|process| process.facts.warnings.first.iter().map(move |warning| (process, &warning.quote)))
        .filter(|(_, quote)| {
            !known.contains(&quote.spot)
                && !evidence::signals::book()
                    .find(quote.text.as_bytes())
                    .iter()
                    .any(|it| is_problem(it.signal))
        })
        .collect();
    let Some((process, first)) = unknown.first() else { return Vec::new() };
    let message = format!(
        "{} by {}",
        counted(
            unknown.len(),
            "warning that no rule explains, printed",
            "warnings that no rule explains, the first printed"
        ),
        process.name()
    );
    vec![Finding::new(Confidence::Certain, message).seen(first).seen_all(unknown.iter().map(|it| it.1))]
}

fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
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
