//! A group of ranks that runs `all_reduce` on request and sleeps otherwise.
//!
//! Every program speaks the protocol of `benches/peers/allreduce.c` over a Unix socket.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a group may take to start, or a turn to end.
const PATIENCE: Duration = Duration::from_secs(100);

/// How to start the ranks of one engine.
#[derive(Clone)]
pub(crate) struct Engine {
    /// As in the tables: `Open MPI, UCX`.
    pub(crate) name: String,
    /// Whether it is plumb's.
    pub(crate) own: bool,
    /// The program and its arguments, before those of [`Engine::launched`].
    pub(crate) command: Vec<String>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Whether a launcher in `command` starts the ranks (`SOCKET` is appended), or each is started by itself
    /// (`SOCKET FOLDER RANK RANKS` are).
    pub(crate) launched: bool,
}

impl Engine {
    /// Plumb's own, run by this very program.
    pub(crate) fn own(mode: &'static str) -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        Self {
            name: format!("plumb, {}", if mode == "tcp" { "TCP" } else { mode }),
            own: true,
            command: vec![program.display().to_string(), "rank".into(), mode.into()],
            environment: Vec::new(),
            launched: false,
        }
    }
}

/// A task for a group.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) bytes: usize,
    /// Calls in a batch.
    pub(crate) iterations: usize,
    /// Timed batches.
    pub(crate) batches: usize,
}

/// The result of a task.
pub(crate) struct Turn {
    /// Seconds per call of the slowest rank, one value per batch.
    pub(crate) times: Vec<f64>,
    /// CPU time of the ranks.
    pub(crate) cpu: Duration,
}

/// Ranks that run.
pub(crate) struct Group {
    engine: String,
    ranks: usize,
    folder: PathBuf,
    listener: UnixListener,
    children: Vec<Child>,
    members: Vec<Member>,
}

struct Member {
    rank: usize,
    pid: Option<Pid>,
    stream: BufReader<UnixStream>,
}

impl Group {
    /// Starts the processes; they are ready after [`Group::meet`].
    pub(crate) fn start(engine: &Engine, ranks: usize) -> io::Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("plumb-bench-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let mut group = Self {
            engine: engine.name.clone(),
            ranks,
            folder,
            listener,
            children: Vec::new(),
            members: Vec::new(),
        };
        if engine.launched {
            let child = command(engine, &group.folder)?.arg(&socket).spawn()?;
            group.children.push(child);
        } else {
            for rank in 0..ranks {
                let mut it = command(engine, &group.folder)?;
                it.arg(&socket).arg(&group.folder).arg(rank.to_string()).arg(ranks.to_string());
                group.children.push(it.spawn()?);
            }
        }
        Ok(group)
    }

    /// Waits until every rank is ready.
    pub(crate) fn meet(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while self.members.len() < self.ranks {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let member = greet(stream).map_err(|it| self.failure(&it.to_string()))?;
                    self.members.push(member);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let ended = self.children.iter_mut().any(|it| !matches!(it.try_wait(), Ok(None)));
                    if ended || start.elapsed() > PATIENCE {
                        return Err(self.failure("did not start"));
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(self.failure(&error.to_string())),
            }
        }
        self.members.sort_by_key(|it| it.rank);
        Ok(())
    }

    /// Runs a task on all ranks.
    pub(crate) fn turn(&mut self, task: Task) -> Result<Turn, String> {
        self.send_and_wait(task).map_err(|it| self.failure(&format!("{} bytes: {it}", task.bytes)))
    }

    fn send_and_wait(&mut self, task: Task) -> io::Result<Turn> {
        let line = format!("{} {} {}\n", task.bytes, task.iterations, task.batches);
        for member in &mut self.members {
            member.stream.get_mut().write_all(line.as_bytes())?;
        }
        let mut turn = Turn { times: vec![0.0; task.batches], cpu: Duration::ZERO };
        for member in &mut self.members {
            let mut answer = String::new();
            member.stream.read_line(&mut answer)?;
            let mut words = answer.split_whitespace();
            match words.next() {
                Some("ok") => {}
                Some("wrong") => {
                    return Err(io::Error::other(format!("rank {} got wrong sums", member.rank)));
                }
                _ => return Err(io::Error::other(format!("rank {} gave no answer", member.rank))),
            }
            let mut numbers = words.map(|it| it.parse::<u64>().unwrap_or(0));
            turn.cpu += Duration::from_micros(numbers.next().unwrap_or(0));
            for (slowest, time) in turn.times.iter_mut().zip(numbers) {
                let seconds = Duration::from_nanos(time).as_secs_f64() / task.iterations as f64;
                *slowest = slowest.max(seconds);
            }
        }
        Ok(turn)
    }

    /// The error, with the last output of the ranks.
    fn failure(&self, what: &str) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(12)..).unwrap_or_default().join("\n");
        format!("{}: {what}\n{last}", self.engine)
    }
}

impl Drop for Group {
    /// Closes the sockets, which ends the ranks; kills those that remain.
    fn drop(&mut self) {
        let pids: Vec<_> = self.members.drain(..).filter_map(|it| it.pid).collect();
        for (wait, signal) in [(10_000, None), (2_000, Some(Signal::TERM)), (2_000, Some(Signal::KILL))] {
            if let Some(signal) = signal {
                for child in &self.children {
                    let _ = kill_process_group(Pid::from_child(child), signal);
                }
                for pid in &pids {
                    let _ = kill_process(*pid, signal);
                }
            }
            let start = Instant::now();
            while self.children.iter_mut().any(|it| matches!(it.try_wait(), Ok(None)))
                && start.elapsed() < Duration::from_millis(wait)
            {
                std::thread::sleep(Duration::from_millis(2));
            }
            if self.children.iter_mut().all(|it| !matches!(it.try_wait(), Ok(None))) {
                break;
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn command(engine: &Engine, folder: &Path) -> io::Result<Command> {
    let [program, arguments @ ..] = engine.command.as_slice() else {
        return Err(io::Error::other("no program"));
    };
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(engine.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0);
    Ok(command)
}

/// Reads a rank's greeting: `RANK PID`.
fn greet(stream: UnixStream) -> io::Result<Member> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let rank = words.next().and_then(|it| it.parse().ok()).ok_or_else(|| io::Error::other("no greeting"))?;
    let pid = words.next().and_then(|it| it.parse().ok()).and_then(Pid::from_raw);
    Ok(Member { rank, pid, stream })
}
