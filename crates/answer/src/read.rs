//! Reads inputs: regions of files to facts, and facts to one case.

use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

use evidence::encoding::{self, Peeked};
use evidence::{Case, CaseBuilder, Chunks, Facts, Reader, Spot};

use crate::packed::decompress;
use crate::{Files, Source, archive};

/// An input that could not be read at all.
#[derive(Debug)]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What was read.
#[derive(Debug)]
pub struct Inputs {
    /// All inputs together.
    pub case: Case,
    /// What could not be read at all.
    pub unreadable: Vec<Unreadable>,
    /// What was left out on purpose, and why.
    pub left_out: Vec<Unreadable>,
    /// Beside the facts.
    pub kept: Kept,
}

/// Where a line begins, in bytes from the beginning of its file.
#[derive(Debug, Clone, Copy)]
pub struct Landmark {
    /// The line.
    pub spot: Spot,
    /// Its first byte.
    pub byte: u64,
}

/// What is kept of the inputs beside their facts.
#[derive(Debug, Default)]
pub struct Kept {
    /// Where lines of large files begin.
    pub landmarks: Vec<Landmark>,
    /// The beginning of standard input, which cannot be read again.
    pub piped: Vec<u8>,
}

/// How much of standard input is kept: the setup of a job is at the beginning of its log.
const PIPED: usize = 8 << 20;

/// How many bytes lie between two landmarks.
const LANDMARK_EVERY: u64 = 4 * 1024 * 1024;

/// How what is reported about an answer of plumb among the inputs begins.
const OWN: &str = "is a report of plumb";

/// Whether a problem of an input is that plumb wrote it.
pub fn is_own(problem: &str) -> bool {
    problem.starts_with(OWN) || problem.starts_with(report::html::BROWSER_PAGE)
}

/// What is reported about what plumb wrote, by how it begins.
fn own(head: &[u8]) -> String {
    match report::html::command_of(head) {
        Some(it) => format!("{OWN} {it}, not a log: left out; `plumb {it}` shows it when it is given alone"),
        None if report::html::is_browser_page(head) => {
            format!("{}, not a log: left out", report::html::BROWSER_PAGE)
        }
        None => format!("{OWN}, not a log: left out"),
    }
}

/// Whether a file in a folder is left out: Markdown files quote logs, and hidden files are not logs. Both are read if the user names
/// them.
pub fn is_beside_the_point(name: &str) -> bool {
    let path = Path::new(name);
    let hidden = path.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.'));
    hidden || path.extension().is_some_and(|it| it.eq_ignore_ascii_case("md"))
}

/// What one region holds.
#[derive(Debug)]
pub struct ReadRegion {
    /// What its lines say.
    pub facts: Facts,
    /// Why it could not be read to its end.
    pub problem: Option<String>,
    /// Beside the facts; landmarks count from the beginning of the region.
    pub kept: Kept,
}

/// Where a region is in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At its beginning.
    Beginning,
    /// At the beginning of standard input.
    Piped,
    /// Somewhere inside it.
    Inside,
}

/// Reads a region of decompressed text; `number` counts the regions of all inputs.
pub fn region(source: Box<dyn Read + '_>, place: Place, number: usize) -> io::Result<ReadRegion> {
    let region = u32::try_from(number).unwrap_or(u32::MAX);
    let mut reader = Reader::new(region);
    let mut kept = Kept::default();
    let read = if place == Place::Inside {
        lines(&mut reader, region, source, place, &mut kept)
    } else {
        let source = encoding::text(source)?;
        if is_report(source.head()) {
            let problem = Some(own(source.head()));
            return Ok(ReadRegion { facts: reader.finish(), problem, kept });
        }
        lines(&mut reader, region, source, place, &mut kept)
    };
    Ok(ReadRegion { facts: reader.finish(), problem: read.err().map(|it| it.to_string()), kept })
}

fn lines(
    reader: &mut Reader,
    region: u32,
    source: impl Read,
    place: Place,
    kept: &mut Kept,
) -> io::Result<()> {
    let mut chunks = Chunks::new(source, Chunks::<&[u8]>::SIZE);
    let (mut spare, mut byte, mut next) = (Vec::new(), 0, LANDMARK_EVERY);
    let mut beginning = place != Place::Inside;
    while let Some(chunk) = chunks.next_chunk(spare)? {
        if byte >= next {
            kept.landmarks.push(Landmark { spot: Spot { region, line: reader.lines() }, byte });
            next = byte + LANDMARK_EVERY;
        }
        byte += chunk.bytes().len() as u64;
        if place == Place::Piped && kept.piped.len() < PIPED {
            kept.piped.extend_from_slice(chunk.bytes());
        }
        reader.feed(chunk.bytes(), std::mem::replace(&mut beginning, false));
        spare = chunk.recycle();
    }
    Ok(())
}

/// Whether a file begins as the reports do that plumb writes about logs and manifests.
fn is_report(head: &[u8]) -> bool {
    let has = |text: &str| memchr::memmem::find(head, text.as_bytes()).is_some();
    let inner = head.trim_ascii_start();
    let json = ["\"plumb.doctor/", "\"plumb.lint/", "\"plumb/doctor/", "\"plumb/lint/"];
    let levels = ["failed: ", "hung: ", "error: ", "warning: ", "info: ", "ok: ", "unknown: "];
    match inner.first() {
        Some(b'{') => json.iter().any(|it| has(it)),
        Some(b'<') => {
            has("<testsuites name=\"plumb\"")
                || report::html::is_page(head)
                || report::html::is_browser_page(head)
        }
        _ => {
            levels.iter().any(|it| inner.starts_with(it.as_bytes()))
                && (has(" lines understood (") || has("-v shows all"))
        }
    }
}

/// Visits the files in an archive. `None` for any other file.
pub fn each_member(mut file: &mut dyn Source, visit: &mut archive::Visit<'_>) -> Option<io::Result<()>> {
    let mut magic = Vec::new();
    (&mut file).take(6).read_to_end(&mut magic).ok()?;
    if magic.starts_with(b"PK\x03\x04") {
        return Some(archive::zip(&mut file, visit));
    }
    file.seek(SeekFrom::Start(0)).ok()?;
    let source = decompress(Box::new(file)).ok()?;
    let mut source = Peeked::new(source, 512).ok()?;
    archive::is_tar(source.head()).then(|| archive::tar(&mut source, visit))
}

/// Reads a file of an archive.
pub fn member(it: archive::Member<'_>, number: usize) -> io::Result<ReadRegion> {
    let source = Peeked::new(decompress(Box::new(it.content))?, 512)?;
    if is_archive(source.head()) {
        return Err(io::Error::other("is an archive inside an archive: unpack it first"));
    }
    region(Box::new(source), Place::Beginning, number)
}

/// Whether an archive begins with these bytes.
pub fn is_archive(head: &[u8]) -> bool {
    archive::is_tar(head) || head.starts_with(b"PK\x03\x04")
}

/// Joins what was read of regions, in the order of the input.
#[derive(Debug, Default)]
pub struct Joined {
    builder: CaseBuilder,
    open: Option<u32>,
    problem: Option<String>,
    kept: Kept,
    unreadable: Vec<Unreadable>,
}

impl Joined {
    /// Adds the next region; `begins` says that it is the first of its file.
    pub fn add(&mut self, name: &str, begins: bool, outcome: io::Result<ReadRegion>) {
        if begins {
            self.end_file();
        }
        match outcome {
            Ok(read) => {
                let file = *self.open.get_or_insert_with(|| self.builder.begin_file(name));
                self.builder.absorb(file, read.facts);
                self.kept.landmarks.extend(read.kept.landmarks);
                self.kept.piped.extend(read.kept.piped);
                self.problem = self.problem.take().or(read.problem);
            }
            Err(error) => {
                // Keep the numbering of later regions.
                self.builder.skip_region();
                self.unreadable.push(Unreadable { name: name.to_owned(), reason: error.to_string() });
            }
        }
    }

    fn end_file(&mut self) {
        if let Some(file) = self.open.take() {
            self.builder.end_file(file, self.problem.take().as_deref());
        }
    }

    /// All that was read, with what could not be listed.
    pub fn finish(mut self, mut unreadable: Vec<Unreadable>, left_out: Vec<Unreadable>) -> Inputs {
        self.end_file();
        unreadable.append(&mut self.unreadable);
        Inputs { case: self.builder.finish(), unreadable, left_out, kept: self.kept }
    }
}

/// Reads files one after the other, each as one region.
pub fn all(files: &dyn Files, names: &[String]) -> Inputs {
    let mut joined = Joined::default();
    let mut unreadable = Vec::new();
    let mut number = 0;
    for name in names {
        let mut file = match files.open(name) {
            Ok(file) => file,
            Err(error) => {
                unreadable.push(Unreadable { name: name.clone(), reason: error.to_string() });
                continue;
            }
        };
        let mut read = |it: archive::Member<'_>| {
            if !is_beside_the_point(&it.name) {
                let whole = format!("{name}:{}", it.name);
                joined.add(&whole, true, member(it, number));
                number += 1;
            }
        };
        match each_member(&mut *file, &mut read) {
            Some(Ok(())) => continue,
            Some(Err(error)) => {
                unreadable.push(Unreadable { name: name.clone(), reason: error.to_string() });
                continue;
            }
            None => {}
        }
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| {
            let source = decompress(Box::new(file))?;
            region(source, Place::Beginning, number)
        });
        joined.add(name, true, read);
        number += 1;
    }
    joined.finish(unreadable, Vec::new())
}
