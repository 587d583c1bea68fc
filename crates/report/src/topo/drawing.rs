//! The tree of sockets, switches and devices as lines of text.
//!
//! ```text
//! NUMA 0  Intel                    NUMA 1  Intel
//! ├─ switch  GPU0 GPU1  mlx5_0     ├─ switch  GPU4 GPU5  mlx5_2
//! └─ switch  GPU2 GPU3  mlx5_1     └─ switch  GPU6 GPU7  mlx5_3
//! ```

use super::tree::{self, Item};
use super::words::{names, number};
use super::{Topo, TopoNode, TopoSocket};
use crate::text::{clean, cut, width};

/// Blanks between two sockets side by side.
const GAP: usize = 4;
/// Deeper switches are not moved further to the right.
const DEEPEST: usize = 8;

/// The drawing, at most `room` columns wide. Side by side where that fits.
pub(super) fn drawing(topo: &Topo, room: usize, every_detail: bool) -> Vec<String> {
    let common = Common::of(topo);
    let block = |(at, it): (usize, &TopoSocket)| {
        let lines = compact(at, it, &common);
        let fits = !every_detail && lines.iter().all(|it| width(it) <= room);
        let lines = if fits { lines } else { detailed(at, it, &common, every_detail) };
        lines.into_iter().map(|it| cut(&it, room)).collect::<Vec<String>>()
    };
    let blocks: Vec<Vec<String>> = topo.sockets.iter().enumerate().map(block).collect();
    let mut lines = Vec::new();
    let mut rest = blocks.as_slice();
    while !rest.is_empty() {
        let most = (1..=rest.len()).rev().find(|it| side_by_side(&rest[..*it]) <= room).unwrap_or(1);
        let (now, later) = rest.split_at(most);
        lines.extend(joined(now));
        rest = later;
    }
    lines
}

/// Attributes that all devices share are not repeated.
struct Common {
    model: bool,
    rate: bool,
    ranks: bool,
}

impl Common {
    fn of(topo: &Topo) -> Self {
        let devices = tree::devices(topo);
        let models = devices.iter().filter_map(|it| match it {
            TopoNode::Gpu { model, .. } => Some(model),
            _ => None,
        });
        let rates = devices.iter().filter_map(|it| match it {
            TopoNode::Nic { rate, network, .. } => Some((rate, network)),
            _ => None,
        });
        let ranks = devices.iter().all(|it| match it {
            TopoNode::Gpu { name, rank, .. } => rank.is_none_or(|it| *name == format!("GPU{it}")),
            _ => true,
        });
        Self { model: same(models), rate: same(rates), ranks }
    }
}

fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> bool {
    let first = values.next();
    values.all(|it| Some(it) == first)
}

fn side_by_side(blocks: &[Vec<String>]) -> usize {
    let widths = blocks.iter().map(|it| it.iter().map(|it| width(it)).max().unwrap_or(0));
    widths.sum::<usize>() + GAP * blocks.len().saturating_sub(1)
}

fn joined(blocks: &[Vec<String>]) -> Vec<String> {
    let rows = blocks.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> =
        blocks.iter().map(|it| it.iter().map(|it| width(it)).max().unwrap_or(0)).collect();
    let row = |row: usize| {
        let cells = blocks.iter().zip(&widths).map(|(block, wide)| {
            let text = block.get(row).map_or("", String::as_str);
            format!("{text}{}", " ".repeat(wide + GAP - width(text)))
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..rows).map(row).collect()
}

fn head(at: usize, socket: &TopoSocket, every_detail: bool) -> String {
    let mut about = Vec::new();
    about.extend(socket.maker.as_deref().map(clean));
    if every_detail {
        about.extend(socket.cpus.as_deref().map(|it| format!("CPUs {}", clean(it))));
    }
    format!("{}  {}", socket_name(at, socket), about.join(", ")).trim_end().to_owned()
}

/// `NUMA 3`, or `socket 0` where the number of the NUMA node is not known.
pub(super) fn socket_name(at: usize, socket: &TopoSocket) -> String {
    socket.numa.map_or_else(|| format!("socket {at}"), |it| format!("NUMA {it}"))
}

/// One line per switch, with its GPUs and NICs; one line per device at the socket itself.
fn compact(at: usize, socket: &TopoSocket, common: &Common) -> Vec<String> {
    let list = tree::items(socket);
    let shown = |it: &Item<'_>| it.depth == 0 || matches!(it.node, TopoNode::Switch { .. });
    let places: Vec<usize> = (0..list.len()).filter(|it| shown(&list[*it])).collect();
    // Two columns: the switch with its GPUs, and the NICs.
    let row = |place: &usize| {
        let Item { node, .. } = list[*place];
        let TopoNode::Switch { children, .. } = node else { return (device(node, common), String::new()) };
        let gpus: Vec<String> = children
            .iter()
            .filter(|it| matches!(it, TopoNode::Gpu { .. }))
            .map(|it| device(it, common))
            .collect();
        let nics: Vec<String> = children
            .iter()
            .filter(|it| matches!(it, TopoNode::Nic { .. }))
            .map(|it| device(it, common))
            .collect();
        let list = |all: &[String], most: usize, between: &str| {
            let many = all.len() > most;
            if many {
                names(&all.iter().map(String::as_str).collect::<Vec<&str>>())
            } else {
                all.join(between)
            }
        };
        let gpus = list(&gpus, 4, " ");
        (format!("switch  {gpus}").trim_end().to_owned(), list(&nics, 2, "  "))
    };
    let rows: Vec<(String, String, String)> = places
        .iter()
        .map(|it| {
            let (gpus, nics) = row(it);
            (branch(&list, *it, &shown), gpus, nics)
        })
        .collect();
    let wide = rows.iter().filter(|it| !it.2.is_empty()).map(|it| width(&it.0) + width(&it.1)).max();
    let wide = wide.unwrap_or(0);
    let mut lines = vec![head(at, socket, false)];
    lines.extend(rows.into_iter().map(|(branch, gpus, nics)| {
        let blanks = " ".repeat((wide + 2).saturating_sub(width(&branch) + width(&gpus)));
        format!("{branch}{gpus}{blanks}{nics}").trim_end().to_owned()
    }));
    nothing(lines)
}

/// One line per device.
fn detailed(at: usize, socket: &TopoSocket, common: &Common, every_detail: bool) -> Vec<String> {
    let list = tree::items(socket);
    let mut lines = vec![head(at, socket, every_detail)];
    for (place, item) in list.iter().enumerate() {
        let mut text = format!("{}{}", branch(&list, place, &|_| true), device(item.node, common));
        if every_detail {
            let (TopoNode::Switch { bus, link, .. }
            | TopoNode::Gpu { bus, link, .. }
            | TopoNode::Nic { bus, link, .. }) = item.node;
            for it in [bus, link].into_iter().flatten() {
                text.push_str(&format!("  {}", clean(it)));
            }
        }
        lines.push(text);
    }
    nothing(lines)
}

fn nothing(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() == 1 {
        lines.push("└─ no GPU, no NIC".to_owned());
    }
    lines
}

fn device(node: &TopoNode, common: &Common) -> String {
    match node {
        TopoNode::Switch { .. } => "switch".to_owned(),
        TopoNode::Gpu { name, model, rank, .. } => {
            let mut text = clean(name);
            if let Some(model) = model.as_deref().filter(|_| !common.model) {
                text.push_str(&format!(" {}", clean(model)));
            }
            if let Some(rank) = rank.filter(|_| !common.ranks) {
                text.push_str(&format!(" (rank {rank})"));
            }
            text
        }
        TopoNode::Nic { name, rate, network, rail, .. } => {
            let mut text = if *rail > 1 { format!("{rail} x {}..", clean(name)) } else { clean(name) };
            if !common.rate || *rail > 1 {
                let network = network.as_deref().filter(|_| !common.rate).map(clean);
                let rate = rate.map(|it| format!("{} Gbps", number(it)));
                network.into_iter().chain(rate).for_each(|it| text.push_str(&format!(" {it}")));
            }
            text
        }
    }
}

/// The lines to the left: `│  ├─ `.
fn branch(list: &[Item<'_>], place: usize, shown: &dyn Fn(&Item<'_>) -> bool) -> String {
    let mut parts = Vec::new();
    let mut at = Some(place);
    while let Some(here) = at.filter(|_| parts.len() < DEEPEST) {
        let more = list[here + 1..]
            .iter()
            .take_while(|it| it.depth >= list[here].depth)
            .any(|it| it.depth == list[here].depth && shown(it));
        parts.push(match (here == place, more) {
            (true, true) => "├─ ",
            (true, false) => "└─ ",
            (false, true) => "│  ",
            (false, false) => "   ",
        });
        at = list[here].parent;
    }
    parts.iter().rev().copied().collect()
}
