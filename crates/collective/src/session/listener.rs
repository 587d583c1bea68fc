//! The rendezvous: rank 0 listens, the other ranks connect.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};

use crate::{Cause, Error};

/// Connections that the kernel queues: all ranks may connect at once.
const BACKLOG: i32 = 4096;

/// The socket on which rank 0 accepts the other ranks.
#[derive(Debug)]
pub struct RendezvousListener {
    listener: TcpListener,
    address: SocketAddr,
}

/// A rank's side of the rendezvous.
#[derive(Debug)]
pub enum Rendezvous {
    /// Rank 0: accept the other ranks here.
    Listen(RendezvousListener),
    /// All other ranks: connect to rank 0.
    Connect {
        /// A name or an address, without brackets.
        host: String,
        /// The TCP port.
        port: u16,
    },
}

impl RendezvousListener {
    /// Listens on this address only. Port 0 is any free port.
    pub fn bind(address: IpAddr, port: u16) -> Result<Self, Error> {
        let wanted = SocketAddr::new(address, port);
        TcpListener::bind(wanted).and_then(Self::listening).map_err(|error| {
            let failure = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    Error::new(Cause::PortInUse, "rendezvous", format!("port {port} is in use"))
                }
                io::ErrorKind::AddrNotAvailable => {
                    Error::new(Cause::Usage, "rendezvous", "no interface of this host has this address")
                }
                _ => Error::system("rendezvous", "cannot listen", error),
            };
            Error { host: Some(wanted.to_string()), ..failure }
        })
    }

    /// Takes over a listening socket, for example one that a parent process opened.
    pub fn from_listener(listener: TcpListener) -> Result<Self, Error> {
        Self::listening(listener).map_err(|error| Error::system("rendezvous", "cannot listen", error))
    }

    /// The address it listens on, with the real port.
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
    fn listens_on_one_address_of_either_family() {
        for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let listener = RendezvousListener::bind(address, 0).expect("loopback");
            assert_eq!(listener.address().ip(), address);
            assert_ne!(listener.address().port(), 0);
        }
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let first = RendezvousListener::bind(Ipv4Addr::LOCALHOST.into(), 0).expect("loopback");
        let error =
            RendezvousListener::bind(Ipv4Addr::LOCALHOST.into(), first.address().port()).expect_err("taken");
        assert_eq!(error.cause, Cause::PortInUse);
        let port = first.address().port();
        assert_eq!(error.to_string(), format!("127.0.0.1:{port}: port {port} is in use (rendezvous)"));
    }

    #[test]
    fn an_address_of_another_host_is_an_error() {
        let error = RendezvousListener::bind(Ipv4Addr::new(192, 0, 2, 1).into(), 0)
            .expect_err("a documentation address");
        assert_eq!(error.cause, Cause::Usage);
    }
}
