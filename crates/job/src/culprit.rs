//! Which rank failed first, and who only reports it.
//!
//! When one rank fails, the others lose their connections, wait until a timeout, are ended by the launcher. Most lines of a
//! failed job come from these ranks, the messengers. Every line that reports a failure is therefore a report: of the rank's own
//! failure, or of another's. Own failures come first, ordered by time, by place in one file, or by whom the messengers blame. Where
//! nobody reports a failure of its own, the rank that the first messenger blames is the one that ended; where ranks only wait,
//! it is the one that is behind, or that says nothing at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use evidence::ending::{self, Ending};
use evidence::facts::Warning;
use evidence::signals::application::OUT_OF_MEMORY;
use evidence::signals::collectives::{DESYNC, FINGERPRINT, MISSING_RANKS, STORE_TIMEOUT, WATCHDOG_TIMEOUT};
use evidence::signals::ended::{CLOSED, GLOO_CLOSED, REMOTE_ERROR, STORE_CLOSED};
use evidence::signals::launch::{CLIENTS_JOINED, MONITORED_BARRIER, STORE_BARRIER_TIMEOUT};
use evidence::{Case, Kind, Process, Quote, Sighting};

use crate::failure::{
    Exit, Timestamp, exits, is_harmless, is_messenger, passes_on, peer, timestamp, written,
};
use crate::finished::left_early;
use crate::outcome::survived;
use crate::recorder;
use crate::watchdog::progress;
use crate::whose::{Owners, rank_of_pid};

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
    /// What is known of it.
    pub kind: FailureKind,
}

/// What is known of the earliest failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The rank reports it of itself.
    Own,
    /// The process ended: its launcher says so, or its peers lost it.
    Ended,
    /// The rank finished while the others still waited for it.
    Finished,
    /// The rank came late: it had not called the collective in which the others waited.
    Behind,
    /// The rank did not come where the others waited, and nothing says why.
    Absent,
    /// Only those that wait or were cut off report anything.
    Reported,
}

/// A line that reports a failure.
#[derive(Debug, Clone)]
struct Report {
    rank: Option<u32>,
    host: Option<String>,
    time: Option<String>,
    what: String,
    quote: Quote,
    /// It reports the failure of another process.
    messenger: bool,
    /// The host or address of the process that it lost.
    blames: Option<String>,
    /// It waited for the store, as every rank does whose peer does not come.
    waits: bool,
}

impl Report {
    fn timestamp(&self) -> Option<Timestamp> {
        self.time.as_deref().and_then(timestamp)
    }

    fn failure(&self, certain: bool) -> FirstFailure {
        let kind = if self.messenger { FailureKind::Reported } else { FailureKind::Own };
        FirstFailure {
            kind,
            rank: self.rank,
            host: self.host.clone(),
            time: self.time.clone(),
            what: self.what.clone(),
            quote: self.quote.clone(),
            certain,
        }
    }
}

/// Finds the earliest failure over all ranks.
pub fn first_failure(case: &Case) -> Option<FirstFailure> {
    let mut failure = find(case)?;
    failure.time = failure.time.as_deref().map(|it| written(case, it));
    Some(failure)
}

fn find(case: &Case) -> Option<FirstFailure> {
    if let Some(odd) = odd_one_out(case).or_else(|| recorder::odd_call(case)) {
        return Some(odd);
    }
    let owners = Owners::of_case(case);
    let reports = reports(case, &owners);
    let own: Vec<&Report> = reports.iter().filter(|it| !it.messenger).collect();
    let messengers: Vec<&Report> = reports.iter().filter(|it| it.messenger).collect();
    let lost = lost_peer(case, &owners, &reports);
    if let Some((first, certain)) = first_own(case, &own, &messengers) {
        // A peer that was lost before, and that says nothing itself, ended first.
        let earlier = lost.as_ref().filter(|it| {
            let (Some(lost), Some(own)) = (it.time.as_deref().and_then(timestamp), first.timestamp()) else {
                return false;
            };
            lost.day.is_some() == own.day.is_some() && lost < own && it.host != first.host
        });
        return Some(earlier.cloned().unwrap_or_else(|| with_rank(case, first.failure(certain))));
    }
    ended(case)
        .or_else(|| named_absent(case))
        .or_else(|| finished(case))
        .or_else(|| never_came(case))
        .or_else(|| recorder::absent_rank(case))
        .or_else(|| {
            let timeout = case.sightings_of(&WATCHDOG_TIMEOUT).next();
            let before = |it: &FirstFailure| {
                let times = (it.time.as_deref().and_then(timestamp), timeout.and_then(|it| it.time.as_deref()).and_then(timestamp));
                !matches!(times, (Some(lost), Some(timeout)) if lost.day.is_some() == timeout.day.is_some() && lost > timeout)
            };
            lost.filter(before)
        })
        .or_else(|| behind(case))
        .or_else(|| silent(case, &owners))
        .or_else(|| earliest(case, &messengers))
}

/// A failure whose line names no rank is that of the one rank whose end a launcher reports.
fn with_rank(case: &Case, mut failure: FirstFailure) -> FirstFailure {
    if failure.rank.is_none() && failure.host.is_none() {
        let ended: BTreeSet<u32> =
            exits(case).into_iter().filter(Exit::is_own).filter_map(|it| it.rank).collect();
        if let Some((rank, line)) = killed_by_kernel(case, &failure) {
            failure.rank = Some(rank);
            let text = line.text.rsplit("] ").next().unwrap_or(&line.text);
            failure = FirstFailure { what: text.trim().to_owned(), quote: line.clone(), ..failure };
        }
        failure.rank = failure.rank.or_else(|| ended.first().copied().filter(|_| ended.len() == 1));
        failure.host = failure.rank.and_then(|it| host_of(case, it));
    }
    failure
}

/// The rank of the process that the kernel killed, and the line that has its id: the first line about it often has not.
fn killed_by_kernel<'a>(case: &'a Case, failure: &FirstFailure) -> Option<(u32, &'a Quote)> {
    let kernel = || case.sightings.iter().filter(|it| it.signal.kind == Kind::KernelLog);
    let first = kernel().find(|it| it.quote.spot == failure.quote.spot)?;
    let mut named = kernel().filter(|it| it.signal == first.signal);
    named.find_map(|it| Some((rank_of_pid(case, it.get("pid"))?, &it.quote)))
}

/// The first of the failures that ranks report of themselves.
fn first_own<'a>(case: &Case, own: &[&'a Report], messengers: &[&Report]) -> Option<(&'a Report, bool)> {
    let first = *own.first()?;
    let times: Option<Vec<Timestamp>> = own.iter().map(|it| it.timestamp()).collect();
    let comparable = |all: &Vec<Timestamp>| all.iter().all(|it| it.day.is_some() == all[0].day.is_some());
    if let Some(times) = times.filter(comparable) {
        let at = (0..own.len()).min_by_key(|at| (times[*at], own[*at].quote.spot))?;
        return Some((own[at], true));
    }
    let file = case.locate(&first.quote).0;
    let one_file = own.iter().chain(messengers).all(|it| case.locate(&it.quote).0 == file);
    if one_file {
        return Some((*own.iter().min_by_key(|it| it.quote.spot)?, true));
    }
    let blamed = |it: &&&Report| {
        let host = it.host.as_deref();
        messengers
            .iter()
            .any(|messenger| messenger.blames.as_deref().is_some_and(|blamed| Some(short(blamed)) == host))
    };
    let ranks: BTreeSet<Option<u32>> = own.iter().map(|it| it.rank).collect();
    let chosen = own.iter().find(blamed).or_else(|| own.iter().min_by_key(|it| it.quote.spot))?;
    Some((*chosen, ranks.len() == 1 && messengers.is_empty()))
}

/// The earliest of the lines that report another's failure.
fn earliest(case: &Case, messengers: &[&Report]) -> Option<FirstFailure> {
    let messengers = || messengers.iter().filter(|it| !it.waits);
    let dated: Vec<&&Report> = messengers().filter(|it| it.time.is_some()).collect();
    let all: Vec<&&Report> = if dated.is_empty() { messengers().collect() } else { dated };
    let times: Option<Vec<Timestamp>> = all.iter().map(|it| it.timestamp()).collect();
    let at = match &times {
        Some(times) => (0..all.len()).min_by_key(|at| (times[*at], all[*at].quote.spot))?,
        None => (0..all.len()).min_by_key(|at| all[*at].quote.spot)?,
    };
    let one_file = all.iter().all(|it| case.locate(&it.quote).0 == case.locate(&all[at].quote).0);
    Some(all[at].failure(times.is_some() || one_file))
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
        host: host_of(case, rank),
        time: said.first()?.time.as_deref().map(str::to_owned),
        what: "called a different collective than the other ranks, or the same with a different size"
            .to_owned(),
        kind: FailureKind::Own,
        quote: said.first()?.quote.clone(),
        certain: true,
    })
}

fn host_of(case: &Case, rank: u32) -> Option<String> {
    case.processes
        .iter()
        .find(|it| it.rank == Some(rank) && !it.host.is_empty())
        .map(|it| it.host.to_string())
}

/// Words of kernel messages that report a failure.
static KERNEL: &[&str] =
    &["Xid", "Out of memory", "oom-kill", "fallen off the bus", "Machine Check", "segfault at"];

/// Every line that reports a failure, in the order of the input.
fn reports(case: &Case, owners: &Owners) -> Vec<Report> {
    let mut all = Vec::new();
    let rank_at = |quote: &Quote| owners.of_quote(case, quote);
    for process in &case.processes {
        for Warning { quote, time, .. } in &process.facts.warnings.first {
            if is_harmless(&quote.text) || survived(case, quote.spot) {
                continue;
            }
            let what = quote.text.split_once("NCCL WARN ").map_or(&*quote.text, |it| it.1);
            all.push(Report {
                rank: process.rank.or_else(|| rank_at(quote)),
                host: (!process.host.is_empty()).then(|| process.host.to_string()),
                time: time.as_deref().map(str::to_owned),
                what: what.trim().to_owned(),
                quote: quote.clone(),
                messenger: is_messenger(&quote.text),
                blames: remote_peer(&quote.text),
                waits: false,
            });
        }
    }
    let warned: BTreeSet<_> = all.iter().map(|it| it.quote.spot).collect();
    for sighting in case.sightings.iter().filter(|it| !it.warning && !warned.contains(&it.quote.spot)) {
        let signal = sighting.signal;
        let messenger = [
            &CLOSED,
            &GLOO_CLOSED,
            &REMOTE_ERROR,
            &WATCHDOG_TIMEOUT,
            &STORE_TIMEOUT,
            &STORE_CLOSED,
            &MONITORED_BARRIER,
        ]
        .contains(&signal);
        let text = sighting.quote.text.trim();
        let kernel = signal.kind == Kind::KernelLog && KERNEL.iter().any(|it| text.contains(it));
        if !(messenger || kernel || [&OUT_OF_MEMORY, &FINGERPRINT].contains(&signal)) {
            continue;
        }
        let rank = if kernel {
            rank_of_pid(case, sighting.get("pid"))
        } else {
            case.rank_of(sighting).or_else(|| rank_at(&sighting.quote))
        };
        all.push(Report {
            rank,
            host: sighting
                .process
                .as_ref()
                .map(|it| it.host.to_string())
                .or_else(|| rank.and_then(|it| host_of(case, it))),
            time: sighting.time.as_deref().map(str::to_owned),
            // The other fields hold what a launcher or a logger puts before the message.
            what: text.rsplit("] ").next().unwrap_or(text).to_owned(),
            quote: sighting.quote.clone(),
            messenger,
            blames: remote_peer(text),
            waits: [&STORE_TIMEOUT, &STORE_CLOSED].contains(&signal),
        });
    }
    let seen: BTreeSet<_> = all.iter().map(|it| it.quote.spot).collect();
    let own_words = |it: &&Ending| {
        matches!(it.kind, ending::Kind::Exception | ending::Kind::Crash | ending::Kind::Call)
            && !seen.contains(&it.quote.spot)
            && !survived(case, it.last)
            // What a launcher says of a process is not that process's own word.
            && it.code.is_none()
    };
    for ending in case.endings.iter().filter(own_words) {
        let rank = ending.rank.or_else(|| rank_at(&ending.quote));
        all.push(Report {
            rank,
            host: ending.host.as_deref().map(str::to_owned).or_else(|| rank.and_then(|it| host_of(case, it))),
            time: ending.time.as_deref().map(str::to_owned),
            what: ending.text.to_string(),
            quote: ending.quote.clone(),
            messenger: passes_on(&ending.quote.text),
            blames: remote_peer(&ending.quote.text),
            waits: false,
        });
    }
    all.sort_by_key(|it| it.quote.spot);
    all
}

/// The process at the other end of a lost connection: `Connection closed by remote peer node-2<53964>`.
fn remote_peer(text: &str) -> Option<String> {
    let rest = ["remote peer ", "recv from ", "send to ", "Connection closed by peer ["]
        .iter()
        .find_map(|it| text.split_once(it))?
        .1;
    let end = rest.find(['<', ' ', ']']).unwrap_or(rest.len());
    rest.get(..end).filter(|it| !it.is_empty()).map(str::to_owned)
}

/// A host without its domain.
fn short(host: &str) -> &str {
    if host.parse::<IpAddr>().is_ok() { host } else { host.split('.').next().unwrap_or(host) }
}

/// The peer that the first messenger lost, where that peer reports nothing of its own before.
fn lost_peer(case: &Case, owners: &Owners, reports: &[Report]) -> Option<FirstFailure> {
    let mut blaming: Vec<&Report> = reports.iter().filter(|it| it.blames.is_some()).collect();
    let times: Option<Vec<Timestamp>> = blaming.iter().map(|it| it.timestamp()).collect();
    if times.is_some_and(|all| all.iter().all(|it| it.day.is_some() == all[0].day.is_some())) {
        blaming.sort_by_key(|it| it.timestamp());
    }
    blaming.iter().find_map(|messenger| {
        let blamed = short(messenger.blames.as_deref()?);
        let here = |process: &&Process| {
            let address =
                process.facts.bootstrap.value().into_iter().flatten().any(|it| &*it.address == blamed);
            &*process.host == blamed || address
        };
        let mut processes = case.processes.iter().filter(here);
        let process = processes.next();
        // Several processes of one host cannot be told apart by its name.
        let alone = processes.next().is_none();
        let host = process.map_or_else(|| blamed.to_owned(), |it| it.host.to_string());
        let rank = match process {
            Some(process) => process.rank.filter(|_| alone),
            // No line comes from it, nor from one rank of the job.
            None => owners.missing(),
        };
        let speaks = reports.iter().any(|it| {
            (it.host.as_deref() == Some(host.as_str()) && alone) || (rank.is_some() && it.rank == rank)
        });
        // An address that no process of the input has names nobody.
        let known = process.is_some() || blamed.parse::<IpAddr>().is_err();
        (!speaks && known && messenger.host.as_deref() != Some(host.as_str())).then(|| FirstFailure {
            rank,
            host: Some(host),
            time: messenger.time.clone(),
            what: "ended without an error message; its peers lost the connection".to_owned(),
            kind: FailureKind::Ended,
            quote: messenger.quote.clone(),
            certain: false,
        })
    })
}

/// A process whose end a launcher reports.
fn ended(case: &Case) -> Option<FirstFailure> {
    let exit = exits(case).into_iter().find(Exit::is_own)?;
    let what = format!("ended with {}", exit.describe());
    // Such a signal is the process's own fault; others come from outside.
    let kind = if exit.is_crash() { FailureKind::Own } else { FailureKind::Ended };
    Some(FirstFailure {
        rank: exit.rank,
        host: exit.host,
        time: None,
        what,
        quote: exit.quote,
        certain: true,
        kind,
    })
}

/// A rank that ended well while the others still waited for it.
fn finished(case: &Case) -> Option<FirstFailure> {
    let left = left_early(case)?;
    let [rank] = left.ranks.as_slice() else { return None };
    Some(FirstFailure {
        rank: Some(*rank),
        host: host_of(case, *rank),
        time: None,
        what: "finished and destroyed its communicator while the others still waited for it".to_owned(),
        kind: FailureKind::Finished,
        quote: left.quote.clone(),
        certain: false,
    })
}

/// A rank that others name as absent: from a barrier, from a collective.
fn named_absent(case: &Case) -> Option<FirstFailure> {
    let sighting =
        [&MONITORED_BARRIER, &DESYNC, &MISSING_RANKS].iter().find_map(|it| case.sightings_of(it).next())?;
    let text = if *sighting.signal == DESYNC {
        let before = sighting.quote.text.split("] finished").next()?.split("] joined").next()?;
        before.rsplit('[').next()?
    } else {
        sighting.get("ranks")
    };
    let ranks: Vec<u32> =
        text.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect();
    let [rank] = ranks.as_slice() else { return None };
    Some(FirstFailure {
        rank: Some(*rank),
        host: host_of(case, *rank),
        time: sighting.time.as_deref().map(str::to_owned),
        what: "did not join where the others waited".to_owned(),
        kind: FailureKind::Absent,
        quote: sighting.quote.clone(),
        certain: true,
    })
}

/// The one rank of a job that no line comes from, where the others waited for all to join.
fn never_came(case: &Case) -> Option<FirstFailure> {
    let sighting =
        [&CLIENTS_JOINED, &STORE_BARRIER_TIMEOUT].iter().find_map(|it| case.sightings_of(it).next())?;
    let world: u32 = sighting.get("world").parse().ok().filter(|it| *it <= 1 << 20)?;
    let spoken: BTreeSet<u32> = case
        .sightings
        .iter()
        .filter_map(|it| case.rank_of(it))
        .chain(case.processes.iter().filter_map(|it| it.rank))
        // The store, which counts the clients, is rank 0's.
        .chain((*sighting.signal == CLIENTS_JOINED).then_some(0))
        .collect();
    let absent: Vec<u32> = (0..world).filter(|it| !spoken.contains(it)).take(2).collect();
    let [rank] = absent.as_slice() else { return None };
    Some(FirstFailure {
        rank: Some(*rank),
        host: None,
        time: sighting.time.as_deref().map(str::to_owned),
        what: "did not join; no line of the input comes from it".to_owned(),
        kind: FailureKind::Absent,
        quote: sighting.quote.clone(),
        certain: false,
    })
}

/// The one rank that had not enqueued the collective in which the others waited.
fn behind(case: &Case) -> Option<FirstFailure> {
    let all = progress(case);
    let last = all.values().map(|it| it.enqueued).max()?;
    let behind: Vec<_> = all.iter().filter(|it| it.1.enqueued < last).collect();
    let [(rank, status)] = behind.as_slice() else { return None };
    Some(FirstFailure {
        rank: Some(**rank),
        host: host_of(case, **rank),
        time: status.sighting.time.as_deref().map(str::to_owned),
        what: format!("had not enqueued collective {last}, in which the others waited"),
        kind: FailureKind::Behind,
        quote: status.sighting.quote.clone(),
        certain: all.len() > 2,
    })
}

/// The one rank whose log was given and that says nothing, while all others report a timeout.
fn silent(case: &Case, owners: &Owners) -> Option<FirstFailure> {
    let waiting: BTreeSet<u32> =
        case.sightings_of(&WATCHDOG_TIMEOUT).filter_map(|it| case.rank_of(it)).collect();
    let known = case.processes.iter().filter_map(|it| it.rank).chain(owners.ranks());
    let mut quiet: BTreeSet<u32> = known.filter(|it| !waiting.contains(it)).collect();
    let speaking: BTreeSet<u32> =
        case.sightings.iter().filter(|it| speaks_up(it)).filter_map(|it| case.rank_of(it)).collect();
    quiet.retain(|it| !speaking.contains(it));
    let rank = *quiet.first().filter(|_| quiet.len() == 1 && waiting.len() >= 2)?;
    let first = case.sightings_of(&WATCHDOG_TIMEOUT).next()?;
    Some(FirstFailure {
        rank: Some(rank),
        host: host_of(case, rank),
        time: None,
        what: "says nothing while the others wait for it: stopped, busy or killed".to_owned(),
        kind: FailureKind::Absent,
        quote: first.quote.clone(),
        certain: false,
    })
}

fn speaks_up(sighting: &Sighting) -> bool {
    [&CLOSED, &REMOTE_ERROR, &STORE_TIMEOUT].contains(&sighting.signal)
}

/// The process that most others lost and that reports nothing itself.
pub fn silent_peer<'a>(case: &'a Case, lost: &[&Sighting]) -> Option<&'a Process> {
    let owners = Owners::of_case(case);
    let reports = reports(case, &owners);
    let blamed: Vec<&str> = lost.iter().filter_map(|it| peer(it)).collect();
    let found = lost_peer(case, &owners, &reports)?;
    let host = found.host?;
    let named = blamed.iter().any(|it| {
        let it = short(it);
        it == host
            || case.processes.iter().any(|process| {
                *process.host == *host
                    && process.facts.bootstrap.value().into_iter().flatten().any(|one| &*one.address == it)
            })
    });
    let mut here = case.processes.iter().filter(|it| *it.host == *host);
    let process = here.next()?;
    (named && here.next().is_none()).then_some(process)
}
