//! What was chosen, in the shape of NCCL's log, so that what reads that reads this.

use std::io::Write;

use crate::schedule::Kind;

/// A rank's log, if it is wanted.
pub(super) struct Log {
    out: Option<Box<dyn Write + Send>>,
    /// `host:pid:tid [rank]`.
    prefix: String,
}

impl Log {
    pub(super) fn new(out: Option<Box<dyn Write + Send>>, host: &str, rank: usize) -> Self {
        let pid = std::process::id();
        let thread = rustix::thread::gettid().as_raw_nonzero();
        Self { out, prefix: format!("{host}:{pid}:{thread} [{rank}]") }
    }

    /// One line. A log that cannot be written to does not end a job.
    pub(super) fn line(&mut self, text: &str) {
        if let Some(out) = &mut self.out {
            let _ = writeln!(out, "{} NCCL INFO {text}", self.prefix);
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.out.is_some()
    }

    /// How a collective will be done.
    pub(super) fn choice(&mut self, kind: Kind, text: &str) {
        if self.is_wanted() {
            self.line(&format!("plumb: {} by {text}", kind.name()));
        }
    }
}
