//! Joins the job of this rank.

use std::fs::File;
use std::path::PathBuf;

use ::bench::{Cause, Failure};
use collective::{Communicator, Interface, Options, Rendezvous, RendezvousListener, Token};
use launch::{Bootstrap, ListenAddress, Opened, RankIdentity};

use super::Bench;
use super::args::Kind;

pub(super) fn join(args: &Bench, identity: RankIdentity) -> Result<Communicator, Failure> {
    let (rank, size, one_host) = (identity.rank, identity.size, identity.is_one_host());
    let net = args.net.as_deref();
    let bootstrap =
        identity.rendezvous(args.timeout(), |listen| -> Result<Opened<RendezvousListener>, Trouble> {
            open(listen, net, one_host).map_err(|error| {
                let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                Trouble(Failure::from(error).of(rank, Some(host.trim())))
            })
        });
    let (rendezvous, token) = match bootstrap.map_err(|it| it.0)? {
        Bootstrap::Listen { listener, token } => (Rendezvous::Listen(listener), token),
        Bootstrap::Connect(it) => (Rendezvous::Connect { host: it.host, port: it.port }, it.token),
    };
    let mut options = Options::new(rank, size, rendezvous, Token::new(&token)?);
    options.timeout = args.timeout();
    options.network.clone_from(&args.net);
    options.host = std::env::var("PLUMB_HOSTID").ok();
    options.folder = std::env::var_os("PLUMB_SHM_DIR").map(Into::into);
    // With NCCL, the ranks' own connections are for control only.
    if args.engine != Kind::Nccl {
        options.transport = args.transport;
        options.algorithm = args.algo;
        options.channels = args.channels().unwrap_or(options.channels);
        if let Some(path) = log(args, rank) {
            let file = File::create(&path).map_err(|error| Cause::LogFile {
                path: path.display().to_string(),
                detail: error.to_string(),
            })?;
            options.log = Some(Box::new(file));
        }
    }
    Communicator::join(options).map_err(Failure::from)
}

/// The log of a rank's engine, if one is wanted.
pub(super) fn log(args: &Bench, rank: usize) -> Option<PathBuf> {
    let path = args.log.as_ref()?;
    Some(if rank == 0 { path.clone() } else { format!("{}.{rank}", path.display()).into() })
}

/// Opens the listener of rank 0.
fn open(
    listen: ListenAddress,
    net: Option<&str>,
    one_host: bool,
) -> Result<Opened<RendezvousListener>, collective::Error> {
    let address = match listen.address {
        Some(it) => it,
        None => Interface::choose(net, one_host)?.socket(0).ip(),
    };
    let listener = RendezvousListener::bind(address, listen.port)?;
    let address = listener.address();
    Ok(Opened { listener, address })
}

/// A failure of either crate.
struct Trouble(Failure);

impl From<launch::Error> for Trouble {
    fn from(error: launch::Error) -> Self {
        Self(Cause::Launch { detail: error.to_string() }.into())
    }
}
