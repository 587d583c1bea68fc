//! Which ranks and hosts are in trouble: what pictures show first and mark.

use std::collections::BTreeMap;

use job::FailureKind;
use rules::{EntityKind, Severity};

use super::course::readable;
use crate::{Doctor, Event, FirstFailure, Moment};

/// What is wrong with a rank or a host, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// The first cause: it failed, or the others waited for it.
    First(FailureKind),
    /// Others wait for it, and no line comes from it.
    Missing,
    Fails,
    Waits,
    Incomplete,
    /// An error or a warning is about it.
    Named,
}

impl Trouble {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::First(kind) => cause(kind),
            Self::Missing => "did not join the others",
            Self::Fails => "reports a failure",
            Self::Waits => "waits",
            Self::Incomplete => "setup not complete",
            Self::Named => "named by a finding",
        }
    }

    /// The same of several.
    pub(super) fn words_of_many(self) -> &'static str {
        match self {
            Self::Fails => "report failures",
            Self::Waits => "wait",
            _ => self.words(),
        }
    }

    /// Its class in the style of the map.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::First(_) => "first",
            Self::Missing => "missing",
            Self::Fails | Self::Incomplete => "fails",
            Self::Waits | Self::Named => "warned",
        }
    }
}

/// What the rank did that is the first cause.
pub(super) fn cause(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Own => "failed first",
        FailureKind::Ended => "ended first",
        FailureKind::Finished => "finished early",
        FailureKind::Behind => "was late",
        FailureKind::Absent => "did not join the others",
        FailureKind::Reported => "reports the first failure",
    }
}

/// Whether the rank failed, rather than finished early, was late or did not come.
pub(super) fn is_failure(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Own | FailureKind::Ended | FailureKind::Reported)
}

/// What is wrong with which.
#[derive(Debug, Default)]
pub(super) struct Troubles<'a> {
    ranks: BTreeMap<u32, Trouble>,
    /// Hosts of these ranks, and hosts of which no rank is known.
    hosts: BTreeMap<&'a str, Trouble>,
}

impl<'a> Troubles<'a> {
    pub(super) fn new(doctor: &'a Doctor) -> Self {
        let mut all = Self::default();
        // With their hosts.
        let seen = || doctor.facts.ranks.iter().map(|it| (it.rank, &*it.host));
        let others = || doctor.facts.other_ranks.iter().map(|it| (it.rank, it.host.as_deref().unwrap_or("")));
        let known = |rank: u32| seen().chain(others()).find(|it| it.0 == rank);
        if let Some(failure) = &doctor.facts.first_failure {
            match failure.rank.and_then(known) {
                Some(rank) => all.add(rank, Trouble::First(failure.kind)),
                None => all.add_host(failure.host.as_deref(), Trouble::First(failure.kind)),
            }
        }
        let ranks =
            doctor.facts.ranks.iter().map(|it| (&it.events, (!it.complete).then_some(Trouble::Incomplete)));
        let missing = doctor.facts.other_ranks.iter();
        let missing = missing.map(|it| (&it.events, it.missing.then_some(Trouble::Missing)));
        for (rank, (events, otherwise)) in seen().chain(others()).zip(ranks.chain(missing)) {
            let has = |what| events.iter().any(|it: &Event| it.what == what);
            let trouble = match () {
                () if has(Moment::Fails) => Some(Trouble::Fails),
                () if has(Moment::Waits) => Some(Trouble::Waits),
                () => otherwise,
            };
            if let Some(trouble) = trouble {
                all.add(rank, trouble);
            }
        }
        let worth = doctor.findings.iter().filter(|it| it.severity > Severity::Info);
        for it in worth.flat_map(|it| &it.entities) {
            match it.kind {
                EntityKind::Rank => {
                    if let Some(rank) = it.name.parse().ok().and_then(known) {
                        all.add(rank, Trouble::Named);
                    }
                }
                EntityKind::Host => all.add_host(Some(&it.name), Trouble::Named),
                _ => {}
            }
        }
        all
    }

    /// Of a rank on a host, which may be unknown.
    fn add(&mut self, (rank, host): (u32, &'a str), trouble: Trouble) {
        let worst = self.ranks.entry(rank).or_insert(trouble);
        *worst = trouble.min(*worst);
        self.add_host(Some(host), trouble);
    }

    fn add_host(&mut self, host: Option<&'a str>, trouble: Trouble) {
        if let Some(host) = host.filter(|it| !it.is_empty()) {
            let worst = self.hosts.entry(host).or_insert(trouble);
            *worst = trouble.min(*worst);
        }
    }

    pub(super) fn rank(&self, rank: u32) -> Option<Trouble> {
        self.ranks.get(&rank).copied()
    }

    pub(super) fn host(&self, host: &str) -> Option<Trouble> {
        self.hosts.get(host).copied()
    }
}

/// The first failure in a sentence: `rank 1 on node-1 at 02:53:26: what happened`.
pub(super) fn sentence(failure: &FirstFailure) -> String {
    let who = match (failure.rank, &failure.host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => format!("a process on {host}"),
        (None, None) => String::new(),
    };
    let when = failure.time.as_ref().map(|it| format!("at {}", readable(it))).unwrap_or_default();
    let mut head = [who, when].join(" ").trim().to_owned();
    if !head.is_empty() {
        head.push_str(": ");
    }
    let sure =
        if failure.certain { "" } else { " (times and order of the lines do not rule out an earlier cause)" };
    format!("{head}{}{sure}", failure.what.trim_end_matches('.'))
}

/// The first failure as an event of its rank.
pub(super) fn event(failure: &FirstFailure) -> Event {
    Event {
        what: Moment::Fails,
        time: failure.time.clone(),
        text: failure.what.clone(),
        file: failure.evidence.file.clone(),
        line: failure.evidence.line,
    }
}
