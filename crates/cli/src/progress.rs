//! A line on a terminal while an answer takes longer than a second.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shows the line until it is dropped.
pub(crate) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Begins; nothing is shown where standard error is not a terminal.
    pub(crate) fn start(what: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { end: None, thread: None };
        }
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            let mut shown = false;
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                // To the first column, and without what stands there.
                let _ = write!(io::stderr(), "\r\x1b[K{what}: {} s", start.elapsed().as_secs());
                shown = true;
            }
            if shown {
                let _ = write!(io::stderr(), "\r\x1b[K");
            }
        });
        Self { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
