//! From what pairs reached to who is to blame.

mod loss;
mod tiers;
mod votes;

use std::collections::{BTreeMap, BTreeSet};

pub use loss::Loss;
use votes::{Scatter, Suspect, Vote, Votes};

use crate::chance::{Counted, above, as_f64, at_least, drawn_at_least};
use crate::fleet::{Fleet, Host, Pair, Sample};
use crate::reference::{Reference, middle};
use crate::resent::Usual;

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
    /// A NIC of all machines, counted from 0: the switches of its rail.
    Rail(usize),
}

/// An accusation with its evidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The kind of part.
    pub class: Class,
    /// The part.
    pub culprit: Culprit,
    /// The median of its measurements that did not fail, as a part of what is normal; 0 if most failed.
    pub share: f64,
    /// How many of its measurements were slow or failed, against machines that are normal against others,
    pub slow: usize,
    /// of how many,
    pub of: usize,
    /// and against how many machines.
    pub partners: usize,
    /// How many failed.
    pub failed: usize,
    /// The probability that chance makes any part of a fleet like this look so.
    pub chance: f64,
    /// What it loses, where that is what it is accused of; then the slow measurements are those with losses.
    pub loss: Option<Loss>,
}

impl Finding {
    /// Whether it was measured often enough to tell a part that is always slow from one that is slow at times.
    pub fn class_is_sure(&self) -> bool {
        self.class != Class::Node || self.partners == 0 || self.of >= TELLS_CLASS || self.loss.is_some()
    }
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
    /// Pairs across groups that were measured, however often.
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

/// An accusation is made if chance would make one such in a hundred fleets,
const CHANCE: f64 = 0.01;
/// and where pairs are slow by chance, in a thousand: every round is another chance to be unlucky.
const CHANCE_IF_NOISY: f64 = 0.001;
/// For a part that is slow at times one step less: a thousand, and where pairs are slow by chance, ten thousand.
const RARE: f64 = 0.0001;
/// Machines that are normal with others and against which a machine must be slow before it is accused.
const WITNESSES: usize = 2;
/// Measurements that must be slow before a link is accused: what was seen first, and three confirmations.
pub const CONFIRMED: usize = 4;
/// Machines of a switch that must be slow across it, and machines that make a group.
const SEVERAL: usize = 3;
/// Others with whom both ends of a slow link must be normal, and how often they must have been measured with others: a machine that is
/// slow at times is not a link.
const FINE_WITH: usize = 6;
const MEASURED_WITH_OTHERS: usize = 8;
/// A machine that is slow at times is slow with one partner every time and normal with the others in one of a thousand such series.
const AT_TIMES: f64 = 0.001;
/// How far rates lie apart, as parts of what is normal, that one machine reaches when it is slow at times.
const SAME_RATE: f64 = 0.05;
/// Bad links of one machine, beside which it is normal with others: more, and more than a third of its partners, are the machine.
const FEW_LINKS: usize = 3;
/// A part that is slow more rarely than this cannot be told from a busy network.
const OFTEN: f64 = 0.25;
/// A part that is bad is slow in this share of measurements, by which another question is decided.
const ALWAYS: f64 = 0.8;
/// A part is asked about again while it is bad with this probability, where one of all parts is expected to be.
const POSSIBLE: f64 = 0.02;
const POSSIBLE_LINK: f64 = 0.01;
/// The probability below which measurements do not belong to one rate.
const DIFFERENT: f64 = 0.01;
/// Repetitions of a slow pair after which it is a matter of chance.
const REPEATED: usize = 12;
/// Measurements of one machine after which more would not help.
const ENOUGH: usize = 14;
/// Measurements, all slow, that one slow half of the time shows in fewer than one of twenty cases.
pub(crate) const TELLS_CLASS: usize = 5;

/// Finds the smallest set of machines, links and switches that explains what was slow.
pub fn judge(fleet: &Fleet, samples: &[Sample]) -> Judgement {
    let Some(reference) = Reference::of_pairs(samples) else {
        return Judgement {
            reference: None,
            findings: Vec::new(),
            split: None,
            open: fleet.hosts().map(Question::Host).collect(),
            cleared: BTreeSet::new(),
            transient: 0,
        };
    };
    let mut judgement = Analysis::new(fleet, Measure::Rate(reference), samples).judge();
    judgement.reference = Some(reference);
    loss::judge(fleet, samples, &mut judgement);
    judgement
}

/// What is compared, with what is normal.
enum Measure {
    Rate(Reference),
    Resent(Usual),
}

impl Measure {
    fn scatter(&self) -> Scatter {
        Scatter(match self {
            Self::Rate(it) => Some(*it),
            Self::Resent(_) => None,
        })
    }

    /// None where it was not measured.
    fn vote(&self, sample: &Sample) -> Option<Vote> {
        let pair = sample.pair;
        match self {
            Self::Rate(it) => {
                let rate = sample.rate.map(|it| it.0);
                let share = rate.map(|rate| it.share(rate));
                Some(Vote { pair, slow: it.is_slow(rate), normal: it.is_normal(rate), share })
            }
            Self::Resent(it) => {
                let share = loss::worse(sample)?;
                let lossy = it.is_lossy(share);
                Some(Vote { pair, slow: lossy, normal: !lossy, share: Some(share) })
            }
        }
    }
}

struct Analysis<'a> {
    fleet: &'a Fleet,
    measure: Measure,
    samples: &'a [Sample],
    findings: Vec<Finding>,
    accused: BTreeSet<Host>,
    split: Option<Split>,
}

impl<'a> Analysis<'a> {
    const fn new(fleet: &'a Fleet, measure: Measure, samples: &'a [Sample]) -> Self {
        Self { fleet, measure, samples, findings: Vec::new(), accused: BTreeSet::new(), split: None }
    }

    fn judge(mut self) -> Judgement {
        loop {
            self.split = self.groups();
            let votes = self.votes();
            let found = self.group(&votes).or_else(|| self.failing(&votes));
            let found = found.or_else(|| self.host(&votes)).or_else(|| self.link(&votes));
            let Some(finding) = found else { return self.close(&votes) };
            if let Culprit::Host(host) = finding.culprit {
                self.accused.insert(host);
            }
            self.findings.push(finding);
        }
    }
}

impl Analysis<'_> {
    fn explained(&self, pair: Pair) -> bool {
        if let Some(split) = &self.split {
            let place = |host: Host| split.groups.iter().position(|it| it.contains(&host));
            let [one, other] = pair.hosts().map(place);
            if one.is_some() && other.is_some() && one != other {
                return true;
            }
        }
        pair.hosts().iter().any(|it| self.accused.contains(it))
            || self.findings.iter().any(|it| match it.culprit {
                Culprit::Host(_) | Culprit::Nic(..) | Culprit::Rail(_) => false,
                Culprit::Link(link) => link == pair,
                Culprit::Group(group) => self.crosses(pair, group),
            })
    }

    fn crosses(&self, pair: Pair, group: usize) -> bool {
        let [one, other] = pair.hosts().map(|it| self.fleet.group(it) == Some(group));
        one != other
    }

    /// What no accusation explains yet.
    fn votes(&self) -> Votes {
        let open = self.samples.iter().filter(|it| !self.explained(it.pair));
        let votes = open.filter_map(|it| self.measure.vote(it)).collect();
        Votes::new(self.fleet.len(), votes, self.measure.scatter())
    }

    fn finding(class: Class, culprit: Culprit, votes: &[Vote], partners: usize, chance: f64) -> Finding {
        // Failed measurements have no speed.
        let share = middle(votes.iter().filter_map(|it| it.share)).unwrap_or(0.0);
        let failed = votes.iter().filter(|it| !it.ended()).count();
        Finding {
            class,
            culprit,
            share: if 2 * failed > votes.len() { 0.0 } else { share },
            slow: votes.iter().filter(|it| it.slow).count(),
            of: votes.len(),
            partners,
            failed,
            chance: chance.min(1.0),
            loss: None,
        }
    }

    /// A machine whose measurements failed with several machines that fail with nobody else. Noise makes pairs slow; it does not make
    /// them fail. Where others fail at times too, a machine that fails at times must do so more often than they do; two failures of a whole fleet meet in one machine by chance.
    fn failing(&self, votes: &Votes) -> Option<Finding> {
        if !matches!(self.measure, Measure::Rate(_)) {
            return None;
        }
        let mut failed_with: BTreeMap<Host, BTreeSet<Host>> = BTreeMap::new();
        for vote in votes.all().iter().filter(|it| !it.ended()) {
            for host in vote.pair.hosts() {
                failed_with.entry(host).or_default().insert(vote.pair.other(host));
            }
        }
        let alone = |host: &Host| failed_with.get(host).is_some_and(|it| it.len() == 1);
        let found = failed_with.iter().filter_map(|(host, partners)| {
            let witnesses = partners.iter().filter(|it| alone(it)).count();
            if witnesses < WITNESSES {
                return None;
            }
            let (own, rest): (Vec<Vote>, Vec<Vote>) = votes.all().iter().partition(|it| it.pair.has(*host));
            let failed = |votes: &[Vote]| votes.iter().filter(|it| !it.ended()).count();
            let elsewhere = Counted::new(failed(&rest), rest.len());
            let chance = elsewhere.at_least(failed(&own), own.len()) * as_f64(self.fleet.len());
            let always = own.iter().all(|it| !it.ended());
            let guilty = always || failed(&rest) == 0 && witnesses > WITNESSES || chance < CHANCE_IF_NOISY;
            guilty.then_some((witnesses, *host, own, always, chance))
        });
        let (witnesses, host, own, always, chance) =
            found.max_by_key(|(witnesses, host, ..)| (*witnesses, std::cmp::Reverse(*host)))?;
        let class = if always { Class::Node } else { Class::Intermittent };
        Some(Self::finding(class, Culprit::Host(host), &own, witnesses, chance))
    }

    /// The machine that is slow against machines that others cleared, and least by chance.
    fn host(&self, votes: &Votes) -> Option<Finding> {
        let noisy = votes.noise().is_there();
        let guilty = votes.suspects().into_iter().filter(|it| {
            let often = as_f64(it.slow) >= OFTEN * as_f64(it.votes.len());
            it.partners.len() >= WITNESSES
                && often
                && it.chance < self.limit(&it.votes, votes, noisy)
                && self.links_of(it, votes).is_empty()
        });
        let worst = guilty.min_by(|a, b| {
            // The more often slow, the sooner explained: its partners lose their slow measurements with it.
            a.chance.total_cmp(&b.chance).then(b.slow.cmp(&a.slow)).then(a.host.cmp(&b.host))
        })?;
        let class = if self.constant(&worst.votes, votes) { Class::Node } else { Class::Intermittent };
        Some(Self::finding(
            class,
            Culprit::Host(worst.host),
            &worst.votes,
            worst.partners.len(),
            worst.chance,
        ))
    }

    /// The few partners with whom a machine is slow every time, where it is normal with others and that explains what was slow: these are
    /// bad links rather than a machine that is slow at times. A pair that was measured once is not known to be slow every time, but it
    /// may be, and is measured again before the machine is accused.
    fn links_of(&self, it: &Suspect, votes: &Votes) -> Vec<Pair> {
        if self.constant(&it.votes, votes) {
            return Vec::new();
        }
        let mut by_partner: BTreeMap<Host, Vec<Vote>> = BTreeMap::new();
        for vote in &it.votes {
            by_partner.entry(vote.pair.other(it.host)).or_default().push(*vote);
        }
        let met = by_partner.len();
        let every_time = |own: &[Vote]| own.iter().any(|it| it.slow) && self.constant(own, votes);
        let (links, others): (Vec<_>, Vec<_>) = by_partner.into_iter().partition(|it| every_time(&it.1));
        if links.is_empty() || links.len() > FEW_LINKS && links.len() * 3 > met {
            return Vec::new();
        }
        let confirmed = |own: &[Vote]| own.iter().filter(|it| it.slow).count() >= CONFIRMED;
        let rest: Vec<&Vote> = others.iter().flat_map(|it| &it.1).collect();
        let slow = rest.iter().filter(|it| it.slow).count();
        let explained = if links.iter().all(|it| confirmed(&it.1)) {
            let same =
                links.iter().any(|(other, own)| self.as_slow_elsewhere(it.host, *other, own, votes).0 > 0);
            as_f64(slow) < OFTEN * as_f64(rest.len()) && !same
        } else {
            it.noise.at_least(slow, rest.len()) > CHANCE
        };
        if !explained {
            return Vec::new();
        }
        links.into_iter().map(|(other, _)| Pair::new(it.host, other)).collect()
    }

    fn limit(&self, own: &[Vote], votes: &Votes, noisy: bool) -> f64 {
        match (self.constant(own, votes), noisy) {
            (false, true) => RARE,
            (true, true) | (false, false) => CHANCE_IF_NOISY,
            (true, false) => CHANCE,
        }
    }

    /// Whether these scatter as measurements of one rate do: the normal ones among them are not more than noise explains.
    fn constant(&self, own: &[Vote], votes: &Votes) -> bool {
        let slow = own.iter().filter(|it| it.slow).map(|it| it.share.unwrap_or(0.0));
        let Some(level) = middle(slow) else { return true };
        // A short measurement loses nothing by luck, and its share says little.
        let Measure::Rate(reference) = &self.measure else { return true };
        let normal = own.iter().filter(|it| it.normal).count();
        let line = reference.share(reference.normal_from);
        // By a normal distribution, or as often as machines that are normal exceed what is normal by as much.
        let lucky = above((line - level) / reference.spread).max(votes.reach(line / level));
        at_least(normal, own.len(), lucky) > DIFFERENT
    }

    /// The two machines that are slow against each other and normal with others.
    fn link(&self, votes: &Votes) -> Option<Finding> {
        let noise = votes.noise();
        let pairs = votes.by_pair();
        let measured = as_f64(pairs.len());
        let found = pairs.into_iter().filter_map(|(pair, own)| {
            let slow = own.iter().filter(|it| it.slow).count();
            if slow < CONFIRMED || !self.constant(&own, votes) || !self.doubted(pair, votes).is_empty() {
                return None;
            }
            if pair.hosts().into_iter().any(|it| self.slow_with_others(it, pair.other(it), votes)) {
                return None;
            }
            if pair.hosts().into_iter().any(|it| self.may_be_slow_at_times(it, pair.other(it), &own, votes)) {
                return None;
            }
            // Every measurement after the fourth is another chance to be unlucky.
            let looks = as_f64(own.len() + 1 - CONFIRMED);
            let chance = noise.without(slow, own.len()).at_least(slow, own.len()) * measured * looks;
            let limit = if noise.slow > slow { CHANCE_IF_NOISY } else { CHANCE };
            (chance < limit).then(|| Self::finding(Class::Link, Culprit::Link(pair), &own, 1, chance))
        });
        found.min_by(|a, b| a.chance.total_cmp(&b.chance))
    }

    /// How often a machine was as slow with others as with this one, and of how many measurements. Partners with whom it is slow every
    /// time are bad links too. Where pairs of other machines are slow by chance, so may these be, and none counts.
    fn as_slow_elsewhere(&self, host: Host, but: Host, own: &[Vote], votes: &Votes) -> (usize, usize) {
        let slow = own.iter().filter(|it| it.slow).filter_map(|it| it.share);
        let Some(level) = middle(slow) else { return (0, 0) };
        let mut by_partner: BTreeMap<Host, Vec<Vote>> = BTreeMap::new();
        for vote in votes.all().iter().filter(|it| it.ended() && it.pair.has(host) && !it.pair.has(but)) {
            by_partner.entry(vote.pair.other(host)).or_default().push(*vote);
        }
        by_partner.retain(|_, own| {
            let slow = own.iter().filter(|it| it.slow).count();
            slow < CONFIRMED || !self.constant(own, votes)
        });
        let same = |it: &&Vote| it.slow && it.share.is_some_and(|it| (it - level).abs() <= SAME_RATE);
        let others = || by_partner.values().flatten();
        let by_chance = votes.all().iter().any(|it| it.slow && !it.pair.has(host));
        (if by_chance { 0 } else { others().filter(same).count() }, others().count())
    }

    /// Whether a machine that is slow at times may explain what looks like its bad link to another.
    fn may_be_slow_at_times(&self, host: Host, other: Host, own: &[Vote], votes: &Votes) -> bool {
        let slow = own.iter().filter(|it| it.slow).count();
        let (elsewhere, of) = self.as_slow_elsewhere(host, other, own, votes);
        drawn_at_least(slow, own.len(), slow + elsewhere, own.len() + of) >= AT_TIMES
    }

    /// Whether a machine is slow with others than one more often than chance explains; pairs that are slow every time may be bad links
    /// too.
    fn slow_with_others(&self, host: Host, but: Host, votes: &Votes) -> bool {
        let mut by_partner: BTreeMap<Host, Vec<Vote>> = BTreeMap::new();
        for vote in votes.all().iter().filter(|it| it.ended() && it.pair.has(host) && !it.pair.has(but)) {
            by_partner.entry(vote.pair.other(host)).or_default().push(*vote);
        }
        by_partner.retain(|_, own| {
            let slow = own.iter().filter(|it| it.slow).count();
            slow < CONFIRMED || !self.constant(own, votes)
        });
        let slow = by_partner.values().flatten().filter(|it| it.slow).count();
        let of = by_partner.values().map(Vec::len).sum();
        let by_chance = votes.noise().without(slow, of);
        as_f64(slow) >= OFTEN * as_f64(of) && by_chance.at_least(slow, of) < CHANCE
    }

    /// The ends of a slow pair that may be slow themselves.
    fn doubted(&self, pair: Pair, votes: &Votes) -> Vec<Host> {
        let fine_with = FINE_WITH.min(self.fleet.len().saturating_sub(2));
        let fine = |host: Host| {
            let other = pair.other(host);
            votes.normal_with(host, other) >= fine_with
                && votes.measured_with_others(host, other) >= MEASURED_WITH_OTHERS
        };
        pair.hosts().into_iter().filter(|it| !fine(*it)).collect()
    }

    fn close(mut self, votes: &Votes) -> Judgement {
        let mut open: BTreeSet<Question> = BTreeSet::new();
        let mut transient = 0;
        let noise = votes.noise();
        let accused: BTreeSet<Host> = self.accused.clone();
        for host in self.fleet.hosts().filter(|it| !accused.contains(it) && !votes.is_cleared(*it)) {
            open.insert(Question::Host(host));
        }
        let parts = as_f64(self.fleet.len());
        let possible = |it: &Suspect| {
            it.partners.len() >= WITNESSES
                && it.votes.len() < ENOUGH
                && odds(it.slow, it.votes.len(), it.noise, parts, ALWAYS) > POSSIBLE
        };
        let suspects = votes.suspects();
        let mut links: BTreeSet<Pair> = BTreeSet::new();
        for suspect in suspects.iter().filter(|it| possible(it)) {
            let own = self.links_of(suspect, votes);
            if own.is_empty() {
                open.insert(Question::Host(suspect.host));
            }
            links.extend(own);
        }
        // One that was slow and then normal with the same partner has no bad link there. It may be slow at times.
        let at_times = |host: Host| {
            suspects.iter().find(|it| it.host == host).is_some_and(|it| {
                let (slow, of) = (it.slow, it.votes.len());
                of < ENOUGH && it.noise_is_rare && odds(slow, of, it.noise, parts, OFTEN) > POSSIBLE
            })
        };
        let pairs = votes.by_pair();
        let many = as_f64(pairs.len());
        for (pair, own) in pairs {
            let (slow, of) = (own.iter().filter(|it| it.slow).count(), own.len());
            if slow == 0 || pair.hosts().iter().any(|it| open.contains(&Question::Host(*it))) {
                continue;
            }
            if links.contains(&pair) && slow < CONFIRMED {
                open.insert(Question::Pair(pair));
                continue;
            }
            if !self.constant(&own, votes) {
                let asked: Vec<Host> = pair.hosts().into_iter().filter(|it| at_times(*it)).collect();
                if !asked.is_empty() {
                    open.extend(asked.into_iter().map(Question::Host));
                    continue;
                }
            }
            if of >= REPEATED || odds(slow, of, noise.without(slow, of), many, ALWAYS) < POSSIBLE_LINK {
                transient += slow;
                continue;
            }
            // A link only if both are normal with others.
            let mut doubted = if slow > 1 { self.doubted(pair, votes) } else { Vec::new() };
            if slow >= CONFIRMED {
                // Its ends with others, where they were as slow there, or where the pair itself was measured often enough.
                let ask = |it: &Host| {
                    let other = pair.other(*it);
                    self.as_slow_elsewhere(*it, other, &own, votes).0 > 0
                        || of > CONFIRMED && self.may_be_slow_at_times(*it, other, &own, votes)
                };
                doubted.extend(pair.hosts().into_iter().filter(ask));
            }
            if doubted.is_empty() {
                open.insert(Question::Pair(pair));
            } else {
                open.extend(doubted.into_iter().map(Question::Host));
            }
        }
        self.findings.sort_by(|a, b| a.chance.total_cmp(&b.chance).then(a.culprit.cmp(&b.culprit)));
        Judgement {
            reference: None,
            findings: self.findings,
            split: self.split,
            open: open.into_iter().collect(),
            cleared: self.fleet.hosts().filter(|it| votes.is_cleared(*it)).collect(),
            transient,
        }
    }
}

/// How likely a part is bad, and slow so often, rather than unlucky, where one of so many is bad.
fn odds(slow: usize, of: usize, noise: Counted, parts: f64, often: f64) -> f64 {
    let by_chance = noise.mean();
    let each = as_f64(slow) * (often / by_chance).ln()
        + as_f64(of - slow) * ((1.0 - often) / (1.0 - by_chance)).ln();
    (each - parts.max(1.0).ln()).exp()
}
