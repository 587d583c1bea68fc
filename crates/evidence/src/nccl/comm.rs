//! The life of a communicator.

use super::Message;
use crate::scan::{after, hex, number, signed};

/// Which end of the initialisation a line marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// `Init START`, since 2.18.3.
    Start,
    /// `Init COMPLETE`
    Complete,
    /// `Destroy COMPLETE`, `Abort COMPLETE` and the like.
    End,
    /// Versions before 2.5 print only `comm 0x rank r nranks n`.
    Named,
}

/// ```text
/// ncclCommInitRankConfig comm 0x1 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 commId 0x2 - Init START
/// ncclCommSplit comm 0x3 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 parent 0x1 splitCount 1 color 7 key 3- Init START
/// [Rank 0] ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init START     2.29+
/// comm 0x7fdc3c000dc0 rank 8 nranks 16 cudaDev 0 busId 101c0 - Init COMPLETE                                   up to 2.17
/// ```
/// (NCCL `src/init.cc`.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommLine {
    /// Whether `ncclCommSplit` or a relative made it.
    pub split: bool,
    /// The communicator's address in its process.
    pub comm: u64,
    /// The rank in it.
    pub rank: u32,
    /// Its size.
    pub n_ranks: u32,
    /// The CUDA device.
    pub cuda_device: Option<u32>,
    /// The NVML index, since 2.18.3.
    pub nvml_device: Option<u32>,
    /// The GPU's PCI address, as a number that is written in hexadecimal.
    pub bus_id: Option<u64>,
    /// A hash that is equal on all ranks, since 2.16; absent for splits.
    pub comm_id: Option<u64>,
    /// The communicator this one was split from.
    pub parent: Option<u64>,
    /// The colour given to the split.
    pub color: Option<i64>,
    /// Which end of the initialisation this is.
    pub phase: Phase,
}

/// `comm 0x1 rank 3 nRanks 16 nNodes 4 localRanks 4 localRank 3 MNNVL 0`, since 2.20.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The communicator's address in its process.
    pub comm: u64,
    /// The rank.
    pub rank: u32,
    /// Its size.
    pub n_ranks: u32,
    /// How many hosts NCCL counts. Pods with different host names count as different hosts.
    pub n_nodes: u32,
    /// Ranks on this host.
    pub local_ranks: u32,
    /// The rank among them.
    pub local_rank: u32,
    /// Whether it spans hosts by NVLink.
    pub mnnvl: bool,
}

pub(super) fn parse(message: &[u8]) -> Option<Message<'_>> {
    // 2.29+: `[Rank 0] ncclCommInitRank comm ...`
    let rest = match after(message, "[Rank ") {
        Some(rest) => after(number(rest)?.1, "] ")?,
        None => message,
    };
    let (function, rest) = match after(rest, "comm 0x") {
        Some(rest) => (None, rest),
        None => {
            let end = memchr::memchr(b' ', rest)?;
            let (function, rest) = rest.split_at_checked(end)?;
            if !function.starts_with(b"nccl") {
                return None;
            }
            (Some(function), after(rest, " comm 0x")?)
        }
    };
    let (comm, rest) = hex(rest)?;
    let (rank, rest) = number(after(rest, " rank ")?)?;
    if let Some(rest) = after(rest, " nRanks ") {
        // `... rank 2 nRanks 4 cudaDev 0 busId 60 - Abort START` (2.28) has the same beginning.
        return Some(layout(comm, rank, rest).map_or(Message::Routine, Message::Layout));
    }
    let (n_ranks, mut rest) = number(after(rest, " nranks ")?)?;
    let mut line = CommLine {
        split: function.is_some_and(|it| it == b"ncclCommSplit" || it == b"ncclCommShrink"),
        comm,
        rank,
        n_ranks,
        cuda_device: None,
        nvml_device: None,
        bus_id: None,
        comm_id: None,
        parent: None,
        color: None,
        phase: Phase::Named,
    };
    loop {
        rest = rest.trim_ascii_start();
        if let Some(more) = after(rest, "cudaDev ") {
            let (value, more) = number(more)?;
            line.cuda_device = Some(value);
            rest = more;
        } else if let Some(more) = after(rest, "nvmlDev ") {
            let (value, more) = number(more)?;
            line.nvml_device = Some(value);
            rest = more;
        } else if let Some(more) = after(rest, "busId ") {
            let (value, more) = hex(more)?;
            line.bus_id = Some(value);
            rest = more;
        } else if let Some(more) = after(rest, "commId 0x").or_else(|| after(rest, "commHash 0x")) {
            let (value, more) = hex(more)?;
            line.comm_id = (value != 0).then_some(value);
            rest = more;
        } else if let Some(more) = after(rest, "parent 0x") {
            let (value, more) = hex(more)?;
            line.parent = Some(value);
            rest = more;
        } else if let Some(more) = after(rest, "splitCount ").or_else(|| after(rest, "childCount ")) {
            rest = number(more)?.1;
        } else if let Some(more) = after(rest, "color ") {
            let (value, more) = signed(more)?;
            line.color = Some(value);
            rest = more;
        } else if let Some(more) = after(rest, "key ") {
            rest = signed(more)?.1;
        } else if let Some(more) = after(rest, "localRank ").or_else(|| after(rest, "localRanks ")) {
            rest = number(more)?.1;
        } else if let Some(more) = after(rest, "localSize ").or_else(|| after(rest, "on core ")) {
            // RCCL: `localSize 328 used 1024 bytes on core 3 - Init COMPLETE`
            rest = number(more)?.1;
        } else if let Some(more) = after(rest, "used ") {
            rest = after(number(more)?.1, " bytes")?;
        } else if let Some(more) = after(rest, "- ") {
            line.phase = if more.starts_with(b"Init START") {
                Phase::Start
            } else if more.starts_with(b"Init COMPLETE") {
                Phase::Complete
            } else {
                Phase::End
            };
            return Some(Message::Comm(line));
        } else if rest.is_empty() {
            return Some(Message::Comm(line));
        } else {
            return None;
        }
    }
}

fn layout(comm: u64, rank: u32, rest: &[u8]) -> Option<Layout> {
    let (n_ranks, rest) = number(rest)?;
    let (n_nodes, rest) = number(after(rest, " nNodes ")?)?;
    let (local_ranks, rest) = number(after(rest, " localRanks ")?)?;
    let (local_rank, rest) = number(after(rest, " localRank ")?)?;
    let mnnvl = after(rest, " MNNVL ").and_then(number).is_some_and(|(it, _)| it != 0);
    Some(Layout { comm, rank, n_ranks, n_nodes, local_ranks, local_rank, mnnvl })
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::Phase;

    #[track_caller]
    fn comm(line: &str) -> super::CommLine {
        let Message::Comm(it) = parse(line.as_bytes()) else {
            panic!("{line}: {:?}", parse(line.as_bytes()))
        };
        it
    }

    #[test]
    fn rccl() {
        let it = comm(
            "ncclCommInitRank comm 0x2c3c7dd0 rank 2 nranks 4 cudaDev 2 nvmlDev 2 busId c5000 commId 0x9 localSize 328 used 1024 bytes on core 3 \
             - Init COMPLETE",
        );
        assert_eq!((it.rank, it.bus_id, it.phase), (2, Some(0xc5000), Phase::Complete));
    }

    #[test]
    fn every_age() {
        let it = comm("comm 0x7fdc3c000dc0 rank 8 nranks 16 cudaDev 0 busId 101c0 - Init COMPLETE");
        assert_eq!((it.rank, it.n_ranks, it.phase), (8, 16, Phase::Complete));
        assert_eq!(it.bus_id, Some(0x101c0));
        let it = comm(
            "ncclCommInitRankConfig comm 0x559d9a6ce460 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 commId 0x81dca7568efe26d7 - Init START",
        );
        assert_eq!(
            (it.comm_id, it.nvml_device, it.phase),
            (Some(0x81dc_a756_8efe_26d7), Some(3), Phase::Start)
        );
        let it = comm(
            "ncclCommSplit comm 0x5 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 3e000 parent 0x7 splitCount 1 color 1734919490 key 3- Init START",
        );
        assert_eq!((it.parent, it.color, it.phase), (Some(7), Some(1_734_919_490), Phase::Start));
        let it = comm(
            "[Rank 0] ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init START",
        );
        assert!(!it.split && it.comm_id == Some(2));
        let it = comm("comm 0x7f0000000000 rank 3 nranks 4");
        assert_eq!(it.phase, Phase::Named);
        let it = comm("comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 - Destroy COMPLETE");
        assert_eq!(it.phase, Phase::End);
    }

    #[test]
    fn layouts() {
        let line = b"comm 0x559d9a6ce460 rank 3 nRanks 16 nNodes 4 localRanks 4 localRank 3 MNNVL 0";
        let Message::Layout(it) = parse(line) else { panic!() };
        assert_eq!((it.n_nodes, it.local_ranks, it.local_rank, it.mnnvl), (4, 4, 3, false));
    }
}
