use std::io;

/// Byte streams between this rank and its peers, one in each direction, ordered and lossless.
///
/// No call blocks: each transfers what it can now and returns how much.
pub(crate) trait Links {
    /// Returns how many bytes were sent, 0 if the stream is full.
    fn send(&mut self, peer: usize, bytes: &[u8]) -> io::Result<usize>;

    /// Returns how many bytes were received, 0 if there are none yet.
    ///
    /// A closed stream is an error of kind `UnexpectedEof`.
    fn receive(&mut self, peer: usize, into: &mut [u8]) -> io::Result<usize>;
}
