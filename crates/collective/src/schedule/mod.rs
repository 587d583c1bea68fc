//! Schedules: every algorithm as a pure function from a call to the steps of a rank.
//!
//! A schedule does not depend on the transport: the executor runs it over shared memory, TCP, or both. It does not depend
//! on whether the call is in place either: no step writes what a later one still reads, if the buffers overlap as in
//! NCCL's calls in place.
//!
//! No schedule can deadlock: the steps of all ranks have an order in which everything that a step waits for, and every step
//! before it on its stream, comes earlier. So the first unfinished step can always proceed, however little the streams
//! buffer.

mod algorithm;
mod doubling;
mod fold;
mod halving;
mod layout;
mod linear;
mod parent_child;
mod ring;
mod step;
mod tree;

use std::ops::Range;

pub use algorithm::Algorithm;
pub(crate) use algorithm::Kind;
pub(crate) use layout::Layout;
pub(crate) use step::{Action, Hand, Location, Space, Step};

use step::{Dependency, Plan};

/// Bytes of a piece if a schedule has to cut: intermediate results that are forwarded, and two trees that share a stream.
pub(crate) const CHUNK: usize = 256 << 10;
/// The most pieces: larger calls have larger pieces.
const PIECES: usize = 4096;

/// What the schedule of a call depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) algorithm: Algorithm,
    pub(crate) rank: usize,
    /// The root, for collectives that have one.
    pub(crate) root: usize,
    /// Elements, counted as in NCCL: what a rank sends in `AllGather`, `Gather` and `AllToAll` (to each), what
    /// it receives in `ReduceScatter` and `Scatter`, the whole in the others.
    pub(crate) count: usize,
    /// Bytes of an element.
    pub(crate) width: usize,
    /// Bytes of a piece: [`CHUNK`], except in tests.
    pub(crate) chunk: usize,
}

/// Bytes of the two buffers of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) send: usize,
    pub(crate) receive: usize,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    offset: usize,
    len: usize,
}

impl Shape {
    /// Whether it is valid in a job of this many ranks.
    fn is_valid(&self, size: usize) -> bool {
        let peers = match self.kind {
            // A rank that sends to itself receives from itself.
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

    /// Bytes of the buffers of this rank.
    pub(crate) fn lengths(&self, size: usize) -> Lengths {
        let (one, all) = (self.bytes(), self.bytes() * size);
        let at_root = |bytes| if self.rank == self.root { bytes } else { 0 };
        let (send, receive) = match self.kind {
            Kind::AllReduce | Kind::SendReceive { .. } => (one, one),
            Kind::AllGather => (one, all),
            Kind::ReduceScatter => (all, one),
            Kind::AllToAll => (all, all),
            Kind::Broadcast => (at_root(one), one),
            Kind::Reduce => (one, at_root(one)),
            Kind::Gather => (one, at_root(all)),
            Kind::Scatter => (at_root(all), one),
            Kind::Barrier => (0, 0),
        };
        Lengths { send, receive }
    }

    /// The ranges of the send and the receive buffer in one buffer, if the call is in place.
    #[cfg(test)]
    pub(crate) fn in_place(&self, size: usize) -> (Range<usize>, Range<usize>) {
        let Lengths { send, receive } = self.lengths(size);
        let own = self.rank * self.bytes();
        match self.kind {
            Kind::AllGather => (own..own + send, 0..receive),
            Kind::ReduceScatter => (0..send, own..own + receive),
            Kind::Gather if self.rank == self.root => (own..own + send, 0..receive),
            Kind::Scatter if self.rank == self.root => (0..send, own..own + receive),
            _ => (0..send, 0..receive),
        }
    }

    /// Cuts `len` bytes into at most `most` pieces of at least `chunk`.
    fn pieces(&self, len: usize, most: usize) -> impl Iterator<Item = Piece> + use<> {
        let width = self.width;
        let least = len.div_ceil(most).max(self.chunk).max(1);
        let piece = least.div_ceil(width) * width;
        (0..len.div_ceil(piece)).map(move |it| Piece { offset: it * piece, len: piece.min(len - it * piece) })
    }

    /// Part `part` of `parts` nearly equal ones.
    ///
    /// Large parts start at multiples of a cache line.
    fn part(&self, part: usize, parts: usize) -> Piece {
        const LINE: usize = 64;
        let grain = if self.bytes() / parts >= 64 * LINE { LINE / self.width } else { 1 };
        let cut = |it: usize| if it == parts { self.count } else { self.count / grain * it / parts * grain };
        let (begin, end) = (cut(part) * self.width, cut(part + 1) * self.width);
        Piece { offset: begin, len: end - begin }
    }
}

/// The steps with one peer in one direction, or those within this rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) direction: Direction,
    /// A range of [`Schedule::queue`].
    pub(crate) steps: Range<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    To(usize),
    From(usize),
    Local,
}

/// The steps of one rank in one call. It can be run several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    steps: Vec<Step>,
    /// The numbers of the steps, stream by stream.
    queue: Vec<u32>,
    streams: Vec<Stream>,
    /// Bytes of each memory, by [`Space`].
    needs: [usize; 3],
    /// Bytes of an element.
    width: usize,
    /// The number of ranks of the job.
    size: usize,
}

impl Schedule {
    /// `None` if the algorithm does not support the collective, or the shape is invalid.
    pub(crate) fn new(shape: &Shape, layout: &Layout) -> Option<Self> {
        let size = layout.size();
        if !shape.algorithm.supports(shape.kind) || !shape.is_valid(size) {
            return None;
        }
        let mut plan = Plan::default();
        if size == 1 {
            alone(&mut plan, shape);
        } else {
            let generate = generator(shape.kind, shape.algorithm)?;
            generate(&mut plan, shape, layout);
        }
        Some(Self::from(plan, shape.width, size))
    }

    fn from(plan: Plan, width: usize, size: usize) -> Self {
        let steps = plan.steps;
        let mut streams: Vec<(Direction, Vec<u32>)> = Vec::new();
        let mut needs = [0; 3];
        for (number, step) in (0_u32..).zip(&steps) {
            let (direction, from, into) = match step.action {
                Action::Send { peer, from } => (Direction::To(peer), Some(from), None),
                Action::Receive { peer, into } => (Direction::From(peer), None, Some(into)),
                Action::Combine { peer, into, own, .. } => (Direction::From(peer), Some(own), Some(into)),
                Action::Copy { from, into } | Action::Merge { from, into, .. } => {
                    (Direction::Local, Some(from), Some(into))
                }
            };
            assert!(into.is_none_or(|it| it.space != Space::Send), "what is sent is not written");
            for position in from.into_iter().chain(into) {
                let need = &mut needs[position.space as usize];
                *need = (*need).max(position.offset + step.len);
            }
            match streams.iter_mut().find(|(it, _)| *it == direction) {
                Some((_, numbers)) => numbers.push(number),
                None => streams.push((direction, vec![number])),
            }
        }
        // Sends first: other ranks wait for them.
        streams.sort_by_key(|(direction, _)| match direction {
            Direction::To(_) => 0,
            Direction::From(_) => 1,
            Direction::Local => 2,
        });
        let mut queue = Vec::with_capacity(steps.len());
        let streams = streams
            .into_iter()
            .map(|(direction, numbers)| {
                let begin = queue.len();
                queue.extend(numbers);
                Stream { direction, steps: begin..queue.len() }
            })
            .collect();
        Self { steps, queue, streams, needs, width, size }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The numbers of the steps, stream by stream.
    pub(crate) fn queue(&self) -> &[u32] {
        &self.queue
    }

    /// First those that send, then those that receive, then the local one.
    pub(crate) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Bytes that it accesses in a memory.
    pub(crate) fn needs(&self, space: Space) -> usize {
        self.needs[space as usize]
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

type Generator = fn(&mut Plan, &Shape, &Layout);

fn generator(kind: Kind, algorithm: Algorithm) -> Option<Generator> {
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

/// A job of one rank.
fn alone(plan: &mut Plan, shape: &Shape) {
    let len = shape.lengths(1).receive;
    plan.add(Action::Copy { from: Location::send(0), into: Location::receive(0) }, len, Dependency::NONE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: Kind, algorithm: Algorithm, rank: usize, size: usize, count: usize) -> Schedule {
        let shape = Shape { kind, algorithm, rank, root: 0, count, width: 4, chunk: CHUNK };
        Schedule::new(&shape, &Layout::one_host(size)).expect("supported")
    }

    fn bytes_sent(schedule: &Schedule) -> usize {
        let sent = |it: &Step| matches!(it.action, Action::Send { .. }).then_some(it.len);
        schedule.steps().iter().filter_map(sent).sum()
    }

    fn peers(schedule: &Schedule) -> usize {
        schedule.streams().iter().filter(|it| matches!(it.direction, Direction::To(_))).count()
    }

    #[test]
    fn ring_and_halving_send_the_fewest_bytes() {
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
    fn large_calls_have_few_steps_and_little_scratch() {
        let kinds = [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::Broadcast, Kind::Reduce];
        for (size, most) in [(2, 13_000), (8, 70_000)] {
            for kind in kinds {
                for algorithm in Algorithm::ALL.into_iter().filter(|it| it.supports(kind)) {
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
    fn unsupported_calls_have_no_schedule() {
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
