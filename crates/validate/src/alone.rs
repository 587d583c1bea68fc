//! Machines by themselves, compared with each other.

use fabric::units::GigabytesPerSecond;

use crate::chance::as_f64;
use crate::fleet::Host;
use crate::judge::{Class, Culprit, Finding};
use crate::reference::Reference;

/// How far measurements of one machine by itself lie apart: their standard deviation, as a part of what it reaches.
fn scatter(rates: &[Vec<f64>]) -> Option<f64> {
    let (mut squares, mut of) = (0.0, 0);
    for own in rates.iter().filter(|it| it.len() > 1) {
        let mean = own.iter().sum::<f64>() / as_f64(own.len());
        squares += own.iter().map(|it| (it / mean - 1.0).powi(2)).sum::<f64>();
        of += own.len() - 1;
    }
    (of > 0).then(|| (squares / as_f64(of)).sqrt())
}

/// What the best of so many measurements scatters, as a part of what one does: of a normal distribution.
const OF_BEST: [f64; 6] = [1.0, 0.83, 0.75, 0.70, 0.67, 0.64];

/// The scatter from which on more measurements are worth their time: a tenth of the loss that matters.
const WIDE: f64 = 0.01;

/// How far the best measurements of machines lie apart, and from how many measurements that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scatter {
    spread: f64,
    of: usize,
}

impl Scatter {
    /// Whether these scatter so far that three measurements of each machine tell little.
    pub(crate) fn is_wide(&self) -> bool {
        self.spread > WIDE
    }
}

/// None where nothing was measured twice.
pub(crate) fn scatter_of_best(rates: &[Vec<f64>]) -> Option<Scatter> {
    let times = rates.iter().map(Vec::len).filter(|it| *it > 0).min()?;
    let spread = scatter(rates)? * OF_BEST[(times - 1).min(OF_BEST.len() - 1)];
    Some(Scatter { spread, of: rates.iter().map(Vec::len).sum() })
}

/// Whether a machine is so slow by itself that it should be measured again.
pub(crate) fn is_in_doubt(rates: &[Option<f64>]) -> bool {
    let reference = Reference::of(rates.iter().copied().flatten());
    reference.is_some_and(|it| rates.iter().flatten().any(|rate| it.is_doubtful(*rate, rates.len())))
}

/// Machines that are slow by themselves. `scatter`: how far measurements of one machine lie apart, where that is known.
pub(crate) fn local(
    hosts: &[Host],
    rates: &[Option<f64>],
    least: Option<GigabytesPerSecond>,
    scatter: Option<Scatter>,
) -> Vec<Finding> {
    // What few machines reach may lie close together by luck.
    let reference = Reference::of(rates.iter().copied().flatten())
        .map(|it| Reference { spread: it.spread.max(scatter.map_or(0.0, |it| it.spread)), ..it });
    let measured = scatter.map_or(rates.len(), |it| it.of.max(rates.len()));
    let slow = |rate: Option<f64>| {
        let below = rate.is_none_or(|rate| least.is_some_and(|least| rate < least.0));
        below || reference.is_some_and(|it| it.is_far_with(rate, rates.len(), measured))
    };
    let each = hosts.iter().zip(rates);
    each.filter(|(_, rate)| slow(**rate))
        .map(|(host, rate)| Finding {
            class: Class::Node,
            culprit: Culprit::Host(*host),
            share: reference.zip(*rate).map_or(0.0, |(it, rate)| it.share(rate)),
            slow: 1,
            of: 1,
            partners: 0,
            failed: usize::from(rate.is_none()),
            chance: 0.0,
            loss: None,
        })
        .collect()
}
