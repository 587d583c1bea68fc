//! GPUs cut into MIG instances, or shared in another way.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{gpus, list, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-mig-on",
    title: "MIG splits a GPU of the node",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "MIG instances do not use NVLink or peer access: NCCL between them goes through host memory, and a training job gets a part of each GPU.",
    fix: "`nvidia-smi -mig 0 -i GPU`, when no program uses the GPU; on Kubernetes, set the node's `nvidia.com/mig.config` to `all-disabled`.",
    references: &["https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let mut found = Vec::new();
    let split: Vec<_> = gpus(state)?.iter().filter(|it| it.mig == Some(true)).collect();
    if !split.is_empty() {
        let names: Vec<String> = split.iter().map(|it| name(it)).collect();
        let finding = Finding::new(Confidence::Certain, format!("MIG is on for {}", list(&names, 4)));
        found.push(split.iter().fold(finding, |it, gpu| it.about_gpu(gpu.index)));
    }
    for gpu in gpus(state)?.iter().filter(|it| it.compute_mode.as_deref() == Some("prohibited")) {
        let message = format!("{} refuses every compute program (compute mode prohibited)", name(gpu));
        let finding =
            Finding::new(Confidence::Certain, message).severity(Severity::Error).about_gpu(gpu.index);
        found.push(finding.fix("`nvidia-smi -c 0 -i GPU`."));
    }
    Ok(found)
}
