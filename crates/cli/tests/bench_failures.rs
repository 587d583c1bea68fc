//! What goes wrong with ranks, for real: every other rank ends soon, one message names the rank, the host and the stage, and
//! nothing is left behind.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
#[expect(dead_code, reason = "other tests use the rest")]
mod job;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use common::{folder, plumb};
use job::{ENDLESS, Job, SOON, host};
use testbed::{LIMIT, Signal, free_port, signal, until};

const SHORT: [&str; 8] = ["bench", "all_reduce", "-e", "1K", "--timeout", "60", "--repeats", "0"];

/// Three ranks in the middle of their work.
fn running(more: &[&str]) -> Job {
    let job = Job::start(ENDLESS.iter().chain(&["--ranks", "3"]).chain(more), &[]);
    job.wait_for_rows();
    job
}

/// Both transports between ranks of one machine.
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    for transport in TRANSPORTS {
        for rank in [0, 1, 2] {
            let job = running(&["--transport", transport]);
            signal(job.pid_of(rank), Signal::KILL);
            let end = job.end(SOON);
            end.failed_with(&[&format!("rank {rank} on {}: its process ended (", host())]);
            assert_eq!(end.code, Some(128 + 9), "{end:?}");
        }
    }
}

#[test]
fn ranks_started_by_hand_learn_of_a_death_too() {
    for killed in [0, 1, 2] {
        let port = free_port();
        let mut ranks: Vec<Job> = (0..3)
            .map(|it| Job::rank(it, 3, port, &[&ENDLESS[..], &["--transport", "tcp"]].concat()))
            .collect();
        ranks[0].wait_for_rows();
        ranks[killed].signal(Signal::KILL);
        let dead = ranks.remove(killed);
        for rank in ranks {
            let end = rank.end(SOON);
            end.failed_with(&[&format!("rank {killed} on {}: its process ended (", host())]);
            assert_eq!(end.code, Some(2), "{end:?}");
        }
        assert_eq!(dead.end(SOON).code, None);
    }
}

#[test]
fn ranks_do_not_outlive_their_starter() {
    let job = running(&[]);
    job.signal(Signal::KILL);
    let end = job.end(SOON);
    assert_eq!((end.code, end.stderr.as_str()), (None, ""));
}

#[test]
fn a_rank_that_is_stopped_is_named_and_ended() {
    for transport in TRANSPORTS {
        for rank in [0, 2] {
            let job = running(&["--transport", transport, "--timeout", "3"]);
            signal(job.pid_of(rank), Signal::STOP);
            // 3 s of silence, up to 3 s to query every rank, 2 s for the stopped one to end.
            let end = job.end(3 * SOON);
            end.failed_with(&[
                &format!("rank {rank} on {}: does not answer: its process is stopped", host()),
                "(",
            ]);
        }
    }
}

#[test]
fn a_rank_that_never_arrives_is_named() {
    let arguments = [&SHORT[..4], &["--timeout", "5"]].concat();
    let port = free_port();
    let ranks = [0, 1].map(|it| Job::rank(it, 3, port, &arguments));
    for rank in ranks {
        rank.end(3 * SOON)
            .failed_with(&["rank 2: did not join within 5 s; 2 of 3 ranks joined (rendezvous)"]);
    }
    let place = free_port();
    for rank in [1, 2].map(|it| Job::rank(it, 3, place, &arguments)) {
        rank.end(3 * SOON).failed_with(&["rank 0: cannot be reached at 127.0.0.1:", "(rendezvous)"]);
    }
}

/// Connects as soon as somebody listens.
fn knock(port: u16) -> TcpStream {
    let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
    let mut found = None;
    until("rank 0 listens", || {
        found = connect();
        found.is_some()
    });
    found.expect("just seen")
}

/// The connection of a rank, which comes within the limit.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("an option of every socket");
    let mut found = None;
    until("the rank connects", || {
        found = listener.accept().ok();
        found.is_some()
    });
    let (stream, _) = found.expect("just seen");
    stream.set_nonblocking(false).expect("an option of every socket");
    stream.set_read_timeout(Some(LIMIT)).expect("an option of every socket");
    stream
}

/// What a rank says first, as it says it.
fn greeting() -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let rank = Job::rank(1, 2, port, &["bench", "all_reduce", "--timeout", "60"]);
    let mut stream = accept(&listener);
    let mut bytes = vec![0; 106];
    stream.read_exact(&mut bytes).expect("a greeting");
    rank.signal(Signal::KILL);
    rank.end(SOON);
    assert!(bytes.starts_with(b"PLUMBJOB"), "{bytes:?}");
    bytes
}

/// The same of another release.
fn other_release() -> Vec<u8> {
    let mut bytes = greeting();
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    let at = bytes.windows(version.len()).position(|it| it == version).expect("its release");
    bytes[at..at + version.len()].fill(b'9');
    bytes
}

#[test]
fn strangers_at_the_rendezvous_do_no_harm() {
    let greeting = greeting();
    let port = free_port();
    let first = Job::rank(0, 2, port, &SHORT);
    let mut silent: Vec<TcpStream> = (0..50).map(|_| knock(port)).collect();
    let noise: Vec<u8> = (0..100_000_u32).map(|it| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let oversize = [&greeting[..], &[0xff; 64]].concat();
    let http = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
    let truncated = [0, 1, 8, 50, 105, 106].map(|it| greeting[..it].to_vec());
    for bytes in [noise, oversize, http].iter().chain(&truncated) {
        let mut stream = knock(port);
        // It may be hung up on before all is said.
        let _ = stream.write_all(bytes);
    }
    // Some have begun and say no more.
    for (stream, length) in silent.iter_mut().zip([1, 8, 105, 106]) {
        stream.write_all(&greeting[..length]).expect("still open");
    }
    let second = Job::rank(1, 2, port, &SHORT);
    for end in [first.end(LIMIT), second.end(LIMIT)] {
        end.succeeded();
    }
}

#[test]
fn a_wrong_token_is_reported() {
    let port = free_port();
    let first = Job::rank(0, 2, port, &[&SHORT[..4], &["--timeout", "5"]].concat());
    let second = Job::rank_with(1, 2, port, &SHORT, &[("PLUMB_TOKEN", "guess")]);
    let end = second.end(SOON);
    end.failed_with(&[&format!("rank 0 on 127.0.0.1:{port}: refused this rank: wrong token (rendezvous)")]);
    let end = first.end(3 * SOON);
    end.failed_with(&["rank 1: did not join", "1 connection from 127.0.0.1 was refused: wrong token"]);
    assert!(!end.stderr.contains("guess") && !end.stderr.contains("secret"), "{end:?}");
}

#[test]
fn another_release_is_reported() {
    let other = other_release();
    // As rank 0.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let rank = Job::rank(1, 2, port, &SHORT);
    let mut stream = accept(&listener);
    stream.write_all(&other).expect("it listens");
    rank.end(SOON).failed_with(&["rank 0 on 127.0.0.1:", "is plumb 99999 ", "this rank is plumb 0.1.0"]);
    // As another rank.
    let port = free_port();
    let rank = Job::rank(0, 2, port, &[&SHORT[..4], &["--timeout", "5"]].concat());
    knock(port).write_all(&other).expect("it listens");
    rank.end(3 * SOON).failed_with(&["rank 1: did not join", "refused: plumb 99999, not 0.1.0 (rendezvous)"]);
}

#[test]
fn a_port_in_use_is_reported_at_once() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = taken.local_addr().expect("bound").port();
    let end = Job::rank(0, 2, port, &SHORT).end(SOON);
    end.failed_with(&[&format!("rank 0 on {}: ", host()), &format!("port {port} is in use (rendezvous)")]);
}

#[test]
fn two_ranks_with_one_number_are_reported() {
    let port = free_port();
    let first = Job::rank(0, 3, port, &[&SHORT[..4], &["--timeout", "8"]].concat());
    let twins = [(); 2].map(|()| Job::rank(1, 3, port, &SHORT));
    // One of the two is refused at once; the others fail when the missing rank has not joined in time.
    until("one of both has ended", || twins.iter().any(Job::has_ended));
    assert!(!first.has_ended(), "the job waits for rank 2");
    let ends = twins.map(|it| it.end(3 * SOON));
    let taken = |it: &&job::End| it.stderr.contains(": refused this rank: rank 1 is taken by process ");
    assert_eq!(ends.iter().filter(taken).count(), 1, "{ends:?}");
    for end in &ends {
        end.failed_with(&["rank", "(rendezvous)"]);
    }
    first.end(3 * SOON).failed_with(&["rank 2: did not join", "rank 1 is taken by process"]);
}

#[test]
fn different_flags_are_reported_at_once() {
    let cases = [
        (
            "all_reduce -e 1K",
            "all_reduce -b 16 -e 1K",
            "rank 1 on HOST: has `-b 16` where rank 0 has `-b 8` (settings)",
        ),
        (
            "all_reduce -e 1K",
            "all_gather -e 1K",
            "rank 1 on HOST: has `all_gather` where rank 0 has `all_reduce` (settings)",
        ),
        ("all_reduce -e 1K", "all_reduce -e 2K", "has `-e 2048` where rank 0 has `-e 1024`"),
        ("all_reduce -e 1K", "all_reduce -e 1K -n 7", "has `-n 7` where rank 0 has `no -n`"),
        ("all_reduce -e 1K -c 0", "all_reduce -e 1K", "has `-c 1` where rank 0 has `-c 0`"),
        ("all_reduce -e 1K --private", "all_reduce -e 1K", "has `no --private` where rank 0 has `--private`"),
        ("all_reduce -e 1K --algo ring", "all_reduce -e 1K --algo tree", "algorithm=tree"),
        ("all_reduce -e 1K --transport tcp", "all_reduce -e 1K", "transport=any"),
    ];
    for (first, second, wanted) in cases {
        let port = free_port();
        let ranks = [(0, first), (1, second)].map(|(rank, flags)| {
            let arguments: Vec<&str> = ["bench"].into_iter().chain(flags.split(' ')).collect();
            Job::rank(rank, 2, port, &arguments)
        });
        let wanted = wanted.replace("HOST", &host());
        for rank in ranks {
            let end = rank.end(SOON);
            end.failed_with(&[&format!("on {}: ", host()), &wanted]);
            assert_eq!(end.code, Some(2));
        }
    }
}

#[test]
fn more_than_the_memory_is_refused_before_it_is_taken() {
    for more in [&[][..], &["--private"]] {
        let arguments = ["bench", "all_reduce", "-b", "100T", "-e", "100T", "--ranks", "2"];
        let end = Job::start(arguments.iter().chain(more), &[]).end(SOON);
        end.failed_with(&[
            &format!("rank 0 on {}: 2 ranks need 409600.0 GiB for buffers", host()),
            "(memory)",
        ]);
        assert_eq!(end.code, Some(2));
    }
}

#[test]
fn an_interrupt_ends_all_ranks() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let job = running(&[]);
        job.signal_group(signal);
        let end = job.end(SOON);
        assert_eq!(end.code, Some(128 + signal.as_raw()), "{end:?}");
        assert_eq!(end.stderr, "error: interrupted\n", "{end:?}");
    }
}

#[test]
fn an_interrupt_is_possible_while_ranks_meet() {
    let port = free_port();
    let rank = Job::rank(0, 2, port, &SHORT);
    drop(knock(port));
    rank.signal_group(Signal::INT);
    assert_eq!(rank.end(SOON).code, None, "by the signal itself");
}

#[test]
fn arguments_that_cannot_be_are_reported() {
    let cases = [
        ("all_reduce -b 1Z", "`1Z` is not a size"),
        ("all_reduce -b 99999999999999999999", "is not a size"),
        ("all_reduce -e 1000000T", "is too large"),
        ("all_reduce -b 2K -e 1K", "-b 2048 is larger than -e 1024"),
        ("all_reduce -f 0", "0 is not in"),
        ("all_reduce -i 0", "-i 0 never reaches -e"),
        ("all_reduce -b 8 -e 1G -i 8", "more than 100000 sizes"),
        ("all_reduce -n 0", "`0` is not a count"),
        ("all_reduce -m 0", "`0` is not a count"),
        ("all_reduce -I 1 -n 5 -K 5", "-K needs -I 1"),
        ("all_reduce --ranks 0", "0 is not in 1..=4096"),
        ("all_reduce --ranks 100000", "100000 is not in 1..=4096"),
        ("all_reduce -g 4096 -t 4096", "cannot start 16777216 ranks on this host"),
        ("all_reduce --timeout 0", "0 is not in 1..=86400"),
        ("all_reuce", "`all_reuce` is not a collective; expected one of all_reduce, all_gather"),
        ("all_reduce --algo fast", "`fast` is not an algorithm; expected one of ring"),
        ("all_reduce --transport rdma", "`rdma` is not a transport; expected shm or tcp"),
        ("all_reduce -d float8", "float8"),
        ("all_reduce -o xor", "xor"),
        ("broadcast -r 5 --ranks 2 -e 8", "root 5 does not exist: it must be one of the ranks"),
        (
            "all_reduce --ranks 2 -e 8 --transport tcp --net none7",
            "no interface that is up matches `none7`; this host has lo",
        ),
        ("all_reduce --format json --format text", "only one --format can go to standard output"),
        ("all_reduce -e 8 -J /nowhere/file", "/nowhere/file: folder /nowhere does not exist"),
        ("all_reduce -e 8 --plot plot.png", "--plot writes an SVG file: use the name plot.png.svg"),
        ("all_reduce -e 8 --log /nowhere/file", "/nowhere/file: folder /nowhere does not exist"),
        ("all_reduce -e 8 --plot /nowhere/file", "/nowhere/file: folder /nowhere does not exist"),
        ("--compare /nowhere/a /nowhere/b", "/nowhere/a: No such file"),
    ];
    for (flags, wanted) in cases {
        let answer = plumb(["bench"].into_iter().chain(flags.split(' ')));
        assert_eq!((answer.code, answer.stdout.as_str()), (Some(2), ""), "{flags}: {answer:?}");
        assert!(answer.stderr.contains(wanted), "{flags}: {}", answer.stderr);
        assert_eq!(answer.stderr.matches("error:").count(), 1, "{flags}: {}", answer.stderr);
    }
}

#[test]
fn unusual_arguments_are_served() {
    for flags in [
        "-b 0 -e 0",
        "-b 7 -e 7 -i 0",
        "-f 1 -b 8 -e 1K",
        "-b 8 -e 8 -w 0 -n 1",
        "-e 8 -c 0",
        "-b 1 -e 3 -d double",
        // The former name of --repeats.
        "-e 8 --looks 1",
    ] {
        let arguments = ["bench", "all_reduce", "--ranks", "2"].into_iter().chain(flags.split(' '));
        Job::start(arguments, &[]).end(LIMIT).succeeded();
    }
    let endless = ["bench", "all_reduce", "--ranks", "2", "-e", "1K", "-N", "18446744073709551615"];
    let job = Job::start(endless, &[]);
    job.wait_for_rows();
    job.signal_group(Signal::TERM);
    assert_eq!(job.end(SOON).code, Some(143));
}

#[test]
fn flags_of_the_host_engine_leave_nccl_alone() {
    let log = folder("bench_nccl_log").join("log");
    std::fs::write(&log, "mine").expect("a file");
    let flags = ["--engine", "nccl", "--nccl-library", "/nowhere", "--log", log.to_str().expect("UTF-8")];
    let hosts = [[("PLUMB_HOSTID", "a")], [("PLUMB_HOSTID", "b")]];
    let port = free_port();
    let arguments = [&SHORT[..], &flags, &["--transport", "shm", "--algo", "oneshot"]].concat();
    // They meet all the same, and find that there is no NCCL.
    for rank in [0, 1].map(|it| Job::rank_with(it, 2, port, &arguments, &hosts[it])) {
        rank.end(SOON).failed_with(&["NCCL engine: "]);
    }
    assert_eq!(std::fs::read_to_string(log).expect("the file"), "mine");
}

#[test]
fn variables_that_cannot_be_are_reported() {
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("PLUMB_RANK", "x")], "PLUMB_RANK"),
        (&[("PLUMB_RANK", "0")], "PLUMB_SIZE"),
        (
            &[("PLUMB_RANK", "5"), ("PLUMB_SIZE", "2"), ("PLUMB_RENDEZVOUS", "127.0.0.1:1")],
            "expected less than the number of ranks, 2",
        ),
        (&[("PLUMB_RANK", "0"), ("PLUMB_SIZE", "2"), ("PLUMB_RENDEZVOUS", "nowhere")], "PLUMB_RENDEZVOUS"),
    ];
    for (variables, wanted) in cases {
        let end = Job::start(SHORT, variables).end(SOON);
        end.failed_with(&[wanted]);
        assert!(end.after < Duration::from_secs(60) && end.code == Some(2), "{end:?}");
    }
}
