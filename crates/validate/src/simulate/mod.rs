//! A model of a fleet that answers as machines would: the rate of a pair is that of its slowest part, times noise.

mod spec;

use std::collections::BTreeMap;

use fabric::units::GigabytesPerSecond;

pub use spec::Spec;

use crate::fleet::{Fleet, Host, Pair};
use crate::nics::NicSample;
use crate::random::Random;
use crate::search::Limits;
use crate::step::{Answer, Expected, Rates, Step};
use crate::validation::Validation;

/// What all machines together must reach of the rate of a healthy pair.
const LEAST: f64 = 0.9;

/// The fleet of a [`Spec`], with the noise of its measurements.
#[derive(Debug)]
pub struct Model {
    spec: Spec,
    machines: Vec<f64>,
    links: BTreeMap<Pair, f64>,
    random: Random,
    /// Of its own, so that losses do not change what is reached.
    losses: Random,
}

impl Model {
    /// Healthy machines lie around the rate, the others below.
    pub fn new(spec: Spec) -> Self {
        let mut random = Random::new(spec.seed);
        let mut machines: Vec<f64> =
            (0..spec.nodes).map(|_| 1.0 - spec.spread * random.normal().abs()).collect();
        for (host, share) in &spec.slow {
            machines[host.0] *= share;
        }
        for (host, _, share) in &spec.nic {
            machines[host.0] -= (1.0 - share) / crate::chance::as_f64(spec.nics);
        }
        // What is slow on all of them, all together miss too.
        let rails: f64 = spec.rail.iter().map(|it| 1.0 - it.1).sum();
        for it in &mut machines {
            *it -= rails / crate::chance::as_f64(spec.nics);
        }
        let links = spec.link.iter().map(|(one, other, share)| (Pair::new(*one, *other), *share)).collect();
        let losses = Random::new(spec.seed ^ 0x10_55e5);
        Self { spec, machines, links, random, losses }
    }

    /// The machines as a validation sees them.
    pub fn fleet(&self) -> Fleet {
        let fleet = Fleet::new((0..self.spec.nodes).map(|it| format!("node{it:03}")).collect());
        match self.spec.leaf {
            0 => fleet,
            leaf => fleet.with_groups((0..self.spec.nodes).map(|it| it / leaf).collect()),
        }
    }

    /// A validation that has not begun.
    pub fn validation(&self, limits: Limits) -> Validation {
        let least = GigabytesPerSecond(self.spec.rate * LEAST);
        Validation::new(self.fleet(), Expected { local: None, all: Some(least) }, limits)
    }

    /// What this launch measures.
    pub fn answer(&mut self, step: &Step) -> Answer {
        let rates = match step {
            Step::Local(hosts) => Rates::Each(hosts.iter().map(|it| self.local(*it)).collect()),
            Step::Smoke(pair) => Rates::One(self.together(&pair.hosts())),
            Step::Scale(hosts) | Step::All(hosts) | Step::Without(hosts) => Rates::One(self.together(hosts)),
            Step::Pairs(pairs) => Rates::Each(pairs.iter().map(|it| self.pair(*it)).collect()),
            Step::Nics(pairs) => {
                // What is slow at times is so for the whole launch.
                let now: BTreeMap<Host, f64> = pairs
                    .iter()
                    .flat_map(|it| it.hosts())
                    .collect::<std::collections::BTreeSet<Host>>()
                    .into_iter()
                    .map(|it| (it, self.machine(it)))
                    .collect();
                let (mut each, mut whole) = (Vec::new(), Vec::new());
                for pair in pairs {
                    let now = pair.hosts().map(|it| now.get(&it).copied().unwrap_or(1.0));
                    for nic in 0..self.spec.nics {
                        each.push(NicSample { pair: *pair, nic, rate: self.nic(*pair, nic, now) });
                    }
                    whole.push(self.pair_at(*pair, now));
                }
                Rates::Nics { each, pairs: whole }
            }
        };
        Answer { rates, resent: self.resent(step) }
    }

    /// What each machine sends again, in a ring in the order of the list.
    fn resent(&mut self, step: &Step) -> Vec<Vec<Option<f64>>> {
        if self.spec.loss.is_empty() && self.spec.congestion <= 0.0 {
            return Vec::new();
        }
        let mut ring = |hosts: &[Host]| {
            let next = hosts.iter().cycle().skip(1);
            hosts.iter().zip(next).map(|(from, to)| Some(self.lost(Pair::new(*from, *to)))).collect()
        };
        match step {
            Step::Local(_) => Vec::new(),
            Step::Smoke(pair) => vec![ring(&pair.hosts())],
            Step::Scale(hosts) | Step::All(hosts) | Step::Without(hosts) => vec![ring(hosts)],
            Step::Pairs(pairs) | Step::Nics(pairs) => pairs.iter().map(|it| ring(&it.hosts())).collect(),
        }
    }

    /// The share of segments that one of the two sends to the other again.
    fn lost(&mut self, pair: Pair) -> f64 {
        // Queues are full more often at one time than at another.
        let congestion = self.spec.congestion * (0.5 * self.losses.normal()).exp();
        let own = self.spec.loss.iter().filter(|(one, other, _)| {
            if one == other { pair.has(*one) } else { pair == Pair::new(*one, *other) }
        });
        // A measurement sends some ten thousand segments.
        let lost: f64 = own.map(|it| it.2).sum();
        let deviation = (lost / 1e4).sqrt() * self.losses.normal();
        (congestion + lost + deviation).clamp(0.0, 1.0)
    }

    /// Runs all steps to the verdict.
    pub fn run(&mut self, limits: Limits, mut seen: impl FnMut(&Step, &Answer)) -> Validation {
        let mut validation = self.validation(limits);
        while let Some(step) = validation.next() {
            let answer = self.answer(&step);
            seen(&step, &answer);
            validation.record(&step, answer);
        }
        validation
    }

    fn dead(&self, host: Host) -> bool {
        self.spec.dead.contains(&host)
    }

    fn noisy(&mut self, share: f64) -> f64 {
        let dip = if self.random.share() < self.spec.dips { 0.5 + 0.4 * self.random.share() } else { 1.0 };
        (self.spec.rate * share * dip * self.spec.noise.mul_add(self.deviation(), 1.0))
            .max(self.spec.rate * 1e-3)
    }

    /// Normal, or by a Student distribution with as many degrees of freedom.
    fn deviation(&mut self) -> f64 {
        let normal = self.random.normal();
        let freedom = self.spec.tails;
        let squares: f64 = (0..freedom).map(|_| self.random.normal().powi(2)).sum();
        if freedom == 0 { normal } else { normal / (squares / crate::chance::as_f64(freedom)).sqrt() }
    }

    fn local(&mut self, host: Host) -> Option<f64> {
        let share = self.spec.local.iter().filter(|it| it.0 == host).fold(1.0, |all, it| all * it.1);
        let dips = std::mem::replace(&mut self.spec.dips, 0.0);
        let rate = self.noisy(share);
        self.spec.dips = dips;
        (!self.dead(host)).then_some(rate)
    }

    /// What a machine reaches this time.
    fn machine(&mut self, host: Host) -> f64 {
        let mut share = self.machines[host.0];
        let flaky: Vec<(f64, f64)> =
            self.spec.flaky.iter().filter(|it| it.0 == host).map(|it| (it.1, it.2)).collect();
        for (reaches, often) in flaky {
            if self.random.share() < often {
                share *= reaches;
            }
        }
        share
    }

    fn way(&self, pair: Pair) -> f64 {
        let link = self.links.get(&pair).copied().unwrap_or(1.0);
        let [one, other] = pair.hosts().map(|it| it.0.checked_div(self.spec.leaf));
        let tiers =
            self.spec.tier.iter().filter(|it| one != other && (one == Some(it.0) || other == Some(it.0)));
        tiers.fold(link, |least, it| least.min(it.1))
    }

    fn pair(&mut self, pair: Pair) -> Option<f64> {
        let now = pair.hosts().map(|it| self.machine(it));
        self.pair_at(pair, now)
    }

    fn pair_at(&mut self, pair: Pair, now: [f64; 2]) -> Option<f64> {
        let [one, other] = pair.hosts();
        let share = now[0].min(now[1]).min(self.way(pair));
        let rate = self.noisy(share);
        (!self.dead(one) && !self.dead(other)).then_some(rate)
    }

    /// A ring over all in the order of the list is as fast as its slowest part.
    fn together(&mut self, hosts: &[Host]) -> Option<f64> {
        let mut share = 1.0_f64;
        // It lasts longer than a pair: what is slow at times is met more often.
        for host in hosts.iter().flat_map(|it| [*it; 3]) {
            share = share.min(self.machine(host));
        }
        // Any link may be in the ring or the tree; all of them matter at some size.
        for pair in self.links.keys() {
            if pair.hosts().iter().all(|it| hosts.contains(it)) {
                share = share.min(self.links[pair]);
            }
        }
        let leaves: std::collections::BTreeSet<Option<usize>> =
            hosts.iter().map(|it| it.0.checked_div(self.spec.leaf)).collect();
        if leaves.len() > 1 {
            for (leaf, least) in &self.spec.tier {
                if leaves.contains(&Some(*leaf)) {
                    share = share.min(*least);
                }
            }
        }
        let rate = self.noisy(share);
        (!hosts.iter().any(|it| self.dead(*it))).then_some(rate)
    }

    /// One NIC of two machines alone, as a part of what one reaches. `now`: what the machines reach this time.
    fn nic(&mut self, pair: Pair, nic: usize, now: [f64; 2]) -> Option<f64> {
        let mut share = self.way(pair);
        let mut ends = !pair.hosts().iter().any(|it| self.dead(*it));
        for (host, now) in pair.hosts().into_iter().zip(now) {
            let of = |it: &&(Host, usize, f64)| it.0 == host;
            let rails = self.spec.rail.iter();
            let lost: f64 = self.spec.nic.iter().filter(of).map(|it| 1.0 - it.2).sum::<f64>()
                + rails.clone().map(|it| 1.0 - it.1).sum::<f64>();
            let own = self.spec.nic.iter().filter(of).find(|it| it.1 == nic).map_or(1.0, |it| it.2);
            let own = rails.filter(|it| it.0 == nic).fold(own, |least, it| least.min(it.1));
            // A machine whose other NIC is slow is not slow with this one.
            share = share.min(own).min(now + lost / crate::chance::as_f64(self.spec.nics));
            ends &= own > 0.0;
        }
        let rate = self.noisy(share) / crate::chance::as_f64(self.spec.nics);
        ends.then_some(rate)
    }
}
