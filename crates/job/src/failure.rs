//! What lines of failures say: which only pass on another's failure, how processes ended, when.

use std::collections::BTreeSet;

use evidence::catalogue::class_of;
use evidence::signals::ended::{
    ELASTIC_EXIT, ELASTIC_FAILED, ELASTIC_RANK, ELASTIC_ROOT, ELASTIC_TABLE, MPI_CODE, MPI_FAILED,
    MPI_PROCESS, MPI_SIGNAL, MPI_SIGNAL_NAME, WORKER_ENDED,
};
use evidence::signals::{self, rccl::RCCL_ADVICE};
use evidence::{Case, Quote, Sighting};
use messages::family::Class;
use messages::values::{self, Table};

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

/// Whether a warning of NCCL is one that healthy jobs print.
pub fn is_harmless(text: &str) -> bool {
    let advice = || {
        text.contains("which can lead to")
            && signals::book().find(text.as_bytes()).iter().any(|it| *it.signal == RCCL_ADVICE)
    };
    class_of(text) == Some(Class::Harmless) || advice()
}

/// Whether a text only reports the failure of another rank.
pub fn is_messenger(text: &str) -> bool {
    MESSENGERS.iter().any(|it| text.contains(it)) || class_of(text) == Some(Class::Consequence)
}

/// The peer's name or address in a line about it: ` node-2<53964>`, ` from 10.0.0.1<5>`.
pub fn peer(sighting: &Sighting) -> Option<&str> {
    let text = sighting.get("peer").trim().trim_start_matches("from ").trim_start_matches("to ");
    let end = text.find(['<', ' ', ']']).unwrap_or(text.len());
    text.get(..end).filter(|it| !it.is_empty())
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
        "CUDA out of memory",
        "ECC",
        "CUDA error",
        "shared memory",
        "Bus error",
    ]
    .iter()
    .any(|it| text.contains(it))
}

/// Whether a text passes on what another process or the network did, rather than a fault of its own process.
pub fn passes_on(text: &str) -> bool {
    static REMOTE: &[&str] = &[
        "remote process exited",
        "remote peer",
        "by peer",
        "Connection",
        "connection",
        "Broken pipe",
        "timed out",
        "Timed out",
        "timeout",
        "Timeout",
        "DistStore",
        "Store",
        "Rendezvous",
        "monitoredBarrier",
        "ChildFailed",
        "another task died",
        "Horovod has been shut down",
        "aborted on rank",
        "Process group watchdog thread terminated",
        "taking the entire process down",
        "To avoid data inconsistency",
        "to avoid data inconsistency",
        "terminate called",
        "what():  [PG",
        "RayTaskError",
        "ActorDied",
        "EngineDead",
        "ncclRemoteError",
        "collectives on ranks",
        "Root Cause (first observed failure)",
        "died unexpectedly",
    ];
    is_messenger(text) || REMOTE.iter().any(|it| text.contains(it))
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

    /// Whether a fault of the program ended it: SIGILL, SIGBUS, SIGFPE, SIGSEGV.
    pub fn is_crash(&self) -> bool {
        matches!(self.signal(), Some(4 | 7 | 8 | 11))
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
            Some(number) => match values::find(Table::Signal, number.into()) {
                Some(known) => format!("signal {number} ({})", known.name),
                None => format!("signal {number}"),
            },
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
    let listed = case.sightings_of(&ELASTIC_TABLE).map(|it| it.get("host"));
    let hosts: BTreeSet<&str> =
        case.processes.iter().map(|it| &*it.host).chain(listed).filter(|it| !it.is_empty()).collect();
    let host = hosts.first().filter(|_| hosts.len() == 1);
    for (at, rank) in ranks.iter().enumerate() {
        let next = ranks.get(at + 1).map(|it| it.quote.spot);
        let code = case
            .sightings_of(&ELASTIC_EXIT)
            .find(|it| it.quote.spot > rank.quote.spot && next.is_none_or(|next| it.quote.spot < next));
        let Some((code, value)) = code.and_then(|it| Some((it, number(it.get("code"))?))) else { continue };
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

/// A time as answers show it, without fraction: `2026-11-15 23:39:22`. glog leaves out the year, which another line may have.
pub fn written(case: &Case, text: &str) -> String {
    let Some(it) = timestamp(text) else { return text.to_owned() };
    let seconds = it.nanoseconds / 1_000_000_000;
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let Some(day) = it.day else { return clock };
    let date =
        |text: &str| text.get(..10).filter(|it| it.as_bytes().get(4) == Some(&b'-')).map(str::to_owned);
    let warnings = case.processes.iter().flat_map(|it| &it.facts.warnings.first).map(|it| &it.time);
    let all = warnings.chain(case.sightings.iter().map(|it| &it.time)).flatten();
    let same = || {
        let mut dates = all.filter_map(|other| {
            date(other).filter(|_| timestamp(other).is_some_and(|it| it.day == Some(day)))
        });
        dates.next()
    };
    let date = date(text).or_else(same).unwrap_or_else(|| format!("{:02}-{:02}", day.month, day.day));
    format!("{date} {clock}")
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

    use super::{exits, timestamp, written};
    use crate::culprit::first_failure;
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
    fn times_have_one_form() {
        let nccl = "[2026-11-15 02:54:41] a:1:2 [0] x.cc:1 NCCL WARN Cuda failure 'x'\n";
        for (log, text, want) in [
            ("", "2026-11-15T23:39:22.5", "2026-11-15 23:39:22"),
            ("", "1115 23:39:22.829409525", "11-15 23:39:22"),
            (nccl, "1115 23:39:22.829409525", "2026-11-15 23:39:22"),
            (nccl, "1116 23:39:22", "11-16 23:39:22"),
            ("", "3:04:05", "03:04:05"),
        ] {
            assert_eq!(written(&case(log), text), want, "{text}");
        }
    }

    #[test]
    fn timestamps_compare() {
        assert!(timestamp("2025-11-29 11:56:57") < timestamp("1129 11:56:57.642513817"));
        assert!(timestamp("12:34:56") < timestamp("12:34:56,5"));
        assert_eq!(timestamp("x"), None);
    }
}
