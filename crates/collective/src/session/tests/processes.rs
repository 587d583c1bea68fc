//! Ranks that are processes, killed and stopped: the test program starts itself again.

#![allow(clippy::print_stdout, reason = "a rank that is a process tells its test how far it is")]

use testbed::{LIMIT, Running, Signal, signal};

use super::*;

/// What a rank does that is a process of its own.
const CHILD: &str = "PLUMB_TEST_CHILD";

/// Where the ranks wait for the one that will not come.
const WAITS: &str = "a share that the test does not come to";

/// Whatever happens from here on finds the rank waiting, however late it comes to `share`.
fn goes_to_wait(session: &Session) {
    session.post.as_ref().expect("more than one rank").inbox().set_stage(WAITS);
}

/// Not a test of its own: the body of the child processes.
#[test]
fn child() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = what.split(' ').collect();
    let [rank, size, place] = words[..] else { panic!("three words") };
    let (rank, size) = (rank.parse().expect("a rank"), size.parse().expect("a size"));
    let meeting = if rank == 0 {
        let door = Door::open(LOCAL, 0).expect("loopback");
        println!("\ndoor {}", door.address());
        Meeting::Open(door)
    } else {
        Meeting::At(place.to_owned())
    };
    let mut session = join(entry(rank, size, meeting, LONG)).expect("joins");
    goes_to_wait(&session);
    println!("\njoined");
    let end = session.share(&[], WAITS);
    println!("end {}", end.expect_err("the job fails"));
}

struct Process(Running);

impl Process {
    fn start(rank: usize, size: usize, place: &str) -> Self {
        let mut command = testbed::program(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "session::tests::processes::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{rank} {size} {place}"));
        Self(Running::start(&mut command))
    }

    /// The rest of the first line that begins so.
    fn line(&self, prefix: &str) -> String {
        let line = self.0.line(|it| it.starts_with(prefix));
        line[prefix.len()..].to_owned()
    }

    /// Stops it, and waits until all its threads have.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.0.pid());
        let stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat =
                std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("it lives");
            stat.rsplit(')').next().is_some_and(|it| it.starts_with(" T"))
        };
        self.0.until("all its threads are stopped", || {
            std::fs::read_dir(&tasks).expect("it lives").all(stopped)
        });
    }

    fn signal(&self, which: Signal) {
        signal(self.0.pid(), which);
    }
}

#[test]
fn a_killed_rank_is_named_soon() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 3, LONG);
        let victim = Process::start(1, 3, &place.to_string());
        let other = Process::start(2, 3, &place.to_string());
        let session = first.join().expect("no panic").expect("joins");
        victim.line("joined");
        other.line("joined");
        victim.signal(Signal::KILL);
        let began = Instant::now();
        while !session.alarm.is_raised() {
            assert!(began.elapsed() < Duration::from_secs(10), "too late");
            std::thread::sleep(Duration::from_millis(1));
        }
        let error = session.alarm.verdict().expect("raised");
        assert_eq!((error.cause, error.rank), (Cause::Died, Some(1)));
        assert!(other.line("end ").starts_with("rank 1 on node1: its process ended"));
        assert!(other.0.finish(LIMIT).status.success());
    });
}

#[test]
fn a_killed_rank_0_is_named_by_all() {
    let first = Process::start(0, 3, "here");
    let place: SocketAddr = first.line("door ").parse().expect("an address");
    let other = Process::start(2, 3, &place.to_string());
    let mut session = guest(1, 3, place, LONG).expect("joins");
    first.line("joined");
    other.line("joined");
    goes_to_wait(&session);
    first.signal(Signal::KILL);
    let error = session.share(&[], WAITS).expect_err("rank 0 is dead");
    let wanted = format!("rank 0 on node0: its process ended ({WAITS})");
    assert_eq!((error.cause, error.to_string()), (Cause::Died, wanted.clone()));
    assert_eq!(other.line("end "), wanted);
}

#[test]
fn a_stopped_rank_is_named_as_silent() {
    let (door, place) = door();
    std::thread::scope(|scope| {
        let first = first(scope, door, 3, LONG);
        let victim = Process::start(1, 3, &place.to_string());
        let other = Process::start(2, 3, &place.to_string());
        let session = first.join().expect("no panic").expect("joins");
        victim.line("joined");
        other.line("joined");
        victim.stop();
        let late = Error::new(Cause::Silent, "all_reduce of 8 bytes", "sent nothing for 60 s").of(2, "node2");
        let error = session.fail(late);
        let wanted =
            "rank 1 on node1: does not answer: stopped, or its machine is gone (all_reduce of 8 bytes)";
        assert_eq!((error.cause, error.to_string().as_str()), (Cause::Silent, wanted));
        assert_eq!(other.line("end "), wanted);
        // Once it goes on it learns its fate.
        victim.signal(Signal::CONT);
        assert_eq!(victim.line("end "), wanted);
    });
}

#[test]
fn a_stopped_rank_0_is_named_by_who_complains() {
    let first = Process::start(0, 2, "here");
    let place: SocketAddr = first.line("door ").parse().expect("an address");
    let session = guest(1, 2, place, LONG).expect("joins");
    first.line("joined");
    first.stop();
    let late = Error::new(Cause::Silent, "barrier", "sent nothing for 60 s").of(0, "node0");
    let error = session.fail(late);
    assert_eq!(
        error.to_string(),
        "rank 0 on node0: does not answer: stopped, or its machine is gone (barrier)"
    );
}
