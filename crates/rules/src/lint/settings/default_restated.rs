//! A switch set to its default.

use fabric::variable::{self, Reader, ValueKind};
use job::submitted::Submitted;

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "default-restated",
    title: "a variable set to its default",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "It has no effect today, but looks as if it had, and stays when a later release changes its default.",
    fix: "Remove it.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables()
        .filter_map(|it| {
            let known = variable::find(it.name())
                .filter(|it| it.read_by == Reader::Nccl && it.kind == ValueKind::Bool)?;
            // Only switches with the same default in all releases, written as a plain number.
            let default: i64 = known.default.parse().ok()?;
            let once = !known.default_history.contains(';');
            let (name, value) = (it.name(), it.value()?.trim());
            if !once || value.parse() != Ok(default) {
                return None;
            }
            let span = it.setting.value_span.as_ref()?;
            let message = format!("{name} is {default} by default");
            Some(Finding::at(it.file, span, message).fix(format!("Remove {name}.")))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn a_switch_at_its_default_is_shown() {
        let found = findings(&RULE, &pod(&[("NCCL_P2P_DISABLE", "0"), ("NCCL_IB_DISABLE", "0")]));
        assert_eq!(found[0].message, "NCCL_P2P_DISABLE is 0 by default");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn other_values_and_other_kinds_are_left_alone() {
        quiet(
            &RULE,
            &pod(&[
                ("NCCL_P2P_DISABLE", "1"),
                ("NCCL_BUFFSIZE", "4194304"),
                ("NCCL_CUMEM_ENABLE", "0"),
                ("NCCL_NVLS_ENABLE", "2"),
            ]),
        );
    }
}
