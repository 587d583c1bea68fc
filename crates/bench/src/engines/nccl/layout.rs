//! Where in its buffers a rank sends and receives, as nccl-tests has it.

use fabric::Collective;

use super::driver::Address;
use crate::engines::Call;
use crate::failure::{Cause, Failure};

/// The addresses one collective is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) send: Address,
    pub(super) receive: Address,
}

/// This rank in NCCL's communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Membership {
    pub(super) rank: usize,
    /// The number of ranks.
    pub(super) size: usize,
}

/// Where the repetitions of a collective lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    first: Placed,
    stride: Address,
    places: u64,
}

impl Layout {
    /// For a call on two buffers of `bytes` bytes each.
    pub(super) fn of(
        call: &Call,
        Membership { rank, size }: Membership,
        buffers: Placed,
        bytes: usize,
    ) -> Result<Self, Failure> {
        let Placed { send, receive } = buffers;
        if call.root >= size {
            return Err(Cause::NoSuchRoot { root: call.root }.into());
        }
        let extent = extent(call, size);
        let needed = extent
            .filter(|it| *it <= bytes)
            .ok_or(Cause::OutsideBuffer { bytes: extent.unwrap_or(usize::MAX) as u64 })?;
        let own = (rank * call.count * call.data_type.size()) as Address;
        let first = match call.collective {
            _ if !call.in_place => Placed { send, receive },
            Collective::AllGather | Collective::Gather => Placed { send: receive + own, receive },
            Collective::ReduceScatter | Collective::Scatter => {
                Placed { send: receive, receive: receive + own }
            }
            _ => Placed { send: receive, receive },
        };
        let places = bytes.checked_div(needed).unwrap_or(1) as u64;
        Ok(Self { first, stride: needed as Address, places })
    }

    /// Where the n-th repetition is: each beside the one before, so that caches do not hold what the first has moved.
    pub(super) fn at(&self, repetition: usize) -> Placed {
        let shift = self.stride * (repetition as u64 % self.places);
        Placed { send: self.first.send + shift, receive: self.first.receive + shift }
    }
}

/// Bytes of the larger buffer; none if that is more than can be counted.
fn extent(call: &Call, size: usize) -> Option<usize> {
    let parts = match call.collective {
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv => 1,
        Collective::AllGather
        | Collective::ReduceScatter
        | Collective::AllToAll
        | Collective::Gather
        | Collective::Scatter => size,
    };
    call.count.checked_mul(call.data_type.size())?.checked_mul(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DataType, Operation};

    fn call(collective: Collective, in_place: bool) -> Call {
        Call {
            collective,
            data_type: DataType::Float,
            operation: Operation::Sum,
            root: 0,
            count: 10,
            in_place,
        }
    }

    fn member(rank: usize, size: usize) -> Membership {
        Membership { rank, size }
    }

    fn buffers(send: Address, receive: Address) -> Placed {
        Placed { send, receive }
    }

    fn placed(collective: Collective, in_place: bool) -> (u64, u64) {
        let call = call(collective, in_place);
        let layout = Layout::of(&call, member(2, 4), buffers(10_000, 20_000), 160).expect("it fits");
        let Placed { send, receive } = layout.at(0);
        (send, receive)
    }

    #[test]
    fn in_place_is_where_nccl_expects_it() {
        for collective in Collective::ALL {
            assert_eq!(placed(collective, false), (10_000, 20_000));
        }
        assert_eq!(placed(Collective::AllReduce, true), (20_000, 20_000));
        assert_eq!(placed(Collective::AllGather, true), (20_080, 20_000));
        assert_eq!(placed(Collective::Gather, true), (20_080, 20_000));
        assert_eq!(placed(Collective::ReduceScatter, true), (20_000, 20_080));
        assert_eq!(placed(Collective::Scatter, true), (20_000, 20_080));
    }

    #[test]
    fn repetitions_go_through_the_buffer() {
        let call_of_forty = call(Collective::AllReduce, false);
        let layout = Layout::of(&call_of_forty, member(0, 2), buffers(0, 1_000), 100).expect("it fits twice");
        let sends: Vec<u64> = (0..4).map(|it| layout.at(it).send).collect();
        assert_eq!(sends, [0, 40, 0, 40]);
        let nothing = Call { count: 0, ..call(Collective::AllGather, true) };
        let layout = Layout::of(&nothing, member(1, 2), buffers(0, 0), 0).expect("nothing fits everywhere");
        assert_eq!(layout.at(7), Placed { send: 0, receive: 0 });
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused =
            |call: &Call| Layout::of(call, member(0, 4), buffers(0, 0), 100).expect_err("too large").cause;
        assert_eq!(refused(&call(Collective::AllGather, false)), Cause::OutsideBuffer { bytes: 160 });
        let endless = Call { count: usize::MAX, ..call(Collective::AllReduce, false) };
        assert_eq!(refused(&endless), Cause::OutsideBuffer { bytes: u64::MAX });
        let rootless = Call { root: 4, ..call(Collective::Reduce, false) };
        assert_eq!(refused(&rootless), Cause::NoSuchRoot { root: 4 });
    }
}
