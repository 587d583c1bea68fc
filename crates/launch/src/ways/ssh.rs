//! Other hosts through the system's OpenSSH client.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::ssh_folder::SocketFolder;
use super::ssh_obstacle::obstacle;
use super::supervised::{Client, Opening, Supervised, Words, command};
use crate::supervise::short;
use crate::supervise::tasks::Purpose;
use crate::{Error, Host, Obstacle};

/// How long `ssh -O check` may take, which asks this machine only.
const CHECK: Duration = Duration::from_secs(5);

/// Tasks on hosts that `ssh` reaches.
///
/// One connection per host stays open: it keeps the folder with plumb there, and later tasks share it (`ControlMaster`,
/// with a socket in a folder of this process that only its user can enter). It ends with this process, so that no
/// connection stays behind. Where a `ControlMaster` of the user's runs, that is used instead, which may be the only way in. Nothing asks
/// (`BatchMode`): a host that wants a password or shows an unknown key is reported.
pub type Ssh = Supervised<Logins>;

/// Connections of OpenSSH.
pub struct Logins {
    /// `None` after the end.
    folder: Option<SocketFolder>,
    sockets: BTreeMap<Host, Socket>,
    /// Hosts whose commands were shown before they were asked.
    assumed: Vec<Host>,
}

/// What connections to a host share.
enum Socket {
    /// The socket of this number in the folder; paths of sockets are short.
    Own(usize),
    /// That of the user's configuration.
    Users,
}

impl Ssh {
    /// Starts nothing yet.
    pub fn new(client: Client) -> Result<Self, Error> {
        Self::with(
            client,
            Logins { folder: Some(SocketFolder::new()?), sockets: BTreeMap::new(), assumed: Vec::new() },
        )
    }
}

/// The words before the host, but for those of the shared connection.
fn words(client: &Client, host: &Host) -> Vec<OsString> {
    let mut words = client.words();
    let settings = [
        "BatchMode=yes".to_owned(),
        format!("ConnectTimeout={}", client.patience.as_secs().max(1)),
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

/// Asks whether a connection of the user's is open.
fn check(client: &Client, host: &Host) -> Vec<OsString> {
    let mut words = words(client, host);
    words.extend(["-O", "check", "--", host.name()].map(OsString::from));
    words
}

/// Whether a connection of the user's to this host is open and may be shared.
fn has_master(client: &Client, host: &Host) -> bool {
    let words = check(client, host);
    let limit = client.most.map_or(CHECK, |most| most.min(CHECK));
    short::output(command(client, &words), "", limit).is_ok_and(|it| it.code == Some(0))
}

impl Opening for Logins {
    const NAME: &'static str = "ssh";

    fn prepare(&mut self, client: &Client, hosts: &[Host]) {
        let new: Vec<&Host> = hosts.iter().filter(|it| !self.sockets.contains_key(it)).collect();
        for some in new.chunks(client.parallel.clamp(1, 16)) {
            let asked: Vec<(Host, bool)> = std::thread::scope(|scope| {
                let ask = |host: &Host| (host.clone(), has_master(client, host));
                let threads: Vec<_> = some.iter().map(|it| scope.spawn(move || ask(it))).collect();
                threads.into_iter().filter_map(|it| it.join().ok()).collect()
            });
            for (host, shared) in asked {
                let own = Socket::Own(self.sockets.len());
                self.sockets.insert(host, if shared { Socket::Users } else { own });
            }
        }
    }

    fn assume(&mut self, hosts: &[Host]) {
        self.assumed = hosts.to_vec();
    }

    fn asking(&self, client: &Client, host: &Host) -> Option<Vec<OsString>> {
        Some(check(client, host))
    }

    fn words(&self, client: &Client, host: &Host, bootstrap: &str, purpose: Purpose) -> Words {
        let mut words = words(client, host);
        let mut set = |setting: OsString| words.extend(["-o".into(), setting]);
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
            set(setting.into());
        }
        let own = match (self.sockets.get(host), &self.folder) {
            (Some(Socket::Own(number)), Some(folder)) => Some(folder.path.join(number.to_string())),
            (None, Some(folder)) => {
                self.assumed.iter().position(|it| it == host).map(|it| folder.path.join(it.to_string()))
            }
            _ => None,
        };
        // A task shares the open connection if there is one, and otherwise has its own.
        let master = if purpose == Purpose::Keep && own.is_some() { "yes" } else { "no" };
        set(format!("ControlMaster={master}").into());
        if let Some(path) = own {
            let mut setting = OsString::from("ControlPath=");
            setting.push(path);
            set(setting);
        }
        words.extend(["--".into(), host.name().into(), format!("exec sh -c '{bootstrap}'").into()]);
        Ok(words)
    }

    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle {
        obstacle(code, printed)
    }

    fn login(&self, client: &Client) -> Duration {
        client.patience + Duration::from_secs(30)
    }

    fn close(&mut self, _client: &Client, left: Vec<Host>) -> Vec<Host> {
        self.folder = None;
        left
    }
}
