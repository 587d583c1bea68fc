//! Finds, opens and reads the inputs: files, folders, pipes, compressed or not.
//!
//! One thread reads bytes, several turn chunks into facts, and the caller's
//! thread joins the facts in the order of the input.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use evidence::{Case, CaseBuilder, Chunk, ChunkFacts, Chunks, read_chunk};

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
    let mut unreadable = Vec::new();
    let mut files = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            files.push(path.clone());
        } else {
            walk(path, &mut files, &mut unreadable);
        }
    }
    let case = read_files(&files, &mut unreadable);
    Inputs { case, unreadable }
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
            Ok(entry) => paths.push(entry.path()),
            Err(error) => unreadable.push(fail(&error)),
        }
    }
    paths.sort();
    for path in paths {
        walk(&path, files, unreadable);
    }
}

/// What the reading thread tells the joining one, in the order of the input.
enum Event {
    Begin(String),
    Chunk(u32),
    End(Option<String>),
    Unreadable(Unreadable),
}

fn read_files(files: &[PathBuf], unreadable: &mut Vec<Unreadable>) -> Case {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        let (work, todo) = sync_channel::<(u32, Chunk)>(workers);
        let (done, facts) = sync_channel::<(u32, ChunkFacts)>(workers);
        let (used, spares) = channel::<Vec<u8>>();
        let (tell, events) = channel::<Event>();
        let todo = Arc::new(Mutex::new(todo));
        for _ in 0..workers {
            let (todo, done, used) = (Arc::clone(&todo), done.clone(), used.clone());
            scope.spawn(move || digest(&todo, &done, &used));
        }
        drop((done, used));
        scope.spawn(move || feed(files, &work, &tell, &spares));
        join(&events, &facts, unreadable)
    })
}

/// Reads bytes until the files end or nobody wants them any more.
fn feed(files: &[PathBuf], work: &SyncSender<(u32, Chunk)>, tell: &Sender<Event>, spares: &Receiver<Vec<u8>>) {
    let mut number = 0;
    for path in files {
        let name = if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        let source = match open(path) {
            Ok(source) => source,
            Err(error) => {
                let _ = tell.send(Event::Unreadable(Unreadable { name, reason: error.to_string() }));
                continue;
            }
        };
        let _ = tell.send(Event::Begin(name));
        let mut chunks = Chunks::new(source, Chunks::<File>::SIZE);
        let problem = loop {
            match chunks.next_chunk(spares.try_recv().unwrap_or_default()) {
                Ok(Some(chunk)) => {
                    let _ = tell.send(Event::Chunk(number));
                    if work.send((number, chunk)).is_err() {
                        return;
                    }
                    number += 1;
                }
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        let _ = tell.send(Event::End(problem));
    }
}

fn digest(todo: &Mutex<Receiver<(u32, Chunk)>>, done: &SyncSender<(u32, ChunkFacts)>, used: &Sender<Vec<u8>>) {
    loop {
        let next = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((number, chunk)) = next else { return };
        let facts = read_chunk(&chunk, number);
        let _ = used.send(chunk.recycle());
        if done.send((number, facts)).is_err() {
            return;
        }
    }
}

fn join(events: &Receiver<Event>, facts: &Receiver<(u32, ChunkFacts)>, unreadable: &mut Vec<Unreadable>) -> Case {
    let mut builder = CaseBuilder::default();
    let mut early: BTreeMap<u32, ChunkFacts> = BTreeMap::new();
    let mut file = 0;
    for event in events {
        match event {
            Event::Begin(name) => file = builder.begin_file(&name),
            Event::Chunk(number) => {
                while !early.contains_key(&number) {
                    let Ok((number, facts)) = facts.recv() else { break };
                    early.insert(number, facts);
                }
                if let Some(facts) = early.remove(&number) {
                    builder.absorb(file, facts);
                }
            }
            Event::End(problem) => builder.end_file(file, problem.as_deref()),
            Event::Unreadable(it) => unreadable.push(it),
        }
    }
    builder.finish()
}

/// Opens a file and finds out by its first bytes whether it is compressed.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path.as_os_str() == "-" {
        return decompress(Box::new(io::stdin()));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::other("is a folder"));
    }
    decompress(Box::new(file))
}

fn decompress(mut source: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::with_capacity(4);
    source.by_ref().take(4).read_to_end(&mut magic)?;
    let whole = io::Cursor::new(magic.clone()).chain(source);
    Ok(match magic.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(Frames::new(Box::new(BufReader::with_capacity(1 << 16, whole)))?),
        _ => Box::new(whole),
    })
}

/// All frames of a zstd file; the decoder reads one.
struct Frames {
    decoder: Option<ruzstd::decoding::StreamingDecoder<Box<dyn Read>, ruzstd::decoding::FrameDecoder>>,
}

impl Frames {
    fn new(source: Box<dyn Read>) -> io::Result<Self> {
        let decoder = ruzstd::decoding::StreamingDecoder::new(source).map_err(io::Error::other)?;
        Ok(Self { decoder: Some(decoder) })
    }
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let n = decoder.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            // The frame is over; another may follow.
            let Some(decoder) = self.decoder.take() else { break };
            let mut source = decoder.into_inner();
            let mut next = [0; 1];
            if source.read(&mut next)? == 0 {
                break;
            }
            *self = Self::new(Box::new(io::Cursor::new(next).chain(source)))?;
        }
        Ok(0)
    }
}
