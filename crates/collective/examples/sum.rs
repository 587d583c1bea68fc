//! The smallest job: ranks that add up their numbers.
//!
//! Start as many as you like, each in a terminal or on a machine of its own:
//!
//! ```text
//! sum 0 3 10.0.0.1:5000 secret-of-the-job
//! sum 1 3 10.0.0.1:5000 secret-of-the-job
//! sum 2 3 10.0.0.1:5000 secret-of-the-job
//! ```
#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;

use collective::{Communicator, Operation, Options, Rendezvous, RendezvousListener, Token};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, size, address, token] = words.as_slice() else {
        return Err("usage: sum RANK SIZE ADDRESS:PORT TOKEN".into());
    };
    let (rank, size): (usize, usize) = (rank.parse()?, size.parse()?);

    // Rank 0 listens on this address; the others connect, and retry until it listens.
    let address: SocketAddr = address.parse()?;
    let rendezvous = match rank {
        0 => Rendezvous::Listen(RendezvousListener::bind(address.ip(), address.port())?),
        _ => Rendezvous::Connect { host: address.ip().to_string(), port: address.port() },
    };
    let mut communicator = Communicator::join(Options::new(rank, size, rendezvous, Token::new(token)?))?;

    // A registered buffer: ranks of the same host access it without copies.
    let mut numbers = communicator.buffer::<f64>(1 << 20)?;
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = f64::from(u32::try_from(index + rank)?);
    }
    communicator.all_reduce_in_place(&mut numbers, Operation::Sum)?;
    println!("rank {rank} of {size} over {}: the first sum is {}", communicator.paths(), numbers[0]);

    communicator.leave()?;
    Ok(())
}
