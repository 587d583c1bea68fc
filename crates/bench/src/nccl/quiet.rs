//! Keeps NCCL off the standard output, where the table or the JSON goes.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::stdio::dup2_stdout;

/// While it lives, what is written to the standard output goes to the standard error.
///
/// NCCL 2.18 prints its release there when it joins, whatever file it was told to log to; and a user who sets `NCCL_DEBUG`
/// without a file has its log there.
pub(super) struct Quiet {
    /// The standard output as it was.
    kept: Option<OwnedFd>,
}

impl Quiet {
    /// Begins; where it cannot, nothing changes.
    pub(super) fn begin() -> Self {
        let kept = std::io::stdout().as_fd().try_clone_to_owned().ok();
        let moved = kept.is_some() && dup2_stdout(std::io::stderr()).is_ok();
        Self { kept: kept.filter(|_| moved) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            let _ = dup2_stdout(kept);
        }
    }
}
