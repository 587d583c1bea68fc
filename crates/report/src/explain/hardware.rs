//! What a machine or a GPU is, in people's words.

use fabric::catalogue::{self, Wiring};
use fabric::gpu::{self, GpuModel, NvLinkBy, NvLinkPort};
use fabric::instance::{self, Instance};
use fabric::machine::{Machine, Maker, NicKind, NvEnd, Place};
use fabric::units::GigabytesPerSecond;

use super::Page;

/// The machine of this name.
pub(super) fn machine(name: &str) -> Option<String> {
    let name = catalogue::find(name)?.name;
    let machine = catalogue::machine(name)?;
    let wiring = catalogue::wiring(name);
    let instance = instance::find(name);
    let model = machine.gpus.first().and_then(|it| gpu::find(it.model.as_deref()?));

    let title = match (instance, wiring.and_then(|it| it.title.as_deref())) {
        (Some(_), _) => format!("{name} (instance type of AWS)"),
        (None, title) => format!("{name} ({})", title.unwrap_or("machine")),
    };
    let mut page = Page::new(title);
    page.add("GPUs", gpus(&machine, model, instance));
    page.add("NVLink", nvlink(&machine, model, wiring, instance));
    page.add("network", network(&machine, instance));
    page.add("GPUDirect", gpudirect(&machine));
    page.add("host", host(&machine, instance));
    if wiring.is_some() {
        page.add("wiring", wired(&machine));
    }
    if let Some(instance) = instance.filter(|it| it.efa()) {
        page.add_all("plugin", plugin(instance, &machine));
    }
    page.add_all("not known", &machine.unknown);
    let notes = instance.into_iter().flat_map(|it| &it.notes);
    page.add_all("notes", notes.chain(wiring.into_iter().flat_map(|it| &it.notes)));
    if let Some(model) = model {
        page.add("see", format!("plumb topo --instance {name}, plumb explain {}", model.name));
    }
    let mut sources: Vec<&String> = instance.into_iter().flat_map(|it| &it.source).collect();
    for source in wiring.into_iter().flat_map(|it| &it.source) {
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    page.add_all("sources", sources);
    Some(page.to_string())
}

/// The GPU model of this name.
pub(super) fn gpu(name: &str) -> Option<String> {
    let it = gpu::find(name)?;
    let mut page = Page::new(format!("{} (GPU, {})", it.name, it.form.name()));
    let reported = it.memory.map(|it| format!(" ({it} as reported)")).unwrap_or_default();
    let bandwidth = it.memory_bandwidth;
    page.add("memory", format!("{} GB {}{reported}, {bandwidth}", it.memory_gigabytes, it.memory_kind));
    let peaks: Vec<String> = it.peak.known().map(|(name, peak)| format!("{name} {peak}")).collect();
    if !peaks.is_empty() {
        page.add("peak", format!("{}; TFLOPS, dense matrices", peaks.join(", ")));
    }
    page.add("NVLink", it.nvlink.map_or_else(|| "none".to_owned(), |port| port_of(&port, it.nvls)));
    if let Some(c2c) = it.c2c {
        page.add("to its CPU", format!("NVLink-C2C, {c2c} one way"));
    }
    if let Some(generation) = it.pcie_gen {
        page.add("PCIe", format!("Gen{generation} x{}", it.pcie_lanes));
    }
    page.add("compute", format!("capability {}.{}", it.compute / 10, it.compute % 10));
    let others = gpu::all().iter().filter(|other| other.family == it.family && other.name != it.name);
    page.add("also", others.map(|it| it.name.as_str()).collect::<Vec<_>>().join(", "));
    page.add("found in", machines_with(it).join(", "));
    page.add_all("sources", &it.source);
    Some(page.to_string())
}

fn gpus(machine: &Machine, model: Option<&GpuModel>, instance: Option<&Instance>) -> String {
    let count = machine.gpus.len();
    let Some(model) = model else {
        return instance.map_or_else(|| count.to_string(), |it| format!("{count} x {}", it.gpu));
    };
    let memory = match instance.and_then(|it| it.gpu_mem_gib) {
        Some(memory) => memory.to_string(),
        None => format!("{} GB", model.memory_gigabytes),
    };
    let kind = &model.memory_kind;
    let each = if count > 1 { " each" } else { "" };
    format!("{count} x {}, {memory} {kind} at {}{each}", model.name, model.memory_bandwidth)
}

fn nvlink(
    machine: &Machine,
    model: Option<&GpuModel>,
    wiring: Option<&Wiring>,
    instance: Option<&Instance>,
) -> String {
    let count = machine.gpus.len();
    if count == 1 {
        return "none: one GPU".to_owned();
    }
    let Some(port) = model.and_then(|it| it.nvlink).filter(|_| !machine.nvlinks.is_empty()) else {
        return match instance.map(|it| it.nvlink) {
            Some(None) => "not known".to_owned(),
            _ => "none: GPUs reach each other over PCIe or through host memory".to_owned(),
        };
    };
    let mut text = rates(&port);
    if machine.has_nvswitch() {
        text += &format!("; NVSwitch joins all {count}");
        if model.is_some_and(|it| it.nvls) {
            text += " and can reduce (NVLS)";
        }
    } else {
        let from_first = machine.nvlinks.iter().filter(|it| it.from == 0 && it.to != NvEnd::Switch).count();
        text += &format!("; wired from GPU to GPU, each to {from_first} of the other {}", count - 1);
    }
    if let Some(machines) = wiring.and_then(|it| it.domain) {
        let gpus = machines as usize * count;
        text += &format!("; {machines} such machines form one domain of {gpus} GPUs");
    }
    text
}

/// `generation 4, 18 links: 900 GB/s a GPU both ways, 450 GB/s one way`
fn rates(port: &NvLinkPort) -> String {
    let (both, one) = (port.bidirectional, port.one_way());
    format!("generation {}, {} links: {both} a GPU both ways, {one} one way", port.generation, port.links)
}

fn port_of(port: &NvLinkPort, nvls: bool) -> String {
    let by = match port.by {
        NvLinkBy::Switch if nvls => "to switches that can reduce (NVLS)",
        NvLinkBy::Switch => "to switches that join all GPUs",
        NvLinkBy::Bridge => "by a bridge, where one is fitted",
        NvLinkBy::Wires => "wired from GPU to GPU",
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
        NicKind::Ethernet => return format!("no EFA; {total} Gbps of plain network"),
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
        text += &format!(", {total} Gbps ({bytes}) in all");
    }
    text + &shared(machine.gpus.len(), count)
}

/// How GPUs and NICs share each other.
fn shared(gpus: usize, nics: usize) -> String {
    if gpus > nics {
        let each = if gpus.is_multiple_of(nics) { (gpus / nics).to_string() } else { "several".to_owned() };
        format!("; one for {each} GPUs")
    } else if gpus > 1 && nics.is_multiple_of(gpus) {
        format!("; {} for each GPU", nics / gpus)
    } else {
        String::new()
    }
}

fn gpudirect(machine: &Machine) -> &'static str {
    match machine.nics.first().and_then(|it| it.gpudirect) {
        Some(true) => "yes: NICs read and write GPU memory themselves",
        Some(false) => "no: bytes between nodes are copied through host memory",
        None => "not known",
    }
}

fn host(machine: &Machine, instance: Option<&Instance>) -> String {
    let maker = match machine.sockets.first().map(|it| it.maker) {
        Some(Maker::Intel) => "Intel",
        Some(Maker::Amd) => "AMD",
        Some(Maker::Arm) => "Arm",
        Some(Maker::Power) => "Power",
        Some(Maker::Zhaoxin) => "Zhaoxin",
        Some(Maker::Unknown) | None => "unknown",
    };
    let link =
        machine.gpus.first().and_then(|it| it.link).map(|it| format!(", PCIe {it}")).unwrap_or_default();
    match instance {
        Some(it) => format!("{maker} CPU, {} vCPU, {}{link}", it.vcpus, it.mem_gib),
        None => format!("{maker} CPU{link}"),
    }
}

/// What hangs at one place.
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
    // No machine here has more than two sockets: more are NUMA nodes.
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
                "aws-ofi-nccl uses its RDMA protocol and joins {size} NICs into one device: NCCL sees {} devices{rate}",
                grouped.nics.len()
            )
        }
        Some("RDMA") => "aws-ofi-nccl uses its RDMA protocol; each NIC is a device for NCCL".to_owned(),
        Some("SENDRECV") => "aws-ofi-nccl uses its SENDRECV protocol; each NIC is a device for NCCL".to_owned(),
        _ => "aws-ofi-nccl has no settings for this type and decides by its NICs: RDMA if a GPU has several, else SENDRECV"
            .to_owned(),
    });
    if let Some(file) = &instance.ofi_topo_file {
        lines.push(format!("it gives NCCL the wiring in {file}"));
    }
    if let Some(latency) = instance.ofi_latency_us {
        lines.push(format!("it tells NCCL a latency of {latency} us, by which NCCL chooses algorithms"));
    }
    lines.push(if instance.ofi_tuner {
        "its tuner knows this type".to_owned()
    } else {
        "its tuner does not know this type: NCCL's own model chooses".to_owned()
    });
    lines
}

fn machines_with(model: &GpuModel) -> Vec<&'static str> {
    let has = |name: &&str| {
        let machine = catalogue::machine(name);
        machine.and_then(|it| it.gpus.first()?.model.clone()).as_deref() == Some(&model.name)
    };
    catalogue::names().filter(has).collect()
}
