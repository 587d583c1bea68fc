//! Finds, opens and reads the inputs: files, folders, pipes, compressed or not.
//!
//! Files are cut into regions; several threads turn regions into facts, and
//! the caller's thread joins the facts in the order of the input.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use evidence::{Case, CaseBuilder, Chunks, Facts, Reader, read_lines};

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
}

/// Reads everything under `paths`; `-` is standard input.
pub(crate) fn read(paths: &[PathBuf]) -> Inputs {
    let (files, mut unreadable) = files(paths);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(16);
    let case = read_files(&files, workers, &mut unreadable);
    Inputs { case, unreadable }
}

/// The files that [`read`] reads, and what could not be listed.
pub(crate) fn files(paths: &[PathBuf]) -> (Vec<PathBuf>, Vec<Unreadable>) {
    let (mut files, mut unreadable) = (Vec::new(), Vec::new());
    for path in paths {
        if path.as_os_str() == "-" {
            files.push(path.clone());
        } else {
            walk(path, &mut files, &mut unreadable);
        }
    }
    (files, unreadable)
}

/// All files under `path`, sorted by name.
fn walk(path: &Path, files: &mut Vec<PathBuf>, unreadable: &mut Vec<Unreadable>) {
    let fail = |error: &io::Error| Unreadable { name: path.display().to_string(), reason: error.to_string() };
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return unreadable.push(fail(&error)),
    };
    if !metadata.is_dir() {
        return files.push(path.to_path_buf());
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return unreadable.push(fail(&error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        match entry {
            // A link to a folder could lead in a circle.
            Ok(entry) if entry.file_type().is_ok_and(|it| it.is_symlink()) && entry.path().is_dir() => {}
            // Markdown files quote logs, and hidden files are not logs; both are read if the user names them.
            Ok(entry) if is_beside_the_point(&entry.path()) => {}
            Ok(entry) => paths.push(entry.path()),
            Err(error) => unreadable.push(fail(&error)),
        }
    }
    paths.sort();
    for path in paths {
        walk(&path, files, unreadable);
    }
}

fn is_beside_the_point(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|it| it.to_string_lossy().starts_with('.'));
    hidden || path.extension().is_some_and(|it| it.eq_ignore_ascii_case("md"))
}

/// A part of a file.
#[derive(Debug, Clone, Copy)]
struct Region<'a> {
    path: &'a Path,
    start: u64,
    /// The end of the last region of a file is unknown: it may grow, or be a pipe.
    end: Option<u64>,
}

/// Files below this size are read by one thread.
const SPLIT_ABOVE: u64 = 32 * 1024 * 1024;

fn regions(path: &Path, workers: usize) -> Vec<Region<'_>> {
    let whole = Region { path, start: 0, end: None };
    let Ok(metadata) = std::fs::metadata(path) else { return vec![whole] };
    let parts = workers as u64;
    if !metadata.is_file()
        || metadata.len() < SPLIT_ABOVE
        || parts < 2
        || is_compressed(path)
        || begins_binary(path)
    {
        return vec![whole];
    }
    let length = metadata.len() / parts;
    let region = |part: u64| Region {
        path,
        start: part * length,
        end: (part + 1 < parts).then(|| (part + 1) * length),
    };
    (0..parts).map(region).collect()
}

/// Programs, core dumps and dumps of Flight Recorder are known by their beginning, so they are not cut.
fn begins_binary(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|it| it.take(4096).read_to_end(&mut beginning));
    read.is_ok() && (evidence::is_binary(&beginning) || evidence::recorder::is_whole(&beginning))
}

pub(crate) fn is_compressed(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut it| it.read_exact(&mut magic)).is_ok()
        && compression(&magic) != Compression::None
}

type Outcome = (usize, io::Result<(Facts, Option<String>)>);

fn read_files(files: &[PathBuf], workers: usize, unreadable: &mut Vec<Unreadable>) -> Case {
    let regions: Vec<Region<'_>> = files.iter().flat_map(|it| regions(it, workers)).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (done, outcomes) = sync_channel::<Outcome>(workers * 4);
        for _ in 0..workers.min(regions.len()) {
            let (done, next, regions) = (done.clone(), &next, &regions);
            scope.spawn(move || work(regions, next, &done));
        }
        drop(done);
        join(&regions, &outcomes, unreadable)
    })
}

fn work(regions: &[Region<'_>], next: &AtomicUsize, done: &SyncSender<Outcome>) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(region) = regions.get(number) else { return };
        if done.send((number, read_region(region, number))).is_err() {
            return;
        }
    }
}

/// The facts of a region, and the error if it could not be read to its end.
fn read_region(region: &Region<'_>, number: usize) -> io::Result<(Facts, Option<String>)> {
    let mut reader = Reader::new(u32::try_from(number).unwrap_or(u32::MAX));
    let source = open(region)?;
    let mut chunks = Chunks::new(source, Chunks::<File>::SIZE);
    let problem = if region.start == 0 {
        read_lines(&mut reader, &mut chunks)
    } else {
        read_rest(&mut reader, &mut chunks)
    };
    Ok((reader.finish(), problem.err().map(|it| it.to_string())))
}

/// A region inside a file: no document begins before it.
fn read_rest<R: Read>(reader: &mut Reader, chunks: &mut Chunks<R>) -> io::Result<()> {
    let mut spare = Vec::new();
    while let Some(chunk) = chunks.next_chunk(spare)? {
        reader.feed(chunk.bytes(), false);
        spare = chunk.recycle();
    }
    Ok(())
}

fn join(regions: &[Region<'_>], outcomes: &Receiver<Outcome>, unreadable: &mut Vec<Unreadable>) -> Case {
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
            Ok((facts, failed)) => {
                let (file, _) =
                    *open.get_or_insert_with(|| (builder.begin_file(&name(region.path)), region.path));
                builder.absorb(file, facts);
                problem = problem.or(failed);
            }
            Err(error) => {
                // Keep the numbering of later regions.
                builder.skip_region();
                unreadable.push(Unreadable { name: name(region.path), reason: error.to_string() });
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

/// Opens a whole file, whatever it is compressed with.
pub(crate) fn open_whole(path: &Path) -> io::Result<Box<dyn Read>> {
    open(&Region { path, start: 0, end: None })
}

/// Opens a region; a file's first bytes tell whether it is compressed.
fn open(region: &Region<'_>) -> io::Result<Box<dyn Read>> {
    if region.path.as_os_str() == "-" {
        return decompress(Box::new(io::stdin()));
    }
    let mut file = File::open(region.path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    if region.start == 0 && region.end.is_none() {
        return decompress(Box::new(file));
    }
    // Begin after the first line end at or after `start - 1`, and end after the first at or after `end - 1`.
    let start = if region.start == 0 { 0 } else { line_start(&mut file, region.start)? };
    let end = match region.end {
        Some(end) => Some(line_start(&mut file, end)?),
        None => None,
    };
    file.seek(SeekFrom::Start(start))?;
    Ok(match end {
        Some(end) => Box::new(file.take(end.saturating_sub(start))),
        None => Box::new(file),
    })
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
}

fn compression(magic: &[u8]) -> Compression {
    match magic {
        [0x1f, 0x8b, ..] => Compression::Gzip,
        // A frame, or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Compression::Zstd,
        _ => Compression::None,
    }
}

fn decompress(mut source: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::with_capacity(4);
    source.by_ref().take(4).read_to_end(&mut magic)?;
    let kind = compression(&magic);
    let whole = Front { bytes: magic, rest: source };
    Ok(match kind {
        Compression::Gzip => {
            Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole)))
        }
        Compression::Zstd => Box::new(Frames { decoder: frame(whole)? }),
        Compression::None => Box::new(whole),
    })
}

/// A source some of whose bytes were read ahead.
struct Front {
    bytes: Vec<u8>,
    rest: Box<dyn Read>,
}

impl Read for Front {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return self.rest.read(buffer);
        }
        let n = self.bytes.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.bytes.drain(..n)) {
            *to = from;
        }
        Ok(n)
    }
}

type Decoder = ruzstd::decoding::StreamingDecoder<Front, ruzstd::decoding::FrameDecoder>;

/// All frames of a zstd file; the decoder reads one.
struct Frames {
    decoder: Option<Decoder>,
}

/// The next frame that holds data, if there is one.
fn frame(mut source: Front) -> io::Result<Option<Decoder>> {
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
                source.bytes = magic;
                return Decoder::new(source).map(Some).map_err(io::Error::other);
            }
        }
    }
}

impl Read for Frames {
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
