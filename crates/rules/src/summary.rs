//! The job in a few facts, for the head of an answer.

use std::collections::BTreeMap;

use evidence::{MemberLink, plugin};
use fabric::Transport;
use fabric::catalogue::Inside;
use fabric::machine::NicKind;

use crate::Log;

/// What is known about the job as a whole. Everything may be unknown.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Ranks in the largest communicator.
    pub n_ranks: Option<u32>,
    /// Nodes, as NCCL counts them.
    pub n_nodes: Option<u32>,
    /// Ranks on a node.
    pub ranks_per_node: Option<u32>,
    /// Ranks whose lines were read.
    pub ranks_seen: Vec<u32>,
    /// The hosts that were seen.
    pub hosts: Vec<String>,
    /// The NCCL release as printed.
    pub nccl: Option<String>,
    /// The RCCL release, on AMD's GPUs.
    pub rccl: Option<String>,
    /// The driver's CUDA level.
    pub cuda_driver: Option<String>,
    /// No GPU takes part: the engine of `plumb bench` on host memory.
    pub host_memory: bool,
    /// The network plugin.
    pub plugin: Option<PluginSummary>,
    /// The libfabric release.
    pub libfabric: Option<String>,
    /// The instance type.
    pub instance: Option<String>,
    /// The machine in words, from the catalogue.
    pub machine: Option<String>,
    /// The networks chosen, in words.
    pub networks: Vec<String>,
    /// Connections between nodes with GPUDirect, and without.
    pub gpudirect: (u32, u32),
    /// How many connections inside a node use each transport.
    pub inside: BTreeMap<&'static str, u32>,
}

/// A network plugin as it is printed.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginSummary {
    /// `aws-ofi-nccl`
    pub name: &'static str,
    /// `1.16.2`
    pub version: String,
}

/// Sums a case up.
pub fn summary(log: &Log) -> Summary {
    let world = log.case.world();
    let mut summary = Summary {
        n_ranks: log.job.size.n_ranks(),
        n_nodes: log.job.size.n_nodes(),
        ranks_per_node: log.job.size.ranks_per_node.as_ref().map(|it| it.value),
        ranks_seen: world.map(|it| it.members.keys().copied().collect()).unwrap_or_default(),
        nccl: log.case.processes.iter().find_map(|it| it.facts.version.value()).map(ToString::to_string),
        rccl: log.job.releases.rccl.as_ref().map(|it| it.value.to_string()),
        cuda_driver: log
            .case
            .processes
            .iter()
            .find_map(|it| it.facts.cuda_driver.value())
            .map(|it| driver(*it)),
        host_memory: log.case.is_in_host_memory(),
        plugin: log
            .case
            .processes
            .iter()
            .find_map(|it| it.facts.plugin.release.value())
            .map(|it| PluginSummary { name: it.plugin.name, version: it.version.to_string() }),
        libfabric: log
            .case
            .processes
            .iter()
            .find_map(|it| it.facts.plugin.libfabric.value())
            .map(ToString::to_string),
        instance: log.job.machine_name.as_ref().map(|it| it.value.to_string()),
        machine: log.job.model().map(machine),
        networks: networks(log),
        ..Summary::default()
    };
    if summary.nccl.is_none() {
        summary.nccl = log.job.releases.nccl.as_ref().map(|it| it.value.to_string());
    }
    summary.hosts = log.job.size.hosts.iter().map(ToString::to_string).collect();
    for MemberLink { link, .. } in log.case.links() {
        let Some(transport) = link.transport() else { continue };
        match transport {
            Transport::Net { gpudirect: true, .. } | Transport::CollNet { gpudirect: true, .. } => {
                summary.gpudirect.0 += 1;
            }
            Transport::Net { .. } | Transport::CollNet { .. } => summary.gpudirect.1 += 1,
            Transport::Shm | Transport::P2p { .. } => {
                *summary.inside.entry(transport.family()).or_default() += 1;
            }
        }
    }
    summary
}

/// `13000` is CUDA 13.0.
pub fn driver(number: u32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn machine(model: &fabric::catalogue::Model) -> String {
    let Some(it) = model.instance else { return other_machine(model) };
    let mut text = format!("{} x {}", it.gpus, it.gpu);
    if it.nvlink == Some(true) {
        text.push_str(" with NVLink");
    }
    match (it.nics, it.nic_gbps_each) {
        (0, _) => text.push_str(", no EFA"),
        (n, Some(rate)) => text.push_str(&format!(", {n} x {rate} EFA")),
        (n, None) => text.push_str(&format!(", {n} EFA")),
    }
    text
}

/// A machine that is not an instance type of AWS.
fn other_machine(it: &fabric::catalogue::Model) -> String {
    let mut text = format!("{} x {}", it.gpus, it.gpu.name);
    if matches!(it.inside, Inside::NvSwitch | Inside::NvLinkMesh) {
        text.push_str(" with NVLink");
    }
    let kind = match it.network {
        NicKind::InfiniBand => "InfiniBand",
        NicKind::Roce => "RoCE",
        NicKind::GpuDirectTcp => it.plugin.unwrap_or("GPUDirect-TCPX"),
        NicKind::Slingshot => "Slingshot",
        NicKind::Efa => "EFA",
        NicKind::Ethernet | NicKind::Unknown => "Ethernet",
    };
    text.push_str(&format!(", {} {kind}", it.bandwidth));
    text
}

/// The networks as people call them: `EFA`, `InfiniBand`, `RoCE`, `TCP sockets`.
fn networks(log: &Log) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    let chosen = log.case.networks().map(|it| &*it.value);
    let used = log.case.links().filter_map(|it| it.link.transport()?.network().map(|it| it.0));
    for name in chosen.chain(used) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut called: Vec<String> = Vec::new();
    for name in names {
        let name = plugin::called(name, &log.case.processes);
        if !called.contains(&name) {
            called.push(name);
        }
    }
    called
}
