//! Ranks started here, with all that can happen to them. Nothing is left behind, whatever it is.

mod lines;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use testbed::{Folder, LIMIT, Running, Signal, free_port, output, signal, signal_group, unlaunched, until};

const STARTER: &str = env!("CARGO_BIN_EXE_starter");
const WHOAMI: &str = env!("CARGO_BIN_EXE_whoami");

/// One run of the starter; its processes are known by a variable.
struct Run {
    folder: Folder,
    mark: String,
    /// Milliseconds.
    grace: &'static str,
}

impl Run {
    fn new(name: &str) -> Self {
        let mark = format!("PLUMB_TEST_MARK={name}-{}", std::process::id());
        Self { folder: Folder::new(name), mark, grace: "200" }
    }

    /// Ranks may take their time to end.
    fn patient(self) -> Self {
        Self { grace: "60000", ..self }
    }

    /// A starter of ranks that run this script, in a process group of its own as under a shell.
    fn starter(&self, ranks: usize, script: &str) -> Command {
        let (name, value) = self.mark.split_once('=').expect("a mark");
        let mut starter = unlaunched(STARTER);
        starter.arg(ranks.to_string()).args([self.grace, "/bin/sh", "-c", script]);
        starter.env(name, value).env("FOLDER", self.folder.path()).process_group(0);
        starter
    }

    fn output(&self, ranks: usize, script: &str) -> Output {
        output(&mut self.starter(ranks, script))
    }

    fn spawn(&self, ranks: usize, script: &str) -> Running {
        let child = Running::start(&mut self.starter(ranks, script));
        for rank in 0..ranks {
            let ready = self.folder.file(&format!("ready.{rank}"));
            until("all ranks are up", || ready.exists());
        }
        child
    }

    /// The processes of this run that are alive.
    fn alive(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
        let ours = |it: &fs::DirEntry| {
            let environment = fs::read(it.path().join("environ")).unwrap_or_default();
            environment.split(|it| *it == 0).any(|it| it == self.mark.as_bytes())
        };
        processes.filter(ours).map(|it| it.file_name().to_string_lossy().into_owned()).collect()
    }

    #[track_caller]
    fn nothing_left(&self) {
        assert_eq!(self.alive(), Vec::<String>::new());
    }
}

const WAIT: &str = "while :; do sleep 1000 & wait; done";

#[test]
fn ranks_that_succeed() {
    let run = Run::new("succeed");
    let output = run.output(
        3,
        "echo out $PLUMB_RANK of $PLUMB_SIZE; echo err $PLUMB_LOCAL_RANK >&2; echo error: same >&2",
    );
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out 0 of 3\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    let mut errors: Vec<_> = errors.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["err 0", "err 1", "err 2", "error: same"]);
    run.nothing_left();
}

#[test]
fn long_stderr_is_complete() {
    let run = Run::new("long");
    let output = run.output(2, "seq 1 50000 >&2; exit 0");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 100_000);
}

#[test]
fn a_rank_that_fails() {
    let run = Run::new("fail");
    let output = run.output(3, &format!("[ $PLUMB_RANK = 1 ] && exit 3; {WAIT}"));
    assert_eq!(output.status.code(), Some(3));
    run.nothing_left();
}

#[test]
fn a_rank_that_is_killed() {
    let run = Run::new("killed");
    let output = run.output(3, &format!("[ $PLUMB_RANK = 2 ] && kill -9 $$; {WAIT}"));
    assert_eq!(output.status.code(), Some(128 + 9));
    run.nothing_left();
}

#[test]
fn ranks_that_end_by_themselves_in_the_grace_time() {
    let run = Run::new("grace").patient();
    let script = "if [ $PLUMB_RANK = 0 ]; then kill -9 $$; fi; sleep 0.02; echo end >> $FOLDER/end.$PLUMB_RANK; exit 1";
    let output = run.output(3, script);
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(run.folder.file("end.1").exists() && run.folder.file("end.2").exists());
    run.nothing_left();
}

#[test]
fn ranks_that_ignore_signals() {
    let run = Run::new("deaf");
    let output = run.output(3, &format!("trap '' TERM INT HUP; [ $PLUMB_RANK = 0 ] && exit 4; {WAIT}"));
    assert_eq!(output.status.code(), Some(4));
    run.nothing_left();
}

#[test]
fn a_rank_that_is_stopped() {
    let run = Run::new("stopped");
    let output = run.output(2, &format!("[ $PLUMB_RANK = 0 ] && exit 5; kill -STOP $$; {WAIT}"));
    assert_eq!(output.status.code(), Some(5));
    run.nothing_left();
}

#[test]
fn what_a_rank_started_ends_with_it() {
    let run = Run::new("grandchild");
    let output = run.output(2, "sleep 1000 & exit 0");
    assert_eq!(output.status.code(), Some(0));
    run.nothing_left();
}

#[test]
fn a_starter_that_is_killed() {
    let run = Run::new("orphans").patient();
    let child = run.spawn(3, "touch $FOLDER/ready.$PLUMB_RANK; exec sleep 1000");
    until("all ranks sleep", || run.alive().len() == 4);
    signal(child.pid(), Signal::KILL);
    child.finish(LIMIT);
    until("the ranks end", || run.alive().is_empty());
}

#[test]
fn an_interrupt_reaches_everyone_once() {
    let run = Run::new("interrupt").patient();
    let script = "trap 'echo int >> $FOLDER/int.$PLUMB_RANK; exit 1' INT; touch $FOLDER/ready.$PLUMB_RANK; \
                  sleep 1000 & wait";
    let child = run.spawn(3, script);
    // As a terminal does: to the whole process group.
    signal_group(child.pid(), Signal::INT);
    assert_eq!(child.finish(LIMIT).status.code(), Some(130));
    for rank in 0..3 {
        assert_eq!(fs::read_to_string(run.folder.file(&format!("int.{rank}"))).expect("a file"), "int\n");
    }
    run.nothing_left();
}

#[test]
fn a_request_to_end_is_passed_on() {
    for (request, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let run = Run::new(&format!("request-{code}")).patient();
        let child = run.spawn(2, "touch $FOLDER/ready.$PLUMB_RANK; exec sleep 1000");
        signal(child.pid(), request);
        assert_eq!(child.finish(LIMIT).status.code(), Some(code));
        run.nothing_left();
    }
}

#[test]
fn ranks_meet_over_the_pipe() {
    let mut starter = unlaunched(STARTER);
    starter.args(["9", "2000"]).arg(WHOAMI).env("WHOAMI_STDERR", "1");
    let output = output(&mut starter);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines::check(&output.stderr, 9, "plumb", "KeyValueStore");
}

#[test]
fn pods_start_their_ranks() {
    let port = free_port();
    let pods: Vec<_> = (0..2)
        .map(|node: usize| {
            let mut pod = unlaunched(WHOAMI);
            pod.env("PET_NNODES", "2").env("PET_NODE_RANK", node.to_string()).env("PET_NPROC_PER_NODE", "2");
            pod.env("PET_MASTER_ADDR", "127.0.0.1").env("PET_MASTER_PORT", port.to_string());
            Running::start(pod.env("WHOAMI_STDERR", "1"))
        })
        .collect();
    let mut lines = Vec::new();
    for pod in pods {
        let output = pod.finish(LIMIT);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        lines.extend(output.stderr);
    }
    lines::check(&lines, 4, "plumb", "Endpoint");
}
