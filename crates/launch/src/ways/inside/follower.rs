//! A process of the launcher that takes orders.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::wire;
use crate::request::one_line;
use crate::{Endpoint, Error};

/// Takes the orders of rank 0 until it says that it is over, or is gone. What still runs then ends.
pub(super) fn follow(endpoint: &Endpoint, rank: usize, timeout: Duration) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        Error::start(&format!("rank {rank}: connection to rank 0 at {}", endpoint.address()), error)
    };
    let mut control = dial(endpoint, timeout).map_err(failed)?;
    let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let path = std::env::current_exe().map_err(failed)?;
    let hello = format!(
        "hello {rank} {} {} {}\n",
        one_line(&hostname).replace(' ', "-"),
        env!("CARGO_PKG_VERSION"),
        one_line(&path.to_string_lossy())
    );
    control.write_all(hello.as_bytes()).map_err(failed)?;
    // From now on rank 0 speaks when it wants to; a machine that is gone is noticed by the kernel.
    control.set_read_timeout(None).map_err(failed)?;
    let _ = rustix::net::sockopt::set_socket_keepalive(&control, true);
    let mut children: Vec<Child> = Vec::new();
    while let Ok(order) = wire::line(&mut control) {
        children.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
        match order.split_once(' ') {
            // open NUMBER SCRIPT
            Some(("open", rest)) => {
                if let Some((number, bootstrap)) = rest.split_once(' ')
                    && let Ok(child) = open(endpoint, number, bootstrap)
                {
                    children.push(child);
                }
            }
            _ if order == "bye" => break,
            _ => {}
        }
    }
    // Their connections have ended or end with this job.
    let until = Instant::now() + Duration::from_secs(4);
    while !children.is_empty() && Instant::now() < until {
        children.retain_mut(|it| matches!(it.try_wait(), Ok(None)));
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A shell whose standard input, output and error are connections to rank 0.
fn open(endpoint: &Endpoint, number: &str, bootstrap: &str) -> std::io::Result<Child> {
    // Rank 0 reads the line of one connection before it accepts the next.
    let half = |what: &str| {
        let mut stream = dial(endpoint, Duration::from_secs(10))?;
        stream.write_all(format!("{what} {number}\n").as_bytes())?;
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        Ok::<TcpStream, std::io::Error>(stream)
    };
    let (both, errors) = (half("output")?, half("errors")?);
    let output = both.try_clone()?;
    Command::new("sh")
        .args(["-c", bootstrap])
        .stdin(OwnedFd::from(both))
        .stdout(OwnedFd::from(output))
        .stderr(OwnedFd::from(errors))
        .process_group(0)
        .spawn()
}

/// Rank 0 may not listen yet.
fn dial(endpoint: &Endpoint, timeout: Duration) -> std::io::Result<TcpStream> {
    let until = Instant::now() + timeout;
    loop {
        let stream = TcpStream::connect(endpoint.address()).and_then(|mut stream| {
            wire::connect(&mut stream, &endpoint.token)?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied || Instant::now() >= until => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
