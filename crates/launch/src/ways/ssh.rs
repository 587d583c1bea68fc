//! Other hosts through the system's OpenSSH client.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::shown_locally;
use super::ssh_obstacle::obstacle;
use crate::rendezvous::random_token;
use crate::supervise::connection::Connection;
use crate::supervise::keeper::{self, Binary, Keepers};
use crate::supervise::tasks::{self, Transport};
use crate::{Ended, Error, Host, Obstacle, Placed, Request, Shown, Stop, Way, quote};

/// How `ssh` is called. The user's configuration, agent and jump hosts apply as always.
#[derive(Debug, Clone)]
pub struct SshOptions {
    /// The client: `ssh`.
    pub program: OsString,
    /// More arguments before the host, such as `-F FILE` or `-o StrictHostKeyChecking=accept-new`.
    pub arguments: Vec<OsString>,
    /// How long a connection may take (`ConnectTimeout`). The whole login may take 30 seconds longer.
    pub connect: Duration,
    /// How many logins, and tasks that do not need each other, are under way at a time.
    pub parallel: usize,
    /// The program that is placed on hosts. `None`: this one.
    pub plumb: Option<PathBuf>,
}

impl Default for SshOptions {
    fn default() -> Self {
        Self {
            program: "ssh".into(),
            arguments: Vec::new(),
            connect: Duration::from_secs(10),
            parallel: 64,
            plumb: None,
        }
    }
}

/// Tasks on hosts that `ssh` reaches.
///
/// One connection per host stays open: it keeps the folder with plumb there, and later tasks share it (`ControlMaster`,
/// with a socket in a folder of this process that only its user can enter). It ends with this process, so that no
/// connection stays behind. Nothing asks (`BatchMode`): a host that wants a password or shows an unknown key is reported.
pub struct Ssh {
    options: SshOptions,
    binary: Binary,
    /// For the sockets.
    folder: PathBuf,
    /// The number of each host's socket; paths of sockets are short.
    sockets: BTreeMap<Host, usize>,
    keepers: Keepers,
}

impl Ssh {
    /// Starts nothing yet.
    pub fn new(options: SshOptions) -> Result<Self, Error> {
        let binary = match &options.plumb {
            Some(path) => Binary::read(path.clone().into_os_string())?,
            None => Binary::own()?,
        };
        let token = random_token()?;
        // A path of a socket has at most 107 bytes, and ssh adds 17 while it creates one.
        let folder = std::env::temp_dir().join(format!("plumb-ssh-{}", token.get(..12).unwrap_or_default()));
        let folder = if folder.as_os_str().len() > 60 {
            Path::new("/tmp").join(folder.file_name().unwrap_or_default())
        } else {
            folder
        };
        std::fs::create_dir(&folder)
            .and_then(|()| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)))
            .map_err(|error| Error::start(&format!("cannot create {}", folder.display()), error))?;
        Ok(Self { options, binary, folder, sockets: BTreeMap::new(), keepers: Keepers::default() })
    }

    /// The words before the host's command, but for those of the shared connection.
    fn words(&self, host: &Host) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.options.program.clone()];
        words.extend(self.options.arguments.iter().cloned());
        let connect = self.options.connect.as_secs().max(1);
        let settings = [
            "BatchMode=yes".to_owned(),
            format!("ConnectTimeout={connect}"),
            // A host that hangs is noticed after half a minute.
            "ServerAliveInterval=10".to_owned(),
            "ServerAliveCountMax=3".to_owned(),
        ];
        words.extend(settings.into_iter().flat_map(|it| ["-o".into(), OsString::from(it)]));
        if let Some(port) = host.port() {
            words.extend(["-p".into(), port.to_string().into()]);
        }
        if let Some(user) = host.user() {
            words.extend(["-l".into(), user.into()]);
        }
        words
    }

    fn socket(&self, host: &Host) -> OsString {
        let number = self.sockets.get(host).copied().unwrap_or_default();
        let mut setting = OsString::from("ControlPath=");
        setting.push(self.folder.join(number.to_string()));
        setting
    }
}

impl Way for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn place(&mut self, hosts: &[Host], stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        for host in hosts {
            let next = self.sockets.len();
            self.sockets.entry(host.clone()).or_insert(next);
        }
        let mut keepers = std::mem::take(&mut self.keepers);
        let result = keeper::place(&Opening(self), &mut keepers, &self.binary, hosts, stop, each);
        self.keepers = keepers;
        result
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        let shown = |task: &crate::Task| {
            let plumb = self.keepers.path(&task.host).unwrap_or_else(|| self.binary.path.clone());
            let mut words: Vec<String> = self.words(&task.host).iter().map(quote).collect();
            words.extend(["--".to_owned(), quote(task.host.name()), quote(shown_locally(task, &plumb))]);
            Shown { host: task.host.clone(), command: words.join(" ") }
        };
        request.tasks.iter().map(shown).collect()
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    fn clean(&mut self) -> Vec<Host> {
        let left = self.keepers.clean();
        let _ = std::fs::remove_dir_all(&self.folder);
        left
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        self.clean();
    }
}

impl Transport for Ssh {
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        self.keepers.plumb(host)
    }

    /// Over the open connection if there is one, otherwise over one of its own.
    fn open(
        &self,
        host: &Host,
        bootstrap: &str,
        mark: &str,
        script: Vec<u8>,
    ) -> Result<Connection, Obstacle> {
        tasks::process(self.ssh(host, "no", bootstrap), mark, script)
    }

    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle {
        obstacle(code, printed)
    }

    fn last_words(&mut self, host: &Host) -> Option<String> {
        self.keepers.last_words(host)
    }

    fn login(&self) -> Duration {
        self.options.connect + Duration::from_secs(30)
    }

    fn parallel(&self) -> usize {
        self.options.parallel
    }

    fn others(&mut self) -> Vec<&mut Connection> {
        self.keepers.connections()
    }
}

impl Ssh {
    fn ssh(&self, host: &Host, master: &str, bootstrap: &str) -> Command {
        let words = self.words(host);
        let mut command = Command::new(words.first().unwrap_or(&self.options.program));
        command.args(words.iter().skip(1));
        let settings = [
            "RequestTTY=no",
            "RemoteCommand=none",
            "ClearAllForwardings=yes",
            "ForwardX11=no",
            "PermitLocalCommand=no",
            "ControlPersist=no",
            "LogLevel=INFO",
        ];
        for setting in settings {
            command.args(["-o", setting]);
        }
        command.arg("-o").arg(format!("ControlMaster={master}")).arg("-o").arg(self.socket(host));
        command.arg("--").arg(host.name()).arg(format!("exec sh -c '{bootstrap}'"));
        command
    }
}

/// Opens the connections that stay.
struct Opening<'a>(&'a Ssh);

impl Transport for Opening<'_> {
    fn plumb(&mut self, _host: &Host) -> Result<OsString, Obstacle> {
        Ok(self.0.binary.path.clone())
    }

    fn open(
        &self,
        host: &Host,
        bootstrap: &str,
        mark: &str,
        script: Vec<u8>,
    ) -> Result<Connection, Obstacle> {
        tasks::process(self.0.ssh(host, "yes", bootstrap), mark, script)
    }

    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle {
        obstacle(code, printed)
    }

    fn last_words(&mut self, _host: &Host) -> Option<String> {
        None
    }

    fn login(&self) -> Duration {
        Transport::login(self.0)
    }

    fn parallel(&self) -> usize {
        self.0.options.parallel
    }

    fn others(&mut self) -> Vec<&mut Connection> {
        Vec::new()
    }
}
