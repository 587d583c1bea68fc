//! How rings go from node 0 to node 1.

use fabric::machine::Machine;
use nccl::{Communicator, Prediction};

use super::Crossing;

/// Where the rings leave node 0 and enter the next, those that go one way together.
pub(super) fn crossings(prediction: &Prediction, machine: &Machine) -> Vec<Crossing> {
    let communicator = &prediction.communicator;
    if communicator.n_nodes < 2 {
        return Vec::new();
    }
    let name = |nic: Option<usize>| {
        nic.and_then(|it| machine.nics.get(it)).map_or_else(|| "?".to_owned(), |it| it.name.to_string())
    };
    let mut found: Vec<Crossing> = Vec::new();
    for (number, channel) in communicator.connected.channels.iter().enumerate() {
        let ring = &communicator.connected.rings[channel.ring];
        let Some(crossing) = leave(communicator, &ring.next) else { continue };
        let (from, to) = crossing;
        let nic_out = exit(communicator, from, channel.ring);
        let nic_in = entry(communicator, to, channel.ring);
        let gpu = communicator.gpu_of_rank[from];
        let paths = communicator.paths(from);
        let relay = nic_out.and_then(|nic| paths?.relay(gpu, nic));
        let by_rank = relay.and_then(|gpu| {
            let node = communicator.node_of_rank[from];
            let is_it =
                |it: &usize| communicator.node_of_rank[*it] == node && communicator.gpu_of_rank[*it] == gpu;
            (0..communicator.n_ranks).find(is_it).and_then(|it| u32::try_from(it).ok())
        });
        let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(to)) else { continue };
        let one = Crossing {
            channels: vec![number],
            from_rank: from,
            from_nic: name(nic_out),
            to_rank: to,
            to_nic: name(nic_in),
            by_rank,
        };
        let way = |it: &Crossing| Crossing { channels: Vec::new(), ..it.clone() };
        match found.iter_mut().find(|it| way(it) == way(&one)) {
            Some(known) => known.channels.push(number),
            None => found.push(one),
        }
    }
    found.sort_by_key(|it| it.from_rank);
    found
}

/// The rank of node 0 that sends to another node, and the rank that receives.
fn leave(communicator: &Communicator, next: &[u32]) -> Option<(usize, usize)> {
    let node = |rank: usize| communicator.node_of_rank.get(rank).copied();
    let ranks = (0..communicator.n_ranks).filter(|it| node(*it) == Some(0));
    ranks.filter_map(|from| Some((from, *next.get(from)? as usize))).find(|(_, to)| node(*to) != Some(0))
}

/// The NIC by which a ring leaves the node of a rank.
pub(crate) fn exit(communicator: &Communicator, rank: usize, ring: usize) -> Option<usize> {
    inter(communicator, (rank, ring), <[usize]>::last).map(|it| it[1])
}

/// The NIC by which a ring enters the node of a rank.
pub(crate) fn entry(communicator: &Communicator, rank: usize, ring: usize) -> Option<usize> {
    inter(communicator, (rank, ring), <[usize]>::first).map(|it| it[0])
}

/// The NICs of a ring of a node, in and out. `end` is the GPU of the rank in it. Nodes of odd number may exchange each two of their rings.
fn inter(
    communicator: &Communicator,
    (rank, ring): (usize, usize),
    end: impl Fn(&[usize]) -> Option<&usize>,
) -> Option<[usize; 2]> {
    let graph = &communicator.graphs(rank)?.ring;
    let gpu = communicator.gpu_of_rank.get(rank)?;
    let fits = |ring: usize| graph.channels.get(ring).filter(|it| end(&it.intra) == Some(gpu));
    fits(ring).or_else(|| fits(ring ^ 1))?.inter
}
