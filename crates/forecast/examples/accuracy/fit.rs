//! Constants from measurements: all of them, or all but those of one publication.

use std::collections::BTreeMap;

use forecast::{Model, Normal, constants};

use super::points::{Asked, sources};

/// Steps by which a constant is changed, as factors.
const STEPS: [f64; 3] = [1.12, 1.04, 1.01];

/// A constant that is fitted.
struct Fitted {
    name: String,
    value: f64,
    low: f64,
    high: f64,
}

fn fitted() -> Vec<Fitted> {
    let all = constants::all().into_iter();
    all.filter_map(|(name, it)| it.fit.map(|(low, high)| Fitted { name, value: it.value, low, high }))
        .collect()
}

/// How far a model is from measurements: the logarithms of errors, each publication with the root of its points. Of
/// what possible releases choose the nearest counts: most publications do not state theirs.
fn loss(model: &Model, points: &[&Asked<'_>], weights: &[f64]) -> f64 {
    let errors = points
        .iter()
        .zip(weights)
        .map(|(it, weight)| weight * robust(nearest(&it.normal(model), it.point.measured)));
    errors.sum::<f64>()
}

/// Squares for small errors; a point far off says that something else happened there, and moves no constant.
fn robust(error: f64) -> f64 {
    let square = error.powi(2);
    square / (1.0 + square / 0.1)
}

/// The smallest error of what possible releases give, as a logarithm. What a usual host explains is not an error.
fn nearest(normal: &Normal, measured: f64) -> f64 {
    let errors =
        normal.possible.iter().map(|it| (measured.clamp(it.by_host.0, it.by_host.1) / measured).ln());
    errors.min_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0)
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred points")]
fn weights(points: &[&Asked<'_>]) -> Vec<f64> {
    let of = |source: &str| points.iter().filter(|it| it.point.source == source).count() as f64;
    points.iter().map(|it| of(&it.point.source).sqrt().recip()).collect()
}

/// The model for these points, from the published one. Only constants that change what is expected `here` are fitted, if given.
fn fit(points: &[&Asked<'_>], here: Option<&[&Asked<'_>]>, sweeps: usize) -> (Model, Vec<(String, f64)>) {
    let mut model = Model::published().clone();
    let healthy: Vec<&Asked<'_>> = points.iter().copied().filter(|it| it.point.note.is_none()).collect();
    let weights = weights(&healthy);
    let mut constants = fitted();
    if let Some(here) = here {
        let expected = |model: &Model| here.iter().map(|it| it.normal(model).expected).sum::<f64>();
        let before = expected(&model);
        constants.retain(|it| {
            let mut changed = model.clone();
            changed.set(&it.name, it.value * 1.03);
            (expected(&changed) / before - 1.0).abs() > 1e-4
        });
    }
    let mut best = loss(&model, &healthy, &weights);
    for _ in 0..sweeps {
        for it in &mut constants {
            for step in STEPS.into_iter().flat_map(|step| [step, 1.0 / step]) {
                loop {
                    let value = (it.value * step).clamp(it.low, it.high);
                    let mut changed = model.clone();
                    changed.set(&it.name, value);
                    let now = loss(&changed, &healthy, &weights);
                    if now >= best * 0.9999 {
                        break;
                    }
                    (best, model, it.value) = (now, changed, value);
                }
            }
        }
    }
    (model, constants.into_iter().map(|it| (it.name, it.value)).collect())
}

/// The constants for all points.
pub(crate) fn all(points: &[Asked<'_>]) -> Vec<(String, f64)> {
    fit(&points.iter().collect::<Vec<_>>(), None, 3).1
}

/// The model that results without one publication: its points change neither constants nor what counts as measured.
pub(crate) fn without(points: &[Asked<'_>], source: &str) -> Model {
    let (here, others): (Vec<_>, Vec<_>) = points.iter().partition(|it| it.point.source == source);
    let (mut model, _) = fit(&others, Some(&here), 1);
    model.set_sources(sources(others.into_iter()));
    model
}

/// The part of points that may lie outside their interval.
const OUTSIDE: f64 = 0.1;

/// A point farther outside, as a logarithm, says no more than one so far.
const FAR: f64 = 0.2;

/// The least spread: publications of the same machines differ by this much.
const LEAST: f64 = 0.08;

/// The spreads with the best interval score (Gneiting and Raftery 2007) for all but one of ten points, each predicted without its
/// publication: width, and what points outside miss by, twenty times.
pub(crate) fn spreads(points: &[Asked<'_>]) -> Vec<(String, f64)> {
    let healthy: Vec<&Asked<'_>> = points.iter().filter(|it| it.point.note.is_none()).collect();
    let weights = weights(&healthy);
    let mut models: BTreeMap<&str, Model> = BTreeMap::new();
    for it in &healthy {
        models.entry(&it.point.source).or_insert_with(|| without(points, &it.point.source));
    }
    let cost = |models: &BTreeMap<&str, Model>| {
        let scores = healthy.iter().zip(&weights).map(|(it, weight)| {
            let normal = it.normal(&models[it.point.source.as_str()]);
            let measured = it.point.measured;
            let outside = (normal.low / measured).ln().max((measured / normal.high).ln()).clamp(0.0, FAR);
            weight * ((normal.high / normal.low).ln() + 2.0 / OUTSIDE * outside)
        });
        scores.sum::<f64>()
    };
    let names = constants::all().into_iter().filter(|it| it.0.starts_with("spread."));
    let mut spreads: Vec<(String, f64)> = names.map(|(name, it)| (name, it.value)).collect();
    let mut best = cost(&models);
    for _ in 0..4 {
        for (name, value) in &mut spreads {
            for step in [1.3, 1.1, 1.03].into_iter().flat_map(|step| [1.0 / step, step]) {
                loop {
                    let now = (*value * step).max(LEAST);
                    let mut changed = models.clone();
                    for it in changed.values_mut() {
                        it.set(name, now);
                    }
                    let cost = cost(&changed);
                    if cost >= best * 0.9999 {
                        break;
                    }
                    (best, models, *value) = (cost, changed, now);
                }
            }
        }
    }
    spreads
}
