//! The way to hosts through a client program of this machine: `ssh`, `srun` or `kubectl`.
//!
//! All of them start a client for each connection, whose standard streams lead to a shell on the host. One connection per host stays open
//! and keeps the folder with plumb there; every task has one of its own. What differs is an [`Opening`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{line, shown_locally};
use crate::supervise::connection::Connection;
use crate::supervise::keeper::{self, Binary, Keepers};
use crate::supervise::script::Shell;
use crate::supervise::tasks::{self, Purpose, Transport};
use crate::{Ended, Error, Host, Obstacle, Placed, Request, Shown, Stop, Task, Way};

/// How the client program is called.
#[derive(Debug, Clone)]
pub struct Client {
    /// `ssh`, `srun`, `kubectl`, or a path.
    pub program: OsString,
    /// More arguments, before those of plumb: `-F FILE`, `--jobid=7`, `--context=NAME`.
    pub arguments: Vec<OsString>,
    /// How long a host may take to answer: `ConnectTimeout` of ssh, whose whole login may take 30 seconds longer; the start of a step; the
    /// first answer of a pod.
    pub patience: Duration,
    /// The longest that the first answer may take in all, whatever the way allows it otherwise.
    pub most: Option<Duration>,
    /// How many connections are opened, and tasks that do not need each other run, at a time.
    pub parallel: usize,
    /// The program that is placed on hosts. `None`: this one.
    pub plumb: Option<PathBuf>,
}

impl Client {
    fn new(program: &str, patience: u64, parallel: usize) -> Self {
        let patience = Duration::from_secs(patience);
        Self { program: program.into(), arguments: Vec::new(), patience, most: None, parallel, plumb: None }
    }

    /// OpenSSH. The user's configuration, agent and jump hosts apply as always.
    pub fn ssh() -> Self {
        Self::new("ssh", 10, 64)
    }

    /// Slurm.
    pub fn srun() -> Self {
        Self::new("srun", 60, 64)
    }

    /// Kubernetes.
    pub fn kubectl() -> Self {
        Self::new("kubectl", 60, 32)
    }

    /// The program and its first arguments.
    pub(super) fn words(&self) -> Vec<OsString> {
        std::iter::once(&self.program).chain(&self.arguments).cloned().collect()
    }
}

/// The words of a command, or why there is none.
pub(super) type Words = Result<Vec<OsString>, Obstacle>;

/// What differs between the clients: what to start for a host, and what its ending means.
pub trait Opening {
    /// For sentences.
    const NAME: &'static str;

    /// Learns of hosts before they are connected to, with the commands of [`asking`](Self::asking).
    fn prepare(&mut self, client: &Client, hosts: &[Host]);

    /// Takes these hosts for new ones, without asking: their commands are shown.
    fn assume(&mut self, _hosts: &[Host]) {}

    /// What is asked about a host before a connection to it is opened.
    fn asking(&self, _client: &Client, _host: &Host) -> Option<Vec<OsString>> {
        None
    }

    /// The words that run `sh -c BOOTSTRAP` on a host.
    fn words(&self, client: &Client, host: &Host, bootstrap: &str, purpose: Purpose) -> Words;

    /// Why there was no shell, from how the client ended and what it printed.
    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle;

    /// Where other hosts reach this one, if the client knows it better than the host.
    fn address(&self, _host: &Host) -> Option<String> {
        None
    }

    /// How long the first answer may take.
    fn login(&self, client: &Client) -> Duration {
        client.patience
    }

    /// Removes what is left on this machine or in the cluster, after all connections have ended. `left` are the hosts that did not
    /// confirm that nothing remains there; it returns those that count.
    fn close(&mut self, _client: &Client, left: Vec<Host>) -> Vec<Host> {
        left
    }
}

/// Tasks on hosts through a client program.
pub struct Supervised<O: Opening> {
    pub(super) client: Client,
    pub(super) opening: O,
    binary: Binary,
    keepers: Keepers,
}

impl<O: Opening> Supervised<O> {
    /// Starts nothing yet.
    pub(super) fn with(client: Client, opening: O) -> Result<Self, Error> {
        let binary = match &client.plumb {
            Some(path) => Binary::read(path.clone().into_os_string())?,
            None => Binary::own()?,
        };
        Ok(Self { client, opening, binary, keepers: Keepers::default() })
    }
}

impl<O: Opening> Supervised<O> {
    fn shown_opening(&self, host: &Host, bootstrap: &str, purpose: Purpose) -> String {
        let words = self.opening.words(&self.client, host, bootstrap, purpose);
        words.map_or_else(|obstacle| format!("# {obstacle}"), |it| line(&it))
    }
}

impl<O: Opening> Way for Supervised<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn place(&mut self, hosts: &[Host], stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        self.opening.prepare(&self.client, hosts);
        let mut keepers = std::mem::take(&mut self.keepers);
        let mut with_address = |placed: &Placed| {
            let mut placed = placed.clone();
            if let (Ok(place), Some(address)) = (&mut placed.outcome, self.opening.address(&placed.host)) {
                place.address = Some(address);
            }
            each(&placed);
        };
        let result = keeper::place(self, &mut keepers, &self.binary, hosts, stop, &mut with_address);
        self.keepers = keepers;
        result
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        let shown = |task: &Task| {
            let plumb = self.keepers.path(&task.host).unwrap_or_else(|| self.binary.path.clone());
            let bootstrap = tasks::bootstrap(task, &plumb, request.limit);
            let command = self.shown_opening(&task.host, &bootstrap, Purpose::Task);
            Shown { host: task.host.clone(), command, task: Some(shown_locally(task, &plumb)) }
        };
        request.tasks.iter().map(shown).collect()
    }

    fn shown_placing(&mut self, hosts: &[Host]) -> Vec<Shown> {
        self.opening.assume(hosts);
        let bootstrap = keeper::bootstrap(&self.binary);
        let asked =
            hosts.iter().filter_map(|host| Some((host, line(&self.opening.asking(&self.client, host)?))));
        let opened = hosts.iter().map(|host| (host, self.shown_opening(host, &bootstrap, Purpose::Keep)));
        asked.chain(opened).map(|(host, command)| Shown { host: host.clone(), command, task: None }).collect()
    }

    fn shown_script(&self) -> Option<String> {
        let script = keeper::script(&self.binary, "MARK").ok()?;
        Some(String::from_utf8_lossy(&script).into_owned())
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    fn clean(&mut self) -> Vec<Host> {
        let left = self.keepers.clean();
        self.opening.close(&self.client, left)
    }
}

impl<O: Opening> Drop for Supervised<O> {
    fn drop(&mut self) {
        self.clean();
    }
}

impl<O: Opening> Transport for Supervised<O> {
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        self.keepers.plumb(host)
    }

    fn open(&self, host: &Host, shell: Shell<'_>, purpose: Purpose) -> Result<Connection, Obstacle> {
        let words = self.opening.words(&self.client, host, &shell.bootstrap(), purpose)?;
        tasks::process(command(&self.client, &words), shell)
    }

    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle {
        self.opening.obstacle(code, printed)
    }

    fn last_words(&mut self, host: &Host) -> Option<String> {
        self.keepers.last_words(host)
    }

    fn login(&self) -> Duration {
        let usual = self.opening.login(&self.client);
        self.client.most.map_or(usual, |most| usual.min(most))
    }

    fn parallel(&self) -> usize {
        self.client.parallel
    }

    fn others(&mut self) -> Vec<&mut Connection> {
        self.keepers.connections()
    }
}

/// These words as a command; the first is the program.
pub(super) fn command(client: &Client, words: &[OsString]) -> Command {
    let mut command = Command::new(words.first().unwrap_or(&client.program));
    command.args(words.iter().skip(1));
    command
}
