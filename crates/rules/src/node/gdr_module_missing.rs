//! Nothing that lets NICs reach GPU memory.

use evidence::Source;
use evidence::node::NodeState;

use super::facts::{gpus, list, ports};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-gdr-module-missing",
    title: "no kernel module for GPUDirect RDMA is loaded",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Devices, Source::GpuDriver],
    why: "Without nvidia_peermem, and without DMA-BUF (open kernel modules of the driver), NICs cannot read GPU memory: NCCL copies everything \
          through host memory, at a half to a quarter of the bandwidth.",
    fix: "`modprobe nvidia_peermem` (with `nvidia-peermem` in /etc/modules-load.d), or install the driver with its open kernel modules, with which NCCL \
          uses DMA-BUF. EFA: install the driver of the EFA installer, and reboot.",
    references: &[
        "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-dmabuf-enable",
    ],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let ports = ports(state)?;
    if gpus(state)?.is_empty() || ports.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let open = state.driver.as_ref().and_then(|it| it.open_module);
    let verbs = ports.iter().any(|it| it.kind != "efa" && it.state.as_deref() == Some("ACTIVE"));
    let modules = ["nvidia_peermem", "nv_peer_mem"].map(|it| state.has_module(it));
    if verbs && modules == [Some(false); 2] && open == Some(false) {
        let message = "nvidia_peermem is not loaded, and the driver's kernel module is not the open one, which DMA-BUF needs";
        found.push(Finding::new(Confidence::Likely, message));
    }
    // The device names the provider of peer memory that it found; some machines with EFA have no GPUDirect at all.
    let model = super::facts::model(state);
    let without: Vec<String> = ports
        .iter()
        .filter(|it| it.kind == "efa" && it.peer_memory.as_deref().is_some_and(|it| !it.contains("NVIDIA")))
        .map(|it| it.device.clone())
        .collect();
    if !without.is_empty() && model.is_some_and(|it| it.gpudirect == Some(true)) {
        let message = format!("EFA finds no NVIDIA peer memory on {}", list(&without, 3));
        let finding = Finding::new(Confidence::Likely, message);
        found.push(without.iter().fold(finding, Finding::about_nic));
    }
    Ok(found)
}
