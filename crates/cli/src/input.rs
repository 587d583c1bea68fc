//! Finds, opens and reads the inputs: files, folders, archives, pipes, compressed or not.
//!
//! Files are cut into regions; several threads turn regions into facts, and
//! the caller's thread joins the facts in the order of the input. A file in an
//! archive is one region, and one thread reads all of an archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use answer::packed::{self, decompress};
use answer::read::{self, Joined, Place, ReadRegion, is_beside_the_point};
use answer::{Files, Inputs, Source, Unreadable, archive};
use evidence::encoding::{self, Peeked};

use crate::mounts::Kernel;
use crate::progress::{Counted, Progress};

/// Regular files of this machine.
#[derive(Debug)]
pub(crate) struct Disk;

impl Files for Disk {
    fn open(&self, name: &str) -> io::Result<Box<dyn Source + '_>> {
        // Reading from a pipe or a device can wait for ever.
        if !std::fs::metadata(name)?.is_file() {
            return Err(io::Error::other("is not a regular file"));
        }
        Ok(Box::new(File::open(name)?))
    }
}

/// Reads everything under `paths`; `-` is standard input.
pub(crate) fn read(paths: &[PathBuf]) -> Inputs {
    let Listing { files, mut unreadable, left_out, .. } = Listing::under(paths);
    let _line = Progress::show();
    let workers = thread::available_parallelism().map_or(1, usize::from).min(16);
    let joined = read_files(&files, workers, &mut unreadable);
    joined.finish(unreadable, left_out)
}

/// The files that [`read()`] reads.
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
    kernel: Kernel,
    /// Files of the folder that is being listed.
    listed: Vec<Identity>,
}

/// More files than this under one folder are not the logs of one job: that has some for each rank.
const MOST_FILES: usize = 100_000;

/// What two names of one file have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
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
        Self::of_at_most(MOST_FILES, paths)
    }

    fn of_at_most(most: usize, paths: &[PathBuf]) -> Self {
        let mut all = Self { kernel: Kernel::mounted(), ..Self::default() };
        for path in paths {
            if path.as_os_str() == "-" {
                all.files.push(path.clone());
                continue;
            }
            let (before, notes) = (all.files.len(), all.left_out.len());
            all.listed.clear();
            all.walk(path, true, most);
            if all.listed.len() > most {
                all.files.truncate(before);
                // A folder below it may be named too.
                for it in std::mem::take(&mut all.listed) {
                    all.known.remove(&it);
                }
                all.left_out.truncate(notes);
                all.unreadable.push(Unreadable {
                    name: path.display().to_string(),
                    reason: format!("has more than {most} files: give the folder of one job"),
                });
            }
        }
        all
    }

    /// All files under `path`, sorted by name. A file that the user `named` is read whatever it is.
    fn walk(&mut self, path: &Path, named: bool, most: usize) {
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
            if known.as_ref().is_none_or(|it| self.known.insert(it.clone())) {
                self.files.push(path.to_path_buf());
                self.listed.extend(known);
            }
            return;
        }
        if let Some(kind) = self.kernel.holds(&metadata) {
            return self
                .left_out
                .push(because(&format!("is on a file system of the kernel ({kind}): left out")));
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
                Ok(entry) if is_beside_the_point(&entry.file_name().to_string_lossy()) => {}
                Ok(entry) => paths.push(entry.path()),
                Err(error) => self.unreadable.push(because(&error)),
            }
        }
        paths.sort();
        for path in paths {
            if self.listed.len() > most {
                return;
            }
            self.walk(&path, false, most);
        }
    }
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
        if !is_beside_the_point(&it.name) {
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
    read::each_member(&mut File::open(path).ok()?, visit)
}

/// Programs, core dumps, dumps of Flight Recorder and the state of a Trainer are known by their beginning, so they are not cut. UTF-16 looks like them.
fn begins_binary(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|it| it.take(4096).read_to_end(&mut beginning));
    let whole = |it: &[u8]| {
        evidence::is_binary(it)
            || evidence::recorder::is_whole(it)
            || evidence::plain::is_trainer_state(it)
            || it.first() == Some(&0)
    };
    read.is_ok() && whole(&beginning)
}

pub(crate) fn is_compressed(path: &Path) -> bool {
    let mut magic = [0; packed::MAGIC];
    File::open(path).and_then(|mut it| it.read_exact(&mut magic)).is_ok() && packed::is_compressed(&magic)
}

type Outcome = (usize, io::Result<ReadRegion>);

fn read_files(files: &[PathBuf], workers: usize, unreadable: &mut Vec<Unreadable>) -> Joined {
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
        join(&regions, &outcomes)
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
        if is_beside_the_point(&it.name) || number >= first + mine {
            return;
        }
        let content = &mut Counted(it.content);
        let facts = read::member(archive::Member { name: it.name, content }, number);
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
    let place = match region.start {
        0 if region.path.as_os_str() == "-" => Place::Piped,
        0 => Place::Beginning,
        _ => Place::Inside,
    };
    let mut read = read::region(Box::new(Counted(source)), place, number)?;
    for it in &mut read.kept.landmarks {
        it.byte += start;
    }
    Ok(read)
}

fn join(regions: &[Region<'_>], outcomes: &Receiver<Outcome>) -> Joined {
    let mut joined = Joined::default();
    let mut early = BTreeMap::new();
    for (number, region) in regions.iter().enumerate() {
        while !early.contains_key(&number) {
            let Ok((number, outcome)) = outcomes.recv() else { break };
            early.insert(number, outcome);
        }
        let Some(outcome) = early.remove(&number) else { break };
        joined.add(&region.name(), region.start == 0, outcome);
    }
    joined
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
        if read::is_archive(source.head()) {
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

#[cfg(test)]
mod tests {
    use super::Listing;

    #[test]
    fn a_folder_of_too_many_files_is_not_read() {
        let folder = testbed::Folder::new("input-many");
        for number in 0..5 {
            std::fs::write(folder.path().join(format!("{number}.log")), "x\n").unwrap();
        }
        let paths = [folder.path().to_path_buf()];
        assert_eq!(Listing::of_at_most(5, &paths).files.len(), 5);
        let it = Listing::of_at_most(4, &paths);
        assert!(it.files.is_empty() && it.unreadable[0].reason.contains("more than 4 files"), "{it:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_of_the_kernel_are_left_out_of_folders() {
        let it = Listing::under(&["/proc/self".into()]);
        assert!(it.files.is_empty() && it.left_out[0].reason.contains("(proc)"), "{it:?}");
        // A file that is named is read.
        assert_eq!(Listing::under(&["/proc/self/status".into()]).files.len(), 1);
    }
}
