//! A variable that the release in use does not read yet.

use fabric::{Version, variable};
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "variable-too-new",
    title: "a variable that is newer than the release in use",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "A later release introduced it; the release in use silently ignores it.",
    fix: "Use an image with a newer release, or remove the variable.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables().filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let known = variable::find(variable.name())?;
    let first = Version::parse(&known.first_seen)?;
    let at_hand = variable.releases().component(known.read_by.name())?;
    // The data does not cover every patch release: only the minor release is certain.
    if (at_hand.major, at_hand.minor) >= (first.major, first.minor) {
        return None;
    }
    let message =
        format!("{} {at_hand} does not read {}: {first} introduced it", known.read_by, variable.name());
    Some(Finding::at(variable.file, &variable.setting.name_span, message).label("not read yet"))
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::RULE;
    use crate::lint::Given;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings_given, quiet};

    #[test]
    fn the_release_decides() {
        let text = pod(&[("NCCL_NETDEVS_POLICY", "MAX:1"), ("NCCL_DEBUG", "INFO")]);
        let given = |minor| Given { nccl: Some(Version::new(2, minor, 3)), ..Given::default() };
        let found = findings_given(&RULE, &text, &given(27));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.starts_with("NCCL 2.27.3 does not read NCCL_NETDEVS_POLICY"));
        assert!(findings_given(&RULE, &text, &given(28)).is_empty());
        quiet(&RULE, &text);
    }
}
