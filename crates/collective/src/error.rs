use std::fmt;

/// Why a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The process of a rank ended before it left the job.
    Died,
    /// A rank does not answer: it is stopped or hangs, or its host is down.
    Silent,
    /// A rank did not join the rendezvous in time.
    DidNotJoin,
    /// A connection broke although both processes are alive.
    Reset,
    /// Ranks made different calls.
    Mismatch,
    /// The other side does not know the job's token.
    Token,
    /// The other side is another release of this library.
    Version,
    /// The address to listen on is in use.
    PortInUse,
    /// Shared memory could not be allocated.
    NoMemory,
    /// The job was aborted, for example because of a signal.
    Interrupted,
    /// Invalid arguments.
    Usage,
    /// A system call failed.
    System,
}

/// A failure, with the rank, host and stage it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// Why the job ended.
    pub cause: Cause,
    /// The rank it is about, if one is known.
    pub rank: Option<usize>,
    /// The host of that rank, or the address, if known.
    pub host: Option<String>,
    /// What the job was doing: `rendezvous`, `all_reduce of 1048576 bytes`.
    pub stage: String,
    /// A description without rank, host and stage: `its process ended`.
    pub detail: String,
}

impl Error {
    /// A failure that is not about one rank.
    pub fn new(cause: Cause, stage: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { cause, rank: None, host: None, stage: stage.into(), detail: detail.into() }
    }

    /// The same error about a rank on a host.
    #[must_use]
    pub fn of(mut self, rank: usize, host: impl Into<String>) -> Self {
        self.rank = Some(rank);
        self.host = Some(host.into());
        self
    }

    /// A system call that failed.
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
