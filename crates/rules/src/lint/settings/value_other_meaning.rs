//! A number that means another level than expected.

use job::submitted::Submitted;

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "value-other-meaning",
    title: "a number that means another level than expected",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "The numbers follow an old order of the levels: 0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and more SYS. NVLink has no number.",
    fix: "Write the name of the level, or remove the variable.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level",
        "https://github.com/NVIDIA/nccl/blob/v2.27.3-1/src/graph/paths.cc#L209-L247",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&["NCCL_P2P_LEVEL", "NCCL_NET_GDR_LEVEL"])
        .filter_map(|it| {
            let value = it.value()?.trim();
            let number: u32 = value.parse().ok()?;
            let level = *["LOC", "PIX", "PXB", "PHB"].get(number as usize).unwrap_or(&"SYS");
            let name = it.name();
            let span = it.setting.value_span.as_ref()?;
            let finding = Finding::at(it.file, span, format!("{name}={value} is {level}"))
                .label(format!("this is {level}"))
                .fix(format!("Write {level} if you mean that, or remove {name}: NCCL chooses by topology."));
            // Some guides say that 4 and 5 mean NVLink; they allow P2P everywhere.
            Some(if name == "NCCL_P2P_LEVEL" && number > 3 {
                let mut finding = finding.severity(Severity::Warning).confidence(Confidence::Likely);
                finding.message.push_str(": P2P everywhere, also between sockets; NVLink only is NVL");
                finding
            } else {
                finding
            })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn numbers_are_translated() {
        let found = findings(&RULE, &pod(&[("NCCL_P2P_LEVEL", "5"), ("NCCL_NET_GDR_LEVEL", "2")]));
        assert!(found[0].message.starts_with("NCCL_P2P_LEVEL=5 is SYS"));
        assert_eq!(found[0].severity, Some(Severity::Warning));
        assert_eq!(found[1].message, "NCCL_NET_GDR_LEVEL=2 is PXB");
        assert_eq!(found[1].severity, None);
    }

    #[test]
    fn names_are_left_alone() {
        quiet(
            &RULE,
            &pod(&[("NCCL_P2P_LEVEL", "NVL"), ("NCCL_NET_GDR_LEVEL", "PHB"), ("NCCL_CROSS_NIC", "1")]),
        );
    }
}
