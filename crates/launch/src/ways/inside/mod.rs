//! The processes of a launcher that has started this one: mpirun, srun, torchrun, an Indexed Job.
//!
//! Rank 0 drives. Every other rank connects to it, proves the job's token and waits for orders. An order is a shell on the
//! follower's host whose standard input, output and error are new connections to rank 0, under the same supervision as
//! with ssh: it ends when its connection does.

mod follower;
mod wire;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{shell_words, shown_under_shell};
use crate::rendezvous::own_address;
use crate::supervise::connection::Connection;
use crate::supervise::script::Shell;
use crate::supervise::tasks::{self, Purpose, Transport};
use crate::{
    Bootstrap, Clock, Ended, Error, Host, Obstacle, ObstacleKind, Opened, Place, Placed, RankIdentity,
    Request, Shown, Stop, Way,
};

/// How long a follower may take to open a shell.
const OPEN: Duration = Duration::from_secs(15);

/// What a process of a launcher is to do.
pub enum Joined {
    /// It is rank 0, and drives.
    Driver(Inside),
    /// It was another rank, and everything is over.
    Followed,
}

/// Tasks on the hosts of the launcher that started this process. One process per host executes them; any others of the
/// host wait for the end.
///
/// All processes run as one user in one job, so the same `plumb` is used on every host: nothing is copied.
pub struct Inside {
    listener: TcpListener,
    token: String,
    hosts: Vec<Member>,
    /// Ranks that take no orders, because another of their host does.
    idle: Vec<TcpStream>,
    missing: Vec<usize>,
    /// Shells that were opened and wait for their other half.
    halves: RefCell<BTreeMap<u64, Halves>>,
    next: std::cell::Cell<u64>,
}

struct Member {
    host: Host,
    place: Place,
    version: String,
    /// `None`: this process itself.
    control: Option<TcpStream>,
}

#[derive(Default)]
struct Halves {
    output: Option<TcpStream>,
    errors: Option<TcpStream>,
}

impl Inside {
    /// Joins the processes of the launcher. Rank 0 returns when all others have connected, or when this long has passed;
    /// every other rank returns when rank 0 is done.
    pub fn join(identity: RankIdentity, timeout: Duration) -> Result<Joined, Error> {
        // A launcher may have bound this process to a core; what it starts uses all that the job has.
        let mut all = rustix::thread::CpuSet::new();
        (0..rustix::thread::CpuSet::MAX_CPU).for_each(|it| all.set(it));
        let _ = rustix::thread::sched_setaffinity(None, &all);
        let (rank, size, one_host) = (identity.rank, identity.size, identity.is_one_host());
        let bootstrap = identity.rendezvous::<TcpListener, Error>(timeout, |listen| {
            let failed = |error: std::io::Error| Error::start("cannot listen for the other ranks", error);
            let known = listen.address.or_else(|| reachable_address(one_host));
            let address = known.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
            let listener = TcpListener::bind((address, listen.port)).map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok(Opened { listener, address })
        })?;
        match bootstrap {
            Bootstrap::Connect(endpoint) => {
                follower::follow(&endpoint, rank, timeout)?;
                Ok(Joined::Followed)
            }
            Bootstrap::Listen { listener, token } => {
                Self::gather(listener, token, size, timeout).map(Joined::Driver)
            }
        }
    }

    fn gather(listener: TcpListener, token: String, size: usize, timeout: Duration) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::start("cannot wait for the other ranks", error);
        listener.set_nonblocking(true).map_err(failed)?;
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let path = std::env::current_exe().map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?.ip();
        let own = (!own.is_unspecified()).then(|| own.to_string());
        let mut members = BTreeMap::from([(
            0,
            member(hostname.trim(), env!("CARGO_PKG_VERSION"), &path.to_string_lossy(), own, None)?,
        )]);
        let until = Instant::now() + timeout;
        while members.len() < size && Instant::now() < until {
            let Some(mut stream) = accepted(&listener, &token, Duration::from_millis(100)) else { continue };
            let Ok(hello) = wire::line(&mut stream) else { continue };
            let words: Vec<&str> = hello.splitn(5, ' ').collect();
            if let ["hello", rank, hostname, version, path] = words.as_slice()
                && let Ok(rank) = rank.parse::<usize>()
                && (1..size).contains(&rank)
            {
                let address = stream.peer_addr().ok().map(|it| it.ip().to_canonical().to_string());
                members.insert(rank, member(hostname, version, path, address, Some(stream))?);
            }
        }
        let missing = (1..size).filter(|it| !members.contains_key(it)).collect();
        let (mut hosts, mut idle): (Vec<Member>, Vec<TcpStream>) = (Vec::new(), Vec::new());
        for member in members.into_values() {
            if hosts.iter().any(|it| it.host == member.host) {
                idle.extend(member.control);
            } else {
                hosts.push(member);
            }
        }
        Ok(Self {
            listener,
            token,
            hosts,
            idle,
            missing,
            halves: RefCell::default(),
            next: std::cell::Cell::new(0),
        })
    }

    /// The hosts of the job, in the order of their first ranks.
    pub fn hosts(&self) -> Vec<Host> {
        self.hosts.iter().map(|it| it.host.clone()).collect()
    }

    /// Ranks that did not connect in time.
    pub fn missing(&self) -> &[usize] {
        &self.missing
    }

    fn member(&self, host: &Host) -> Result<&Member, Obstacle> {
        let unknown = || Obstacle::new(ObstacleKind::NameUnknown, "no process of the launcher runs there");
        self.hosts.iter().find(|it| it.host == *host).ok_or_else(unknown)
    }

    /// Both connections of the shell with this number.
    fn streams(&self, number: u64) -> Option<(TcpStream, TcpStream)> {
        let until = Instant::now() + OPEN;
        let mut all = self.halves.borrow_mut();
        loop {
            if let Some(Halves { output: Some(_), errors: Some(_) }) = all.get(&number)
                && let Some(Halves { output: Some(output), errors: Some(errors) }) = all.remove(&number)
            {
                return Some((output, errors));
            }
            if Instant::now() >= until {
                return None;
            }
            let Some(mut stream) = accepted(&self.listener, &self.token, Duration::from_millis(100)) else {
                continue;
            };
            let Ok(line) = wire::line(&mut stream) else { continue };
            match line.split_once(' ').and_then(|(word, number)| Some((word, number.parse::<u64>().ok()?))) {
                Some(("output", number)) => all.entry(number).or_default().output = Some(stream),
                Some(("errors", number)) => all.entry(number).or_default().errors = Some(stream),
                _ => {}
            }
        }
    }
}

fn member(
    hostname: &str,
    version: &str,
    path: &str,
    address: Option<String>,
    control: Option<TcpStream>,
) -> Result<Member, Error> {
    let clock = control.is_none().then_some(Clock { ahead: 0.0, within: 0.0 });
    let place = Place {
        path: path.to_owned(),
        copied: false,
        installed: Some(format!("plumb {version}")),
        hostname: hostname.to_owned(),
        address,
        clock,
    };
    Ok(Member { host: Host::parse(hostname)?, place, version: version.to_owned(), control })
}

/// The next connection that proves the token.
fn accepted(listener: &TcpListener, token: &str, wait: Duration) -> Option<TcpStream> {
    let until = Instant::now() + wait;
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                let proved = stream.set_nonblocking(false).and_then(|()| wire::accept(&mut stream, token));
                return proved.is_ok().then_some(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return None,
        }
    }
}

/// An address of this host that others reach: of its own name, or of the default route.
fn reachable_address(one_host: bool) -> Option<IpAddr> {
    if one_host {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    own_address(name.trim(), false).or_else(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // Nothing is sent: the kernel chooses the address. 192.0.2.0/24 is for documentation (RFC 5737).
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        socket.local_addr().ok().map(|it| it.ip())
    })
}

impl Way for Inside {
    fn name(&self) -> &'static str {
        "the launcher"
    }

    fn place(&mut self, hosts: &[Host], _stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        for host in hosts {
            let outcome = self.member(host).and_then(|it| {
                let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &it.version);
                if theirs == ours {
                    return Ok(it.place.clone());
                }
                let why = format!("plumb {theirs} runs there, plumb {ours} here");
                Err(Obstacle::new(ObstacleKind::NoProgram, &why))
            });
            each(&Placed { host: host.clone(), outcome });
        }
        Ok(())
    }

    fn shown_placing(&mut self, _hosts: &[Host]) -> Vec<Shown> {
        Vec::new()
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        let shown = |task: &crate::Task| {
            let path =
                self.member(&task.host).map_or_else(|_| "plumb".to_owned(), |it| it.place.path.clone());
            shown_under_shell(task, path.as_ref(), request.limit)
        };
        request.tasks.iter().map(shown).collect()
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    fn clean(&mut self) -> Vec<Host> {
        let all = self.hosts.iter_mut().filter_map(|it| it.control.take()).chain(self.idle.drain(..));
        for mut control in all {
            // One that is gone needs no goodbye.
            let _ = control.write_all(b"bye\n");
        }
        Vec::new()
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.clean();
    }
}

impl Transport for Inside {
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        self.member(host).map(|it| it.place.path.clone().into())
    }

    fn open(&self, host: &Host, shell: Shell<'_>, _purpose: Purpose) -> Result<Connection, Obstacle> {
        let member = self.member(host)?;
        let Some(mut control) = member.control.as_ref() else {
            let [program, arguments @ ..] = shell_words(&shell.bootstrap());
            let mut command = Command::new(program);
            command.args(arguments);
            return tasks::process(command, shell);
        };
        let number = self.next.get();
        self.next.set(number + 1);
        let lost = |why: &str| Obstacle::new(ObstacleKind::NoAnswer, why);
        control
            .write_all(format!("open {number} {}\n", shell.bootstrap()).as_bytes())
            .map_err(|error| lost(&format!("its process is gone: {error}")))?;
        let Some((output, errors)) = self.streams(number) else {
            return Err(lost("its process does not answer"));
        };
        Connection::over(OwnedFd::from(output), OwnedFd::from(errors), shell)
            .map_err(|error| Obstacle::new(ObstacleKind::Launcher, &error.to_string()))
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        Obstacle::new(ObstacleKind::NoShell, printed)
    }

    fn parallel(&self) -> usize {
        64
    }
}
