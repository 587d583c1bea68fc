//! Where the ranks meet: a listener of rank 0.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use crate::{Cause, Error};

/// Connections that may wait to be taken: every rank may knock at once.
const BACKLOG: i32 = 4096;

/// The open rendezvous of a job, on one address.
#[derive(Debug)]
pub struct Door {
    listener: TcpListener,
    address: SocketAddr,
}

/// Where this rank meets the others.
#[derive(Debug)]
pub enum Meeting {
    /// Here: rank 0 has opened the door.
    Open(Door),
    /// There, as `host:port` or `[address]:port`: all other ranks.
    At(String),
}

impl Door {
    /// Listens on this address only. Port 0 takes any free one.
    pub fn open(address: IpAddr, port: u16) -> Result<Self, Error> {
        let wanted = SocketAddr::new(address, port);
        TcpListener::bind(wanted).and_then(Self::listening).map_err(|error| {
            let failure = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    Error::new(Cause::PortInUse, "rendezvous", format!("port {port} is in use"))
                }
                io::ErrorKind::AddrNotAvailable => {
                    Error::new(Cause::Usage, "rendezvous", "no interface of this machine has this address")
                }
                _ => Error::system("rendezvous", "cannot listen", error),
            };
            Error { host: Some(wanted.to_string()), ..failure }
        })
    }

    /// Takes over a listener that exists: one that a parent process opened and passed on.
    pub fn from_listener(listener: TcpListener) -> Result<Self, Error> {
        Self::listening(listener).map_err(|error| Error::system("rendezvous", "cannot listen", error))
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    fn listening(listener: TcpListener) -> io::Result<Self> {
        rustix::net::listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn opens_on_one_address_of_either_family() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let door = Door::open(address, 0).expect("loopback");
            assert_eq!(door.address().ip(), address);
            assert_ne!(door.address().port(), 0);
        }
    }

    #[test]
    fn says_that_the_port_is_in_use() {
        let first = Door::open(Ipv4Addr::LOCALHOST.into(), 0).expect("loopback");
        let error = Door::open(Ipv4Addr::LOCALHOST.into(), first.address().port()).expect_err("taken");
        assert_eq!(error.cause, Cause::PortInUse);
        let port = first.address().port();
        assert_eq!(error.to_string(), format!("127.0.0.1:{port}: port {port} is in use (rendezvous)"));
    }

    #[test]
    fn says_that_the_address_is_elsewhere() {
        let error = Door::open(Ipv4Addr::new(192, 0, 2, 1).into(), 0).expect_err("a documentation address");
        assert_eq!(error.cause, Cause::Usage);
    }
}
