//! Machines by themselves, compared with each other.

use fabric::units::GigabytesPerSecond;

use crate::chance::as_f64;
use crate::fleet::Host;
use crate::judge::{Class, Culprit, Finding};
use crate::reference::Reference;

/// How far measurements of one machine by itself lie apart: their standard deviation, as a part of what it reaches. None where nothing
/// was measured twice.
pub(crate) fn scatter(rates: &[Vec<f64>]) -> Option<f64> {
    let (mut squares, mut of) = (0.0, 0);
    for own in rates.iter().filter(|it| it.len() > 1) {
        let mean = own.iter().sum::<f64>() / as_f64(own.len());
        squares += own.iter().map(|it| (it / mean - 1.0).powi(2)).sum::<f64>();
        of += own.len() - 1;
    }
    (of > 0).then(|| (squares / as_f64(of)).sqrt())
}

/// Machines that are slow by themselves. `scatter`: how far measurements of one machine lie apart, where that is known.
pub(crate) fn local(
    hosts: &[Host],
    rates: &[Option<f64>],
    least: Option<GigabytesPerSecond>,
    scatter: Option<f64>,
) -> Vec<Finding> {
    // What few machines reach may lie close together by luck.
    let reference = Reference::of(rates.iter().copied().flatten())
        .map(|it| Reference { spread: it.spread.max(scatter.unwrap_or(0.0)), ..it });
    let slow = |rate: Option<f64>| {
        let below = rate.is_none_or(|rate| least.is_some_and(|least| rate < least.0));
        below || reference.is_some_and(|it| it.is_far(rate, rates.len()))
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
