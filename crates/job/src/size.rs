//! How large a job is: ranks, nodes, hosts.

use std::collections::BTreeSet;

use evidence::{Case, Communicator};

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
    /// The names of the hosts that were seen.
    pub hosts: BTreeSet<Box<str>>,
}

impl Size {
    /// The size that a log shows.
    pub fn of_case(case: &Case) -> Self {
        let world = case.world();
        let hosts: BTreeSet<Box<str>> =
            case.processes.iter().map(|it| it.host.clone()).filter(|it| !it.is_empty()).collect();
        let ranks = ranks(case, world);
        let nodes = nodes(case, world, &hosts);
        let local = world.and_then(|world| {
            let layouts = world.members.values().filter_map(|it| it.facts.layout.as_ref());
            let most = layouts.max_by_key(|it| it.value.local_ranks)?;
            Some(Known::new(most.value.local_ranks, Source::Line(most.quote.clone())))
        });
        let ranks_per_node = local.or_else(|| {
            let (ranks, nodes) = (ranks.as_ref()?, nodes.as_ref()?);
            Some(Known::new(ranks.value.checked_div(nodes.value)?, nodes.source.clone()))
        });
        Self { ranks, nodes, ranks_per_node, hosts }
    }

    /// Ranks, where their number is known.
    pub fn n_ranks(&self) -> Option<u32> {
        self.ranks.as_ref().map(|it| it.value)
    }

    /// Nodes, where their number is known.
    pub fn n_nodes(&self) -> Option<u32> {
        self.nodes.as_ref().map(|it| it.value)
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

fn nodes(case: &Case, world: Option<&Communicator>, hosts: &BTreeSet<Box<str>>) -> Option<Known<u32>> {
    let counted = world.and_then(|world| world.members.values().find_map(|it| it.facts.layout.as_ref()));
    if let Some(layout) = counted {
        return Some(Known::new(layout.value.n_nodes, Source::Line(layout.quote.clone())));
    }
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
    use super::Size;
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
        assert!(size.nodes.unwrap().source.quote().unwrap().text.contains("nNodes 2"));
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
