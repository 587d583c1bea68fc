//! What is to be started where, and how it ended.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use crate::Host;

/// Tasks that are started together and answered one by one. It is built first and can be shown
/// ([`Way::shown`](crate::Way::shown)), then run ([`Way::run`](crate::Way::run)).
#[derive(Debug, Clone)]
pub struct Request {
    /// What it is for, in a few words: `node probe`, `all_reduce on 16 hosts`. Shown and logged, never interpreted.
    pub name: String,
    /// At most one per host where [`Self::at_once`] is set; any number otherwise.
    pub tasks: Vec<Task>,
    /// How long a task may run, counted from its own start. Then it is ended, with all that it started.
    pub limit: Duration,
    /// The tasks need each other, as the ranks of one collective do: all run at the same time. Otherwise a way may run
    /// them a few at a time.
    pub at_once: bool,
}

/// One command on one host.
#[derive(Clone, PartialEq, Eq)]
pub struct Task {
    /// Where.
    pub host: Host,
    /// What is started.
    pub program: Program,
    /// Its arguments, which reach it byte for byte.
    pub arguments: Vec<OsString>,
    /// Its variables, besides those it has there anyway. Names are `[A-Za-z_][A-Za-z0-9_]*`. They are sent through the
    /// connection and do not appear in a list of processes.
    pub variables: Vec<(String, OsString)>,
    /// Its standard input; it has none otherwise.
    pub input: Option<Vec<u8>>,
}

/// The program of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The `plumb` that [`Way::place`](crate::Way::place) found or put there. A task on a host where that failed ends
    /// as [`How::Unreachable`].
    Plumb,
    /// A path, or a name that the `PATH` of that host leads to.
    Other(OsString),
}

/// How a task ended. Every task of a request ends exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The index of the task in its request.
    pub task: usize,
    /// Where it was.
    pub host: Host,
    /// How.
    pub how: How,
    /// What it printed, without what the host's shell printed before it, and without the middle if it is longer than
    /// 8 MiB ([`Self::cut`]).
    pub stdout: Vec<u8>,
    /// The same for its standard error, at most 256 KiB.
    pub stderr: Vec<u8>,
    /// Some output is missing: the task printed more than is kept.
    pub cut: bool,
    /// From the start of its command on the other host, or from the attempt to connect where it did not start.
    pub took: Duration,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// With this exit code.
    Code(i32),
    /// Killed by this signal, on its own host. Shells report 128 plus the number; 129 to 159 are taken for signals.
    Signal(i32),
    /// It ran longer than [`Request::limit`] and was ended.
    TimedOut,
    /// It did not start.
    Unreachable(Obstacle),
    /// It had started, and the connection to its host broke: the host or its ssh server died, or the network did.
    Lost {
        /// What the other side said last, or what is known otherwise; one line.
        detail: String,
    },
    /// The user interrupted.
    Cancelled,
}

/// Why a host cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Which kind it is.
    pub kind: ObstacleKind,
    /// In the words of the program that said so; one line, at most 300 characters, no control characters.
    pub detail: String,
}

/// Kinds of obstacles, each with a remedy of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ObstacleKind {
    /// The name does not resolve.
    NameUnknown,
    /// Nothing listens at the port.
    Refused,
    /// No route to the host or its network.
    NoRoute,
    /// It does not answer in time.
    NoAnswer,
    /// The connection was closed before the login: too many at once, or an address that is not allowed.
    Closed,
    /// The key of the host is another than the one that is known.
    KeyChanged,
    /// The key of the host is not known yet.
    KeyUnknown,
    /// It asks for a password.
    AsksForPassword,
    /// The login is refused.
    Denied,
    /// The login works, and no POSIX shell answers: a shell that is missing, or one that lets nobody in.
    NoShell,
    /// No folder has room for plumb.
    DiskFull,
    /// No folder in which plumb can be written and run: not writable, or mounted with `noexec`.
    NoFolder,
    /// The program is not there, or cannot be run on this machine.
    NoProgram,
    /// `ssh`, `srun` or `kubectl` on this machine failed.
    Launcher,
    /// Anything else; the detail says what.
    Other,
}

/// A command that is started on this machine, or by a process of the launcher on its own, and what it runs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Where the task runs.
    pub host: Host,
    /// The words that are started, as one line for a POSIX shell. Their shell reads its script from standard input: that sets variables,
    /// frames the output and ends the task when the connection ends.
    pub command: String,
    /// What the script runs, as one line for a POSIX shell on that host, with the token of a job replaced by `TOKEN`. None where the
    /// command itself says all.
    pub task: Option<String>,
}

/// What [`Way::place`](crate::Way::place) found on a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The host.
    pub host: Host,
    /// Where plumb is, or why it cannot be there.
    pub outcome: Result<Place, Obstacle>,
}

/// A host that answers, and the plumb there.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The path of plumb on that host.
    pub path: String,
    /// It was copied, to a folder that [`Way::clean`](crate::Way::clean) removes. Otherwise the same file was there
    /// already.
    pub copied: bool,
    /// What `plumb --version` of that host's `PATH` prints, if there is one.
    pub installed: Option<String>,
    /// The name that the host has for itself.
    pub hostname: String,
    /// An address at which others reach it: the one at which this machine did.
    pub address: Option<String>,
    /// How far its clock is ahead of that of this machine.
    pub clock: Option<Clock>,
}

/// A clock beside that of this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// Seconds; negative if it is behind.
    pub ahead: f64,
    /// The true value is within this many seconds of it: half of the time that the question took.
    pub within: f64,
}

impl Ended {
    /// The exit code was 0.
    pub fn succeeded(&self) -> bool {
        self.how == How::Code(0)
    }

    /// The standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last line of the standard error, as text without control characters: usually what went wrong.
    pub fn last_words(&self) -> String {
        one_line(
            String::from_utf8_lossy(&self.stderr)
                .lines()
                .rev()
                .find(|it| !it.trim().is_empty())
                .unwrap_or_default(),
        )
    }
}

impl Request {
    /// Independent tasks.
    pub fn new(name: impl Into<String>, tasks: Vec<Task>, limit: Duration) -> Self {
        Self { name: name.into(), tasks, limit, at_once: false }
    }
}

impl Task {
    /// plumb with these arguments on a host.
    pub fn plumb(host: Host, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { host, program: Program::Plumb, arguments, variables: Vec::new(), input: None }
    }
}

impl fmt::Debug for Task {
    /// Without the values of variables: one is a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        write!(f, "Task({}: {:?} {:?}, variables {names:?})", self.host, self.program, self.arguments)
    }
}

impl Obstacle {
    /// With at most 300 characters of the first line.
    pub fn new(kind: ObstacleKind, detail: &str) -> Self {
        Self { kind, detail: one_line(detail) }
    }
}

impl ObstacleKind {
    /// In the field's words, as the end of a sentence about a host: `node7: connection refused`.
    pub const fn text(self) -> &'static str {
        match self {
            Self::NameUnknown => "name does not resolve",
            Self::Refused => "connection refused",
            Self::NoRoute => "no route to the host",
            Self::NoAnswer => "no answer",
            Self::Closed => "connection closed before the login",
            Self::KeyChanged => "host key changed",
            Self::KeyUnknown => "host key not known",
            Self::AsksForPassword => "asks for a password",
            Self::Denied => "login refused",
            Self::NoShell => "no POSIX shell after the login",
            Self::DiskFull => "no space left to copy plumb to",
            Self::NoFolder => "no folder in which plumb can be written and run",
            Self::NoProgram => "program not found or not executable",
            Self::Launcher => "the launcher failed",
            Self::Other => "failed",
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.text())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(number) => write!(f, "killed by signal {number}"),
            Self::TimedOut => f.write_str("ran longer than its limit"),
            Self::Unreachable(obstacle) => obstacle.fmt(f),
            Self::Lost { detail } if detail.is_empty() => f.write_str("connection lost"),
            Self::Lost { detail } => write!(f, "connection lost ({detail})"),
            Self::Cancelled => f.write_str("interrupted"),
        }
    }
}

/// The first 300 characters of the first line, without control characters.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().filter(|it| !it.is_control()).take(300).collect()
}
