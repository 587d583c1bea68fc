//! Places plumb on hosts: a connection to each that stays open, keeps a folder there, and removes it when it ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::connection::{Connection, allow_many_files, serve};
use super::script::{self, Shell};
use super::tasks::{Purpose, Transport};
use crate::rendezvous::random_token;
use crate::{Clock, Error, Host, Obstacle, ObstacleKind, Place, Placed, Stop};

/// How long the copy of plumb may take.
const COPY: Duration = Duration::from_secs(300);

/// The program that is placed.
pub(crate) struct Binary {
    pub(crate) path: OsString,
    bytes: Arc<[u8]>,
    /// As `cksum` prints it.
    sum: String,
    /// It loads no libraries: neither NCCL nor NVML.
    is_static: bool,
}

impl Binary {
    /// This program itself.
    pub(crate) fn own() -> Result<Self, Error> {
        let path =
            std::env::current_exe().map_err(|error| Error::start("cannot find this program", error))?;
        Self::read(path.into_os_string())
    }

    pub(crate) fn read(path: OsString) -> Result<Self, Error> {
        let bytes = std::fs::read(&path)
            .map_err(|error| Error::start(&format!("cannot read {}", path.display()), error))?;
        let sum = format!("{} {}", cksum(&bytes), bytes.len());
        let is_static = is_static(&bytes);
        Ok(Self { path, bytes: Arc::from(bytes), sum, is_static })
    }
}

/// Whether this is an ELF program of 64 bits, least significant byte first, that names no dynamic loader (no program header of the type
/// `PT_INTERP`: System V ABI, chapter 5).
fn is_static(bytes: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let part = bytes.get(at..at.checked_add(length)?)?;
        Some(part.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    };
    let headers = || {
        let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        let at = |it: u64| usize::try_from(first.checked_add(it.checked_mul(size)?)?).ok();
        (0..count).map(|it| number(at(it)?, 4)).collect::<Option<Vec<u64>>>()
    };
    bytes.starts_with(b"\x7fELF\x02\x01") && headers().is_some_and(|it| !it.contains(&PT_INTERP))
}

/// The checksum of POSIX `cksum`: CRC-32 with the polynomial 0x04C11DB7, most significant bit first, over the bytes and
/// then over their number, least significant byte first (POSIX.1-2017, utility `cksum`).
fn cksum(bytes: &[u8]) -> u32 {
    let mut table = [0_u32; 256];
    for (index, entry) in (0_u32..).zip(table.iter_mut()) {
        *entry = (0..8).fold(index << 24, |crc, _| (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 });
    }
    let step = |crc: u32, byte: u8| {
        let [top, ..] = crc.to_be_bytes();
        (crc << 8) ^ table[usize::from(top ^ byte)]
    };
    let mut crc = bytes.iter().fold(0, |crc, byte| step(crc, *byte));
    let mut length = bytes.len() as u64;
    while length > 0 {
        let [low, ..] = length.to_le_bytes();
        crc = step(crc, low);
        length >>= 8;
    }
    !crc
}

/// The open connections.
#[derive(Default)]
pub(crate) struct Keepers {
    all: BTreeMap<Host, Keeper>,
}

struct Keeper {
    connection: Connection,
    /// Lines of its output that were read.
    read: usize,
    place: Place,
    /// When the host was asked for its clock.
    asked: Option<(Instant, SystemTime)>,
    state: State,
}

enum State {
    Login,
    /// It makes a folder at the place of this number.
    Folder(usize, Option<Obstacle>),
    /// It takes the file.
    Copy(usize, Option<Obstacle>),
    Ready,
    Failed(Obstacle),
}

impl Keepers {
    /// The path of plumb on a host.
    pub(crate) fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        let Some(keeper) = self.all.get_mut(host) else {
            return Err(Obstacle::new(ObstacleKind::Other, "plumb was not placed there"));
        };
        match &keeper.state {
            State::Ready if !keeper.connection.has_exited() => Ok(keeper.place.path.clone().into()),
            State::Ready => Err(Obstacle::new(
                ObstacleKind::Other,
                &format!("the connection was lost before: {}", keeper.last_words().unwrap_or_default()),
            )),
            State::Failed(obstacle) => Err(obstacle.clone()),
            State::Login | State::Folder(..) | State::Copy(..) => {
                Err(Obstacle::new(ObstacleKind::Other, "plumb is not placed there yet"))
            }
        }
    }

    /// The same, also while it is not used.
    pub(crate) fn path(&self, host: &Host) -> Option<OsString> {
        self.all
            .get(host)
            .filter(|it| matches!(it.state, State::Ready))
            .map(|it| it.place.path.clone().into())
    }

    /// Whether its connection is open.
    pub(crate) fn is_open(&mut self, host: &Host) -> bool {
        self.all
            .get_mut(host)
            .is_some_and(|it| matches!(it.state, State::Ready) && !it.connection.has_exited())
    }

    /// The last line on the standard error of a connection that has ended.
    pub(crate) fn last_words(&mut self, host: &Host) -> Option<String> {
        let keeper = self.all.get_mut(host)?;
        if keeper.connection.has_exited() { keeper.last_words() } else { None }
    }

    pub(crate) fn connections(&mut self) -> Vec<&mut Connection> {
        self.all
            .values_mut()
            .filter(|it| matches!(it.state, State::Ready))
            .map(|it| &mut it.connection)
            .collect()
    }

    /// Removes all folders. Returns the hosts that did not confirm it.
    pub(crate) fn clean(&mut self) -> Vec<Host> {
        let until = Instant::now() + Duration::from_secs(8);
        let mut left = Vec::new();
        self.all.retain(|host, it| {
            let copied = it.place.copied;
            if matches!(it.state, State::Failed(_)) {
                return false;
            }
            if it.connection.has_exited() {
                // The folder is removed by the host when it notices; nobody can confirm it.
                left.extend(copied.then(|| host.clone()));
                return false;
            }
            it.connection.send(Arc::from(&b"bye\n"[..]));
            true
        });
        while !self.all.is_empty() && Instant::now() < until {
            let mut all: Vec<&mut Connection> = self.all.values_mut().map(|it| &mut it.connection).collect();
            serve(&mut all, Duration::from_millis(50));
            self.all.retain(|host, it| {
                let exited = it.connection.has_exited();
                if exited {
                    // What it said between the look at its output and its end.
                    serve(&mut [&mut it.connection], Duration::ZERO);
                }
                let gone = it.connection.out.head().ends_with(b"\ngone\n");
                if exited && !gone && it.place.copied {
                    left.push(host.clone());
                }
                !exited
            });
        }
        for (host, it) in std::mem::take(&mut self.all) {
            let gone = it.connection.out.head().ends_with(b"\ngone\n");
            left.extend((it.place.copied && !gone).then_some(host));
        }
        left.sort();
        left
    }
}

impl Keeper {
    fn last_words(&self) -> Option<String> {
        let bytes = self.connection.err.last(2048);
        let text = String::from_utf8_lossy(&bytes);
        text.lines().rev().map(str::trim).find(|it| !it.is_empty()).map(str::to_owned)
    }

    /// The next complete line that the shell answered.
    fn line(&mut self) -> Option<String> {
        let rest = self.connection.out.head().get(self.read..).unwrap_or_default();
        let end = rest.iter().position(|it| *it == b'\n')?;
        let line = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned();
        self.read += end + 1;
        Some(line)
    }

    fn order(&mut self, order: &str) {
        self.connection.send(Arc::from(format!("{order}\n").into_bytes()));
    }

    fn take(&mut self, line: &str, binary: &Binary) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        let some = || Some(rest.to_owned()).filter(|it| !it.is_empty());
        match (word, &mut self.state) {
            ("hostname", _) => rest.clone_into(&mut self.place.hostname),
            // CLIENT PORT SERVER PORT
            ("connection", _) => self.place.address = rest.split(' ').nth(2).map(str::to_owned),
            ("installed", _) => self.place.installed = some(),
            ("prefer", _) => rest.clone_into(&mut self.place.path),
            ("same", _) => self.place.path = binary.path.to_string_lossy().into_owned(),
            ("clock", _) => {
                if let (Some((asked, at)), Ok(theirs)) = (self.asked, rest.parse::<f64>()) {
                    let within = asked.elapsed().as_secs_f64() / 2.0;
                    let ours = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |it| it.as_secs_f64());
                    self.place.clock = Some(Clock { ahead: theirs - (ours + within), within });
                }
                if self.place.path.is_empty() {
                    self.state = State::Folder(0, None);
                    self.order("folder 0");
                } else {
                    self.state = State::Ready;
                }
            }
            ("ready", State::Login) => {
                self.asked = Some((Instant::now(), SystemTime::now()));
                self.order("clock");
            }
            ("folder", State::Folder(number, why)) => {
                let state = State::Copy(*number, why.take());
                self.state = state;
                self.order(&format!("copy {}", binary.bytes.len()));
                self.connection.send(Arc::clone(&binary.bytes));
            }
            ("placed", State::Copy(..)) => {
                rest.clone_into(&mut self.place.path);
                self.place.copied = true;
                self.state = State::Ready;
            }
            ("refused", State::Folder(number, why) | State::Copy(number, why)) => {
                let (number, mut why) = (*number, why.take());
                if rest == "last" {
                    let none = || Obstacle::new(ObstacleKind::NoFolder, "");
                    self.state = State::Failed(why.unwrap_or_else(none));
                    return;
                }
                if rest != "unset" {
                    let obstacle = refusal(rest);
                    // The most telling reason: a full disk, then the first.
                    if why.is_none() || obstacle.kind == ObstacleKind::DiskFull {
                        why = Some(obstacle);
                    }
                }
                self.state = State::Folder(number + 1, why);
                self.order(&format!("folder {}", number + 1));
            }
            _ => {}
        }
    }
}

fn refusal(why: &str) -> Obstacle {
    let full = ["No space left", "quota exceeded", "Quota exceeded"].iter().any(|it| why.contains(it));
    let format = ["xec format error", "cannot execute", "GLIBC_", "required file not found", ": not found"];
    let kind = if full {
        ObstacleKind::DiskFull
    } else if why.starts_with("cannot run") && format.iter().any(|it| why.contains(it)) {
        ObstacleKind::NoProgram
    } else {
        ObstacleKind::NoFolder
    };
    Obstacle::new(kind, why)
}

/// What the shell of a connection is started with. Marks all have one length.
pub(crate) fn bootstrap(binary: &Binary) -> String {
    let mark = format!("plumb-{}", random_token().unwrap_or_default());
    Shell { mark: &mark, script: script(binary, &mark).unwrap_or_default() }.bootstrap()
}

/// What the shell of a connection reads.
pub(crate) fn script(binary: &Binary, mark: &str) -> Result<Vec<u8>, Error> {
    script::keeper(&binary.path, &binary.sum, binary.is_static, mark)
}

/// Opens a connection to every host, and reports each when plumb is there or cannot be.
pub(crate) fn place(
    transport: &dyn Transport,
    keepers: &mut Keepers,
    binary: &Binary,
    hosts: &[Host],
    stop: &Stop,
    each: &mut dyn FnMut(&Placed),
) -> Result<(), Error> {
    allow_many_files();
    let mark = format!("plumb-{}", random_token()?);
    let script = script(binary, &mark)?;
    let mut waiting: std::collections::VecDeque<&Host> = hosts.iter().collect();
    let mut under_way: BTreeMap<Host, Keeper> = BTreeMap::new();
    while !waiting.is_empty() || !under_way.is_empty() {
        if stop.is_set() {
            let cancelled = || Err(Obstacle::new(ObstacleKind::Other, "interrupted"));
            let left = under_way.keys().cloned().chain(waiting.drain(..).cloned());
            left.for_each(|host| each(&Placed { host, outcome: cancelled() }));
            for (host, mut keeper) in std::mem::take(&mut under_way) {
                // The host removes its folder when the connection ends.
                keeper.connection.close_input();
                keeper.state = State::Failed(Obstacle::new(ObstacleKind::Other, "interrupted"));
                keepers.all.insert(host, keeper);
            }
            return Ok(());
        }
        while under_way.len() < transport.parallel().max(1) {
            let Some(host) = waiting.pop_front() else { break };
            if keepers.is_open(host) {
                if let Some(it) = keepers.all.get(host) {
                    each(&Placed { host: host.clone(), outcome: Ok(it.place.clone()) });
                }
                continue;
            }
            keepers.all.remove(host);
            let shell = Shell { mark: &mark, script: script.clone() };
            match transport.open(host, shell, Purpose::Keep) {
                Ok(connection) => {
                    let keeper = Keeper {
                        connection,
                        read: 0,
                        place: Place::unknown(),
                        asked: None,
                        state: State::Login,
                    };
                    under_way.insert(host.clone(), keeper);
                }
                Err(obstacle) => each(&Placed { host: host.clone(), outcome: Err(obstacle) }),
            }
        }
        let mut all: Vec<&mut Connection> = under_way.values_mut().map(|it| &mut it.connection).collect();
        serve(&mut all, Duration::from_millis(50));
        for host in under_way.keys().cloned().collect::<Vec<_>>() {
            let Some(keeper) = under_way.get_mut(&host) else { continue };
            while let Some(line) = keeper.line() {
                keeper.take(&line, binary);
            }
            look(keeper, transport);
            let outcome = match &keeper.state {
                State::Ready => Ok(keeper.place.clone()),
                State::Failed(obstacle) => Err(obstacle.clone()),
                State::Login | State::Folder(..) | State::Copy(..) => continue,
            };
            each(&Placed { host: host.clone(), outcome });
            if let Some(mut keeper) = under_way.remove(&host) {
                if matches!(keeper.state, State::Failed(_)) {
                    keeper.connection.close_input();
                }
                keepers.all.insert(host, keeper);
            }
        }
    }
    Ok(())
}

/// Notices a connection that has ended or takes too long.
fn look(keeper: &mut Keeper, transport: &dyn Transport) {
    if matches!(keeper.state, State::Ready | State::Failed(_)) {
        return;
    }
    let connection = &mut keeper.connection;
    if let Some(status) = connection.exit() {
        let obstacle = if connection.begun.is_some() {
            Obstacle::new(
                ObstacleKind::Other,
                &format!("connection lost {}", keeper.last_words().unwrap_or_default()),
            )
        } else {
            let printed = [connection.err.before(), b"\n", connection.out.before()].concat();
            transport.obstacle(status.code, &String::from_utf8_lossy(&printed))
        };
        keeper.state = State::Failed(obstacle);
        return;
    }
    let late = match (connection.begun, &keeper.state) {
        (None, _) => (connection.started.elapsed() > transport.login())
            .then(|| format!("no answer to the login in {} s", transport.login().as_secs())),
        (Some(begun), _) => {
            (begun.elapsed() > COPY).then(|| format!("plumb could not be copied in {} s", COPY.as_secs()))
        }
    };
    if let Some(late) = late {
        connection.kill();
        keeper.state = State::Failed(Obstacle::new(ObstacleKind::NoAnswer, &late));
    }
}

impl Place {
    fn unknown() -> Self {
        Self {
            path: String::new(),
            copied: false,
            installed: None,
            hostname: String::new(),
            address: None,
            clock: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_cksum() {
        // The values that cksum of coreutils 9.1 prints.
        assert_eq!(cksum(b""), 4_294_967_295);
        assert_eq!(cksum(b"123456789"), 930_766_865);
    }

    #[test]
    fn static_programs() {
        // A header of 64 bytes and two program headers of 56.
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (elf[32], elf[54], elf[56], elf[64]) = (64, 56, 2, 1);
        assert!(is_static(&elf));
        elf[64 + 56] = 3;
        assert!(!is_static(&elf));
        elf[56] = 3;
        assert!(!is_static(&elf), "a header outside of the file");
        assert!(!is_static(b"#!/bin/sh\n") && !is_static(b""));
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("a program");
        assert_eq!(is_static(&own), cfg!(target_feature = "crt-static"));
    }

    #[test]
    fn refusals() {
        let kind = |why: &str| refusal(why).kind;
        assert_eq!(kind("cat: write error: No space left on device"), ObstacleKind::DiskFull);
        assert_eq!(kind("mktemp: failed to create directory: Permission denied"), ObstacleKind::NoFolder);
        assert_eq!(kind("cannot run: sh: 1: /tmp/plumb: Permission denied"), ObstacleKind::NoFolder);
        assert_eq!(kind("cannot run: /tmp/plumb: Exec format error"), ObstacleKind::NoProgram);
    }
}
