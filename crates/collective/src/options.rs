//! What a rank says when it joins.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::{Algorithm, Meeting, Token};

/// A kind of path between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Shared memory: ranks of one host.
    Shm,
    /// TCP.
    Tcp,
}

impl Transport {
    /// Its name: `shm`, `tcp`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shm" => Ok(Self::Shm),
            "tcp" => Ok(Self::Tcp),
            _ => Err(format!("`{text}` is no transport; there are shm, tcp")),
        }
    }
}

/// What a rank says when it joins. All ranks say the same, but for their number.
#[non_exhaustive]
pub struct Options {
    /// This rank's number, from 0.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// Where they meet.
    pub meeting: Meeting,
    /// What they know and nobody else does.
    pub token: Token,
    /// How long a rank waits for others without any progress.
    pub timeout: Duration,
    /// The only transport to use; without one, shared memory inside a host and TCP between hosts.
    pub transport: Option<Transport>,
    /// The network to use: an interface's name, an address or a subnet. Without one, as NCCL would choose.
    pub network: Option<String>,
    /// The only algorithm to use, where it can do the collective.
    pub algorithm: Option<Algorithm>,
    /// TCP sockets to each peer, each with a thread of its own.
    pub channels: usize,
    /// A name for this rank's host: ranks with different names do not share memory.
    pub host: Option<String>,
    /// Whether private buffers may be reached by cross-memory attach.
    pub cross_memory: bool,
    /// A folder for shared memory, in place of memory without a name.
    pub folder: Option<PathBuf>,
    /// Where to write what is chosen, in the shape of NCCL's log.
    pub log: Option<Box<dyn Write + Send>>,
}

impl Options {
    /// The usual ones.
    pub fn new(rank: usize, size: usize, meeting: Meeting, token: Token) -> Self {
        Self {
            rank,
            size,
            meeting,
            token,
            timeout: Duration::from_secs(60),
            transport: None,
            network: None,
            algorithm: None,
            channels: 1,
            host: None,
            cross_memory: true,
            folder: None,
            log: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}
