//! What went wrong, with whom, and when.

use std::fmt;

/// Why a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A rank's process ended without saying goodbye.
    Died,
    /// A rank lives no sign: stopped, hung, or its machine is gone.
    Silent,
    /// A rank did not come to the rendezvous.
    NeverArrived,
    /// A connection broke although both ends live.
    Reset,
    /// Ranks called different things.
    Mismatch,
    /// The other side does not know the job's token.
    Token,
    /// The other side is another release of this library.
    Version,
    /// The address to listen on is taken.
    PortInUse,
    /// Memory to share could not be had.
    NoMemory,
    /// A signal asked to end.
    Interrupted,
    /// Arguments that cannot be.
    Usage,
    /// The operating system refused something.
    System,
}

/// One failure: what, whose fault, when.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The kind.
    pub cause: Cause,
    /// The rank it is about, if one is known.
    pub rank: Option<usize>,
    /// The host of that rank, or the address, if known.
    pub host: Option<String>,
    /// What the job was doing: `rendezvous`, `all_reduce of 1048576 bytes`.
    pub stage: String,
    /// A sentence about it, without the names above: `its process ended`.
    pub detail: String,
}

impl Error {
    /// A failure that is not about one rank.
    pub fn new(cause: Cause, stage: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause, rank: None, host: None, stage: stage.into(), detail: detail.into() }
    }

    /// The same about a rank on a host.
    #[must_use]
    pub fn of(mut self, rank: usize, host: impl Into<String>) -> Self {
        self.rank = Some(rank);
        self.host = Some(host.into());
        self
    }

    /// A call to the operating system that failed.
    pub fn system(stage: impl Into<String>, what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Self::new(Cause::System, stage, format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.rank, &self.host) {
            (Some(rank), Some(host)) => write!(f, "rank {rank} on {host}: ")?,
            (Some(rank), None) => write!(f, "rank {rank}: ")?,
            (None, Some(host)) => write!(f, "{host}: ")?,
            (None, None) => {}
        }
        write!(f, "{}", self.detail)?;
        if self.stage.is_empty() { Ok(()) } else { write!(f, " ({})", self.stage) }
    }
}

impl std::error::Error for Error {}
