//! Finds, opens and reads the inputs: files, folders, archives, pipes, compressed or not.
//!
//! Files are cut into regions; several threads turn regions into facts, and
//! the caller's thread joins the facts in the order of the input. A file in an
//! archive is one region, and one thread reads all of an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use evidence::encoding::{self, Peeked};
use evidence::{Case, CaseBuilder, Chunks, Facts, Reader, Spot};

use crate::archive;
use crate::progress::{Counted, Progress};

/// An input that could not be read at all.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// Its name.
    pub(crate) name: String,
    /// Why.
    pub(crate) reason: String,
}

/// What was read.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) case: Case,
    pub(crate) unreadable: Vec<Unreadable>,
    /// What was left out on purpose, and why.
    pub(crate) left_out: Vec<Unreadable>,
    /// Where lines of large files begin.
    pub(crate) landmarks: Vec<Landmark>,
    /// The beginning of standard input, which cannot be read again.
    pub(crate) piped: Vec<u8>,
}

/// Where a line begins, in bytes from the beginning of its file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Landmark {
    pub(crate) spot: Spot,
    pub(crate) byte: u64,
}

/// What is kept of the inputs beside their facts.
#[derive(Debug, Default)]
struct Kept {
    landmarks: Vec<Landmark>,
    piped: Vec<u8>,
}

/// How much of standard input is kept: the setup of a job is at the beginning of its log.
const PIPED: usize = 8 << 20;

/// How many bytes lie between two landmarks.
const LANDMARK_EVERY: u64 = 4 * 1024 * 1024;

/// What is reported about a report of plumb among the inputs.
pub(crate) const OWN_REPORT: &str = "is a report of plumb, not a log: left out";

/// Reads everything under `paths`; `-` is standard input.
pub(crate) fn read(paths: &[PathBuf]) -> Inputs {
    let Listing { files, mut unreadable, left_out, .. } = Listing::under(paths);
    let _line = Progress::show();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(16);
    let mut kept = Kept::default();
    let case = read_files(&files, workers, &mut kept, &mut unreadable);
    Inputs { case, unreadable, left_out, landmarks: kept.landmarks, piped: kept.piped }
}

/// The files that [`read`] reads.
pub(crate) fn files(paths: &[PathBuf]) -> Vec<PathBuf> {
    Listing::under(paths).files
}

/// The files under some paths, each once.
#[derive(Debug, Default)]
struct Listing {
    files: Vec<PathBuf>,
    /// What could not be listed.
    unreadable: Vec<Unreadable>,
    left_out: Vec<Unreadable>,
    known: BTreeSet<Identity>,
}

/// What two names of one file have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    #[cfg(unix)]
    Inode { device: u64, number: u64 },
    #[cfg(not(unix))]
    Path(PathBuf),
}

#[cfg(unix)]
fn identity(_: &Path, metadata: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt as _;
    Identity::Inode { device: metadata.dev(), number: metadata.ino() }
}

#[cfg(not(unix))]
fn identity(path: &Path, _: &std::fs::Metadata) -> Identity {
    Identity::Path(path.canonicalize().unwrap_or_else(|_| path.to_path_buf()))
}

impl Listing {
    fn under(paths: &[PathBuf]) -> Self {
        let mut all = Self::default();
        for path in paths {
            if path.as_os_str() == "-" {
                all.files.push(path.clone());
            } else {
                all.walk(path, true);
            }
        }
        all
    }

    /// All files under `path`, sorted by name. What the user `named` is read whatever it is.
    fn walk(&mut self, path: &Path, named: bool) {
        let because = |reason: &dyn std::fmt::Display| Unreadable {
            name: path.display().to_string(),
            reason: reason.to_string(),
        };
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(_) if !named && path.is_symlink() => {
                return self.left_out.push(because(&"is a link to nothing: left out"));
            }
            Err(error) => return self.unreadable.push(because(&error)),
        };
        if !metadata.is_dir() {
            // Reading from a pipe or a device can wait for ever.
            if !named && !metadata.is_file() {
                return self.left_out.push(because(&"is not a regular file: left out"));
            }
            let known = metadata.is_file().then(|| identity(path, &metadata));
            if known.is_none_or(|it| self.known.insert(it)) {
                self.files.push(path.to_path_buf());
            }
            return;
        }
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable.push(because(&error)),
        };
        let mut paths = Vec::new();
        for entry in entries {
            match entry {
                // A link to a folder could lead in a circle.
                Ok(entry) if entry.file_type().is_ok_and(|it| it.is_symlink()) && entry.path().is_dir() => {}
                // Markdown files quote logs, and hidden files are not logs; both are read if the user names them.
                Ok(entry) if is_beside_the_point(&entry.path()) => {}
                Ok(entry) => paths.push(entry.path()),
                Err(error) => self.unreadable.push(because(&error)),
            }
        }
        paths.sort();
        for path in paths {
            self.walk(&path, false);
        }
    }
}

pub(crate) fn is_beside_the_point(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.'));
    hidden || path.extension().is_some_and(|it| it.eq_ignore_ascii_case("md"))
}

/// A part of a file, or a file in an archive.
#[derive(Debug, Clone)]
struct Region<'a> {
    path: &'a Path,
    /// The name of a file in the archive `path`.
    member: Option<String>,
    start: u64,
    /// The end of the last region of a file is unknown: it may grow, or be a pipe.
    end: Option<u64>,
}

impl<'a> Region<'a> {
    fn whole(path: &'a Path) -> Self {
        Self { path, member: None, start: 0, end: None }
    }

    fn name(&self) -> String {
        match &self.member {
            Some(member) => format!("{}:{member}", name(self.path)),
            None => name(self.path),
        }
    }
}

/// Files below this size are read by one thread.
const SPLIT_ABOVE: u64 = 32 * 1024 * 1024;

/// The regions of a file. An archive that cannot be listed to its end has those that were found.
fn regions<'a>(path: &'a Path, workers: usize, unreadable: &mut Vec<Unreadable>) -> Vec<Region<'a>> {
    let whole = Region::whole(path);
    let Ok(metadata) = std::fs::metadata(path) else { return vec![whole] };
    if !metadata.is_file() {
        return vec![whole];
    }
    let mut members = Vec::new();
    let mut list = |it: archive::Member<'_>| {
        if !is_beside_the_point(Path::new(&it.name)) {
            members.push(Region { member: Some(it.name), ..whole.clone() });
        }
    };
    match each_member(path, &mut list) {
        None => {}
        Some(result) => {
            if let Err(error) = result {
                unreadable.push(Unreadable { name: name(path), reason: error.to_string() });
            }
            return members;
        }
    }
    let parts = workers as u64;
    if metadata.len() < SPLIT_ABOVE || parts < 2 || is_compressed(path) || begins_binary(path) {
        return vec![whole];
    }
    let length = metadata.len() / parts;
    let region = |part: u64| Region {
        path,
        member: None,
        start: part * length,
        end: (part + 1 < parts).then(|| (part + 1) * length),
    };
    (0..parts).map(region).collect()
}

/// Visits the files in an archive. `None` for any other file.
pub(crate) fn each_member(path: &Path, visit: &mut archive::Visit<'_>) -> Option<io::Result<()>> {
    let mut file = File::open(path).ok()?;
    let mut magic = Vec::new();
    file.by_ref().take(6).read_to_end(&mut magic).ok()?;
    if magic.starts_with(b"PK\x03\x04") {
        return Some(archive::zip(&mut file, visit));
    }
    file.seek(SeekFrom::Start(0)).ok()?;
    let source = decompress(Box::new(file)).ok()?;
    let mut source = Peeked::new(source, 512).ok()?;
    archive::is_tar(source.head()).then(|| archive::tar(&mut source, visit))
}

/// Programs, core dumps and dumps of Flight Recorder are known by their beginning, so they are not cut. UTF-16 looks like them.
fn begins_binary(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|it| it.take(4096).read_to_end(&mut beginning));
    let whole =
        |it: &[u8]| evidence::is_binary(it) || evidence::recorder::is_whole(it) || it.first() == Some(&0);
    read.is_ok() && whole(&beginning)
}

pub(crate) fn is_compressed(path: &Path) -> bool {
    let mut magic = [0; 6];
    File::open(path).and_then(|mut it| it.read_exact(&mut magic)).is_ok()
        && compression(&magic) != Compression::None
}

type Outcome = (usize, io::Result<ReadRegion>);

/// What one region holds.
struct ReadRegion {
    facts: Facts,
    /// Why it could not be read to its end.
    problem: Option<String>,
    kept: Kept,
}

fn read_files(files: &[PathBuf], workers: usize, kept: &mut Kept, unreadable: &mut Vec<Unreadable>) -> Case {
    let regions: Vec<Region<'_>> = files.iter().flat_map(|it| regions(it, workers, unreadable)).collect();
    // The first region of each archive, and every other region.
    let is_unit = |at: &usize| {
        let member = |at: usize| regions.get(at).filter(|it| it.member.is_some()).map(|it| it.path);
        at.checked_sub(1).is_none_or(|last| member(last).is_none() || member(last) != member(*at))
    };
    let units: Vec<usize> = (0..regions.len()).filter(is_unit).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (done, outcomes) = sync_channel::<Outcome>(workers * 4);
        for _ in 0..workers.min(units.len()) {
            let (done, next, regions, units) = (done.clone(), &next, &regions, &units);
            scope.spawn(move || work(regions, units, next, &done));
        }
        drop(done);
        join(&regions, &outcomes, kept, unreadable)
    })
}

fn work(regions: &[Region<'_>], units: &[usize], next: &AtomicUsize, done: &SyncSender<Outcome>) {
    loop {
        let Some(&number) = units.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
        let Some(region) = regions.get(number) else { return };
        if region.member.is_some() {
            read_archive(regions, number, done);
        } else if done.send((number, read_region(region, number))).is_err() {
            return;
        }
    }
}

/// Reads the files of the archive whose first region is `first`.
fn read_archive(regions: &[Region<'_>], first: usize, done: &SyncSender<Outcome>) {
    let Some(path) = regions.get(first).map(|it| it.path) else { return };
    let mine = regions.get(first..).unwrap_or_default().iter();
    let mine = mine.take_while(|it| it.member.is_some() && it.path == path).count();
    let mut number = first;
    let mut read = |it: archive::Member<'_>| {
        if is_beside_the_point(Path::new(&it.name)) || number >= first + mine {
            return;
        }
        let facts = decompress(Box::new(it.content)).and_then(|source| {
            let source = Peeked::new(source, 512)?;
            let nested = archive::is_tar(source.head()) || source.head().starts_with(b"PK\x03\x04");
            if nested {
                return Err(io::Error::other("is an archive inside an archive: unpack it first"));
            }
            read_source(Box::new(source), true, false, number)
        });
        let _ = done.send((number, facts));
        number += 1;
    };
    // What is wrong with the archive itself was said when it was listed.
    let _ = each_member(path, &mut read);
    // The file changed after it was listed.
    for number in number..first + mine {
        let _ = done.send((number, Err(io::Error::other("is no longer in the archive"))));
    }
}

fn read_region(region: &Region<'_>, number: usize) -> io::Result<ReadRegion> {
    let (start, source) = open(region)?;
    let piped = region.path.as_os_str() == "-";
    let mut read = read_source(source, region.start == 0, piped, number)?;
    for it in &mut read.kept.landmarks {
        it.byte += start;
    }
    Ok(read)
}

/// Reads a region; landmarks count from its beginning.
fn read_source(
    source: Box<dyn Read + '_>,
    beginning: bool,
    piped: bool,
    number: usize,
) -> io::Result<ReadRegion> {
    let region = u32::try_from(number).unwrap_or(u32::MAX);
    let mut reader = Reader::new(region);
    let mut kept = Kept::default();
    let read = if beginning {
        let source = encoding::text(Box::new(Counted(source)))?;
        if is_report(source.head()) {
            let problem = Some(OWN_REPORT.to_owned());
            return Ok(ReadRegion { facts: reader.finish(), problem, kept });
        }
        read_lines(&mut reader, region, source, (beginning, piped), &mut kept)
    } else {
        read_lines(&mut reader, region, Counted(source), (beginning, piped), &mut kept)
    };
    Ok(ReadRegion { facts: reader.finish(), problem: read.err().map(|it| it.to_string()), kept })
}

fn read_lines(
    reader: &mut Reader,
    region: u32,
    source: impl Read,
    (mut beginning, piped): (bool, bool),
    kept: &mut Kept,
) -> io::Result<()> {
    let mut chunks = Chunks::new(source, Chunks::<File>::SIZE);
    let (mut spare, mut byte, mut next) = (Vec::new(), 0, LANDMARK_EVERY);
    while let Some(chunk) = chunks.next_chunk(spare)? {
        if byte >= next {
            kept.landmarks.push(Landmark { spot: Spot { region, line: reader.lines() }, byte });
            next = byte + LANDMARK_EVERY;
        }
        byte += chunk.bytes().len() as u64;
        if piped && kept.piped.len() < PIPED {
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
        Some(b'<') => has("<testsuites name=\"plumb\""),
        _ => {
            levels.iter().any(|it| inner.starts_with(it.as_bytes()))
                && (has(" lines understood (") || has("-v shows all"))
        }
    }
}

fn join(
    regions: &[Region<'_>],
    outcomes: &Receiver<Outcome>,
    kept: &mut Kept,
    unreadable: &mut Vec<Unreadable>,
) -> Case {
    let mut builder = CaseBuilder::default();
    let mut early = BTreeMap::new();
    let mut open: Option<(u32, &Path)> = None;
    let mut problem = None;
    for (number, region) in regions.iter().enumerate() {
        while !early.contains_key(&number) {
            let Ok((number, outcome)) = outcomes.recv() else { break };
            early.insert(number, outcome);
        }
        let Some(outcome) = early.remove(&number) else { break };
        if region.start == 0
            && let Some((file, _)) = open.take()
        {
            builder.end_file(file, problem.take().as_deref());
        }
        match outcome {
            Ok(read) => {
                let (file, _) =
                    *open.get_or_insert_with(|| (builder.begin_file(&region.name()), region.path));
                builder.absorb(file, read.facts);
                kept.landmarks.extend(read.kept.landmarks);
                kept.piped.extend(read.kept.piped);
                problem = problem.or(read.problem);
            }
            Err(error) => {
                // Keep the numbering of later regions.
                builder.skip_region();
                unreadable.push(Unreadable { name: region.name(), reason: error.to_string() });
            }
        }
    }
    if let Some((file, _)) = open {
        builder.end_file(file, problem.as_deref());
    }
    builder.finish()
}

pub(crate) fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

/// Opens a whole text, whatever it is compressed with.
pub(crate) fn open_whole(path: &Path) -> io::Result<Box<dyn Read>> {
    Ok(Box::new(encoding::text(open(&Region::whole(path))?.1)?))
}

/// Opens a region, and tells where it begins; a file's first bytes tell whether it is compressed.
fn open(region: &Region<'_>) -> io::Result<(u64, Box<dyn Read>)> {
    if region.path.as_os_str() == "-" {
        let source = Peeked::new(decompress(Box::new(io::stdin()))?, 512)?;
        if archive::is_tar(source.head()) || source.head().starts_with(b"PK\x03\x04") {
            return Err(io::Error::other("is an archive: give its name instead of its content"));
        }
        return Ok((0, Box::new(source)));
    }
    let mut file = File::open(region.path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    if region.start == 0 && region.end.is_none() {
        return Ok((0, decompress(Box::new(file))?));
    }
    // Begin after the first line end at or after `start - 1`, and end after the first at or after `end - 1`.
    let start = if region.start == 0 { 0 } else { line_start(&mut file, region.start)? };
    let end = match region.end {
        Some(end) => Some(line_start(&mut file, end)?),
        None => None,
    };
    file.seek(SeekFrom::Start(start))?;
    let source: Box<dyn Read> = match end {
        Some(end) => Box::new(file.take(end.saturating_sub(start))),
        None => Box::new(file),
    };
    Ok((start, source))
}

/// Where the first line begins that begins at or after `at`.
fn line_start(file: &mut File, at: u64) -> io::Result<u64> {
    let mut position = at - 1;
    file.seek(SeekFrom::Start(position))?;
    let mut buffer = [0; 4096];
    loop {
        let n = file.read(&mut buffer)?;
        let read = buffer.get(..n).unwrap_or_default();
        if n == 0 {
            return Ok(position);
        }
        if let Some(end) = read.iter().position(|it| *it == b'\n') {
            return Ok(position + end as u64 + 1);
        }
        position += n as u64;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
}

/// How much memory the dictionary of an xz file may take, in KiB: more than `xz -9` uses.
const XZ_MEMORY: u32 = 256 * 1024;

fn compression(magic: &[u8]) -> Compression {
    match magic {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
        _ => Compression::None,
    }
}

pub(crate) fn decompress<'a>(source: Box<dyn Read + 'a>) -> io::Result<Box<dyn Read + 'a>> {
    let whole = Peeked::new(source, 6)?;
    Ok(match compression(whole.head()) {
        Compression::Gzip => {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))
        }
        Compression::Zstd => Box::new(Frames { decoder: frame(whole)? }),
        Compression::Xz => {
            let source = BufReader::with_capacity(1 << 16, whole);
            Box::new(lzma_rust2::XzReader::new_mem_limit(source, true, XZ_MEMORY))
        }
        Compression::None => Box::new(whole),
    })
}

type Decoder<'a> = ruzstd::decoding::StreamingDecoder<Peeked<'a>, ruzstd::decoding::FrameDecoder>;

/// All frames of a zstd file; the decoder reads one.
struct Frames<'a> {
    decoder: Option<Decoder<'a>>,
}

/// The next frame that holds data, if there is one.
fn frame(mut source: Peeked<'_>) -> io::Result<Option<Decoder<'_>>> {
    loop {
        let mut magic = Vec::with_capacity(4);
        source.by_ref().take(4).read_to_end(&mut magic)?;
        match magic.as_slice() {
            [] => return Ok(None),
            // A skippable frame: its length, then data to ignore.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                let mut length = [0; 4];
                source.read_exact(&mut length)?;
                let length = u64::from(u32::from_le_bytes(length));
                io::copy(&mut source.by_ref().take(length), &mut io::sink())?;
            }
            _ => {
                source.put_back(&magic);
                return Decoder::new(source).map(Some).map_err(io::Error::other);
            }
        }
    }
}

impl Read for Frames<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let n = decoder.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            // The frame has ended; another may follow.
            self.decoder = match self.decoder.take() {
                Some(decoder) => frame(decoder.into_inner())?,
                None => None,
            };
        }
        Ok(0)
    }
}
