//! The arguments of one collective call, without the element type.

use crate::data::ReduceOp;
use crate::schedule::Kind;
use crate::session::CallKind;
use crate::{Algorithm, DataType, Operation};

impl Kind {
    /// As nccl-tests names it.
    pub(crate) fn name(self) -> &'static str {
        CallKind::from(self).name()
    }

    /// Whether elements are reduced.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

impl From<Kind> for CallKind {
    #[inline]
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::AllReduce => Self::AllReduce,
            Kind::AllGather => Self::AllGather,
            Kind::ReduceScatter => Self::ReduceScatter,
            Kind::Broadcast => Self::Broadcast,
            Kind::Reduce => Self::Reduce,
            Kind::AllToAll => Self::AllToAll,
            Kind::Gather => Self::Gather,
            Kind::Scatter => Self::Scatter,
            Kind::SendReceive { .. } => Self::SendReceive,
            Kind::Barrier => Self::Barrier,
        }
    }
}

impl Algorithm {
    /// Whether it supports this collective by messages.
    pub(crate) fn by_messages(self, kind: Kind) -> bool {
        !matches!(self, Self::OneShot | Self::TwoShot) && self.supports(kind)
    }
}

/// The pointers are valid while the call runs: they come from slices that the caller borrows to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) data: DataType,
    pub(crate) operation: Operation,
    /// The root, for collectives that have one.
    pub(crate) root: usize,
    /// Elements as NCCL counts them: of one part if every rank has a part, otherwise of the whole.
    pub(crate) count: usize,
    pub(crate) send: *const u8,
    pub(crate) receive: *mut u8,
}

impl Call {
    #[inline]
    pub(crate) fn reduce_op(&self) -> ReduceOp {
        ReduceOp { data: self.data, operation: self.operation }
    }

    /// Bytes of `count` elements.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.data.size()
    }

    /// Bytes of the send buffer of a rank.
    #[inline]
    pub(crate) fn send_bytes(&self, rank: usize, size: usize) -> usize {
        match self.kind {
            Kind::AllReduce | Kind::AllGather | Kind::Reduce | Kind::Gather | Kind::SendReceive { .. } => {
                self.bytes()
            }
            Kind::ReduceScatter | Kind::AllToAll => self.bytes() * size,
            Kind::Broadcast if self.root == rank => self.bytes(),
            Kind::Scatter if self.root == rank => self.bytes() * size,
            Kind::Broadcast | Kind::Scatter | Kind::Barrier => 0,
        }
    }

    /// Bytes of the receive buffer of a rank.
    pub(crate) fn receive_bytes(&self, rank: usize, size: usize) -> usize {
        match self.kind {
            Kind::AllReduce
            | Kind::ReduceScatter
            | Kind::Broadcast
            | Kind::Scatter
            | Kind::SendReceive { .. } => self.bytes(),
            Kind::AllGather | Kind::AllToAll => self.bytes() * size,
            Kind::Reduce if self.root == rank => self.bytes(),
            Kind::Gather if self.root == rank => self.bytes() * size,
            Kind::Reduce | Kind::Gather | Kind::Barrier => 0,
        }
    }

    /// Bytes of the largest send buffer of all ranks.
    #[inline]
    pub(crate) fn largest(&self, size: usize) -> usize {
        match self.kind {
            Kind::ReduceScatter | Kind::AllToAll | Kind::Scatter => self.bytes() * size,
            Kind::Barrier => 0,
            _ => self.bytes(),
        }
    }

    /// A hash of the call, to detect ranks that make different calls.
    #[inline]
    pub(crate) fn signature(&self) -> u16 {
        let kind = match self.kind {
            Kind::AllReduce => 1,
            Kind::AllGather => 2,
            Kind::ReduceScatter => 3,
            Kind::Broadcast => 4,
            Kind::Reduce => 5,
            Kind::AllToAll => 6,
            Kind::Gather => 7,
            Kind::Scatter => 8,
            // Peers differ between ranks.
            Kind::SendReceive { .. } => 9,
            Kind::Barrier => 10,
        };
        let mut hash = self.count as u64 ^ 0xcbf2_9ce4_8422_2325;
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= kind | (self.data as u64) << 8 | (self.operation as u64) << 16 | (self.root as u64) << 24;
        hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 48) as u16
    }
}
