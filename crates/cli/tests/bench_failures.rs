//! What goes wrong with ranks, for real: every other rank ends soon, one message names the rank, the host and the stage, and
//! nothing is left behind.

#[path = "../../launch/tests/bed/mod.rs"]
mod bed;
#[expect(dead_code, reason = "other tests use the rest")]
mod common;
#[expect(dead_code, reason = "other tests use the rest")]
mod job;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use bed::need;
use bed::port::free_port;
use common::{folder, plumb};
use job::{ENDLESS, Job, LONG, SOON, host, signal, wait_for};

const SHORT: [&str; 8] = ["bench", "all_reduce", "-e", "1K", "--timeout", "60", "--repeats", "0"];

/// Three ranks in the middle of their work.
fn running(more: &[&str]) -> Job {
    let job = Job::start(ENDLESS.iter().chain(&["--ranks", "3"]).chain(more), &[]);
    job.wait_for_rows();
    job
}

/// Both ways over which ranks of one machine can work.
const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    for transport in TRANSPORTS {
        for rank in [0, 1, 2] {
            let job = running(&["--transport", transport]);
            signal(&job.pid_of(rank).to_string(), "KILL");
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
        ranks[killed].signal("KILL");
        let dead = ranks.remove(killed);
        for rank in ranks {
            let end = rank.end(SOON);
            end.failed_with(&[&format!("rank {killed} on {}: its process ended (", host())]);
            assert_eq!(end.code, Some(2), "{end:?}");
        }
        assert_eq!(dead.end(SOON).code, None);
    }
}

/// The TCP connections of a process: both ends of each.
fn connections(pid: u32) -> Vec<[String; 2]> {
    let list = Command::new("ss").args(["-tnpH", "state", "established"]).output().expect("ss of iproute2");
    let owner = format!("pid={pid},");
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let ends = |line: &str| {
        let mut words = line.split_whitespace().skip(2).map(str::to_owned);
        Some([words.next()?, words.next()?])
    };
    list.lines().filter(|it| it.contains(&owner)).filter_map(ends).collect()
}

#[test]
fn a_connection_that_is_reset_is_reported() {
    need("ss", &["iproute2"]);
    // To rank 0's door, and between the ranks for data.
    for door in [false, true] {
        let port = free_port();
        let endless = [&ENDLESS[..], &["--transport", "tcp"]].concat();
        let ranks = [0, 1].map(|it| Job::rank(it, 2, port, &endless));
        ranks[0].wait_for_rows();
        let all = connections(ranks[1].pid());
        assert_eq!(all.len(), 2, "{all:?}");
        let is_wanted = |ends: &&[String; 2]| ends[1].ends_with(&format!(":{port}")) == door;
        let wanted = all.iter().find(is_wanted).expect("one of each");
        let [here, there] = wanted;
        // The kernel resets it: both ends get an error, the processes live.
        let mut kill = Command::new("ss");
        kill.args(["-K", "src", here, "dst", there]).output().expect("ss of iproute2");
        let left = connections(ranks[1].pid());
        assert!(!left.contains(wanted), "the kernel did not reset it: {left:?}");
        for rank in ranks {
            let end = rank.end(SOON);
            end.failed_with(&["error: rank ", &format!(" on {}: ", host()), "("]);
            assert_eq!(end.code, Some(2), "{end:?}");
            if !door {
                assert!(end.stderr.contains("the connection to it broke: "), "{end:?}");
            }
        }
    }
}

#[test]
fn ranks_do_not_outlive_their_starter() {
    let job = running(&[]);
    job.signal("KILL");
    let end = job.end(SOON);
    assert_eq!((end.code, end.stderr.as_str()), (None, ""));
}

#[test]
fn a_rank_that_is_stopped_is_named_and_ended() {
    for transport in TRANSPORTS {
        for rank in [0, 2] {
            let job = running(&["--transport", transport, "--timeout", "3"]);
            signal(&job.pid_of(rank).to_string(), "STOP");
            // 3 s of silence, up to 3 s to ask everyone, 2 s for the stopped one to end.
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
    wait_for("rank 0 to listen", || {
        found = connect();
        found.is_some()
    });
    found.expect("just seen")
}

/// What a rank says first, as it says it.
fn greeting() -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    let rank = Job::rank(1, 2, port, &["bench", "all_reduce", "--timeout", "60"]);
    let (mut stream, _) = listener.accept().expect("the rank comes");
    let mut bytes = vec![0; 106];
    stream.read_exact(&mut bytes).expect("a greeting");
    rank.signal("KILL");
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
    for end in [first.end(LONG), second.end(LONG)] {
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
    let (mut stream, _) = listener.accept().expect("the rank comes");
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
    // One of both is told at once, the others when the rank that is missing did not come.
    wait_for("one of both to end", || twins.iter().any(Job::has_ended));
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

/// Runs a shell script in a mount namespace of its own, with `$0` plumb.
fn mounted(script: &str) -> Job {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-ec", script, env!("CARGO_BIN_EXE_plumb")]);
    Job::command(command, &[])
}

#[test]
fn no_space_for_shared_memory_is_reported() {
    let folder = folder("no_space_for_shared_memory");
    let tiny = folder.display();
    let script = |size: &str, sizes: &str| {
        format!(
            "mount -t tmpfs -o size={size} none {tiny}; export PLUMB_SHM_DIR={tiny}; \
             exec $0 bench all_reduce --ranks 3 {sizes}"
        )
    };
    let space = format!("bytes of shared memory in {tiny}: No space left on device");
    // Not even for what ranks always need, and not for large buffers.
    for script in [script("1m", "-e 8"), script("64m", "-b 32M -e 32M")] {
        let end = mounted(&script).end(LONG);
        end.failed_with(&["rank ", &format!("on {}: no space for ", host()), &space, "(shared memory)"]);
        assert_eq!(end.code, Some(2));
    }
    mounted(&script("200m", "-e 1M")).end(LONG).succeeded();
}

#[test]
fn containers_with_a_tiny_dev_shm_need_nothing_else() {
    let script = "mount -t tmpfs -o size=64k none /dev/shm; exec $0 bench all_reduce --ranks 3 -e 4M";
    mounted(script).end(LONG).succeeded();
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
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let job = running(&[]);
        job.signal_group(name);
        let end = job.end(SOON);
        assert_eq!(end.code, Some(128 + number), "{end:?}");
        assert_eq!(end.stderr, "error: interrupted\n", "{end:?}");
    }
}

#[test]
fn an_interrupt_is_possible_while_ranks_meet() {
    let port = free_port();
    let rank = Job::rank(0, 2, port, &SHORT);
    drop(knock(port));
    rank.signal_group("INT");
    assert_eq!(rank.end(SOON).code, None, "by the signal itself");
}

#[test]
fn arguments_that_cannot_be_are_reported() {
    let cases = [
        ("all_reduce -b 1Z", "`1Z` is no size"),
        ("all_reduce -b 99999999999999999999", "is no size"),
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
        ("all_reuce", "`all_reuce` is no collective: all_reduce, all_gather"),
        ("all_reduce --algo fast", "`fast` is not an algorithm; expected one of ring"),
        ("all_reduce --transport rdma", "`rdma` is not a transport; expected shm or tcp"),
        ("all_reduce -d float8", "float8"),
        ("all_reduce -o xor", "xor"),
        ("broadcast -r 5 --ranks 2 -e 8", "there is no rank 5 to be the root"),
        (
            "all_reduce --ranks 2 -e 8 --transport tcp --net none7",
            "no interface that is up matches `none7`; this host has lo",
        ),
        ("all_reduce --format json --format text", "only one --format can go to standard output"),
        ("all_reduce -e 8 -J /nowhere/file", "/nowhere/file: there is no folder /nowhere"),
        ("all_reduce -e 8 --plot plot.png", "--plot writes an SVG: name the file plot.png.svg"),
        ("all_reduce -e 8 --log /nowhere/file", "/nowhere/file: there is no folder /nowhere"),
        ("all_reduce -e 8 --plot /nowhere/file", "/nowhere/file: there is no folder /nowhere"),
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
        Job::start(arguments, &[]).end(LONG).succeeded();
    }
    let endless = ["bench", "all_reduce", "--ranks", "2", "-e", "1K", "-N", "18446744073709551615"];
    let job = Job::start(endless, &[]);
    job.wait_for_rows();
    job.signal_group("TERM");
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
            &[("PLUMB_RANK", "5"), ("PLUMB_SIZE", "2"), ("PLUMB_MEETING", "127.0.0.1:1")],
            "expected less than the number of ranks, 2",
        ),
        (&[("PLUMB_RANK", "0"), ("PLUMB_SIZE", "2"), ("PLUMB_MEETING", "nowhere")], "PLUMB_MEETING"),
    ];
    for (variables, wanted) in cases {
        let end = Job::start(SHORT, variables).end(SOON);
        end.failed_with(&[wanted]);
        assert!(end.after < Duration::from_secs(60) && end.code == Some(2), "{end:?}");
    }
}
