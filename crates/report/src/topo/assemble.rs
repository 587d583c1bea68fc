//! Assembles the answer of `plumb topo` from the job, NCCL's decisions and the normal bandwidth.

use std::collections::BTreeMap;

use evidence::topology::Graph;
use fabric::machine::{Machine, Maker, NicKind, NvEnd, Place};
use fabric::{Collective, PathType, Transport, Version, link};
use forecast::{Impossible, NormalAt};
use job::Job;
use job::channel::{Channel, Connection};
use nccl::{Between, Device, Reason, Survey};

use super::model::{
    Topo, TopoEdge, TopoFamily, TopoGraph, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink,
    TopoNvswitch, TopoOrder, TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};
use crate::Price;
use crate::expect::rounded;
use crate::text::counted;

/// The input of the answer.
#[derive(Debug, Clone)]
pub struct TopoParts<'a> {
    /// The job; its first machine is the one to show.
    pub job: &'a Job,
    /// Where the machine comes from: a file and line, the catalogue, this machine.
    pub source: String,
    /// The machine as NCCL sees it.
    pub seen_by_nccl: &'a Machine,
    /// What NCCL decides on it.
    pub survey: &'a Survey,
    /// The normal bandwidth by size, or why it is not known.
    pub normal: Result<Vec<NormalAt>, Impossible>,
    /// Of which collective.
    pub collective: Collective,
    /// A ring or tree to draw on top.
    pub channel: Option<&'a Channel>,
    /// The result of NCCL's search, if the source contains it.
    pub graphs: &'a [Graph],
    /// Problems with the source.
    pub notes: Vec<String>,
    /// What the layout costs a training job.
    pub price: Option<Price>,
}

impl Topo {
    /// The answer; empty for a job without machines.
    pub fn new(parts: TopoParts<'_>) -> Self {
        let TopoParts {
            job,
            source,
            seen_by_nccl,
            survey,
            normal,
            collective,
            channel,
            graphs,
            mut notes,
            price,
        } = parts;
        let Some(machine) = job.machines.first().map(|it| &it.value) else { return Self::default() };
        let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
        let version = job.effective_settings().version;
        let conflicts: Vec<String> = job.conflicts.iter().map(ToString::to_string).collect();
        notes.extend(conflicts.iter().cloned());
        let hidden = machine.hidden;
        // What NCCL would do with the GPUs of a machine depends on what is not known.
        let is_open = hidden.wiring || (hidden.nvlink && machine.gpus.len() > 1);
        if !is_open {
            notes.extend(survey.losses.iter().map(|it| sentence(&it.to_string())));
        }
        let share = job.nodes_may_share_machines();
        if share {
            let (nodes, each) = (layout.nodes as usize, counted(layout.gpus_per_pod as usize, "GPU"));
            let ranks = layout.ranks();
            let one = if machine.gpus.len() as u64 >= ranks {
                format!("--nodes 1 --pods {nodes}x{}", layout.gpus_per_pod)
            } else {
                "--nodes N --pods PxG".to_owned()
            };
            notes.push(format!(
                "The log has {nodes} nodes of {each}, and each counts as a machine here. NCCL counts a pod with a host name of its own as a \
                 node, so they may be pods on fewer machines: {one} says so."
            ));
        }
        if let Some(price) = &price {
            notes.push(format!(
                "Against one pod with these GPUs and NCCL's defaults this layout costs {}.",
                price.words()
            ));
        }
        let mut unknown = machine.unknown.clone();
        let normal = match normal {
            _ if is_open => {
                let (what, add) = if hidden.wiring {
                    ("The wiring", "--instance NAME")
                } else {
                    ("NVLink", "--instance NAME or --gpu MODEL")
                };
                unknown.insert(
                    0,
                    format!(
                        "{what} is not in this source, and with it what NCCL would use inside the machine and which \
                         bandwidth is normal. Add {add}."
                    ),
                );
                Vec::new()
            }
            Ok(normal) => normal,
            Err(reason) => {
                unknown.push(format!("Normal bandwidth: {reason}."));
                Vec::new()
            }
        };
        let is_shown =
            |it: &nccl::SurveyedPath| !(hidden.wiring || is_open && matches!(it.to, Device::Gpu(_)));
        let is_certain =
            |it: &&nccl::TransportUse| !is_open || (!hidden.wiring && it.between == Between::Machines);
        if seen_by_nccl.nics.len() < machine.nics.len() {
            let each = machine.nics.len() / seen_by_nccl.nics.len().max(1);
            notes.push(format!(
                "aws-ofi-nccl groups {each} NICs near a GPU into one device: NCCL sees {}, each named after its first NIC.",
                seen_by_nccl.nics.len()
            ));
        }
        let far = survey.transports.iter().any(|it| matches!(it.reason, Reason::TooFar { .. }));
        if machine.sockets.iter().all(|it| it.maker == Maker::Unknown) && far && !is_open {
            unknown.push(
                "The CPU vendor is not known: NCCL allows P2P through the CPU on some AMD machines."
                    .to_owned(),
            );
        }
        if normal.iter().any(|it| !it.normal.measured) {
            notes.push(
                "No published measurement of such a machine backs these bandwidths, so their intervals are wide."
                    .to_owned(),
            );
        }
        Self {
            schema: "plumb.topo/1",
            name: machine.name.as_deref().map(str::to_owned),
            summary: summary(machine),
            source,
            sockets: if hidden.wiring { Vec::new() } else { sockets(machine, seen_by_nccl) },
            nvlink_is_hidden: is_open && !hidden.wiring,
            nvlinks: nvlinks(machine, version),
            nvswitch: nvswitch(machine, version),
            paths: survey.paths.iter().filter(|it| is_shown(it)).map(|it| path(seen_by_nccl, it)).collect(),
            nics: survey.nics.iter().filter(|_| !hidden.wiring).map(|it| nic_use(seen_by_nccl, it)).collect(),
            job: Some(TopoJob {
                nccl: version.to_string(),
                nodes: layout.nodes,
                nodes_may_share_machines: share,
                pods: format!("{}x{}", layout.pods_per_node, layout.gpus_per_pod),
                transports: survey
                    .transports
                    .iter()
                    .filter(is_certain)
                    .map(|it| transport(it, share))
                    .collect(),
            }),
            normal: normal.iter().map(|it| normal_at(collective, it)).collect(),
            graphs: graphs.iter().filter(|it| it.n_channels > 0).map(|it| graph(machine, it)).collect(),
            // Several machines are drawn side by side, with or without a ring.
            overlay: channel.map(overlay).or_else(|| {
                let several = layout.nodes > 1;
                several.then(|| TopoOverlay { nodes: layout.nodes, ..TopoOverlay::default() })
            }),
            notes,
            price,
            conflicts,
            unknown,
        }
    }
}

pub(super) fn overlay(channel: &Channel) -> TopoOverlay {
    TopoOverlay {
        name: format!("{} {}", channel.shape.name(), channel.number),
        nodes: channel.nodes,
        edges: channel.connections.iter().map(edge).collect(),
        changed: Vec::new(),
    }
}

fn edge(it: &Connection) -> TopoEdge {
    let unknown = if it.from.node == it.to.node { TopoFamily::Inside } else { TopoFamily::Net };
    TopoEdge {
        from: (it.from.node, it.from.local_rank),
        to: (it.to.node, it.to.local_rank),
        family: it.transport.as_ref().map_or(unknown, TopoFamily::from),
        nic: it.nic.clone(),
        to_nic: None,
    }
}

fn graph(machine: &Machine, it: &Graph) -> TopoGraph {
    let nic = |index: &u32| {
        let known = machine.nics.iter().find(|it| it.index == *index);
        known.map_or_else(|| format!("NIC{index}"), |it| it.name.to_string())
    };
    let mut orders: Vec<TopoOrder> = Vec::new();
    for (number, channel) in (0..).zip(&it.channels) {
        let gpus = channel.gpus.iter().map(|it| format!("GPU{it}"));
        let steps: Vec<String> =
            channel.net_in.iter().map(nic).chain(gpus).chain(channel.net_out.iter().map(nic)).collect();
        match orders.iter_mut().find(|it| it.steps == steps) {
            Some(known) => known.channels.push(number),
            None => orders.push(TopoOrder { channels: vec![number], steps }),
        }
    }
    let name = match it.pattern {
        1 => "tree, balanced",
        2 => "tree, split",
        3 => "tree",
        4 => "ring",
        5 => "NVLS",
        6 => "CollNet",
        _ => "other",
    };
    TopoGraph {
        name: name.to_owned(),
        channels: it.n_channels,
        inside: it.speed_intra,
        between: it.speed_inter,
        path_inside: it.type_intra.to_string(),
        path_to_nic: it.type_inter.to_string(),
        orders,
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// `8 x A100-SXM4-40GB, NVSwitch 600 GB/s each; 4 x 100 Gbps EFA; 2 NUMA nodes`
fn summary(machine: &Machine) -> String {
    let mut parts = Vec::new();
    if let Some(gpu) = machine.gpus.first() {
        let model = gpu.model.as_deref().unwrap_or(if machine.gpus.len() == 1 { "GPU" } else { "GPUs" });
        let mut text = if gpu.model.is_some() || machine.gpus.len() > 1 {
            format!("{} x {model}", machine.gpus.len())
        } else {
            "1 GPU".to_owned()
        };
        if gpu.model.is_none() && machine.gpus.len() > 1 {
            text = format!("{} {model}", machine.gpus.len());
        }
        let port = gpu.model.as_deref().and_then(fabric::gpu::find).and_then(|it| it.nvlink);
        if machine.has_nvswitch() {
            text.push_str(", NVSwitch");
            if let Some(port) = port {
                text.push_str(&format!(" {} each", port.bidirectional));
            }
        } else if !machine.nvlinks.is_empty() {
            text.push_str(", NVLink");
        } else if machine.hidden.nvlink && machine.gpus.len() > 1 {
            text.push_str(if machine.hidden.wiring { "" } else { ", NVLink not shown" });
        } else if machine.gpus.len() > 1 {
            text.push_str(" without NVLink");
        }
        parts.push(text);
    } else {
        parts.push("no GPU".to_owned());
    }
    let mut nics: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for nic in &machine.nics {
        let rate = nic.rate.map(|it| it.to_string()).unwrap_or_default();
        *nics.entry((rate, kind(nic.kind).unwrap_or("NIC"))).or_default() += 1;
    }
    for ((rate, kind), count) in nics {
        let text = format!("{count} x {rate} {kind}");
        parts.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    // A socket can have several NUMA nodes, and only these are known by their number.
    let what = if machine.sockets.iter().all(|it| it.numa.is_some()) { "NUMA node" } else { "socket" };
    match machine.sockets.len() {
        _ if machine.hidden.wiring => parts.push("wiring not known".to_owned()),
        0 => {}
        n => parts.push(counted(n, what)),
    }
    parts.join("; ")
}

fn kind(kind: NicKind) -> Option<&'static str> {
    match kind {
        NicKind::Efa => Some("EFA"),
        NicKind::InfiniBand => Some("InfiniBand"),
        NicKind::Roce => Some("RoCE"),
        NicKind::GpuDirectTcp => Some("GPUDirect-TCPX"),
        NicKind::Slingshot => Some("Slingshot"),
        NicKind::Ethernet => Some("Ethernet"),
        NicKind::Unknown => None,
    }
}

fn maker(maker: Maker) -> Option<&'static str> {
    match maker {
        Maker::Intel => Some("Intel"),
        Maker::Amd => Some("AMD"),
        Maker::Zhaoxin => Some("Zhaoxin"),
        Maker::Arm => Some("Arm"),
        Maker::Power => Some("IBM Power"),
        Maker::Unknown => None,
    }
}

fn sockets(machine: &Machine, seen: &Machine) -> Vec<TopoSocket> {
    // How many NICs at one switch the plugin groups into one device.
    let at = |machine: &Machine, place: Place| machine.nics.iter().filter(|it| it.at == place).count();
    let joined = |place: Place| u32::try_from(at(machine, place) / at(seen, place).max(1)).unwrap_or(1);
    // From the leaves up: a bridge comes after the one above it.
    let mut below: BTreeMap<Place, Vec<TopoNode>> = BTreeMap::new();
    for gpu in &machine.gpus {
        below.entry(gpu.at).or_default().push(TopoNode::Gpu {
            name: format!("GPU{}", gpu.index),
            model: gpu.model.as_deref().map(str::to_owned),
            bus: gpu.bus.map(|it| it.to_string()),
            link: gpu.link.map(|it| it.to_string()),
            rank: gpu.rank,
        });
    }
    for nic in &machine.nics {
        let siblings = below.entry(nic.at).or_default();
        match siblings.last_mut() {
            // NICs that the plugin uses as one are one line.
            Some(TopoNode::Nic { rail, .. }) if *rail < joined(nic.at) => *rail += 1,
            _ => siblings.push(TopoNode::Nic {
                name: nic.name.to_string(),
                index: nic.index,
                network: kind(nic.kind).map(str::to_owned),
                rate: nic.rate.map(|it| it.0),
                gpudirect: nic.gpudirect,
                bus: nic.bus.map(|it| it.to_string()),
                link: nic.link.map(|it| it.to_string()),
                rail: 1,
            }),
        }
    }
    for (index, bridge) in machine.bridges.iter().enumerate().rev() {
        // A switch without devices is left out.
        let Some(children) = below.remove(&Place::Bridge(index)) else { continue };
        let node = TopoNode::Switch {
            bus: bridge.bus.map(|it| it.to_string()),
            link: bridge.link.map(|it| it.to_string()),
            children,
        };
        below.entry(bridge.at).or_default().insert(0, node);
    }
    let sockets = machine.sockets.iter().enumerate();
    sockets
        .map(|(index, socket)| TopoSocket {
            numa: socket.numa,
            cpus: socket.cpus.as_deref().map(str::to_owned),
            maker: maker(socket.maker).map(str::to_owned),
            children: below.remove(&Place::Socket(index)).unwrap_or_default(),
        })
        .collect()
}

/// The bandwidth that NCCL assumes for one link of a GPU; `None` for an unknown GPU.
fn per_link(machine: &Machine, version: Version) -> Option<f64> {
    machine.gpus.first().and_then(|it| it.compute).map(|it| link::nvlink(it, version))
}

fn nvlinks(machine: &Machine, version: Version) -> Vec<TopoNvlink> {
    let each = per_link(machine, version);
    let name = |place: usize| machine.gpus.get(place).map(|it| format!("GPU{}", it.index));
    let pairs = machine.nvlinks.iter().filter_map(|it| match it.to {
        NvEnd::Gpu(to) if it.from < to => Some(TopoNvlink {
            from: name(it.from)?,
            to: name(to)?,
            count: it.count,
            bandwidth: each.map(|each| each * f64::from(it.count)),
        }),
        NvEnd::Gpu(_) | NvEnd::Switch | NvEnd::Socket(_) => None,
    });
    pairs.collect()
}

fn nvswitch(machine: &Machine, version: Version) -> Option<TopoNvswitch> {
    let links = machine.nvlinks.iter().find(|it| it.to == NvEnd::Switch)?.count;
    Some(TopoNvswitch { links, bandwidth: per_link(machine, version).map(|it| it * f64::from(links)) })
}

/// The name `nvidia-smi topo -m` has for a path.
fn smi(machine: &Machine, from: usize, to: usize, wires: nccl::Path) -> String {
    let direct =
        machine.nvlinks.iter().find(|it| it.from == from && it.to == NvEnd::Gpu(to)).map(|it| it.count);
    let switched = || {
        let to_switch = |gpu| machine.nvlinks.iter().find(|it| it.from == gpu && it.to == NvEnd::Switch);
        to_switch(from).zip(to_switch(to)).map(|(a, b)| a.count.min(b.count))
    };
    match direct.or_else(switched) {
        Some(count) => format!("NV{count}"),
        // NVLink through another GPU is NCCL's own path.
        None if wires.kind == PathType::Nvb => {
            let place = |gpu: usize| machine.gpus.get(gpu).map(|it| it.at);
            place(from).zip(place(to)).map_or("-", |(a, b)| smi_of_places(machine, a, b)).to_owned()
        }
        None => wires.kind.smi().unwrap_or("-").to_owned(),
    }
}

/// The name `nvidia-smi topo -m` has for two places without NVLink.
fn smi_of_places(machine: &Machine, a: Place, b: Place) -> &'static str {
    let (above_a, above_b) = (machine.bridges_above(a), machine.bridges_above(b));
    let kind = match above_a.iter().find(|it| above_b.contains(it)) {
        Some(common) if above_a.first() == Some(common) && above_b.first() == Some(common) => PathType::Pix,
        Some(_) => PathType::Pxb,
        None if machine.socket_of(a) == machine.socket_of(b) => PathType::Phb,
        None => PathType::Sys,
    };
    kind.smi().unwrap_or("-")
}

fn gpu_name(machine: &Machine, position: usize) -> String {
    machine.gpus.get(position).map(|it| format!("GPU{}", it.index)).unwrap_or_default()
}

fn nic_name(machine: &Machine, position: usize) -> String {
    machine.nics.get(position).map(|it| it.name.to_string()).unwrap_or_default()
}

fn path(machine: &Machine, it: &nccl::SurveyedPath) -> TopoPath {
    let (to, smi) = match it.to {
        Device::Gpu(to) => (gpu_name(machine, to), smi(machine, it.from, to, it.wires)),
        Device::Nic(to) => (nic_name(machine, to), it.wires.kind.smi().unwrap_or("-").to_owned()),
        Device::Switch | Device::Socket(_) => (String::new(), "-".to_owned()),
    };
    TopoPath {
        from: gpu_name(machine, it.from),
        to,
        kind: it.path.kind,
        smi,
        bandwidth: it.known.then_some(it.path.bandwidth),
    }
}

fn nic_use(machine: &Machine, it: &nccl::NicUse) -> TopoNicUse {
    TopoNicUse {
        gpu: gpu_name(machine, it.gpu),
        nics: it.near.nics.iter().map(|&nic| nic_name(machine, nic)).collect(),
        path: it.near.path.kind.to_string(),
        gpudirect: it.near.sending.is_on() && it.near.receiving.is_on(),
        shared_by: u32::try_from(it.near.shared_by).unwrap_or(u32::MAX),
        share: it.known.then_some(it.near.share),
    }
}

fn transport(it: &nccl::TransportUse, nodes_may_share_machines: bool) -> TopoTransport {
    let rank = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
    TopoTransport {
        between: it.between,
        pairs: it.pairs,
        example: (rank(it.from), rank(it.to)),
        transport: kind_of(it.transport.as_ref()),
        reason: match it.reason {
            // The intermediate GPU differs from pair to pair.
            Reason::ThroughGpu { .. } => "NVLink connects the GPUs through another GPU".to_owned(),
            Reason::OtherMachine if nodes_may_share_machines => "the ranks are on different nodes".to_owned(),
            other => other.to_string(),
        },
    }
}

/// As NCCL prints it, without the device number, so that pairs of one kind are grouped.
fn kind_of(transport: Option<&Transport>) -> String {
    match transport {
        None => "none".to_owned(),
        Some(Transport::Net { network, gpudirect, through, .. }) => {
            let gpudirect = if *gpudirect { "/GDRDMA" } else { "" };
            let through = if through.is_some() { " by PXN" } else { "" };
            format!("NET/{network}{gpudirect}{through}")
        }
        Some(other) => other.to_string(),
    }
}

fn normal_at(collective: Collective, NormalAt { bytes, normal }: &NormalAt) -> TopoNormal {
    let mostly_latency = normal.overhead > normal.time / 2.0;
    TopoNormal {
        collective: collective.name().to_owned(),
        bytes: *bytes,
        low: rounded(normal.low),
        expected: rounded(normal.expected),
        high: rounded(normal.high),
        time_us: rounded(normal.time),
        algorithm: normal.algorithm.name().to_owned(),
        ceiling: if mostly_latency { "latency" } else { normal.ceiling.describe() }.to_owned(),
        calibrated: normal.measured,
    }
}
