//! PMI-1, the text protocol of MPICH's and Intel MPI's hydra and of `srun --mpi=pmi2`.
//!
//! A rank writes a line and reads a line:
//!
//! ```text
//! cmd=init pmi_version=1 pmi_subversion=1          cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//! cmd=get_maxes                                    cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024
//! cmd=get_my_kvsname                               cmd=my_kvsname kvsname=kvs_13630_0
//! cmd=put kvsname=K key=plumb value=TEXT           cmd=put_result rc=0 msg=success
//! cmd=barrier_in                                   cmd=barrier_out
//! cmd=get kvsname=K key=plumb                      cmd=get_result rc=0 msg=success value=TEXT
//! cmd=finalize                                     cmd=finalize_ack
//! ```

use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::{KeyValueStore, pipe};
use crate::Error;
use crate::variables::MAX_RANKS;

/// Longest reply. hydra's values have at most 1024 bytes.
const MAX_LINE: usize = 4096;

/// For connecting to the process manager and for its first replies.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection to the process manager.
pub(crate) struct Pmi {
    socket: OwnedFd,
    unread: Vec<u8>,
    deadline: Instant,
}

/// A connection, and what the process manager says about this process.
pub(crate) struct Connected {
    pub(crate) pmi: Pmi,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

impl Pmi {
    /// The connection of `PMI_FD`.
    pub(crate) fn inherited(fd: RawFd) -> Result<Self, Error> {
        let socket = pipe::inherited(fd, FileType::Socket).map_err(|error| {
            Error::variable("PMI_FD", &fd.to_string(), format!("an open socket ({error})"))
        })?;
        Ok(Self::new(socket))
    }

    /// Connects to `PMI_PORT`. Only the process manager knows rank and size then.
    pub(crate) fn connect(port: &str, id: usize) -> Result<Connected, Error> {
        let addresses =
            port.to_socket_addrs().map_err(|error| Error::variable("PMI_PORT", port, error.to_string()))?;
        let mut last = format!("{port} has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => {
                    let pmi = Self::new(stream.into());
                    return pmi.initack(id);
                }
                Err(error) => last = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(Error::kvs("PMI", last))
    }

    fn new(socket: OwnedFd) -> Self {
        Self { socket, unread: Vec::new(), deadline: Instant::now() + CONNECT_TIMEOUT }
    }

    /// Sends the id of this process; three settings follow the reply.
    fn initack(mut self, id: usize) -> Result<Connected, Error> {
        self.request(&format!("cmd=initack pmiid={id}"), "initack")?;
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let line = self.line()?;
            let number =
                |key| value(&line, key).and_then(|it| it.parse::<usize>().ok()).filter(|it| *it <= MAX_RANKS);
            rank = rank.or(number("rank"));
            size = size.or(number("size"));
        }
        match (rank, size) {
            (Some(rank), Some(size)) => Ok(Connected { pmi: self, rank, size }),
            _ => Err(Error::kvs("PMI", "the process manager sent no rank and size")),
        }
    }

    /// Sends a command and returns its reply.
    fn request(&mut self, command: &str, expected: &str) -> Result<String, Error> {
        self.write(format!("{command}\n").as_bytes())?;
        let line = self.line()?;
        if value(&line, "cmd") != Some(expected) || value(&line, "rc").is_some_and(|it| it != "0") {
            let name = command.split_once(' ').map_or(command, |it| it.0);
            return Err(Error::kvs("PMI", format!("the reply to {name} is {:?}", shortened(&line))));
        }
        Ok(line)
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT)?;
            match rustix::io::write(&self.socket, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::kvs("PMI", format!("cannot write: {error}"))),
            }
        }
        Ok(())
    }

    fn line(&mut self) -> Result<String, Error> {
        loop {
            if let Some(end) = self.unread.iter().position(|it| *it == b'\n') {
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.unread.len() > MAX_LINE {
                return Err(Error::kvs("PMI", format!("a reply has more than {MAX_LINE} bytes")));
            }
            self.wait(PollFlags::IN)?;
            let mut buffer = [0; 1024];
            match rustix::io::read(&self.socket, &mut buffer) {
                Ok(0) => return Err(Error::kvs("PMI", "the process manager closed the connection")),
                Ok(count) => self.unread.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::kvs("PMI", format!("cannot read: {error}"))),
            }
        }
    }

    fn wait(&self, flags: PollFlags) -> Result<(), Error> {
        pipe::wait(&self.socket, flags, self.deadline).map_err(|error| match error {
            Errno::TIMEDOUT => Error::kvs("PMI", "not all ranks connected in time"),
            error => Error::kvs("PMI", format!("cannot wait: {error}")),
        })
    }

    /// The whole conversation. Rank 0 puts `value`; the other ranks have none and get it.
    fn exchange(&mut self, value_to_put: Option<&str>, timeout: Duration) -> Result<String, Error> {
        self.deadline = Instant::now() + timeout;
        self.request("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = self.request("cmd=get_maxes", "maxes")?;
        let longest = value(&maxes, "vallen_max").and_then(|it| it.parse::<usize>().ok()).unwrap_or(256);
        let reply = self.request("cmd=get_my_kvsname", "my_kvsname")?;
        let name =
            value(&reply, "kvsname").ok_or_else(|| Error::kvs("PMI", "the key-value store has no name"))?;
        if let Some(text) = value_to_put {
            if text.len() >= longest {
                let detail = format!("the value has {} bytes; the limit is {longest}", text.len());
                return Err(Error::kvs("PMI", detail));
            }
            self.request(&format!("cmd=put kvsname={name} key=plumb-rendezvous value={text}"), "put_result")?;
        }
        self.request("cmd=barrier_in", "barrier_out")?;
        let fetched = match value_to_put {
            Some(_) => String::new(),
            None => {
                let line =
                    self.request(&format!("cmd=get kvsname={name} key=plumb-rendezvous"), "get_result")?;
                value(&line, "value")
                    .ok_or_else(|| Error::kvs("PMI", "rank 0 published no value"))?
                    .to_owned()
            }
        };
        self.request("cmd=finalize", "finalize_ack")?;
        Ok(fetched)
    }
}

impl KeyValueStore for Pmi {
    fn name(&self) -> &'static str {
        "PMI"
    }

    fn publish(mut self: Box<Self>, value: &str, timeout: Duration) -> Result<(), Error> {
        self.exchange(Some(value), timeout).map(|_| ())
    }

    fn fetch(mut self: Box<Self>, timeout: Duration) -> Result<String, Error> {
        self.exchange(None, timeout)
    }
}

/// The value of a key in a line of `key=value` words.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|it| it.strip_prefix(key)?.strip_prefix('='))
}

fn shortened(line: &str) -> String {
    line.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Runs the conversation with a process manager that sends these replies; returns the commands it got too.
    fn talk(text: Option<&str>, replies: &[&str]) -> (Result<String, Error>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let mut pmi = Pmi::inherited(ours.as_raw_fd()).expect("a socket");
        drop(ours);
        std::thread::scope(|scope| {
            let result = scope.spawn(move || pmi.exchange(text, Duration::from_secs(20)));
            let mut commands = Vec::new();
            let mut lines = BufReader::new(theirs.try_clone().expect("a socket")).lines();
            for reply in replies {
                commands.extend(lines.next().and_then(Result::ok));
                (&theirs).write_all(reply.as_bytes()).expect("written");
            }
            theirs.shutdown(std::net::Shutdown::Write).expect("shut down");
            commands.extend(lines.map_while(Result::ok));
            (result.join().expect("a thread"), commands)
        })
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    const NAME: &str = "cmd=my_kvsname kvsname=kvs_1_0\n";
    const PUT: &str = "cmd=put_result rc=0 msg=success\n";
    const OUT: &str = "cmd=barrier_out\n";
    const ACK: &str = "cmd=finalize_ack\n";

    #[test]
    fn rank_0_puts() {
        let (result, commands) = talk(Some("h:1/t"), &[INIT, MAXES, NAME, PUT, OUT, ACK]);
        assert_eq!(result, Ok(String::new()));
        assert_eq!(commands[3], "cmd=put kvsname=kvs_1_0 key=plumb-rendezvous value=h:1/t");
        assert_eq!(commands[4..], ["cmd=barrier_in", "cmd=finalize"]);
    }

    #[test]
    fn another_rank_gets() {
        let got = "cmd=get_result rc=0 msg=success value=h:1/t\n";
        let (result, _) = talk(None, &[INIT, MAXES, NAME, OUT, got, ACK]);
        assert_eq!(result, Ok("h:1/t".to_owned()));
    }

    #[test]
    fn invalid_replies() {
        let long = "x".repeat(3 * MAX_LINE);
        for (text, replies, expected) in [
            (None, &["garbage\n"][..], "the reply to cmd=init is"),
            (None, &["cmd=response_to_init rc=-1\n"], "the reply to cmd=init is"),
            (None, &[INIT, MAXES, "cmd=my_kvsname\n"], "the key-value store has no name"),
            (
                None,
                &[INIT, MAXES, NAME, OUT, "cmd=get_result rc=-1 msg=key_not_found\n"],
                "the reply to cmd=get is",
            ),
            (
                Some("h:1/t"),
                &[INIT, "cmd=maxes vallen_max=4\n", NAME],
                "the value has 5 bytes; the limit is 4",
            ),
            (None, &[INIT], "closed"),
            (None, &[long.as_str()], "more than 4096 bytes"),
        ] {
            let error = talk(text, replies).0.expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
