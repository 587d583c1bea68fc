//! GPUDirect RDMA turned off although the hardware supports it.

use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "gpudirect-turned-off",
    title: "GPUDirect RDMA turned off by a variable",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "NICs then read and write host memory: every byte between nodes crosses PCIe and host memory two more times.",
    fix: "Remove the variable. It is useful for a single test if you suspect ACS or the IOMMU.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-gdr-level",
        "https://github.com/awslabs/awsome-distributed-ai/pull/1106",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&[
            "NCCL_NET_GDR_LEVEL",
            "FI_HMEM_DISABLE_P2P",
            "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK",
        ])
        .filter_map(|it| finding(&it))
        .collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let off = match name {
        "NCCL_NET_GDR_LEVEL" => matches!(value, "LOC" | "0"),
        _ => matches!(value, "1" | "true" | "yes" | "on"),
    };
    // Without GPUDirect nothing is lost.
    if !off || variable.everywhere(|it| it.gpudirect == Some(false)) {
        return None;
    }
    let fix = format!("Remove {name}.");
    if name == "OFI_NCCL_DISABLE_GDR_REQUIRED_CHECK" {
        let message = format!("{name}={value} hides that GPUDirect RDMA does not work");
        return Some(
            Finding::at(variable.file, &variable.setting.span, message).severity(Severity::Info).fix(fix),
        );
    }
    let known = variable.everywhere(|it| it.gpudirect == Some(true));
    let message = format!("{name}={value} turns GPUDirect RDMA off{}", variable.on());
    let finding = Finding::at(variable.file, &variable.setting.span, message).fix(fix);
    Some(if known { finding } else { finding.severity(Severity::Info).confidence(Confidence::Likely) })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn the_type_decides() {
        for (name, value) in
            [("NCCL_NET_GDR_LEVEL", "LOC"), ("NCCL_NET_GDR_LEVEL", "0"), ("FI_HMEM_DISABLE_P2P", "1")]
        {
            let found = findings(&RULE, &job("p5.48xlarge", 2, &[(name, value)]));
            assert_eq!(found[0].message, format!("{name}={value} turns GPUDirect RDMA off on p5.48xlarge"));
            assert_eq!(found[0].severity, None);
            quiet(&RULE, &job("g5.48xlarge", 2, &[(name, value)]));
            assert_eq!(findings(&RULE, &pod(&[(name, value)]))[0].severity, Some(Severity::Info));
        }
    }

    #[test]
    fn other_levels_are_left_alone() {
        quiet(&RULE, &job("p5.48xlarge", 2, &[("NCCL_NET_GDR_LEVEL", "PHB"), ("FI_HMEM_DISABLE_P2P", "0")]));
    }
}
