//! Which algorithm and protocol is used for which sizes, by whoever decides: the tuner of the plugin, or NCCL.

use fabric::Collective;
use nccl::Prediction;
use nccl::tuning::{Choice, TUNED};

use super::{Range, Ranges};

/// The largest size that is asked for.
const LARGEST: u64 = 1 << 34;

/// All-reduce first, then the others by how often they are used.
pub(super) const ORDER: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
];

/// The ranges of every collective that NCCL tunes.
pub(super) fn all(prediction: &Prediction) -> Vec<Ranges> {
    let ranks = prediction.communicator.n_ranks;
    let tuned = ORDER.into_iter().filter(|it| TUNED.contains(it) && ranks > 1);
    let ranges = tuned.map(|it| Ranges { collective: it.name(), ranges: of(prediction, it) });
    ranges.filter(|it| !it.ranges.is_empty()).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    algorithm: &'static str,
    protocol: &'static str,
    by_tuner: bool,
}

fn of(prediction: &Prediction, collective: Collective) -> Vec<Range> {
    let chosen = |bytes: u64| -> Option<(Kind, Choice)> {
        let choice = prediction.choose(collective, bytes)?;
        let by_tuner = match &prediction.tuner {
            Some(Ok(tuner)) => tuner.advise(&prediction.tuning, collective, bytes).is_ok(),
            _ => false,
        };
        let (algorithm, protocol) = (choice.algorithm.name(), choice.protocol.name());
        Some((Kind { algorithm, protocol, by_tuner }, choice))
    };
    let kind = |bytes: u64| chosen(bytes).map(|it| it.0);
    let mut starts: Vec<u64> = vec![1];
    for place in sizes().windows(2) {
        let mut low = place[0];
        while kind(low) != kind(place[1]) {
            low = first_other(low, place[1], &kind);
            starts.push(low);
        }
    }
    let ends = starts.iter().skip(1).map(|it| Some(it - 1)).chain([None]);
    let range = |(from, to): (u64, Option<u64>)| {
        let (kind, first) = chosen(from)?;
        let last = chosen(to.unwrap_or(LARGEST)).map_or(first.channels, |it| it.1.channels);
        let Kind { algorithm, protocol, by_tuner } = kind;
        Some(Range { from, to, algorithm, protocol, channels: [first.channels, last], by_tuner })
    };
    starts.iter().copied().zip(ends).filter_map(range).collect()
}

/// Eight sizes for each power of two.
fn sizes() -> Vec<u64> {
    let mut all = vec![1];
    let mut size = 8_u64;
    while size < LARGEST {
        all.extend((0..8).map(|it| size + size / 8 * it));
        size *= 2;
    }
    all.push(LARGEST);
    all
}

/// The smallest size above `low` with another choice, if there is one change up to `high`.
fn first_other<T: PartialEq>(low: u64, high: u64, kind: &dyn Fn(u64) -> T) -> u64 {
    let (mut same, mut other) = (low, high);
    let here = kind(low);
    while other - same > 1 {
        let middle = same + (other - same) / 2;
        if kind(middle) == here { same = middle } else { other = middle }
    }
    other
}
