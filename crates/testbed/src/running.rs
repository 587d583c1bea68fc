//! Programs with a time limit.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use crate::{LIMIT, holds_within, raw, signal};

/// Runs a program to its end, within [`LIMIT`]. What it prints comes back if the command has pipes for it, as those of [`crate::program`] have.
#[track_caller]
pub fn output(command: &mut Command) -> Output {
    Running::start(command).finish(LIMIT)
}

/// A program that was started, with what it has printed so far. It is killed when this is dropped, with all that it started.
pub struct Running {
    child: Child,
    command: String,
    stdout: Printed,
    stderr: Printed,
    /// Disconnected when both pipes are closed.
    pipes: Receiver<()>,
}

/// What came through a pipe.
type Printed = Arc<Mutex<Vec<u8>>>;

impl Running {
    /// Starts it. Output that has no pipe goes where the command says.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let (open, pipes) = mpsc::channel();
        let stdout = child.stdout.take().map(|it| collect(it, open.clone())).unwrap_or_default();
        let stderr = child.stderr.take().map(|it| collect(it, open)).unwrap_or_default();
        Self { child, command: format!("{command:?}"), stdout, stderr, pipes }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        text(&self.stdout)
    }

    /// What it has printed to its standard error so far.
    pub fn stderr(&self) -> String {
        text(&self.stderr)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        // It stays a child that can be waited for.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(raw(self.pid())), options), Ok(None))
    }

    /// Waits until the condition holds, for at most [`LIMIT`]. A failure shows what the program has printed.
    #[track_caller]
    pub fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        assert!(holds_within(LIMIT, condition), "waited {LIMIT:?} in vain until {what}: {}", self.so_far());
    }

    /// Waits until it has printed such a line, and returns that.
    #[track_caller]
    pub fn line(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut found = None;
        self.until("it prints a certain line", || {
            let ended = self.has_ended() && self.pipes_close_within(Duration::ZERO);
            let printed = self.stdout();
            // The last line is complete when its end is there.
            let whole = printed.rfind('\n').map_or("", |end| &printed[..end]);
            found = whole.lines().find(|it| is_wanted(it)).map(str::to_owned);
            assert!(found.is_some() || !ended, "ended before it printed a certain line: {}", self.so_far());
            found.is_some()
        });
        found.expect("just seen")
    }

    /// Waits for its end and for that of its output. It fails the test if that takes longer than the limit.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Output {
        let end = Instant::now() + limit;
        let closed = self.pipes_close_within(limit);
        let left = end.saturating_duration_since(Instant::now());
        let Some(status) = self.status_within(left) else {
            panic!("still runs after {limit:?}: {}", self.so_far());
        };
        assert!(closed, "ended, but what it started holds its output after {limit:?}: {}", self.so_far());
        let take = |it: &Printed| std::mem::take(&mut *it.lock().expect("a reader does not panic"));
        Output { status, stdout: take(&self.stdout), stderr: take(&self.stderr) }
    }

    /// How it ended, unless it takes longer than the limit.
    pub fn status_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            let status = self.child.try_wait().expect("the program is a child");
            if status.is_some() || Instant::now() >= end {
                return status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pipes_close_within(&self, limit: Duration) -> bool {
        self.pipes.recv_timeout(limit) == Err(RecvTimeoutError::Disconnected)
    }

    fn so_far(&self) -> String {
        format!("{}\n-- stdout --\n{}\n-- stderr --\n{}", self.command, self.stdout(), self.stderr())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The number of a child that was not waited for belongs to nobody else.
        if self.child.try_wait().is_ok_and(|it| it.is_some()) {
            return;
        }
        let started = descendants(self.pid());
        let _ = self.child.kill();
        for pid in started {
            signal(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn collect(mut pipe: impl Read + Send + 'static, open: Sender<()>) -> Printed {
    let printed = Printed::default();
    let into = Arc::clone(&printed);
    std::thread::spawn(move || {
        let _open = open;
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            into.lock().expect("nobody panics with it").extend_from_slice(&buffer[..count]);
        }
    });
    printed
}

fn text(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().expect("a reader does not panic")).into_owned()
}

fn descendants(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|it| std::fs::read_to_string(it.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|it| it.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
        .collect();
    children.into_iter().flat_map(|it| [vec![it], descendants(it)].concat()).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::time::{Duration, Instant};

    use super::{Running, descendants, output};
    use crate::{program, until};

    const SHORT: Duration = Duration::from_millis(300);

    /// What a hang says.
    fn hang(script: &'static str) -> String {
        let began = Instant::now();
        let panic = catch_unwind(|| Running::start(program("sh").args(["-c", script])).finish(SHORT));
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        *panic.expect_err("a hang fails").downcast::<String>().expect("a message")
    }

    #[test]
    fn output_comes_back() {
        let output = output(program("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"out\n"[..], &b"err\n"[..]));
    }

    #[test]
    fn a_hang_shows_the_command_and_what_it_printed() {
        let message = hang("echo half; echo why >&2; sleep 1000; echo rest");
        assert!(message.starts_with("still runs after 300ms: \"sh\" \"-c\" "), "{message}");
        assert!(message.contains("-- stdout --\nhalf\n"), "{message}");
        assert!(message.contains("-- stderr --\nwhy\n"), "{message}");
    }

    #[test]
    fn output_that_stays_open_is_a_hang() {
        let message = hang("sleep 5 & echo started");
        assert!(message.starts_with("ended, but what it started holds its output"), "{message}");
        assert!(message.contains("started"), "{message}");
    }

    #[test]
    fn nothing_is_left_when_it_is_dropped() {
        let running =
            Running::start(program("sh").args(["-c", "sh -c 'sleep 1000 & echo here; wait' & wait"]));
        running.line(|it| it == "here");
        let all = descendants(running.pid());
        assert_eq!(all.len(), 2, "{all:?}");
        drop(running);
        let lives = |pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|it| !it.contains(") Z "))
        };
        until("all have ended", || !all.iter().any(lives));
    }

    #[test]
    #[should_panic(expected = "ended before it printed a certain line")]
    fn a_line_that_cannot_come_any_more() {
        Running::start(program("echo").arg("other")).line(|it| it == "wanted");
    }
}
