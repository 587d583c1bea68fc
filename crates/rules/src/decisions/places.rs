//! Where each rank is, for nodes that are not alike, with different numbers of ranks or ranks in another order: as the lines of the
//! ranks themselves have it.

use std::collections::BTreeSet;

use evidence::decided::{Decided, host, system_lines};
use evidence::topology::{self, Kind, Topology};
use fabric::{Layout, Machine, Placement, RankPlace};

use super::{LoggedCommunicator, Logs};

/// The places of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Places {
    /// The machines that differ.
    pub(super) machines: Vec<Machine>,
    pub(super) placement: Placement,
    /// The names of the nodes.
    pub(super) hosts: Vec<String>,
}

/// A node and the ranks on it.
struct Node<'a> {
    decided: &'a Decided,
    /// The machine, by its position in the list of those that differ.
    machine: usize,
    /// Ranks and the positions of their GPUs.
    ranks: Vec<(u32, usize)>,
}

impl Places {
    /// By the systems that the ranks printed; `None` if the logs do not place all ranks.
    pub(super) fn printed(
        logs: &Logs<'_>,
        communicator: &LoggedCommunicator,
        resolve: impl Fn(&Topology) -> Machine,
    ) -> Option<Self> {
        let mut trees: Vec<&str> = Vec::new();
        let mut machines: Vec<Machine> = Vec::new();
        let mut nodes: Vec<Node<'_>> = Vec::new();
        for member in communicator.members.iter().filter(|it| it.decided.system.is_some()) {
            let (one, rank) = (&member.decided, member.decided.rank?);
            if nodes.iter().any(|it| it.ranks.iter().any(|it| it.0 == rank)) {
                continue;
            }
            let machine = if let Some(known) = trees.iter().position(|it| *it == one.tree) {
                known
            } else {
                let text = system_lines(logs.text(&member.file)?, one);
                let topology = topology::read(&text).ok().filter(|it| it.kind == Kind::Log)?;
                trees.push(&one.tree);
                machines.push(resolve(&topology));
                machines.len() - 1
            };
            let position = position(&machines[machine], one)?;
            // Several nodes may have the same buses and one name, as containers of one host have.
            let same = |it: &&mut Node<'_>| {
                it.machine == machine
                    && is_same_host(it.decided, one)
                    && it.ranks.iter().all(|it| it.1 != position)
            };
            match nodes.iter_mut().find(same) {
                Some(node) => node.ranks.push((rank, position)),
                None => nodes.push(Node { decided: one, machine, ranks: vec![(rank, position)] }),
            }
        }
        // Of a node whose system one rank printed, the others are known by their host and GPU.
        for one in communicator.members.iter().map(|it| &it.decided).filter(|it| it.system.is_none()) {
            let rank = one.rank?;
            let free = |it: &Node<'_>| {
                let position = position(&machines[it.machine], one)?;
                it.ranks.iter().all(|it| it.1 != position).then_some(position)
            };
            let fits =
                |it: &&mut Node<'_>| host(&it.decided.thread) == host(&one.thread) && free(it).is_some();
            let node = nodes.iter_mut().find(fits)?;
            let position = free(node)?;
            node.ranks.push((rank, position));
        }
        Self::new(communicator, machines, &nodes)
    }

    /// By the hosts of the ranks and the buses of their GPUs on machines of one kind.
    pub(super) fn on(machine: &Machine, communicator: &LoggedCommunicator) -> Option<Self> {
        let mut nodes: Vec<Node<'_>> = Vec::new();
        for one in communicator.members.iter().map(|it| &it.decided) {
            let place = (one.rank?, position(machine, one)?);
            match nodes.iter_mut().find(|it| is_same_host(it.decided, one)) {
                Some(node) => node.ranks.push(place),
                None => nodes.push(Node { decided: one, machine: 0, ranks: vec![place] }),
            }
        }
        Self::new(communicator, vec![machine.clone()], &nodes)
    }

    /// Those of a layout on GPUs that are not numbered from 0 without a gap, as those of a group of ranks; `None` if they are.
    pub(super) fn numbered(machine: &Machine, layout: &Layout) -> Option<Self> {
        let here = u32::try_from(machine.gpus.len()).ok()?;
        let gap = machine.gpus.iter().any(|it| it.index >= here);
        if !gap || layout.pods_per_node != 1 || layout.gpus_per_pod != here {
            return None;
        }
        let placement = Placement::group(layout, 0..layout.ranks());
        Some(Self { machines: vec![machine.clone()], placement, hosts: Vec::new() })
    }

    fn new(communicator: &LoggedCommunicator, machines: Vec<Machine>, nodes: &[Node<'_>]) -> Option<Self> {
        let counted = communicator.first(|it| it.nodes).and_then(|it| usize::try_from(it).ok());
        let full = |it: &Node<'_>| {
            it.decided
                .local_ranks
                .and_then(|it| usize::try_from(it).ok())
                .is_none_or(|all| all == it.ranks.len())
        };
        if counted.is_some_and(|it| it != nodes.len()) || !nodes.iter().all(full) {
            return None;
        }
        let ranks = usize::try_from(communicator.ranks?).ok()?;
        let mut places: Vec<Option<RankPlace>> = vec![None; ranks];
        for (number, node) in (0..).zip(nodes) {
            let mut order: Vec<usize> = (0..machines[node.machine].gpus.len()).collect();
            order.sort_by_key(|it| machines[node.machine].gpus[*it].index);
            for &(rank, position) in &node.ranks {
                let gpu = order.iter().position(|it| *it == position)?;
                let place = RankPlace { node: number, gpu: u32::try_from(gpu).ok()? };
                *places.get_mut(usize::try_from(rank).ok()?)? = Some(place);
            }
        }
        let ranks: Vec<RankPlace> = places.into_iter().collect::<Option<_>>()?;
        let several: BTreeSet<&RankPlace> = ranks.iter().collect();
        if several.len() != ranks.len() {
            return None;
        }
        Some(Self {
            machines,
            placement: Placement { nodes: nodes.iter().map(|it| it.machine).collect(), ranks },
            hosts: nodes.iter().map(|it| name(it.decided)).collect(),
        })
    }
}

/// The name of a rank's node: `NCCL_HOSTID`, or its host.
fn name(one: &Decided) -> String {
    one.host_id.clone().unwrap_or_else(|| String::from_utf8_lossy(host(&one.thread)).into_owned())
}

fn is_same_host(one: &Decided, other: &Decided) -> bool {
    host(&one.thread) == host(&other.thread) && one.host_id == other.host_id
}

/// The position of a rank's GPU in a machine: by its bus, otherwise by NVML's number.
fn position(machine: &Machine, one: &Decided) -> Option<usize> {
    let by_bus = |bus: u64| machine.gpus.iter().position(|it| it.bus.is_some_and(|it| it.0 == bus));
    let by_number = |number: u32| machine.gpus.iter().position(|it| it.index == number);
    one.bus.and_then(by_bus).or_else(|| one.device.and_then(by_number))
}

#[cfg(test)]
mod tests {
    use fabric::{Placement, RankPlace, catalogue};
    use job::Job;

    use super::{Logs, Places};

    /// Where the ranks are of a log with these hosts and GPUs, in the order of ranks.
    fn places(ranks: &[(&str, u32)], nodes: u32) -> Option<Placement> {
        let machine = catalogue::machine("p4d.24xlarge").unwrap();
        let mut log = String::new();
        for (rank, (host, device)) in ranks.iter().enumerate() {
            let bus = machine.gpus.iter().find(|it| it.index == *device).unwrap().bus.unwrap().0;
            let (count, before) = (ranks.len(), format!("{host}:{rank}:9 [0] NCCL INFO"));
            log += &format!(
                "{before} ncclCommInitRank comm 0x1 rank {rank} nranks {count} cudaDev 0 nvmlDev {device} busId {bus:x} commId 0x5 - Init START\n\
                 {before} Trees [0] -1/-1/-1->{rank}->-1\n\
                 {before} comm 0x1 rank {rank} nRanks {count} nNodes {nodes} MNNVL 0\n"
            );
        }
        let texts = [("x.log".to_owned(), log.into_bytes())];
        let job = Job::default();
        let logs = Logs::new(&texts, &job);
        Places::on(&machine, &logs.communicators[0]).map(|it| it.placement)
    }

    #[test]
    fn ranks_are_on_their_hosts() {
        let place = |node, gpu| RankPlace { node, gpu };
        let other = places(&[("a", 0), ("b", 0), ("a", 1), ("b", 1)], 2).unwrap();
        assert_eq!(other.ranks, [place(0, 0), place(1, 0), place(0, 1), place(1, 1)]);
        let uneven = places(&[("a", 3), ("a", 1), ("b", 7)], 2).unwrap();
        assert_eq!(uneven.ranks, [place(0, 3), place(0, 1), place(1, 7)]);
        assert_eq!(uneven.nodes, [0, 0]);
        // Other nodes than NCCL counts, and two ranks on one GPU.
        assert_eq!(places(&[("a", 0), ("b", 0)], 1), None);
        assert_eq!(places(&[("a", 0), ("a", 0)], 1), None);
    }
}
