//! A stream of bytes to every peer: what schedules run over.

use std::io;

/// Streams between this rank and its peers, one each way, ordered and lossless.
///
/// Nothing blocks: a call moves what it can now and says how much.
pub(crate) trait Links {
    /// Gives bytes to the stream to `peer`; returns how many were taken, 0 when it is full.
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize>;

    /// Takes bytes from the stream of `peer`; returns how many came, 0 when there are none yet.
    ///
    /// A closed stream is an error of kind `UnexpectedEof`.
    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize>;
}
