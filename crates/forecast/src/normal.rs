//! The interval of bus bandwidth that is normal.

use fabric::Collective;
use fabric::machine::NicKind;
use nccl::tuning::Protocol;

use crate::algorithm::{Algorithm, Ceiling};
use crate::candidate::{self, Candidate};
use crate::cluster::{Between, Cluster, Inside};
use crate::decided::Choice;
use crate::model::Model;
use crate::regime::MANY;
use crate::shape::Shape;
use crate::wire::Wire;

/// What is normal for one collective at one size.
#[derive(Debug, Clone, PartialEq)]
pub struct Normal {
    /// The lowest normal bus bandwidth, in GB/s.
    pub low: f64,
    /// The one to expect.
    pub expected: f64,
    /// The highest: as far above the expected one as the lowest is below it.
    pub high: f64,
    /// How long a call takes at the expected bandwidth, in microseconds.
    pub time: f64,
    /// How much of that is latency.
    pub overhead: f64,
    /// The algorithm that NCCL uses; the newest of the possible releases where it is not known which runs.
    pub algorithm: Algorithm,
    /// What all possible releases choose, oldest first, without repetitions.
    pub possible: Vec<Possible>,
    /// The link that limits long messages.
    pub ceiling: Ceiling,
    /// Bus bandwidth of very long messages.
    pub asymptote: f64,
    /// What the wires can carry: a number above it is not a bus bandwidth of this job.
    pub wire: Wire,
    /// Whether published measurements of such machines and networks stand behind it; if not, the interval is wider.
    pub measured: bool,
}

/// What some releases choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Possible {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// The bus bandwidth to expect with them, in GB/s.
    pub bandwidth: f64,
    /// The same where the host starts calls as slowly, and as fast, as is usual.
    pub by_host: (f64, f64),
}

/// What is normal; `None` for a single rank, which sends nothing.
pub fn normal(collective: Collective, cluster: &Cluster, bytes: u64) -> Option<Normal> {
    Model::published().normal(collective, &Shape::new(cluster), bytes)
}

/// What is normal at one of several sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalAt {
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// What is normal.
    pub normal: Normal,
}

/// What is normal by size; empty for a single rank.
pub fn table(collective: Collective, cluster: &Cluster, sizes: &[u64]) -> Vec<NormalAt> {
    let shape = Shape::new(cluster);
    let normal = |bytes| Model::published().normal(collective, &shape, bytes);
    sizes.iter().filter_map(|&bytes| Some(NormalAt { bytes, normal: normal(bytes)? })).collect()
}

impl Model {
    /// What is normal; `None` for a single rank, which sends nothing.
    pub fn normal(&self, collective: Collective, shape: &Shape<'_>, bytes: u64) -> Option<Normal> {
        let factor = collective.bus_factor(shape.cluster.ranks()?);
        #[allow(clippy::cast_precision_loss, reason = "sizes of messages are far below 2^53")]
        let moved = bytes.max(1) as f64 * factor / 1e3;
        let chosen = self.possible(collective, shape, bytes, moved);
        // Releases that are possible choose differently: what is normal covers all of them.
        let fastest = chosen.iter().min_by(|a, b| a.0.whole.total_cmp(&b.0.whole))?;
        let slowest = chosen.iter().max_by(|a, b| a.0.whole.total_cmp(&b.0.whole))?;
        let whole = (fastest.0.whole * slowest.0.whole).sqrt();
        let apart = (slowest.0.whole / fastest.0.whole).ln() / 2.0;
        // The one that the newest release uses.
        let (time, candidate) = chosen.last()?;
        let wire = crate::wire::wire(&self.constants, collective, shape.cluster)?;
        let expected = moved / whole;
        let part = apart + self.spread(collective, shape, time);
        let mut possible: Vec<Possible> = Vec::new();
        for (time, candidate) in &chosen {
            let Candidate { algorithm, protocol, .. } = *candidate;
            let by_host = (moved / time.by_host.1, moved / time.by_host.0);
            let now = Possible { algorithm, protocol, bandwidth: moved / time.whole, by_host };
            if !possible.contains(&now) {
                possible.push(now);
            }
        }
        Some(Normal {
            low: expected * (-part).exp(),
            expected,
            high: expected * part.exp(),
            time: whole,
            overhead: time.overhead * whole / time.whole,
            algorithm: candidate.algorithm,
            possible,
            ceiling: candidate.ceiling,
            asymptote: candidate.bandwidth,
            wire,
            measured: self.sources(collective, shape) > 0,
        })
    }

    /// The candidates that NCCL chooses, by release, oldest first; the fastest where no choice can be predicted.
    fn possible(
        &self,
        collective: Collective,
        shape: &Shape<'_>,
        bytes: u64,
        moved: f64,
    ) -> Vec<(Time, Candidate)> {
        let timed = |choice| -> Vec<(Time, Candidate)> {
            let all = candidate::candidates(&self.constants, collective, shape, choice);
            all.into_iter().map(|it| (time(&it, moved), it)).collect()
        };
        let fastest = |timed: &[(Time, Candidate)], some: &dyn Fn(&Candidate) -> bool| {
            let some = timed.iter().filter(|it| some(&it.1));
            some.min_by(|a, b| a.0.whole.total_cmp(&b.0.whole)).cloned()
        };
        let by_choice = |choice: &Choice| {
            let timed = timed(Some(*choice));
            let of_kind = choice.kind.and_then(|(algorithm, protocol)| {
                let same = |it: &Candidate| it.algorithm == algorithm;
                fastest(&timed, &|it| same(it) && it.protocol == protocol).or_else(|| fastest(&timed, &same))
            });
            of_kind.or_else(|| fastest(&timed, &|_| true))
        };
        let mut found: Vec<_> = shape.choices(collective, bytes).iter().filter_map(by_choice).collect();
        if found.is_empty() {
            found.extend(fastest(&timed(None), &|_| true));
        }
        found
    }

    /// How far normal results lie from the expected one, as a logarithm.
    fn spread(&self, collective: Collective, shape: &Shape<'_>, time: &Time) -> f64 {
        let spread = &self.constants.spread;
        let unknown = match self.sources(collective, shape) {
            0 => spread.unmeasured,
            1 => spread.single,
            _ => 0.0,
        };
        let (start, link) = match shape.cluster.between.filter(|_| shape.cluster.groups() > 1) {
            None if matches!(shape.cluster.inside, Inside::Pci { .. }) => (spread.start, spread.pci),
            None => (spread.start, spread.link),
            Some(it) => self.spread_between(it, shape.cluster.groups()),
        };
        let wire = time.whole - time.overhead;
        let fill = (time.overhead - time.start).max(0.0);
        let parts = [(time.start, start), (fill, spread.fill), (wire, link)];
        let known: f64 = parts.iter().map(|(part, spread)| (part / time.whole * spread).powi(2)).sum();
        let host = (time.by_host.1 / time.by_host.0).ln() / 2.0;
        host + (known + unknown.powi(2)).sqrt()
    }

    /// The spreads of latencies and of what a network reaches.
    fn spread_between(&self, between: Between, nodes: u32) -> (f64, f64) {
        let spread = &self.constants.spread;
        match between.kind {
            NicKind::Ethernet => (spread.far, spread.tcp),
            NicKind::Slingshot => (spread.far, spread.slingshot),
            NicKind::GpuDirectTcp => (spread.far, spread.gpudirect_tcp),
            _ if !between.gpudirect => (spread.near, spread.pci),
            NicKind::Efa => (spread.start, spread.efa),
            _ if nodes > MANY => (spread.near, spread.many),
            _ => (spread.near, spread.network),
        }
    }
}

/// The time of a call, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Time {
    whole: f64,
    /// What is not bytes over links.
    overhead: f64,
    /// Of that, what the GPUs take before the first bytes have arrived.
    start: f64,
    /// The whole with the shortest and the longest time of the host.
    by_host: (f64, f64),
}

fn time(candidate: &Candidate, moved: f64) -> Time {
    let wire = moved / candidate.bandwidth;
    // Pipelining: with the best length of pieces, what is lost grows with the root of the length until pieces are whole.
    let fill = (2.0 * (candidate.steps * wire).sqrt()).min(candidate.fill);
    let start = candidate.launch + candidate.steps;
    let moving = fill + wire;
    let paced = candidate.flushed.map_or(0.0, |it| moved / it);
    // A single chunk has none to wait for.
    let paced = if paced < 2.0 * candidate.flush { 0.0 } else { paced };
    let device = start + moving.max(paced);
    // Calls follow one another: the longer of what the host and the GPUs take counts, with a soft transition.
    let longer = |host: f64| (host.powi(4) + device.powi(4)).powf(0.25);
    let by_host = (longer(candidate.host.0), longer(candidate.host.1));
    let whole = (by_host.0 * by_host.1).sqrt();
    Time { whole, overhead: whole - wire, start: start.min(whole - wire), by_host }
}
