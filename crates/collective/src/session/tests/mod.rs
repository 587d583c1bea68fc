//! Sessions over real sockets: ranks are threads, or processes where one must be killed.

mod processes;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{Scope, ScopedJoinHandle};

use super::wire::{Greeting, VERSION};
use super::*;

const LONG: Duration = Duration::from_secs(60);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn token() -> Token {
    Token::new("secret").expect("valid")
}

fn door() -> (Door, SocketAddr) {
    let door = Door::open(LOCAL, 0).expect("loopback");
    let address = door.address();
    (door, address)
}

fn entry(rank: usize, size: usize, meeting: Meeting, timeout: Duration) -> Entry {
    Entry { rank, size, meeting, token: token(), timeout, host: format!("node{rank}") }
}

fn guest(rank: usize, size: usize, place: SocketAddr, timeout: Duration) -> Result<Session, Error> {
    join(entry(rank, size, Meeting::At(place.to_string()), timeout))
}

fn join(entry: Entry) -> Result<Session, Error> {
    let card = vec![7; entry.rank];
    Session::join(entry, card, Arc::default())
}

/// Runs every rank in a thread of its own.
fn job<T: Send>(size: usize, timeout: Duration, rank: impl Fn(Session) -> T + Sync) -> Vec<T> {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let rank = &rank;
        let first =
            scope.spawn(move || rank(join(entry(0, size, Meeting::Open(door), timeout)).expect("joins")));
        let others =
            (1..size).map(|it| scope.spawn(move || rank(guest(it, size, place, timeout).expect("joins"))));
        let all: Vec<_> = std::iter::once(first).chain(others).collect();
        all.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

/// Starts rank 0 of a job in a thread.
fn first<'a>(
    scope: &'a Scope<'a, '_>,
    door: Door,
    size: usize,
    timeout: Duration,
) -> ScopedJoinHandle<'a, Result<Session, Error>> {
    scope.spawn(move || join(entry(0, size, Meeting::Open(door), timeout)))
}

#[test]
fn one_to_nine_ranks_meet_share_and_leave() {
    for size in 1..=9 {
        let keys = job(size, LONG, |mut session| {
            assert_eq!(session.size(), size);
            for (rank, member) in session.members().iter().enumerate() {
                assert_eq!((member.rank, member.host.as_str()), (rank, format!("node{rank}").as_str()));
                assert_eq!((member.pid, member.card.len()), (std::process::id(), rank));
            }
            for round in 0..5 {
                let mine = [session.rank(), round].map(|it| u8::try_from(it).expect("small"));
                let all = session.share(&mine, "test").expect("all share");
                let wanted: Vec<_> =
                    (0..size).map(|it| vec![u8::try_from(it).expect("small"), mine[1]]).collect();
                assert_eq!(all, wanted);
            }
            let key = *session.key();
            session.leave().expect("all leave");
            key
        });
        assert!(keys.iter().all(|it| *it == keys[0] && *it != [0; 32]));
    }
}

#[test]
fn ranks_meet_over_ipv6_and_by_name() {
    let doors = [(IpAddr::V6(Ipv6Addr::LOCALHOST), "[::1]"), (LOCAL, "localhost")];
    for (address, name) in doors {
        let door = Door::open(address, 0).expect("loopback");
        let place = format!("{name}:{}", door.address().port());
        std::thread::scope(|scope| {
            let first = first(scope, door, 2, LONG);
            let guest = join(entry(1, 2, Meeting::At(place), LONG)).expect("joins");
            let end = scope.spawn(move || guest.leave());
            first.join().expect("no panic").expect("joins").leave().expect("leaves");
            end.join().expect("no panic").expect("leaves");
        });
    }
}

#[test]
fn large_pieces_and_none_are_shared() {
    job(3, LONG, |mut session| {
        let sizes = [LARGEST_SHARE, 0, 1000];
        let all = session.share(&vec![7; sizes[session.rank()]], "large").expect("all share");
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
        session.leave().expect("all leave");
    });
}

#[test]
fn others_wait_for_a_late_door() {
    // The guest is sent away once, then finds nobody, then the door.
    let nobody = TcpListener::bind((LOCAL, 0)).expect("loopback");
    let place = nobody.local_addr().expect("bound");
    std::thread::scope(|scope| {
        let guest = scope.spawn(move || guest(1, 2, place, LONG));
        drop(nobody.accept().expect("the guest"));
        drop(nobody);
        let until = Instant::now() + LONG;
        let door = loop {
            match Door::open(LOCAL, place.port()) {
                Ok(door) => break door,
                // A process that another test starts has our sockets until it becomes another program.
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        };
        let first = first(scope, door, 2, LONG).join().expect("no panic").expect("joins");
        let guest = guest.join().expect("no panic").expect("joins");
        let end = scope.spawn(move || guest.leave());
        first.leave().expect("leaves");
        end.join().expect("no panic").expect("leaves");
    });
}

#[test]
fn a_wrong_token_is_told_on_both_sides() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 2, Duration::from_secs(3));
        let mut wrong = entry(1, 2, Meeting::At(place.to_string()), LONG);
        wrong.token = Token::new("guess").expect("valid");
        let error = join(wrong).expect_err("refused");
        assert_eq!((error.cause, error.detail.as_str()), (Cause::Token, "refused this rank: wrong token"));
        let error = first.join().expect("no panic").expect_err("alone");
        assert_eq!(
            error.to_string(),
            "rank 1: never arrived within 3 s; 1 of 2 ranks came; 1 connection from 127.0.0.1 was refused: wrong \
             token (rendezvous)"
        );
    });
}

#[test]
fn another_version_is_told_on_both_sides() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 2, Duration::from_secs(3));
        let mut old = TcpStream::connect(place).expect("listening");
        old.write_all(&Greeting::bytes(1, "0.0.1", &[3; 32])).expect("sent");
        let mut answer = Vec::new();
        old.read_to_end(&mut answer).expect("answered and closed");
        assert_eq!(Greeting::read(&answer).expect("a greeting").expect("whole").version, VERSION);
        let error = first.join().expect("no panic").expect_err("alone");
        assert!(error.detail.ends_with(&format!("was refused: plumb 0.0.1, not {VERSION}")), "{error}");
    });
}

#[test]
fn claims_that_cannot_be_are_refused_with_a_sentence() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 3, LONG);
        let one = scope.spawn(move || guest(1, 3, place, LONG));
        let error = guest(1, 4, place, LONG).expect_err("another size");
        assert_eq!(error.cause, Cause::Usage);
        assert_eq!(error.detail, "refused this rank: rank 1 believes in 4 ranks, the job has 3");
        let two = guest(2, 3, place, LONG).expect("joins");
        let pid = std::process::id();
        for rank in 0..3 {
            let error = join(entry(rank.max(1), 3, Meeting::At(place.to_string()), LONG)).expect_err("taken");
            let rank = rank.max(1);
            let wanted = format!("refused this rank: rank {rank} is taken by process {pid} on node{rank}");
            assert_eq!(error.detail, wanted);
        }
        // The job itself noticed nothing.
        let ends = [first.join(), one.join(), Ok(Ok(two))]
            .map(|it| scope.spawn(move || it.expect("no panic").expect("joins").leave()));
        assert!(ends.into_iter().all(|it| it.join().expect("no panic").is_ok()));
    });
}

#[test]
fn entries_that_cannot_be_are_refused_here() {
    let (door, place) = door();
    let (other, _) = self::door();
    for entry in [
        entry(2, 2, Meeting::At(place.to_string()), LONG),
        entry(0, 0, Meeting::At(place.to_string()), LONG),
        entry(0, 2, Meeting::At(place.to_string()), LONG),
        entry(1, 2, Meeting::Open(door), LONG),
    ] {
        assert_eq!(join(entry).expect_err("cannot be").cause, Cause::Usage);
    }
    let error = Session::join(entry(0, 2, Meeting::Open(other), LONG), vec![0; 70_000], Arc::default());
    assert_eq!(error.expect_err("a card too large").cause, Cause::Usage);
}

#[test]
fn who_came_is_told_who_did_not() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 4, Duration::from_secs(3));
        let error = guest(2, 4, place, LONG).expect_err("not all came");
        assert_eq!(error.cause, Cause::NeverArrived);
        assert_eq!(error.detail, "ranks 1, 3 never arrived within 3 s; 2 of 4 ranks came");
        assert_eq!(first.join().expect("no panic").expect_err("not all came"), error);
    });
}

#[test]
fn garbage_at_the_door_disturbs_nobody() {
    allow_files(2048);
    let (door, place) = door();
    let connect = || TcpStream::connect(place).expect("listening");
    let oversize = [&Greeting::ours(&[1; 32])[..], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
    let inputs: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", &[0xff; 5000], &oversize, b""];
    std::thread::scope(|scope| {
        let first = first(scope, door, 2, LONG);
        // These stay and say nothing, or half of something, more of them than there is room for.
        let silent: Vec<_> = (0..300)
            .map(|it| {
                let mut stream = connect();
                stream.write_all(&Greeting::ours(&[1; 32])[..it % 107]).expect("sent");
                stream
            })
            .collect();
        for input in inputs {
            let mut stream = connect();
            // The other side may hang up before it has read all.
            let _ = stream.write_all(input);
            drop(stream);
        }
        let guest = guest(1, 2, place, LONG).expect("joins");
        let mut first = first.join().expect("no panic").expect("joins");
        // And once more while the job runs.
        let mut late = connect();
        late.write_all(inputs[0]).expect("sent");
        assert_eq!(late.read(&mut [0; 10]).unwrap_or(0), 0, "no answer to strangers");
        let other = scope.spawn(move || {
            let mut guest = guest;
            guest.share(&[1], "test").map(drop).and_then(|()| guest.leave())
        });
        first.share(&[0], "test").expect("shares");
        first.leave().expect("leaves");
        other.join().expect("no panic").expect("leaves");
        drop(silent);
    });
}

#[test]
fn ranks_in_different_shares_are_told() {
    let errors = job(3, LONG, |mut session| {
        let stage = if session.rank() == 1 { "buffer" } else { "setup" };
        session.share(&[], stage).expect_err("they differ")
    });
    for error in &errors {
        assert_eq!(error, &errors[0]);
        assert_eq!(error.cause, Cause::Mismatch);
        assert!(error.detail.contains("`buffer`") && error.detail.contains("`setup`"), "{error}");
    }
}

#[test]
fn leaving_while_others_share_is_a_mismatch() {
    let errors = job(3, LONG, |mut session| {
        if session.rank() == 2 { session.leave() } else { session.share(&[], "setup").map(drop) }
            .expect_err("they differ")
    });
    for error in errors {
        assert_eq!((error.cause, error.rank), (Cause::Mismatch, Some(2)), "{error}");
    }
}

#[test]
fn a_failure_of_one_is_told_to_all() {
    for culprit in 0..3 {
        let errors = job(3, LONG, |mut session| {
            if session.rank() == culprit {
                session.fail(Error::new(Cause::NoMemory, "buffer", "no space in shared memory"))
            } else {
                session.share(&[], "setup").expect_err("one failed")
            }
        });
        for error in errors {
            let wanted = format!("rank {culprit} on node{culprit}: no space in shared memory (buffer)");
            assert_eq!(error.to_string(), wanted);
            assert_eq!(error.cause, Cause::NoMemory);
        }
    }
}

#[test]
fn who_gives_up_without_a_word_is_named() {
    for culprit in 0..3 {
        let errors =
            job(
                3,
                LONG,
                |mut session| {
                    if session.rank() == culprit { None } else { session.share(&[], "setup").err() }
                },
            );
        for error in errors.into_iter().flatten() {
            assert_eq!((error.cause, error.rank), (Cause::Died, Some(culprit)));
            // Whether the others had come to the setup by then is up to the scheduler.
            let text = error.to_string();
            let who = format!("rank {culprit} on node{culprit}: gave up");
            assert!(
                ["setup", "before the first call"].iter().any(|it| text == format!("{who} ({it})")),
                "{text}"
            );
        }
    }
}

#[test]
fn the_alarm_has_the_verdict_and_the_stage() {
    let gate = std::sync::Barrier::new(2);
    job(2, LONG, |session| {
        if session.rank() == 0 {
            gate.wait();
        } else {
            session.progress().begin(Kind::AllReduce, 64);
            gate.wait();
            let alarm = Arc::clone(&session.alarm);
            while !alarm.is_raised() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let error = alarm.verdict().expect("raised");
            assert_eq!(error.to_string(), "rank 0 on node0: gave up (all_reduce of 64 bytes)");
            assert_eq!(session.leave().expect_err("too late"), error);
        }
    });
}

#[test]
fn an_alarm_ends_the_wait_at_the_rendezvous() {
    let (door, _) = door();
    let alarm = Arc::new(Alarm::default());
    let stop = Error::new(Cause::Interrupted, "rendezvous", "interrupted");
    alarm.raise(stop.clone());
    assert_eq!(
        Session::join(entry(0, 2, Meeting::Open(door), LONG), vec![], alarm).expect_err("raised"),
        stop
    );
}

#[test]
fn who_is_behind_is_named_after_a_vain_wait() {
    let gate = std::sync::Barrier::new(3);
    let errors = job(3, LONG, |session| {
        session.progress().begin(Kind::Barrier, 0);
        session.progress().end();
        if session.rank() != 2 {
            session.progress().begin(Kind::AllReduce, 8);
        }
        gate.wait();
        if session.rank() == 0 {
            let late =
                Error::new(Cause::Silent, "all_reduce of 8 bytes", "sent nothing for 60 s").of(1, "node1");
            return session.fail(late);
        }
        while !session.alarm.is_raised() {
            std::thread::sleep(Duration::from_millis(1));
        }
        session.alarm.verdict().expect("raised")
    });
    for error in errors {
        assert_eq!(
            error.to_string(),
            "rank 2 on node2: is not in the call the others wait in; its last call: barrier (all_reduce of 8 bytes)"
        );
    }
}

#[test]
fn who_does_not_come_to_a_share_is_named() {
    let gate = std::sync::Barrier::new(3);
    let errors = job(3, LONG, |mut session| {
        session.timeout = Duration::from_secs(1);
        gate.wait();
        let error = if session.rank() == 1 { None } else { session.share(&[], "setup").err() };
        gate.wait();
        error
    });
    assert_eq!(errors.iter().flatten().count(), 2);
    for error in errors.into_iter().flatten() {
        assert_eq!((error.cause, error.rank), (Cause::Silent, Some(1)), "{error}");
        assert_eq!(error.detail, "did not come to `setup`; its last call: no call yet");
    }
}

#[test]
fn one_rank_needs_nobody() {
    let (door, _) = door();
    let mut session = join(entry(0, 1, Meeting::Open(door), LONG)).expect("joins");
    assert_eq!(session.share(&[1, 2], "alone").expect("shares"), [[1, 2]]);
    assert_eq!(session.members().len(), 1);
    let error = Error::new(Cause::NoMemory, "buffer", "none");
    assert_eq!(session.fail(error.clone()), error);
    session.leave().expect("leaves");
}
