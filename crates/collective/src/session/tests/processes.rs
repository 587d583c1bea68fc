//! Ranks that are processes, to be killed and stopped: the test program starts itself again.

#![allow(clippy::print_stdout, reason = "a rank that is a process tells its test how far it is")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// Rank, size and port of a child process.
const CHILD: &str = "PLUMB_TEST_CHILD";

/// The stage that the ranks wait in.
const WAITS: &str = "a share that the test does not call";

/// For a line of a child process, and for its end.
const LIMIT: Duration = Duration::from_secs(120);

/// From here on errors name [`WAITS`] as the stage, however late `share` is called.
fn set_stage(session: &Session) {
    session.channel.as_ref().expect("more than one rank").inbox().set_stage(WAITS);
}

/// The body of the child processes; does nothing as a test.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let [rank, size, port] = words[..] else { panic!("three words") };
    let (rank, size) = (rank.parse().expect("a rank"), size.parse().expect("a size"));
    let rendezvous = if rank == 0 {
        let listener = RendezvousListener::bind(LOCAL, 0).expect("loopback");
        println!("\nlistener {}", listener.address());
        Rendezvous::Listen(listener)
    } else {
        connect_to(SocketAddr::new(LOCAL, port.parse().expect("a port")))
    };
    let mut session = join(options(rank, size, rendezvous, LONG)).expect("joins");
    set_stage(&session);
    println!("\njoined");
    let end = session.share(&[], WAITS);
    println!("end {}", end.expect_err("the job fails"));
}

struct Process {
    child: Child,
    /// Lines of its standard output, read by a thread.
    lines: mpsc::Receiver<String>,
}

impl Process {
    fn start(rank: usize, size: usize, port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "session::tests::processes::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{rank} {size} {port}"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines() {
                // The test may have ended already.
                let _ = sender.send(line.expect("text"));
            }
        });
        Self { child, lines }
    }

    /// The rest of the next line that begins with `prefix`.
    fn line(&mut self, prefix: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no line `{prefix}` within {LIMIT:?}: {error}"));
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }

    /// Waits until it has ended.
    fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the process has not ended within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops it, and waits until all its threads are stopped.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat =
                std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("it lives");
            stat.rsplit(')').next().is_some_and(|it| it.starts_with(" T"))
        };
        let deadline = Instant::now() + LIMIT;
        while !std::fs::read_dir(&tasks).expect("it lives").all(stopped) {
            assert!(Instant::now() < deadline, "the process has not stopped within {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a process");
        kill_process(pid, signal).expect("it lives");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rank 0 of a job of three, whose ranks 1 and 2 are processes.
fn job_with_processes() -> (Session, [Process; 2]) {
    let (listener, address) = listener();
    let mut others = [1, 2].map(|rank| Process::start(rank, 3, address.port()));
    let session = join(options(0, 3, Rendezvous::Listen(listener), LONG)).expect("joins");
    for other in &mut others {
        other.line("joined");
    }
    (session, others)
}

#[test]
fn a_killed_rank_is_named_soon() {
    let (session, [victim, mut other]) = job_with_processes();
    victim.signal(Signal::KILL);
    let killed = Instant::now();
    while !session.abort_flag.is_raised() {
        assert!(killed.elapsed() < Duration::from_secs(10), "too late");
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = session.abort_flag.verdict().expect("raised");
    assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)));
    assert!(other.line("end ").starts_with("rank 1 on node1: its process ended"));
    assert!(other.end().success());
}

#[test]
fn a_killed_rank_0_is_named_by_all() {
    let mut first = Process::start(0, 3, 0);
    let address: SocketAddr = first.line("listener ").parse().expect("an address");
    let mut other = Process::start(2, 3, address.port());
    let mut session = peer(1, 3, address, LONG).expect("joins");
    first.line("joined");
    other.line("joined");
    set_stage(&session);
    first.signal(Signal::KILL);
    let error = session.share(&[], WAITS).expect_err("rank 0 is dead");
    let wanted = format!("rank 0 on node0: its process ended ({WAITS})");
    assert_eq!((error.cause, error.to_string()), (Cause::Died, wanted.clone()));
    assert_eq!(other.line("end "), wanted);
}

#[test]
fn a_stopped_rank_is_named_as_silent() {
    let (session, [mut victim, mut other]) = job_with_processes();
    victim.stop();
    let late = Error::new(Cause::Silent, "all_reduce of 8 bytes", "sent nothing for 60 s").of(2, "node2");
    let error = session.fail(late);
    let wanted = "rank 1 on node1: does not answer: its process is stopped, or its host is down (all_reduce of 8 bytes)";
    assert_eq!((error.cause, error.to_string().as_str()), (Cause::Silent, wanted));
    assert_eq!(other.line("end "), wanted);
    // Once it continues it gets the verdict.
    victim.signal(Signal::CONT);
    assert_eq!(victim.line("end "), wanted);
}

#[test]
fn a_stopped_rank_0_is_named_by_the_reporter() {
    let mut first = Process::start(0, 2, 0);
    let address: SocketAddr = first.line("listener ").parse().expect("an address");
    let session = peer(1, 2, address, LONG).expect("joins");
    first.line("joined");
    first.stop();
    let late = Error::new(Cause::Silent, "barrier", "sent nothing for 60 s").of(0, "node0");
    let error = session.fail(late);
    assert_eq!(
        error.to_string(),
        "rank 0 on node0: does not answer: its process is stopped, or its host is down (barrier)"
    );
}
