//! How many elements lie where, as nccl-tests counts them.

use fabric::Collective;

use crate::data::DataType;

/// The buffers of one rank, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The column `size`: bytes of the larger of both buffers.
    pub bytes: usize,
    /// The column `count`: the argument of NCCL's function.
    pub count: usize,
    /// What a rank sends.
    pub send: usize,
    /// What it receives.
    pub receive: usize,
    /// In place, what rank `r` sends begins `r` times this far in the receive buffer.
    pub send_stride: usize,
    /// In place, what rank `r` receives begins `r` times this far in it.
    pub receive_stride: usize,
}

impl Layout {
    /// The buffers for a size. Parts of a rank are rounded down to 16 bytes, so that each begins aligned.
    pub fn new(collective: Collective, bytes: usize, data_type: DataType, ranks: usize) -> Self {
        let width = data_type.size();
        let whole = bytes / width;
        let ranks = ranks.max(1);
        let part = (whole / ranks) & !(16 / width - 1);
        let (count, send, receive, send_stride, receive_stride) = match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv => {
                (whole, whole, whole, 0, 0)
            }
            Collective::AllGather | Collective::Gather => (part, part, part * ranks, part, 0),
            Collective::ReduceScatter | Collective::Scatter => (part, part * ranks, part, 0, part),
            Collective::AllToAll => (part, part * ranks, part * ranks, 0, 0),
        };
        Self { bytes: send.max(receive) * width, count, send, receive, send_stride, receive_stride }
    }
}

/// Whether the collective can send from its receive buffer.
pub fn works_in_place(collective: Collective) -> bool {
    !matches!(collective, Collective::AllToAll | Collective::SendRecv)
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::data::DataType;
    use fabric::Collective;

    #[test]
    fn the_whole_is_counted_where_the_whole_is_moved() {
        let it = Layout::new(Collective::AllReduce, 1001, DataType::Float, 8);
        assert_eq!((it.bytes, it.count, it.send, it.receive), (1000, 250, 250, 250));
        assert_eq!(Layout::new(Collective::Broadcast, 3, DataType::Float, 8).bytes, 0);
    }

    #[test]
    fn parts_are_aligned() {
        let it = Layout::new(Collective::AllGather, 1000, DataType::Float, 8);
        assert_eq!((it.count, it.send, it.receive, it.bytes), (28, 28, 224, 896));
        assert_eq!((it.send_stride, it.receive_stride), (28, 0));
        let it = Layout::new(Collective::ReduceScatter, 1000, DataType::Half, 3);
        assert_eq!((it.count, it.send, it.receive, it.bytes), (160, 480, 160, 960));
        assert_eq!((it.send_stride, it.receive_stride), (0, 160));
        let it = Layout::new(Collective::AllToAll, 100, DataType::Double, 4);
        assert_eq!((it.count, it.send, it.receive, it.bytes), (2, 8, 8, 64));
    }

    #[test]
    fn what_is_less_than_16_bytes_a_rank_is_nothing() {
        for it in [Collective::AllGather, Collective::Scatter, Collective::AllToAll] {
            assert_eq!(Layout::new(it, 127, DataType::Int8, 8).bytes, 0);
            assert_eq!(Layout::new(it, 128, DataType::Int8, 8).bytes, 128);
        }
    }
}
