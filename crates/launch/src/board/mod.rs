//! Boards of process managers: rank 0 writes one text, the others read it.

mod pipe;
mod pmi;
mod pmix;

use std::time::Duration;

pub(crate) use pipe::{Pipe, pipe};
pub(crate) use pmi::Pmi;
pub(crate) use pmix::Pmix;

use crate::Error;

/// A board: rank 0 publishes one text, every other rank fetches it, once.
///
/// All ranks have to take part, as process managers count them. The text is one word of printable characters.
pub trait Board: Send {
    /// The protocol's name.
    fn name(&self) -> &'static str;

    /// Rank 0 tells. Waits for the others, up to `timeout`.
    fn publish(self: Box<Self>, text: &str, timeout: Duration) -> Result<(), Error>;

    /// Another rank learns what rank 0 told. Waits for it, up to `timeout`.
    fn fetch(self: Box<Self>, timeout: Duration) -> Result<String, Error>;
}
