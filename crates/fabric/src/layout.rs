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

#[cfg(test)]
mod tests {
    use super::{Layout, Unfit};
    use crate::Machine;

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
