//! One collective, as a rank called it, without types.

use crate::schedule::Kind;
use crate::session::Kind as Stage;
use crate::{Algorithm, DataType, Operation};

impl Kind {
    /// Its name, as nccl-tests has it.
    pub(crate) fn name(self) -> &'static str {
        Stage::from(self).name()
    }

    /// Whether values are combined on the way.
    pub(crate) fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }
}

impl From<Kind> for Stage {
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
    /// Whether it does this collective by messages.
    pub(crate) fn by_messages(self, kind: Kind) -> bool {
        !matches!(self, Self::OneShot | Self::TwoShot) && self.serves(kind)
    }
}

/// A collective and where its data is.
///
/// The pointers are good for as long as the call runs: they come from slices the caller lends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) data: DataType,
    pub(crate) operation: Operation,
    /// Who sends, or has the result, where it is one.
    pub(crate) root: usize,
    /// Elements, as NCCL's argument counts them: of one part where every rank has a part, else of the whole.
    pub(crate) count: usize,
    pub(crate) send: *const u8,
    pub(crate) receive: *mut u8,
}

impl Call {
    /// Bytes of `count` elements.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.data.size()
    }

    /// Bytes this rank has to give.
    #[inline]
    pub(crate) fn gives(&self, rank: usize, size: usize) -> usize {
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

    /// Bytes this rank gets.
    pub(crate) fn takes(&self, rank: usize, size: usize) -> usize {
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

    /// Bytes that the rank with most to give gives: the same on every rank.
    #[inline]
    pub(crate) fn largest(&self, size: usize) -> usize {
        match self.kind {
            Kind::ReduceScatter | Kind::AllToAll | Kind::Scatter => self.bytes() * size,
            Kind::Barrier => 0,
            _ => self.bytes(),
        }
    }

    /// A number that differs, most likely, between calls that do not belong together.
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
            // Partners differ from rank to rank.
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
