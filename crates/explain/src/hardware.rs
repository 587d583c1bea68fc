//! Machines and GPUs of the catalogue.

use fabric::catalogue::{self, Inside, Model};
use fabric::gpu::{self, NvLinkBy, NvLinkPort};
use fabric::instance::Instance;
use fabric::machine::{Machine, Maker, NicKind, NvEnd, Place};
use fabric::units::GigabytesPerSecond;

use crate::{Explanation, Kind, paragraphs};

/// The machine of this name.
pub(crate) fn machine(name: &str) -> Option<Explanation> {
    let model = catalogue::find(name)?;
    let machine = model.machine();
    let Model { name, gpu, instance, wiring, .. } = *model;
    let title = match instance {
        Some(_) => format!("{name} (AWS instance type)"),
        None => format!("{name} ({})", model.title.unwrap_or("machine")),
    };
    let mut it = Explanation::new(Kind::Machine, title);
    it.add("GPUs", gpus(model));
    it.add("NVLink", nvlink(model, &machine));
    it.add("network", network(&machine, instance));
    it.add("GPUDirect", gpudirect(&machine));
    it.add("host", host(model, &machine));
    if wiring.is_some() {
        it.add("wiring", wired(&machine));
    }
    if let Some(instance) = instance.filter(|it| it.efa()) {
        it.add_all("plugin", plugin(instance, &machine));
    }
    it.add_all("not known", &machine.unknown);
    let notes = instance.into_iter().flat_map(|it| &it.notes);
    it.add_all("notes", notes.chain(wiring.into_iter().flat_map(|it| &it.notes)));
    it.add("see", format!("plumb topo --instance {name}, plumb explain {}", gpu.name));
    it.sources = paragraphs(model.sources());
    Some(it)
}

/// The GPU model of this name.
pub(crate) fn gpu(name: &str) -> Option<Explanation> {
    let model = gpu::find(name)?;
    let mut it = Explanation::new(Kind::Gpu, format!("{} (GPU, {})", model.name, model.form.name()));
    let reported = model.memory.map(|it| format!(" ({it} as reported)")).unwrap_or_default();
    let bandwidth = model.memory_bandwidth;
    it.add("memory", format!("{} GB {}{reported}, {bandwidth}", model.memory_gigabytes, model.memory_kind));
    let peaks: Vec<String> = model.peak.known().map(|(name, peak)| format!("{name} {peak}")).collect();
    if !peaks.is_empty() {
        it.add("peak", format!("{}; TFLOPS, dense matrices", peaks.join(", ")));
    }
    it.add("NVLink", model.nvlink.map_or_else(|| "none".to_owned(), |port| port_of(&port, model.nvls)));
    if let Some(c2c) = model.c2c {
        it.add("to its CPU", format!("NVLink-C2C, {c2c} one way"));
    }
    if let Some(generation) = model.pcie_gen {
        it.add("PCIe", format!("Gen{generation} x{}", model.pcie_lanes));
    }
    it.add("compute", format!("capability {}.{}", model.compute / 10, model.compute % 10));
    let others = gpu::all().iter().filter(|other| other.family == model.family && other.name != model.name);
    it.add("also", others.map(|it| it.name.as_str()).collect::<Vec<_>>().join(", "));
    let found_in = catalogue::all().iter().filter(|it| it.gpu == model).map(|it| it.name);
    it.add("found in", found_in.collect::<Vec<_>>().join(", "));
    it.sources = paragraphs(&model.source);
    Some(it)
}

fn gpus(machine: &Model) -> String {
    let Model { gpu, gpus, .. } = *machine;
    let memory = match machine.instance.and_then(|it| it.gpu_mem_gib) {
        Some(memory) => memory.to_string(),
        None => format!("{} GB", gpu.memory_gigabytes),
    };
    let each = if gpus > 1 { " each" } else { "" };
    format!("{gpus} x {}, {memory} {} at {}{each}", gpu.name, gpu.memory_kind, gpu.memory_bandwidth)
}

fn nvlink(model: &Model, machine: &Machine) -> String {
    let Model { gpu, gpus, domain, .. } = *model;
    let joined = match model.inside {
        Inside::OneGpu => return "one GPU".to_owned(),
        Inside::Unknown => return "not known".to_owned(),
        Inside::Pcie => return "none: GPUs reach each other over PCIe or through host memory".to_owned(),
        Inside::NvSwitch if gpu.nvls => format!("NVSwitch connects all {gpus} and can reduce (NVLS)"),
        Inside::NvSwitch => format!("NVSwitch connects all {gpus}"),
        Inside::NvLinkMesh => {
            let of_first = machine.nvlinks.iter().filter(|it| it.from == 0 && it.to != NvEnd::Switch);
            format!("direct links between GPUs, each to {} of the other {}", of_first.count(), gpus - 1)
        }
    };
    let mut text = gpu.nvlink.map(|it| format!("{}; ", rates(&it))).unwrap_or_default() + &joined;
    if domain > 1 {
        text += &format!("; {domain} such machines form one NVLink domain of {} GPUs", domain * gpus);
    }
    text
}

/// `generation 4, 18 links: 900 GB/s per GPU both ways, 450 GB/s one way`
fn rates(port: &NvLinkPort) -> String {
    let (both, one) = (port.bidirectional, port.one_way());
    format!("generation {}, {} links: {both} per GPU both ways, {one} one way", port.generation, port.links)
}

fn port_of(port: &NvLinkPort, nvls: bool) -> String {
    let by = match port.by {
        NvLinkBy::Switch if nvls => "to switches that can reduce (NVLS)",
        NvLinkBy::Switch => "to switches that connect all GPUs",
        NvLinkBy::Bridge => "by a bridge, if installed",
        NvLinkBy::Wires => "direct links between GPUs",
    };
    format!("{}; {by}", rates(port))
}

fn network(machine: &Machine, instance: Option<&Instance>) -> String {
    let count = machine.nics.len();
    let Some(first) = machine.nics.first() else { return "none".to_owned() };
    let total: f64 = machine.nics.iter().filter_map(|it| it.rate).map(|it| it.0).sum();
    let kind = match first.kind {
        NicKind::Efa => "EFA",
        NicKind::InfiniBand => "InfiniBand",
        NicKind::Roce => "RoCE",
        NicKind::GpuDirectTcp => "GPUDirect-TCPX or -TCPXO",
        NicKind::Slingshot => "Slingshot",
        NicKind::Ethernet => return format!("no EFA; {total} Gbps Ethernet"),
        NicKind::Unknown => "network devices",
    };
    let rate = first.rate.map(|it| format!(" x {it}")).unwrap_or_default();
    let mut text = format!("{count}{rate} {kind}");
    if let Some(instance) = instance
        && let Some(generation) = instance.efa_version
    {
        text += &format!(" (generation {generation}");
        text += match (instance.rdma_read, instance.rdma_write) {
            (Some(true), Some(true)) => ", RDMA read and write)",
            (Some(true), _) => ", RDMA read)",
            (Some(false), _) => ", no RDMA)",
            _ => ")",
        };
    }
    if count > 1 {
        let bytes = GigabytesPerSecond(total / 8.0);
        text += &format!(", {total} Gbps ({bytes}) in total");
    }
    text + &shared(machine.gpus.len(), count)
}

/// How many GPUs share a NIC, or NICs per GPU.
fn shared(gpus: usize, nics: usize) -> String {
    if gpus > nics {
        let each = if gpus.is_multiple_of(nics) { (gpus / nics).to_string() } else { "several".to_owned() };
        format!("; one for {each} GPUs")
    } else if gpus > 1 && nics.is_multiple_of(gpus) {
        format!("; {} per GPU", nics / gpus)
    } else {
        String::new()
    }
}

fn gpudirect(machine: &Machine) -> &'static str {
    match machine.nics.first().and_then(|it| it.gpudirect) {
        Some(true) => "yes: NICs read and write GPU memory directly",
        Some(false) => "no: data between nodes is copied through host memory",
        None => "not known",
    }
}

fn host(model: &Model, machine: &Machine) -> String {
    let maker = match model.cpu() {
        Maker::Intel => "Intel",
        Maker::Amd => "AMD",
        Maker::Arm => "Arm",
        Maker::Power => "Power",
        Maker::Zhaoxin => "Zhaoxin",
        Maker::Unknown => "unknown",
    };
    let link =
        machine.gpus.first().and_then(|it| it.link).map(|it| format!(", PCIe {it}")).unwrap_or_default();
    match model.instance {
        Some(it) => format!("{maker} CPU, {} vCPU, {}{link}", it.vcpus, it.mem_gib),
        None => format!("{maker} CPU{link}"),
    }
}

/// The devices at one switch or socket.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Hangs {
    gpus: usize,
    nics: usize,
}

impl Hangs {
    fn at(machine: &Machine, place: Place) -> Self {
        Self {
            gpus: machine.gpus.iter().filter(|it| it.at == place).count(),
            nics: machine.nics.iter().filter(|it| it.at == place).count(),
        }
    }
}

impl std::fmt::Display for Hangs {
    /// `2 GPUs and 1 NIC`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = |count: usize, name: &str| match count {
            0 => None,
            1 => Some(format!("1 {name}")),
            _ => Some(format!("{count} {name}s")),
        };
        let parts: Vec<String> =
            [counted(self.gpus, "GPU"), counted(self.nics, "NIC")].into_iter().flatten().collect();
        f.write_str(&parts.join(" and "))
    }
}

/// `2 sockets, each with 2 PCIe switches; below a switch 2 GPUs and 1 NIC`
fn wired(machine: &Machine) -> String {
    let sockets: Vec<(Hangs, Vec<Hangs>)> = (0..machine.sockets.len())
        .map(|socket| {
            let below = machine.bridges.iter().enumerate().filter(|(_, it)| it.at == Place::Socket(socket));
            let switches = below.map(|(bridge, _)| Hangs::at(machine, Place::Bridge(bridge))).collect();
            (Hangs::at(machine, Place::Socket(socket)), switches)
        })
        .collect();
    let Some((root, switches)) = sockets.first() else { return String::new() };
    let alike = sockets.iter().all(|it| it == &sockets[0]);
    let switch = switches.first().copied().unwrap_or_default();
    // No machine in the catalogue has more than two sockets: a larger number means NUMA nodes.
    let (count, one) = match sockets.len() {
        1 => ("1 socket".to_owned(), "socket"),
        2 => ("2 sockets, each".to_owned(), "socket"),
        many => (format!("{many} NUMA nodes, each"), "NUMA node"),
    };
    if alike && *root == Hangs::default() && switches.iter().all(|it| *it == switch) {
        let switches = match switches.len() {
            1 => "1 PCIe switch".to_owned(),
            many => format!("{many} PCIe switches"),
        };
        return format!("{count} with {switches}; below a switch {switch}");
    }
    if alike && switches.is_empty() {
        return format!("{count} with {root}, no PCIe switch between them");
    }
    let each = sockets.iter().enumerate().map(|(socket, (root, switches))| {
        let parts = std::iter::once(root).chain(switches).filter(|it| **it != Hangs::default());
        format!("{one} {socket}: {}", parts.map(ToString::to_string).collect::<Vec<_>>().join(", "))
    });
    each.collect::<Vec<_>>().join("; ")
}

fn plugin(instance: &Instance, machine: &Machine) -> Vec<String> {
    let mut lines = Vec::new();
    let grouped = machine.grouped();
    lines.push(match instance.ofi_protocol.as_deref() {
        Some("RDMA") if grouped.nics.len() < machine.nics.len() => {
            let rate = grouped.nics.first().and_then(|it| it.rate).map(|it| format!(" of {it}")).unwrap_or_default();
            let size = machine.nics.len() / grouped.nics.len().max(1);
            format!(
                "aws-ofi-nccl uses its RDMA protocol and groups {size} NICs into one device: NCCL sees {} devices{rate}",
                grouped.nics.len()
            )
        }
        Some("RDMA") => "aws-ofi-nccl uses its RDMA protocol; each NIC is a device for NCCL".to_owned(),
        Some("SENDRECV") => "aws-ofi-nccl uses its SENDRECV protocol; each NIC is a device for NCCL".to_owned(),
        _ => "aws-ofi-nccl has no settings for this type and decides by its NICs: RDMA if a GPU has several, otherwise SENDRECV"
            .to_owned(),
    });
    if let Some(file) = &instance.ofi_topo_file {
        lines.push(format!("it gives NCCL the topology in {file}"));
    }
    if let Some(latency) = instance.ofi_latency_us {
        lines.push(format!(
            "it reports a latency of {latency} us to NCCL, which uses it to choose algorithms"
        ));
    }
    lines.push(if instance.ofi_tuner {
        "its tuner knows this type".to_owned()
    } else {
        "its tuner does not know this type: NCCL's own model chooses".to_owned()
    });
    lines
}
