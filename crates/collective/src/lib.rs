//! Collectives over host memory, for ranks that are processes.
//!
//! Ranks meet at an address that one of them opens, prove that they know the job's token, and then find their paths:
//! shared memory inside a host, TCP between hosts. A [`Communicator`] is a rank's membership; its collectives work on
//! slices of numbers. Slices of a [`Buffer`] are registered: other ranks of the host read and write them directly.
//!
//! ```
//! use collective::{Communicator, Door, Meeting, Operation, Options, Token};
//!
//! // Rank 0 opens a door; the others get its address and the token from whoever started them.
//! let door = Door::open([127, 0, 0, 1].into(), 0)?;
//! let mut job = Communicator::join(Options::new(0, 1, Meeting::Open(door), Token::random()?))?;
//! let mut data = job.buffer::<f32>(1024)?;
//! data.fill(1.0);
//! job.all_reduce_in_place(&mut data, Operation::Sum)?;
//! assert_eq!(data[0], 1.0);
//! job.leave()?;
//! # Ok::<(), collective::Error>(())
//! ```
//!
//! # What to know
//!
//! - All ranks make the same calls in the same order. [`Cause::Usage`] refuses a call; any other error ends the job for all
//!   ranks, and names the rank, host and stage it is about.
//! - The first call of a collective is slow: the ways to do it are timed then. [`Options::algorithm`] forces one.
//! - [`Communicator::buffer`] gives registered memory. Other slices go by cross-memory attach, or through shared memory
//!   where that is forbidden.
//! - The [`Token`] keeps strangers out who can connect. Nothing is encrypted.
//! - Shared memory has no name: nothing is left behind. Linux only.
//! - Parts of unequal length, groups within a job and calls that return before they are done are not there.

mod buffer;
mod call;
mod communicator;
mod data;
mod engine;
mod error;
mod executor;
mod host;
#[allow(unsafe_code, reason = "memory of other processes is reached by pointers")]
mod kernel;
mod link;
mod model;
mod options;
mod schedule;
mod session;
mod shm;
mod tcp;
mod watch;

pub use buffer::Buffer;
pub use communicator::Communicator;
pub use data::{DataType, Element, Operation, bf16, f16};
pub use error::{Cause, Error};
pub use host::Crowd;
pub use options::{Options, Transport};
pub use schedule::Algorithm;
pub use session::{Door, Meeting, Member, Token};
pub use tcp::Interface;
