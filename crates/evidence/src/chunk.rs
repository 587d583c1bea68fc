//! Cuts a stream of bytes into chunks that end at line ends.

use std::io::{self, Read};

use memchr::{memchr, memrchr};

/// A part of a file: whole lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes. Every line but the last of a file ends with a newline.
    pub bytes: Vec<u8>,
    /// Whether the file begins here.
    pub first: bool,
}

/// Reads chunks from a stream.
#[derive(Debug)]
pub struct Chunks<R> {
    source: R,
    size: usize,
    /// What was read beyond the last chunk's end.
    rest: Vec<u8>,
    /// Inside a line whose beginning was already handed out.
    skipping: bool,
    first: bool,
    done: bool,
    /// Met while there was still something to hand out.
    error: Option<io::Error>,
}

impl<R: Read> Chunks<R> {
    /// A line longer than this is cut: nothing that we read has such lines, and memory stays bounded.
    pub const LINE_LIMIT: usize = 64 * 1024;

    /// A good chunk size: large enough that merging costs nothing, small enough for a few in memory.
    pub const SIZE: usize = 2 * 1024 * 1024;

    /// Cuts `source` into chunks of about `size` bytes.
    pub fn new(source: R, size: usize) -> Self {
        Self { source, size: size.max(1), rest: Vec::new(), skipping: false, first: true, done: false, error: None }
    }

    /// The next chunk, or `None` at the end. An error comes after all that was read before it.
    pub fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut buffer = std::mem::take(&mut self.rest);
        buffer.reserve(self.size);
        let mut searched = 0;
        while !self.done {
            let old = buffer.len();
            if self.skipping {
                // Drop the tail of an overlong line.
                let mut scratch = [0; 16 * 1024];
                let n = self.read(&mut scratch);
                let tail = scratch.get(..n).unwrap_or_default();
                if let Some(end) = memchr(b'\n', tail) {
                    self.skipping = false;
                    buffer.extend_from_slice(tail.get(end + 1..).unwrap_or_default());
                }
                continue;
            }
            let want = self.size.saturating_sub(old).max(16 * 1024);
            buffer.resize(old + want, 0);
            let n = self.read(buffer.get_mut(old..).unwrap_or_default());
            buffer.truncate(old + n);
            if n == 0 {
                break;
            }
            // The last line end decides whether this is enough for a chunk.
            let fresh = buffer.get(searched..).unwrap_or_default();
            if let Some(end) = memrchr(b'\n', fresh) {
                let end = searched + end + 1;
                if end >= self.size || buffer.len() >= self.size {
                    self.rest = buffer.split_off(end);
                    break;
                }
            } else if buffer.len() - last_line_start(&buffer) > Self::LINE_LIMIT {
                let start = last_line_start(&buffer);
                buffer.truncate(start + Self::LINE_LIMIT);
                buffer.push(b'\n');
                self.skipping = true;
                if buffer.len() >= self.size {
                    break;
                }
            }
            searched = buffer.len();
        }
        if buffer.is_empty() {
            return self.error.take().map_or(Ok(None), Err);
        }
        let first = std::mem::replace(&mut self.first, false);
        Ok(Some(Chunk { bytes: buffer, first }))
    }

    /// Reads once; 0 at the end and at an error, which is kept for later.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.error = Some(error);
                    self.done = true;
                    return 0;
                }
                Ok(n) => {
                    self.done = n == 0;
                    return n;
                }
            }
        }
    }
}

fn last_line_start(buffer: &[u8]) -> usize {
    memrchr(b'\n', buffer).map_or(0, |it| it + 1)
}

#[cfg(test)]
mod tests {
    use super::Chunks;

    fn cut(text: &[u8], size: usize) -> (Vec<u8>, usize) {
        let mut chunks = Chunks::new(text, size);
        let (mut all, mut n) = (Vec::new(), 0);
        while let Some(chunk) = chunks.next_chunk().unwrap() {
            assert_eq!(chunk.first, n == 0);
            all.extend_from_slice(&chunk.bytes);
            n += 1;
        }
        (all, n)
    }

    #[test]
    fn chunks_are_the_input() {
        let text = b"a\nbb\n\nccc\nd".repeat(20_000);
        for size in [1, 100, 50_000, 1 << 20] {
            assert_eq!(cut(&text, size).0, text, "{size}");
        }
    }

    #[test]
    fn chunks_end_at_lines() {
        let text = b"0123456789\n".repeat(10_000);
        let mut chunks = Chunks::new(&text[..], 1000);
        while let Some(chunk) = chunks.next_chunk().unwrap() {
            assert!(chunk.bytes.ends_with(b"\n"));
        }
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut text = vec![b'x'; 3_000_000];
        text.extend_from_slice(b"\nnext\n");
        let (all, _) = cut(&text, 1 << 20);
        assert!(all.ends_with(b"\nnext\n"));
        assert!(all.len() < 1_200_000, "{}", all.len());
    }

    #[test]
    fn nothing_is_no_chunk() {
        assert_eq!(cut(b"", 10), (Vec::new(), 0));
    }
}
