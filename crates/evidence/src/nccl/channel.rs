//! Channels: the transports between ranks, rings and trees.

use fabric::{P2pKind, Transport};
use memchr::memmem;

use super::Message;
use crate::scan::{after, hex, number, signed};

/// Which side of a network connection wrote the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The sender of a P2P or SHM connection: the only side that writes one.
    Local,
    /// `[send]`
    Send,
    /// `[receive]`: still written source to destination.
    Receive,
}

/// A connection.
///
/// ```text
/// Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0/GDRDMA/Shared   2.12+, NCCL transport/net.cc
/// Channel 00 : 2[2] -> 3[3] via SHM/direct/direct                        2.13 to 2.30.4, transport/shm.cc
/// Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM/read                         2.18+, transport/p2p.cc
/// Ring 00 : 2[3d000] -> 3[3e000] via direct shared memory                up to 2.7
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLine<'a> {
    /// The channel.
    pub channel: u32,
    /// 0 for collectives, 1 for send and receive.
    pub connection: u32,
    /// The sending rank, as numbered in the communicator.
    pub from: u32,
    /// The receiving rank.
    pub to: u32,
    /// The sender's device: an NVML index since 2.18.3, a bus id before.
    pub from_device: u64,
    /// The receiver's device.
    pub to_device: u64,
    /// Which side wrote the line.
    pub direction: Direction,
    /// The text after `via`.
    pub via: &'a [u8],
}

/// `Channel 00/02 : 0 1 2 3`, written by rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingLine {
    /// The channel.
    pub channel: u32,
    /// The ranks, in the order of the ring.
    pub order: Vec<u32>,
    /// NCCL cut the list (` ...`).
    pub cut: bool,
}

/// A rank's position in the tree of one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeNode {
    /// The channel.
    pub channel: u32,
    /// The rank.
    pub rank: u32,
    /// Its parent.
    pub up: Option<u32>,
    /// Its children.
    pub down: [Option<u32>; 3],
}

/// A rank's positions in the trees of all channels.
///
/// Many channels have the same one, and every rank of every communicator prints them: each position is kept once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trees {
    /// Rank, parent and children; [`Trees::NONE`] for none.
    positions: Box<[[u32; 5]]>,
    /// The channels in the order of the line, and the index of each one's position.
    channels: Box<[(u16, u16)]>,
}

impl Trees {
    const NONE: u32 = u32::MAX;

    /// Keeps `nodes`, whose channels fit into 16 bits.
    pub fn new(nodes: &[TreeNode]) -> Self {
        let mut positions: Vec<[u32; 5]> = Vec::new();
        let mut channels = Vec::with_capacity(nodes.len());
        for it in nodes {
            let word = |it: Option<u32>| it.unwrap_or(Self::NONE);
            let position = [it.rank, word(it.up), word(it.down[0]), word(it.down[1]), word(it.down[2])];
            let index = positions.iter().position(|it| *it == position).unwrap_or_else(|| {
                positions.push(position);
                positions.len() - 1
            });
            if let (Ok(channel), Ok(index)) = (u16::try_from(it.channel), u16::try_from(index)) {
                channels.push((channel, index));
            }
        }
        Self { positions: positions.into(), channels: channels.into() }
    }

    /// The positions, in the order of the line.
    pub fn iter(&self) -> impl Iterator<Item = TreeNode> {
        let some = |it: u32| (it != Self::NONE).then_some(it);
        self.channels.iter().filter_map(move |&(channel, index)| {
            let &[rank, up, a, b, c] = self.positions.get(usize::from(index))?;
            Some(TreeNode { channel: channel.into(), rank, up: some(up), down: [some(a), some(b), some(c)] })
        })
    }
}

pub(super) fn parse(message: &[u8]) -> Option<Message<'_>> {
    let rest = after(message, "Channel ")
        .or_else(|| after(message, "Ring "))
        .or_else(|| after(message, "CollNet "))?;
    let (channel, rest) = number(rest)?;
    let (connection, rest) = match after(rest, "/") {
        Some(rest) => number(rest)?,
        None => (0, rest),
    };
    let rest = after(rest, " :")?;
    let rest = rest.trim_ascii_start();
    let Some((from, after_from)) = number(rest) else {
        // A search result of the GRAPH subsystem: `Ring 00 : prev -> me -> next` with -1.
        return Some(Message::Routine);
    };
    match after_from.first() {
        Some(b'[') => link(channel, connection, from, after_from),
        // `CollNet 00/0 : 3 [send] via COLLNET/SHARP/0/GDRDMA`
        Some(b' ') if memmem::find(after_from, b" via ").is_some() => {
            let (direction, via) = direction(after_from)?;
            Some(Message::Link(LinkLine {
                channel,
                connection,
                from,
                to: from,
                from_device: 0,
                to_device: 0,
                direction,
                via,
            }))
        }
        // `Ring 00 : 15 -> 0 -> 1` of the GRAPH subsystem
        Some(b' ') if after(after_from, " -> ").is_some() => Some(Message::Routine),
        _ => ring(channel, rest),
    }
}

fn link(channel: u32, connection: u32, from: u32, rest: &[u8]) -> Option<Message<'_>> {
    let (from_device, rest) = hex(after(rest, "[")?)?;
    let (to, rest) = number(after(rest, "] -> ")?)?;
    let (to_device, rest) = hex(after(rest, "[")?)?;
    let (direction, via) = direction(after(rest, "]")?)?;
    let via = without_communicator(via);
    Some(Message::Link(LinkLine { channel, connection, from, to, from_device, to_device, direction, via }))
}

/// RCCL ends the line with ` comm 0x2c3c7dd0 nRanks 04`.
fn without_communicator(via: &[u8]) -> &[u8] {
    let tail = via.get(via.len().saturating_sub(16)..).unwrap_or_default();
    if memmem::find(tail, b" nRanks ").is_none() {
        return via;
    }
    memmem::find(via, b" comm 0x").and_then(|at| via.get(..at)).unwrap_or(via)
}

fn direction(rest: &[u8]) -> Option<(Direction, &[u8])> {
    if let Some(via) = after(rest, " via ") {
        return Some((Direction::Local, via));
    }
    if let Some(via) = after(rest, " [send] via ") {
        return Some((Direction::Send, via));
    }
    Some((Direction::Receive, after(rest, " [receive] via ")?))
}

fn ring<'a>(channel: u32, mut rest: &[u8]) -> Option<Message<'a>> {
    let mut order = Vec::with_capacity(rest.len() / 3 + 1);
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(Message::Ring(RingLine { channel, order, cut: false }));
        }
        match number(rest) {
            Some((rank, more)) => {
                order.push(rank);
                rest = more;
            }
            None => {
                return rest.starts_with(b"..").then_some(Message::Ring(RingLine {
                    channel,
                    order,
                    cut: true,
                }));
            }
        }
    }
}

/// `Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->4`: `down/down/down->rank->up` for each channel.
pub(super) fn trees(message: &[u8]) -> Option<Message<'_>> {
    let mut rest = after(message, "Trees ")?;
    let mut nodes = Vec::new();
    // The list is built in 1024 bytes: the last entry may be cut.
    while let Some((node, more)) = tree(rest) {
        nodes.push(node);
        rest = more.trim_ascii_start();
    }
    Some(if nodes.is_empty() { Message::Routine } else { Message::Trees(Trees::new(&nodes)) })
}

fn tree(rest: &[u8]) -> Option<(TreeNode, &[u8])> {
    let (channel, rest) = number(after(rest, "[")?).filter(|it| it.0 <= u16::MAX.into())?;
    let mut rest = after(rest, "] ")?;
    let mut down = [None; 3];
    for (i, slot) in down.iter_mut().enumerate() {
        if i > 0 {
            rest = after(rest, "/")?;
        }
        let (rank, more) = signed(rest)?;
        *slot = u32::try_from(rank).ok();
        rest = more;
    }
    let (rank, rest) = number(after(rest, "->")?)?;
    let (up, rest) = signed(after(rest, "->")?)?;
    Some((TreeNode { channel, rank, up: u32::try_from(up).ok(), down }, rest))
}

/// Reads the text after `via`.
///
/// ```text
/// P2P/direct pointer[/read]  P2P/IPC[/read][/CE]  P2P/CUMEM  P2P/MNNVL  P2P/indirect/g[z]
/// SHM/direct/direct  SHM/direct  SHM/CE/direct  direct shared memory
/// NET/N/d[(p)][/GDRDMA[(PCI)]][/Shared]  COLLNET/N/d[/GDRDMA]
/// ```
pub fn transport(via: &str) -> Option<Transport> {
    let via = via.trim();
    if let Some(rest) = via.strip_prefix("P2P/") {
        let read = rest.contains("/read");
        let kind = match rest.split('/').next()? {
            "direct pointer" => P2pKind::DirectPointer,
            "IPC" => P2pKind::Ipc,
            "CUMEM" => P2pKind::Cumem,
            "MNNVL" => P2pKind::Mnnvl,
            "indirect" => P2pKind::Indirect,
            _ => return None,
        };
        return Some(Transport::P2p { kind, read });
    }
    if via.starts_with("SHM") || via == "direct shared memory" {
        return Some(Transport::Shm);
    }
    let collnet = via.strip_prefix("COLLNET/");
    let rest = via.strip_prefix("NET/").or(collnet)?;
    let (rest, gpudirect) = match rest.split_once("/GDRDMA") {
        Some((rest, _)) => (rest, true),
        None => (rest.strip_suffix("/Shared").unwrap_or(rest), false),
    };
    let (network, device) = rest.rsplit_once('/')?;
    let (device, through) = match device.split_once('(') {
        Some((device, through)) => (device, through.strip_suffix(')')?.parse().ok()),
        None => (device, None),
    };
    let device = device.parse().ok()?;
    Some(if collnet.is_some() {
        Transport::CollNet { network: network.into(), device, gpudirect }
    } else {
        Transport::Net { network: network.into(), device, gpudirect, through }
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::{Direction, RingLine, TreeNode, transport};

    #[track_caller]
    fn link(line: &str) -> (u32, u32, u32, u32, Direction, String) {
        let Message::Link(it) = parse(line.as_bytes()) else {
            panic!("{line}: {:?}", parse(line.as_bytes()))
        };
        (it.channel, it.connection, it.from, it.to, it.direction, String::from_utf8_lossy(it.via).into())
    }

    #[test]
    fn connections_of_every_age() {
        assert_eq!(
            link("Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0/GDRDMA"),
            (0, 0, 3, 4, Direction::Send, "NET/Libfabric/0/GDRDMA".into())
        );
        assert_eq!(
            link("Channel 01/1 : 15[3] -> 0[0] [receive] via NET/AWS Libfabric/2/Shared"),
            (1, 1, 15, 0, Direction::Receive, "NET/AWS Libfabric/2/Shared".into())
        );
        assert_eq!(
            link("Channel 00 : 2[2] -> 3[3] via SHM/direct/direct"),
            (0, 0, 2, 3, Direction::Local, "SHM/direct/direct".into())
        );
        assert_eq!(
            link("Channel 02/0 : 1[c6000] -> 4[c1000] [send] via NET/Socket/1 comm 0x9e4d8d0 nRanks 08"),
            (2, 0, 1, 4, Direction::Send, "NET/Socket/1".into())
        );
        assert_eq!(
            link("Ring 00 : 2[3d000] -> 3[3e000] via direct shared memory"),
            (0, 0, 2, 3, Direction::Local, "direct shared memory".into())
        );
        assert_eq!(
            link("Channel 03/0 : 1[1] -> 0[0] via P2P/direct pointer/read"),
            (3, 0, 1, 0, Direction::Local, "P2P/direct pointer/read".into())
        );
    }

    #[test]
    fn transports() {
        for text in [
            "P2P/direct pointer",
            "P2P/direct pointer/read",
            "P2P/IPC",
            "P2P/CUMEM/read",
            "P2P/MNNVL",
            "NET/IB/3",
            "NET/AWS Libfabric/0/GDRDMA",
            "NET/IB/0(3)/GDRDMA",
            "COLLNET/SHARP/0/GDRDMA",
        ] {
            assert_eq!(transport(text).map(|it| it.to_string()).as_deref(), Some(text));
        }
        for (text, want) in [
            ("SHM/direct/direct", "SHM"),
            ("SHM/direct", "SHM"),
            ("direct shared memory", "SHM"),
            ("NET/IB/0/GDRDMA(PCI)/Shared", "NET/IB/0/GDRDMA"),
            ("NET/Socket/1/Shared", "NET/Socket/1"),
            ("P2P/CUMEM/CE", "P2P/CUMEM"),
            ("P2P/indirect/2[2]/read", "P2P/indirect/read"),
        ] {
            assert_eq!(transport(text).map(|it| it.to_string()).as_deref(), Some(want), "{text}");
        }
        for text in ["", "NET", "NET/", "NET/IB", "NET/IB/x", "P2P/", "P2P/other"] {
            assert_eq!(transport(text), None, "{text}");
        }
    }

    #[test]
    fn rings() {
        let ring =
            |channel, order: &[u32], cut| Message::Ring(RingLine { channel, order: order.into(), cut });
        assert_eq!(parse(b"Channel 00/02 :  0  1  2  3"), ring(0, &[0, 1, 2, 3], false));
        assert_eq!(parse(b"Channel 07/16 :    0   7 12 ..."), ring(7, &[0, 7, 12], true));
        assert_eq!(parse(b"Ring 00 : 15 -> 0 -> 1"), Message::Routine);
    }

    #[test]
    fn trees() {
        let root = |channel| TreeNode { channel, rank: 0, up: None, down: [Some(1), Some(8), None] };
        let inner = |channel| TreeNode { channel, rank: 0, up: Some(4), down: [Some(1), None, None] };
        let line = b"Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->4 [2] 1/8/-1->0->-1 [3] 1/-1/-1->0->4";
        let Message::Trees(found) = parse(line) else { panic!() };
        assert_eq!(found.iter().collect::<Vec<_>>(), [root(0), inner(1), root(2), inner(3)]);
        assert_eq!(found.positions.len(), 2);
    }
}
