//! One collective across hosts: the tasks of a job whose ranks meet at the first host.

use std::ffi::OsString;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::rendezvous::random_token;
use crate::{Ended, Error, Host, Program, Task};

/// Ports below the ephemeral range of Linux (32768), where few services listen.
const PORTS: std::ops::Range<u16> = 20_480..32_000;

/// A job with ranks on several hosts: one task per host, which starts the ranks of its host.
///
/// Each task has `PLUMB_RANK` (the first rank of its host), `PLUMB_RANKS_HERE` (how many it starts), `PLUMB_SIZE`,
/// `PLUMB_RENDEZVOUS` (the first host and a random port) and `PLUMB_TOKEN` (random). `plumb bench` reads them through
/// [`RankIdentity`](crate::RankIdentity) and starts the ranks of its host with [`start`](crate::start()). Rank 0, which
/// prints the result, is on the first host.
#[derive(Debug, Clone)]
pub struct Across {
    /// The hosts in the order of ranks, with the number of ranks of each.
    pub hosts: Vec<(Host, usize)>,
    /// Where the other hosts reach the first: [`Place::address`](crate::Place), or its name.
    pub first_address: String,
    /// The arguments of plumb, without `--ranks`: `bench all_reduce -b 8M ...`.
    pub arguments: Vec<OsString>,
    /// More variables for every task.
    pub variables: Vec<(String, OsString)>,
}

impl Across {
    /// The tasks, each time with another port and token. Run them in a [`Request`](crate::Request) with `at_once`.
    pub fn tasks(&self) -> Result<Vec<Task>, Error> {
        let port = random_port()?;
        self.tasks_at(port, &random_token()?)
    }

    fn tasks_at(&self, port: u16, token: &str) -> Result<Vec<Task>, Error> {
        let size: usize = self.hosts.iter().map(|(_, ranks)| *ranks).sum();
        if self.hosts.iter().any(|(_, ranks)| *ranks == 0) {
            return Err(Error::Start { detail: "a host of a job has no ranks".to_owned() });
        }
        let address = &self.first_address;
        let rendezvous =
            if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        let mut first = 0;
        let mut tasks = Vec::new();
        for (host, ranks) in &self.hosts {
            let own = [
                ("PLUMB_RANK", first.to_string()),
                ("PLUMB_SIZE", size.to_string()),
                ("PLUMB_RANKS_HERE", ranks.to_string()),
                ("PLUMB_RENDEZVOUS", rendezvous.clone()),
                ("PLUMB_TOKEN", token.to_owned()),
            ];
            let own = own.into_iter().map(|(name, value)| (name.to_owned(), OsString::from(value)));
            tasks.push(Task {
                host: host.clone(),
                program: Program::Plumb,
                arguments: self.arguments.clone(),
                variables: self.variables.iter().cloned().chain(own).collect(),
                input: None,
            });
            first += ranks;
        }
        Ok(tasks)
    }
}

/// Whether a task of [`Across`] failed because its random port was taken: make new tasks and try again.
pub fn port_was_taken(ended: &Ended) -> bool {
    !ended.succeeded()
        && String::from_utf8_lossy(&ended.stderr)
            .lines()
            .any(|it| it.contains("port ") && it.contains(" is in use"))
}

fn random_port() -> Result<u16, Error> {
    let mut bytes = [0_u8; 2];
    match rustix::io::retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty())) {
        Ok(2) => Ok(PORTS.start + u16::from_ne_bytes(bytes) % (PORTS.end - PORTS.start)),
        Ok(_) => Err(Error::start("cannot choose a port", "no random bytes")),
        Err(error) => Err(Error::start("cannot choose a port", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_order_of_hosts() {
        let host = |name: &str| Host::parse(name).expect("a host");
        let job = Across {
            hosts: vec![(host("a"), 2), (host("b"), 3)],
            first_address: "fd00::1".to_owned(),
            arguments: vec!["bench".into()],
            variables: vec![("X".to_owned(), "1".into())],
        };
        let tasks = job.tasks_at(20_480, "t").expect("tasks");
        let variables: Vec<String> = tasks
            .iter()
            .map(|it| {
                it.variables
                    .iter()
                    .map(|(name, value)| format!("{name}={}", value.display()))
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(
            variables,
            [
                "X=1 PLUMB_RANK=0 PLUMB_SIZE=5 PLUMB_RANKS_HERE=2 PLUMB_RENDEZVOUS=[fd00::1]:20480 PLUMB_TOKEN=t",
                "X=1 PLUMB_RANK=2 PLUMB_SIZE=5 PLUMB_RANKS_HERE=3 PLUMB_RENDEZVOUS=[fd00::1]:20480 PLUMB_TOKEN=t",
            ]
        );
        assert!(!format!("{tasks:?}").contains("=t"));
        for _ in 0..100 {
            assert!(PORTS.contains(&random_port().expect("a port")));
        }
    }
}
