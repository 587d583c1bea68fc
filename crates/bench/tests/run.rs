//! The loop over an engine that answers with chosen times, and one that makes mistakes.

#![cfg(target_os = "linux")]
#![expect(clippy::cast_precision_loss, reason = "the numbers are small")]

use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::time::Duration;

use bench::engines::{self, Call, Engine, Event, Found, Part, Side};
use bench::{Average, Cause, DataType, Device, EngineKind, Failure, Operation, Plan, Run, Sizes, Step};
use collective::{Communicator, Options, Rendezvous, RendezvousListener, Token};
use fabric::Collective;

/// One rank, which receives what it sends.
struct Fake {
    control: Communicator,
    devices: Vec<Device>,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// The call after which the last byte of the result is changed.
    mistake: Option<usize>,
    calls: Vec<(Call, usize)>,
}

impl Fake {
    fn new(mistake: Option<usize>) -> Self {
        let listener = RendezvousListener::bind(Ipv4Addr::LOCALHOST.into(), 0).expect("a port");
        let options = Options::new(0, 1, Rendezvous::Listen(listener), Token::new("secret").expect("valid"));
        Self::over(Communicator::join(options).expect("one rank meets itself"), mistake)
    }

    fn over(control: Communicator, mistake: Option<usize>) -> Self {
        let device =
            Device { rank: 0, pid: 1, host: "here".into(), device: 0, bus: None, name: "nothing".into() };
        Self {
            control,
            devices: vec![device],
            send: Vec::new(),
            receive: Vec::new(),
            mistake,
            calls: Vec::new(),
        }
    }
}

impl Engine for Fake {
    fn kind(&self) -> EngineKind {
        EngineKind::Host
    }

    fn version(&self) -> String {
        "fake 1".to_owned()
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn control(&mut self) -> &mut Communicator {
        &mut self.control
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
        (self.send, self.receive) = (vec![0; bytes], vec![0; bytes]);
        Ok(())
    }

    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        let memory = if side == Side::Send { &mut self.send } else { &mut self.receive };
        memory[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        let memory = if side == Side::Send { &self.send } else { &self.receive };
        into.copy_from_slice(&memory[offset..offset + into.len()]);
        Ok(())
    }

    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
        let bytes = call.count * call.data_type.size();
        if !call.in_place {
            self.receive[..bytes].copy_from_slice(&self.send[..bytes]);
        }
        self.calls.push((*call, repeat));
        if self.mistake.is_some_and(|it| self.calls.len() >= it) && bytes > 0 {
            self.receive[bytes - 1] ^= 0x40;
        }
        Ok((1e-6 + bytes as f64 / 1e9) * repeat as f64)
    }
}

fn plan(collective: Collective) -> Plan {
    let mut plan = Plan::new(collective);
    plan.sizes = Sizes { from: 8, to: 4096, step: Step::Factor(8) };
    plan.apart = Duration::ZERO;
    plan
}

fn run(plan: &Plan, fake: &mut Fake) -> Run {
    engines::run(plan, fake, &mut |_| ControlFlow::Continue(())).expect("a run")
}

#[test]
fn times_are_those_of_the_engine() {
    let mut fake = Fake::new(None);
    let mut seen = Vec::new();
    let mut observe = |it: Event<'_>| {
        match it {
            Event::Ready(devices) => assert_eq!(devices.len(), 1),
            Event::Size { bytes, done, total } => seen.push((bytes, done, total)),
            Event::Row(row) => assert_eq!(row.bytes, seen.last().expect("a size").0),
            Event::Repeat { .. } => panic!("no repeats are planned"),
            Event::CheckedOnHost { .. } => panic!("the host's memory is compared on the host"),
        }
        ControlFlow::Continue(())
    };
    let run = engines::run(&plan(Collective::AllReduce), &mut fake, &mut observe).expect("a run");
    assert_eq!(seen, [(8, 0, 4), (64, 1, 4), (512, 2, 4), (4096, 3, 4)]);
    assert_eq!(run.wrong, None);
    for row in &run.rows {
        for timing in [&row.out_of_place, &row.in_place].map(|it| it.as_ref().expect("both")) {
            let expected = 1e-6 + row.bytes as f64 / 1e9;
            assert!((timing.seconds / expected - 1.0).abs() < 1e-9);
            assert!((timing.median() / expected - 1.0).abs() < 1e-9);
            assert_eq!((timing.wrong, timing.slowest(), timing.ranks.len()), (Some(0), Some(0), 1));
            assert!(timing.iterations >= 20 && timing.seconds * timing.iterations as f64 >= 0.019);
        }
    }
}

#[test]
fn sizes_are_measured_again_after_all_of_them() {
    for collective in Collective::ALL {
        let mut plan = plan(collective);
        (plan.repeats, plan.cycles, plan.iterations) = (3, 2, Some(20));
        let mut fake = Fake::new(None);
        let mut repeats = Vec::new();
        let mut observe = |it: Event<'_>| {
            match it {
                Event::Repeat { number, total } => repeats.push((number, total)),
                Event::Row(_) => assert!(repeats.is_empty(), "rows come first"),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let run = engines::run(&plan, &mut fake, &mut observe).expect("a run");
        assert_eq!(repeats, [(0, 3), (1, 3), (2, 3)]);
        for row in &run.rows {
            for timing in [&row.out_of_place, &row.in_place].into_iter().flatten() {
                let wanted = if row.cycle == 0 { vec![timing.seconds; 3] } else { Vec::new() };
                assert_eq!(timing.repeats.len(), wanted.len(), "{collective}");
                assert!(timing.repeats.iter().zip(&wanted).all(|it| (it.0 / it.1 - 1.0).abs() < 1e-9));
            }
        }
        // The same calls as in the rows.
        let sorted = |mut calls: Vec<String>| {
            calls.sort();
            calls.dedup();
            calls
        };
        let calls = |all: &[(Call, usize)]| sorted(all.iter().map(|it| format!("{:?}", it.0)).collect());
        let repeated = plan.repeats * 4 * if bench::works_in_place(collective) { 2 } else { 1 } * 4;
        let (before, after) = fake.calls.split_at(fake.calls.len() - repeated);
        assert_eq!(calls(before), calls(after), "{collective}");
    }
}

#[test]
fn what_takes_long_is_not_measured_again() {
    let mut plan = plan(Collective::AllReduce);
    (plan.repeats, plan.iterations) = (1, Some(400_000));
    let run = run(&plan, &mut Fake::new(None));
    let repeats: Vec<usize> =
        run.rows.iter().map(|it| it.out_of_place.as_ref().expect("measured").repeats.len()).collect();
    assert_eq!(repeats, [1, 1, 1, 0], "4096 bytes take 2 s in all");
}

#[test]
fn every_collective_type_and_operation_is_right_on_one_rank() {
    for collective in Collective::ALL {
        let mut plan = plan(collective);
        plan.sizes = Sizes { from: 0, to: 128, step: Step::Bytes(64) };
        plan.data_types = DataType::ALL.to_vec();
        plan.operations = Operation::ALL.to_vec();
        plan.iterations = Some(2);
        plan.check = 2;
        let run = run(&plan, &mut Fake::new(None));
        assert_eq!(run.wrong, None, "{collective}");
        let series = plan.series(1).len();
        assert_eq!(run.rows.len(), series * 3);
        assert!(run.rows.iter().all(|it| it.in_place.is_some() == bench::works_in_place(collective)));
    }
}

#[test]
fn one_wrong_element_is_found() {
    let mut plan = plan(Collective::AllReduce);
    plan.iterations = Some(1);
    let run = run(&plan, &mut Fake::new(Some(1)));
    let wrong = run.wrong.expect("a mistake");
    assert_eq!((wrong.rank, wrong.bytes, wrong.in_place, wrong.element.index), (0, 8, false, 1));
    assert_ne!(wrong.element.got, wrong.element.expected);
    assert!(run.rows.iter().all(|it| it.out_of_place.as_ref().is_some_and(|it| it.wrong == Some(1))));
}

#[test]
fn a_result_that_is_never_written_is_found() {
    struct Lazy(Fake);
    impl Engine for Lazy {
        fn kind(&self) -> EngineKind {
            EngineKind::Host
        }
        fn version(&self) -> String {
            String::new()
        }
        fn devices(&self) -> &[Device] {
            self.0.devices()
        }
        fn control(&mut self) -> &mut Communicator {
            self.0.control()
        }
        fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
            self.0.allocate(bytes)
        }
        fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
            self.0.write(side, offset, bytes)
        }
        fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
            self.0.read(side, offset, into)
        }
        fn run(&mut self, _: &Call, _: usize) -> Result<f64, Failure> {
            Ok(1.0)
        }
    }
    let run = engines::run(&plan(Collective::Broadcast), &mut Lazy(Fake::new(None)), &mut |_| {
        ControlFlow::Continue(())
    })
    .expect("a run");
    let wrong = run.wrong.expect("nothing was written");
    assert_eq!((wrong.element.index, wrong.element.got.as_str()), (0, "nothing (never written)"));
    assert_eq!(run.rows[0].out_of_place.as_ref().and_then(|it| it.wrong), Some(2));
}

#[test]
fn a_check_on_the_host_is_named_once() {
    struct Refused(Fake);
    impl Engine for Refused {
        fn kind(&self) -> EngineKind {
            EngineKind::Nccl
        }
        fn version(&self) -> String {
            String::new()
        }
        fn devices(&self) -> &[Device] {
            self.0.devices()
        }
        fn control(&mut self) -> &mut Communicator {
            self.0.control()
        }
        fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
            self.0.allocate(bytes)
        }
        fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
            self.0.write(side, offset, bytes)
        }
        fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
            self.0.read(side, offset, into)
        }
        fn compare(&mut self, part: &Part) -> Result<Found, Failure> {
            let on_host = Some("no compiler".to_owned());
            Ok(Found { on_host, ..self.0.compare(part)? })
        }
        fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
            self.0.run(call, repeat)
        }
    }
    let mut notes = Vec::new();
    engines::run(&plan(Collective::AllGather), &mut Refused(Fake::new(None)), &mut |it| {
        if let Event::CheckedOnHost { rank, reason } = it {
            notes.push((rank, reason.to_owned()));
        }
        ControlFlow::Continue(())
    })
    .expect("a run");
    assert_eq!(notes, [(0, "no compiler".to_owned())]);
}

#[test]
fn iterations_are_as_asked() {
    let mut plan = plan(Collective::Broadcast);
    plan.sizes = Sizes { from: 64, to: 64, step: Step::Factor(2) };
    plan.iterations = Some(6);
    plan.warm_up = 3;
    plan.check = 0;
    plan.average = Average::Longest;
    let calls = |plan: &Plan| {
        let mut fake = Fake::new(None);
        let run = run(plan, &mut fake);
        assert_eq!(run.rows[0].out_of_place.as_ref().and_then(|it| it.wrong), None);
        fake.calls.iter().filter(|it| !it.0.in_place).map(|it| it.1).collect::<Vec<_>>()
    };
    assert_eq!(calls(&plan), [1, 2, 6]);
    plan.per_iteration = true;
    assert_eq!(calls(&plan), [1, 2, 1, 1, 1, 1, 1, 1]);
    plan.per_iteration = false;
    plan.aggregate = 4;
    assert_eq!(calls(&plan), [1, 11, 24]);
    plan.warm_up = 0;
    plan.aggregate = 1;
    plan.cycles = 2;
    assert_eq!(calls(&plan).len(), 12);
}

#[test]
fn a_root_that_is_not_there_is_an_error() {
    let mut plan = plan(Collective::Broadcast);
    plan.root = Some(1);
    let failure = engines::run(&plan, &mut Fake::new(None), &mut |_| ControlFlow::Continue(()))
        .expect_err("no such rank");
    assert_eq!(failure.cause, Cause::NoSuchRoot { root: 1 });
}

/// Each rank takes a millisecond more than the one before it.
struct Uneven(Fake);

impl Engine for Uneven {
    fn kind(&self) -> EngineKind {
        self.0.kind()
    }
    fn version(&self) -> String {
        self.0.version()
    }
    fn devices(&self) -> &[Device] {
        self.0.devices()
    }
    fn control(&mut self) -> &mut Communicator {
        self.0.control()
    }
    fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
        self.0.allocate(bytes)
    }
    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.0.write(side, offset, bytes)
    }
    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        self.0.read(side, offset, into)
    }
    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
        let more = 1e-3 * self.0.control.rank() as f64 * repeat as f64;
        self.0.run(call, repeat).map(|it| it + more)
    }
}

#[test]
fn ranks_that_measure_different_times_stay_together() {
    let listener = RendezvousListener::bind(Ipv4Addr::LOCALHOST.into(), 0).expect("a port");
    let port = listener.address().port();
    let token = || Token::new("secret").expect("a token");
    let run = |rendezvous: Rendezvous, rank: usize| {
        let control = Communicator::join(Options::new(rank, 2, rendezvous, token())).expect("two ranks meet");
        let plan = Plan { check: 0, ..plan(Collective::Broadcast) };
        engines::run(&plan, &mut Uneven(Fake::over(control, None)), &mut |_| ControlFlow::Continue(()))
    };
    let [first, second] = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(Rendezvous::Connect { host: "127.0.0.1".to_owned(), port }, 1));
        [run(Rendezvous::Listen(listener), 0), other.join().expect("no panic")]
    });
    let (first, second) = (first.expect("a run"), second.expect("a run"));
    assert_eq!(first.rows.len(), 4);
    for (a, b) in first.rows.iter().zip(&second.rows) {
        assert_eq!((&a.out_of_place, &a.in_place), (&b.out_of_place, &b.in_place));
    }
}

#[test]
fn it_ends_when_nobody_wants_more() {
    let mut rows = 0;
    let mut observe = |it: Event<'_>| {
        rows += usize::from(matches!(it, Event::Row(_)));
        if rows < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let run = engines::run(&plan(Collective::AllReduce), &mut Fake::new(None), &mut observe).expect("a run");
    assert_eq!((run.rows.len(), rows), (2, 2));
}

#[test]
fn flags_are_as_one_would_write_them() {
    let mut plan = plan(Collective::Reduce);
    plan.data_types = vec![DataType::Half, DataType::Float];
    let flags = plan.flags();
    assert_eq!(flags[..6], ["reduce", "-b 8", "-e 4096", "-f 8", "-d half,float", "-o sum"]);
    // Every field is among them.
    let changed: [fn(&mut Plan); 13] = [
        |it| it.sizes.from = 1,
        |it| it.sizes.to = 1,
        |it| it.sizes.step = Step::Bytes(8),
        |it| it.operations = vec![Operation::Max],
        |it| it.root = None,
        |it| it.iterations = Some(3),
        |it| it.warm_up = 3,
        |it| it.aggregate = 3,
        |it| it.cycles = 3,
        |it| it.check = 3,
        |it| it.average = Average::Longest,
        |it| it.blocking = true,
        |it| (it.per_iteration, it.skip) = (true, 3),
    ];
    for change in changed {
        let mut other = plan.clone();
        change(&mut other);
        assert_ne!(other.flags(), flags, "{other:?}");
    }
}
