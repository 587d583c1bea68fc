//! What holds in every job, whatever its release prints, and where the input contradicts it.
//!
//! A rank of a communicator has one process, a communicator one size, a GPU one rank in a node. P2P and shared memory stay
//! inside a node, a connection has one network, host names agree with NCCL's count of nodes, and no node uses more GPUs
//! than it has. Settings and releases that must be equal are compared by the rules about them.

use std::collections::{BTreeMap, BTreeSet};

use evidence::{Case, Communicator, Member, MemberLink, Process, Quote};
use fabric::Transport;

use crate::{Job, Settings};

/// A broken invariant and the lines that contradict each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// What is broken.
    pub invariant: Invariant,
    /// The lines, one for each side.
    pub quotes: Vec<Quote>,
}

/// What is broken, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invariant {
    /// Processes name the same rank of one communicator.
    RankOfTwoProcesses {
        /// The communicator.
        communicator: Box<str>,
        /// The rank.
        rank: u32,
        /// The processes, by position in [`Case::processes`].
        processes: Vec<usize>,
    },
    /// Ranks give a communicator different sizes.
    SizesDiffer {
        /// The communicator.
        communicator: Box<str>,
        /// The sizes.
        sizes: Vec<u32>,
    },
    /// A rank number is not below the size.
    RankBeyondSize {
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// A communicator is empty, or larger than any machine there is.
    SizeImplausible {
        /// The size.
        size: u32,
    },
    /// Ranks of one communicator report different numbers of nodes.
    NodeCountsDiffer {
        /// The communicator.
        communicator: Box<str>,
        /// The numbers.
        nodes: Vec<u32>,
    },
    /// A line reports more nodes or local ranks than ranks, or a local rank that is not below their number.
    LayoutImpossible {
        /// The rank that reports it.
        rank: u32,
    },
    /// Two ranks of one communicator have the same GPU, and NCCL refused how it was called.
    GpuOfTwoRanks {
        /// The host.
        host: Box<str>,
        /// The GPU's PCI address.
        bus_id: u64,
        /// The ranks.
        ranks: [u32; 2],
    },
    /// P2P or shared memory joins ranks on different hosts.
    InsideAcrossHosts {
        /// Sender and receiver.
        ranks: [u32; 2],
        /// Their hosts.
        hosts: [Box<str>; 2],
        /// What is printed after `via`.
        via: Box<str>,
    },
    /// The network joins ranks of one node.
    NetworkInsideNode {
        /// Sender and receiver of the first connection.
        ranks: [u32; 2],
        /// What is printed after `via`.
        via: Box<str>,
        /// How many pairs of ranks.
        pairs: usize,
    },
    /// One connection has two networks.
    TwoNetworks {
        /// Sender and receiver.
        ranks: [u32; 2],
        /// The networks.
        networks: [Box<str>; 2],
    },
    /// Lines come from more hosts than NCCL counts nodes.
    MoreHostsThanNodes {
        /// The communicator.
        communicator: Box<str>,
        /// NCCL's count.
        nodes: u32,
        /// The hosts.
        hosts: Vec<Box<str>>,
    },
    /// NCCL counts more nodes than there are host names, and processes of one name have different addresses.
    MoreNodesThanHosts {
        /// NCCL's count.
        nodes: u32,
        /// How many host names there are.
        hosts: usize,
        /// The name that several machines have.
        host: Box<str>,
    },
    /// A node has more ranks than a source shows GPUs.
    MoreRanksThanGpus {
        /// Ranks on one node.
        ranks: u32,
        /// GPUs.
        gpus: usize,
        /// The source: `nvidia-smi topo -m`, an instance type.
        source: Box<str>,
    },
    /// A process uses a CUDA device that `CUDA_VISIBLE_DEVICES` does not list.
    DeviceNotVisible {
        /// The rank.
        rank: u32,
        /// Its CUDA device.
        device: u32,
        /// The variable's value.
        visible: Box<str>,
    },
}

/// More ranks than this are a damaged number: the largest systems known in 2026 have about 200,000 GPUs.
const LARGEST: u32 = 1 << 20;

/// The result code with which NCCL refuses how it was called (`ncclInvalidUsage`).
const INVALID_USAGE: u32 = 5;

/// Every broken invariant, at most one of a kind in each communicator.
pub fn violations(case: &Case, job: &Job) -> Vec<Violation> {
    let mut all = Vec::new();
    all.extend(sizes(case));
    let own_host_ids = sets(&job.settings, "NCCL_HOSTID");
    let shares_gpus = sets(&job.settings, "NCCL_MULTI_RANK_GPU_ENABLE");
    for communicator in &case.communicators {
        let it = View { case, communicator, own_host_ids };
        all.extend(implausible(communicator));
        all.extend(beyond_size(communicator));
        all.extend(it.two_processes());
        all.extend(it.node_counts());
        all.extend(impossible(communicator));
        if !shares_gpus {
            all.extend(it.gpu_twice());
        }
        all.extend(it.more_hosts().or_else(|| it.across_hosts()));
        all.extend(it.network_inside());
        all.extend(two_networks(communicator));
    }
    all.extend(case.world().and_then(|world| more_nodes(case, world)));
    all.extend(devices(case, job));
    all
}

fn sets(settings: &Settings, name: &str) -> bool {
    settings.named(name).next().is_some()
}

/// Whether the ranks share a name for it, so that lines of different processes belong together.
fn has_hash(communicator: &Communicator) -> bool {
    communicator.name.starts_with("0x")
}

fn implausible(communicator: &Communicator) -> Option<Violation> {
    let size = communicator.n_ranks.filter(|it| *it == 0 || *it > LARGEST)?;
    let quote = communicator.members.values().find_map(Member::named_by)?;
    Some(Violation { invariant: Invariant::SizeImplausible { size }, quotes: vec![quote.clone()] })
}

fn beyond_size(communicator: &Communicator) -> Option<Violation> {
    let size = communicator.n_ranks.filter(|it| *it > 0)?;
    let (rank, member) = communicator.members.range(size..).find(|it| it.1.named_by().is_some())?;
    let quotes = member.named_by().into_iter().cloned().collect();
    Some(Violation { invariant: Invariant::RankBeyondSize { rank: *rank, size }, quotes })
}

fn sizes(case: &Case) -> Vec<Violation> {
    let mut sizes: BTreeMap<&str, BTreeMap<u32, &Quote>> = BTreeMap::new();
    for communicator in case.communicators.iter().filter(|it| has_hash(it)) {
        let quote = communicator.members.values().find_map(Member::named_by);
        if let (Some(n), Some(quote)) = (communicator.n_ranks, quote) {
            sizes.entry(&communicator.name).or_default().insert(n, quote);
        }
        // The line with the nodes says it again.
        for layout in communicator.members.values().filter_map(|it| it.facts.layout.as_ref()) {
            sizes.entry(&communicator.name).or_default().entry(layout.value.n_ranks).or_insert(&layout.quote);
        }
    }
    let differ = sizes.into_iter().filter(|it| it.1.len() > 1);
    differ
        .map(|(name, sizes)| Violation {
            invariant: Invariant::SizesDiffer {
                communicator: name.into(),
                sizes: sizes.keys().copied().collect(),
            },
            quotes: sizes.into_values().cloned().collect(),
        })
        .collect()
}

fn impossible(communicator: &Communicator) -> Option<Violation> {
    let layouts =
        communicator.members.iter().filter_map(|(rank, it)| Some((rank, it.facts.layout.as_ref()?)));
    let (rank, seen) = layouts.into_iter().find(|(_, it)| {
        let it = &it.value;
        it.n_nodes > it.n_ranks || it.local_ranks > it.n_ranks || it.local_rank >= it.local_ranks
    })?;
    Some(Violation {
        invariant: Invariant::LayoutImpossible { rank: *rank },
        quotes: vec![seen.quote.clone()],
    })
}

fn two_networks(communicator: &Communicator) -> Option<Violation> {
    let mut seen: BTreeMap<(u32, u32, bool), (&str, &Quote)> = BTreeMap::new();
    for (rank, link) in communicator.links() {
        let Some((network, ..)) = link.transport().and_then(Transport::network) else { continue };
        let key = (link.from, link.to, rank == link.from);
        let (known, quote) = *seen.entry(key).or_insert((network, &link.quote));
        if known != network {
            let invariant = Invariant::TwoNetworks {
                ranks: [link.from, link.to],
                networks: [known.into(), network.into()],
            };
            return Some(Violation { invariant, quotes: vec![quote.clone(), link.quote.clone()] });
        }
    }
    None
}

/// One communicator, with the hosts of its ranks.
struct View<'a> {
    case: &'a Case,
    communicator: &'a Communicator,
    /// Whether `NCCL_HOSTID` is known to replace host names.
    own_host_ids: bool,
}

impl<'a> View<'a> {
    fn process(&self, member: &Member) -> Option<&'a Process> {
        self.case.processes.get(member.process).filter(|it| !it.host.is_empty())
    }

    fn host(&self, member: &Member) -> Option<&'a str> {
        self.process(member).map(|it| &*it.host)
    }

    fn host_of(&self, rank: u32) -> Option<&'a str> {
        self.communicator.members.get(&rank).filter(|it| it.claims.is_empty()).and_then(|it| self.host(it))
    }

    /// The hosts, each with a line of it.
    fn hosts(&self) -> BTreeMap<&'a str, &'a Quote> {
        let mut hosts = BTreeMap::new();
        for member in self.communicator.members.values().filter(|it| !it.guessed) {
            if let (Some(host), Some(quote)) = (self.host(member), member.named_by()) {
                hosts.entry(host).or_insert(quote);
            }
        }
        hosts
    }

    fn spans_hosts_by_nvlink(&self) -> bool {
        let mut layouts = self.communicator.members.values().filter_map(|it| it.facts.layout.as_ref());
        layouts.any(|it| it.value.mnnvl)
    }

    fn two_processes(&self) -> Option<Violation> {
        let named = |at: usize| self.case.processes.get(at).is_some_and(|it| !it.host.is_empty());
        let claimed = |it: &&Member| named(it.process) && it.claims.iter().any(|it| named(it.process));
        let mut members = self.communicator.members.iter().filter(|_| has_hash(self.communicator));
        let (rank, member) = members.find(|it| claimed(&it.1))?;
        let claims = || member.claims.iter().filter(|it| named(it.process));
        Some(Violation {
            invariant: Invariant::RankOfTwoProcesses {
                communicator: self.communicator.name.clone(),
                rank: *rank,
                processes: [member.process].into_iter().chain(claims().map(|it| it.process)).collect(),
            },
            quotes: member.named_by().into_iter().chain(claims().map(|it| &it.quote)).cloned().collect(),
        })
    }

    fn node_counts(&self) -> Option<Violation> {
        let mut counts: BTreeMap<u32, &Quote> = BTreeMap::new();
        for seen in self.communicator.members.values().filter_map(|it| it.facts.layout.as_ref()) {
            counts.entry(seen.value.n_nodes).or_insert(&seen.quote);
        }
        (counts.len() > 1 && has_hash(self.communicator)).then(|| Violation {
            invariant: Invariant::NodeCountsDiffer {
                communicator: self.communicator.name.clone(),
                nodes: counts.keys().copied().collect(),
            },
            quotes: counts.into_values().cloned().collect(),
        })
    }

    /// NCCL compares GPUs by host and PCI address before it counts nodes, and ends with a wrong use. Where it got further,
    /// the hosts of these ranks are different to NCCL.
    fn gpu_twice(&self) -> Option<Violation> {
        let members = &self.communicator.members;
        if members.values().any(|it| it.is_complete() || it.facts.layout.is_some()) {
            return None;
        }
        let refused = |it: &Member| {
            self.process(it).is_some_and(|it| it.facts.propagated.iter().any(|it| it.value == INVALID_USAGE))
        };
        let mut seen: BTreeMap<(&str, u64), (u32, &Member)> = BTreeMap::new();
        for (rank, member) in members {
            let bus_id = member.line().and_then(|it| it.bus_id).filter(|it| *it != 0);
            let Some((host, bus_id)) = self.host(member).zip(bus_id) else { continue };
            let (first, other) = *seen.entry((host, bus_id)).or_insert((*rank, member));
            if first != *rank && (refused(member) || refused(other)) {
                return Some(Violation {
                    invariant: Invariant::GpuOfTwoRanks { host: host.into(), bus_id, ranks: [first, *rank] },
                    quotes: [other.named_by(), member.named_by()].into_iter().flatten().cloned().collect(),
                });
            }
        }
        None
    }

    fn more_hosts(&self) -> Option<Violation> {
        let layout = self.communicator.members.values().find_map(|it| it.facts.layout.as_ref())?;
        let hosts = self.hosts();
        let many = hosts.len() > layout.value.n_nodes as usize;
        (many && has_hash(self.communicator) && !self.own_host_ids && !self.spans_hosts_by_nvlink()).then(
            || Violation {
                invariant: Invariant::MoreHostsThanNodes {
                    communicator: self.communicator.name.clone(),
                    nodes: layout.value.n_nodes,
                    hosts: hosts.keys().map(|it| (*it).into()).collect(),
                },
                quotes: [&layout.quote].into_iter().chain(hosts.into_values().take(2)).cloned().collect(),
            },
        )
    }

    fn across_hosts(&self) -> Option<Violation> {
        if self.own_host_ids || !has_hash(self.communicator) || self.spans_hosts_by_nvlink() {
            return None;
        }
        self.links().find_map(|MemberLink { link, .. }| {
            if !matches!(link.transport()?, Transport::P2p { .. } | Transport::Shm) {
                return None;
            }
            let (from, to) = (self.host_of(link.from)?, self.host_of(link.to)?);
            let other = self.communicator.members.get(&link.to)?.named_by()?;
            (from != to).then(|| Violation {
                invariant: Invariant::InsideAcrossHosts {
                    ranks: [link.from, link.to],
                    hosts: [from.into(), to.into()],
                    via: (*link.via).into(),
                },
                quotes: vec![link.quote.clone(), other.clone()],
            })
        })
    }

    fn network_inside(&self) -> Option<Violation> {
        let layout = self.communicator.members.values().find_map(|it| it.facts.layout.as_ref())?;
        // Host names tell nodes apart only where there are as many as nodes.
        let all =
            self.communicator.absent().is_empty() && self.hosts().len() == layout.value.n_nodes as usize;
        let one = layout.value.n_nodes == 1;
        let together = |from: u32, to: u32| {
            from != to
                && (one || (all && self.host_of(from).is_some() && self.host_of(from) == self.host_of(to)))
        };
        let mut pairs = BTreeSet::new();
        let mut first = None;
        for MemberLink { link, .. } in self.links() {
            let network = matches!(link.transport(), Some(Transport::Net { .. }));
            if network && together(link.from, link.to) {
                pairs.insert((link.from.min(link.to), link.from.max(link.to)));
                first = first.or(Some(link));
            }
        }
        let link = first?;
        Some(Violation {
            invariant: Invariant::NetworkInsideNode {
                ranks: [link.from, link.to],
                via: (*link.via).into(),
                pairs: pairs.len(),
            },
            quotes: vec![link.quote.clone(), layout.quote.clone()],
        })
    }

    /// The connections that surely belong to this communicator.
    fn links(&self) -> impl Iterator<Item = MemberLink<'a>> {
        let communicator = self.communicator;
        communicator.members.iter().filter(|it| !it.1.guessed).flat_map(move |(&rank, member)| {
            member.facts.links.iter().map(move |link| MemberLink { communicator, rank, member, link })
        })
    }
}

/// `NCCL_HOSTID` also gives more nodes than names, on one machine with one address.
fn more_nodes(case: &Case, world: &Communicator) -> Option<Violation> {
    let layout = world.members.values().find_map(|it| it.facts.layout.as_ref())?;
    let processes = || world.members.values().filter_map(|it| case.processes.get(it.process));
    let hosts: BTreeSet<&str> = processes().map(|it| &*it.host).collect();
    if hosts.contains("") || !world.absent().is_empty() || hosts.len() >= layout.value.n_nodes as usize {
        return None;
    }
    // For each host, the addresses of one and the same interface.
    let mut addresses: BTreeMap<(&str, &str), BTreeMap<&str, &Quote>> = BTreeMap::new();
    for process in processes() {
        for seen in &process.facts.bootstrap {
            if let Some(it) = seen.value.first() {
                addresses
                    .entry((&process.host, &it.name))
                    .or_default()
                    .entry(&it.address)
                    .or_insert(&seen.quote);
            }
        }
    }
    let ((host, _), found) = addresses.into_iter().find(|it| it.1.len() > 1)?;
    Some(Violation {
        invariant: Invariant::MoreNodesThanHosts {
            nodes: layout.value.n_nodes,
            hosts: hosts.len(),
            host: host.into(),
        },
        quotes: [&layout.quote].into_iter().chain(found.into_values().take(2)).cloned().collect(),
    })
}

fn devices(case: &Case, job: &Job) -> Vec<Violation> {
    let Some(world) = case.world() else { return Vec::new() };
    let mut all = Vec::new();
    let layouts = world.members.values().filter_map(|it| it.facts.layout.as_ref());
    let most = layouts.max_by_key(|it| it.value.local_ranks);
    if let Some(most) = most.filter(|_| !sets(&job.settings, "NCCL_MULTI_RANK_GPU_ENABLE")) {
        let ranks = most.value.local_ranks;
        // Matrices of different containers show different numbers: the largest is the machine's.
        let matrix = case.matrices.iter().max_by_key(|it| it.n_gpus());
        let instance = job.instance().zip(job.machine_name.as_ref().and_then(|it| it.quote()));
        let (gpus, source, quote) = match (matrix, instance) {
            (Some(matrix), _) => (matrix.n_gpus(), "nvidia-smi topo -m", &matrix.quote),
            (None, Some((instance, quote))) => (instance.gpus as usize, &*instance.name, quote),
            (None, None) => (usize::MAX, "", &most.quote),
        };
        // NVLink between hosts makes several machines one node.
        if gpus > 0 && (ranks as usize) > gpus && !most.value.mnnvl {
            let invariant = Invariant::MoreRanksThanGpus { ranks, gpus, source: source.into() };
            all.push(Violation { invariant, quotes: vec![most.quote.clone(), quote.clone()] });
        }
    }
    let mut visible = job.settings.named("CUDA_VISIBLE_DEVICES").filter(|it| it.value.is_some());
    if let Some(variable) = visible.next().filter(|first| visible.all(|it| it.value == first.value)) {
        let list: Vec<&str> = variable.text().split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
        let beyond = world.members.iter().find_map(|(rank, it)| {
            let device = it.line()?.cuda_device.filter(|it| *it as usize >= list.len())?;
            Some((*rank, device, it.named_by()?))
        });
        if let (Some((rank, device, line)), Some(quote)) =
            (beyond.filter(|_| !list.is_empty()), variable.quote())
        {
            let invariant = Invariant::DeviceNotVisible { rank, device, visible: variable.text().into() };
            all.push(Violation { invariant, quotes: vec![line.clone(), quote.clone()] });
        }
    }
    all
}

#[cfg(test)]
mod tests;
