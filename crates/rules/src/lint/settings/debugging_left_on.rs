//! Debug settings left on.

use job::submitted::{Submitted, SubmittedVariable};

use crate::sentence::capitalised;
use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "debugging-left-on",
    title: "a debug setting left on",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "It slows down every step or makes the log very long, and is only useful while debugging.",
    fix: "Remove it before training.",
    references: &[
        "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars",
        "https://pytorch.org/docs/stable/distributed.html#torch-distributed-debug",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-debug",
    ],
    checks: &[Check::Submission(check)],
};

const NAMES: &[&str] =
    &["CUDA_LAUNCH_BLOCKING", "TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "FI_LOG_LEVEL"];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables_named(NAMES).filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let upper = value.to_ascii_uppercase();
    let (severity, what) = match name {
        "CUDA_LAUNCH_BLOCKING" if variable.number().is_some_and(|it| it != 0) => (
            Severity::Warning,
            "every kernel waits for the previous one, and communication does not overlap with computation",
        ),
        "TORCH_DISTRIBUTED_DEBUG" if upper == "DETAIL" => {
            (Severity::Info, "PyTorch adds a barrier and a comparison of shapes before every collective")
        }
        "NCCL_DEBUG" if upper == "TRACE" => {
            (Severity::Info, "NCCL logs every call; INFO is enough to see what NCCL chose")
        }
        "NCCL_DEBUG_SUBSYS" if upper.split(',').any(|it| matches!(it.trim(), "ALL" | "COLL" | "CALL")) => {
            (Severity::Info, "NCCL logs every collective on every rank")
        }
        "FI_LOG_LEVEL" if matches!(upper.as_str(), "DEBUG" | "TRACE") => {
            (Severity::Info, "libfabric logs every operation")
        }
        _ => return None,
    };
    let finding = Finding::at(variable.file, &variable.setting.span, format!("{name}={value}: {what}"));
    Some(finding.reason(capitalised(what)).severity(severity).fix(format!("Remove {name} before training.")))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn what_slows_every_step_is_a_warning() {
        let env = [
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
            ("NCCL_DEBUG_SUBSYS", "ALL"),
        ];
        let found = findings(&RULE, &pod(&env));
        let severities: Vec<Option<Severity>> = found.iter().map(|it| it.severity).collect();
        assert_eq!(severities, [Some(Severity::Warning), Some(Severity::Info), Some(Severity::Info)]);
        assert!(found[0].message.starts_with("CUDA_LAUNCH_BLOCKING=1: every kernel waits"));
    }

    #[test]
    fn a_plain_log_is_left_alone() {
        quiet(
            &RULE,
            &pod(&[
                ("NCCL_DEBUG", "INFO"),
                ("NCCL_DEBUG_SUBSYS", "INIT,NET"),
                ("CUDA_LAUNCH_BLOCKING", "0"),
                ("TORCH_DISTRIBUTED_DEBUG", "INFO"),
            ]),
        );
    }
}
