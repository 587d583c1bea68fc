//! Puts the answer of `plumb topo` together: the machine, what NCCL decides on it, what is normal there.

use std::collections::BTreeMap;

use evidence::topology::Graph;
use fabric::machine::{Gpu, Machine, Maker, NicKind, NvEnd, Place};
use fabric::{Collective, Transport, Version, link};
use forecast::Cluster;
use nccl::{Decisions, Layout, PathType, Paths, Settings};

use super::model::{
    Topo, TopoEdge, TopoGraph, TopoJob, TopoNicUse, TopoNode, TopoNormal, TopoNvlink, TopoNvswitch,
    TopoOrder, TopoOverlay, TopoPath, TopoSocket, TopoTransport,
};
use super::overlay;
use crate::expect::rounded;

/// More GPUs than this have no matrix: nobody reads one, and it grows with the square.
const MATRIX: usize = 64;

/// What is asked of a machine.
#[derive(Debug, Clone)]
pub struct Question {
    /// Where the description comes from: a file and line, the catalogue, this machine.
    pub source: String,
    /// The release of NCCL and its variables.
    pub settings: Settings,
    /// The job.
    pub layout: Layout,
    /// For which collective to tell what is normal.
    pub collective: Collective,
    /// At which sizes.
    pub sizes: Vec<u64>,
    /// A ring or tree to draw on top.
    pub overlay: Option<TopoOverlay>,
    /// What NCCL's search found, where the source tells it.
    pub graphs: Vec<Graph>,
    /// What is odd about the source.
    pub notes: Vec<String>,
}

impl Topo {
    /// The answer.
    pub fn new(machine: &Machine, question: Question) -> Result<Self, nccl::Undecidable> {
        let Question { source, settings, layout, collective, sizes, mut overlay, graphs, mut notes } =
            question;
        // The plugin joins the NICs next to a GPU into one device: that is what NCCL sees.
        let seen = if groups_nics(machine) { machine.grouped() } else { machine.clone() };
        let job = Decisions::new(&seen, &settings, &layout)?;
        let paths = Paths::new(&seen, &settings)?;
        overlay.iter_mut().flat_map(|it| &mut it.edges).for_each(|it| predict(&job, it));
        notes.extend(job.losses().iter().map(|it| sentence(&it.to_string())));
        let mut unknown = machine.unknown.clone();
        let normal = match normal(machine, &layout, &settings, collective, &sizes) {
            Ok(it) => it,
            Err(reason) => {
                unknown.push(format!("What bandwidth is normal: {reason}."));
                Vec::new()
            }
        };
        if groups_nics(machine) && seen.nics.len() < machine.nics.len() {
            let each = machine.nics.len() / seen.nics.len().max(1);
            notes.push(format!(
                "aws-ofi-nccl makes one device of {each} NICs beside a GPU: NCCL sees {}, named by the first of each.",
                seen.nics.len()
            ));
        }
        if machine.sockets.iter().all(|it| it.maker == Maker::Unknown) && far(&job, &layout) {
            unknown.push(
                "Who made the CPU is not told: NCCL allows P2P through it on some AMD machines.".to_owned(),
            );
        }
        if normal.iter().any(|it| !it.calibrated) {
            notes.push(
                "No published measurement of such a machine stands behind these bandwidths: their intervals are wide."
                    .to_owned(),
            );
        }
        Ok(Self {
            schema: "plumb.topo/1",
            name: machine.name.as_deref().map(str::to_owned),
            summary: summary(machine),
            source,
            sockets: sockets(machine, &seen),
            nvlinks: nvlinks(machine, settings.version),
            nvswitch: nvswitch(machine, settings.version),
            paths: matrix(&seen, &paths),
            nics: nic_use(&seen, &paths),
            job: Some(TopoJob {
                nccl: settings.version.to_string(),
                nodes: layout.nodes,
                pods: format!("{}x{}", layout.pods_per_node, layout.gpus_per_pod),
                transports: transports(&job, &layout),
            }),
            normal,
            graphs: graphs.iter().filter(|it| it.n_channels > 0).map(|it| graph(machine, it)).collect(),
            overlay,
            notes,
            unknown,
        })
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

/// A connection of which no line was read is made as NCCL would make it.
fn predict(job: &Decisions, edge: &mut TopoEdge) {
    if edge.family == overlay::INSIDE {
        let decision = job.transport(edge.from.1.into(), edge.to.1.into());
        if let Some(transport) = decision.and_then(|it| it.transport) {
            transport.family().clone_into(&mut edge.family);
        }
    }
}

/// Whether GPUs are too far apart for P2P by NCCL's own rule.
fn far(job: &Decisions, layout: &Layout) -> bool {
    let local = layout.ranks_per_node().min(MATRIX as u64);
    (1..local).any(|it| matches!(job.transport(0, it).map(|it| it.reason), Some(nccl::Reason::TooFar { .. })))
}

fn groups_nics(machine: &Machine) -> bool {
    machine.name.as_deref().is_some_and(fabric::catalogue::groups_nics)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|it| it.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// `8 x A100-SXM4-40GB, NVSwitch 600 GB/s each; 4 x 100 Gbps EFA; 2 sockets`
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
    match machine.sockets.len() {
        0 => {}
        1 => parts.push("1 socket".to_owned()),
        n => parts.push(format!("{n} sockets")),
    }
    parts.join("; ")
}

fn kind(kind: NicKind) -> Option<&'static str> {
    match kind {
        NicKind::Efa => Some("EFA"),
        NicKind::InfiniBand => Some("InfiniBand"),
        NicKind::Roce => Some("RoCE"),
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
    // Of how many NICs at one place the plugin makes one device.
    let at = |machine: &Machine, place: Place| machine.nics.iter().filter(|it| it.at == place).count();
    let joined = |place: Place| u32::try_from(at(machine, place) / at(seen, place).max(1)).unwrap_or(1);
    // From the leaves up: a bridge stands behind the one it hangs below.
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
        // What has nothing below it is of no interest here.
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

/// What NCCL gives one link of a GPU; unknown for an unknown GPU.
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
        None => wires.kind.smi().unwrap_or("-").to_owned(),
    }
}

/// Whether a bandwidth rests on what is known of the machine, or on what NCCL takes where nothing is.
struct Told<'a> {
    machine: &'a Machine,
}

impl Told<'_> {
    fn gpus(&self, kind: PathType, from: usize, to: usize) -> bool {
        let all =
            |test: fn(&Gpu) -> bool| [from, to].iter().all(|it| self.machine.gpus.get(*it).is_some_and(test));
        match kind {
            PathType::Nvl | PathType::Nvb => all(|it| it.compute.is_some()),
            _ => all(|it| it.link.is_some()),
        }
    }

    fn nic(&self, gpu: usize, nic: usize) -> bool {
        let nic = self.machine.nics.get(nic).is_some_and(|it| it.rate.is_some());
        nic && self.machine.gpus.get(gpu).is_some_and(|it| it.link.is_some() || it.c2c.is_some())
    }
}

fn matrix(machine: &Machine, paths: &Paths) -> Vec<TopoPath> {
    let n = machine.gpus.len();
    if n > MATRIX {
        return Vec::new();
    }
    let gpu = |place: usize| format!("GPU{}", machine.gpus[place].index);
    let told = Told { machine };
    let mut all = Vec::new();
    for from in 0..n {
        for to in (0..n).filter(|it| *it != from) {
            let path = paths.gpu_to_gpu(from, to);
            all.push(TopoPath {
                from: gpu(from),
                to: gpu(to),
                kind: path.kind.to_string(),
                smi: smi(machine, from, to, paths.gpu_wires(from, to)),
                bandwidth: Some(path.bandwidth).filter(|_| told.gpus(path.kind, from, to)),
            });
        }
        for (to, nic) in machine.nics.iter().enumerate() {
            let path = paths.gpu_to_nic(from, to);
            all.push(TopoPath {
                from: gpu(from),
                to: nic.name.to_string(),
                kind: path.kind.to_string(),
                smi: paths.nic_wires(from, to).kind.smi().unwrap_or("-").to_owned(),
                bandwidth: Some(path.bandwidth).filter(|_| told.nic(from, to)),
            });
        }
    }
    all
}

fn nic_use(machine: &Machine, paths: &Paths) -> Vec<TopoNicUse> {
    let told = Told { machine };
    let gpus = machine.gpus.iter().enumerate();
    gpus.filter_map(|(place, gpu)| {
        let near = paths.near_nics(place)?;
        let name = |it: &usize| machine.nics.get(*it).map(|it| it.name.to_string());
        Some(TopoNicUse {
            gpu: format!("GPU{}", gpu.index),
            nics: near.nics.iter().filter_map(name).collect(),
            path: near.path.kind.to_string(),
            gpudirect: near.sending.is_on() && near.receiving.is_on(),
            shared_by: u32::try_from(near.shared_by).unwrap_or(u32::MAX),
            share: Some(near.share).filter(|_| near.nics.iter().all(|nic| told.nic(place, *nic))),
        })
    })
    .collect()
}

/// As NCCL prints it, without the number of the device: pairs of one kind stand together.
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

fn transports(job: &Decisions, layout: &Layout) -> Vec<TopoTransport> {
    let local = layout.ranks_per_node();
    let mut found: Vec<TopoTransport> = Vec::new();
    let mut add = |from: u64, to: u64, between: &str, weight: u64| {
        let Some(decision) = job.transport(from, to) else { return };
        let transport = kind_of(decision.transport.as_ref());
        let reason = match decision.reason {
            // Which one it is differs from pair to pair.
            nccl::Reason::ThroughGpu { .. } => "the GPUs are joined by NVLink through another GPU".to_owned(),
            other => other.to_string(),
        };
        let same = |it: &&mut TopoTransport| {
            it.between == between && it.transport == transport && it.reason == reason
        };
        match found.iter_mut().find(same) {
            Some(known) => known.pairs = known.pairs.saturating_add(weight),
            None => {
                let rank = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
                let example = (rank(from), rank(to));
                found.push(TopoTransport {
                    between: between.to_owned(),
                    pairs: weight,
                    example,
                    transport,
                    reason,
                });
            }
        }
    };
    let nodes = u64::from(layout.nodes);
    let pod = |rank: u64| rank / u64::from(layout.gpus_per_pod.max(1));
    for from in 0..local.min(MATRIX as u64) {
        for to in (0..local.min(MATRIX as u64)).filter(|it| *it != from) {
            let between = if pod(from) == pod(to) { "inside a pod" } else { "between pods of a machine" };
            add(from, to, between, nodes);
        }
    }
    if nodes > 1 {
        // All machines are alike: the first two stand for every two.
        for from in 0..local.min(MATRIX as u64) {
            for to in 0..local.min(MATRIX as u64) {
                add(from, local + to, "between machines", nodes.saturating_mul(nodes - 1));
            }
        }
    }
    found
}

fn normal(
    machine: &Machine,
    layout: &Layout,
    settings: &Settings,
    collective: Collective,
    sizes: &[u64],
) -> Result<Vec<TopoNormal>, String> {
    let cluster = Cluster::of_machine(machine, layout.nodes, settings)
        .and_then(|it| {
            // Pods with one host name and one /dev/shm are one node to NCCL.
            if layout.same_host && layout.shared_memory {
                it.with_pods(1, layout.pods_per_node * layout.gpus_per_pod)
            } else {
                it.with_pods(layout.pods_per_node, layout.gpus_per_pod)
            }
        })
        .map_err(|it| it.0)?;
    let at = |bytes: &u64| {
        let it = forecast::normal(collective, &cluster, *bytes)?;
        let algorithm = it.algorithm.name();
        let ceiling = if it.overhead > it.time / 2.0 { "latency" } else { it.ceiling.describe() };
        Some(TopoNormal {
            collective: collective.name().to_owned(),
            bytes: *bytes,
            low: rounded(it.low),
            expected: rounded(it.expected),
            high: rounded(it.high),
            time_us: rounded(it.time),
            algorithm: algorithm.to_owned(),
            ceiling: ceiling.to_owned(),
            calibrated: it.measured,
        })
    };
    Ok(sizes.iter().filter_map(at).collect())
}
