//! Who sends what to whom, and when: every algorithm as a pure function from a call to this rank's steps.
//!
//! A schedule knows nothing of paths: the executor runs it over shared memory, TCP, or both. Nor does it know whether the
//! call is in place: no step writes what a later one still reads, at the places NCCL has for calls in place.
//!
//! That no schedule can block is seen thus: the steps of all ranks have an order in which everything a step waits for, and
//! everything before it on its stream, comes earlier. So the first step that is not done can always go on, however little
//! the streams hold.

mod algorithm;
mod doubling;
mod flow;
mod fold;
mod halving;
mod layout;
mod linear;
mod ring;
mod step;
mod tree;

use std::ops::Range;

pub use algorithm::Algorithm;
pub(crate) use algorithm::Kind;
pub(crate) use layout::Layout;
pub(crate) use step::{Action, Hand, Place, Space, Step};

use step::{Mark, Plan};

/// Bytes of a piece of work where a schedule must cut: intermediate results that only pass through, and two trees that
/// share a stream.
pub(crate) const CHUNK: usize = 256 << 10;
/// Pieces at most, whatever the size: longer calls get larger pieces.
const PIECES: usize = 4096;

/// One call, as a rank sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) algorithm: Algorithm,
    /// This rank.
    pub(crate) rank: usize,
    /// Who sends, or has the result, where it is one.
    pub(crate) root: usize,
    /// Elements, counted as NCCL's argument does: what a rank sends in `AllGather`, `Gather` and `AllToAll` (to each), what
    /// it receives in `ReduceScatter` and `Scatter`, the whole in the others.
    pub(crate) count: usize,
    /// Bytes of an element.
    pub(crate) width: usize,
    /// Bytes of a piece of work: [`CHUNK`], unless there are reasons.
    pub(crate) chunk: usize,
}

impl Shape {
    /// Whether it makes sense among so many ranks.
    fn can_be(&self, size: usize) -> bool {
        let peers = match self.kind {
            // Who sends to itself receives from itself.
            Kind::SendReceive { to, from } => {
                to < size && from < size && (to == self.rank) == (from == self.rank)
            }
            _ => true,
        };
        peers && self.rank < size && self.root < size && self.width > 0
    }

    /// Bytes of `count` elements.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.width
    }

    /// Bytes that this rank's buffers have: sent, received.
    pub(crate) fn lengths(&self, size: usize) -> (usize, usize) {
        let (one, all) = (self.bytes(), self.bytes() * size);
        let at_root = |bytes| if self.rank == self.root { bytes } else { 0 };
        match self.kind {
            Kind::AllReduce | Kind::SendReceive { .. } => (one, one),
            Kind::AllGather => (one, all),
            Kind::ReduceScatter => (all, one),
            Kind::AllToAll => (all, all),
            Kind::Broadcast => (at_root(one), one),
            Kind::Reduce => (one, at_root(one)),
            Kind::Gather => (one, at_root(all)),
            Kind::Scatter => (at_root(all), one),
            Kind::Barrier => (0, 0),
        }
    }

    /// Where in one buffer the two lie when the call is in place: sent, received.
    #[cfg(test)]
    pub(crate) fn in_place(&self, size: usize) -> (Range<usize>, Range<usize>) {
        let (send, receive) = self.lengths(size);
        let own = self.rank * self.bytes();
        match self.kind {
            Kind::AllGather => (own..own + send, 0..receive),
            Kind::ReduceScatter => (0..send, own..own + receive),
            Kind::Gather if self.rank == self.root => (own..own + send, 0..receive),
            Kind::Scatter if self.rank == self.root => (0..send, own..own + receive),
            _ => (0..send, 0..receive),
        }
    }

    /// Cuts `len` bytes into pieces of `chunk`, all but the last whole: offset and length of each.
    fn pieces(&self, len: usize, most: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let width = self.width;
        let least = len.div_ceil(most).max(self.chunk).max(1);
        let piece = least.div_ceil(width) * width;
        (0..len.div_ceil(piece)).map(move |it| (it * piece, piece.min(len - it * piece)))
    }

    /// Part `part` of `parts` nearly equal ones of the whole: offset and length in bytes.
    ///
    /// Large parts begin at multiples of a cache line.
    fn part(&self, part: usize, parts: usize) -> (usize, usize) {
        const LINE: usize = 64;
        let grain = if self.bytes() / parts >= 64 * LINE { LINE / self.width } else { 1 };
        let cut = |it: usize| if it == parts { self.count } else { self.count / grain * it / parts * grain };
        let (begin, end) = (cut(part) * self.width, cut(part + 1) * self.width);
        (begin, end - begin)
    }
}

/// What goes one way between this rank and a peer, or what it does by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) way: Way,
    /// Its steps, in [`Schedule::queue`].
    pub(crate) steps: Range<usize>,
}

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    To(usize),
    From(usize),
    Here,
}

/// The steps of one rank in one call. Made once for a shape and run as often as wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    steps: Vec<Step>,
    /// The numbers of the steps, stream by stream.
    queue: Vec<u32>,
    streams: Vec<Stream>,
    /// Bytes needed of each space.
    needs: [usize; 3],
    /// Bytes of an element.
    width: usize,
    /// Ranks whose data are combined.
    size: usize,
}

impl Schedule {
    /// The schedule of a call; nothing where the algorithm does not serve the collective, or the shape cannot be.
    pub(crate) fn new(shape: &Shape, layout: &Layout) -> Option<Self> {
        let size = layout.size();
        if !shape.algorithm.serves(shape.kind) || !shape.can_be(size) {
            return None;
        }
        let mut plan = Plan::default();
        if size == 1 {
            alone(&mut plan, shape);
        } else {
            let make = maker(shape.kind, shape.algorithm)?;
            make(&mut plan, shape, layout);
        }
        Some(Self::from(plan, shape.width, size))
    }

    fn from(plan: Plan, width: usize, size: usize) -> Self {
        let steps = plan.steps;
        let mut streams: Vec<(Way, Vec<u32>)> = Vec::new();
        let mut needs = [0; 3];
        for (number, step) in (0_u32..).zip(&steps) {
            let (way, from, into) = match step.action {
                Action::Send { peer, from } => (Way::To(peer), Some(from), None),
                Action::Receive { peer, into } => (Way::From(peer), None, Some(into)),
                Action::Combine { peer, into, own, .. } => (Way::From(peer), Some(own), Some(into)),
                Action::Copy { from, into } | Action::Merge { from, into, .. } => {
                    (Way::Here, Some(from), Some(into))
                }
            };
            assert!(into.is_none_or(|it| it.space != Space::Send), "what is sent is not written");
            for place in from.into_iter().chain(into) {
                let need = &mut needs[place.space as usize];
                *need = (*need).max(place.offset + step.len);
            }
            match streams.iter_mut().find(|(it, _)| *it == way) {
                Some((_, numbers)) => numbers.push(number),
                None => streams.push((way, vec![number])),
            }
        }
        // Sending first: the others wait for it.
        streams.sort_by_key(|(way, _)| match way {
            Way::To(_) => 0,
            Way::From(_) => 1,
            Way::Here => 2,
        });
        let mut queue = Vec::with_capacity(steps.len());
        let streams = streams
            .into_iter()
            .map(|(way, numbers)| {
                let begin = queue.len();
                queue.extend(numbers);
                Stream { way, steps: begin..queue.len() }
            })
            .collect();
        Self { steps, queue, streams, needs, width, size }
    }

    /// All steps.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The numbers of the steps, stream by stream.
    pub(crate) fn queue(&self) -> &[u32] {
        &self.queue
    }

    /// The streams: those out, those in, the rank's own.
    pub(crate) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Bytes it touches in a space.
    pub(crate) fn needs(&self, space: Space) -> usize {
        self.needs[space as usize]
    }

    /// Bytes of an element.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Ranks whose data are combined.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

type Maker = fn(&mut Plan, &Shape, &Layout);

fn maker(kind: Kind, algorithm: Algorithm) -> Option<Maker> {
    use Algorithm::{Doubling, Halving, Linear, Ring, Tree};
    Some(match (kind, algorithm) {
        (Kind::AllReduce, Ring) => ring::all_reduce,
        (Kind::AllReduce, Tree) => tree::all_reduce,
        (Kind::AllReduce, Doubling) => doubling::all_reduce,
        (Kind::AllReduce, Halving) => halving::all_reduce,
        (Kind::AllReduce, Linear) => linear::all_reduce,
        (Kind::AllGather, Ring) => ring::all_gather,
        (Kind::AllGather, Doubling) => doubling::all_gather,
        (Kind::AllGather, Linear) => linear::all_gather,
        (Kind::ReduceScatter, Ring) => ring::reduce_scatter,
        (Kind::ReduceScatter, Halving) => halving::reduce_scatter,
        (Kind::ReduceScatter, Linear) => linear::reduce_scatter,
        (Kind::Broadcast, Ring) => ring::broadcast,
        (Kind::Broadcast, Tree) => tree::broadcast,
        (Kind::Broadcast, Linear) => linear::broadcast,
        (Kind::Reduce, Ring) => ring::reduce,
        (Kind::Reduce, Tree) => tree::reduce,
        (Kind::Reduce, Linear) => linear::reduce,
        (Kind::Gather, Tree) => tree::gather,
        (Kind::Gather, Linear) => linear::gather,
        (Kind::Scatter, Tree) => tree::scatter,
        (Kind::Scatter, Linear) => linear::scatter,
        (Kind::AllToAll, Linear) => linear::all_to_all,
        (Kind::SendReceive { .. }, Linear) => linear::send_receive,
        (Kind::Barrier, Doubling) => doubling::barrier,
        _ => return None,
    })
}

/// One rank has everything already.
fn alone(plan: &mut Plan, shape: &Shape) {
    let (_, len) = shape.lengths(1);
    plan.add(Action::Copy { from: Place::send(0), into: Place::receive(0) }, len, Mark::NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: Kind, algorithm: Algorithm, rank: usize, size: usize, count: usize) -> Schedule {
        let shape = Shape { kind, algorithm, rank, root: 0, count, width: 4, chunk: CHUNK };
        Schedule::new(&shape, &Layout::one_host(size)).expect("served")
    }

    fn bytes_sent(schedule: &Schedule) -> usize {
        let sent = |it: &Step| matches!(it.action, Action::Send { .. }).then_some(it.len);
        schedule.steps().iter().filter_map(sent).sum()
    }

    fn peers(schedule: &Schedule) -> usize {
        schedule.streams().iter().filter(|it| matches!(it.way, Way::To(_))).count()
    }

    #[test]
    fn ring_and_halving_send_as_little_as_can_be() {
        for size in [2, 4, 8, 16] {
            let count = 1024 * size;
            for rank in 0..size {
                for algorithm in [Algorithm::Ring, Algorithm::Halving] {
                    let all_reduce = schedule(Kind::AllReduce, algorithm, rank, size, count);
                    assert_eq!(bytes_sent(&all_reduce), 2 * (size - 1) * count * 4 / size);
                    let reduce_scatter = schedule(Kind::ReduceScatter, algorithm, rank, size, 1024);
                    assert_eq!(bytes_sent(&reduce_scatter), (size - 1) * 1024 * 4);
                }
                for algorithm in [Algorithm::Ring, Algorithm::Doubling] {
                    let all_gather = schedule(Kind::AllGather, algorithm, rank, size, 1024);
                    assert_eq!(bytes_sent(&all_gather), (size - 1) * 1024 * 4);
                }
            }
        }
        for size in [3, 5, 7] {
            let sent = (0..size)
                .map(|it| bytes_sent(&schedule(Kind::AllReduce, Algorithm::Ring, it, size, 1000 * size)));
            assert_eq!(sent.sum::<usize>(), 2 * (size - 1) * 1000 * size * 4);
        }
    }

    #[test]
    fn doubling_takes_a_logarithm_of_steps() {
        for size in 2..40_usize {
            let steps = size.next_power_of_two().ilog2() as usize;
            for rank in 0..size {
                assert_eq!(peers(&schedule(Kind::AllGather, Algorithm::Doubling, rank, size, 10)), steps);
                assert_eq!(peers(&schedule(Kind::Barrier, Algorithm::Doubling, rank, size, 0)), steps);
                if size.is_power_of_two() {
                    assert_eq!(peers(&schedule(Kind::AllReduce, Algorithm::Doubling, rank, size, 10)), steps);
                }
            }
        }
    }

    #[test]
    fn large_calls_have_few_steps_and_pass_through_little_memory() {
        let kinds = [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::Broadcast, Kind::Reduce];
        for (size, most) in [(2, 13_000), (8, 70_000)] {
            for kind in kinds {
                for algorithm in Algorithm::ALL.into_iter().filter(|it| it.serves(kind)) {
                    let shape =
                        Shape { kind, algorithm, rank: 1, root: 0, count: 1 << 28, width: 4, chunk: CHUNK };
                    let Some(schedule) = Schedule::new(&shape, &Layout::one_host(size)) else { continue };
                    assert!(schedule.steps().len() <= most, "{kind:?} {algorithm}");
                    if matches!(algorithm, Algorithm::Ring | Algorithm::Tree) {
                        assert!(schedule.needs(Space::Scratch) <= 4 * CHUNK, "{kind:?} {algorithm}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_serve_has_no_schedule() {
        let shape = Shape {
            kind: Kind::AllToAll,
            algorithm: Algorithm::Ring,
            rank: 0,
            root: 0,
            count: 1,
            width: 4,
            chunk: CHUNK,
        };
        assert_eq!(Schedule::new(&shape, &Layout::one_host(2)), None);
        let linear = Shape { algorithm: Algorithm::Linear, ..shape };
        assert!(Schedule::new(&linear, &Layout::one_host(2)).is_some());
        assert_eq!(Schedule::new(&Shape { root: 2, ..linear }, &Layout::one_host(2)), None);
        let to_itself = Kind::SendReceive { to: 0, from: 1 };
        assert_eq!(Schedule::new(&Shape { kind: to_itself, ..linear }, &Layout::one_host(2)), None);
    }
}
