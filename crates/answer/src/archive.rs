//! Files in archives: tar, also compressed, and zip. Nothing is unpacked to disk, and no name in an archive is used as a path.

use std::io::{self, Read, Seek, SeekFrom};

use flate2::CrcReader;
use flate2::read::DeflateDecoder;

/// How many files of an archive are read: more than the largest jobs have ranks.
const MEMBERS: usize = 100_000;
/// How much an archive may hold. A few kilobytes can claim to hold more than any disk.
const BYTES: u64 = 16 << 30;
/// How long the name of a file may be.
const NAME: u64 = 64 * 1024;
/// How long the list of files in a zip archive may be.
const DIRECTORY: u64 = 64 << 20;
const BLOCK: usize = 512;

/// A regular file in an archive.
pub struct Member<'a> {
    /// As the archive names it.
    pub name: String,
    /// Its bytes.
    pub content: &'a mut dyn Read,
}

/// Called with each file in turn. What it does not read is skipped.
pub type Visit<'a> = dyn FnMut(Member<'_>) + 'a;

fn broken(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn too_many() -> io::Error {
    broken("the archive has more than 100,000 files: unpack it and give the logs alone")
}

/// A reader that fails where an archive holds more than [`BYTES`].
struct Bounded<R> {
    source: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.source.read(buffer)?;
        let Some(left) = self.left.checked_sub(n as u64) else {
            return Err(broken("the archive holds more than 16 GiB: unpack it and give the logs alone"));
        };
        self.left = left;
        Ok(n)
    }
}

/// The next `left` bytes of a source. It is an error if there are fewer.
struct Content<'a> {
    source: &'a mut dyn Read,
    left: u64,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let Some(part) = buffer.get_mut(..most).filter(|it| !it.is_empty()) else { return Ok(0) };
        let n = self.source.read(part)?;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the archive ends inside this file"));
        }
        self.left -= n as u64;
        Ok(n)
    }
}

/// Whether a tar archive begins with these bytes: its first header has the right checksum.
pub fn is_tar(head: &[u8]) -> bool {
    head.get(..BLOCK).is_some_and(|it| it.first() != Some(&0) && has_checksum(it))
}

fn has_checksum(header: &[u8]) -> bool {
    let byte = |(at, it): (usize, &u8)| if (148..156).contains(&at) { 32 } else { u64::from(*it) };
    header.get(148..156).and_then(number) == Some(header.iter().enumerate().map(byte).sum())
}

/// A number in a header of tar: octal digits, or the number itself where it is too large for them.
fn number(field: &[u8]) -> Option<u64> {
    let join = |base: u64| move |sum: u64, digit: u8| sum.checked_mul(base)?.checked_add(u64::from(digit));
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        return std::iter::once(first & 0x7f).chain(rest.iter().copied()).try_fold(0, join(256));
    }
    let digits = field.iter().skip_while(|it| **it == b' ').take_while(|it| (b'0'..=b'7').contains(it));
    digits.map(|it| it - b'0').try_fold(0, join(8))
}

fn until_zero(field: &[u8]) -> String {
    let end = field.iter().position(|it| *it == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

/// A value of an extended header: `23 path=logs/rank0.log\n`
fn extended(text: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let record = |it: &str| Some(it.split_once(' ')?.1.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    text.lines().find_map(record)
}

/// Visits the regular files of a tar archive.
pub fn tar(source: &mut dyn Read, visit: &mut Visit<'_>) -> io::Result<()> {
    let mut source = Bounded { source, left: BYTES };
    let (mut long_name, mut long_size): (Option<String>, Option<u64>) = (None, None);
    // Everything in an archive has a header, so that this bounds what a loop over empty files costs, too.
    for _ in 0..MEMBERS * 4 {
        let mut header = Vec::with_capacity(BLOCK);
        source.by_ref().take(BLOCK as u64).read_to_end(&mut header)?;
        if header.iter().all(|it| *it == 0) {
            return Ok(());
        }
        if header.len() < BLOCK || !has_checksum(&header) {
            return Err(broken("the archive is damaged: a header has a wrong checksum"));
        }
        let field = |from: usize, to: usize| header.get(from..to).unwrap_or_default();
        let Some(size) = long_size.take().or_else(|| number(field(124, 136))) else {
            return Err(broken("the archive is damaged: a file has no size"));
        };
        let padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
        let mut content = Content { source: &mut source, left: size };
        match header.get(156) {
            // A name or a size for which the next header has no room.
            Some(kind @ (b'L' | b'x')) => {
                let mut text = Vec::new();
                content.by_ref().take(NAME).read_to_end(&mut text)?;
                if *kind == b'L' {
                    long_name = Some(until_zero(&text));
                } else {
                    long_name = extended(&text, "path").or(long_name);
                    long_size = extended(&text, "size").and_then(|it| it.parse().ok());
                }
            }
            Some(0 | b'0' | b'7') => {
                let prefix =
                    if field(257, 263) == b"ustar\0" { until_zero(field(345, 500)) } else { String::new() };
                let name = until_zero(field(0, 100));
                let name = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
                let name = long_name.take().unwrap_or(name);
                // The oldest archives mark a folder by its name.
                if !name.ends_with('/') {
                    visit(Member { name, content: &mut content });
                }
            }
            _ => long_name = None,
        }
        io::copy(&mut content, &mut io::sink())?;
        io::copy(&mut source.by_ref().take(padding), &mut io::sink())?;
    }
    Err(too_many())
}

/// A file in the directory of a zip archive.
struct Listed {
    name: String,
    flags: u16,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    at: u64,
}

/// Visits the files of a zip archive.
pub fn zip<R: Read + Seek>(source: &mut R, visit: &mut Visit<'_>) -> io::Result<()> {
    let mut left = BYTES;
    for file in directory(source)? {
        let mut header = [0; 30];
        source.seek(SeekFrom::Start(file.at))?;
        source.read_exact(&mut header)?;
        if !header.starts_with(b"PK\x03\x04") {
            return Err(broken("the archive is damaged: its directory names a file that is not there"));
        }
        let skip = u64::from(short(&header, 26)) + u64::from(short(&header, 28));
        source.seek(SeekFrom::Start(file.at + 30 + skip))?;
        let packed = Content { source, left: file.packed };
        let content: Box<dyn Read> = match file.method {
            _ if file.flags & 1 != 0 => Box::new(Refused("is encrypted")),
            0 => Box::new(packed),
            8 => Box::new(DeflateDecoder::new(packed)),
            _ => Box::new(Refused("is compressed by a method of zip that plumb does not read")),
        };
        let content = Checked { source: CrcReader::new(content), left: file.size, crc: file.crc };
        let mut content = Bounded { source: content, left };
        visit(Member { name: file.name, content: &mut content });
        left = content.left;
        if left == 0 {
            return Err(broken("the archive holds more than 16 GiB: unpack it and give the logs alone"));
        }
    }
    Ok(())
}

/// A file that cannot be read, and why.
struct Refused(&'static str);

impl Read for Refused {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other(self.0))
    }
}

/// A file that must have the size and the checksum that the directory says.
struct Checked<R> {
    source: CrcReader<R>,
    left: u64,
    crc: u32,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let n = self.source.read(buffer)?;
        let left = self.left.checked_sub(n as u64);
        let whole = n > 0 || (left == Some(0) && self.source.crc().sum() == self.crc);
        let (Some(left), true) = (left, whole) else {
            return Err(broken(
                "is damaged: its size or its checksum is not the one in the archive's directory",
            ));
        };
        self.left = left;
        Ok(n)
    }
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|it| it.try_into().ok()).map_or(0, u16::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The directory at the end of a zip archive.
fn directory<R: Read + Seek>(source: &mut R) -> io::Result<Vec<Listed>> {
    let length = source.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(22 + 65_535);
    source.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    source.take(22 + 65_535).read_to_end(&mut end)?;
    let Some(at) = memchr::memmem::rfind(&end, b"PK\x05\x06") else {
        return Err(broken("the archive is damaged: its directory is missing"));
    };
    let end = end.get(at..).unwrap_or_default();
    let (count, size, offset) = (short(end, 10), long(end, 12), long(end, 16));
    if count == u16::MAX || size == u32::MAX || offset == u32::MAX {
        return Err(broken("is an archive of the kind zip64: unpack it first"));
    }
    source.seek(SeekFrom::Start(u64::from(offset)))?;
    let mut bytes = Vec::new();
    source.take(u64::from(size).min(DIRECTORY)).read_to_end(&mut bytes)?;
    let mut rest = bytes.as_slice();
    let mut files = Vec::new();
    while let Some(name) = rest.get(46..).filter(|_| rest.starts_with(b"PK\x01\x02")) {
        let names = usize::from(short(rest, 28));
        let more = usize::from(short(rest, 30)) + usize::from(short(rest, 32));
        let Some(name) = name.get(..names) else { break };
        let name = String::from_utf8_lossy(name).into_owned();
        if !name.ends_with('/') {
            files.push(Listed {
                name,
                flags: short(rest, 8),
                method: short(rest, 10),
                crc: long(rest, 16),
                packed: u64::from(long(rest, 20)),
                size: u64::from(long(rest, 24)),
                at: u64::from(long(rest, 42)),
            });
        }
        rest = rest.get(46 + names + more..).unwrap_or_default();
    }
    if files.len() > MEMBERS {
        return Err(too_many());
    }
    if files.is_empty() && count > 0 {
        return Err(broken("the archive is damaged: its directory cannot be read"));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::{is_tar, tar, zip};

    type Files = Vec<(String, Result<Vec<u8>, String>)>;

    fn header(name: &str, size: &str, kind: u8) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..124 + size.len()].copy_from_slice(size.as_bytes());
        header[156] = kind;
        header[257..263].copy_from_slice(b"ustar\0");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    }

    fn block(text: &[u8]) -> Vec<u8> {
        let mut block = text.to_vec();
        block.resize(text.len().next_multiple_of(512), 0);
        block
    }

    fn read_tar(bytes: &[u8]) -> (Files, Option<String>) {
        let mut files = Files::new();
        let result = tar(&mut &*bytes, &mut |it| {
            let mut text = Vec::new();
            let read = it.content.read_to_end(&mut text);
            files.push((it.name, read.map(|_| text).map_err(|it| it.to_string())));
        });
        (files, result.err().map(|it| it.to_string()))
    }

    fn read_zip(bytes: &[u8]) -> (Files, Option<String>) {
        let mut files = Files::new();
        let result = zip(&mut Cursor::new(bytes), &mut |it| {
            let mut text = Vec::new();
            let read = it.content.read_to_end(&mut text);
            files.push((it.name, read.map(|_| text).map_err(|it| it.to_string())));
        });
        (files, result.err().map(|it| it.to_string()))
    }

    fn sample() -> Vec<u8> {
        [
            header("logs/", "0", b'5'),
            header("logs/a.log", "3", b'0'),
            block(b"one"),
            header("link", "0", b'2'),
            header("@LongLink", "12", b'L'),
            block(b"logs/b.log\0\0"),
            header("cut", "2", 0),
            block(b"bb"),
            header("x", "17", b'x'),
            block(b"16 path=c/c.log\n\n"),
            header("cut", "1", b'0'),
            block(b"c"),
            vec![0; 1024],
        ]
        .concat()
    }

    #[test]
    fn files_of_a_tar() {
        let bytes = sample();
        assert!(is_tar(&bytes));
        let (files, error) = read_tar(&bytes);
        let want = [("logs/a.log", "one"), ("logs/b.log", "bb"), ("c/c.log", "c")];
        assert_eq!(files, want.map(|(name, text)| (name.to_owned(), Ok(text.as_bytes().to_vec()))));
        assert_eq!(error, None);
    }

    #[test]
    fn a_cut_tar_says_so() {
        let (files, error) = read_tar(&sample()[..1600]);
        assert_eq!(files, [("logs/a.log".to_owned(), Ok(b"one".to_vec()))]);
        assert!(error.is_some());
    }

    #[test]
    fn a_tar_that_claims_too_much() {
        let bytes = header("a", "77777777777", b'0');
        let (files, error) = read_tar(&bytes);
        assert_eq!(files, [("a".to_owned(), Err("the archive ends inside this file".to_owned()))]);
        assert!(error.is_some());
    }

    fn stored(name: &str, text: &[u8], claimed: u32) -> Vec<u8> {
        let mut crc = flate2::Crc::new();
        crc.update(text);
        let fields = |out: &mut Vec<u8>| {
            out.extend_from_slice(&[20, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            out.extend_from_slice(&crc.sum().to_le_bytes());
            out.extend_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
            out.extend_from_slice(&claimed.to_le_bytes());
            out.extend_from_slice(&[u8::try_from(name.len()).unwrap(), 0, 0, 0]);
        };
        let mut out = b"PK\x03\x04".to_vec();
        fields(&mut out);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(text);
        let directory = out.len();
        out.extend_from_slice(b"PK\x01\x02\x14\0");
        fields(&mut out);
        out.extend_from_slice(&[0; 14]);
        out.extend_from_slice(name.as_bytes());
        let size = out.len() - directory;
        out.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        out.extend_from_slice(&u32::try_from(size).unwrap().to_le_bytes());
        out.extend_from_slice(&u32::try_from(directory).unwrap().to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out
    }

    #[test]
    fn files_of_a_zip() {
        let (files, error) = read_zip(&stored("a.log", b"text\n", 5));
        assert_eq!((files, error), (vec![("a.log".to_owned(), Ok(b"text\n".to_vec()))], None));
        let (files, _) = read_zip(&stored("a.log", b"text\n", 6));
        assert!(files[0].1.is_err());
        assert!(read_zip(b"PK\x03\x04 and no more").1.is_some());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..2000), at in 0..2000_usize) {
            read_tar(&bytes);
            read_zip(&bytes);
            // Damage in a good one gets further.
            for mut good in [sample(), stored("a.log", b"text\n", 5)] {
                let at = at % good.len();
                for (to, from) in good[at..].iter_mut().zip(&bytes) {
                    *to = *from;
                }
                read_tar(&good);
                read_zip(&good);
            }
        }
    }
}
