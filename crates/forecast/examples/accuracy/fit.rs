//! Constants from measurements: all of them, or all but those of one publication.

use forecast::{Model, constants};

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

/// How far a model is from measurements: the squares of the logarithms of errors, each publication with the root of its points.
fn loss(model: &Model, points: &[&Asked<'_>], weights: &[f64]) -> f64 {
    let errors = points
        .iter()
        .zip(weights)
        .map(|(it, weight)| weight * (it.normal(model).expected / it.point.measured).ln().powi(2));
    errors.sum::<f64>()
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
