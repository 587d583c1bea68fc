//! Sessions over real sockets. Ranks are threads, or processes if one has to be killed.

mod processes;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{Scope, ScopedJoinHandle};

use super::protocol::{Greeting, VERSION};
use super::*;

const LONG: Duration = Duration::from_secs(60);
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn token() -> Token {
    Token::new("secret").expect("valid")
}

fn listener() -> (RendezvousListener, SocketAddr) {
    let listener = RendezvousListener::bind(LOCAL, 0).expect("loopback");
    let address = listener.address();
    (listener, address)
}

fn connect_to(address: SocketAddr) -> Rendezvous {
    Rendezvous::Connect { host: address.ip().to_string(), port: address.port() }
}

fn options(rank: usize, size: usize, rendezvous: Rendezvous, timeout: Duration) -> JoinOptions {
    JoinOptions { rank, size, rendezvous, token: token(), timeout, host: format!("node{rank}") }
}

fn peer(rank: usize, size: usize, address: SocketAddr, timeout: Duration) -> Result<Session, Error> {
    join(options(rank, size, connect_to(address), timeout))
}

fn join(options: JoinOptions) -> Result<Session, Error> {
    let peer_info = vec![7; options.rank];
    Session::join(options, peer_info, Arc::default())
}

/// Runs every rank in a thread of its own.
fn job<T: Send>(size: usize, timeout: Duration, rank: impl Fn(Session) -> T + Sync) -> Vec<T> {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let rank = &rank;
        let first = scope.spawn(move || {
            rank(join(options(0, size, Rendezvous::Listen(listener), timeout)).expect("joins"))
        });
        let others =
            (1..size).map(|it| scope.spawn(move || rank(peer(it, size, address, timeout).expect("joins"))));
        let all: Vec<_> = std::iter::once(first).chain(others).collect();
        all.into_iter().map(|it| it.join().expect("no panic")).collect()
    })
}

/// Starts rank 0 of a job in a thread.
fn first<'a>(
    scope: &'a Scope<'a, '_>,
    listener: RendezvousListener,
    size: usize,
    timeout: Duration,
) -> ScopedJoinHandle<'a, Result<Session, Error>> {
    scope.spawn(move || join(options(0, size, Rendezvous::Listen(listener), timeout)))
}

#[test]
fn one_to_nine_ranks_join_share_and_leave() {
    for size in 1..=9 {
        let keys = job(size, LONG, |mut session| {
            assert_eq!(session.size(), size);
            for (rank, member) in session.members().iter().enumerate() {
                assert_eq!((member.rank, member.host.as_str()), (rank, format!("node{rank}").as_str()));
                assert_eq!((member.pid, member.peer_info.len()), (std::process::id(), rank));
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
fn ranks_join_over_ipv6_and_by_name() {
    for (address, name) in [(IpAddr::V6(Ipv6Addr::LOCALHOST), "::1"), (LOCAL, "localhost")] {
        let listener = RendezvousListener::bind(address, 0).expect("loopback");
        let rank_0 = Rendezvous::Connect { host: name.to_owned(), port: listener.address().port() };
        std::thread::scope(|scope| {
            let first = first(scope, listener, 2, LONG);
            let peer = join(options(1, 2, rank_0, LONG)).expect("joins");
            let end = scope.spawn(move || peer.leave());
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
fn ranks_wait_for_a_late_listener() {
    // The rank is disconnected once, then refused, then accepted.
    let other = TcpListener::bind((LOCAL, 0)).expect("loopback");
    let address = other.local_addr().expect("bound");
    std::thread::scope(|scope| {
        let peer = scope.spawn(move || peer(1, 2, address, LONG));
        drop(other.accept().expect("the rank"));
        drop(other);
        let until = Instant::now() + LONG;
        let listener = loop {
            match RendezvousListener::bind(LOCAL, address.port()) {
                Ok(listener) => break listener,
                // A process that another test starts has our sockets until it becomes another program.
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            std::thread::yield_now();
        };
        let first = first(scope, listener, 2, LONG).join().expect("no panic").expect("joins");
        let peer = peer.join().expect("no panic").expect("joins");
        let end = scope.spawn(move || peer.leave());
        first.leave().expect("leaves");
        end.join().expect("no panic").expect("leaves");
    });
}

#[test]
fn a_wrong_token_is_reported_on_both_sides() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let first = first(scope, listener, 2, Duration::from_secs(3));
        let mut wrong = options(1, 2, connect_to(address), LONG);
        wrong.token = Token::new("guess").expect("valid");
        let error = join(wrong).expect_err("refused");
        assert_eq!((error.cause, error.detail.as_str()), (Cause::Token, "refused this rank: wrong token"));
        let error = first.join().expect("no panic").expect_err("alone");
        assert_eq!(
            error.to_string(),
            "rank 1: did not join within 3 s; 1 of 2 ranks joined; 1 connection from 127.0.0.1 was refused: wrong \
             token (rendezvous)"
        );
    });
}

#[test]
fn another_version_is_reported_on_both_sides() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let first = first(scope, listener, 2, Duration::from_secs(3));
        let mut old = TcpStream::connect(address).expect("listening");
        old.write_all(&Greeting::bytes(1, "0.0.1", &[3; 32])).expect("sent");
        let mut answer = Vec::new();
        old.read_to_end(&mut answer).expect("answered and closed");
        assert_eq!(Greeting::read(&answer).expect("a greeting").expect("whole").version, VERSION);
        let error = first.join().expect("no panic").expect_err("alone");
        assert!(error.detail.ends_with(&format!("was refused: plumb 0.0.1, not {VERSION}")), "{error}");
    });
}

#[test]
fn invalid_claims_are_refused_with_a_reason() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let first = first(scope, listener, 3, LONG);
        let one = scope.spawn(move || peer(1, 3, address, LONG));
        let error = peer(1, 4, address, LONG).expect_err("another size");
        assert_eq!(error.cause, Cause::Usage);
        assert_eq!(error.detail, "refused this rank: rank 1 expects 4 ranks, the job has 3");
        let two = peer(2, 3, address, LONG).expect("joins");
        let pid = std::process::id();
        for rank in 0..3 {
            let error = join(options(rank.max(1), 3, connect_to(address), LONG)).expect_err("taken");
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
fn invalid_options_are_refused() {
    let (listener, address) = listener();
    let (other, _) = self::listener();
    for entry in [
        options(2, 2, connect_to(address), LONG),
        options(0, 0, connect_to(address), LONG),
        options(0, 2, connect_to(address), LONG),
        options(1, 2, Rendezvous::Listen(listener), LONG),
    ] {
        assert_eq!(join(entry).expect_err("invalid").cause, Cause::Usage);
    }
    let error =
        Session::join(options(0, 2, Rendezvous::Listen(other), LONG), vec![0; 70_000], Arc::default());
    assert_eq!(error.expect_err("peer info that is too large").cause, Cause::Usage);
}

#[test]
fn missing_ranks_are_reported_to_the_others() {
    let (listener, address) = listener();
    std::thread::scope(|scope| {
        let first = first(scope, listener, 4, Duration::from_secs(3));
        let error = peer(2, 4, address, LONG).expect_err("two ranks are missing");
        assert_eq!(error.cause, Cause::DidNotJoin);
        assert_eq!(error.detail, "ranks 1, 3 did not join within 3 s; 2 of 4 ranks joined");
        assert_eq!(first.join().expect("no panic").expect_err("two ranks are missing"), error);
    });
}

#[test]
fn other_programs_at_the_listener_do_no_harm() {
    raise_file_limit(2048);
    let (listener, address) = listener();
    let connect = || TcpStream::connect(address).expect("listening");
    let oversize = [&Greeting::ours(&[1; 32])[..], &u32::MAX.to_le_bytes(), &[0; 64]].concat();
    let inputs: [&[u8]; 5] =
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", &[0xff; 5000], &oversize, b""];
    std::thread::scope(|scope| {
        let first = first(scope, listener, 2, LONG);
        // These stay open and send nothing or a part of a greeting; there are more of them than may be pending.
        let silent: Vec<_> = (0..300)
            .map(|it| {
                let mut stream = connect();
                stream.write_all(&Greeting::ours(&[1; 32])[..it % 107]).expect("sent");
                stream
            })
            .collect();
        for input in inputs {
            let mut stream = connect();
            // The other side may close before it has read all.
            let _ = stream.write_all(input);
            drop(stream);
        }
        let peer = peer(1, 2, address, LONG).expect("joins");
        let mut first = first.join().expect("no panic").expect("joins");
        // And once more while the job runs.
        let mut late = connect();
        late.write_all(inputs[0]).expect("sent");
        assert_eq!(late.read(&mut [0; 10]).unwrap_or(0), 0, "no answer to other programs");
        let other = scope.spawn(move || {
            let mut peer = peer;
            peer.share(&[1], "test").map(drop).and_then(|()| peer.leave())
        });
        first.share(&[0], "test").expect("shares");
        first.leave().expect("leaves");
        other.join().expect("no panic").expect("leaves");
        drop(silent);
    });
}

#[test]
fn ranks_in_different_shares_are_reported() {
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
fn a_failure_is_reported_to_all_ranks() {
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
fn a_rank_that_drops_its_session_is_named() {
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
            // Whether the others are in the setup by then depends on the scheduler.
            let text = error.to_string();
            let who = format!("rank {culprit} on node{culprit}: left the job before it was finished");
            assert!(
                ["setup", "before the first call"].iter().any(|it| text == format!("{who} ({it})")),
                "{text}"
            );
        }
    }
}

#[test]
fn the_abort_flag_has_the_verdict_and_the_stage() {
    let gate = std::sync::Barrier::new(2);
    job(2, LONG, |session| {
        if session.rank() == 0 {
            gate.wait();
        } else {
            session.progress().begin(CallKind::AllReduce, 64);
            gate.wait();
            let abort_flag = Arc::clone(&session.abort_flag);
            while !abort_flag.is_raised() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let error = abort_flag.verdict().expect("raised");
            assert_eq!(
                error.to_string(),
                "rank 0 on node0: left the job before it was finished (all_reduce of 64 bytes)"
            );
            assert_eq!(session.leave().expect_err("too late"), error);
        }
    });
}

#[test]
fn an_abort_ends_the_wait_at_the_rendezvous() {
    let (listener, _) = listener();
    let abort_flag = Arc::new(AbortFlag::default());
    let stop = Error::new(Cause::Interrupted, "rendezvous", "interrupted");
    abort_flag.raise(stop.clone());
    assert_eq!(
        Session::join(options(0, 2, Rendezvous::Listen(listener), LONG), vec![], abort_flag)
            .expect_err("raised"),
        stop
    );
}

#[test]
fn a_rank_that_is_behind_is_named_after_a_timeout() {
    let gate = std::sync::Barrier::new(3);
    let errors = job(3, LONG, |session| {
        session.progress().begin(CallKind::Barrier, 0);
        session.progress().end();
        if session.rank() != 2 {
            session.progress().begin(CallKind::AllReduce, 8);
        }
        gate.wait();
        if session.rank() == 0 {
            let late =
                Error::new(Cause::Silent, "all_reduce of 8 bytes", "sent nothing for 60 s").of(1, "node1");
            return session.fail(late);
        }
        while !session.abort_flag.is_raised() {
            std::thread::sleep(Duration::from_millis(1));
        }
        session.abort_flag.verdict().expect("raised")
    });
    for error in errors {
        assert_eq!(
            error.to_string(),
            "rank 2 on node2: is not in the call that the other ranks wait in; its last call: barrier (all_reduce of 8 bytes)"
        );
    }
}

#[test]
fn a_rank_that_does_not_share_is_named() {
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
        assert_eq!(error.detail, "did not call `setup`; its last call: no call yet");
    }
}

#[test]
fn one_rank_needs_no_coordinator() {
    let (listener, _) = listener();
    let mut session = join(options(0, 1, Rendezvous::Listen(listener), LONG)).expect("joins");
    assert_eq!(session.share(&[1, 2], "alone").expect("shares"), [[1, 2]]);
    assert_eq!(session.members().len(), 1);
    let error = Error::new(Cause::NoMemory, "buffer", "none");
    assert_eq!(session.fail(error.clone()), error);
    session.leave().expect("leaves");
}
