//! A variable that the release in use no longer reads.

use fabric::variable::{self, Status, Variable};
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "variable-removed",
    title: "a variable that is no longer read",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "The release in use silently ignores it, so it no longer has its effect.",
    fix: "Remove it, or set its replacement.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables().filter_map(|it| finding(&it, variable::find(it.name())?)).collect())
}

fn finding(set: &SubmittedVariable<'_>, variable: &Variable) -> Option<Finding> {
    let name = set.name();
    let new = |message: String| {
        let finding = Finding::at(set.file, &set.setting.name_span, message);
        match &variable.instead {
            Some(instead) => finding.fix(format!("Set {instead} instead, or remove {name}.")),
            None => finding.fix(format!("Remove {name}.")),
        }
    };
    let last = match variable.status {
        Status::Current | Status::NotAVariable => return None,
        Status::Deprecated => {
            let instead = variable.instead.as_deref()?;
            let message = format!("{name} is deprecated; the current name is {instead}");
            return Some(new(message).severity(Severity::Info));
        }
        Status::RemovedBefore(first) => {
            return Some(new(format!("no release since {first} reads {name}")).label("no longer read"));
        }
        Status::RemovedAfter(last) => last,
    };
    let reader = &variable.read_by;
    match set.releases().component(reader.name()) {
        Some(at_hand) if at_hand <= last => None,
        Some(at_hand) => {
            let message =
                format!("{reader} {at_hand} does not read {name}: the last release that did is {last}");
            Some(new(message).label("no longer read"))
        }
        None => {
            let message = format!("{reader} reads {name} only up to {last}; the release in use is not known");
            Some(new(message).severity(Severity::Info).confidence(Confidence::Possible))
        }
    }
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::RULE;
    use crate::Severity;
    use crate::lint::Given;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, findings_given, quiet};

    #[test]
    fn the_release_decides() {
        let text = pod(&[("NCCL_SHM_USE_CUDA_MEMCPY", "1")]);
        let given = |minor, patch| Given { nccl: Some(Version::new(2, minor, patch)), ..Given::default() };
        let found = findings_given(&RULE, &text, &given(30, 7));
        assert!(found[0].message.contains("NCCL 2.30.7 does not read"), "{}", found[0].message);
        assert!(findings_given(&RULE, &text, &given(27, 3)).is_empty());
        let unknown = findings(&RULE, &text);
        assert_eq!(unknown[0].severity, Some(Severity::Info));
        assert!(unknown[0].message.contains("not known"));
    }

    #[test]
    fn old_names_are_worth_knowing() {
        let found = findings(&RULE, &pod(&[("NCCL_ASYNC_ERROR_HANDLING", "1")]));
        assert_eq!(found[0].severity, Some(Severity::Info));
        assert!(found[0].message.contains("TORCH_NCCL_ASYNC_ERROR_HANDLING"));
    }

    #[test]
    fn current_ones_are_left_alone() {
        quiet(&RULE, &pod(&[("NCCL_DEBUG", "INFO"), ("NCCL_TIMEOUT", "1"), ("PATH", "/bin")]));
    }
}
