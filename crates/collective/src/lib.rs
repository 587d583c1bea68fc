//! Collectives over host memory between processes: all-reduce, all-gather and the others of NCCL, on slices of numbers.
//!
//! # How a job runs
//! 1. *Rendezvous.* Rank 0 opens a [`RendezvousListener`]; the other ranks connect to it ([`Rendezvous`]). Each proves that
//!    it knows the job's [`Token`] and publishes its peer info: host, cores and settings.
//! 2. *Coordinator.* A thread of rank 0 keeps one control connection per rank. It sends every rank the peer info of all, and
//!    reports a rank that dies or hangs to all others.
//! 3. *Paths.* Ranks of one host map each other's mailboxes in shared memory; ranks of different hosts open TCP connections
//!    when an algorithm first needs them.
//! 4. *Calls.* A [`Communicator`] runs collectives, by shared memory (one shot, two shot) or by messages ([`Algorithm`]).
//!    The first call of a collective measures the methods and chooses the fastest for each size.
//! 5. [`Communicator::leave`] ends the job once all ranks have called it.
//!
//! ```
//! use collective::{Communicator, Operation, Options, Rendezvous, RendezvousListener, Token};
//!
//! // Rank 0 listens; the other ranks get its address and the token from their launcher.
//! let listener = RendezvousListener::bind([127, 0, 0, 1].into(), 0)?;
//! let token = Token::new("the shared secret of the job")?;
//! let mut communicator = Communicator::join(Options::new(0, 1, Rendezvous::Listen(listener), token))?;
//! let mut data = communicator.buffer::<f32>(1024)?;
//! data.fill(1.0);
//! communicator.all_reduce_in_place(&mut data, Operation::Sum)?;
//! assert_eq!(data[0], 1.0);
//! communicator.leave()?;
//! # Ok::<(), collective::Error>(())
//! ```
//!
//! # What to know
//!
//! - All ranks make the same calls in the same order. [`Cause::Usage`] refuses a call; any other error ends the job on all
//!   ranks, and names the rank, host and stage it is about.
//! - The first call of a collective is slow, because it measures. [`Options::algorithm`] forces an algorithm.
//! - [`Communicator::buffer`] returns registered memory, which other ranks of the host access directly. Other slices are
//!   accessed by cross-memory attach, or copied through shared memory where that is forbidden.
//! - The [`Token`] keeps out processes that do not belong to the job. Nothing is encrypted.
//! - Shared memory has no name: nothing is left behind. Linux only.
//! - Parts of unequal length, groups within a job and non-blocking calls are not supported.

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
mod wait;

pub use buffer::Buffer;
pub use communicator::Communicator;
pub use data::{DataType, Element, Operation, bf16, f16};
pub use error::{Cause, Error};
pub use host::Oversubscription;
pub use options::{Options, Transport};
pub use schedule::Algorithm;
pub use session::{Member, Rendezvous, RendezvousListener, Token};
pub use tcp::{Interface, Segments};
