//! NCCL warned of something that no rule knows.

use std::collections::BTreeSet;

use evidence::{Case, Kind, Source};

use crate::{Check, Checked, Confidence, Finding, Found, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "unexplained-warning",
    title: "NCCL warned of something plumb does not know",
    severity: Severity::Info,
    role: Role::Consequence,
    needs: &[Source::NcclLog],
    why: "A warning of NCCL mostly means that something failed. No rule knows this one, so it is shown rather than passed over.",
    fix: "Read the lines around it, and the earliest warning of the job first: later ones are often consequences.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"],
    checks: &[Check::Log(check)],
};

/// The rule speaks in [`check_last`], after all others.
fn check(case: &Case) -> Checked {
    case.nccl_log().map(|_| Vec::new())
}

/// Warnings that are not evidence of a finding and in which no signal was seen.
pub(crate) fn check_last(case: &Case, _: &[Found]) -> Vec<Finding> {
    let telling = |it: &evidence::Signal| it.kind != Kind::Notes;
    let known: BTreeSet<_> =
        case.sightings.iter().filter(|it| telling(it.signal)).map(|it| it.quote.spot).collect();
    let unknown: Vec<_> = case
        .processes
        .iter()
        .flat_map(|process| process.facts.warnings.first.iter().map(move |warning| (process, &warning.0)))
        .filter(|(_, quote)| {
            !known.contains(&quote.spot)
                && !evidence::signals::book().find(quote.text.as_bytes()).iter().any(|it| telling(it.signal))
        })
        .collect();
    let Some((process, first)) = unknown.first() else { return Vec::new() };
    let message = format!(
        "{} by {}",
        counted(
            unknown.len(),
            "warning that no rule explains, first",
            "warnings that no rule explains, first"
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
