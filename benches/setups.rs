//! Logs that are nothing but setups: what thousands of ranks write with `NCCL_DEBUG=INFO`.
//!
//! Every rank writes what a rank of a recording wrote, with a host, process, rank, communicator address and hash of
//! its own. A rank is a member of several communicators, as with tensor, pipeline and data parallelism: the first is
//! the whole job, the others have 8 ranks, one rank in 8, 16 ranks, one in 16, and so on. Ranks write in turn, one to
//! six lines at a time, as processes do that share a stdout.

use std::fs::{self, File};
use std::io::{BufWriter, Read as _, Write};
use std::path::{Path, PathBuf};

/// A log to make.
pub(crate) struct Log {
    pub(crate) name: &'static str,
    /// A recording of several ranks.
    pub(crate) recording: &'static str,
    pub(crate) ranks: usize,
    /// The recording has no connections: add those of rings and trees over 16 channels.
    pub(crate) connect: bool,
}

const GPUS: usize = 8;
const CHANNELS: usize = 16;

/// Writes the log, of about `size` bytes: as many communicators as fit, and all of them complete.
pub(crate) fn write(root: &Path, log: &Log, size: u64, path: &Path) -> std::io::Result<()> {
    let model = Recording::read(&root.join("cases").join(log.recording))?;
    fs::create_dir_all(path.parent().unwrap_or(root))?;
    let partial = path.with_extension("partial");
    let mut out = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
    let mut job = Job { model: &model, ranks: log.ranks, connect: log.connect };
    let mut sample = Vec::new();
    for rank in 0..64.min(log.ranks) {
        for line in 0..job.lines(rank) {
            job.line(&mut sample, rank, 1, line)?;
        }
    }
    let one = (sample.len() / 64.min(log.ranks) * log.ranks) as u64;
    job.write(&mut out, usize::try_from(((size + one / 2) / one).max(1)).unwrap_or(usize::MAX))?;
    out.flush()?;
    fs::rename(partial, path)
}

struct Job<'a> {
    model: &'a Recording,
    ranks: usize,
    connect: bool,
}

/// A rank in a communicator.
struct Place {
    hash: u64,
    index: usize,
    size: usize,
    /// Neighbours in the communicator are on other hosts.
    spread: bool,
}

impl Job<'_> {
    fn write(&mut self, out: &mut impl Write, communicators: usize) -> std::io::Result<()> {
        let mut cursors = vec![(0, 0); self.ranks];
        let mut random = 1_u64;
        let mut left = self.ranks;
        while left > 0 {
            for (rank, (communicator, line)) in cursors.iter_mut().enumerate() {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                for _ in 0..=(random >> 33) % 6 {
                    if *communicator == communicators {
                        break;
                    }
                    self.line(out, rank, *communicator, *line)?;
                    *line += 1;
                    if *line == self.lines(rank) {
                        (*communicator, *line) = (*communicator + 1, 0);
                        left -= usize::from(*communicator == communicators);
                    }
                }
            }
        }
        Ok(())
    }

    fn place(&self, rank: usize, communicator: usize) -> Place {
        let group = (GPUS << (communicator.saturating_sub(1) / 2)).min(self.ranks);
        let (number, index, size) = match communicator {
            0 => (0, rank, self.ranks),
            odd if odd % 2 == 1 => (rank / group, rank % group, group),
            _ => (rank % group, rank / group, self.ranks / group),
        };
        let hash =
            (((communicator as u64 + 1) << 40) | (number as u64 + 1)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Place { hash, index, size, spread: communicator > 0 && communicator.is_multiple_of(2) }
    }

    fn lines(&self, rank: usize) -> usize {
        let connections = if self.connect { 4 * CHANNELS + 2 } else { 0 };
        self.model.ranks[rank % self.model.ranks.len()].len() + connections
    }

    fn line(
        &self,
        out: &mut impl Write,
        rank: usize,
        communicator: usize,
        line: usize,
    ) -> std::io::Result<()> {
        let place = self.place(rank, communicator);
        let recorded = self.model.ranks.len();
        let model = &self.model.ranks[rank % recorded];
        let pid = 10_000 + rank % GPUS * 137 + rank / GPUS % 31;
        let host = rank / GPUS;
        let Some(line) = model.get(line) else {
            let line = line - model.len();
            return connection(
                out,
                &place,
                line,
                &format!("node-{host}:{pid}:{}", pid + 500 + communicator),
                rank % GPUS,
            );
        };
        if line.once && communicator > 0 {
            return Ok(());
        }
        // Numbers of ranks are those of the recording, moved to where this rank is.
        let own = |of: usize| {
            let first = place.index - place.index % recorded;
            (first + (of + place.index % recorded + recorded - rank % recorded) % recorded) % place.size
        };
        let tid = if line.tid == 0 { pid } else { pid + 20 + line.tid + 7 * communicator };
        write!(out, "node-{host}:{pid}:{tid} [{}] NCCL INFO ", rank % GPUS)?;
        for part in &line.parts {
            match part {
                Part::Text(text) => out.write_all(text)?,
                Part::Rank(it) => write!(out, "{}", own(*it))?,
                Part::Size => write!(out, "{}", place.size)?,
                Part::Nodes => {
                    write!(out, "{}", if place.spread { place.size } else { place.size.div_ceil(GPUS) })?;
                }
                Part::LocalRanks => write!(out, "{}", if place.spread { 1 } else { place.size.min(GPUS) })?,
                Part::LocalRank => write!(out, "{}", if place.spread { 0 } else { place.index % GPUS })?,
                Part::Address(it) => {
                    write!(out, "{:x}", it + rank as u64 * 0x1000 + communicator as u64 * 0x5_0000_0000)?;
                }
                Part::Hash => write!(out, "{:x}", place.hash)?,
                Part::Ring => {
                    let mut text = String::new();
                    for index in 0..place.size {
                        // NCCL builds the list in 1024 bytes.
                        if text.len() > 1010 {
                            text.push_str(" ...");
                            break;
                        }
                        text.push_str(&format!(" {index:2}"));
                    }
                    out.write_all(text.as_bytes())?;
                }
            }
        }
        out.write_all(b"\n")
    }
}

/// Ring and tree connections, as recorded on p5 and g6e: P2P inside a node, Libfabric between nodes.
fn connection(
    out: &mut impl Write,
    place: &Place,
    line: usize,
    thread: &str,
    gpu: usize,
) -> std::io::Result<()> {
    write!(out, "{thread} [{gpu}] NCCL INFO ")?;
    let (index, size) = (place.index, place.size);
    let (next, previous) = ((index + 1) % size, (index + size - 1) % size);
    let local = |a: usize, b: usize| !place.spread && a / GPUS == b / GPUS;
    let device = |it: usize| if place.spread { gpu } else { it % GPUS };
    let (trees, line) = (line > 2 * CHANNELS, line % (2 * CHANNELS + 1));
    let (channel, back) = (line / 2, line % 2 == 1);
    if line == 2 * CHANNELS {
        return out.write_all(if trees {
            b"Connected all trees\n"
        } else {
            b"Connected all rings, use ring PXN 0 GDR 1\n"
        });
    }
    let (from, to) = if back { (previous, index) } else { (index, next) };
    if local(from, to) {
        // The sender alone writes it, in either direction of a tree.
        let to = if back { previous } else { next };
        return writeln!(
            out,
            "Channel {channel:02}/0 : {index}[{}] -> {to}[{}] via P2P/CUMEM",
            device(index),
            device(to)
        );
    }
    let direction = if back { "receive" } else { "send" };
    writeln!(
        out,
        "Channel {channel:02}/0 : {from}[{}] -> {to}[{}] [{direction}] via NET/Libfabric/{}/GDRDMA",
        device(from),
        device(to),
        channel % GPUS
    )
}

struct Recording {
    ranks: Vec<Vec<Line>>,
}

struct Line {
    /// 0 for the main thread, otherwise the thread's number among those of its process.
    tid: usize,
    /// Written before the first communicator, not again.
    once: bool,
    parts: Vec<Part>,
}

enum Part {
    Text(Vec<u8>),
    Rank(usize),
    Size,
    Nodes,
    LocalRanks,
    LocalRank,
    Address(u64),
    Hash,
    Ring,
}

impl Recording {
    fn read(path: &Path) -> std::io::Result<Self> {
        let mut text = Vec::new();
        if path.is_dir() {
            let mut files: Vec<PathBuf> =
                fs::read_dir(path)?.filter_map(|it| Some(it.ok()?.path())).collect();
            files.retain(|it| it.extension().is_some_and(|it| it == "log"));
            files.sort();
            for file in files {
                text.extend_from_slice(&fs::read(file)?);
            }
        } else {
            flate2::read::MultiGzDecoder::new(File::open(path)?).read_to_end(&mut text)?;
        }
        let mut ranks: Vec<(String, usize, Vec<usize>, Vec<Line>)> = Vec::new();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((before, message)) = line.split_once(" NCCL INFO ") else { continue };
            let Some((process, tid)) = before.split(' ').next().and_then(|it| it.rsplit_once(':')) else {
                continue;
            };
            let place = ranks.iter().position(|it| it.0 == process).unwrap_or_else(|| {
                ranks.push((process.to_owned(), usize::MAX, Vec::new(), Vec::new()));
                ranks.len() - 1
            });
            let (_, rank, threads, lines) = &mut ranks[place];
            if *rank == usize::MAX && message.ends_with("Init START") {
                *rank = message
                    .split_once(" rank ")
                    .and_then(|it| it.1.split(' ').next()?.parse().ok())
                    .unwrap_or(0);
            }
            let tid = if process.ends_with(&format!(":{tid}")) {
                0
            } else {
                let tid = tid.parse().unwrap_or(0);
                threads.iter().position(|it| *it == tid).unwrap_or_else(|| {
                    threads.push(tid);
                    threads.len() - 1
                }) + 1
            };
            let again =
                ["Using network ", "Assigned NET", "ncclCommInit"].iter().any(|it| message.starts_with(it));
            lines.push(Line { tid, once: *rank == usize::MAX && !again, parts: parts(message) });
        }
        ranks.retain(|it| it.1 != usize::MAX);
        ranks.sort_by_key(|it| it.1);
        Ok(Self { ranks: ranks.into_iter().map(|it| it.3).collect() })
    }
}

/// Takes the numbers that differ between ranks out of a message.
fn parts(message: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let text = |parts: &mut Vec<Part>, it: &str| parts.push(Part::Text(it.as_bytes().to_vec()));
    let ring = message.starts_with("Channel ") && !message.contains(" -> ") && message.contains(" : ");
    if let (true, Some((channel, _))) = (ring, message.split_once(" : ")) {
        text(&mut parts, channel);
        text(&mut parts, " : ");
        parts.push(Part::Ring);
        return parts;
    }
    let graph = ["Ring ", "Tree ", "Trees ", "Channel "].iter().any(|it| message.starts_with(it));
    let (mut rest, mut before) = (message, String::new());
    let mut body = !message.contains(" : ");
    while let Some(at) = rest.find(|it: char| it.is_ascii_digit()) {
        let hex = rest[at..].starts_with("0x");
        let (left, number) = rest.split_at(if hex { at + 2 } else { at });
        before.push_str(left);
        text(&mut parts, left);
        body |= left.contains(" : ");
        let digits = number.find(|it: char| !if hex { it.is_ascii_hexdigit() } else { it.is_ascii_digit() });
        let (number, more) = number.split_at(digits.unwrap_or(number.len()));
        before.push_str(number);
        rest = more;
        let in_graph = graph && body && !left.ends_with(['[', '-', '(', '/'])
            || graph && left.ends_with("->")
            || graph && message.starts_with("Tree") && left.ends_with('/');
        let via = before.contains(" via ");
        parts.push(if before.ends_with(&format!("commId 0x{number}")) {
            Part::Hash
        } else if hex {
            Part::Address(u64::from_str_radix(number, 16).unwrap_or(0))
        } else if before.ends_with(&format!(" nranks {number}"))
            || before.ends_with(&format!(" nRanks {number}"))
        {
            Part::Size
        } else if before.ends_with(&format!(" nNodes {number}")) {
            Part::Nodes
        } else if before.ends_with(&format!(" localRanks {number}")) {
            Part::LocalRanks
        } else if before.ends_with(&format!(" localRank {number}")) {
            Part::LocalRank
        } else if before.ends_with(&format!("rank {number}")) || in_graph && !via {
            Part::Rank(number.parse().unwrap_or(0))
        } else {
            Part::Text(number.as_bytes().to_vec())
        });
    }
    text(&mut parts, rest);
    parts
}
