//! Ports for the jobs of tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::IntoRawFd as _;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

/// A port of loopback that nobody else gets: it stays bound until this program ends. Nobody listens there, and who names the port can.
pub fn free_port() -> u16 {
    let held = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let held = held.expect("a socket");
    sockopt::set_socket_reuseaddr(&held, true).expect("an option of every socket");
    bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback");
    let port = SocketAddr::try_from(getsockname(&held).expect("bound")).expect("an address").port();
    let _ = held.into_raw_fd();
    port
}
