//! A path between the GPUs of one machine turned off.

use fabric::catalogue::Inside;
use job::submitted::{Submitted, SubmittedVariable};

use crate::sentence::capitalised;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "p2p-turned-off",
    title: "a path between the GPUs of one machine turned off",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "Without P2P the GPUs of a machine communicate through host memory, and NVLink is idle. Without SHM they communicate over the network.",
    fix: "Remove the variable. It is useful for a single test.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-disable",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-shm-disable",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted
        .variables_named(&["NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_NVLS_ENABLE"])
        .filter_map(|it| finding(&it))
        .collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let off = match name {
        "NCCL_P2P_LEVEL" => matches!(value, "LOC" | "0"),
        "NCCL_NVLS_ENABLE" => {
            value == "0" && variable.everywhere(|it| it.gpu.nvlink.is_some_and(|it| it.generation >= 4))
        }
        _ => variable.number() == Some(1),
    };
    // A single GPU in a pod has no peer.
    if !off || variable.gpus().is_some_and(|it| it <= 1) || variable.everywhere(|it| it.gpus == 1) {
        return None;
    }
    let new = |message: String| {
        Finding::at(variable.file, &variable.setting.span, message).fix(format!("Remove {name}."))
    };
    let nvlink = variable.everywhere(|it| matches!(it.inside, Inside::NvSwitch | Inside::NvLinkMesh));
    Some(match name {
        "NCCL_NVLS_ENABLE" => {
            new(format!("{name}={value} disables reduction in the NVSwitch (NVLS){}", variable.on()))
                .severity(Severity::Info)
        }
        "NCCL_SHM_DISABLE" => {
            // With NVLink everywhere NCCL does not use SHM.
            let reason = "GPUs of one machine without P2P then communicate over the network";
            new(format!("{name}={value}: {reason}"))
                .reason(reason)
                .severity(Severity::Info)
                .confidence(Confidence::Likely)
        }
        _ if nvlink => {
            new(format!("{name}={value} leaves NVLink idle{}", variable.on())).label("NVLink is not used")
        }
        _ => {
            let reason = "the GPUs of a machine then communicate through host memory";
            let finding = new(format!("{name}={value}: {reason}")).reason(capitalised(reason));
            finding.severity(Severity::Info).confidence(Confidence::Likely)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn nvlink_is_not_left_idle() {
        let found = findings(&RULE, &job("p4d.24xlarge", 2, &[("NCCL_P2P_DISABLE", "1")]));
        assert_eq!(found[0].message, "NCCL_P2P_DISABLE=1 leaves NVLink idle on p4d.24xlarge");
        assert_eq!(found[0].severity, None);
        for env in [("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")] {
            assert_eq!(findings(&RULE, &pod(&[env]))[0].severity, Some(Severity::Info));
        }
        assert_eq!(findings(&RULE, &job("p5.48xlarge", 2, &[("NCCL_NVLS_ENABLE", "0")])).len(), 1);
    }

    #[test]
    fn what_turns_nothing_off_is_left_alone() {
        quiet(
            &RULE,
            &job(
                "p4d.24xlarge",
                2,
                &[("NCCL_P2P_DISABLE", "0"), ("NCCL_P2P_LEVEL", "NVL"), ("NCCL_NVLS_ENABLE", "0")],
            ),
        );
        let one = job("p4d.24xlarge", 2, &[("NCCL_P2P_DISABLE", "1")]).replace("gpu: 8", "gpu: 1");
        quiet(&RULE, &one);
    }
}
