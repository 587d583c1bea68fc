//! The XML of `NCCL_TOPO_DUMP_FILE`, and of `NCCL_TOPO_FILE`, which has the same form.
//!
//! ```text
//! <system version="1">
//!   <cpu host_hash="0x1" numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
//!     <pci busid="ffff:ff:01.0" class="0x060400" link_speed="8 GT/s" link_width="16">
//!       <pci busid="0000:10:1c.0" class="0x030200" link_speed="8 GT/s" link_width="16">
//!         <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:c8:00.0" count="12" tclass="0x068000"/></gpu>
//! ```
//!
//! The tree is walked with an explicit stack: how deep the text nests costs memory, which the limit on nodes bounds,
//! never the stack of the thread.

use std::collections::BTreeMap;

use fabric::machine::{
    Bridge, BusId, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Port, Socket,
};
use fabric::units::GigabitsPerSecond;
use roxmltree::{Document, Node, ParsingOptions};

use super::classes::{self, Classes};
use super::{Kind, Topology, Trouble, check_size, count, graph_xml, nic_kind};

/// The most nodes a document may have: a thousand GPUs with a dozen links each have less.
const MOST_NODES: u32 = 200_000;

/// The most bridges of a machine.
const MOST_BRIDGES: usize = 4096;

/// The longest text an attribute is read with. NCCL's own limit is 255.
const LONGEST: usize = 4096;

/// The most attributes of a tag. NCCL itself stops at some dozen.
const MOST_ATTRIBUTES: usize = 256;

/// The longest document. NCCL itself stops at some thousand tags.
const LONGEST_TEXT: usize = 64 << 20;

/// Reads the document that begins at `text`, which is line `line` of the whole.
pub(super) fn read(text: &[u8], line: u64) -> Result<Topology, Trouble> {
    let (name, kind) =
        if text.starts_with(b"<graphs") { ("graphs", Kind::GraphXml) } else { ("system", Kind::TopologyXml) };
    let end = format!("</{name}>");
    let empty = text.get(..text.len().min(LONGEST)).and_then(|it| {
        let close = memchr::memchr(b'>', it)?;
        it.get(..close)?.ends_with(b"/").then_some(close + 1)
    });
    let closed = || memchr::memmem::find(text, end.as_bytes()).map(|it| it + end.len());
    let Some(length) = empty.or_else(closed) else {
        return Err(Trouble::at(line, format!("the XML is cut: <{name}> is never closed")));
    };
    if length > LONGEST_TEXT {
        return Err(Trouble::at(line, "the XML is larger than 64 MiB"));
    }
    let text = text.get(..length).unwrap_or_default();
    // Attributes are compared with each other: a million of them in one tag would take hours.
    if let Some(at) = tag_with_too_many_attributes(text) {
        let before = memchr::memchr_iter(b'\n', text.get(..at).unwrap_or_default()).count();
        return Err(Trouble::at(line + before as u64, "more than 256 attributes in a tag"));
    }
    let text = String::from_utf8_lossy(text);
    let options = ParsingOptions { nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(&text, options).map_err(|it| {
        let at = line + u64::from(it.pos().row).saturating_sub(1);
        match it {
            roxmltree::Error::NodesLimitReached => {
                Trouble::at(line, "more than 200,000 tags in the XML: no machine has as many")
            }
            it => Trouble::at(at, format!("not XML: {it}")),
        }
    })?;
    let line_of =
        |node: Node<'_, '_>| line + u64::from(document.text_pos_at(node.range().start).row).saturating_sub(1);
    let root = document.root_element();
    match kind {
        Kind::GraphXml => graph_xml::read(root, line),
        _ => system(root, line, &line_of),
    }
}

/// Where a tag begins that has more attributes than any that NCCL writes.
fn tag_with_too_many_attributes(text: &[u8]) -> Option<usize> {
    let mut begin = 0;
    for end in memchr::memchr_iter(b'>', text).chain([text.len()]) {
        let tag = text.get(begin..end).unwrap_or_default();
        let at = memchr::memchr(b'<', tag).unwrap_or(tag.len());
        if memchr::memchr_iter(b'=', tag).count() > MOST_ATTRIBUTES {
            return Some(begin + at);
        }
        begin = end + 1;
    }
    None
}

/// A tag and its parent.
struct Open<'a, 'input> {
    node: Node<'a, 'input>,
    at: Place,
    /// The PCI device it is part of.
    pci: Option<Node<'a, 'input>>,
}

/// The tags in a tag, last first: the stack gives them back in order.
fn below<'a, 'input>(
    node: Node<'a, 'input>,
    at: Place,
    pci: Option<Node<'a, 'input>>,
) -> impl Iterator<Item = Open<'a, 'input>> {
    node.children().rev().filter(Node::is_element).map(move |node| Open { node, at, pci })
}

fn system(root: Node<'_, '_>, line: u64, line_of: &dyn Fn(Node<'_, '_>) -> u64) -> Result<Topology, Trouble> {
    let of_kind = |name: &str| root.descendants().filter(|it| it.has_tag_name(name)).count();
    check_size(of_kind("gpu"), "GPUs", line)?;
    check_size(of_kind("net"), "NICs", line)?;
    let mut machine = Machine::default();
    let mut notes = Vec::new();
    let mut links: Vec<(usize, Node<'_, '_>)> = Vec::new();
    let mut classes = Classes::new(of_kind("gpu") > 0, of_kind("net") > 0);

    let cpus: Vec<Node<'_, '_>> = root.children().filter(|it| it.has_tag_name("cpu")).collect();
    let host = cpus.first().and_then(|it| attribute(*it, "host_hash"));
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        cpus.into_iter().partition(|it| attribute(*it, "host_hash") == host);
    let mut hosts: Vec<&str> = elsewhere.iter().filter_map(|it| attribute(*it, "host_hash")).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if !hosts.is_empty() {
        notes.push(format!("The dump has {}; the first is shown.", count(hosts.len() + 1, "host")));
    }
    for cpu in &here {
        machine.sockets.push(socket(*cpu));
        let at = Place::Socket(machine.sockets.len() - 1);
        let mut open: Vec<Open<'_, '_>> = below(*cpu, at, None).collect();
        while let Some(Open { node, at, pci }) = open.pop() {
            let (mut under, mut card) = (at, pci);
            match node.tag_name().name() {
                "pci" => {
                    card = Some(node);
                    if node.children().any(|it| it.has_tag_name("pci")) {
                        if machine.bridges.len() >= MOST_BRIDGES {
                            return Err(Trouble::at(
                                line,
                                "more than 4,096 PCI bridges: no machine has as many",
                            ));
                        }
                        let bus = attribute(node, "busid").and_then(BusId::parse);
                        machine.bridges.push(Bridge { at, bus, link: pci_link(node) });
                        under = Place::Bridge(machine.bridges.len() - 1);
                    } else {
                        classes.take(node, at, &mut machine);
                    }
                }
                "gpu" => {
                    let at_gpu = machine.gpus.len();
                    let nvlinks = node.children().filter(|it| it.has_tag_name("nvlink"));
                    links.extend(nvlinks.map(|it| (at_gpu, it)));
                    machine.gpus.push(gpu(node, at, pci, at_gpu));
                    continue;
                }
                "net" => {
                    machine.nics.push(nic(node, at, pci, machine.nics.len()));
                    continue;
                }
                _ => {}
            }
            open.extend(below(node, under, card));
        }
    }
    check_size(machine.gpus.len(), "GPUs", line)?;
    check_size(machine.nics.len(), "NICs", line)?;
    if machine.gpus.is_empty() && machine.nics.is_empty() {
        return Err(classes.nothing(machine.bridges.len(), line));
    }
    nvlinks(&links, &mut machine, &mut notes, line_of);
    unknowns(&mut machine, &classes);
    classes.finish(&mut machine, &mut notes);
    let (graphs, paths) = (Vec::new(), Vec::new());
    Ok(Topology { kind: Kind::TopologyXml, machine, graphs, paths, line, notes })
}

pub(super) fn attribute<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.attribute(name).map(str::trim).filter(|it| !it.is_empty() && it.len() <= LONGEST)
}

pub(super) fn number<T: std::str::FromStr>(node: Node<'_, '_>, name: &str) -> Option<T> {
    attribute(node, name)?.parse().ok()
}

fn socket(cpu: Node<'_, '_>) -> Socket {
    let maker = match (attribute(cpu, "arch"), attribute(cpu, "vendor")) {
        (Some("arm64"), _) => Maker::Arm,
        (Some("ppc64"), _) => Maker::Power,
        (_, Some("GenuineIntel")) => Maker::Intel,
        (_, Some("AuthenticAMD")) => Maker::Amd,
        (_, Some("CentaurHauls" | "Shanghai")) => Maker::Zhaoxin,
        _ => Maker::Unknown,
    };
    Socket {
        numa: number(cpu, "numaid"),
        cpus: attribute(cpu, "affinity").and_then(cpu_list),
        maker,
        model: number(cpu, "familyid").zip(number(cpu, "modelid")),
    }
}

/// `ffff,000000ff` as `0-7,32-47`.
fn cpu_list(mask: &str) -> Option<Box<str>> {
    let mut set = Vec::new();
    for (word, digits) in (0_u32..).zip(mask.rsplit(',')) {
        let bits = u32::from_str_radix(digits.trim().trim_start_matches("0x"), 16).ok()?;
        set.extend((0..32).filter(|it| bits >> it & 1 == 1).map(|it| word.saturating_mul(32) + it));
    }
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in set {
        match ranges.last_mut() {
            Some(last) if last.1 + 1 == cpu => last.1 = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> = ranges
        .into_iter()
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect();
    (!texts.is_empty()).then(|| texts.join(",").into())
}

pub(super) fn pci_link(pci: Node<'_, '_>) -> Option<PciLink> {
    let gigatransfers: f64 = attribute(pci, "link_speed")?.split_whitespace().next()?.parse().ok()?;
    let width: u32 = number(pci, "link_width")?;
    let sane = gigatransfers.is_finite() && gigatransfers > 0.0 && (1..=64).contains(&width);
    sane.then_some(PciLink { gigatransfers, width })
}

fn gpu(node: Node<'_, '_>, at: Place, pci: Option<Node<'_, '_>>, order: usize) -> Gpu {
    let c2c = node.children().filter(|it| it.has_tag_name("c2c"));
    // MB/s, each way.
    let c2c: f64 = c2c
        .filter_map(|it| Some(number::<f64>(it, "bw")? * number::<f64>(it, "count").unwrap_or(1.0) / 1000.0))
        .filter(|it| it.is_finite() && *it > 0.0)
        .sum();
    Gpu {
        index: number(node, "dev").unwrap_or_else(|| super::number(order)),
        at,
        bus: pci.and_then(|it| attribute(it, "busid")).and_then(BusId::parse),
        link: pci.and_then(pci_link),
        model: None,
        compute: number(node, "sm").filter(|it| *it > 0),
        gpudirect: number::<i32>(node, "gdr").map(|it| it != 0),
        rank: number(node, "rank"),
        c2c: (c2c > 0.0).then_some(c2c),
    }
}

fn nic(node: Node<'_, '_>, at: Place, pci: Option<Node<'_, '_>>, order: usize) -> Nic {
    let name = attribute(node, "name").unwrap_or("network device");
    let kind = match (nic_kind(name), pci.map(classes::network)) {
        (NicKind::Unknown, Some(kind @ (NicKind::Efa | NicKind::InfiniBand))) => kind,
        (kind, _) => kind,
    };
    Nic {
        name: name.into(),
        index: number(node, "dev").unwrap_or_else(|| super::number(order)),
        at,
        bus: pci.and_then(|it| attribute(it, "busid")).and_then(BusId::parse),
        link: pci.and_then(pci_link),
        rate: number::<f64>(node, "speed")
            .filter(|it| (1.0..=1e8).contains(it))
            .map(|it| GigabitsPerSecond(it / 1000.0)),
        gpudirect: number::<i32>(node, "gdr").map(|it| it != 0),
        latency: number::<f64>(node, "latency").filter(|it| it.is_finite() && *it > 0.0),
        port: attribute(node, "guid")
            .and_then(guid)
            .map(|guid| Port { guid, number: number(node, "port").unwrap_or(0) }),
        kind,
    }
}

/// `0x9803af03009a5f94`
fn guid(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Adds up the links of each GPU by what is at their other end.
fn nvlinks(
    links: &[(usize, Node<'_, '_>)],
    machine: &mut Machine,
    notes: &mut Vec<String>,
    line_of: &dyn Fn(Node<'_, '_>) -> u64,
) {
    let gpus: BTreeMap<BusId, usize> =
        machine.gpus.iter().zip(0..).filter_map(|(gpu, at)| Some((gpu.bus?, at))).collect();
    let mut counts: BTreeMap<(usize, NvEnd), u32> = BTreeMap::new();
    let mut lost = Vec::new();
    for (from, node) in links {
        let class = attribute(*node, "tclass").unwrap_or_default();
        let target = attribute(*node, "target").and_then(BusId::parse);
        let peer = target.and_then(|it| gpus.get(&it)).copied().filter(|it| it != from);
        let to = match (class, peer) {
            ("0x068001", _) => {
                machine.gpus.get(*from).and_then(|it| machine.socket_of(it.at)).map(NvEnd::Socket)
            }
            (_, Some(peer)) => Some(NvEnd::Gpu(peer)),
            (class, None) if class.starts_with("0x0680") => Some(NvEnd::Switch),
            _ => None,
        };
        let count = number::<u32>(*node, "count").unwrap_or(1);
        if count == 0 {
            continue;
        }
        match to {
            Some(to) => {
                let sum = counts.entry((*from, to)).or_default();
                *sum = sum.saturating_add(count);
            }
            None => lost.push((*from, *node)),
        }
    }
    if let Some((from, node)) = lost.first() {
        let target = attribute(*node, "target").unwrap_or("nothing");
        let own = machine.gpus.get(*from).and_then(|it| it.bus);
        let what = if own.is_some() && BusId::parse(target) == own {
            "which is the GPU itself"
        } else {
            "which is not a GPU of this machine"
        };
        notes.push(format!(
            "Line {}: an NVLink goes to {target}, {what} ({} left out).",
            line_of(*node),
            count(lost.len(), "such tag")
        ));
    }
    machine.nvlinks = counts.into_iter().map(|((from, to), count)| NvLink { from, to, count }).collect();
}

fn unknowns(machine: &mut Machine, classes: &Classes) {
    let mut say = |text: &str| machine.unknown.push(text.to_owned());
    if !machine.gpus.is_empty() && !classes.gpus_by_class() {
        say("The dump does not name the models of GPUs, only their compute capability.");
    }
    if machine.gpus.iter().any(|it| it.link.is_none()) {
        say("PCI Express speed or width is missing for some devices, as in a virtual machine.");
    }
    if !classes.nics_by_class() && machine.nics.iter().any(|it| it.rate.is_none()) {
        say("The rate of some NICs is missing.");
    }
    if machine.sockets.iter().any(|it| it.numa.is_none()) {
        say("The NUMA node of some CPUs is unknown, as in a virtual machine.");
    }
    if machine.nics.is_empty() {
        say("The dump shows no NIC.");
    }
}
