//! The ring or tree of one channel, as a log or NCCL's graph XML shows it.

use std::collections::BTreeMap;

use evidence::topology::Graph;
use evidence::{Case, Communicator};
use fabric::{Machine, Transport};

/// Which graph of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The ring.
    Ring,
    /// The tree.
    Tree,
}

impl Shape {
    /// `ring`, `tree`
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
        }
    }
}

/// Which ring or tree to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Ring or tree.
    pub shape: Shape,
    /// The channel's number.
    pub number: u32,
}

/// The ring or tree of a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Ring or tree.
    pub shape: Shape,
    /// Its number.
    pub number: u32,
    /// Machines it passes.
    pub nodes: u32,
    /// Its connections.
    pub connections: Vec<Connection>,
}

/// A connection from one GPU to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connection {
    /// The sender.
    pub from: GpuOfNode,
    /// The receiver.
    pub to: GpuOfNode,
    /// The transport, where the log shows it.
    pub transport: Option<Transport>,
    /// The NIC it leaves by, where the log shows it.
    pub nic: Option<String>,
}

/// A GPU of one of several machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuOfNode {
    /// The machine, from 0.
    pub node: u32,
    /// The local rank.
    pub local_rank: u32,
}

/// The ring or tree of a channel of the largest communicator. The error says what the log lacks.
pub fn of_case(case: &Case, machine: &Machine, selection: Selection) -> Result<Channel, String> {
    let Selection { shape, number } = selection;
    let world = case.world().ok_or("the log names no communicator: rings and trees need NCCL_DEBUG=INFO")?;
    let pairs = match shape {
        Shape::Ring => ring(world, number)?,
        Shape::Tree => tree(world, number)?,
    };
    let positions = Positions::new(world);
    let connections = pairs.into_iter().map(|pair| {
        let transports = || {
            let links = world.links().filter(|(_, link)| (link.from, link.to) == (pair.from, pair.to));
            links.filter_map(|(_, link)| link.transport())
        };
        let nic = transports()
            .find_map(Transport::network)
            .and_then(|(_, device, _)| machine.nics.iter().find(|it| it.index == device))
            .map(|it| it.name.to_string());
        Connection {
            from: positions.of(pair.from),
            to: positions.of(pair.to),
            transport: transports().next().cloned(),
            nic,
        }
    });
    Ok(Channel { shape, number, nodes: positions.nodes(), connections: connections.collect() })
}

/// The same from what NCCL's search found for one machine.
pub fn of_graphs(graphs: &[Graph], selection: Selection) -> Result<Channel, String> {
    let Selection { shape, number } = selection;
    let wanted = |it: &&Graph| match shape {
        Shape::Ring => it.pattern == 4,
        Shape::Tree => (1..=3).contains(&it.pattern),
    };
    let graph = graphs.iter().find(wanted).ok_or_else(|| format!("the file has no {}", shape.name()))?;
    let found = graph.channels.get(number as usize);
    let found =
        found.ok_or_else(|| format!("there is no channel {number}: there are {}", graph.channels.len()))?;
    // A tree is a chain inside a machine, and a ring closes if no NIC is part of it.
    let closes = shape == Shape::Ring && found.net_out.is_none() && found.gpus.len() > 1;
    let next = found.gpus.iter().skip(1).chain(found.gpus.first().filter(|_| closes));
    let gpu = |local_rank: u32| GpuOfNode { node: 0, local_rank };
    let pairs = found.gpus.iter().zip(next);
    let connections =
        pairs.map(|(&from, &to)| Connection { from: gpu(from), to: gpu(to), transport: None, nic: None });
    Ok(Channel { shape, number, nodes: 1, connections: connections.collect() })
}

/// Two ranks, the sender first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    from: u32,
    to: u32,
}

fn ring(world: &Communicator, channel: u32) -> Result<Vec<Pair>, String> {
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
            "NCCL cut off the list of channel {channel}: the ring is too long for a line of its log"
        ));
    }
    let next = ring.order.iter().skip(1).chain(ring.order.first());
    Ok(ring.order.iter().zip(next).map(|(&from, &to)| Pair { from, to }).collect())
}

fn tree(world: &Communicator, channel: u32) -> Result<Vec<Pair>, String> {
    let trees =
        world.members.values().filter_map(|it| it.facts.trees.as_ref()).flat_map(|it| it.value.iter());
    let mut pairs = Vec::new();
    for it in trees.filter(|it| it.channel == channel) {
        pairs.extend(it.up.map(|up| Pair { from: it.rank, to: up }));
        pairs.extend(it.down.iter().flatten().map(|down| Pair { from: *down, to: it.rank }));
    }
    pairs.sort_unstable();
    pairs.dedup();
    if pairs.is_empty() {
        Err(format!("the log has no `Trees` line with channel {channel}"))
    } else {
        Ok(pairs)
    }
}

/// The machine and the GPU of each rank.
struct Positions {
    seen: BTreeMap<u32, GpuOfNode>,
    local: u32,
    last: u32,
}

impl Positions {
    fn new(world: &Communicator) -> Self {
        let last = world.n_ranks.unwrap_or(1).max(1) - 1;
        let local = world.local_ranks().unwrap_or(1).max(1);
        let seen = world.members.iter().filter_map(|(&rank, member)| {
            let layout = member.facts.layout.as_ref()?;
            // In a pod each GPU has the number 0: the local rank distinguishes them.
            Some((rank, GpuOfNode { node: rank / local, local_rank: layout.value.local_rank }))
        });
        Self { seen: seen.collect(), local, last }
    }

    /// Ranks without a line are placed as ranks usually are: node by node.
    fn of(&self, rank: u32) -> GpuOfNode {
        let usual = GpuOfNode { node: rank / self.local, local_rank: rank % self.local };
        self.seen.get(&rank).copied().unwrap_or(usual)
    }

    fn nodes(&self) -> u32 {
        self.of(self.last).node + 1
    }
}
