//! The layout of one machine.
//!
//! From top to bottom: the CPUs, the PCIe switches level by level, the NICs, an aisle for what goes to other machines,
//! the GPUs, and the NVLinks. A GPU has a column of its own; at the left of each column a lane is left free for
//! the link of the GPU, so that it does not run through a NIC.

use std::collections::BTreeSet;

use super::canvas::Rect;
use crate::text::{clean, counted};
use crate::topo::drawing::socket_name;
use crate::topo::tree::{self, Item};
use crate::topo::words::number;
use crate::topo::{Topo, TopoNode};

/// A column.
const COLUMN: f64 = 128.0;
/// The lane at its left.
const LANE: f64 = 16.0;
/// Between two devices.
const GAP: f64 = 8.0;
/// Inside the frame of a socket.
const INSIDE: f64 = 14.0;
/// Between two sockets.
const BETWEEN: f64 = 28.0;
/// A CPU, a switch.
const BAR: f64 = 30.0;
/// From a CPU to a switch, from a switch to what is below it.
const DROP: f64 = 24.0;
/// A line of text in a device, and what is above and below the lines.
const LINE: f64 = 16.0;
const AROUND: f64 = 12.0;
/// The number of colours for rails; they repeat.
pub(super) const RAILS: usize = 8;
/// How far a stack of NICs reaches beyond the first.
pub(super) const PILE: f64 = 6.0;
/// NICs of one column, at most.
const STACK: usize = 4;

/// A box with a link to what is above it.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub(super) rect: Rect,
    /// Where its link begins: the lower edge of the box above it.
    pub(super) above: f64,
    /// The x position of its link.
    pub(super) lane: f64,
    /// Its text.
    pub(super) lines: Vec<String>,
    /// Its tooltip.
    pub(super) title: String,
    /// Its name; empty for a switch.
    pub(super) name: String,
    /// How many it stands for.
    pub(super) count: u32,
    /// The rail of a NIC; none if no GPU has it among its nearest.
    pub(super) rail: Option<usize>,
    /// The rank of a GPU on the machine that is described.
    pub(super) rank: Option<u32>,
}

impl Part {
    /// The same on another machine, where a GPU has another rank, or one that is not known.
    pub(super) fn with_rank(&self, rank: Option<u32>) -> Self {
        let Some(own) = self.rank.map(|it| format!("rank {it}")) else { return self.clone() };
        let new = rank.map(|it| format!("rank {it}"));
        let words = |text: &str, between: &str| {
            let all = text.split(between).filter_map(|it| if it == own { new.as_deref() } else { Some(it) });
            all.collect::<Vec<_>>().join(between)
        };
        let lines = self.lines.iter().map(|it| words(it, "\n"));
        Self {
            lines: lines.filter(|it| !it.is_empty()).collect(),
            title: words(&self.title, ", "),
            rank,
            ..self.clone()
        }
    }
}

/// One machine, its upper left corner at 0, 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) width: f64,
    /// Without NVLinks.
    pub(super) height: f64,
    /// Frames of the sockets.
    pub(super) frames: Vec<Rect>,
    pub(super) cpus: Vec<Part>,
    pub(super) switches: Vec<Part>,
    /// In the order of the drawing.
    pub(super) nics: Vec<Part>,
    /// In the order of the drawing.
    pub(super) gpus: Vec<Part>,
}

impl Plan {
    /// Lays a machine out. `aisle` is how high the aisle is.
    pub(super) fn new(topo: &Topo, aisle: f64) -> Self {
        let sockets: Vec<Columns<'_>> = topo.sockets.iter().map(|it| Columns::of(tree::items(it))).collect();
        let levels = sockets.iter().map(|it| it.levels).max().unwrap_or(0);
        let stack = sockets.iter().map(|it| it.stack).max().unwrap_or(0);
        let mut rows = Rows { levels, stack, ..Rows::default() };
        let devices = tree::devices(topo);
        for it in &devices {
            let lines = lines(it, stack);
            let most = if matches!(it, TopoNode::Gpu { .. }) { &mut rows.gpu } else { &mut rows.nic };
            *most = tall(lines.len()).max(*most);
        }
        rows.place(aisle);
        let mut plan = Self::default();
        for (at, (socket, columns)) in topo.sockets.iter().zip(&sockets).enumerate() {
            let x = if at == 0 { 0.0 } else { plan.width + BETWEEN };
            let mut about = vec![socket_name(at, socket)];
            about.extend(socket.maker.as_deref().map(clean));
            let about = about.join(" · ");
            let cpus = socket.cpus.as_deref().map(|it| format!(", CPUs {}", clean(it))).unwrap_or_default();
            let wide = float(columns.count.max(1)) * COLUMN - GAP;
            let frame = Rect { x, y: 0.0, width: wide + 2.0 * INSIDE, height: rows.bottom + INSIDE };
            let rect = Rect { x: x + INSIDE, y: INSIDE, width: wide, height: BAR };
            plan.cpus.push(Part {
                rect,
                title: format!("{about}{cpus}"),
                lines: vec![about],
                ..Part::default()
            });
            plan.frames.push(frame);
            plan.width = frame.right();
            plan.height = frame.bottom();
            columns.place(x + INSIDE, &rows, &mut plan);
        }
        let near: BTreeSet<String> = topo.nics.iter().flat_map(|it| &it.nics).map(|it| clean(it)).collect();
        plan.nics
            .iter_mut()
            .filter(|it| !near.is_empty() && !near.contains(&it.name))
            .for_each(|it| it.rail = None);
        // One colour per NIC while there are enough; otherwise the nth NICs of all GPUs share one.
        let used: Vec<&mut Part> = plan.nics.iter_mut().filter(|it| it.rail.is_some()).collect();
        if stack < 2 || used.len() <= RAILS {
            used.into_iter().enumerate().for_each(|(number, it)| it.rail = Some(number));
        }
        plan
    }
}

/// Heights, the same for all sockets.
#[derive(Default)]
struct Rows {
    levels: usize,
    stack: usize,
    /// Height of a NIC, of a GPU.
    nic: f64,
    gpu: f64,
    nics_at: f64,
    gpus_at: f64,
    bottom: f64,
}

impl Rows {
    fn place(&mut self, aisle: f64) {
        let below_switches = INSIDE + BAR + float(self.levels) * (BAR + DROP);
        self.nics_at = below_switches + DROP;
        let nics = float(self.stack) * self.nic;
        self.gpus_at =
            if self.stack > 0 { self.nics_at + nics + aisle } else { below_switches + aisle.max(DROP) };
        // Without GPUs there is no row for them.
        self.bottom =
            if self.gpu > 0.0 { self.gpus_at + self.gpu } else { (self.nics_at + nics).max(below_switches) };
    }

    /// The lower edge of a switch, or of the CPU.
    fn below(depth: Option<usize>) -> f64 {
        INSIDE + BAR + depth.map_or(0.0, |it| float(it + 1) * (BAR + DROP))
    }
}

/// The columns of one socket.
struct Columns<'a> {
    list: Vec<Item<'a>>,
    /// First column, and for a switch how many; for a NIC its place in the stack.
    places: Vec<(usize, usize)>,
    count: usize,
    levels: usize,
    stack: usize,
}

impl<'a> Columns<'a> {
    fn of(list: Vec<Item<'a>>) -> Self {
        let mut it = Self { places: vec![(0, 0); list.len()], list, count: 0, levels: 0, stack: 0 };
        let is_switch = |it: &Item<'_>| matches!(it.node, TopoNode::Switch { .. });
        let mut gpus: Vec<Vec<usize>> = vec![Vec::new(); it.list.len()];
        let mut nics: Vec<Vec<usize>> = vec![Vec::new(); it.list.len()];
        for (at, item) in it.list.iter().enumerate() {
            match (item.parent, item.node) {
                (Some(parent), TopoNode::Gpu { .. }) => gpus[parent].push(at),
                (Some(parent), TopoNode::Nic { .. }) => nics[parent].push(at),
                _ => {}
            }
        }
        for at in 0..it.list.len() {
            let item = it.list[at];
            if is_switch(&item) {
                it.levels = it.levels.max(item.depth + 1);
                let (gpus, nics) = (&gpus[at], &nics[at]);
                let empty = it.list.get(at + 1).is_none_or(|it| it.parent != Some(at));
                let wide = gpus.len().max(nics.len().div_ceil(STACK)).max(usize::from(empty));
                let first = it.count;
                it.places[at] = (first, wide);
                gpus.iter().enumerate().for_each(|(n, gpu)| it.places[*gpu] = (first + n, 0));
                for (n, nic) in nics.iter().enumerate() {
                    let few = nics.len() <= wide;
                    let column = if few { n * wide / nics.len() } else { n % wide };
                    let row = if few { 0 } else { n / wide };
                    it.places[*nic] = (first + column, row);
                    it.stack = it.stack.max(row + 1);
                }
                it.count += wide;
            } else if item.parent.is_none() {
                // At the socket itself each device has a column of its own.
                it.places[at] = (it.count, 0);
                it.count += 1;
                it.stack = it.stack.max(usize::from(matches!(item.node, TopoNode::Nic { .. })));
            }
        }
        // A switch is as wide as everything below it, which follows it directly in the list.
        for at in (0..it.list.len()).rev() {
            if let Some(parent) = it.list[at].parent.filter(|_| is_switch(&it.list[at])) {
                let end = it.places[at].0 + it.places[at].1;
                let (first, wide) = it.places[parent];
                it.places[parent] = (first, (end - first).max(wide));
            }
        }
        it
    }

    fn place(&self, left: f64, rows: &Rows, plan: &mut Plan) {
        let nics = self.list.iter().zip(&self.places).filter(|it| matches!(it.0.node, TopoNode::Nic { .. }));
        let beside: BTreeSet<usize> = nics.map(|it| it.1.0).collect();
        for (item, place) in self.list.iter().zip(&self.places) {
            let x = left + float(place.0) * COLUMN;
            let above = Rows::below(item.depth.checked_sub(1));
            let lines = lines(item.node, rows.stack);
            let title = title(item.node);
            let name = tree::name(item.node).map(clean).unwrap_or_default();
            let rank = match item.node {
                TopoNode::Gpu { rank, .. } => *rank,
                _ => None,
            };
            let part = Part { above, lines, title, name, count: 1, rank, ..Part::default() };
            match item.node {
                TopoNode::Switch { .. } => {
                    let width = float(place.1.max(1)) * COLUMN - GAP;
                    let rect = Rect { x, y: above + DROP, width, height: BAR };
                    plan.switches.push(Part { rect, lane: rect.centre(), ..part });
                }
                TopoNode::Gpu { .. } => {
                    let rect = Rect { x, y: rows.gpus_at, width: COLUMN - GAP, height: rows.gpu };
                    let lane = if beside.contains(&place.0) { x + LANE / 2.0 } else { rect.centre() };
                    plan.gpus.push(Part { rect, lane, ..part });
                }
                TopoNode::Nic { rail, .. } => {
                    let y = rows.nics_at + float(place.1) * rows.nic;
                    let width = COLUMN - GAP - LANE - if *rail > 1 { PILE } else { 0.0 };
                    let rect = Rect { x: x + LANE, y, width, height: rows.nic - 2.0 };
                    plan.nics.push(Part {
                        rect,
                        lane: rect.centre(),
                        count: *rail,
                        rail: Some(place.1),
                        ..part
                    });
                }
            }
        }
    }
}

fn tall(lines: usize) -> f64 {
    float(lines) * LINE + AROUND
}

/// The text of a box.
fn lines(node: &TopoNode, stack: usize) -> Vec<String> {
    let mut lines = Vec::new();
    match node {
        TopoNode::Switch { link, .. } => {
            let link = link.as_deref().map(|it| format!(" · {}", clean(it))).unwrap_or_default();
            lines.push(format!("PCIe switch{link}"));
        }
        TopoNode::Gpu { name, model, link, rank, .. } => {
            lines.push(clean(name));
            lines.extend(model.as_deref().map(clean));
            lines.extend(rank.map(|it| format!("rank {it}")));
            lines.extend(link.as_deref().map(clean));
        }
        TopoNode::Nic { name, rate, link, rail, .. } => {
            let rate = rate.map(|it| format!("{} Gbps", number(it)));
            match (*rail > 1, rate) {
                (true, Some(rate)) => {
                    lines.extend([format!("{}..", clean(name)), format!("{rail} × {rate}")]);
                }
                (true, None) => {
                    lines.extend([format!("{}..", clean(name)), counted(*rail as usize, "NIC")]);
                }
                (false, rate) => {
                    lines.push(clean(name));
                    lines.extend(rate);
                }
            }
            lines.extend(link.as_deref().map(clean));
            // In a stack there is room for the name alone.
            lines.truncate(if stack > 1 { 1 } else { lines.len() });
        }
    }
    lines
}

/// The tooltip.
fn title(node: &TopoNode) -> String {
    let mut words = Vec::new();
    match node {
        TopoNode::Switch { .. } => words.push("PCIe switch".to_owned()),
        TopoNode::Gpu { name, model, rank, .. } => {
            words.push(clean(name));
            words.extend(model.as_deref().map(clean));
            words.extend(rank.map(|it| format!("rank {it}")));
        }
        TopoNode::Nic { name, network, rate, gpudirect, rail, .. } => {
            words.push(if *rail > 1 { format!("{rail} NICs from {}", clean(name)) } else { clean(name) });
            words.extend(network.as_deref().map(clean));
            words.extend(rate.map(|it| format!("{} Gbps", number(it))));
            words.extend(gpudirect.map(|it| if it { "GPUDirect" } else { "no GPUDirect" }.to_owned()));
        }
    }
    let (TopoNode::Switch { bus, link, .. }
    | TopoNode::Gpu { bus, link, .. }
    | TopoNode::Nic { bus, link, .. }) = node;
    words.extend(link.as_deref().map(|it| format!("PCIe {}", clean(it))));
    words.extend(bus.as_deref().map(clean));
    words.join(", ")
}

/// Counts of what is drawn are small.
pub(super) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
