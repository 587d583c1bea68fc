//! Measurements of a validation that failed, whether or not they ran when they were made again.

use ::validate::Step;
use ::validate::live::{Item, Launch, Run};

use super::Accused;
use crate::text::counted;

/// Reasons that are named one by one.
const MOST: usize = 3;

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// Of which stage, as in [`Step::name`].
    pub(super) stage: &'static str,
    /// Its machines.
    pub(super) hosts: Vec<String>,
    /// What ran: `h3`, `h1 - h2`, `4 machines together`.
    pub(super) what: String,
    /// Why it failed: `h3: killed by signal 9`.
    pub(super) reason: Option<String>,
}

impl Failure {
    fn new(run: &Run, launch: &Launch, item: &Item) -> Option<Self> {
        let measurement = run.measurement(launch.number, item).filter(|it| it.rate.is_none())?;
        let hosts = run.names(item);
        let nic = run.nic(item).map(|it| format!(" over {it}")).unwrap_or_default();
        let what = match (&launch.step, &hosts[..]) {
            (Step::Local(_), [one]) => format!("{one} by itself"),
            (_, [one, other]) => format!("{one} - {other}{nic}"),
            (_, many) => format!("{} together", counted(many.len(), "machine")),
        };
        Some(Self { stage: launch.step.name(), hosts, what, reason: measurement.failed.clone() })
    }

    /// `h1 - h3: killed by signal 9`; a reason that names a machine needs no other.
    pub(super) fn sentence(&self) -> String {
        match &self.reason {
            Some(reason) if self.hosts.iter().any(|it| reason.starts_with(&format!("{it}:"))) => {
                reason.clone()
            }
            Some(reason) => format!("{}: {reason}", self.what),
            None => format!("{}: no reason is known", self.what),
        }
    }
}

/// Those of one launch.
pub(super) fn of_launch(run: &Run, launch: &Launch) -> Vec<Failure> {
    launch.items.iter().filter_map(|it| Failure::new(run, launch, it)).collect()
}

/// Those that no finding is about: a part of them is accused of nothing.
pub(super) fn unexplained(run: &Run, findings: &[Accused]) -> Vec<Failure> {
    let explained = |failure: &Failure| {
        let part = |host: &String| failure.hosts.contains(host);
        findings.iter().any(|it| match it.class {
            "link" => it.accused().iter().all(part),
            _ => it.accused().iter().any(part),
        })
    };
    let all = run.launches().iter().flat_map(|it| of_launch(run, it));
    all.filter(|it| !explained(it)).collect()
}

/// What failed how often and why, in a few words each: `4 machines together failed once (h3: killed by signal 9)`.
pub(super) fn sentences(failures: &[Failure]) -> Vec<String> {
    let mut each: Vec<(&Failure, usize)> = Vec::new();
    for failure in failures {
        let same =
            |it: &&mut (&Failure, usize)| (&it.0.what, &it.0.reason) == (&failure.what, &failure.reason);
        match each.iter_mut().find(same) {
            Some((_, times)) => *times += 1,
            None => each.push((failure, 1)),
        }
    }
    let sentence = |(failure, times): (&Failure, usize)| {
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let reason = failure.reason.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
        format!("{} failed {times}{reason}", failure.what)
    };
    each.into_iter().map(sentence).collect()
}

/// The same in one line.
pub(super) fn sentence(failures: &[Failure]) -> String {
    let all = sentences(failures);
    let more = all.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!("; {more} more failed (see below)") };
    format!("{}{more}", all.into_iter().take(MOST).collect::<Vec<_>>().join("; "))
}
