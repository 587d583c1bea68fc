//! How the ranks of a job are placed on machines: nodes, pods and GPUs.

use std::fmt;

use crate::Machine;

/// The layout of a job. All machines are alike, and ranks are numbered by machine, pod and GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Machines.
    pub nodes: u32,
    /// Pods, or containers, on each.
    pub pods_per_node: u32,
    /// GPUs of each pod, in the order of their indices.
    pub gpus_per_pod: u32,
    /// NICs of each pod, the nearest available; `None` if each pod has all.
    pub nics_per_pod: Option<u32>,
    /// The pods of a machine have one host name, or one `NCCL_HOSTID`.
    pub same_host: bool,
    /// The pods of a machine have one `/dev/shm`.
    pub shared_memory: bool,
    /// One process drives all GPUs of a pod.
    pub one_process: bool,
}

/// Why a layout is impossible.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The text is not of the form `8x1`.
    Unreadable(String),
    /// No nodes, no pods or no GPUs.
    Nothing,
    /// More GPUs than the machine has.
    Gpus {
        /// How many the pods of a machine request.
        requested: u64,
        /// How many it has.
        has: usize,
    },
    /// More NICs than the machine has.
    Nics {
        /// How many the pods of a machine request.
        requested: u64,
        /// How many it has.
        has: usize,
    },
    /// More ranks than NCCL can number.
    Ranks(u64),
    /// A rank on a node or GPU that does not exist.
    NoGpu {
        /// The rank.
        rank: usize,
        /// Its node.
        node: u32,
        /// Its GPU.
        gpu: u32,
    },
    /// Two ranks on one GPU, which NCCL refuses.
    SameGpu {
        /// Both ranks.
        ranks: [usize; 2],
        /// Their node.
        node: u32,
        /// Their GPU.
        gpu: u32,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => {
                write!(f, "`{text}` is not a layout: write pods x GPUs, as in 1x8 or 8x1")
            }
            Self::Nothing => f.write_str("a layout needs at least one node, one pod and one GPU"),
            Self::Gpus { requested, has } => {
                write!(f, "the pods of a machine request {requested} GPUs, but it has {has}")
            }
            Self::Nics { requested, has } => {
                write!(f, "the pods of a machine request {requested} NICs, but it has {has}")
            }
            Self::Ranks(count) => write!(f, "{count} ranks are more than NCCL supports"),
            Self::NoGpu { rank, node, gpu } => {
                write!(f, "rank {rank} is on GPU {gpu} of node {node}, which does not exist")
            }
            Self::SameGpu { ranks: [one, other], node, gpu } => {
                write!(f, "ranks {one} and {other} are both on GPU {gpu} of node {node}: NCCL refuses that")
            }
        }
    }
}

impl std::error::Error for Unfit {}

impl Layout {
    /// Pods on one machine, each with some GPUs and its own host name and shared memory.
    pub fn new(pods_per_node: u32, gpus_per_pod: u32) -> Self {
        Self {
            nodes: 1,
            pods_per_node,
            gpus_per_pod,
            nics_per_pod: None,
            same_host: false,
            shared_memory: false,
            one_process: false,
        }
    }

    /// One pod with all GPUs of a machine.
    pub fn whole(machine: &Machine) -> Self {
        Self::new(1, u32::try_from(machine.gpus.len()).unwrap_or(u32::MAX))
    }

    /// The same on several machines.
    #[must_use]
    pub fn on(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }

    /// Reads pods x GPUs: `1x8` is one pod with eight GPUs, `8x1` eight pods with one each.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let unreadable = || Unfit::Unreadable(text.chars().take(40).collect());
        let (pods, gpus) = text.trim().split_once(['x', 'X']).ok_or_else(unreadable)?;
        let number = |it: &str| it.trim().parse::<u32>().map_err(|_| unreadable());
        let layout = Self::new(number(pods)?, number(gpus)?);
        if layout.pods_per_node == 0 || layout.gpus_per_pod == 0 { Err(Unfit::Nothing) } else { Ok(layout) }
    }

    /// Whether the machine has what the pods request.
    pub fn check(&self, machine: &Machine) -> Result<(), Unfit> {
        let requested = self.ranks_per_node();
        let ranks = requested.saturating_mul(u64::from(self.nodes));
        let nics = u64::from(self.nics_per_pod.unwrap_or(0)) * u64::from(self.pods_per_node);
        if ranks == 0 {
            Err(Unfit::Nothing)
        } else if requested > machine.gpus.len() as u64 {
            Err(Unfit::Gpus { requested, has: machine.gpus.len() })
        } else if nics > machine.nics.len() as u64 {
            Err(Unfit::Nics { requested: nics, has: machine.nics.len() })
        } else if ranks > i32::MAX.unsigned_abs().into() {
            Err(Unfit::Ranks(ranks))
        } else {
            Ok(())
        }
    }

    /// Ranks on one machine.
    pub fn ranks_per_node(&self) -> u64 {
        u64::from(self.pods_per_node) * u64::from(self.gpus_per_pod)
    }

    /// All ranks.
    pub fn ranks(&self) -> u64 {
        self.ranks_per_node().saturating_mul(u64::from(self.nodes))
    }

    /// Whether NCCL can treat two pods of a machine as one node.
    pub fn pods_are_one_node(&self) -> bool {
        self.same_host && self.shared_memory
    }
}

impl Default for Layout {
    /// One GPU.
    fn default() -> Self {
        Self::new(1, 1)
    }
}

impl fmt::Display for Layout {
    /// `8x1`, and `4 nodes of 1x8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes != 1 {
            write!(f, "{} nodes of ", self.nodes)?;
        }
        write!(f, "{}x{}", self.pods_per_node, self.gpus_per_pod)
    }
}

/// Where each rank of a communicator is: for nodes that are not alike, and for a group of some ranks of a job, as tensor, pipeline,
/// data and expert parallelism form them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Of each node its machine, by the position in the list of machines that differ.
    pub nodes: Vec<usize>,
    /// The place of each rank.
    pub ranks: Vec<RankPlace>,
}

/// The place of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankPlace {
    /// The node, from 0.
    pub node: u32,
    /// Which GPU of the node, from 0, in the order of their indices.
    pub gpu: u32,
}

impl Placement {
    /// Nodes of one kind of machine with different numbers of GPUs, the first ones of each: `[8, 4]` for `8+4`.
    pub fn uneven(gpus: &[u32]) -> Self {
        let on = |(node, &count): (u32, &u32)| (0..count).map(move |gpu| RankPlace { node, gpu });
        Self { nodes: vec![0; gpus.len()], ranks: (0..).zip(gpus).flat_map(on).collect() }
    }

    /// A group of the ranks of a job, in the order they have in the group. Ranks that the job does not have are on no GPU: see
    /// [`Placement::check`].
    pub fn group(layout: &Layout, ranks: impl IntoIterator<Item = u64>) -> Self {
        let each = layout.ranks_per_node().max(1);
        let number = |it: u64| u32::try_from(it).unwrap_or(u32::MAX);
        let place = |rank: u64| RankPlace { node: number(rank / each), gpu: number(rank % each) };
        let nodes = usize::try_from(layout.nodes).unwrap_or(usize::MAX);
        Self { nodes: vec![0; nodes], ranks: ranks.into_iter().map(place).collect() }
    }

    /// Reads numbers of GPUs: `8+4`.
    pub fn parse(text: &str) -> Result<Self, Unfit> {
        let number = |it: &str| it.trim().parse::<u32>().ok().filter(|it| *it <= 1 << 10);
        let counts: Option<Vec<u32>> = text.split('+').map(number).collect();
        let counts = counts.filter(|it| it.len() <= 1 << 18);
        let counts = counts.ok_or_else(|| Unfit::Unreadable(text.chars().take(40).collect()))?;
        if counts.contains(&0) { Err(Unfit::Nothing) } else { Ok(Self::uneven(&counts)) }
    }

    /// Whether the machines have these GPUs, each for one rank.
    pub fn check(&self, machines: &[&Machine]) -> Result<(), Unfit> {
        if self.ranks.is_empty() {
            return Err(Unfit::Nothing);
        }
        let gpus = |node: u32| {
            let machine = *self.nodes.get(usize::try_from(node).ok()?)?;
            Some(machines.get(machine)?.gpus.len())
        };
        let mut taken = std::collections::HashMap::new();
        for (rank, &place) in self.ranks.iter().enumerate() {
            let RankPlace { node, gpu } = place;
            if gpus(node).is_none_or(|it| gpu as usize >= it) {
                return Err(Unfit::NoGpu { rank, node, gpu });
            }
            if let Some(other) = taken.insert(place, rank) {
                return Err(Unfit::SameGpu { ranks: [other, rank], node, gpu });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Placement, RankPlace, Unfit};
    use crate::Machine;

    #[test]
    fn places_of_ranks() {
        let place = |node, gpu| RankPlace { node, gpu };
        let uneven = Placement::parse("2+1").unwrap();
        assert_eq!(uneven.ranks, [place(0, 0), place(0, 1), place(1, 0)]);
        assert_eq!(uneven, Placement::uneven(&[2, 1]));
        // The second GPU of each node: a data parallel group.
        let group = Placement::group(&Layout::new(1, 4).on(2), [1, 5]);
        assert_eq!(group.ranks, [place(0, 1), place(1, 1)]);
        for text in ["", "8+", "a+1", "8x4", "-1+2"] {
            assert!(matches!(Placement::parse(text), Err(Unfit::Unreadable(_))), "{text}");
        }
        assert_eq!(Placement::parse("8+0"), Err(Unfit::Nothing));
        let unfit = group.check(&[&Machine::default()]).unwrap_err();
        assert_eq!(unfit.to_string(), "rank 0 is on GPU 1 of node 0, which does not exist");
        assert_eq!(Placement::default().check(&[]), Err(Unfit::Nothing));
    }

    #[test]
    fn pods_by_gpus() {
        let layout = Layout::parse("8x1").unwrap();
        assert_eq!((layout.pods_per_node, layout.gpus_per_pod), (8, 1));
        assert_eq!(layout.on(4).to_string(), "4 nodes of 8x1");
        assert_eq!(layout.on(4).ranks(), 32);
        for text in ["", "8", "x", "8x", "ax1", "1x-1", "99999999999x1", "1x1x1"] {
            assert!(matches!(Layout::parse(text), Err(Unfit::Unreadable(_))), "{text}");
        }
        assert_eq!(Layout::parse("0x8"), Err(Unfit::Nothing));
    }

    #[test]
    fn more_than_there_is() {
        let machine = Machine::default();
        let layout = Layout::parse("1x8").unwrap();
        let unfit = layout.check(&machine).unwrap_err();
        assert_eq!(unfit.to_string(), "the pods of a machine request 8 GPUs, but it has 0");
        assert!(Layout::new(u32::MAX, u32::MAX).on(u32::MAX).check(&machine).is_err());
    }
}
