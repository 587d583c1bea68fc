//! From what pairs reached to who is to blame.

use std::collections::{BTreeMap, BTreeSet};

use crate::chance::{as_f64, at_least};
use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::reference::{Reference, median};

/// What kind of part is bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A machine is slow against all others.
    Node,
    /// A NIC or rail of a machine.
    Nic,
    /// Two machines are slow against each other and against nobody else.
    Link,
    /// Machines of one switch are slow against others, not among themselves.
    Tier,
    /// Slow at times.
    Intermittent,
    /// Something is slow, and the measurements do not tell what.
    Inconclusive,
}

/// What is accused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Culprit {
    /// A machine.
    Host(Host),
    /// A NIC of a machine, counted from 0.
    Nic(Host, usize),
    /// The way between two machines.
    Link(Pair),
    /// The ways out of a switch, by its number in the fleet.
    Group(usize),
}

/// An accusation with its evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The kind of part.
    pub class: Class,
    /// The part.
    pub culprit: Culprit,
    /// The median of its measurements as a part of what is normal; 0 if most failed.
    pub share: f64,
    /// How many of its measurements were slow, against machines that are normal against others,
    pub slow: usize,
    /// of how many,
    pub of: usize,
    /// and against how many machines.
    pub partners: usize,
    /// How many failed.
    pub failed: usize,
    /// The probability that chance makes any part of a fleet like this look so.
    pub chance: f64,
}

/// What another round should find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Is this machine slow against a machine that is normal?
    Host(Host),
    /// Are these two slow against each other again?
    Pair(Pair),
}

/// Machines that are normal among themselves and slow against each other's groups: another switch, rail or block lies between.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// The groups, the largest first.
    pub groups: Vec<Vec<Host>>,
    /// The median across groups as a part of what is normal inside.
    pub share: f64,
    /// Measurements across groups.
    pub across: usize,
}

/// What the measurements say.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What is normal; none before anything was measured.
    pub reference: Option<Reference>,
    /// Whom they accuse, surest first.
    pub findings: Vec<Finding>,
    /// Whether the machines fall into groups, where no switch was given.
    pub split: Option<Split>,
    /// What they leave open.
    pub open: Vec<Question>,
    /// Machines that were normal with at least one other.
    pub cleared: BTreeSet<Host>,
    /// Slow measurements that did not come again and accuse nobody.
    pub transient: usize,
}

/// An accusation is made if chance would make one such in a hundred fleets.
const CHANCE: f64 = 0.01;
/// Machines that are normal with others and against which a machine must be slow before it is accused.
const WITNESSES: usize = 2;
/// Measurements that must be slow before a link is accused: what was seen first, and three confirmations.
const CONFIRMED: usize = 4;
/// Machines of a switch that must be slow across it, and machines that make a group.
const SEVERAL: usize = 3;
/// Others with whom both ends of a slow link must be normal: a machine that is slow at times is not a link.
const FINE_WITH: usize = 6;
/// A machine is asked about again if chance makes one such in ten fleets.
const SUSPICIOUS: f64 = 0.1;
/// For a part that is slow at times: every round is another chance to be unlucky.
const RARE: f64 = 0.0001;
/// One slow measurement in sixteen between normal machines is assumed as long as none was made.
const ASSUMED: (f64, f64) = (0.5, 8.0);
/// A part that is slow more rarely than this cannot be told from a busy network.
const OFTEN: f64 = 0.25;
/// From this share of slow measurements on a part is slow, not slow at times.
const ALWAYS: f64 = 0.8;
/// Repetitions of a slow pair after which it is a matter of chance.
const REPEATED: usize = 8;
/// Measurements of one machine after which more would not help.
const ENOUGH: usize = 14;

/// Finds the smallest set of machines, links and switches that explains what was slow.
pub fn judge(fleet: &Fleet, samples: &[Sample]) -> Judgement {
    let reference = Reference::of(samples.iter().filter_map(|it| it.rate).map(|it| it.0));
    let Some(reference) = reference else {
        let open = fleet.hosts().map(Question::Host).collect();
        return Judgement {
            reference: None,
            findings: Vec::new(),
            split: None,
            open,
            cleared: BTreeSet::new(),
            transient: 0,
        };
    };
    let mut court = Court { fleet, reference, samples, findings: Vec::new(), split: None };
    court.split = court.groups();
    while let Some(finding) = court.group().or_else(|| court.host()).or_else(|| court.link()) {
        court.findings.push(finding);
        court.split = court.groups();
    }
    court.close()
}

/// A measurement that no accusation explains yet, with whether it was slow.
#[derive(Clone, Copy)]
struct Vote {
    pair: Pair,
    slow: bool,
    share: Option<f64>,
}

struct Court<'a> {
    fleet: &'a Fleet,
    reference: Reference,
    samples: &'a [Sample],
    findings: Vec<Finding>,
    split: Option<Split>,
}

/// Slow measurements of how many, between machines that others cleared.
#[derive(Clone, Copy)]
struct Noise {
    slow: usize,
    of: usize,
}

impl Noise {
    fn without(self, slow: usize, of: usize) -> f64 {
        let (hits, tries) = ASSUMED;
        (as_f64(self.slow.saturating_sub(slow)) + hits) / (as_f64(self.of.saturating_sub(of)) + tries)
    }
}

impl Court<'_> {
    fn explained(&self, pair: Pair) -> bool {
        if let Some(split) = &self.split {
            let place = |host: Host| split.groups.iter().position(|it| it.contains(&host));
            let [one, other] = pair.hosts().map(place);
            if one.is_some() && other.is_some() && one != other {
                return true;
            }
        }
        self.findings.iter().any(|it| match it.culprit {
            Culprit::Host(host) | Culprit::Nic(host, _) => pair.has(host),
            Culprit::Link(link) => link == pair,
            Culprit::Group(group) => self.crosses(pair, group),
        })
    }

    fn crosses(&self, pair: Pair, group: usize) -> bool {
        let [one, other] = pair.hosts().map(|it| self.fleet.group(it) == Some(group));
        one != other
    }

    fn votes(&self) -> Vec<Vote> {
        let open = self.samples.iter().filter(|it| !self.explained(it.pair));
        open.map(|it| {
            let rate = it.rate.map(|it| it.0);
            Vote {
                pair: it.pair,
                slow: self.reference.is_slow(rate),
                share: rate.map(|it| self.reference.share(it)),
            }
        })
        .collect()
    }

    /// With whom each machine was normal.
    fn normal_with(votes: &[Vote]) -> BTreeMap<Host, BTreeSet<Host>> {
        let mut normal: BTreeMap<Host, BTreeSet<Host>> = BTreeMap::new();
        for vote in votes.iter().filter(|it| !it.slow) {
            for host in vote.pair.hosts() {
                normal.entry(host).or_default().insert(vote.pair.other(host));
            }
        }
        normal
    }

    /// Whether somebody else than `but` was normal with this machine.
    fn cleared_without(normal: &BTreeMap<Host, BTreeSet<Host>>, host: Host, but: Host) -> bool {
        normal.get(&host).is_some_and(|it| it.iter().any(|it| *it != but))
    }

    fn noise(votes: &[Vote], normal: &BTreeMap<Host, BTreeSet<Host>>) -> Noise {
        let mut noise = Noise { slow: 0, of: 0 };
        for vote in votes {
            let [one, other] = vote.pair.hosts();
            if Self::cleared_without(normal, one, other) && Self::cleared_without(normal, other, one) {
                noise.of += 1;
                noise.slow += usize::from(vote.slow);
            }
        }
        noise
    }

    fn finding(class: Class, culprit: Culprit, votes: &[Vote], partners: usize, chance: f64) -> Finding {
        let mut shares: Vec<f64> = votes.iter().map(|it| it.share.unwrap_or(0.0)).collect();
        shares.sort_by(f64::total_cmp);
        Finding {
            class,
            culprit,
            share: median(&shares).unwrap_or(0.0),
            slow: votes.iter().filter(|it| it.slow).count(),
            of: votes.len(),
            partners,
            failed: votes.iter().filter(|it| it.share.is_none()).count(),
            chance: chance.min(1.0),
        }
    }

    /// The machine that is slow against machines that others cleared, and least by chance.
    fn host(&self) -> Option<Finding> {
        let votes = self.votes();
        let suspects = suspects(self.fleet, &votes);
        let guilty = suspects.into_iter().filter(|it| {
            it.partners >= WITNESSES
                && it.chance < CHANCE
                && as_f64(it.slow) >= OFTEN * as_f64(it.votes.len())
        });
        let guilty = guilty.filter(|it| it.chance < RARE || self.constant(&it.votes));
        let worst = guilty.min_by(|a, b| {
            // The more often slow, the sooner explained: its partners lose their slow measurements with it.
            a.chance.total_cmp(&b.chance).then(b.slow.cmp(&a.slow)).then(a.host.cmp(&b.host))
        })?;
        let class = if self.constant(&worst.votes) { Class::Node } else { Class::Intermittent };
        Some(Self::finding(class, Culprit::Host(worst.host), &worst.votes, worst.partners, worst.chance))
    }

    /// Whether these scatter as measurements of one rate do.
    fn constant(&self, votes: &[Vote]) -> bool {
        let slow = votes.iter().filter(|it| it.slow).count();
        if as_f64(slow) >= ALWAYS * as_f64(votes.len()) {
            return true;
        }
        // A machine just below what is normal in a fleet that scatters is on either side of the line.
        let mut shares: Vec<f64> = votes.iter().filter_map(|it| it.share).collect();
        shares.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (shares.first(), shares.last()) else { return true };
        shares.len() == votes.len() && high - low <= 5.0 * self.reference.spread
    }

    /// The two machines that are slow against each other and normal with others.
    fn link(&self) -> Option<Finding> {
        let votes = self.votes();
        let normal = Self::normal_with(&votes);
        let noise = Self::noise(&votes, &normal);
        let mut pairs: BTreeMap<Pair, Vec<Vote>> = BTreeMap::new();
        for vote in &votes {
            pairs.entry(vote.pair).or_default().push(*vote);
        }
        let measured = as_f64(pairs.len());
        let fine_with = FINE_WITH.min(self.fleet.len().saturating_sub(2));
        let found = pairs.into_iter().filter_map(|(pair, votes)| {
            let [one, other] = pair.hosts();
            let slow = votes.iter().filter(|it| it.slow).count();
            let fine = |host: Host, but: Host| others(&normal, host, but) >= fine_with;
            let cleared = fine(one, other) && fine(other, one);
            let chance = at_least(slow, votes.len(), noise.without(slow, votes.len())) * measured;
            (cleared && slow >= CONFIRMED && chance < CHANCE)
                .then(|| {
                    let class = if self.constant(&votes) { Class::Link } else { Class::Intermittent };
                    Self::finding(class, Culprit::Link(pair), &votes, 1, chance)
                })
                .filter(|it| it.class == Class::Link || it.chance < RARE)
        });
        found.min_by(|a, b| a.chance.total_cmp(&b.chance))
    }

    /// The switch whose machines are slow against others and normal among themselves.
    fn group(&self) -> Option<Finding> {
        let votes = self.votes();
        let numbers: BTreeSet<usize> = self.fleet.hosts().filter_map(|it| self.fleet.group(it)).collect();
        let many = as_f64(numbers.len());
        let found = numbers.into_iter().filter_map(|group| {
            let (across, rest): (Vec<Vote>, Vec<Vote>) =
                votes.iter().partition(|it| self.crosses(it.pair, group));
            let inside = |it: &Vote| it.pair.hosts().iter().all(|it| self.fleet.group(*it) == Some(group));
            let normal: BTreeSet<Host> =
                rest.iter().filter(|it| inside(it) && !it.slow).flat_map(|it| it.pair.hosts()).collect();
            let slow_hosts: BTreeSet<Host> = across
                .iter()
                .filter(|it| it.slow)
                .flat_map(|it| it.pair.hosts())
                .filter(|it| normal.contains(it))
                .collect();
            let slow = across.iter().filter(|it| it.slow).count();
            let elsewhere = rest.iter().filter(|it| it.slow && !inside(it)).count();
            let noise = Noise { slow: elsewhere, of: rest.len() }.without(0, 0);
            let chance = at_least(slow, across.len(), noise) * many;
            let guilty = slow_hosts.len() >= SEVERAL
                && as_f64(slow) >= ALWAYS * as_f64(across.len())
                && chance < CHANCE;
            guilty
                .then(|| Self::finding(Class::Tier, Culprit::Group(group), &across, slow_hosts.len(), chance))
        });
        found.min_by(|a, b| a.chance.total_cmp(&b.chance))
    }

    /// Groups of machines with no normal pair between them, and enough slow ones to say so.
    fn groups(&mut self) -> Option<Split> {
        self.split = None;
        let votes = self.votes();
        let normal = Self::normal_with(&votes);
        let mut groups: Vec<Vec<Host>> = Vec::new();
        let mut placed: BTreeSet<Host> = BTreeSet::new();
        for start in normal.keys() {
            if !placed.insert(*start) {
                continue;
            }
            let mut group = vec![*start];
            let mut next = 0;
            while let Some(host) = group.get(next).copied() {
                next += 1;
                let partners = normal.get(&host).into_iter().flatten();
                group.extend(partners.filter(|it| placed.insert(**it)));
            }
            group.sort_unstable();
            groups.push(group);
        }
        groups.sort_by_key(|it| std::cmp::Reverse(it.len()));
        if groups.len() < 2 || groups.iter().any(|it| it.len() < SEVERAL) {
            return None;
        }
        let place = |host: Host| groups.iter().position(|it| it.contains(&host));
        let mut shares: Vec<f64> = Vec::new();
        let mut between: BTreeMap<[usize; 2], usize> = BTreeMap::new();
        for vote in &votes {
            let [one, other] = vote.pair.hosts();
            if let (Some(one), Some(other)) = (place(one), place(other))
                && one != other
            {
                shares.push(vote.share.unwrap_or(0.0));
                *between.entry([one.min(other), one.max(other)]).or_default() += 1;
            }
        }
        // Between each two groups: pairs that did not meet say nothing.
        let all = groups.len() * (groups.len() - 1) / 2;
        if between.len() < all || between.values().any(|it| *it < 2 * SEVERAL) {
            return None;
        }
        shares.sort_by(f64::total_cmp);
        Some(Split { share: median(&shares)?, across: shares.len(), groups })
    }

    fn close(mut self) -> Judgement {
        let votes = self.votes();
        let normal = Self::normal_with(&votes);
        let mut open: BTreeSet<Question> = BTreeSet::new();
        let mut transient = 0;
        let accused = |host: Host| self.findings.iter().any(|it| it.culprit == Culprit::Host(host));
        for host in self.fleet.hosts().filter(|it| !accused(*it) && !normal.contains_key(it)) {
            open.insert(Question::Host(host));
        }
        for it in suspects(self.fleet, &votes) {
            let partners: BTreeSet<Host> =
                it.votes.iter().filter(|vote| vote.slow).map(|vote| vote.pair.other(it.host)).collect();
            if partners.len() >= WITNESSES && it.chance < SUSPICIOUS && it.votes.len() < ENOUGH {
                open.insert(Question::Host(it.host));
            }
        }
        let mut slow_pairs: BTreeMap<Pair, (usize, usize)> = BTreeMap::new();
        for vote in &votes {
            let count = slow_pairs.entry(vote.pair).or_default();
            count.0 += usize::from(vote.slow);
            count.1 += 1;
        }
        for (pair, (slow, of)) in slow_pairs.into_iter().filter(|it| it.1.0 > 0) {
            if pair.hosts().iter().any(|it| open.contains(&Question::Host(*it))) {
                continue;
            }
            let again = if slow == 1 { of < CONFIRMED } else { slow * 2 >= of && of < REPEATED };
            let fine_with = FINE_WITH.min(self.fleet.len().saturating_sub(2));
            let few = pair.hosts().into_iter().filter(|it| others(&normal, *it, pair.other(*it)) < fine_with);
            let few: Vec<Question> = few.map(Question::Host).collect();
            if !few.is_empty() && (again || slow >= CONFIRMED) && of > 1 {
                // A link only if both are normal with others.
                open.extend(few);
            } else if again {
                open.insert(Question::Pair(pair));
            } else {
                transient += slow;
            }
        }
        self.findings.sort_by(|a, b| a.chance.total_cmp(&b.chance).then(a.culprit.cmp(&b.culprit)));
        Judgement {
            reference: Some(self.reference),
            findings: self.findings,
            split: self.split,
            open: open.into_iter().collect(),
            cleared: normal.into_keys().collect(),
            transient,
        }
    }
}

/// With how many a machine was normal, but for one.
fn others(normal: &BTreeMap<Host, BTreeSet<Host>>, host: Host, but: Host) -> usize {
    normal.get(&host).map_or(0, |it| it.iter().filter(|it| **it != but).count())
}

/// A machine with what was measured against machines that others cleared.
struct Suspect {
    host: Host,
    votes: Vec<Vote>,
    slow: usize,
    partners: usize,
    chance: f64,
}

fn suspects(fleet: &Fleet, votes: &[Vote]) -> Vec<Suspect> {
    let normal = Court::normal_with(votes);
    let noise = Court::noise(votes, &normal);
    let mut against: BTreeMap<Host, Vec<Vote>> = BTreeMap::new();
    for vote in votes {
        for host in vote.pair.hosts() {
            if Court::cleared_without(&normal, vote.pair.other(host), host) {
                against.entry(host).or_default().push(*vote);
            }
        }
    }
    let suspect = |(host, votes): (Host, Vec<Vote>)| {
        let slow = votes.iter().filter(|it| it.slow).count();
        let partners: BTreeSet<Host> =
            votes.iter().filter(|it| it.slow).map(|it| it.pair.other(host)).collect();
        // Its own measurements are not part of the noise it is held against.
        let own = |it: &&Vote| Court::cleared_without(&normal, host, it.pair.other(host));
        let (own_slow, own_of) =
            (votes.iter().filter(own).filter(|it| it.slow).count(), votes.iter().filter(own).count());
        let chance = at_least(slow, votes.len(), noise.without(own_slow, own_of)) * as_f64(fleet.len());
        Suspect { host, slow, partners: partners.len(), votes, chance }
    };
    against.into_iter().map(suspect).filter(|it| it.slow > 0).collect()
}
