//! Key-value stores of process managers (PMI, PMIx), and a pipe in their place for ranks that we start ourselves.

mod pipe;
mod pmi;
mod pmix;

use std::time::Duration;

pub(crate) use pipe::{Pipe, pipe};
pub(crate) use pmi::{Connected, Pmi};
pub(crate) use pmix::Pmix;

use crate::Error;

/// A key-value store with one value, which rank 0 publishes and every other rank fetches once.
///
/// All ranks have to take part, because process managers put a barrier between put and get. The value is one word of
/// printable characters.
pub trait KeyValueStore: Send {
    /// `PMI`, `PMIx` or `pipe`.
    fn name(&self) -> &'static str;

    /// Called by rank 0. Waits for the other ranks, up to `timeout`.
    fn publish(self: Box<Self>, value: &str, timeout: Duration) -> Result<(), Error>;

    /// Called by all other ranks. Waits for rank 0, up to `timeout`.
    fn fetch(self: Box<Self>, timeout: Duration) -> Result<String, Error>;
}
