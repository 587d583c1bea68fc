//! Compares every algorithm with a simple reference: all ranks in one thread, over streams with tiny buffers.

mod memory_links;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use self::memory_links::{Ends, MemoryLinks, Random, Shared};
use super::*;
use crate::schedule::{Algorithm, CHUNK, Kind, Layout, Shape};
use crate::wait::{AbortFlag, WaitPolicy};
use crate::{DataType, Error};

#[derive(Debug, Clone)]
struct Case {
    kind: Kind,
    algorithm: Algorithm,
    /// The host of every rank.
    hosts: Vec<usize>,
    root: usize,
    count: usize,
    what: ReduceOp,
    in_place: bool,
    chunk: usize,
    capacity: usize,
    grain: usize,
    seed: u64,
}

impl Case {
    fn shape(&self, rank: usize) -> Shape {
        let size = self.hosts.len();
        let kind = match self.kind {
            // As nccl-tests does it: around the ring, by as many positions as the root says.
            Kind::SendReceive { .. } => {
                Kind::SendReceive { to: (rank + self.root) % size, from: (rank + size - self.root) % size }
            }
            kind => kind,
        };
        Shape {
            kind,
            algorithm: self.algorithm,
            rank,
            root: self.root,
            count: self.count,
            width: self.what.data.size(),
            chunk: self.chunk,
        }
    }

    /// Element `i` of what a rank sends: small, so that sums are exact in every type, and averages whole.
    fn value(&self, rank: usize, i: usize) -> usize {
        let value = (rank * 5 + i * 3 + i / 7) % 4;
        if self.what.operation == Operation::Avg { value * self.hosts.len() } else { value }
    }

    fn combined(&self, i: usize) -> usize {
        let values = (0..self.hosts.len()).map(|it| self.value(it, i));
        match self.what.operation {
            Operation::Sum => values.sum(),
            Operation::Prod => values.product(),
            Operation::Min => values.min().unwrap_or(0),
            Operation::Max => values.max().unwrap_or(0),
            Operation::Avg => values.sum::<usize>() / self.hosts.len(),
        }
    }

    /// What a rank must have received.
    fn expected(&self, rank: usize) -> Vec<usize> {
        let (n, count) = (self.hosts.len(), self.count);
        match self.shape(rank).kind {
            Kind::AllReduce => (0..count).map(|it| self.combined(it)).collect(),
            Kind::Reduce if rank == self.root => (0..count).map(|it| self.combined(it)).collect(),
            Kind::ReduceScatter => (0..count).map(|it| self.combined(rank * count + it)).collect(),
            Kind::AllGather => (0..n * count).map(|it| self.value(it / count, it % count)).collect(),
            Kind::Gather if rank == self.root => {
                (0..n * count).map(|it| self.value(it / count, it % count)).collect()
            }
            Kind::Broadcast => (0..count).map(|it| self.value(self.root, it)).collect(),
            Kind::Scatter => (0..count).map(|it| self.value(self.root, rank * count + it)).collect(),
            Kind::AllToAll => {
                (0..n * count).map(|it| self.value(it / count, rank * count + it % count)).collect()
            }
            Kind::SendReceive { from, .. } => (0..count).map(|it| self.value(from, it)).collect(),
            Kind::Barrier | Kind::Reduce | Kind::Gather => Vec::new(),
        }
    }

    fn encoded(&self, values: impl IntoIterator<Item = usize>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values {
            let value = u16::try_from(value).expect("small");
            match self.what.data {
                DataType::Int8 | DataType::Uint8 => bytes.push(value.to_le_bytes()[0]),
                DataType::Int32 | DataType::Uint32 => bytes.extend(u32::from(value).to_ne_bytes()),
                DataType::Int64 | DataType::Uint64 => bytes.extend(u64::from(value).to_ne_bytes()),
                DataType::Half => bytes.extend(crate::f16::from_f32(f32::from(value)).to_ne_bytes()),
                DataType::Bfloat16 => bytes.extend(crate::bf16::from_f32(f32::from(value)).to_ne_bytes()),
                DataType::Float => bytes.extend(f32::from(value).to_ne_bytes()),
                DataType::Double => bytes.extend(f64::from(value).to_ne_bytes()),
            }
        }
        bytes
    }

    /// Runs it on all ranks and compares.
    fn check(&self) {
        let n = self.hosts.len();
        let layout = Layout::new(&self.hosts);
        let width = self.what.data.size();
        let shapes: Vec<_> = (0..n).map(|it| self.shape(it)).collect();
        let schedules: Vec<_> =
            shapes.iter().map(|it| Schedule::new(it, &layout).expect("supported")).collect();
        let mut buffers: Vec<[Lines; 2]> = Vec::new();
        for (rank, shape) in shapes.iter().enumerate() {
            let Lengths { send, receive } = shape.lengths(n);
            let data = self.encoded((0..send / width).map(|it| self.value(rank, it)));
            let mut pair = [Lines::default(), Lines::default()];
            if self.in_place {
                let (send, receive) = shape.in_place(n);
                pair[1].reserve(send.end.max(receive.end));
                pair[1].bytes().fill(0xee);
                pair[1].bytes()[send].copy_from_slice(&data);
            } else {
                pair[0].reserve(send);
                pair[1].reserve(receive);
                pair[0].bytes().copy_from_slice(&data);
                pair[1].bytes().fill(0xee);
            }
            buffers.push(pair);
        }
        let mut links = MemoryLinks::new(n, self.capacity, self.seed);
        let mut executors: Vec<_> =
            (0..n).map(|_| Executor { grain: self.grain, ..Executor::new(2 << 20) }).collect();
        for (executor, schedule) in executors.iter_mut().zip(&schedules) {
            executor.begin(schedule);
        }
        let mut waiting: Vec<usize> = (0..n).collect();
        while !waiting.is_empty() {
            let mut progress = false;
            let first = links.random.below(waiting.len());
            waiting.rotate_left(first);
            waiting.retain(|rank| {
                let [send, receive] = &mut buffers[*rank];
                let memory = if self.in_place {
                    let (send, both) = shapes[*rank].in_place(n);
                    Memory::within(receive.bytes(), &send, &both).expect("within")
                } else {
                    Memory::apart(send.bytes(), receive.bytes())
                };
                let mut ends = Ends { rank: *rank, links: &mut links };
                let turn = executors[*rank]
                    .turn(&schedules[*rank], memory, self.what, &mut ends)
                    .expect("these links do not break");
                progress |= turn != Turn::Idle;
                turn != Turn::Done
            });
            assert!(progress, "ranks {waiting:?} wait for each other: {self:?}");
        }
        assert!(links.streams.iter().all(VecDeque::is_empty), "bytes are left: {self:?}");
        for (rank, [send, receive]) in buffers.iter_mut().enumerate() {
            let position =
                if self.in_place { shapes[rank].in_place(n).1 } else { 0..shapes[rank].lengths(n).receive };
            let want = self.encoded(self.expected(rank));
            assert!(receive.bytes()[position] == want, "rank {rank} has something else: {self:?}");
            if !self.in_place {
                let sent = self.encoded((0..send.len / width).map(|it| self.value(rank, it)));
                assert!(send.bytes() == sent, "rank {rank} sent from memory it changed: {self:?}");
            }
        }
    }
}

/// The algorithms that schedules exist for.
fn algorithms(kind: Kind) -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL
        .into_iter()
        .filter(move |it| !matches!(it, Algorithm::OneShot | Algorithm::TwoShot) && it.supports(kind))
}

const REDUCING: [Kind; 3] = [Kind::AllReduce, Kind::ReduceScatter, Kind::Reduce];
const MOVING: [Kind; 7] = [
    Kind::AllGather,
    Kind::Broadcast,
    Kind::AllToAll,
    Kind::Gather,
    Kind::Scatter,
    Kind::SendReceive { to: 0, from: 0 },
    Kind::Barrier,
];

/// More than is combined at a time, in one step.
#[test]
fn large_steps_are_combined_in_pieces() {
    for kind in REDUCING {
        for algorithm in algorithms(kind) {
            for (ranks, in_place) in [(2, false), (2, true), (3, false)] {
                Case {
                    kind,
                    algorithm,
                    hosts: (0..ranks).collect(),
                    root: 0,
                    count: (3 * PIECE + 1000) / 4 + 3,
                    what: ReduceOp { data: DataType::Float, operation: Operation::Sum },
                    in_place,
                    chunk: 4 * PIECE,
                    capacity: PIECE + 12_345,
                    grain: GRAIN,
                    seed: 7,
                }
                .check();
            }
        }
    }
}

/// One host, one host per rank, ranks dealt to two hosts, uneven hosts.
fn groupings(size: usize) -> Vec<Vec<usize>> {
    let mut all = vec![vec![0; size]];
    if size > 1 {
        all.push((0..size).collect());
        all.push((0..size).map(|it| it % 2).collect());
        all.push((0..size).map(|it| it.checked_ilog2().unwrap_or(0) as usize).collect());
    }
    all
}

fn sweep(kind: Kind) {
    const TYPES: [DataType; 5] =
        [DataType::Int32, DataType::Uint8, DataType::Double, DataType::Half, DataType::Float];
    const OPERATIONS: [Operation; 3] = [Operation::Sum, Operation::Max, Operation::Avg];
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for algorithm in algorithms(kind) {
        for size in (1..=9).chain([16, 17]) {
            for hosts in groupings(size) {
                for count in [0, 1, 2, 3, 5, 17, if size < 9 { 1000 } else { 100 }] {
                    let roots = match kind {
                        Kind::Reduce | Kind::Broadcast | Kind::Gather | Kind::Scatter => {
                            vec![0, size / 2, size - 1]
                        }
                        Kind::SendReceive { .. } => vec![0, 1 % size, size - 1],
                        _ => vec![0],
                    };
                    for root in roots {
                        for in_place in [false, true] {
                            if in_place && matches!(kind, Kind::AllToAll | Kind::SendReceive { .. }) {
                                continue;
                            }
                            let data = if kind == Kind::Barrier {
                                DataType::Uint8
                            } else {
                                TYPES[random.below(TYPES.len())]
                            };
                            let operation = match OPERATIONS[random.below(OPERATIONS.len())] {
                                Operation::Avg if data == DataType::Uint8 => Operation::Sum,
                                operation => operation,
                            };
                            Case {
                                kind,
                                algorithm,
                                hosts: hosts.clone(),
                                root,
                                count,
                                what: ReduceOp { data, operation },
                                in_place,
                                chunk: [1 + count / 8, 64, 300, CHUNK][random.below(4)],
                                capacity: [1 + count / 8, 7, 64, 4096][random.below(4)].max(1 + count / 8),
                                grain: [1, 100, GRAIN][random.below(3)],
                                seed: random.0,
                            }
                            .check();
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn all_reduce_sums() {
    sweep(Kind::AllReduce);
}

#[test]
fn other_reductions_sum() {
    sweep(Kind::ReduceScatter);
    sweep(Kind::Reduce);
}

#[test]
fn data_arrives() {
    for kind in MOVING {
        sweep(kind);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_shape_works(
        kind in prop::sample::select([&REDUCING[..], &MOVING[..]].concat()),
        choice in any::<prop::sample::Index>(),
        hosts in prop::collection::vec(0_usize..4, 1..24),
        root in any::<prop::sample::Index>(),
        count in 0_usize..600,
        data in prop::sample::select(DataType::ALL.to_vec()),
        operation in prop::sample::select(vec![Operation::Sum, Operation::Min, Operation::Max]),
        in_place: bool,
        chunk in 1_usize..2000,
        capacity in 1_usize..2000,
        grain in 1_usize..2000,
        seed: u64,
    ) {
        let algorithms: Vec<_> = algorithms(kind).collect();
        let alone = matches!(kind, Kind::AllToAll | Kind::SendReceive { .. });
        let data = if kind == Kind::Barrier { DataType::Int8 } else { data };
        Case {
            kind,
            algorithm: algorithms[choice.index(algorithms.len())],
            root: root.index(hosts.len()),
            hosts,
            count,
            what: ReduceOp { data, operation },
            in_place: in_place && !alone,
            chunk,
            capacity,
            grain,
            seed,
        }
        .check();
    }
}

/// Runs an `all_reduce` of floats on all ranks and returns what each has.
fn all_reduce_floats(algorithm: Algorithm, operation: Operation, inputs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    let n = inputs.len();
    let layout = Layout::one_host(n);
    let links = Mutex::new(MemoryLinks::new(n, 256, 7));
    let waiter = waiter(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..n)
            .map(|rank| {
                let (layout, links, waiter) = (&layout, &links, &waiter);
                scope.spawn(move || {
                    let shape = Shape {
                        kind: Kind::AllReduce,
                        algorithm,
                        rank,
                        root: 0,
                        count: inputs[rank].len(),
                        width: 4,
                        chunk: 64,
                    };
                    let schedule = Schedule::new(&shape, layout).expect("supported");
                    let bytes: Vec<u8> = inputs[rank].iter().flat_map(|it| it.to_ne_bytes()).collect();
                    let mut data = Lines::default();
                    data.reserve(bytes.len());
                    data.bytes().copy_from_slice(&bytes);
                    let whole = 0..bytes.len();
                    let memory = Memory::within(data.bytes(), &whole, &whole).expect("within");
                    Executor::new(2 << 20)
                        .run(
                            &schedule,
                            memory,
                            ReduceOp { data: DataType::Float, operation },
                            &mut Shared { rank, links },
                            waiter,
                        )
                        .expect("it is not stopped");
                    data.bytes()
                        .chunks_exact(4)
                        .map(|it| u32::from_ne_bytes(it.try_into().expect("four")))
                        .collect()
                })
            })
            .collect();
        ranks.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

fn waiter(timeout: Duration) -> Waiter {
    Waiter { abort_flag: Arc::new(AbortFlag::default()), policy: WaitPolicy::Yield, timeout }
}

#[test]
fn all_ranks_have_the_same_bits() {
    let mut random = Random(11);
    for n in [2, 3, 4, 5, 7] {
        let inputs: Vec<Vec<f32>> = (0..n)
            .map(|_| {
                (0..50)
                    .map(|_| match random.below(12) {
                        0 => -0.0,
                        1 => 0.0,
                        2 => f32::NAN,
                        it => {
                            1.0 / (1.0 + f32::from(u16::try_from(random.below(9999) + it).expect("16 bits")))
                        }
                    })
                    .collect()
            })
            .collect();
        for algorithm in algorithms(Kind::AllReduce) {
            for operation in Operation::ALL {
                let results = all_reduce_floats(algorithm, operation, &inputs);
                assert!(results.iter().all(|it| *it == results[0]), "{algorithm} {operation} {n}");
            }
        }
    }
}

fn pair(count: usize) -> Schedule {
    let shape = Shape {
        kind: Kind::AllReduce,
        algorithm: Algorithm::Doubling,
        rank: 0,
        root: 0,
        count,
        width: 1,
        chunk: CHUNK,
    };
    Schedule::new(&shape, &Layout::one_host(2)).expect("supported")
}

fn stopped(links: &mut impl Links, waiter: &Waiter) -> Stopped {
    let mut data = [1_u8; 100];
    let memory = Memory::within(&mut data, &(0..100), &(0..100)).expect("within");
    Executor::new(2 << 20)
        .run(&pair(100), memory, ReduceOp { data: DataType::Uint8, operation: Operation::Sum }, links, waiter)
        .expect_err("nobody answers")
}

#[test]
fn a_silent_peer_is_named() {
    let mut links = MemoryLinks::new(2, 1000, 1);
    let mut ends = Ends { rank: 0, links: &mut links };
    assert!(matches!(stopped(&mut ends, &waiter(Duration::from_millis(1))), Stopped::TimedOut { peer: 1 }));
    // One that takes nothing, too.
    let mut links = MemoryLinks::new(2, 0, 1);
    let mut ends = Ends { rank: 0, links: &mut links };
    assert!(matches!(stopped(&mut ends, &waiter(Duration::from_millis(1))), Stopped::TimedOut { peer: 1 }));
}

#[test]
fn an_abort_ends_it() {
    let waiter = waiter(Duration::from_secs(60));
    waiter.abort_flag.raise(Error::new(crate::Cause::Died, "a test", "its process ended"));
    let mut links = MemoryLinks::new(2, 1000, 1);
    assert!(matches!(stopped(&mut Ends { rank: 0, links: &mut links }, &waiter), Stopped::Aborted));
}

#[test]
fn a_broken_stream_ends_it() {
    struct Broken;
    impl Links for Broken {
        fn send(&mut self, _peer: usize, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn receive(&mut self, _peer: usize, _into: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
    let stopped = stopped(&mut Broken, &waiter(Duration::from_secs(60)));
    assert!(
        matches!(stopped, Stopped::Link { peer: 1, error } if error.kind() == io::ErrorKind::UnexpectedEof)
    );
}
