//! A GPU whose PCI Express link lost lanes.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{gpus_of_kernel, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gpu-pcie-narrow",
    title: "the PCI Express link of a GPU lost lanes",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "A link with half of its lanes has half of its bandwidth to host memory and, through the switch, to the NIC. Unlike the generation, the \
          width does not fall while the GPU is idle.",
    fix: "`nvidia-smi -q -d PCI` or `lspci -vv` (LnkSta) show the width. Reseat the GPU or its riser, or reboot; if it stays, replace the machine.",
    references: &["https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let mut found = Vec::new();
    for gpu in gpus_of_kernel(state)? {
        let Some(link) = gpu.pcie else { continue };
        if let (Some(width), Some(most)) = (link.width, link.max_width)
            && width < most
            && width > 0
        {
            let message = format!("{} has {width} of {most} PCI Express lanes", name(gpu));
            found.push(Finding::new(Confidence::Certain, message).about_gpu(gpu.index));
        }
    }
    Ok(found)
}
