//! How large a job is: ranks, nodes, hosts.

use std::collections::{BTreeMap, BTreeSet};

use evidence::plain::NcclTests;
use evidence::{Case, Communicator};

use crate::Job;
use crate::known::{Known, Source};

/// The size of a job, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Size {
    /// Ranks of the largest communicator.
    pub ranks: Option<Known<u32>>,
    /// Nodes, as NCCL counts them: pods with different host names are different nodes.
    pub nodes: Option<Known<u32>>,
    /// Ranks on one node.
    pub ranks_per_node: Option<Known<u32>>,
    /// The layout of the largest communicator, as NCCL itself reports it.
    pub reported: Option<Known<NodeLayout>>,
    /// The names of the hosts that were seen.
    pub hosts: BTreeSet<Box<str>>,
}

/// How many ranks run on how many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLayout {
    /// On all nodes together.
    pub ranks: u32,
    /// As NCCL counts them.
    pub nodes: u32,
    /// The most on one node.
    pub ranks_per_node: u32,
}

impl NodeLayout {
    /// What NCCL reports about a communicator. `None`: releases before 2.20 do not.
    pub fn of_communicator(communicator: &Communicator) -> Option<Self> {
        Some(Self {
            ranks: communicator.n_ranks?,
            nodes: communicator.n_nodes()?,
            ranks_per_node: communicator.local_ranks()?,
        })
    }

    /// What nccl-tests lists of its devices.
    pub fn of_test(test: &NcclTests) -> Option<Self> {
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        for device in &test.devices {
            *hosts.entry(&device.host).or_default() += 1;
        }
        Some(Self {
            ranks: u32::try_from(test.devices.len()).ok()?,
            nodes: u32::try_from(hosts.len()).ok()?,
            ranks_per_node: hosts.values().copied().max()?,
        })
    }

    /// Whether every node has the same number of ranks.
    pub fn is_even(&self) -> bool {
        self.nodes.checked_mul(self.ranks_per_node) == Some(self.ranks)
    }
}

impl Job {
    /// Whether the job may span machines: inside one machine the network carries nothing.
    pub fn may_span_machines(&self) -> bool {
        self.size.spans_nodes().unwrap_or_else(|| {
            // Old releases do not count nodes; ranks that fit into one machine, seen on one host, need no network.
            let fits = self.model().zip(self.size.n_ranks()).is_some_and(|(it, ranks)| ranks <= it.gpus);
            !fits
        })
    }
}

impl Job {
    /// Whether NCCL counts several nodes on one host because `NCCL_HOSTID` tells ranks apart.
    pub fn has_host_ids(&self) -> bool {
        let size = &self.size;
        let all_seen = |ranks: u32| self.outcome.setup.seen >= ranks as usize;
        let counted = size.reported_layout().is_some_and(|it| it.nodes > 1 && all_seen(it.ranks));
        counted && size.hosts.len() == 1 && self.settings.named("NCCL_HOSTID").next().is_some()
    }
}

impl Size {
    /// The size that a log shows.
    pub fn of_case(case: &Case) -> Self {
        let world = case.world();
        let hosts: BTreeSet<Box<str>> =
            case.processes.iter().map(|it| it.host.clone()).filter(|it| !it.is_empty()).collect();
        let ranks = ranks(case, world);
        let reported = world.and_then(|world| {
            let line = world.members.values().find_map(|it| it.facts.layout.as_ref())?;
            Some(Known::new(NodeLayout::of_communicator(world)?, Source::Line(line.quote.clone())))
        });
        let counted = reported.clone().map(|it| it.map(|it| it.nodes));
        let nodes = counted.or_else(|| nodes(case, world, &hosts));
        let local = world.and_then(|world| {
            let layouts = world.members.values().filter_map(|it| it.facts.layout.as_ref());
            let most = layouts.max_by_key(|it| it.value.local_ranks)?;
            Some(Known::new(most.value.local_ranks, Source::Line(most.quote.clone())))
        });
        let ranks_per_node = local.or_else(|| {
            let (ranks, nodes) = (ranks.as_ref()?, nodes.as_ref()?);
            Some(Known::new(ranks.value.checked_div(nodes.value)?, nodes.source.clone()))
        });
        Self { ranks, nodes, ranks_per_node, reported, hosts }
    }

    /// Ranks, where their number is known.
    pub fn n_ranks(&self) -> Option<u32> {
        self.ranks.as_ref().map(|it| it.value)
    }

    /// Nodes, where their number is known.
    pub fn n_nodes(&self) -> Option<u32> {
        self.nodes.as_ref().map(|it| it.value)
    }

    /// The layout that NCCL reports.
    pub fn reported_layout(&self) -> Option<NodeLayout> {
        self.reported.as_ref().map(|it| it.value)
    }

    /// Whether several hosts wrote lines, or NCCL counts several nodes. Hosts with one `NCCL_HOSTID` are one node.
    pub fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1 || self.spans_nodes() == Some(true)
    }

    /// Whether the job is known to run on several nodes, or on one.
    pub fn spans_nodes(&self) -> Option<bool> {
        match &self.nodes {
            Some(nodes) => Some(nodes.value > 1),
            None => (self.hosts.len() > 1).then_some(true),
        }
    }
}

fn ranks(case: &Case, world: Option<&Communicator>) -> Option<Known<u32>> {
    let logged = world.and_then(|world| {
        let quote = world.members.values().find_map(|it| {
            it.facts.start.as_ref().or(it.facts.complete.as_ref()).or(it
                .facts
                .layout
                .as_ref()
                .map(|it| &it.quote))
        });
        Some(Known::new(world.n_ranks?, quote.map_or(Source::Default, |it| Source::Line(it.clone()))))
    });
    logged.or_else(|| {
        let test = case.tests.iter().filter(|it| !it.devices.is_empty()).max_by_key(|it| it.devices.len())?;
        Some(Known::new(u32::try_from(test.devices.len()).ok()?, Source::Line(test.quote.clone())))
    })
}

/// Nodes by the hosts that were seen.
fn nodes(case: &Case, world: Option<&Communicator>, hosts: &BTreeSet<Box<str>>) -> Option<Known<u32>> {
    // Hosts count only where no rank is missing: the others may be on more of them.
    let (n, source) = if hosts.is_empty() {
        let tested: BTreeSet<&str> =
            case.tests.iter().flat_map(|it| &it.devices).map(|it| &*it.host).collect();
        (tested.len(), case.tests.first().map_or(Source::Default, |it| Source::Line(it.quote.clone())))
    } else if world.is_some_and(|it| it.absent().is_empty()) {
        (hosts.len(), Source::Default)
    } else {
        return None;
    };
    u32::try_from(n).ok().filter(|it| *it > 0).map(|it| Known::new(it, source))
}

#[cfg(test)]
mod tests {
    use super::{NodeLayout, Size};
    use crate::Job;
    use crate::testing::case;

    #[test]
    fn nccl_counts_nodes() {
        let log = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
                   a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n";
        let size = Size::of_case(&case(log));
        let value = |it: &Option<crate::Known<u32>>| it.as_ref().map(|it| it.value);
        assert_eq!(
            (value(&size.ranks), value(&size.nodes), value(&size.ranks_per_node)),
            (Some(4), Some(2), Some(2))
        );
        assert_eq!(size.spans_nodes(), Some(true));
        let layout = NodeLayout { ranks: 4, nodes: 2, ranks_per_node: 2 };
        assert_eq!(size.reported_layout(), Some(layout));
        assert!(layout.is_even() && !NodeLayout { ranks: 3, ..layout }.is_even());
        assert!(size.nodes.unwrap().source.quote().unwrap().text.contains("nNodes 2"));
    }

    #[test]
    fn devices_of_a_test_count_by_host() {
        let device = |rank: u32, host: &str| {
            format!("#  Rank  {rank} Group  0 Pid  1 on {host} device  0 [0x10] NVIDIA H100\n")
        };
        let log = format!("# Using devices\n{}{}{}", device(0, "a"), device(1, "a"), device(2, "b"));
        let layout = NodeLayout::of_test(&case(&log).tests[0]).unwrap();
        assert_eq!(layout, NodeLayout { ranks: 3, nodes: 2, ranks_per_node: 2 });
    }

    #[test]
    fn ranks_that_fit_into_one_machine_need_no_network() {
        let job = |ranks: u32| {
            let log = format!(
                "INSTANCE_TYPE=p4d.24xlarge\na:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks {ranks} cudaDev 0 busId 1000 - Init COMPLETE\n"
            );
            Job::of_case(&case(&log)).may_span_machines()
        };
        assert_eq!([8, 16].map(job), [false, true]);
        assert!(Job::default().may_span_machines());
    }

    #[test]
    fn hosts_of_one_node_are_still_several() {
        let line = |host: &str, rank: u32| {
            format!(
                "{host}:1:2 [0] NCCL INFO comm 0x1 rank {rank} nRanks 2 nNodes 1 localRanks 2 localRank {rank} MNNVL 0\n"
            )
        };
        let size = Size::of_case(&case(&(line("a", 0) + &line("b", 1))));
        assert_eq!((size.spans_nodes(), size.has_several_hosts()), (Some(false), true));
    }

    #[test]
    fn hosts_count_where_no_rank_is_missing() {
        let init = |host: &str, rank: u32, n: u32| {
            format!(
                "{host}:1:2 [0] NCCL INFO comm 0x1 rank {rank} nranks {n} cudaDev 0 busId 1000 - Init COMPLETE\n"
            )
        };
        let whole = Size::of_case(&case(&(init("a", 0, 2) + &init("b", 1, 2))));
        assert_eq!(whole.nodes.map(|it| it.value), Some(2));
        let part = Size::of_case(&case(&init("a", 0, 4)));
        assert_eq!((part.nodes, part.hosts.len()), (None, 1));
        assert_eq!(Size::of_case(&case("")), Size::default());
    }
}
