//! There are GPUs, and the driver does not work.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-driver-not-working",
    title: "the NVIDIA driver of the node does not work",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::Devices, Source::GpuDriver],
    why: "No CUDA program starts on the node: the kernel module is not loaded or hangs, or it and the libraries are of different versions.",
    fix: "`cat /proc/driver/nvidia/version` shows the kernel module and `nvidia-smi` the libraries. After an update of the driver, reboot or reload \
          the module; without a module, install the driver for this kernel (`dkms status`) and load it with `modprobe nvidia`. If it hangs, reboot; `dmesg | grep -iE 'NVRM|xid'` \
          shows which GPU failed.",
    references: &["https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let on_bus = state.pci.gpus.unwrap_or(0);
    if state.gpus.is_some() || (state.pci.gpus == Some(0) && state.driver.is_none()) {
        return Ok(Vec::new());
    }
    let problem = state.driver.as_ref().and_then(|it| it.problem.as_deref()).unwrap_or_default();
    // NVML says "driver/library version mismatch".
    if problem.contains("mismatch") {
        let message = "the NVIDIA libraries do not match the kernel module (driver/library version mismatch)";
        return Ok(vec![Finding::new(Confidence::Certain, message)]);
    }
    // So does every program that uses a GPU.
    if problem.contains("did not answer within") {
        let message = format!("the NVIDIA driver hangs: asked through NVML, {problem}");
        return Ok(vec![Finding::new(Confidence::Likely, message)]);
    }
    let loaded = state.has_module("nvidia").ok_or(Missing(Source::Devices))?;
    if on_bus > 0 && !loaded {
        let message =
            format!("{on_bus} NVIDIA GPUs are on the PCI bus, but the kernel module `nvidia` is not loaded");
        let finding = Finding::new(Confidence::Certain, message);
        // A sandbox with its own kernel does not show modules.
        return Ok(vec![if state.in_container() { finding.confidence(Confidence::Likely) } else { finding }]);
    }
    // The module is there; that NVML could not be loaded says something about this process, not about the node.
    Err(Missing(Source::GpuDriver))
}
