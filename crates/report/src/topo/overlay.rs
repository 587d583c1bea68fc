//! A ring or tree of a channel, from a log, to be drawn over the machines.

use std::collections::BTreeMap;

use evidence::topology::Graph;
use evidence::{Case, Communicator};
use fabric::Machine;

use super::model::{TopoEdge, TopoOverlay};

/// A connection inside a machine of which no line was read.
pub(super) const INSIDE: &str = "inside";

/// Which graph of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The ring.
    Ring,
    /// The tree.
    Tree,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
        }
    }
}

/// The ring or tree of a channel of the largest communicator. The error says what the log lacks.
pub fn overlay(case: &Case, machine: &Machine, channel: u32, shape: Shape) -> Result<TopoOverlay, String> {
    let world = case.world().ok_or("the log names no communicator: rings and trees need NCCL_DEBUG=INFO")?;
    let pairs = match shape {
        Shape::Ring => ring(world, channel)?,
        Shape::Tree => tree(world, channel)?,
    };
    let places = Places::new(world);
    let nodes = places.nodes();
    let edges = pairs.into_iter().map(|(from, to)| {
        let family = family(world, from, to);
        let nic = world
            .links()
            .filter(|(_, link)| (link.from, link.to) == (from, to))
            .find_map(|(_, link)| link.transport().and_then(fabric::Transport::network))
            .and_then(|(_, device, _)| machine.nics.iter().find(|it| it.index == device))
            .map(|it| it.name.to_string());
        let (a, b) = (places.of(from), places.of(to));
        let guess = if a.0 == b.0 { INSIDE } else { "NET" };
        TopoEdge { from: a, to: b, family: family.unwrap_or(guess).to_owned(), nic }
    });
    Ok(TopoOverlay { name: format!("{} {channel}", shape.name()), nodes, edges: edges.collect() })
}

/// The same from what NCCL's search found for one machine.
pub fn overlay_of_graph(graphs: &[Graph], channel: u32, shape: Shape) -> Result<TopoOverlay, String> {
    let wanted = |it: &&Graph| match shape {
        Shape::Ring => it.pattern == 4,
        Shape::Tree => (1..=3).contains(&it.pattern),
    };
    let graph = graphs.iter().find(wanted).ok_or("there is no such graph in the file")?;
    let found = graph.channels.get(channel as usize);
    let found =
        found.ok_or_else(|| format!("there is no channel {channel}: there are {}", graph.channels.len()))?;
    let place = |gpu: u32| (0, gpu);
    // A tree is a chain inside a machine, and a ring closes if no NIC is part of it.
    let closes = shape == Shape::Ring && found.net_out.is_none() && found.gpus.len() > 1;
    let next = found.gpus.iter().skip(1).chain(found.gpus.first().filter(|_| closes));
    let edge = |(from, to): (&u32, &u32)| TopoEdge {
        from: place(*from),
        to: place(*to),
        family: INSIDE.to_owned(),
        nic: None,
    };
    let edges = found.gpus.iter().zip(next).map(edge).collect();
    Ok(TopoOverlay { name: format!("{} {channel}", shape.name()), nodes: 1, edges })
}

fn ring(world: &Communicator, channel: u32) -> Result<Vec<(u32, u32)>, String> {
    let rings = || world.members.values().flat_map(|it| &it.facts.rings);
    let ring = rings().find(|it| it.channel == channel).ok_or_else(|| {
        let last = rings().map(|it| it.channel).max();
        match last {
            Some(last) => format!("there is no channel {channel}: they go from 0 to {last}"),
            None => "the log has no `Channel 00/02 : 0 1 2 3` lines: rank 0 prints them".to_owned(),
        }
    })?;
    if ring.cut {
        return Err(format!(
            "NCCL has cut the list of channel {channel}: the ring is too long to be printed"
        ));
    }
    let next = ring.order.iter().skip(1).chain(ring.order.first());
    Ok(ring.order.iter().copied().zip(next.copied()).collect())
}

fn tree(world: &Communicator, channel: u32) -> Result<Vec<(u32, u32)>, String> {
    let trees = world.members.values().filter_map(|it| it.facts.trees.as_ref()).flat_map(|it| &it.value);
    let mut pairs = Vec::new();
    for place in trees.filter(|it| it.channel == channel) {
        pairs.extend(place.up.map(|up| (place.rank, up)));
        pairs.extend(place.down.iter().flatten().map(|down| (*down, place.rank)));
    }
    pairs.sort_unstable();
    pairs.dedup();
    if pairs.is_empty() {
        Err(format!("the log has no `Trees` line with channel {channel}"))
    } else {
        Ok(pairs)
    }
}

fn family(world: &Communicator, from: u32, to: u32) -> Option<&'static str> {
    world
        .links()
        .filter(|(_, link)| (link.from, link.to) == (from, to))
        .find_map(|(_, link)| link.transport())
        .map(fabric::Transport::family)
}

/// On which machine and which GPU ranks are.
struct Places {
    seen: BTreeMap<u32, (u32, u32)>,
    local: u32,
    last: u32,
}

impl Places {
    fn new(world: &Communicator) -> Self {
        let last = world.n_ranks.unwrap_or(1).max(1) - 1;
        let local = world.local_ranks().unwrap_or(1).max(1);
        let seen = world.members.iter().filter_map(|(rank, member)| {
            let layout = member.facts.layout.as_ref()?;
            // In a pod each GPU has the number 0: ranks of one node tell them apart.
            Some((*rank, (*rank / local, layout.value.local_rank)))
        });
        Self { seen: seen.collect(), local, last }
    }

    /// Ranks of which no line was read lie as ranks usually do: node by node.
    fn of(&self, rank: u32) -> (u32, u32) {
        self.seen.get(&rank).copied().unwrap_or((rank / self.local, rank % self.local))
    }

    fn nodes(&self) -> u32 {
        self.of(self.last).0 + 1
    }
}
