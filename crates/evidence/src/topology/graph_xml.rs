//! The XML of `NCCL_GRAPH_DUMP_FILE`: the rings and trees that NCCL's search found.
//!
//! ```text
//! <graphs version="1">
//!   <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="20" speedinter="20" typeintra="NVL" typeinter="PIX" samechannels="1">
//!     <channel><net dev="0"/><gpu dev="0"/><gpu dev="1"/><net dev="0"/></channel>
//! ```

use fabric::machine::{Hidden, Machine, Place, Socket};
use roxmltree::Node;

use super::xml::{attribute, number};
use super::{Channel, Graph, Kind, Topology, Trouble, blank_gpu, blank_nic, check_size};

pub(super) fn read(root: Node<'_, '_>, line: u64) -> Result<Topology, Trouble> {
    let mut notes = Vec::new();
    let graphs: Vec<Graph> = root.children().filter(|it| it.has_tag_name("graph")).map(graph).collect();
    if graphs.is_empty() {
        return Err(Trouble::at(line, "<graphs> has no <graph> in it"));
    }
    for graph in &graphs {
        if usize::try_from(graph.n_channels) != Ok(graph.channels.len()) {
            notes.push(format!(
                "The attribute says that pattern {} has {} channels, but it has {}.",
                graph.pattern,
                graph.n_channels,
                graph.channels.len()
            ));
        }
    }
    let sorted = |all: &mut Vec<u32>| {
        all.sort_unstable();
        all.dedup();
    };
    let channels = || graphs.iter().flat_map(|it| &it.channels);
    let mut gpus: Vec<u32> = channels().flat_map(|it| it.gpus.iter().copied()).collect();
    let mut nets: Vec<u32> = channels().flat_map(|it| it.net_in.into_iter().chain(it.net_out)).collect();
    sorted(&mut gpus);
    sorted(&mut nets);
    check_size(gpus.len(), "GPUs", line)?;
    check_size(nets.len(), "NICs", line)?;
    let machine = Machine {
        sockets: vec![Socket::default()],
        gpus: gpus.into_iter().map(|it| blank_gpu(it, Place::Socket(0))).collect(),
        nics: nets.into_iter().map(|it| blank_nic(&format!("NET {it}"), it, Place::Socket(0))).collect(),
        nics_merged: true,
        hidden: Hidden { wiring: true, nvlink: true },
        ..Machine::default()
    };
    Ok(Topology { kind: Kind::GraphXml, machine, graphs, paths: Vec::new(), line, notes })
}

fn graph(node: Node<'_, '_>) -> Graph {
    let speed = |name| number::<f64>(node, name).filter(|it| it.is_finite()).unwrap_or_default();
    let text = |name| attribute(node, name).unwrap_or_default().into();
    Graph {
        id: number(node, "id"),
        pattern: number(node, "pattern").unwrap_or_default(),
        cross_nic: number(node, "crossnic").unwrap_or_default(),
        n_channels: number(node, "nchannels").unwrap_or_default(),
        speed_intra: speed("speedintra"),
        speed_inter: speed("speedinter"),
        type_intra: text("typeintra"),
        type_inter: text("typeinter"),
        same_channels: number::<u32>(node, "samechannels") == Some(1),
        channels: node.children().filter(|it| it.has_tag_name("channel")).map(channel).collect(),
    }
}

fn channel(node: Node<'_, '_>) -> Channel {
    let mut channel = Channel::default();
    for child in node.children().filter(Node::is_element) {
        let device = attribute(child, "dev").and_then(device);
        match child.tag_name().name() {
            "gpu" => channel.gpus.extend(device),
            "net" if channel.gpus.is_empty() => channel.net_in = channel.net_in.or(device),
            "net" => channel.net_out = device,
            _ => {}
        }
    }
    channel
}

/// `3`, `0x3`, and `0-3` of host and device.
fn device(text: &str) -> Option<u32> {
    let text = text.rsplit('-').next()?;
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
