//! A line on standard error for every stage as it ends, and one that counts while it runs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The counting line is written at most so often.
const INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Progress {
    started: Instant,
    terminal: bool,
    counted: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(before: Duration) -> Self {
        let now = Instant::now();
        Self {
            started: now.checked_sub(before).unwrap_or(now),
            terminal: io::stderr().is_terminal(),
            counted: None,
        }
    }

    /// Something has ended.
    pub(crate) fn line(&mut self, stage: usize, name: &str, text: &str) {
        self.clear();
        let seconds = self.started.elapsed().as_secs();
        let time = format!("{}:{:02}", seconds / 60, seconds % 60);
        let _ = writeln!(io::stderr(), "{time:>6}  {stage} {name:<9}{}", report::clean(text));
    }

    /// So many of so many have ended.
    pub(crate) fn count(&mut self, stage: usize, name: &str, done: usize, of: usize) {
        if !self.terminal || self.counted.is_some_and(|it| it.elapsed() < INTERVAL) {
            return;
        }
        let seconds = self.started.elapsed().as_secs();
        let time = format!("{}:{:02}", seconds / 60, seconds % 60);
        let _ = write!(io::stderr(), "\r\x1b[K{time:>6}  {stage} {name:<9}{done} of {of}");
        self.counted = Some(Instant::now());
    }

    pub(crate) fn clear(&mut self) {
        if self.counted.take().is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
