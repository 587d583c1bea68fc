//! The interval of bus bandwidth that is normal.

use fabric::Collective;
use fabric::machine::NicKind;

use crate::algorithm::{self, Algorithm, Candidate, Ceiling};
use crate::cluster::Cluster;
use crate::model::Model;
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
    /// The algorithm that NCCL uses.
    pub algorithm: Algorithm,
    /// The link that limits long messages.
    pub ceiling: Ceiling,
    /// Bus bandwidth of very long messages.
    pub asymptote: f64,
    /// What the wires can carry: a number above it is not a bus bandwidth of this job.
    pub wire: Wire,
    /// Whether published measurements of such machines and networks stand behind it; if not, the interval is wider.
    pub measured: bool,
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

/// The same, with only some algorithms.
pub(crate) fn normal_by(
    collective: Collective,
    cluster: &Cluster,
    bytes: u64,
    allowed: impl Fn(Algorithm) -> bool,
) -> Option<Normal> {
    Model::published().normal_by(collective, &Shape::new(cluster), bytes, allowed)
}

impl Model {
    /// What is normal; `None` for a single rank, which sends nothing.
    pub fn normal(&self, collective: Collective, shape: &Shape<'_>, bytes: u64) -> Option<Normal> {
        self.normal_by(collective, shape, bytes, |_| true)
    }

    fn normal_by(
        &self,
        collective: Collective,
        shape: &Shape<'_>,
        bytes: u64,
        allowed: impl Fn(Algorithm) -> bool,
    ) -> Option<Normal> {
        let choice = shape.choice(collective, bytes);
        let candidates = algorithm::candidates(&self.constants, collective, shape);
        let factor = collective.bus_factor(shape.cluster.ranks()?);
        #[allow(clippy::cast_precision_loss, reason = "sizes of messages are far below 2^53")]
        let moved = bytes.max(1) as f64 * factor / 1e3;
        let possible = candidates.into_iter().filter(|it| allowed(it.algorithm));
        let timed: Vec<(Time, Candidate)> = possible.map(|it| (time(&it, moved), it)).collect();
        let fastest = |some: &dyn Fn(&Candidate) -> bool| {
            let some = timed.iter().filter(|it| some(&it.1));
            some.min_by(|a, b| a.0.whole.total_cmp(&b.0.whole))
        };
        let best = fastest(&|_| true)?;
        // NCCL's choice, unless it is far slower: then the release or plugin that runs chooses another.
        let predicted = choice.and_then(|choice| fastest(&|it| choice.is(it)));
        let slowest = best.0.whole * self.constants.choice.margin;
        let (time, candidate) = predicted.filter(|it| it.0.whole <= slowest).unwrap_or(best);
        let wire = crate::wire::wire(&self.constants, collective, shape.cluster)?;
        let expected = moved / time.whole;
        let part = self.spread(collective, shape, time);
        Some(Normal {
            low: expected * (-part).exp(),
            expected,
            high: expected * part.exp(),
            time: time.whole,
            overhead: time.overhead,
            algorithm: candidate.algorithm,
            ceiling: candidate.ceiling,
            asymptote: candidate.bandwidth,
            wire,
            measured: self.sources(collective, shape) > 0,
        })
    }

    /// How far normal results lie from the expected one, as a logarithm.
    fn spread(&self, collective: Collective, shape: &Shape<'_>, time: &Time) -> f64 {
        let spread = &self.constants.spread;
        let unknown = match self.sources(collective, shape) {
            0 => spread.unmeasured,
            1 => spread.single,
            _ => 0.0,
        };
        let link = match shape.cluster.between.filter(|_| shape.cluster.groups() > 1) {
            None => spread.link,
            Some(it) if matches!(it.kind, NicKind::Efa | NicKind::GpuDirectTcp) => spread.plugin,
            Some(_) => spread.network,
        };
        let wire = time.whole - time.overhead;
        let parts = [(time.start, spread.start), (time.overhead - time.start, spread.fill), (wire, link)];
        let known: f64 = parts.iter().map(|(part, spread)| (part / time.whole * spread).powi(2)).sum();
        (known + unknown.powi(2)).sqrt()
    }
}

/// The time of a call, in microseconds.
struct Time {
    whole: f64,
    /// What is not bytes over links.
    overhead: f64,
    /// Of that, what passes before the first bytes have arrived.
    start: f64,
}

fn time(candidate: &Candidate, moved: f64) -> Time {
    let wire = moved / candidate.bandwidth;
    // Pipelining: with the best length of pieces, what is lost grows with the root of the length until pieces are whole.
    let fill = (2.0 * (candidate.steps * wire).sqrt()).min(candidate.fill);
    let start = candidate.launch + candidate.steps;
    let overhead = start + fill;
    Time { whole: overhead + wire, overhead, start }
}
