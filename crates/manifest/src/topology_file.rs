//! The XML that `NCCL_TOPO_FILE` takes: the PCI tree of a machine.
//!
//! NCCL looks up each GPU and NIC by its bus id, takes from the file what is above it, and asks the system only for what the file leaves
//! out: link speeds in sysfs, NVLinks and compute capability in NVML, rates in the network plugin (NCCL v2.28.9 src/graph/xml.cc,
//! `ncclTopoGetXmlFromSys`, `ncclTopoGetXmlFromGpu`; src/graph/topo.cc, `ncclTopoPopulateNics`). An attribute in the file always counts
//! before the system's answer. So a file from the catalogue has the tree alone; one made of what NCCL itself once wrote has everything
//! it knew.
//!
//! NCCL's reader is not a general one (src/graph/xml.cc, `xmlGetNode`): one space between attributes, no tabs, no declaration, at most
//! 255 bytes per value.

use std::fmt::Write as _;

use fabric::machine::{BusId, Gpu, Maker, Nic, NicKind, NvEnd, PciLink, Place, Socket};
use fabric::{CpuSet, Machine};

/// How much the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The PCI tree and the NUMA nodes: the rest is what the machine itself says when NCCL starts.
    Tree,
    /// Also CPUs, NVLinks, compute capability and NICs: for a machine that was read from what NCCL wrote.
    Everything,
}

/// A file, and what to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyFile {
    /// The XML.
    pub text: String,
    /// What is left out, in sentences.
    pub notes: Vec<String>,
}

/// Tags that NCCL has room for, those that it adds among them (2.21 to 2.30: `NCCL_TOPO_XML_MAX_NODES`, src/graph/topo.h; 1,024 before).
const MOST_TAGS: usize = 256;

/// The longest value that is written; NCCL stops at 255 (`MAX_STR_LEN`, src/graph/xml.h).
const LONGEST: usize = 250;

/// Writes the file. The error is a sentence for the user.
pub fn write(machine: &Machine, detail: Detail) -> Result<TopologyFile, String> {
    let lost: Vec<String> =
        machine.gpus.iter().filter(|it| it.bus.is_none()).map(|it| format!("GPU{}", it.index)).collect();
    if !lost.is_empty() {
        return Err(format!(
            "the PCI bus ids of {} are not known, and NCCL finds GPUs by them: run this on the machine itself, with --instance NAME if it shows no PCI tree, or give a topology XML or a log with GRAPH lines",
            if lost.len() == machine.gpus.len() { "the GPUs".to_owned() } else { lost.join(", ") }
        ));
    }
    let mut buses: Vec<BusId> = machine.gpus.iter().filter_map(|it| it.bus).collect();
    buses.sort_unstable();
    if let Some([twice, _]) = buses.windows(2).find(|it| it[0] == it[1]) {
        return Err(format!("two GPUs have the PCI bus id {twice}"));
    }
    let mut notes = Vec::new();
    let named = detail == Detail::Everything && machine.sockets.iter().all(is_known);
    let mut writer = Writer { machine, detail, named, text: String::new(), tags: 0, left_out: Vec::new() };
    writer.system();
    if !writer.left_out.is_empty() {
        notes.push(format!(
            "{} not in the file, because the PCI bus id is not known: NCCL places {} as the system shows.",
            if let [only] = &*writer.left_out {
                format!("{only} is")
            } else {
                format!("{} NICs ({}) are", writer.left_out.len(), writer.left_out.join(", "))
            },
            if writer.left_out.len() == 1 { "it" } else { "them" },
        ));
    }
    // A GPU and its NVLinks, a NIC and its ports.
    let added = match detail {
        Detail::Tree => machine.gpus.len() + machine.nvlinks.len() + 2 * machine.nics.len(),
        Detail::Everything if !named => 2 * machine.nics.len(),
        Detail::Everything => 0,
    };
    if writer.tags + added > MOST_TAGS {
        notes.push(format!(
            "The machine takes {} tags in NCCL's XML, which has room for {MOST_TAGS} since 2.21: NCCL will stop with `XML parser is limited`.",
            writer.tags + added
        ));
    }
    Ok(TopologyFile { text: writer.text, notes })
}

/// `8 GPUs, 4 NICs, 4 PCIe switches on 2 NUMA nodes`
pub fn summary(machine: &Machine) -> String {
    let nics = machine.nics.iter().filter(|it| it.bus.is_some()).count();
    let counts = [(machine.gpus.len(), "GPU"), (nics, "NIC"), (machine.bridges.len(), "PCIe switch")];
    let count = |(n, what): (usize, &str)| match n {
        1 => format!("1 {what}"),
        _ if what.ends_with("switch") => format!("{n} {what}es"),
        _ => format!("{n} {what}s"),
    };
    let nodes = machine.sockets.len();
    let all: Vec<String> = counts.into_iter().filter(|it| it.0 > 0).map(count).collect();
    format!("{} on {nodes} NUMA node{}", all.join(", "), if nodes == 1 { "" } else { "s" })
}

/// The tree of one machine with the bus ids of another: for a virtual machine that shows its devices, but not how they are attached.
///
/// Devices are taken in their order: GPUs by index, NICs by bus id. The error is a sentence for the user.
pub fn with_bus_ids_of(tree: &Machine, live: &Machine) -> Result<TreeWithBusIds, String> {
    let mut ids: Vec<(u32, BusId)> = live.gpus.iter().filter_map(|it| Some((it.index, it.bus?))).collect();
    ids.sort_unstable();
    if ids.len() != tree.gpus.len() {
        let name = tree.name.as_deref().unwrap_or("the description");
        return Err(format!(
            "this machine shows {} GPUs with a PCI bus id, {name} has {}",
            ids.len(),
            tree.gpus.len()
        ));
    }
    let mut machine = tree.clone();
    let mut order: Vec<&mut Gpu> = machine.gpus.iter_mut().collect();
    order.sort_by_key(|it| it.index);
    for (gpu, (index, bus)) in order.into_iter().zip(ids) {
        (gpu.index, gpu.bus) = (index, Some(bus));
    }
    let mut cards: Vec<&Nic> = live.nics.iter().filter(|it| it.bus.is_some()).collect();
    cards.sort_by_key(|it| it.bus);
    // The plain Ethernet of a cloud is not one of the NICs that the catalogue places.
    let kinds: Vec<NicKind> = tree.nics.iter().map(|it| it.kind).collect();
    let alike = |it: &&Nic| kinds.contains(&it.kind);
    if cards.iter().filter(|it| alike(it)).count() == tree.nics.len() {
        cards.retain(alike);
    }
    let mut notes = Vec::new();
    if cards.len() == machine.nics.len() {
        for (nic, card) in machine.nics.iter_mut().zip(cards) {
            (nic.name, nic.bus) = (card.name.clone(), card.bus);
        }
    } else {
        notes.push(format!(
            "This machine shows {} NICs with a PCI bus id where {} are expected: the file leaves them to NCCL.",
            cards.len(),
            machine.nics.len()
        ));
        machine.nics.clear();
    }
    Ok(TreeWithBusIds { machine, notes })
}

/// A machine whose devices have the bus ids of another.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeWithBusIds {
    /// The machine.
    pub machine: Machine,
    /// What could not be taken over, in sentences.
    pub notes: Vec<String>,
}

/// The PCI class of GPUs.
const GPU: &str = "0x030200";

/// The bus of switches whose bus id no source gives: one that no device has, as in the files of clouds.
const NO_BUS: &str = "ffff:ff";

struct Writer<'a> {
    machine: &'a Machine,
    detail: Detail,
    /// NICs are in the file by name. NCCL then asks the system neither for them nor for what is above them, so that every attribute must
    /// be there: since 2.23 ranks join their XML, and a tag that one rank completed and another did not would be there twice
    /// (src/graph/xml.h, `xmlFindNode`).
    named: bool,
    text: String,
    tags: usize,
    /// NICs without a bus id.
    left_out: Vec<String>,
}

impl Writer<'_> {
    fn open(&mut self, depth: usize, tag: &str, attributes: &[(&str, String)], closed: bool) {
        self.tags += 1;
        let _ = write!(self.text, "{:depth$}<{tag}", "", depth = depth * 2);
        for (name, value) in attributes {
            let _ = write!(self.text, " {name}=\"{}\"", plain(value));
        }
        self.text.push_str(if closed { "/>\n" } else { ">\n" });
    }

    fn close(&mut self, depth: usize, tag: &str) {
        let _ = writeln!(self.text, "{:depth$}</{tag}>", "", depth = depth * 2);
    }

    fn system(&mut self) {
        let mut attributes = vec![("version", "1".to_owned())];
        attributes.extend(self.machine.name.as_deref().map(|it| ("name", it.to_owned())));
        self.open(0, "system", &attributes, false);
        for at in 0..self.machine.sockets.len() {
            if self.is_used(Place::Socket(at)) {
                self.socket(at);
            }
        }
        self.close(0, "system");
    }

    /// Whether a device of the file is below this place.
    fn is_used(&self, place: Place) -> bool {
        let machine = self.machine;
        let here = |at: Place| at == place;
        machine.gpus.iter().any(|it| here(it.at))
            || machine.nics.iter().any(|it| here(it.at) && (it.bus.is_some() || self.is_virtual(it)))
            || machine.bridges.iter().enumerate().any(|(index, it)| {
                here(it.at) && Place::Bridge(index) > place && self.is_used(Place::Bridge(index))
            })
    }

    fn socket(&mut self, at: usize) {
        let Some(socket) = self.machine.sockets.get(at) else { return };
        let unknown = self.machine.sockets.iter().filter(|it| it.numa.is_none()).count();
        // NCCL tells CPUs apart by this number; -1 is what it writes itself for one that is not known.
        let numa = match socket.numa {
            Some(numa) => numa.to_string(),
            None if unknown == 1 => "-1".to_owned(),
            None => at.to_string(),
        };
        let mut attributes = vec![("numaid", numa)];
        if self.detail == Detail::Everything {
            attributes.extend(cpu(socket));
        }
        self.open(1, "cpu", &attributes, false);
        self.below(Place::Socket(at), 2);
        self.close(1, "cpu");
    }

    fn below(&mut self, place: Place, depth: usize) {
        let machine = self.machine;
        for gpu in machine.gpus.iter().filter(|it| it.at == place) {
            self.gpu(gpu, depth);
        }
        let nics: Vec<&Nic> = machine.nics.iter().filter(|it| it.at == place).collect();
        for (at, nic) in nics.iter().enumerate() {
            // The ports of a card are one PCI device.
            if nic.bus.is_none() || nics.iter().take(at).all(|it| it.bus != nic.bus) {
                let ports: Vec<&Nic> = nics
                    .iter()
                    .skip(at)
                    .filter(|it| it.bus == nic.bus && nic.bus.is_some())
                    .copied()
                    .collect();
                self.nic(nic, &ports, depth);
            }
        }
        for (index, bridge) in machine.bridges.iter().enumerate().filter(|it| it.1.at == place) {
            let inner = Place::Bridge(index);
            if inner > place && self.is_used(inner) {
                let bus = bridge.bus.map_or_else(
                    || format!("{NO_BUS}:{:02x}.{:x}", (index + 1) & 0xff, (index + 1) >> 8 & 0xf),
                    |it| it.to_string(),
                );
                self.pci(depth, bus, "0x060400", bridge.link, false);
                self.below(inner, depth + 1);
                self.close(depth, "pci");
            }
        }
    }

    fn pci(&mut self, depth: usize, bus: String, class: &str, link: Option<PciLink>, closed: bool) {
        let mut attributes = vec![("busid", bus), ("class", class.to_owned())];
        match link {
            Some(it) => attributes.extend([("link_speed", speed(it)), ("link_width", it.width.to_string())]),
            // Only the rank of a GPU has its tag, so it may complete that.
            None if self.named && class != GPU => {
                attributes.extend([("link_speed", String::new()), ("link_width", String::new())]);
            }
            None => {}
        }
        if self.named {
            let ids = ["vendor", "device", "subsystem_vendor", "subsystem_device"];
            attributes.extend(ids.map(|it| (it, String::new())));
        }
        self.open(depth, "pci", &attributes, closed);
    }

    fn gpu(&mut self, gpu: &Gpu, depth: usize) {
        let Some(bus) = gpu.bus else { return };
        let tree = self.detail == Detail::Tree;
        self.pci(depth, bus.to_string(), GPU, gpu.link, tree);
        if tree {
            return;
        }
        let mut attributes = vec![("dev", gpu.index.to_string())];
        attributes.extend(gpu.compute.map(|it| ("sm", it.to_string())));
        attributes.extend(gpu.gpudirect.map(|it| ("gdr", u8::from(it).to_string())));
        let position = self.machine.gpus.iter().position(|it| it.bus == gpu.bus);
        let links: Vec<_> =
            self.machine.nvlinks.iter().filter(|it| Some(it.from) == position).copied().collect();
        let inside = !links.is_empty() || gpu.c2c.is_some();
        self.open(depth + 1, "gpu", &attributes, !inside);
        for link in links {
            let (target, class) = match link.to {
                // The bus id of a switch that a virtual machine does not see, as NVML has it.
                NvEnd::Switch => (Some("fffffff:ffff:ff".to_owned()), "0x068000"),
                NvEnd::Gpu(to) => {
                    (self.machine.gpus.get(to).and_then(|it| it.bus).map(|it| it.to_string()), "0x030200")
                }
                NvEnd::Socket(_) => (Some("ffff:ff:00.0".to_owned()), "0x068001"),
            };
            if let Some(target) = target {
                let count = link.count.to_string();
                let attributes = [("target", target), ("count", count), ("tclass", class.to_owned())];
                self.open(depth + 2, "nvlink", &attributes, true);
            }
        }
        if let Some(bandwidth) = gpu.c2c {
            // The product of the two is in MB/s.
            let attributes = [("bw", format!("{:.0}", bandwidth * 1000.0)), ("count", "1".to_owned())];
            self.open(depth + 2, "c2c", &attributes, true);
        }
        if inside {
            self.close(depth + 1, "gpu");
        }
        self.close(depth, "pci");
    }

    fn nic(&mut self, nic: &Nic, ports: &[&Nic], depth: usize) {
        let Some(bus) = nic.bus else {
            if self.is_virtual(nic) {
                self.open(depth, "nic", &[], false);
                self.net(nic, depth + 1);
                self.close(depth, "nic");
            } else {
                self.left_out.push(nic.name.to_string());
            }
            return;
        };
        let class = if nic.kind == NicKind::InfiniBand { "0x020700" } else { "0x020000" };
        self.pci(depth, bus.to_string(), class, nic.link, !self.named);
        if !self.named {
            return;
        }
        self.open(depth + 1, "nic", &[], false);
        for port in ports {
            self.net(port, depth + 2);
        }
        self.close(depth + 1, "nic");
        self.close(depth, "pci");
    }

    fn net(&mut self, nic: &Nic, depth: usize) {
        let mut attributes = vec![("name", nic.name.to_string()), ("dev", nic.index.to_string())];
        attributes.extend(nic.rate.map(|it| ("speed", format!("{:.0}", it.0 * 1000.0))));
        attributes.extend(nic.latency.map(|it| ("latency", format!("{it}"))));
        attributes.extend(nic.gpudirect.map(|it| ("gdr", u8::from(it).to_string())));
        // NICs with the same of both share their bandwidth.
        if let Some(port) = nic.port {
            attributes.extend([("guid", format!("0x{:x}", port.guid)), ("port", port.number.to_string())]);
        }
        self.open(depth, "net", &attributes, true);
    }

    /// Whether NCCL has the NIC directly at a CPU, without a PCI device.
    fn is_virtual(&self, nic: &Nic) -> bool {
        self.named && nic.bus.is_none() && nic.link.is_none() && matches!(nic.at, Place::Socket(_))
    }
}

/// Whether all that NCCL reads about a CPU is known. It fails without the architecture, and without the model of an Intel CPU.
fn is_known(socket: &Socket) -> bool {
    let model = socket.model.is_some() || matches!(socket.maker, Maker::Arm | Maker::Power);
    // Of a node without a number NCCL finds no CPUs either.
    let cpus = affinity(socket).is_some() || socket.numa.is_none();
    socket.maker != Maker::Unknown && model && cpus
}

/// The CPUs, unless their map is longer than NCCL reads: half a map would be another one.
fn affinity(socket: &Socket) -> Option<String> {
    Some(CpuSet::parse(socket.cpus.as_deref()?)?.map()).filter(|it| it.len() <= LONGEST)
}

/// What is known about a CPU; NCCL asks the system for the rest.
fn cpu(socket: &Socket) -> Vec<(&'static str, String)> {
    let mut attributes = Vec::new();
    attributes.extend(affinity(socket).map(|it| ("affinity", it)));
    let (arch, vendor) = match socket.maker {
        Maker::Intel => ("x86_64", "GenuineIntel"),
        Maker::Amd => ("x86_64", "AuthenticAMD"),
        Maker::Zhaoxin => ("x86_64", "CentaurHauls"),
        Maker::Arm => ("arm64", "Unknown"),
        Maker::Power => ("ppc64", "Unknown"),
        Maker::Unknown => return attributes,
    };
    attributes.extend([("arch", arch.to_owned()), ("vendor", vendor.to_owned())]);
    if let Some((family, model)) = socket.model {
        attributes.extend([("familyid", family.to_string()), ("modelid", model.to_string())]);
    }
    attributes
}

/// As the kernel writes it since 5.7, which all releases of NCCL know up to 64 GT/s.
fn speed(link: PciLink) -> String {
    format!("{:.1} GT/s PCIe", link.gigatransfers)
}

/// A value as NCCL reads it back: without quotes, and no longer than its limit.
fn plain(value: &str) -> String {
    value.chars().filter(|it| (' '..='~').contains(it) && !"\"'<>&".contains(*it)).take(LONGEST).collect()
}
