//! The files that an answer is made of.

use std::io::{self, BufRead as _, BufReader, Read, Seek};

use evidence::encoding::{self, Peeked};

use crate::archive;
use crate::packed::decompress;
use crate::read::each_member;

/// Bytes that can be read from any position.
pub trait Source: Read + Seek {}

impl<T: Read + Seek> Source for T {}

/// Opens files by the names that answers show.
pub trait Files {
    /// A regular file.
    fn open(&self, name: &str) -> io::Result<Box<dyn Source + '_>>;
}

/// A whole text, whatever it is compressed with.
pub fn whole<'a>(source: Box<dyn Read + 'a>) -> io::Result<Peeked<'a>> {
    encoding::text(decompress(source)?)
}

/// A text of at most `most` bytes; the error does not name it.
pub fn text(source: Box<dyn Read + '_>, most: u64) -> Result<String, String> {
    limited(whole(source).map_err(|error| error.to_string())?, most)
}

/// The same of a text that is not compressed.
pub(crate) fn limited(source: impl Read, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = source.take(most + 1).read_to_end(&mut bytes);
    if read.map_err(|error| error.to_string())? as u64 > most {
        return Err(format!("is longer than {} MiB", most >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
}

/// The beginning of an input of this name up to a line, if that is at most `most` bytes. A file in an archive is named
/// `ARCHIVE:FILE`.
pub fn beginning(files: &dyn Files, name: &str, last: u64, most: u64) -> Option<Vec<u8>> {
    if let Ok(file) = files.open(name) {
        return lines(whole(Box::new(file)).ok()?, last, most);
    }
    let parts = name.match_indices(':').map(|(at, _)| (&name[..at], &name[at + 1..]));
    let (mut archive, member) = parts.into_iter().find_map(|it| Some((files.open(it.0).ok()?, it.1)))?;
    let mut found = None;
    let mut look = |it: archive::Member<'_>| {
        if it.name == member && found.is_none() {
            let source = whole(Box::new(it.content));
            found = Some(source.ok().and_then(|it| lines(it, last, most)));
        }
    };
    each_member(&mut *archive, &mut look)?.ok()?;
    found.flatten()
}

/// The first lines of a text, if there are as many in at most `most` bytes.
pub fn lines(source: impl Read, count: u64, most: u64) -> Option<Vec<u8>> {
    let mut source = BufReader::with_capacity(1 << 16, source.take(most));
    let mut text = Vec::new();
    for _ in 0..count {
        if source.read_until(b'\n', &mut text).ok()? == 0 {
            return None;
        }
    }
    Some(text)
}
