//! From a rank to a communicator.

use std::fs::File;
use std::path::PathBuf;

use ::bench::{Cause, Failure};
use collective::{Communicator, Door, Interface, Meeting, Options, Token};
use launch::{Listen, Met, Place};

use super::Bench;
use super::args::Kind;

/// Joins the other ranks.
pub(super) fn join(args: &Bench, place: Place) -> Result<Communicator, Failure> {
    let (rank, size, alone) = (place.rank, place.size, place.is_one_host());
    let net = args.net.as_deref();
    let met = place.meet(args.timeout(), |listen| -> Result<(Door, String), Trouble> {
        open(listen, net, alone).map_err(|error| {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            Trouble(Failure::from(error).of(rank, Some(host.trim())))
        })
    });
    let (meeting, token) = match met.map_err(|it| it.0)? {
        Met::Open(door, token) => (Meeting::Open(door), token),
        Met::At(point) => (Meeting::At(point.address()), point.token),
    };
    let mut options = Options::new(rank, size, meeting, Token::new(&token)?);
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

/// Opens the listener of the rendezvous; returns it with its address.
fn open(listen: Listen, net: Option<&str>, alone: bool) -> Result<(Door, String), collective::Error> {
    let address = match listen.address {
        Some(it) => it,
        None => Interface::choose(net, alone)?.socket(0).ip(),
    };
    let door = Door::open(address, listen.port)?;
    let address = door.address().to_string();
    Ok((door, address))
}

/// A failure of either crate.
struct Trouble(Failure);

impl From<launch::Error> for Trouble {
    fn from(error: launch::Error) -> Self {
        Self(Cause::Launch { detail: error.to_string() }.into())
    }
}
