//! Hosts, and the lists of them that users give.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use crate::{Error, expand_hostlist};

/// More hosts in one list are taken for a mistake.
const MAX_HOSTS: usize = 1 << 16;

/// The port of ssh, and the first that is not reserved for the system.
const SSH: u16 = 22;
const PRIVILEGED: u16 = 1024;

/// A host on which something can be started: `node7`, `user@node7:2222`, `[fd00::7]:22`.
///
/// What can be made is safe to give to `ssh`, `srun` and `kubectl` as an argument: letters, digits and `.-_:%` only, and
/// no `-` at the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    name: String,
    user: Option<String>,
    port: Option<u16>,
    slots: Option<usize>,
}

impl Host {
    /// Reads `[user@]name[:port]`, `[user@]address` or `[user@]\[v6 address\]:port`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::host(text, why);
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        if let Some(user) = user {
            let fine = |it: u8| it.is_ascii_alphanumeric() || b"._-+$\\".contains(&it);
            if user.is_empty() || user.len() > 256 || user.starts_with('-') || !user.bytes().all(fine) {
                return Err(wrong("the name of the user is not one"));
            }
        }
        let (name, port) = match place.strip_prefix('[') {
            Some(inner) => {
                let (name, rest) = inner.split_once(']').ok_or_else(|| wrong("a bracket is not closed"))?;
                let port = match rest.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if rest.is_empty() => None,
                    None => return Err(wrong("only :PORT can follow a bracket")),
                };
                (name, port)
            }
            // Several colons are an IPv6 address.
            None => match place.split_once(':') {
                Some((name, port)) if !port.contains(':') => (name, Some(port)),
                _ => (place, None),
            },
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err(wrong("the port is not a number from 1 to 65535")),
        };
        let fine = |it: u8| it.is_ascii_alphanumeric() || b".-_:%".contains(&it);
        if name.is_empty() || name.len() > 253 {
            return Err(wrong("the name is empty or too long"));
        }
        if name.starts_with('-') {
            return Err(wrong("the name begins with a hyphen"));
        }
        if !name.bytes().all(fine) {
            return Err(wrong("the name has other characters than letters, digits and .-_"));
        }
        Ok(Self { name: name.to_owned(), user: user.map(str::to_owned), port, slots: None })
    }

    /// This machine.
    pub fn here() -> Self {
        Self { name: "localhost".to_owned(), user: None, port: None, slots: None }
    }

    /// Its name or address, without user, port and brackets.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The user that logs in there, if the list names one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The port of its ssh server, if the list names one.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// `slots=N` of a hostfile: how many ranks it takes.
    pub const fn slots(&self) -> Option<usize> {
        self.slots
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.port {
            Some(port) if self.name.contains(':') => write!(f, "[{}]:{port}", self.name),
            Some(port) => write!(f, "{}:{port}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The hosts of a list on the command line: `node[01-16]`, `a,b,user@c:2222`, `[fd00::1]:22`. A host that is named twice
/// is an error.
pub fn hosts_of_list(list: &str) -> Result<Vec<Host>, Error> {
    let mut hosts = Vec::new();
    // An IPv6 address in brackets is no range of numbers.
    for element in split_outside_brackets(list) {
        let element = element.trim();
        let is_address = element.split_once('[').is_some_and(|(before, inner)| {
            (before.is_empty() || before.ends_with('@'))
                && inner.contains(':')
                && inner.split(']').next().is_some_and(|it| it.contains(':'))
        });
        if is_address {
            hosts.push(Host::parse(element)?);
        } else {
            let names = expand_hostlist(element, MAX_HOSTS).map_err(|why| Error::host(element, &why))?;
            for name in names {
                hosts.push(Host::parse(&name)?);
            }
        }
    }
    distinct(hosts)
}

/// The hosts of a hostfile, as mpirun and pdsh read it: one per line, or a list as in [`hosts_of_list`]; `#` begins a
/// comment; `slots=8` says how many ranks a host takes, and other settings (`key=value`) are ignored. `node1:8` means the same, as in
/// machinefiles of MPICH and Intel MPI: a number below 1024 but 22 is not a port. A host that is named again is one host with the slots of
/// both lines. Another word after the host is an error: a second host there would be left out.
pub fn hosts_of_file(text: &str) -> Result<Vec<Host>, Error> {
    let mut hosts: Vec<Host> = Vec::new();
    let mut places: BTreeMap<(String, Option<u16>), usize> = BTreeMap::new();
    // Editors of Windows begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let settings = joined(line);
        let mut words = settings.split_whitespace();
        let Some(list) = words.next() else { continue };
        let at = |error: Error| Error::Line { number: number + 1, error: Box::new(error) };
        let mut slots = None;
        for word in words {
            if let Some(count) = word.strip_prefix("slots=") {
                match count.parse::<usize>() {
                    Ok(count) if count > 0 => slots = Some(count),
                    _ => return Err(at(Error::host(line.trim(), "slots= is not followed by a number"))),
                }
            } else if !word.contains('=') {
                let why = "is not a setting (key=value): write one host per line, or a list with commas";
                return Err(at(Error::host(word, why)));
            }
        }
        for mut host in hosts_of_list(list).map_err(at)? {
            host.slots = slots;
            if let Some(ranks) = host.port.filter(|it| *it < PRIVILEGED && *it != SSH && host.user.is_none())
            {
                host.port = None;
                host.slots = slots.or(Some(usize::from(ranks)));
            }
            match places.entry((host.name.clone(), host.port)) {
                Entry::Vacant(place) => {
                    place.insert(hosts.len());
                    hosts.push(host);
                }
                Entry::Occupied(place) => {
                    if let Some(known) = hosts.get_mut(*place.get()) {
                        let both = known.slots.zip(host.slots).map(|(a, b)| a.saturating_add(b));
                        known.slots = both.or(known.slots).or(host.slots);
                    }
                }
            }
        }
        if hosts.len() > MAX_HOSTS {
            return Err(at(Error::host(line.trim(), "too many hosts")));
        }
    }
    if hosts.is_empty() { Err(Error::NoHosts) } else { Ok(hosts) }
}

/// The nodes of the Slurm allocation that this process runs in: `SLURM_JOB_NODELIST`.
pub fn hosts_of_slurm(env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Host>, Error> {
    let names = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];
    let list = names.iter().find_map(|name| env(name).filter(|it| !it.trim().is_empty()));
    let Some(list) = list else {
        return Err(Error::Start {
            detail: "not inside a Slurm allocation (SLURM_JOB_NODELIST is not set): start plumb in salloc or sbatch"
                .to_owned(),
        });
    };
    hosts_of_list(list.trim())
}

/// A line with `slots = 8` as `slots=8`.
fn joined(line: &str) -> String {
    let parts: Vec<&str> = line.split('=').collect();
    let many = parts.len();
    let trimmed = parts.into_iter().enumerate().map(|(at, part)| {
        let part = if at > 0 { part.trim_start() } else { part };
        if at + 1 < many { part.trim_end() } else { part }
    });
    trimmed.collect::<Vec<_>>().join("=")
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut found) = (0_usize, 0, Vec::new());
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&list[begin..]);
    found
}

fn distinct(hosts: Vec<Host>) -> Result<Vec<Host>, Error> {
    let mut seen = std::collections::BTreeSet::new();
    for host in &hosts {
        if !seen.insert((&host.name, host.port)) {
            return Err(Error::host(&host.to_string(), "the host is named twice"));
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(hosts: &[Host]) -> String {
        hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn hosts() {
        for text in
            ["node1", "me@node1", "node1:2222", "me@[fd00::1]:22", "fd00::1", "fe80::1%eth0", "10.0.0.1:1"]
        {
            assert_eq!(Host::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Host::parse("[::1]").expect("an address").to_string(), "::1");
        for wrong in [
            "",
            "-oProxyCommand=x",
            "me@-x",
            "-me@x",
            "a b",
            "a;b",
            "$(x)",
            "a'b",
            "a:0",
            "a:x",
            "@a",
            "[::1",
            "[::1]x",
            "a\n",
            "ä",
            "[-x]:1",
        ] {
            assert!(Host::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lists() {
        let list = |text: &str| hosts_of_list(text).map(|it| shown(&it));
        assert_eq!(list("n[08-10],x"), Ok("n08 n09 n10 x".to_owned()));
        assert_eq!(list("me@n[1-2]:2222"), Ok("me@n1:2222 me@n2:2222".to_owned()));
        assert_eq!(
            list("[fd00::1]:22,me@[fd00::2],fd00::3"),
            Ok("[fd00::1]:22 me@fd00::2 fd00::3".to_owned())
        );
        assert_eq!(list("[1-2].example, b"), Ok("1.example 2.example b".to_owned()));
        for wrong in ["", "a,,b", "a,a", "n[1-2],n2", "n[1-", "n[1-2]]", "a,-b"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn files() {
        let text = "# the nodes\nnode1 slots=8 max_slots=8\n\n  user@node2:2222   slots=4 # spare\r\nnode[3-4]\nfd00::5\n";
        let hosts = hosts_of_file(text).expect("hosts");
        assert_eq!(shown(&hosts), "node1 user@node2:2222 node3 node4 fd00::5");
        assert_eq!(hosts.iter().map(Host::slots).collect::<Vec<_>>(), [Some(8), Some(4), None, None, None]);
        let error = hosts_of_file("a\nb\n-x\n").expect_err("a hyphen").to_string();
        assert!(error.contains("-x") && error.contains("line 3"), "{error}");
        // A second host on a line would be left out without a word.
        let error = hosts_of_file("a\nb c\n").expect_err("two hosts").to_string();
        assert!(error.starts_with("line 2: host \"c\": is not a setting"), "{error}");
        let spaced = hosts_of_file("\u{feff}a slots = 4 max_slots = 8\nb key=value\n").expect("hosts");
        assert_eq!(shown(&spaced), "a b");
        assert_eq!(spaced[0].slots(), Some(4));
        // Machinefiles of MPICH have the number of processes where others have a port.
        let machines = hosts_of_file("a:8\nb[1-2]:96\nc:22\nd:2222\nme@e:443\n").expect("hosts");
        assert_eq!(shown(&machines), "a b1 b2 c:22 d:2222 me@e:443");
        let slots: Vec<_> = machines.iter().map(Host::slots).collect();
        assert_eq!(slots, [Some(8), Some(96), Some(96), None, None, None]);
        let empty = hosts_of_file("# nothing\n").expect_err("no host").to_string();
        assert_eq!(empty, "the file names no host");
        // mpirun takes a host that is named again, and so does plumb.
        let again = hosts_of_file("n1 slots=4\nn2\nn1 slots=4\nn2 slots=2\nn1:22\n").expect("hosts");
        assert_eq!(shown(&again), "n1 n2 n1:22");
        assert_eq!(again.iter().map(Host::slots).collect::<Vec<_>>(), [Some(8), Some(2), None]);
        assert!(hosts_of_file("a slots=x").is_err());
    }

    #[test]
    fn an_allocation() {
        let env = |name: &str| (name == "SLURM_JOB_NODELIST").then(|| "gpu-[1-2],head".to_owned());
        assert_eq!(shown(&hosts_of_slurm(&env).expect("hosts")), "gpu-1 gpu-2 head");
        assert!(hosts_of_slurm(&|_| None).expect_err("none").to_string().contains("salloc"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_host_or_an_error(text in ".{0,40}|[-a-z0-9@:\\[\\],%]{0,40}") {
            for host in Host::parse(&text).into_iter().chain(hosts_of_file(&text).unwrap_or_default()) {
                prop_assert!(!host.name().starts_with('-') && !host.to_string().starts_with('-'));
                prop_assert_eq!(Host::parse(&host.to_string()).map(|it| it.to_string()), Ok(host.to_string()));
            }
        }
    }
}
