//! The files that were dropped on the page.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

use answer::{Files, Source};
use job::training;

/// Reads files by their number.
pub trait Bytes {
    /// Reads bytes of a file from a position on; fewer only at its end.
    fn read(&self, file: u32, from: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

/// The dropped files by their names.
pub struct Dropped<'a> {
    bytes: &'a dyn Bytes,
    /// Number and size.
    known: BTreeMap<&'a str, (u32, u64)>,
}

impl<'a> Dropped<'a> {
    /// Files with their sizes, numbered in this order.
    pub fn new(bytes: &'a dyn Bytes, files: impl IntoIterator<Item = (&'a str, u64)>) -> Self {
        let known = (0..).zip(files).map(|(number, (name, size))| (name, (number, size))).collect();
        Self { bytes, known }
    }
}

impl Files for Dropped<'_> {
    fn open(&self, name: &str) -> io::Result<Box<dyn Source + '_>> {
        let &(number, size) =
            self.known.get(name).ok_or_else(|| io::Error::other("was not given to the page"))?;
        Ok(Box::new(Open { bytes: self.bytes, number, size, at: 0 }))
    }
}

struct Open<'a> {
    bytes: &'a dyn Bytes,
    number: u32,
    size: u64,
    at: u64,
}

impl Read for Open<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.size.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let Some(buffer) = buffer.get_mut(..length).filter(|it| !it.is_empty()) else { return Ok(0) };
        let count = self.bytes.read(self.number, self.at, buffer)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Open<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.size.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

/// The files that scripts name, of those that were dropped.
pub(crate) struct Beside<'a>(pub(crate) &'a Dropped<'a>);

/// The largest file that a script names and that is read.
const LONGEST: u64 = 1 << 20;

impl training::Files for Beside<'_> {
    fn read(&mut self, from: &str, path: &str) -> Result<training::Text, String> {
        let path = path.strip_prefix("./").unwrap_or(path);
        let beside = from.rsplit_once('/').map(|it| format!("{}/{path}", it.0));
        let name =
            beside.filter(|it| self.0.known.contains_key(it.as_str())).unwrap_or_else(|| path.to_owned());
        let named = |reason: String| format!("{name}: {reason}");
        let source = self.0.open(&name).map_err(|error| named(error.to_string()))?;
        let text = answer::text(Box::new(source), LONGEST).map_err(named)?;
        Ok(training::Text { name, text })
    }
}
