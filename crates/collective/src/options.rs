use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::{Algorithm, Rendezvous, Token};

/// How ranks exchange data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Shared memory, between ranks of one host.
    Shm,
    /// TCP sockets.
    Tcp,
}

impl Transport {
    /// `shm` or `tcp`.
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
            _ => Err(format!("`{text}` is not a transport; expected shm or tcp")),
        }
    }
}

/// How a rank joins. All ranks need the same options, except for the rank, the rendezvous and the log.
#[non_exhaustive]
pub struct Options {
    /// From 0.
    pub rank: usize,
    /// The number of ranks of the job.
    pub size: usize,
    /// Rank 0 listens, the other ranks connect.
    pub rendezvous: Rendezvous,
    /// The shared secret of the job.
    pub token: Token,
    /// How long a rank waits for the others without progress.
    pub timeout: Duration,
    /// The only transport to use. `None`: shared memory inside a host, TCP between hosts.
    pub transport: Option<Transport>,
    /// The network to use: the name of an interface, an address or a subnet. `None`: chosen as NCCL does.
    pub network: Option<String>,
    /// The only algorithm to use; collectives that it does not support are refused. `None`: measured and chosen.
    pub algorithm: Option<Algorithm>,
    /// TCP connections per peer, each with its own thread.
    pub channels: usize,
    /// Overrides the host name: ranks with different names do not share memory.
    pub host: Option<String>,
    /// Whether to access private buffers by cross-memory attach.
    pub cross_memory: bool,
    /// A folder for the files of shared memory. `None`: a memfd, which needs no folder.
    pub folder: Option<PathBuf>,
    /// Gets a log of paths and choices in the form of NCCL's.
    pub log: Option<Box<dyn Write + Send>>,
}

impl Options {
    /// The defaults: a timeout of 60 s, one channel, cross-memory attach allowed.
    pub fn new(rank: usize, size: usize, rendezvous: Rendezvous, token: Token) -> Self {
        Self {
            rank,
            size,
            rendezvous,
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
