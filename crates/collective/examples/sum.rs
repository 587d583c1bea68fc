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

use collective::{Communicator, Door, Meeting, Operation, Options, Token};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [rank, size, meeting, token] = words.as_slice() else {
        return Err("usage: sum RANK SIZE HOST:PORT TOKEN".into());
    };
    let (rank, size): (usize, usize) = (rank.parse()?, size.parse()?);

    // Rank 0 opens the door, on one address only; the others knock until it is open.
    let meeting = match rank {
        0 => {
            let address: SocketAddr = meeting.parse()?;
            Meeting::Open(Door::open(address.ip(), address.port())?)
        }
        _ => Meeting::At(meeting.clone()),
    };
    let mut job = Communicator::join(Options::new(rank, size, meeting, Token::new(token)?))?;

    // A registered buffer: inside a host the others read it where it is.
    let mut numbers = job.buffer::<f64>(1 << 20)?;
    for (index, number) in numbers.iter_mut().enumerate() {
        *number = f64::from(u32::try_from(index + rank)?);
    }
    job.all_reduce_in_place(&mut numbers, Operation::Sum)?;
    println!("rank {rank} of {size} over {}: the first sum is {}", job.paths(), numbers[0]);

    job.leave()?;
    Ok(())
}
