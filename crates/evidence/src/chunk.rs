//! Cuts a stream of bytes into chunks that end at line ends.

use std::io::{self, Read};

use memchr::{memchr, memrchr};

use crate::recorder;

/// A part of a file: whole lines.
#[derive(Debug, Clone)]
pub struct Chunk {
    /// Longer than what was read: a used buffer is filled again without being cleared.
    buffer: Vec<u8>,
    length: usize,
}

impl Chunk {
    /// The bytes. Every line but the last of a file ends with a newline.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(..self.length).unwrap_or_default()
    }

    /// The buffer, to be filled again.
    pub fn recycle(self) -> Vec<u8> {
        self.buffer
    }
}

/// Reads chunks from a stream.
#[derive(Debug)]
pub struct Chunks<R> {
    source: R,
    size: usize,
    /// What was read beyond the last chunk's end.
    rest: Vec<u8>,
    /// Something was read.
    begun: bool,
    /// How long a line may be.
    limit: usize,
    /// Inside a line whose beginning was already returned.
    skipping: bool,
    ended: bool,
    /// An error while there was still data to return.
    error: Option<io::Error>,
}

impl<R: Read> Chunks<R> {
    /// A longer line is cut: no input that plumb reads has such lines, and memory stays bounded.
    pub const LINE_LIMIT: usize = 64 * 1024;

    /// A good chunk size: few system calls, little memory.
    pub const SIZE: usize = 1024 * 1024;

    /// Cuts `source` into chunks of about `size` bytes.
    pub fn new(source: R, size: usize) -> Self {
        Self {
            source,
            size: size.max(1),
            rest: Vec::new(),
            begun: false,
            limit: Self::LINE_LIMIT,
            skipping: false,
            ended: false,
            error: None,
        }
    }

    /// The next chunk, or `None` at the end. An error comes after all that was read before it.
    pub fn next_chunk(&mut self, spare: Vec<u8>) -> io::Result<Option<Chunk>> {
        let mut buffer = spare;
        let mut filled = self.rest.len();
        grow(&mut buffer, self.size.max(filled));
        if let Some(front) = buffer.get_mut(..filled) {
            front.copy_from_slice(&self.rest);
        }
        self.rest.clear();
        if self.skipping {
            filled = self.skip_line(&mut buffer);
        }
        let length = loop {
            while filled < buffer.len() && !self.ended {
                filled += self.read(buffer.get_mut(filled..).unwrap_or_default());
            }
            if self.ended {
                break filled;
            }
            let all = buffer.get(..filled).unwrap_or_default();
            // A dump is often one line, and is of no use if it is cut.
            if !self.begun && recorder::format(all).is_some() {
                self.limit = recorder::LIMIT;
            }
            self.begun = true;
            if let Some(end) = memrchr(b'\n', all) {
                self.rest.extend_from_slice(all.get(end + 1..).unwrap_or_default());
                break end + 1;
            }
            if filled <= self.limit {
                let larger = (filled * 2).max(4096);
                grow(&mut buffer, larger);
                continue;
            }
            // One line fills the buffer and goes on: keep its beginning.
            self.skipping = true;
            if let Some(end) = buffer.get_mut(Self::LINE_LIMIT) {
                *end = b'\n';
            }
            break Self::LINE_LIMIT + 1;
        };
        if length == 0 {
            return self.error.take().map_or(Ok(None), Err);
        }
        Ok(Some(Chunk { buffer, length }))
    }

    /// Drops the rest of an overlong line; returns how much of the next line is in the buffer.
    fn skip_line(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            let n = self.read(buffer);
            if n == 0 {
                return 0;
            }
            if let Some(end) = memchr(b'\n', buffer.get(..n).unwrap_or_default()) {
                self.skipping = false;
                buffer.copy_within(end + 1..n, 0);
                return n - end - 1;
            }
        }
    }

    /// Reads once; 0 at the end and at an error, which is kept for later.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    self.ended = true;
                    return 0;
                }
                Ok(n) => {
                    self.ended = n == 0;
                    return n;
                }
            }
        }
    }
}

fn grow(buffer: &mut Vec<u8>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::Chunks;

    fn cut(text: &[u8], size: usize) -> Vec<Vec<u8>> {
        let mut chunks = Chunks::new(text, size);
        let mut all = Vec::new();
        let mut spare = Vec::new();
        while let Some(chunk) = chunks.next_chunk(spare).unwrap() {
            all.push(chunk.bytes().to_vec());
            spare = chunk.recycle();
        }
        all
    }

    #[test]
    fn chunks_are_the_input() {
        let text = b"a\nbb\n\nccc\nd".repeat(2000);
        for size in [1, 100, 5000, 1 << 20] {
            assert_eq!(cut(&text, size).concat(), text, "{size}");
        }
    }

    #[test]
    fn chunks_end_at_lines() {
        let chunks = cut(&b"0123456789\n".repeat(1000), 1000);
        assert!(chunks.len() > 5 && chunks.iter().all(|it| it.ends_with(b"\n")));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut text = vec![b'x'; 3_000_000];
        text.extend_from_slice(b"\nnext\nlast\n");
        for size in [100, 1 << 20, 1 << 22] {
            let all = cut(&text, size).concat();
            assert!(all.ends_with(b"x\nnext\nlast\n"), "{size}");
        }
        let all = cut(&text, 1000).concat();
        assert_eq!(all.len(), Chunks::<&[u8]>::LINE_LIMIT + 1 + 10);
    }

    #[test]
    fn nothing_is_not_a_chunk() {
        assert!(cut(b"", 10).is_empty());
    }

    #[test]
    fn an_error_comes_after_what_was_read() {
        struct Broken(bool);
        impl Read for Broken {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if self.0 {
                    return Err(io::Error::other("broken"));
                }
                self.0 = true;
                buffer[..4].copy_from_slice(b"a\nb\n");
                Ok(4)
            }
        }
        let mut chunks = Chunks::new(Broken(false), 1000);
        assert_eq!(chunks.next_chunk(Vec::new()).unwrap().unwrap().bytes(), b"a\nb\n");
        assert!(chunks.next_chunk(Vec::new()).is_err());
        assert!(chunks.next_chunk(Vec::new()).unwrap().is_none());
    }
}
