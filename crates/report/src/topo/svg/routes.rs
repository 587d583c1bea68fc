//! A ring or tree on top of the machines.
//!
//! Connections inside a machine run below its GPUs. Those between machines leave a GPU upwards, pass its NIC, go along
//! the aisle to the side of the machine and from there to the network.

use std::collections::{BTreeMap, BTreeSet};

use super::canvas::{Canvas, Point, Rect, rounded};
use super::layout::{Plan, float};
use crate::text::clean;
use crate::topo::{Topo, TopoEdge, TopoFamily, TopoOverlay, tree};

/// Between two lines that run side by side.
const STEP: f64 = 11.0;
/// The most connections that are drawn.
const MOST: usize = 512;

/// The connections that can be drawn.
pub(super) struct Routes<'a> {
    inside: Vec<&'a TopoEdge>,
    between: Vec<&'a TopoEdge>,
    /// How many machines are drawn.
    drawn: u32,
    /// Connections that stand out.
    changed: &'a [TopoEdge],
}

/// Where the machines and the network stand.
pub(super) struct Ground<'a> {
    pub(super) plan: &'a Plan,
    /// The upper left corner of each machine.
    pub(super) machines: &'a [Point],
    pub(super) network: Rect,
}

impl<'a> Routes<'a> {
    pub(super) fn new(overlay: Option<&'a TopoOverlay>, gpus: usize, drawn: u32) -> Self {
        let there = |(_, gpu): (u32, u32)| (gpu as usize) < gpus;
        let edges = overlay.into_iter().flat_map(|it| &it.edges).take(MOST);
        let edges = edges.filter(|it| there(it.from) && there(it.to) && it.from.0.min(it.to.0) < drawn);
        let (inside, between) = edges.partition(|it| it.from.0 == it.to.0);
        Self { inside, between, drawn, changed: overlay.map_or(&[], |it| &it.changed) }
    }

    /// Whether some connections stand out.
    pub(super) fn has_changes(&self) -> bool {
        self.inside.iter().chain(&self.between).any(|it| self.changed.contains(it))
    }

    /// The class of a connection beside that of its transport.
    fn weight(&self, edge: &TopoEdge) -> &'static str {
        match (self.changed.is_empty(), self.changed.contains(edge)) {
            (true, _) => "",
            (false, true) => " changed",
            (false, false) => " kept",
        }
    }

    pub(super) fn families(&self) -> BTreeSet<TopoFamily> {
        self.inside.iter().chain(&self.between).map(|it| it.family).collect()
    }

    /// The most connections that leave or reach one machine.
    fn busiest(&self) -> usize {
        let ends = |machine| {
            self.between.iter().flat_map(|it| [it.from.0, it.to.0]).filter(|it| *it == machine).count()
        };
        (0..self.drawn).map(ends).max().unwrap_or(0)
    }

    /// Height of the aisle between NICs and GPUs.
    pub(super) fn aisle(&self) -> f64 {
        24.0 + STEP * 2.0 * float(self.busiest())
    }

    /// Room at each side of a machine. With more than two rows, machines share it with those above them.
    pub(super) fn side(&self, rows: usize) -> f64 {
        match self.between.len() {
            0 => 0.0,
            all if rows > 2 => 10.0 + STEP * float(2 * all),
            _ => 10.0 + STEP * float(self.busiest()),
        }
    }

    /// Height of the network; none where nothing goes there.
    pub(super) fn network(&self) -> f64 {
        if self.between.is_empty() { 0.0 } else { 34.0 + STEP * float(self.between.len()) }
    }

    /// Room below the sockets for what runs inside the machines.
    pub(super) fn below(&self, plan: &Plan) -> f64 {
        let levels = (0..self.drawn).flat_map(|it| self.arcs(it, plan)).map(|it| it.level + 1).max();
        levels.map_or(0.0, |it| 12.0 + STEP * float(it))
    }

    pub(super) fn draw(&self, topo: &Topo, ground: &Ground<'_>, canvas: &mut Canvas) {
        for (machine, at) in (0..self.drawn).zip(ground.machines) {
            for arc in self.arcs(machine, ground.plan) {
                let class = format!("{}{}", class(arc.edge.family), self.weight(arc.edge));
                arc.draw(ground.plan, *at, topo.nvswitch.is_some(), &class, canvas);
            }
        }
        let mut traffic = Traffic::new(self, topo, ground);
        for (number, edge) in self.between.iter().enumerate() {
            let track = ground.network.y + 32.0 + STEP * float(number);
            let from = traffic.way(edge.from, edge, track);
            let to = traffic.way(edge.to, edge, track);
            let away = ground.network.right() - 10.0;
            // A machine that is not drawn is beyond the right end of the network.
            let mut points = from.net.unwrap_or_else(|| vec![(away, track)]);
            points.extend(to.net.unwrap_or_else(|| vec![(away, track)]).into_iter().rev());
            let mut pieces = vec![from.gpu, points];
            pieces.push(to.gpu.into_iter().rev().collect());
            pieces.retain(|it| it.len() > 1);
            let path: String = pieces.iter().map(|it| rounded(it, 6.0)).collect();
            for nic in [from.nic, to.nic].into_iter().flatten() {
                canvas.rect(nic, 6.0, "used");
            }
            trace(&path, &format!("{}{}", class(edge.family), self.weight(edge)), &name(edge), canvas);
        }
    }

    fn arcs(&self, machine: u32, plan: &Plan) -> Vec<Arc<'a>> {
        let edges: Vec<&'a TopoEdge> =
            self.inside.iter().copied().filter(|it| it.from.0 == machine).collect();
        let mut ends: BTreeMap<u32, Vec<(bool, i64, usize, bool)>> = BTreeMap::new();
        for (number, edge) in edges.iter().enumerate() {
            for (here, there, leaves) in [(edge.from.1, edge.to.1, true), (edge.to.1, edge.from.1, false)] {
                // From left to right: from the left the nearest first, to the right the farthest first. So they do not cross.
                let (right, far) = (there > here, i64::from(here.abs_diff(there)));
                ends.entry(here).or_default().push((right, if right { -far } else { far }, number, leaves));
            }
        }
        let mut arcs: Vec<Arc<'a>> =
            edges.iter().map(|it| Arc { edge: it, from: 0.0, to: 0.0, level: 0 }).collect();
        for (gpu, mut list) in ends {
            list.sort_unstable();
            let rect = plan.gpus[gpu as usize].rect;
            let step = 18.0_f64.min((rect.width - 16.0) / float(list.len()));
            for (at, (_, _, number, leaves)) in list.iter().enumerate() {
                let x = rect.centre() + (float(at) - float(list.len() - 1) / 2.0) * step;
                let arc = &mut arcs[*number];
                if *leaves { arc.from = x } else { arc.to = x }
            }
        }
        arcs.sort_by(|a, b| (a.from - a.to).abs().total_cmp(&(b.from - b.to).abs()));
        for at in 0..arcs.len() {
            let (low, high) = arcs[at].ends();
            let crossed =
                arcs[..at].iter().filter(|it| it.ends().0 <= high + 2.0 && low <= it.ends().1 + 2.0);
            arcs[at].level = crossed.map(|it| it.level + 1).max().unwrap_or(0);
        }
        arcs
    }
}

/// A connection inside a machine.
struct Arc<'a> {
    edge: &'a TopoEdge,
    from: f64,
    to: f64,
    level: usize,
}

impl Arc<'_> {
    fn ends(&self) -> (f64, f64) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    fn draw(&self, plan: &Plan, at: Point, plane: bool, class: &str, canvas: &mut Canvas) {
        let top = at.1 + plan.gpus.first().map_or(0.0, |it| it.rect.bottom());
        let low = at.1 + plan.height + if plane { 24.0 } else { 10.0 } + STEP * float(self.level);
        let (from, to) = (at.0 + self.from, at.0 + self.to);
        let path = rounded(&[(from, top), (from, low), (to, low), (to, top + 1.0)], 6.0);
        trace(&path, class, &name(self.edge), canvas);
    }
}

fn name(edge: &TopoEdge) -> String {
    let ((from, one), (to, other)) = (edge.from, edge.to);
    let [out, into] = [&edge.nic, &edge.to_nic].map(|it| it.as_deref().map(clean));
    let nic = match (out, into) {
        (Some(out), Some(into)) if out != into => format!(" by {out} and {into}"),
        (Some(nic), _) | (None, Some(nic)) => format!(" by {nic}"),
        (None, None) => String::new(),
    };
    format!("machine {from} GPU{one} to machine {to} GPU{other}: {}{nic}", edge.family.name())
}

/// The class with the colour of a transport.
pub(super) fn class(family: TopoFamily) -> &'static str {
    match family {
        TopoFamily::P2p | TopoFamily::Inside => "p2p",
        TopoFamily::Shm => "shm",
        TopoFamily::Net | TopoFamily::CollNet => "net",
    }
}

/// The tips of lines, one for each class.
pub(super) fn tips(canvas: &mut Canvas) {
    canvas.text.push_str("<defs>");
    for class in ["p2p", "shm", "net"] {
        canvas.text.push_str(&format!(
            "<marker id=\"tip-{class}\" viewBox=\"0 0 10 10\" refX=\"8\" refY=\"5\" markerWidth=\"11\" \
             markerHeight=\"11\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">\
             <path class=\"tip {class}\" d=\"M0 0L10 5L0 10z\"/></marker>"
        ));
    }
    canvas.text.push_str("</defs>\n");
}

/// A line with a tip.
pub(super) fn pointed(path: &str, class: &str, canvas: &mut Canvas) {
    let kind = class.split(' ').next().unwrap_or_default();
    canvas
        .text
        .push_str(&format!("<path class=\"route {class}\" d=\"{path}\" marker-end=\"url(#tip-{kind})\"/>\n"));
}

fn trace(path: &str, class: &str, name: &str, canvas: &mut Canvas) {
    canvas.named(name, |it| {
        it.path(path, "halo");
        pointed(path, class, it);
    });
}

/// The part of a connection at one end, from the GPU outwards.
#[derive(Default)]
struct Way {
    /// From the GPU to the NIC.
    gpu: Vec<Point>,
    /// From the NIC to the network.
    net: Option<Vec<Point>>,
    nic: Option<Rect>,
}

/// How many there will be, and how many there are so far.
#[derive(Default, Clone, Copy)]
struct Taken {
    all: usize,
    used: usize,
}

impl Taken {
    fn next(&mut self) -> usize {
        self.used += 1;
        self.used - 1
    }
}

/// Which tracks are taken.
struct Traffic<'a> {
    topo: &'a Topo,
    ground: &'a Ground<'a>,
    gpus: Vec<&'a str>,
    /// Tracks in the aisle of each machine.
    aisles: Vec<usize>,
    /// Tracks at the sides of the machines: by place, whether above the network, and whether at the right.
    sides: BTreeMap<(String, bool, bool), Taken>,
    /// Ends at each NIC.
    nics: BTreeMap<(u32, usize), Taken>,
    /// Ends at each GPU.
    tops: BTreeMap<(u32, u32), Taken>,
}

impl<'a> Traffic<'a> {
    fn new(routes: &Routes<'_>, topo: &'a Topo, ground: &'a Ground<'a>) -> Self {
        let mut it = Self {
            topo,
            ground,
            gpus: tree::gpus(topo),
            aisles: vec![0; ground.machines.len()],
            sides: BTreeMap::new(),
            nics: BTreeMap::new(),
            tops: BTreeMap::new(),
        };
        for edge in &routes.between {
            for end in [edge.from, edge.to] {
                let nic = it.nic(end, edge);
                if let Some(nic) = nic {
                    it.nics.entry((end.0, nic)).or_default().all += 1;
                }
                it.tops.entry(end).or_default().all += 1;
                if let Some(at) = ground.machines.get(end.0 as usize) {
                    let key = it.side_key(*at, it.leaves_right(end, nic));
                    it.sides.entry(key).or_default().all += 1;
                }
            }
        }
        it
    }

    /// The NIC that a GPU uses. Where only the sender's is known: that one if it is among the nearest, otherwise the nearest, otherwise
    /// that one.
    fn nic(&self, end: (u32, u32), edge: &TopoEdge) -> Option<usize> {
        let find = |name: &str| self.ground.plan.nics.iter().position(|it| it.name == clean(name));
        let arrives = edge.to_nic.as_deref().filter(|_| end == edge.to);
        if let Some(exact) = arrives.or(edge.nic.as_deref().filter(|_| edge.to_nic.is_some())).and_then(find)
        {
            return Some(exact);
        }
        let named = edge.nic.as_deref().and_then(find);
        let gpu = self.gpus.get(end.1 as usize)?;
        let near = self.topo.nics.iter().filter(|it| it.gpu == *gpu).flat_map(|it| &it.nics);
        let near: Vec<usize> = near.filter_map(|it| find(it)).collect();
        named.filter(|it| near.contains(it)).or(near.first().copied()).or(named)
    }

    /// A machine is left by its nearer side.
    fn leaves_right(&self, (_, gpu): (u32, u32), nic: Option<usize>) -> bool {
        let plan = self.ground.plan;
        let part = nic.and_then(|it| plan.nics.get(it)).or(plan.gpus.get(gpu as usize));
        part.is_some_and(|it| it.rect.centre() > plan.width / 2.0)
    }

    fn side_key(&self, at: Point, right: bool) -> (String, bool, bool) {
        (format!("{:.0}", at.0), at.1 < self.ground.network.y, right)
    }

    /// The vertical part of a connection next to a machine.
    fn side(&mut self, at: Point, right: bool) -> f64 {
        let key = self.side_key(at, right);
        let above = key.1;
        let taken = self.sides.entry(key).or_default();
        let next = taken.next();
        // The first leaves highest: on the way down it must pass outside the others, on the way up inside. Machines
        // above and below the network keep apart.
        let away =
            if above { STEP * float(taken.all.max(next + 1) - next) } else { STEP * (float(next) + 0.5) };
        if right { at.0 + self.ground.plan.width + away } else { at.0 - away }
    }

    fn track(&mut self, machine: usize, floor: f64) -> f64 {
        let track = self.aisles[machine];
        self.aisles[machine] += 1;
        floor + 12.0 + STEP * float(track)
    }

    /// The route of one end, or `None` if its machine is not drawn.
    fn way(&mut self, end: (u32, u32), edge: &TopoEdge, track: f64) -> Way {
        let machine = end.0 as usize;
        let Some(at) = self.ground.machines.get(machine).copied() else { return Way::default() };
        let plan = self.ground.plan;
        let Some(gpu) = plan.gpus.get(end.1 as usize).map(|it| it.rect.moved(at)) else {
            return Way::default();
        };
        let tops = self.tops.entry(end).or_default();
        let top = gpu.centre() + 16.0 * (float(tops.next()) - float(tops.all.saturating_sub(1)) / 2.0);
        let top = top.clamp(gpu.x + 6.0, gpu.right() - 6.0);
        let floor = plan.nics.iter().map(|it| it.rect.bottom()).reduce(f64::max);
        let floor = floor.map_or(gpu.y - 40.0, |it| it + at.1);
        let nic = self.nic(end, edge);
        let right = self.leaves_right(end, nic);
        let aisle = self.track(machine, floor);
        let side = self.side(at, right);
        let Some(number) = nic else {
            // No NIC is known: straight out.
            let net = vec![(top, gpu.y - 1.0), (top, aisle), (side, aisle), (side, track)];
            return Way { net: Some(net), ..Way::default() };
        };
        let rect = plan.nics[number].rect.moved(at);
        let taken = self.nics.entry((end.0, number)).or_default();
        let (all, order) = (taken.all.max(taken.used + 1), taken.next());
        // The half of the NIC at the side is for the network, the other for the GPUs; the outermost first.
        let slot = |it: usize| rect.width * (float(it) + 0.5) / float(all * 2);
        let (inner, outer) = if right {
            (rect.x + slot(order), rect.right() - slot(order))
        } else {
            (rect.right() - slot(order), rect.x + slot(order))
        };
        let way = if gpu.x + 6.0 < inner && inner < gpu.right() - 6.0 {
            vec![(inner, gpu.y - 1.0), (inner, rect.bottom())]
        } else {
            // On the other side the same track is free.
            let shared = (top < inner) == right;
            let across = if shared { aisle } else { self.track(machine, floor) };
            vec![(top, gpu.y - 1.0), (top, across), (inner, across), (inner, rect.bottom())]
        };
        let net = vec![(outer, rect.bottom()), (outer, aisle), (side, aisle), (side, track)];
        Way { gpu: way, net: Some(net), nic: Some(rect) }
    }
}
