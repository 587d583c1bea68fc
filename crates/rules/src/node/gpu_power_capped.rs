//! A power limit below the GPU's default.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{gpus, list, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gpu-power-capped",
    title: "the power limit of a GPU is below its default",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "A GPU with a lower power limit lowers its clocks under load. All ranks of a job wait for the slowest GPU.",
    fix: "`nvidia-smi -q -d POWER` shows both limits. Without a reason for it, set the default again: `nvidia-smi -pl WATTS -i GPU`.",
    references: &["https://docs.nvidia.com/deploy/nvidia-smi/index.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let mut capped = Vec::new();
    for gpu in gpus(state)? {
        if let (Some(limit), Some(default)) = (gpu.power_limit_w, gpu.power_default_w)
            && limit < default - 1.0
        {
            capped.push((gpu.index, format!("{} ({limit:.0} of {default:.0} W)", name(gpu))));
        }
    }
    if capped.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<String> = capped.iter().map(|it| it.1.clone()).collect();
    let finding =
        Finding::new(Confidence::Certain, format!("the power limit is lowered on {}", list(&names, 3)));
    Ok(vec![capped.iter().fold(finding, |it, gpu| it.about_gpu(gpu.0))])
}
