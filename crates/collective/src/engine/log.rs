//! A log in the form of NCCL's, so that the same tools can read it.

use std::io::Write;

use crate::schedule::Kind;

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

    /// Writes a line. Errors are ignored: a log must not end a job.
    pub(super) fn line(&mut self, text: &str) {
        if let Some(out) = &mut self.out {
            let _ = writeln!(out, "{} NCCL INFO {text}", self.prefix);
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.out.is_some()
    }

    /// The choice for a collective.
    pub(super) fn choice(&mut self, kind: Kind, text: &str) {
        if self.is_enabled() {
            self.line(&format!("plumb: {} by {text}", kind.name()));
        }
    }
}
