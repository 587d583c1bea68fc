//! Real ssh servers on the hosts.

use std::fs;

use super::{Hosts, run};
use crate::{need, program};

/// How a host lets others in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// With the key of the bed.
    Key,
    /// The same, with more lines in the settings of the server.
    With(String),
    /// With a password only.
    Password,
    /// As another host than the one that is known: its key has changed.
    OtherKey,
    /// Nothing listens.
    None,
}

impl Hosts {
    /// Opens every host to ssh from the others and from the head. Returns the path of the client's settings.
    pub fn ssh(&self) -> String {
        self.ssh_with(&|_| Login::Key)
    }

    /// The same, with what is different about some hosts.
    pub fn ssh_with(&self, login: &dyn Fn(usize) -> Login) -> String {
        let key = self.file("key");
        let other = self.file("other-key");
        for file in [&key, &other] {
            run(program(need("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f", file]));
        }
        let mut known = String::new();
        let public = fs::read_to_string(format!("{key}.pub")).expect("a key");
        for (i, host) in self.iter() {
            known += &format!("{},10.77.0.{i},fd77::{i} {public}", host.name);
            let login = login(i);
            if login == Login::None {
                continue;
            }
            let host_key = if login == Login::OtherKey { &other } else { &key };
            let mut settings = format!(
                "HostKey {host_key}\nUsePAM no\nStrictModes no\nPidFile none\nPermitRootLogin yes\n\
                 PasswordAuthentication yes\n"
            );
            match &login {
                Login::Password => settings += "AuthorizedKeysFile none\n",
                _ => settings += &format!("AuthorizedKeysFile {key}.pub\n"),
            }
            if let Login::With(more) = &login {
                settings += more;
            }
            fs::write(self.file(&format!("sshd.{i}.conf")), settings).expect("settings");
            self.start_sshd(i);
        }
        fs::write(self.file("known_hosts"), known).expect("keys of hosts");
        let client = self.file("ssh.conf");
        let settings = format!(
            "Host *\n User root\n AddressFamily inet\n IdentityFile {key}\n IdentitiesOnly yes\n StrictHostKeyChecking yes\n \
             UserKnownHostsFile {}\n GlobalKnownHostsFile /dev/null\n UpdateHostKeys no\n LogLevel ERROR\n BatchMode yes\n",
            self.file("known_hosts")
        );
        fs::write(&client, settings).expect("settings");
        client
    }

    /// Starts the server of a host whose login is not [`Login::None`], for the first time or again.
    pub fn start_sshd(&self, host: usize) {
        let settings = self.file(&format!("sshd.{host}.conf"));
        // It goes into the background when it listens.
        run(self[host].command(need("sshd")).args([
            "-f",
            &settings,
            "-E",
            &self.file(&format!("sshd.{host}")),
        ]));
    }
}
