//! Every collective, type, operation, algorithm and path against a plain reference.
//!
//! Ranks are threads here, each with a communicator of its own: they meet, find paths and move data as processes do.

use std::thread;
use std::time::Duration;

use collective::{
    Algorithm, Cause, Communicator, DataType, Element, Error, Operation, Options, Rendezvous,
    RendezvousListener, Token, Transport, bf16, f16,
};

/// How a job is set up.
#[derive(Debug, Clone, Copy, Default)]
struct Setup {
    transport: Option<Transport>,
    algorithm: Option<Algorithm>,
    /// Ranks of each host; one host if empty.
    hosts: &'static [usize],
    no_cross_memory: bool,
    channels: usize,
}

/// Runs `work` on `size` ranks and returns their results.
fn job<R: Send>(size: usize, setup: Setup, work: impl Fn(&mut Communicator) -> R + Sync) -> Vec<R> {
    let token = Token::new("secret").expect("a token");
    let listener = RendezvousListener::bind([127, 0, 0, 1].into(), 0).expect("a listener");
    let port = listener.address().port();
    let mut listener = Some(listener);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let rendezvous = match listener.take() {
                    Some(listener) => Rendezvous::Listen(listener),
                    None => Rendezvous::Connect { host: "127.0.0.1".to_owned(), port },
                };
                let (token, work) = (token.clone(), &work);
                scope.spawn(move || {
                    let mut options = Options::new(rank, size, rendezvous, token);
                    options.timeout = Duration::from_secs(30);
                    options.transport = setup.transport;
                    options.algorithm = setup.algorithm;
                    options.cross_memory = !setup.no_cross_memory;
                    options.channels = setup.channels.max(1);
                    if !setup.hosts.is_empty() {
                        let mut end = 0;
                        let host = setup.hosts.iter().position(|it| {
                            end += it;
                            rank < end
                        });
                        options.host = Some(format!("host{}", host.unwrap_or(setup.hosts.len())));
                    }
                    let mut communicator = Communicator::join(options).expect("all join");
                    let result = work(&mut communicator);
                    communicator.leave().expect("all leave");
                    result
                })
            })
            .collect();
        ranks.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

/// A number type with values whose combinations are exact.
trait Number: Element {
    fn of(value: i64) -> Self;
    fn zero() -> Self {
        Self::of(0)
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
            fn of(value: i64) -> Self {
                value as $number
            }
        })*
    };
}

numbers!(i8, u8, i32, u32, i64, u64, f32, f64);

impl Number for f16 {
    fn of(value: i64) -> Self {
        f16::from_f64(f64::of(value))
    }
}

impl Number for bf16 {
    fn of(value: i64) -> Self {
        bf16::from_f64(f64::of(value))
    }
}

/// What rank `rank` has at `index`: small, and different for neighbours in both.
fn value(rank: usize, index: usize, operation: Operation) -> i64 {
    let (rank, index) = (i64::try_from(rank).expect("small"), i64::try_from(index).expect("small"));
    match operation {
        // Products of at most four twos.
        Operation::Prod => 1 + i64::from((rank + index) % 7 == 0 && rank < 8),
        // Sums that the number of ranks divides: a common value, and deltas that cancel in pairs.
        Operation::Avg => 8 + index % 5,
        _ => 1 + (3 * rank + index) % 11,
    }
}

fn expected(size: usize, index: usize, operation: Operation) -> i64 {
    let all = (0..size).map(|rank| value(rank, index, operation));
    match operation {
        Operation::Sum => all.sum(),
        Operation::Prod => all.product(),
        Operation::Min => all.min().unwrap_or(0),
        Operation::Max => all.max().unwrap_or(0),
        Operation::Avg => value(0, index, operation),
    }
}

fn inputs<T: Number>(rank: usize, len: usize, operation: Operation) -> Vec<T> {
    (0..len).map(|it| T::of(value(rank, it, operation))).collect()
}

/// Whether a call was done; a forced algorithm may refuse a collective that it cannot do.
fn done(result: Result<(), Error>, what: &str) -> bool {
    match result {
        Ok(()) => true,
        Err(error) if error.cause == Cause::Usage && error.to_string().contains(" cannot do ") => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Checks what a call did, if it ran.
fn check<T: Number>(ran: bool, got: &[T], want: impl Fn(usize) -> i64, what: &str) {
    for (index, it) in got.iter().enumerate().filter(|_| ran) {
        assert_eq!(*it, T::of(want(index)), "{what}, element {index} of {}", got.len());
    }
}

/// Memory for a collective: registered or private.
enum Space<T> {
    Registered(collective::Buffer<T>),
    Private(Vec<T>),
}

impl<T: Number> Space<T> {
    fn new(job: &mut Communicator, len: usize, registered: bool) -> Result<Self, Error> {
        Ok(if registered { Self::Registered(job.buffer(len)?) } else { Self::Private(vec![T::zero(); len]) })
    }

    fn get(&mut self) -> &mut [T] {
        match self {
            Self::Registered(it) => it,
            Self::Private(it) => it,
        }
    }

    fn set(&mut self, with: &[T]) {
        let mine = self.get();
        mine.fill(T::zero());
        mine[..with.len()].copy_from_slice(with);
    }
}

/// All nine collectives, in and out of place, for one type, operation and count.
fn all_collectives<T: Number>(job: &mut Communicator, count: usize, operation: Operation, registered: bool) {
    let (rank, size) = (job.rank(), job.size());
    let name = |what: &str| {
        format!("{what} of {count} {} {operation}, rank {rank} of {size}, registered {registered}", T::TYPE)
    };
    let part = |rank: usize, len: usize| inputs::<T>(rank, len, operation);
    let whole = count * size;
    let mut send = Space::<T>::new(job, whole, registered).expect("memory");
    let mut receive = Space::<T>::new(job, whole, registered).expect("memory");
    let root = size - 1;
    let at = |index: usize| expected(size, index, operation);
    // The value of rank `index / count`, as gathered.
    let gathered = |index: usize| value(index / count.max(1), index % count.max(1), operation);

    send.set(&part(rank, count));
    receive.set(&[]);
    let ran =
        done(job.all_reduce(&send.get()[..count], &mut receive.get()[..count], operation), "all_reduce");
    assert!(ran, "every algorithm can do all_reduce");
    check(ran, &receive.get()[..count], at, &name("all_reduce"));
    check(ran, &send.get()[..count], |it| value(rank, it, operation), &name("all_reduce's input"));
    receive.set(&part(rank, count));
    let ran = done(job.all_reduce_in_place(&mut receive.get()[..count], operation), "all_reduce");
    check(ran, &receive.get()[..count], at, &name("all_reduce in place"));

    receive.set(&[]);
    let ran = done(job.all_gather(&send.get()[..count], receive.get()), "all_gather");
    check(ran, receive.get(), gathered, &name("all_gather"));
    receive.set(&[]);
    receive.get()[rank * count..(rank + 1) * count].copy_from_slice(&part(rank, count));
    let ran = done(job.all_gather_in_place(receive.get()), "all_gather");
    check(ran, receive.get(), gathered, &name("all_gather in place"));

    send.set(&part(rank, whole));
    receive.set(&[]);
    let ran = done(job.reduce_scatter(send.get(), &mut receive.get()[..count], operation), "reduce_scatter");
    check(ran, &receive.get()[..count], |it| at(rank * count + it), &name("reduce_scatter"));
    receive.set(&part(rank, whole));
    let ran = done(job.reduce_scatter_in_place(receive.get(), operation), "reduce_scatter");
    let own = rank * count..(rank + 1) * count;
    check(ran, &receive.get()[own.clone()], |it| at(rank * count + it), &name("reduce_scatter in place"));

    for root in [0, root] {
        receive.set(&if rank == root { part(root, count) } else { Vec::new() });
        let ran = done(job.broadcast(&mut receive.get()[..count], root), "broadcast");
        check(ran, &receive.get()[..count], |it| value(root, it, operation), &name("broadcast in place"));
        send.set(&part(rank, count));
        receive.set(&[]);
        let ran =
            done(job.broadcast_from(&send.get()[..count], &mut receive.get()[..count], root), "broadcast");
        check(ran, &receive.get()[..count], |it| value(root, it, operation), &name("broadcast"));

        receive.set(&[]);
        let ran =
            done(job.reduce(&send.get()[..count], &mut receive.get()[..count], operation, root), "reduce");
        if rank == root {
            check(ran, &receive.get()[..count], at, &name("reduce"));
        }
        receive.set(&part(rank, count));
        let ran = done(job.reduce_in_place(&mut receive.get()[..count], operation, root), "reduce");
        if rank == root {
            check(ran, &receive.get()[..count], at, &name("reduce in place"));
        }

        receive.set(&[]);
        let ran = done(job.gather(&send.get()[..count], receive.get(), root), "gather");
        if rank == root {
            check(ran, receive.get(), gathered, &name("gather"));
        }
        receive.set(&[]);
        receive.get()[own.clone()].copy_from_slice(&part(rank, count));
        let ran = done(job.gather_in_place(receive.get(), root), "gather");
        if rank == root {
            check(ran, receive.get(), gathered, &name("gather in place"));
        }

        send.set(&part(root, whole));
        receive.set(&[]);
        let ran = done(job.scatter(send.get(), &mut receive.get()[..count], root), "scatter");
        let mine = |it: usize| value(root, rank * count + it, operation);
        check(ran, &receive.get()[..count], mine, &name("scatter"));
        receive.set(&if rank == root { part(root, whole) } else { Vec::new() });
        let ran = done(job.scatter_in_place(receive.get(), root), "scatter");
        check(ran, &receive.get()[own.clone()], mine, &name("scatter in place"));
    }

    send.set(&part(rank, whole));
    receive.set(&[]);
    let ran = done(job.all_to_all(send.get(), receive.get()), "alltoall");
    let exchanged =
        |index: usize| value(index / count.max(1), rank * count + index % count.max(1), operation);
    check(ran, receive.get(), exchanged, &name("alltoall"));

    receive.set(&[]);
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let ran =
        done(job.send_receive(&send.get()[..count], next, &mut receive.get()[..count], before), "sendrecv");
    check(ran, &receive.get()[..count], |it| value(before, it, operation), &name("sendrecv"));
    job.barrier().expect("barrier");
}

fn of_type(job: &mut Communicator, kind: DataType, count: usize, operation: Operation, registered: bool) {
    match kind {
        DataType::Int8 => all_collectives::<i8>(job, count, operation, registered),
        DataType::Uint8 => all_collectives::<u8>(job, count, operation, registered),
        DataType::Int32 => all_collectives::<i32>(job, count, operation, registered),
        DataType::Uint32 => all_collectives::<u32>(job, count, operation, registered),
        DataType::Int64 => all_collectives::<i64>(job, count, operation, registered),
        DataType::Uint64 => all_collectives::<u64>(job, count, operation, registered),
        DataType::Half => all_collectives::<f16>(job, count, operation, registered),
        DataType::Float => all_collectives::<f32>(job, count, operation, registered),
        DataType::Double => all_collectives::<f64>(job, count, operation, registered),
        DataType::Bfloat16 => all_collectives::<bf16>(job, count, operation, registered),
    }
}

/// Sizes that do not divide evenly: none, one, a few, more than a cache line, more than a mailbox holds.
const COUNTS: [usize; 5] = [0, 1, 3, 1_001, 20_011];

fn every_type(size: usize, setup: Setup) {
    job(size, setup, |job| {
        for (turn, kind) in DataType::ALL.into_iter().enumerate() {
            for operation in Operation::ALL {
                let count = [3, 1_001][turn % 2];
                of_type(job, kind, count, operation, turn % 3 != 0);
            }
        }
    });
}

fn every_size(size: usize, setup: Setup) {
    job(size, setup, |job| {
        // Many ranks on few cores take their time: they leave out the largest.
        for count in COUNTS.into_iter().filter(|it| size <= 4 || *it < 20_000) {
            for registered in [true, false] {
                all_collectives::<f32>(job, count, Operation::Sum, registered);
            }
        }
    });
}

const SHM: Setup = Setup {
    transport: Some(Transport::Shm),
    algorithm: None,
    hosts: &[],
    no_cross_memory: false,
    channels: 1,
};
const TCP: Setup = Setup { transport: Some(Transport::Tcp), ..SHM };

#[test]
fn every_type_and_operation_over_shared_memory() {
    for size in [1, 2, 3, 5] {
        every_type(size, SHM);
        every_type(size, Setup { no_cross_memory: true, ..SHM });
    }
}

#[test]
fn every_type_and_operation_over_tcp() {
    for size in [2, 3] {
        every_type(size, TCP);
    }
}

#[test]
fn every_size_and_number_of_ranks_over_shared_memory() {
    for size in 1..=9 {
        every_size(size, SHM);
    }
    for size in [2, 3, 8] {
        every_size(size, Setup { no_cross_memory: true, ..SHM });
    }
}

#[test]
fn every_size_and_number_of_ranks_over_tcp() {
    for size in 1..=9 {
        every_size(size, TCP);
    }
}

#[test]
fn every_algorithm_over_every_path() {
    for algorithm in Algorithm::ALL {
        let algorithm = Some(algorithm);
        let direct = matches!(algorithm, Some(Algorithm::OneShot | Algorithm::TwoShot));
        for size in [2, 3, 4, 7] {
            every_size(size, Setup { algorithm, ..SHM });
            if direct {
                every_size(size, Setup { algorithm, no_cross_memory: true, ..SHM });
            } else {
                every_size(size, Setup { algorithm, ..TCP });
            }
        }
    }
}

#[test]
fn uneven_hosts_and_both_paths_at_once() {
    for hosts in [&[1, 1][..], &[2, 1], &[3, 2, 1], &[1, 4, 2]] {
        let hosts: &'static [usize] = hosts;
        every_size(hosts.iter().sum(), Setup { transport: None, hosts, ..SHM });
    }
    for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Doubling, Algorithm::Halving] {
        let setup = Setup { transport: None, hosts: &[2, 3, 1], algorithm: Some(algorithm), ..SHM };
        every_size(6, setup);
    }
}

#[test]
fn several_channels_divide_large_calls() {
    for setup in [Setup { channels: 3, ..TCP }, Setup { transport: None, hosts: &[2, 1], channels: 2, ..SHM }]
    {
        job(3, setup, |job| {
            let count = 700_001;
            let mut data: Vec<f32> = inputs(job.rank(), count, Operation::Sum);
            job.all_reduce_in_place(&mut data, Operation::Sum).expect("all_reduce");
            check(true, &data, |it| expected(3, it, Operation::Sum), "all_reduce on channels");
            job.broadcast(&mut data, 1).expect("broadcast");
        });
    }
}

#[test]
fn buffers_that_are_gone_are_forgotten() {
    job(3, SHM, |job| {
        for turn in 1..20 {
            let mut buffer = job.buffer::<f64>(5_000 * turn).expect("memory");
            buffer.fill(1.0);
            job.all_reduce_in_place(&mut buffer, Operation::Sum).expect("all_reduce");
            assert!(buffer.iter().all(|it| (*it - 3.0).abs() < 1e-12), "turn {turn}");
        }
    });
}

#[test]
fn large_sums_are_right_everywhere() {
    for setup in [SHM, Setup { no_cross_memory: true, ..SHM }, TCP] {
        job(2, setup, |job| {
            for registered in [true, false] {
                let count = 3_000_017;
                let mut send = Space::<f32>::new(job, count, registered).expect("memory");
                let mut receive = Space::<f32>::new(job, count, registered).expect("memory");
                send.set(&inputs(job.rank(), count, Operation::Sum));
                job.all_reduce(send.get(), receive.get(), Operation::Sum).expect("all_reduce");
                check(true, receive.get(), |it| expected(2, it, Operation::Sum), "a large sum");
            }
        });
    }
}

#[test]
fn floats_come_out_the_same_on_every_rank() {
    for setup in [SHM, TCP, Setup { transport: None, hosts: &[2, 3], ..SHM }] {
        let all = job(5, setup, |job| {
            let mut data: Vec<f32> = (0..30_011_u16)
                .map(|it| {
                    1.0 / (1.0 + f32::from(it)) * 1.7_f32.powi(i32::try_from(job.rank()).expect("small"))
                })
                .collect();
            job.all_reduce_in_place(&mut data, Operation::Sum).expect("all_reduce");
            data.iter().map(|it| it.to_bits()).collect::<Vec<u32>>()
        });
        assert!(all.iter().all(|it| *it == all[0]));
    }
}

#[test]
fn invalid_calls_are_refused() {
    let both = job(2, SHM, |job| {
        let error = job.all_reduce(&[1.0_f32], &mut [0.0; 2], Operation::Sum).expect_err("unequal");
        let root = job.broadcast(&mut [1_i32], 2).expect_err("no rank 2");
        (error.to_string(), root.to_string())
    });
    assert!(both[0].0.contains("1 elements on one side and 2 on the other"), "{}", both[0].0);
    assert!(both[0].1.contains("root 2 does not exist: the job has 2 ranks"), "{}", both[0].1);
}

#[test]
fn buffers_may_be_registered_in_one_call_and_private_in_the_next() {
    for count in [256, 1024, 4096] {
        job(3, SHM, |job| {
            let (rank, size) = (job.rank(), job.size());
            let [mut shared, mut own] =
                [true, false].map(|registered| Space::<f32>::new(job, count, registered).expect("memory"));
            // Long runs of either, and a mixture.
            for call in 0..300_usize {
                let registered = if call < 150 { call / 50 % 2 == 1 } else { call % 3 == 0 || call % 7 == 1 };
                let space = if registered { &mut shared } else { &mut own };
                space.set(&inputs(rank + call, count, Operation::Sum));
                job.all_reduce_in_place(space.get(), Operation::Sum).expect("all_reduce");
                let want = |index: usize| -> i64 {
                    (0..size).map(|of| value(of + call, index, Operation::Sum)).sum()
                };
                check(true, space.get(), want, &format!("call {call}"));
            }
        });
    }
}
