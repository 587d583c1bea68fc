//! NVLinks that are down, or GPUs that NVLink does not reach.

use evidence::Source;
use evidence::node::{Gpu, NodeState};
use fabric::gpu::NvLinkBy;

use super::facts::{gpus, list, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-nvlink-down",
    title: "NVLinks of the node are down",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "NCCL takes the slowest GPU's links for all, or leaves NVLink for PCI Express and host memory, which is many times slower. On machines with \
          NVSwitch, CUDA does not start (error 802) before the Fabric Manager has set the switches up.",
    fix: "`nvidia-smi nvlink --status` and `systemctl status nvidia-fabricmanager`, whose version must be that of the driver; `nvidia-smi -q | grep \
          -A2 Fabric` must say Completed. Reset the GPUs or reboot; if links stay down, replace the machine.",
    references: &[
        "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html",
        "https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html",
    ],
    checks: &[Check::Node(check)],
};

/// A single GPU is often handed to a virtual machine without its links.
fn should_have_links(gpus: &[Gpu]) -> bool {
    gpus.len() >= 2
}

/// How many links each of these GPUs should have; `None` where that is not known or they are of several models.
pub(super) fn expected(gpus: &[Gpu]) -> Option<u32> {
    let mut all = gpus.iter().map(links);
    let first = all.next().flatten()?;
    (should_have_links(gpus) && all.all(|it| it == Some(first))).then_some(first)
}

fn check(state: &NodeState) -> Checked {
    let gpus = gpus(state)?;
    if !should_have_links(gpus) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let lacking: Vec<(&Gpu, u32)> =
        gpus.iter().filter_map(|it| Some((it, links(it)?))).filter(|it| up(it.0) < it.1).collect();
    if !lacking.is_empty() {
        let names: Vec<String> =
            lacking.iter().map(|(gpu, most)| format!("{} ({} of {most})", name(gpu), up(gpu))).collect();
        let message = format!("NVLinks are not active on {}", list(&names, 4));
        let finding = Finding::new(Confidence::Certain, message);
        found.push(lacking.iter().fold(finding, |it, gpu| it.about_gpu(gpu.0.index)));
    }
    let switched = |it: &Gpu| {
        it.name
            .as_deref()
            .and_then(fabric::gpu::find)
            .and_then(|it| it.nvlink)
            .is_some_and(|it| it.by == NvLinkBy::Switch)
    };
    let others = gpus.len() - 1;
    let cut: Vec<&Gpu> = gpus
        .iter()
        .filter(|it| switched(it) && it.mig != Some(true))
        .filter(|it| {
            it.nvlink
                .as_ref()
                .and_then(|it| it.peers)
                .is_some_and(|it| usize::try_from(it).is_ok_and(|it| it < others))
        })
        .collect();
    if lacking.is_empty()
        && let Some(first) = cut.first()
    {
        let peers = first.nvlink.as_ref().and_then(|it| it.peers).unwrap_or(0);
        let message = format!(
            "NVLink is up, but the driver reaches {peers} of {others} other GPUs over it from {}: the NVSwitches are not set up",
            name(first)
        );
        let finding = Finding::new(Confidence::Likely, message);
        found.push(cut.iter().fold(finding, |it, gpu| it.about_gpu(gpu.index)));
    }
    let errors = |it: &Gpu| {
        let links = it.nvlink.as_ref()?;
        let sum = [links.replay_errors, links.recovery_errors]
            .into_iter()
            .flatten()
            .fold(0u64, u64::saturating_add);
        (sum > 0).then(|| format!("{} ({sum})", name(it)))
    };
    let wrong: Vec<String> = gpus.iter().filter_map(errors).collect();
    if !wrong.is_empty() {
        let message = format!("NVLink counted replays or recoveries on {}", list(&wrong, 4));
        let why = "The links repeated packets since the driver was loaded. Few are harmless; counts that grow during a run point at a bad link.";
        found.push(Finding::new(Confidence::Certain, message).severity(Severity::Info).why(why));
    }
    Ok(found)
}

fn up(gpu: &Gpu) -> u32 {
    gpu.nvlink.as_ref().map_or(0, |it| it.up)
}

/// How many links the model has, where they are always connected.
fn links(gpu: &Gpu) -> Option<u32> {
    gpu.nvlink.as_ref()?;
    let port = fabric::gpu::find(gpu.name.as_deref()?)?.nvlink?;
    (port.by != NvLinkBy::Bridge).then_some(port.links)
}
