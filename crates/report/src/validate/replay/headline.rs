//! The first line.

use ::validate::replay::{Replay, Wrong};

use super::slow_pairs::{SlowPair, suspected};
use super::{Failure, Together, is_all};
use crate::text::counted;
use crate::validate::simulated::{named_out, out_list};
use crate::validate::{Accused, Split, bandwidth, list};

/// What the first line is made of.
pub(super) struct Headline<'a> {
    pub(super) findings: &'a [Accused],
    pub(super) splits: &'a [Split],
    pub(super) low: Option<String>,
    pub(super) suspects: Vec<SlowPair>,
    /// Runs that failed, of which no machine is accused.
    pub(super) failures: Vec<Failure>,
    /// Runs with rows that have no bandwidth.
    pub(super) unusable: Vec<String>,
    /// What was not measured because its runs are incomplete.
    pub(super) gaps: Vec<String>,
    pub(super) together: Vec<Together>,
    /// Machines that were slow, or not measured with one that is normal.
    pub(super) untold: Vec<String>,
    /// Whether it is known what some runs should reach.
    pub(super) known: bool,
    pub(super) replay: &'a Replay,
}

impl Headline<'_> {
    pub(super) fn text(self) -> String {
        let machines = self.replay.fleet.len();
        let mut parts = self.no_go();
        if let Some(first) = parts.first_mut() {
            *first = format!("NO-GO: {first}");
            parts.extend(self.low);
            return parts.join("; ");
        }
        let compared = self.replay.sets.iter().any(|it| it.hosts <= 2 && it.runs.len() > 1);
        let even = match machines {
            1 => String::new(),
            _ if !compared => "no runs compare the machines with each other".to_owned(),
            _ => match &self.untold[..] {
                [] => format!("none of {machines} machines is slower than the others"),
                [one] => format!("whether {one} is slower than the others is not told"),
                more => format!("whether {} are slower than the others is not told", list(more, 4)),
            },
        };
        if let Some(first) = self.failures.first().filter(|_| self.suspects.is_empty()) {
            let low = self.low.map(|it| format!("; {it}")).unwrap_or_default();
            let more = match self.failures.len() - 1 {
                0 => String::new(),
                more => format!(", and {more} more (see below)"),
            };
            return format!("INCONCLUSIVE: {}{more}{low}", first.text);
        }
        let suspects = suspected(&self.suspects);
        if let Some(low) = self.low {
            return match suspects {
                Some(suspects) => format!("INCONCLUSIVE: {low}; {suspects}"),
                None if self.together.is_empty() && machines > 1 => {
                    format!("INCONCLUSIVE: {even}, but all are slow: {low}")
                }
                None if even.is_empty() => format!("INCONCLUSIVE: {low}"),
                None => format!("INCONCLUSIVE: {low}; {even}"),
            };
        }
        if let Some(suspects) = suspects {
            return format!("INCONCLUSIVE: {suspects}");
        }
        if !self.together.is_empty() || !self.replay.unmeasured.is_empty() {
            let mut lacking = self.unusable.iter().chain(&self.gaps);
            if let Some(first) = lacking.next() {
                let more = match lacking.count() {
                    0 => String::new(),
                    more => format!(", and {more} more (see below)"),
                };
                return format!("INCONCLUSIVE: {first}{more}");
            }
        }
        if let Some(it) = self.together.first() {
            return format!("GO: all {machines} machines together reach {}{}", bandwidth(it.rate), it.beside);
        }
        if even.is_empty() {
            return "INCONCLUSIVE: these runs are of one machine: nothing was measured between machines"
                .to_owned();
        }
        let none_has_all = !self.replay.sets.iter().any(|it| is_all(it, self.replay));
        let what = if self.known && none_has_all {
            "no run has all of them together"
        } else {
            "nothing says what they should reach together"
        };
        format!("INCONCLUSIVE: {even}, and {what}")
    }

    /// What keeps the fleet from being fit, in the order of its weight.
    fn no_go(&self) -> Vec<String> {
        let mut parts = Vec::new();
        // Wrong results of many machines accuse none of them by name.
        let many = |it: &&Wrong| it.hosts.len() > 2;
        let crowd = self.replay.wrong.iter().filter(many).count();
        let named: Vec<&Accused> =
            self.findings.iter().filter(|it| it.class != "node" || it.hosts.len() <= 2).collect();
        let (links, others): (Vec<&Accused>, Vec<&Accused>) = named.iter().partition(|it| it.class == "link");
        let mut out: Vec<String> = others.iter().flat_map(|it| it.hosts.clone()).collect();
        for link in links {
            if !link.hosts.iter().any(|it| out.contains(it)) {
                out.extend(link.hosts.last().cloned());
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        out.retain(|it| seen.insert(it.clone()));
        if !out.is_empty() {
            let wrong = self.replay.wrong.iter().filter(|it| !many(it)).count();
            let why = if wrong > 0 && wrong == named.len() { " (wrong results)" } else { "" };
            parts.push(format!("take out {}{why}", out_list(&named_out(&out, self.findings))));
        }
        if crowd > 0 {
            let most = self.replay.wrong.iter().map(|it| it.hosts.len()).max().unwrap_or(0);
            parts.push(format!(
                "wrong results in {} of {}",
                if crowd == 1 { "a run".to_owned() } else { format!("{crowd} kinds of runs") },
                counted(most, "machine")
            ));
        }
        if let Some(split) = self.splits.iter().min_by(|a, b| a.share.total_cmp(&b.share)) {
            parts.push(split.sentence());
        }
        parts
    }
}
