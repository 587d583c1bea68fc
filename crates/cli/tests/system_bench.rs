//! What goes wrong with ranks, where it takes root to bring it about: connections that the kernel resets, memory that is full.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;
#[expect(dead_code, reason = "other tests use the rest")]
mod job;

use common::folder;
use job::{ENDLESS, Job, SOON, host};
use testbed::{LIMIT, free_port, need, output, program};

/// The TCP connections of a process: both ends of each.
fn connections(pid: u32) -> Vec<[String; 2]> {
    let list = output(program(need("ss")).args(["-tnpH", "state", "established"]));
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
    // To rank 0's listener, and between the ranks for data.
    for control in [false, true] {
        let port = free_port();
        let endless = [&ENDLESS[..], &["--transport", "tcp"]].concat();
        let ranks = [0, 1].map(|it| Job::rank(it, 2, port, &endless));
        ranks[0].wait_for_rows();
        let all = connections(ranks[1].pid());
        assert_eq!(all.len(), 2, "{all:?}");
        let is_wanted = |ends: &&[String; 2]| ends[1].ends_with(&format!(":{port}")) == control;
        let wanted = all.iter().find(is_wanted).expect("one of each");
        let [here, there] = wanted;
        // The kernel resets it: both ends get an error, the processes live.
        output(program(need("ss")).args(["-K", "src", here, "dst", there]));
        let left = connections(ranks[1].pid());
        assert!(!left.contains(wanted), "the kernel did not reset it: {left:?}");
        for rank in ranks {
            let end = rank.end(SOON);
            end.failed_with(&["error: rank ", &format!(" on {}: ", host()), "("]);
            assert_eq!(end.code, Some(2), "{end:?}");
            if !control {
                assert!(end.stderr.contains("the connection to it broke: "), "{end:?}");
            }
        }
    }
}

/// Runs a shell script in a mount namespace of its own, with `$0` plumb.
fn mounted(script: &str) -> Job {
    let mut command = program(need("unshare"));
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
        let end = mounted(&script).end(LIMIT);
        end.failed_with(&["rank ", &format!("on {}: no space for ", host()), &space, "(shared memory)"]);
        assert_eq!(end.code, Some(2));
    }
    mounted(&script("200m", "-e 1M")).end(LIMIT).succeeded();
}

#[test]
fn containers_with_a_tiny_dev_shm_need_nothing_else() {
    let script = "mount -t tmpfs -o size=64k none /dev/shm; exec $0 bench all_reduce --ranks 3 -e 4M";
    mounted(script).end(LIMIT).succeeded();
}
