//! The first failure of a job.
//!
//! When one rank fails, the others lose their connections, wait until a
//! timeout, are ended by the launcher. Most lines of a failed job come from
//! these ranks, the messengers: they report a failure and did not cause it. The first failure is found by the times of the lines
//! where all have one, by their order in one file, and otherwise by leaving
//! the messengers out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use evidence::facts::Warning;
use evidence::signals::application::{
    CLOSED, CRASH, ELASTIC_EXIT, ELASTIC_FAILED, ELASTIC_RANK, ELASTIC_ROOT, FINGERPRINT, GLOO_CLOSED,
    MPI_CODE, MPI_FAILED, MPI_PROCESS, MPI_SIGNAL, MPI_SIGNAL_NAME, OUT_OF_MEMORY, RANK_EXCEPTION,
    REMOTE_ERROR, WATCHDOG_TIMEOUT, WORKER_ENDED,
};
use evidence::{Case, Kind, Process, Quote, Sighting};
use messages::family::Class;

use crate::watchdog::progress;

/// The earliest failure of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFailure {
    /// The rank it happened on.
    pub rank: Option<u32>,
    /// The host it happened on.
    pub host: Option<String>,
    /// The time, as the line gives it.
    pub time: Option<String>,
    /// What failed.
    pub what: String,
    /// The line.
    pub quote: Quote,
    /// Whether times or the order of one file decided it.
    pub certain: bool,
}

/// Finds the earliest failure over all ranks.
pub fn first_failure(case: &Case) -> Option<FirstFailure> {
    if let Some(odd) = odd_one_out(case) {
        return Some(odd);
    }
    let mut candidates = candidates(case);
    if candidates.iter().all(|it| it.messenger)
        && let Some(absent) = absent(case)
    {
        return Some(absent);
    }
    // A messenger's text that is repeated without its time orders nothing.
    if candidates.iter().any(|it| it.time.is_some()) {
        candidates.retain(|it| !it.messenger || it.time.is_some());
    }
    let first = candidates.first()?;
    let timestamps: Option<Vec<Timestamp>> =
        candidates.iter().map(|it| it.time.as_deref().and_then(timestamp)).collect();
    let timed = timestamps.filter(|all| all.iter().all(|it| it.day.is_some() == all[0].day.is_some()));
    let one_file = candidates.iter().all(|it| case.locate(&it.quote).0 == case.locate(&first.quote).0);
    let (chosen, certain) = if let Some(timestamps) = timed {
        // Of equal timestamps the line that is not a messenger is the earlier one.
        let order = |at: &usize| (timestamps[*at], candidates[*at].messenger, candidates[*at].quote.spot);
        let at = (0..candidates.len()).min_by_key(order)?;
        (&candidates[at], true)
    } else if one_file {
        (candidates.iter().min_by_key(|it| it.quote.spot)?, true)
    } else {
        let causes = candidates.iter().filter(|it| !it.messenger);
        let chosen = causes.min_by_key(|it| it.quote.spot).unwrap_or(first);
        (chosen, candidates.len() == 1)
    };
    Some(FirstFailure {
        rank: chosen.rank,
        host: chosen.host.clone(),
        time: chosen.time.clone(),
        what: chosen.what.clone(),
        quote: chosen.quote.clone(),
        certain,
    })
}

/// PyTorch compared the calls of the ranks in pairs: the rank that most of the others differ from.
fn odd_one_out(case: &Case) -> Option<FirstFailure> {
    let mut named: BTreeMap<u32, u32> = BTreeMap::new();
    let said: Vec<_> = case.sightings_of(&FINGERPRINT).collect();
    for sighting in &said {
        for part in sighting.get("what").split("Rank ").skip(1) {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            if let Ok(rank) = digits.parse() {
                *named.entry(rank).or_default() += 1;
            }
        }
    }
    let (&rank, &most) = named.iter().max_by_key(|it| it.1)?;
    if named.values().filter(|it| **it == most).count() > 1 || said.len() < 2 {
        return None;
    }
    Some(FirstFailure {
        rank: Some(rank),
        host: case.processes.iter().find(|it| it.rank == Some(rank)).map(|it| it.host.to_string()),
        time: said.first()?.time.as_deref().map(str::to_owned),
        what: "called a different collective than the other ranks, or the same with a different size"
            .to_owned(),
        quote: said.first()?.quote.clone(),
        certain: true,
    })
}

struct Candidate {
    rank: Option<u32>,
    host: Option<String>,
    time: Option<String>,
    what: String,
    quote: Quote,
    messenger: bool,
}

/// Texts of ranks that only report the failure of another.
static MESSENGERS: &[&str] = &[
    "Connection closed by remote peer",
    "Connection reset by peer",
    "Broken pipe",
    "Failed to execute operation",
    "Socket recv failed while polling",
    "Proxy Call to rank",
    "remote process exited or there was a network error",
    "ncclRemoteError",
    "with error 5,",
    "status=5 ",
    "WR_FLUSH",
];

/// Words of kernel messages that report a failure.
static KERNEL: &[&str] =
    &["Xid", "Out of memory", "oom-kill", "fallen off the bus", "Machine Check", "segfault at"];

fn candidates(case: &Case) -> Vec<Candidate> {
    let mut all = Vec::new();
    for process in &case.processes {
        for Warning { quote, time } in &process.facts.warnings.first {
            if is_harmless(&quote.text) {
                continue;
            }
            let what = quote.text.split_once("NCCL WARN ").map_or(&*quote.text, |it| it.1);
            all.push(Candidate {
                rank: process.rank,
                host: (!process.host.is_empty()).then(|| process.host.to_string()),
                time: time.as_deref().map(str::to_owned),
                what: what.trim().to_owned(),
                quote: quote.clone(),
                messenger: is_messenger(&quote.text),
            });
        }
    }
    for sighting in case.sightings.iter().filter(|it| !it.warning) {
        let signal = sighting.signal;
        let messenger = [&CLOSED, &GLOO_CLOSED, &REMOTE_ERROR, &WATCHDOG_TIMEOUT].contains(&signal);
        let what = if *signal == RANK_EXCEPTION {
            let Some(what) = exception(sighting) else { continue };
            what
        } else {
            let text = sighting.quote.text.trim();
            let kernel = signal.kind == Kind::KernelLog && KERNEL.iter().any(|it| text.contains(it));
            if !(messenger || kernel || [&CRASH, &OUT_OF_MEMORY, &FINGERPRINT].contains(&signal)) {
                continue;
            }
            // The other fields hold what a launcher or a logger puts before the message.
            text.rsplit("] ").next().unwrap_or(text).to_owned()
        };
        all.push(Candidate {
            rank: case.rank_of(sighting),
            host: sighting.process.as_ref().map(|it| it.host.to_string()),
            time: sighting.time.as_deref().map(str::to_owned),
            what,
            quote: sighting.quote.clone(),
            messenger,
        });
    }
    all.sort_by_key(|it| it.quote.spot);
    all
}

/// What the catalogue of messages knows about a line of NCCL or libfabric.
pub fn messages_about(line: &str) -> Option<messages::Known<'_>> {
    evidence::catalogue::known(line)
}

/// Whether a warning of NCCL is one that healthy jobs print.
pub fn is_harmless(line: &str) -> bool {
    messages_about(line).and_then(|it| it.class()) == Some(Class::Harmless)
}

/// Whether a text only reports the failure of another rank.
pub fn is_messenger(text: &str) -> bool {
    MESSENGERS.iter().any(|it| text.contains(it))
        || (text.contains("NCCL WARN")
            && messages_about(text).and_then(|it| it.class()) == Some(Class::Consequence))
}

/// A failure that only others report: of a process that ended, of one that is silent, of one that did not join.
fn absent(case: &Case) -> Option<FirstFailure> {
    if let Some(exit) = exits(case).into_iter().find(Exit::is_own) {
        let what = format!("ended with {}", exit.describe());
        return Some(FirstFailure {
            rank: exit.rank,
            host: exit.host,
            time: None,
            what,
            quote: exit.quote,
            certain: true,
        });
    }
    let closed: Vec<&Sighting> = case.sightings_of(&CLOSED).collect();
    let timeout = case.sightings_of(&WATCHDOG_TIMEOUT).next();
    let closed_first =
        closed.first().is_some_and(|closed| timeout.is_none_or(|timeout| precedes(closed, timeout)));
    if closed_first {
        let process = silent_peer(case, &closed)?;
        return Some(FirstFailure {
            rank: process.rank,
            host: Some(process.host.to_string()),
            time: closed[0].time.as_deref().map(str::to_owned),
            what: "ended without an error message; its peers lost the connection".to_owned(),
            quote: closed[0].quote.clone(),
            certain: false,
        });
    }
    let all = progress(case);
    let last = all.values().map(|it| it.enqueued).max()?;
    let behind: Vec<_> = all.iter().filter(|it| it.1.enqueued < last).collect();
    let [(rank, status)] = behind.as_slice() else { return None };
    Some(FirstFailure {
        rank: Some(**rank),
        host: None,
        time: status.sighting.time.as_deref().map(str::to_owned),
        what: format!("had not enqueued collective {last}, in which the others waited"),
        quote: status.sighting.quote.clone(),
        certain: all.len() > 2,
    })
}

/// The peer's name or address in a line about it: ` node-2<53964>`, ` from 10.0.0.1<5>`.
pub fn peer(sighting: &Sighting) -> Option<&str> {
    let text = sighting.get("peer").trim().trim_start_matches("from ").trim_start_matches("to ");
    let end = text.find(['<', ' ', ']']).unwrap_or(text.len());
    text.get(..end).filter(|it| !it.is_empty())
}

/// The process that most others lost and that reports nothing itself.
pub fn silent_peer<'a>(case: &'a Case, lost: &[&Sighting]) -> Option<&'a Process> {
    let mut votes: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
    for sighting in lost {
        let Some(peer) = peer(sighting) else { continue };
        let short =
            if peer.parse::<IpAddr>().is_ok() { peer } else { peer.split('.').next().unwrap_or(peer) };
        let is_peer = |process: &Process| {
            let address =
                process.facts.bootstrap.value().into_iter().flatten().any(|it| &*it.address == peer);
            &*process.host == short || address
        };
        let here: Vec<usize> = (0..case.processes.len()).filter(|at| is_peer(&case.processes[*at])).collect();
        // Several processes of one host cannot be distinguished by its name.
        if let [one] = here.as_slice() {
            let reporter = sighting.process.as_ref().map_or("", |it| &*it.host);
            votes.entry(*one).or_default().insert(reporter);
        }
    }
    let complains = |rank: u32| {
        let signals = [&WATCHDOG_TIMEOUT, &RANK_EXCEPTION, &REMOTE_ERROR];
        case.sightings.iter().any(|it| signals.contains(&it.signal) && case.rank_of(it) == Some(rank))
    };
    let silent = votes.into_iter().filter(|(at, _)| {
        let process = &case.processes[*at];
        process.facts.warnings.count == 0 && !process.rank.is_some_and(complains)
    });
    let (at, _) = silent.max_by_key(|it| it.1.len())?;
    case.processes.get(at)
}

/// The text of an exception that ended a rank, unless it only passes on an error of NCCL.
pub fn exception(sighting: &Sighting) -> Option<String> {
    let (kind, text) = (sighting.get("error"), sighting.get("text"));
    let is_name = kind.chars().all(|it| it.is_ascii_alphanumeric() || it == '.' || it == '_');
    if !is_name || kind.contains("ChildFailed") || names_nccl(kind) || names_nccl(text) {
        return None;
    }
    let kind = if kind.is_empty() && !sighting.quote.text.contains(": Error: ") {
        sighting.quote.text.split(": ").next().unwrap_or_default()
    } else {
        kind
    };
    Some(format!("{kind}Error: {text}"))
}

/// Whether an exception only passes on what NCCL, the store or the network reported.
pub fn names_nccl(text: &str) -> bool {
    [
        "DistBackend",
        "DistNetwork",
        "DistStore",
        "NCCL",
        "nccl",
        "c10d",
        "store",
        "Store",
        "Connection",
        "connect",
        "Socket",
        "gloo",
        "Rendezvous",
        "timed out",
        "Timed out",
        "collectives on ranks",
        "Broken pipe",
        "Address already in use",
        "invalid device ordinal",
        "process group",
        "CUDA out of memory",
        "ECC",
        "CUDA error",
        "shared memory",
        "Bus error",
    ]
    .iter()
    .any(|it| text.contains(it))
}

/// How a process ended, as its launcher reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The rank, where the launcher names it.
    pub rank: Option<u32>,
    /// The host, where the launcher names it.
    pub host: Option<String>,
    /// The exit code; negative for a signal.
    pub code: i32,
    /// The launcher's line.
    pub quote: Quote,
}

impl Exit {
    /// Whether it ended by itself, rather than because others had.
    pub fn is_own(&self) -> bool {
        !matches!(self.code, 0 | -15 | 143 | -6 | 134)
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        match self.code {
            -64..=-1 => Some(-self.code),
            129..=192 => Some(self.code - 128),
            _ => None,
        }
    }

    /// `signal 9 (SIGKILL)`, `exit code 1`
    pub fn describe(&self) -> String {
        match self.signal() {
            Some(4) => "signal 4 (SIGILL)".to_owned(),
            Some(6) => "signal 6 (SIGABRT)".to_owned(),
            Some(7) => "signal 7 (SIGBUS)".to_owned(),
            Some(9) => "signal 9 (SIGKILL)".to_owned(),
            Some(11) => "signal 11 (SIGSEGV)".to_owned(),
            Some(15) => "signal 15 (SIGTERM)".to_owned(),
            Some(other) => format!("signal {other}"),
            None => format!("exit code {}", self.code),
        }
    }
}

/// How processes ended, the first failure first where the launcher says which that was.
pub fn exits(case: &Case) -> Vec<Exit> {
    let number = |text: &str| text.trim().trim_end_matches('.').parse::<i32>().ok();
    let mut all = Vec::new();
    // torchrun's table: each `rank` line is followed by its `exitcode` line.
    let ranks: Vec<_> = case.sightings_of(&ELASTIC_RANK).collect();
    let hosts: Vec<_> = case.processes.iter().map(|it| &it.host).collect();
    for (at, rank) in ranks.iter().enumerate() {
        let next = ranks.get(at + 1).map(|it| it.quote.spot);
        let code = case
            .sightings_of(&ELASTIC_EXIT)
            .find(|it| it.quote.spot > rank.quote.spot && next.is_none_or(|next| it.quote.spot < next));
        let Some((code, value)) = code.and_then(|it| Some((it, number(it.get("code"))?))) else { continue };
        let host = hosts.first().filter(|first| hosts.iter().all(|it| it == *first) && !first.is_empty());
        all.push(Exit {
            rank: rank.get("rank").parse().ok(),
            host: host.map(ToString::to_string),
            code: value,
            quote: code.quote.clone(),
        });
    }
    if let Some(root) = case.sightings_of(&ELASTIC_ROOT).next() {
        // The entry after the heading failed first.
        all.sort_by_key(|it| (it.quote.spot < root.quote.spot, it.quote.spot));
    }
    if all.is_empty() {
        all.extend(case.sightings_of(&ELASTIC_FAILED).filter_map(|it| {
            Some(Exit { rank: None, host: None, code: number(it.get("code"))?, quote: it.quote.clone() })
        }));
    }
    all.extend(case.sightings_of(&MPI_SIGNAL).filter_map(|it| {
        let host = (!it.get("host").is_empty()).then(|| it.get("host").to_owned());
        let signal = || case.sightings_of(&MPI_SIGNAL_NAME).next().and_then(|it| number(it.get("signal")));
        Some(Exit {
            rank: it.get("rank").parse().ok(),
            host,
            code: -number(it.get("signal")).or_else(signal)?,
            quote: it.quote.clone(),
        })
    }));
    if case.first_of(&[&MPI_FAILED]).is_some() {
        let code = case.sightings_of(&MPI_CODE).next();
        let process = case.sightings_of(&MPI_PROCESS).next();
        if let Some((code, value)) = code.and_then(|it| Some((it, number(it.get("code"))?))) {
            let rank = process
                .and_then(|it| it.get("name").trim_end_matches([']', '.']).rsplit(',').next()?.parse().ok());
            all.push(Exit { rank, host: None, code: value, quote: process.unwrap_or(code).quote.clone() });
        }
    }
    all.extend(case.sightings_of(&WORKER_ENDED).filter_map(|it| {
        let what = [it.get("what"), it.get("signal")].concat();
        let code = match what.as_str() {
            what if what.contains("Segmentation fault") || what.contains("SIGSEGV") => -11,
            what if what.contains("Killed") || what.contains("Out Of Memory") || what.contains("SIGKILL") => {
                -9
            }
            what if what.contains("Terminated") || what.contains("SIGTERM") => -15,
            what if what.contains("Aborted") || what.contains("SIGABRT") => -6,
            what if what.contains("Bus error") || what.contains("SIGBUS") => -7,
            what => number(what.rsplit(' ').next()?).or_else(|| number(it.get("code")))?,
        };
        let host = (!it.get("host").is_empty()).then(|| it.get("host").to_owned());
        Some(Exit { rank: it.get("rank").parse().ok(), host, code, quote: it.quote.clone() })
    }));
    all
}

/// A day of a year that logs leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day {
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
}

/// A time of day, with its day where the text has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// The day, where the text has one.
    pub day: Option<Day>,
    /// Since midnight.
    pub nanoseconds: u64,
}

/// Reads `2025-10-16 22:16:08`, `1129 11:56:57.642513817`, `12:34:56`.
pub fn timestamp(text: &str) -> Option<Timestamp> {
    let (date, time) = match text.rsplit_once([' ', 'T', '_']) {
        Some((date, time)) => (date, time),
        None => ("", text),
    };
    let digits = |text: &str| text.parse::<u32>().ok();
    let day = match date.len() {
        10 => Some(Day { month: digits(date.get(5..7)?)?, day: digits(date.get(8..10)?)? }),
        4 => Some(Day { month: digits(date.get(..2)?)?, day: digits(date.get(2..)?)? }),
        _ => None,
    };
    let (clock, fraction) = time.split_once(['.', ',']).unwrap_or((time, ""));
    let mut seconds = 0_u64;
    for part in clock.split(':') {
        seconds = seconds.checked_mul(60)?.checked_add(digits(part)?.into())?;
    }
    let fraction: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds = seconds.checked_mul(1_000_000_000)?.checked_add(digits(&fraction)?.into())?;
    Some(Timestamp { day, nanoseconds })
}

/// Whether one sighting came before another: by time, or by position where times do not decide.
pub fn precedes(one: &Sighting, other: &Sighting) -> bool {
    let time = |it: &Sighting| it.time.as_deref().and_then(timestamp);
    match (time(one), time(other)) {
        (Some(a), Some(b)) if a.day.is_some() == b.day.is_some() => {
            // NCCL's times have no fraction: within one second the position decides.
            let (x, y) = (a.nanoseconds / 1_000_000_000, b.nanoseconds / 1_000_000_000);
            if (a.day, x) == (b.day, y) { one.quote.spot < other.quote.spot } else { (a.day, x) < (b.day, y) }
        }
        _ => one.quote.spot < other.quote.spot,
    }
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::{exits, first_failure, timestamp};
    use crate::testing::case;

    #[test]
    fn times_decide_over_files() {
        let late = "[2025-10-16 22:16:09] a:1:1 [0] x.cc:1 NCCL WARN Cuda failure 'out of memory'\n";
        let early = "[2025-10-16 22:16:08] b:1:1 [0] x.cc:1 NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error\n";
        let it = first_failure(&read_texts([("a", late.as_bytes()), ("b", early.as_bytes())])).unwrap();
        assert_eq!((it.host.as_deref(), it.certain), (Some("b"), true));
    }

    #[test]
    fn the_order_of_one_file_decides_without_times() {
        let log =
            "a:1:1 [0] x.cc:1 NCCL WARN Cuda failure 'x'\nb:1:1 [0] x.cc:1 NCCL WARN Cuda failure 'y'\n";
        let it = first_failure(&case(log)).unwrap();
        assert_eq!((it.host.as_deref(), it.what.as_str(), it.certain), (Some("a"), "Cuda failure 'x'", true));
    }

    #[test]
    fn messengers_are_left_out_where_nothing_orders() {
        let victim = "a:1:1 [0] misc/socket.cc:1 NCCL WARN Net : Connection closed by remote peer b<1>\n";
        let cause = "b:1:1 [0] x.cc:1 NCCL WARN Cuda failure 'out of memory'\n";
        let it = first_failure(&read_texts([("a", victim.as_bytes()), ("b", cause.as_bytes())])).unwrap();
        assert_eq!((it.host.as_deref(), it.certain), (Some("b"), false));
    }

    #[test]
    fn tracebacks_count_and_nccls_own_words_do_not() {
        let log = "[rank2]: ValueError: loss is nan at step 4\n\
                   [rank3]: torch.distributed.DistBackendError: NCCL error in: x, remote process exited or there was a network error\n";
        let it = first_failure(&case(log)).unwrap();
        assert_eq!((it.rank, it.what.as_str()), (Some(2), "ValueError: loss is nan at step 4"));
    }

    #[test]
    fn the_silent_and_the_absent_are_found_through_others() {
        let start = "a:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nb:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.2<0>\n";
        let closed = "[2026-11-15 02:54:41] a:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer b<5>\n";
        let it = first_failure(&case(&format!("{start}{closed}"))).unwrap();
        assert_eq!((it.host.as_deref(), it.certain), (Some("b"), false));
        let killed = "Root Cause (first observed failure):\n  rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 3)\n";
        let it = first_failure(&case(&format!("{start}{closed}{killed}"))).unwrap();
        assert_eq!((it.rank, it.what.as_str()), (Some(2), "ended with signal 9 (SIGKILL)"));
    }

    #[test]
    fn a_healthy_job_has_none() {
        assert!(
            first_failure(&case("a:1:1 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"))
                .is_none()
        );
        assert!(first_failure(&case("")).is_none());
    }

    #[test]
    fn reads_how_processes_ended() {
        let table = "  rank      : 0 (local_rank: 0)\n  exitcode  : -15 (pid: 1)\nRoot Cause (first observed failure):\n[0]:\n  \
                     rank      : 2 (local_rank: 2)\n  exitcode  : -9 (pid: 3)\n";
        let all = exits(&case(table));
        assert_eq!(
            (all[0].rank, all[0].describe().as_str(), all[0].is_own()),
            (Some(2), "signal 9 (SIGKILL)", true)
        );
        assert!(!all[1].is_own());
        let mpi = "mpirun detected that one or more processes exited with non-zero status, thus causing\n  \
                   Process name: [[25735,1],1]\n  Exit code:    2\n";
        assert_eq!(exits(&case(mpi))[0].rank, Some(1));
        let srun = "srun: error: n3: task 12: Segmentation fault (core dumped)\nsrun: error: n1: task 1: Exited with exit code 1\n";
        let all = exits(&case(srun));
        assert_eq!((all[0].code, all[0].rank, all[1].code), (-11, Some(12), 1));
    }

    #[test]
    fn signals_stand_on_the_same_line_or_on_the_next() {
        let one = "mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed).\n";
        let two = "prterun noticed that process rank 3 with PID 3201 on node n2 exited on\nsignal 11 (Segmentation fault: 11).\n";
        let hydra = "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 139\n";
        let spawn = "ProcessExitedException: process 1 terminated with signal SIGKILL\n";
        let signal = |text: &str| exits(&case(text))[0].signal();
        assert_eq!([one, two, hydra, spawn].map(signal), [Some(9), Some(11), Some(11), Some(9)]);
    }

    #[test]
    fn timestamps_compare() {
        assert!(timestamp("2025-11-29 11:56:57") < timestamp("1129 11:56:57.642513817"));
        assert!(timestamp("12:34:56") < timestamp("12:34:56,5"));
        assert_eq!(timestamp("x"), None);
    }
}
