//! What runs in the browser's worker: a question in JSON and the dropped files in, an answer in JSON out.
//!
//! The worker and WebAssembly exchange numbers alone: it asks for room ([`abi::room`]), writes the question there, calls
//! [`abi::ask`] and reads the reply. Files are read when they are needed, by [`abi`]'s one import.

#![deny(unsafe_code)]

mod abi;
mod ask;
mod dropped;
mod flags;
mod pages;

pub use ask::{Question, Reply, answer};
pub use dropped::{Bytes, Dropped};
