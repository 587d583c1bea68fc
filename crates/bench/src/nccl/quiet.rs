//! Keeps NCCL off the standard output, where the table or the JSON goes.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::stdio::dup2_stdout;

/// While it lives, what is written to the standard output is lost.
///
/// NCCL 2.18 prints its release there when it joins, whatever file it was told to log to. NCCL's log has it too, and so does
/// the head of the table.
pub(super) struct Quiet {
    /// The standard output as it was.
    kept: Option<OwnedFd>,
}

impl Quiet {
    /// Begins; where it cannot, nothing changes.
    pub(super) fn begin() -> Self {
        // What was said before goes out before.
        let _ = std::io::stdout().flush();
        let kept = std::io::stdout().as_fd().try_clone_to_owned().ok();
        let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null").ok();
        let hidden = nowhere.zip(kept.as_ref()).is_some_and(|(nowhere, _)| dup2_stdout(&nowhere).is_ok());
        Self { kept: kept.filter(|_| hidden) }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(kept) = &self.kept {
            let _ = dup2_stdout(kept);
        }
    }
}
