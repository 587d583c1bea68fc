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

use super::{Board, pipe};
use crate::Error;
use crate::variables::MAX_RANKS;

/// Longest answer we read. hydra's values have at most 1024 bytes.
const MAX_LINE: usize = 4096;

/// Time for connecting to the process manager and for its first words.
const GREETING: Duration = Duration::from_secs(30);

/// A connection to the process manager.
pub(crate) struct Pmi {
    end: OwnedFd,
    unread: Vec<u8>,
    until: Instant,
}

impl Pmi {
    /// The connection that the process manager passed on in `PMI_FD`.
    pub(crate) fn inherited(fd: RawFd) -> Result<Self, Error> {
        let end = pipe::inherited(fd, FileType::Socket).map_err(|error| {
            Error::variable("PMI_FD", &fd.to_string(), format!("an open socket ({error})"))
        })?;
        Ok(Self::over(end))
    }

    /// Connects to `PMI_PORT`. Returns rank and size too, which are known to the process manager alone.
    pub(crate) fn connect(port: &str, id: usize) -> Result<(Self, usize, usize), Error> {
        let address =
            port.to_socket_addrs().map_err(|error| Error::variable("PMI_PORT", port, error.to_string()))?;
        let mut last = format!("{port} leads nowhere");
        for address in address {
            match TcpStream::connect_timeout(&address, GREETING) {
                Ok(stream) => {
                    let mut this = Self::over(stream.into());
                    let (rank, size) = this.introduce(id)?;
                    return Ok((this, rank, size));
                }
                Err(error) => last = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(Error::board("PMI", last))
    }

    fn over(end: OwnedFd) -> Self {
        Self { end, unread: Vec::new(), until: Instant::now() + GREETING }
    }

    /// Says which process this is; the answer is followed by three settings.
    fn introduce(&mut self, id: usize) -> Result<(usize, usize), Error> {
        self.ask(&format!("cmd=initack pmiid={id}"), "initack")?;
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let line = self.line()?;
            let number =
                |key| value(&line, key).and_then(|it| it.parse::<usize>().ok()).filter(|it| *it <= MAX_RANKS);
            rank = rank.or(number("rank"));
            size = size.or(number("size"));
        }
        rank.zip(size).ok_or_else(|| Error::board("PMI", "it gave no rank and size"))
    }

    /// One question, and the line that answers it.
    fn ask(&mut self, question: &str, answer: &str) -> Result<String, Error> {
        self.write(format!("{question}\n").as_bytes())?;
        let line = self.line()?;
        if value(&line, "cmd") != Some(answer) || value(&line, "rc").is_some_and(|it| it != "0") {
            let asked = question.split_once(' ').map_or(question, |it| it.0);
            return Err(Error::board("PMI", format!("{asked} was answered by {:?}", shortened(&line))));
        }
        Ok(line)
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT)?;
            match rustix::io::write(&self.end, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::board("PMI", format!("cannot write: {error}"))),
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
                return Err(Error::board("PMI", "an answer is too long"));
            }
            self.wait(PollFlags::IN)?;
            let mut buffer = [0; 1024];
            match rustix::io::read(&self.end, &mut buffer) {
                Ok(0) => return Err(Error::board("PMI", "the connection was closed")),
                Ok(count) => self.unread.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::board("PMI", format!("cannot read: {error}"))),
            }
        }
    }

    fn wait(&self, flags: PollFlags) -> Result<(), Error> {
        pipe::wait(&self.end, flags, self.until).map_err(|error| match error {
            Errno::TIMEDOUT => Error::board("PMI", "not all ranks came in time"),
            error => Error::board("PMI", format!("cannot wait: {error}")),
        })
    }

    /// From the first word to the last. `text`: what rank 0 tells.
    fn exchange(&mut self, text: Option<&str>, timeout: Duration) -> Result<String, Error> {
        self.until = Instant::now() + timeout;
        self.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = self.ask("cmd=get_maxes", "maxes")?;
        let longest = value(&maxes, "vallen_max").and_then(|it| it.parse::<usize>().ok()).unwrap_or(256);
        let name = self.ask("cmd=get_my_kvsname", "my_kvsname")?;
        let name = value(&name, "kvsname").ok_or_else(|| Error::board("PMI", "the board has no name"))?;
        if let Some(text) = text {
            if text.len() >= longest {
                return Err(Error::board("PMI", format!("a value has less than {longest} bytes")));
            }
            self.ask(&format!("cmd=put kvsname={name} key=plumb-meeting value={text}"), "put_result")?;
        }
        self.ask("cmd=barrier_in", "barrier_out")?;
        let told = match text {
            Some(_) => String::new(),
            None => {
                let line = self.ask(&format!("cmd=get kvsname={name} key=plumb-meeting"), "get_result")?;
                value(&line, "value").ok_or_else(|| Error::board("PMI", "rank 0 told nothing"))?.to_owned()
            }
        };
        self.ask("cmd=finalize", "finalize_ack")?;
        Ok(told)
    }
}

impl Board for Pmi {
    fn name(&self) -> &'static str {
        "PMI"
    }

    fn publish(mut self: Box<Self>, text: &str, timeout: Duration) -> Result<(), Error> {
        self.exchange(Some(text), timeout).map(|_| ())
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

    /// What a board says to a process manager with these answers.
    fn talk(text: Option<&str>, answers: &[&str]) -> (Result<String, Error>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let mut pmi = Pmi::inherited(ours.as_raw_fd()).expect("a socket");
        drop(ours);
        std::thread::scope(|scope| {
            let result = scope.spawn(move || pmi.exchange(text, Duration::from_secs(20)));
            let mut asked = Vec::new();
            let mut lines = BufReader::new(theirs.try_clone().expect("a socket")).lines();
            for answer in answers {
                asked.extend(lines.next().and_then(Result::ok));
                (&theirs).write_all(answer.as_bytes()).expect("written");
            }
            theirs.shutdown(std::net::Shutdown::Write).expect("shut down");
            asked.extend(lines.map_while(Result::ok));
            (result.join().expect("a thread"), asked)
        })
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n";
    const NAME: &str = "cmd=my_kvsname kvsname=kvs_1_0\n";
    const PUT: &str = "cmd=put_result rc=0 msg=success\n";
    const OUT: &str = "cmd=barrier_out\n";
    const ACK: &str = "cmd=finalize_ack\n";

    #[test]
    fn rank_zero_tells() {
        let (result, asked) = talk(Some("h:1/t"), &[INIT, MAXES, NAME, PUT, OUT, ACK]);
        assert_eq!(result, Ok(String::new()));
        assert_eq!(asked[3], "cmd=put kvsname=kvs_1_0 key=plumb-meeting value=h:1/t");
        assert_eq!(asked[4..], ["cmd=barrier_in", "cmd=finalize"]);
    }

    #[test]
    fn another_rank_learns() {
        let got = "cmd=get_result rc=0 msg=success value=h:1/t\n";
        let (result, _) = talk(None, &[INIT, MAXES, NAME, OUT, got, ACK]);
        assert_eq!(result, Ok("h:1/t".to_owned()));
    }

    #[test]
    fn what_a_process_manager_may_not_say() {
        let long = "x".repeat(3 * MAX_LINE);
        for (text, answers, expected) in [
            (None, &["garbage\n"][..], "cmd=init was answered by"),
            (None, &["cmd=response_to_init rc=-1\n"], "cmd=init was answered by"),
            (None, &[INIT, MAXES, "cmd=my_kvsname\n"], "the board has no name"),
            (
                None,
                &[INIT, MAXES, NAME, OUT, "cmd=get_result rc=-1 msg=key_not_found\n"],
                "cmd=get was answered by",
            ),
            (Some("h:1/t"), &[INIT, "cmd=maxes vallen_max=4\n", NAME], "less than 4 bytes"),
            (None, &[INIT], "closed"),
            (None, &[long.as_str()], "too long"),
        ] {
            let error = talk(text, answers).0.expect_err(expected);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
