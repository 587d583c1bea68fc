//! Text as it comes from files: UTF-16, and the bytes of value 0 that a rotated log begins with.

use std::io::{self, Read};

/// How much is read to find out.
const HEAD: usize = 4096;
/// How much UTF-16 is turned into UTF-8 at a time.
const STEP: usize = 32 * 1024;
/// How many bytes of value 0 a log may begin with; a device that gives nothing else has no end.
const HOLE: u64 = 1 << 30;

/// A source whose first bytes were read ahead.
pub struct Peeked<'a> {
    head: Vec<u8>,
    at: usize,
    rest: Box<dyn Read + 'a>,
}

impl<'a> Peeked<'a> {
    /// Reads up to `length` bytes of `source` ahead.
    pub fn new(mut source: Box<dyn Read + 'a>, length: usize) -> io::Result<Self> {
        let mut head = Vec::with_capacity(length);
        source.by_ref().take(length as u64).read_to_end(&mut head)?;
        Ok(Self { head, at: 0, rest: source })
    }

    /// What was read ahead.
    pub fn head(&self) -> &[u8] {
        self.head.get(self.at..).unwrap_or_default()
    }

    /// Puts `bytes` before everything else.
    pub fn put_back(&mut self, bytes: &[u8]) {
        let rest = self.head().to_vec();
        self.head = [bytes, &rest].concat();
        self.at = 0;
    }
}

impl std::fmt::Debug for Peeked<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peeked").field("head", &self.head().len()).finish_non_exhaustive()
    }
}

impl Read for Peeked<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let head = self.head.get(self.at..).unwrap_or_default();
        if head.is_empty() {
            return self.rest.read(buffer);
        }
        let n = head.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..n), head.get(..n)) {
            to.copy_from_slice(from);
        }
        self.at += n;
        Ok(n)
    }
}

/// The text of `source` as UTF-8, from its first character on. Other encodings, and what is not text, come through.
pub fn text<'a>(source: Box<dyn Read + 'a>) -> io::Result<Peeked<'a>> {
    let source = Peeked::new(source, HEAD)?;
    if let Some(order) = utf16(source.head()) {
        let decoder = Utf16 { source, order, high: None, odd: None, out: Vec::new(), at: 0 };
        return Peeked::new(Box::new(decoder), HEAD);
    }
    if source.head().first() == Some(&0) {
        return Peeked::new(Box::new(WithoutHole { source, text: false, skipped: 0 }), HEAD);
    }
    Ok(source)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

/// The order of bytes, if these are UTF-16: by the byte order mark, or because every second byte is 0.
fn utf16(head: &[u8]) -> Option<Order> {
    match head {
        [0xFF, 0xFE, 0, 0, ..] => return None,
        [0xFF, 0xFE, ..] => return Some(Order::Little),
        [0xFE, 0xFF, ..] => return Some(Order::Big),
        _ => {}
    }
    let pairs = head.len() / 2;
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|it| **it == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let most = |it: usize| pairs >= 8 && it * 10 >= pairs * 8;
    let few = |it: usize| it * 20 <= pairs;
    match (most(even), most(odd)) {
        (false, true) if few(even) => Some(Order::Little),
        (true, false) if few(odd) => Some(Order::Big),
        _ => None,
    }
}

/// UTF-16 as UTF-8.
struct Utf16<'a> {
    source: Peeked<'a>,
    order: Order,
    /// The first half of a pair.
    high: Option<u16>,
    /// The first byte of a unit.
    odd: Option<u8>,
    out: Vec<u8>,
    at: usize,
}

impl Utf16<'_> {
    fn decode(&mut self, bytes: &[u8]) {
        self.out.clear();
        self.at = 0;
        let odd = self.odd.take();
        let mut bytes = odd.into_iter().chain(bytes.iter().copied());
        let mut units = Vec::with_capacity(STEP / 2 + 2);
        units.extend(self.high.take());
        while let Some(first) = bytes.next() {
            let Some(second) = bytes.next() else {
                self.odd = Some(first);
                break;
            };
            units.push(match self.order {
                Order::Little => u16::from_le_bytes([first, second]),
                Order::Big => u16::from_be_bytes([first, second]),
            });
        }
        self.high = units.pop_if(|it| (0xD800..0xDC00).contains(it));
        for letter in char::decode_utf16(units) {
            let letter = letter.unwrap_or(char::REPLACEMENT_CHARACTER);
            // The byte order mark is not part of the text.
            if letter != '\u{feff}' {
                self.out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
}

impl Read for Utf16<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.out.len() {
            let mut bytes = vec![0; STEP];
            let n = self.source.read(&mut bytes)?;
            if n == 0 {
                return Ok(0);
            }
            self.decode(bytes.get(..n).unwrap_or_default());
        }
        let left = self.out.get(self.at..).unwrap_or_default();
        let n = left.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..n), left.get(..n)) {
            to.copy_from_slice(from);
        }
        self.at += n;
        Ok(n)
    }
}

/// What follows the bytes of value 0 at the beginning: a log that was truncated while a program kept writing at its old
/// position has a hole there.
struct WithoutHole<'a> {
    source: Peeked<'a>,
    /// Behind the hole.
    text: bool,
    /// How much of the hole was read.
    skipped: u64,
}

impl Read for WithoutHole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.source.read(buffer)?;
            if self.text || n == 0 {
                return Ok(n);
            }
            if let Some(start) = buffer.get(..n).and_then(|it| it.iter().position(|it| *it != 0)) {
                self.text = true;
                buffer.copy_within(start..n, 0);
                return Ok(n - start);
            }
            self.skipped += n as u64;
            if self.skipped > HOLE {
                return Err(io::Error::other("begins with zero bytes for longer than 1 GiB: left out"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::text;

    fn read(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        text(Box::new(bytes)).unwrap().read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn utf16_with_and_without_a_mark() {
        let line = "node-a:1:2 [0] NCCL INFO é 😀 x\r\n".repeat(3000);
        let little: Vec<u8> = line.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = line.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [&little, &big] {
            assert_eq!(read(bytes), line.as_bytes());
        }
        assert_eq!(read(&[&[0xFF, 0xFE][..], &little].concat()), line.as_bytes());
        assert_eq!(read(&[&[0xFE, 0xFF][..], &big].concat()), line.as_bytes());
        // Half a character at the end is lost.
        assert!(line.as_bytes().starts_with(&read(&little[..little.len() - 1])));
    }

    #[test]
    fn a_hole_at_the_beginning() {
        let hole = vec![0; 100_000];
        assert_eq!(read(&[&hole[..], b"text\n\0more\n"].concat()), b"text\n\0more\n");
        assert_eq!(read(&hole), b"");
    }

    #[test]
    fn everything_else_comes_through() {
        for bytes in [
            &b""[..],
            b"a",
            b"text\n",
            b"\xEF\xBB\xBFtext",
            &[7; 5000],
            b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0",
        ] {
            assert_eq!(read(bytes), bytes);
        }
    }
}
