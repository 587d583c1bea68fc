//! Constants from published runs: all of them, or all but those of one family.

use forecast::training::{Calibration, constants};

use super::rows::{Row, families};

/// Steps by which a constant is changed, as parts of its range.
const STEPS: [f64; 4] = [0.2, 0.07, 0.02, 0.005];

/// A constant that is fitted.
struct Fitted {
    name: String,
    value: f64,
    low: f64,
    high: f64,
}

/// The mean error that a family should have at most.
const GOAL: f64 = 0.075;

/// The sum over families of their mean absolute error, as a logarithm, with what is above the goal counted more. Large errors
/// count a little more than small ones.
fn loss(calibration: &Calibration, groups: &[Vec<&Row>]) -> f64 {
    let of = |rows: &Vec<&Row>| {
        let errors = rows.iter().filter_map(|it| it.error(calibration)).map(f64::abs);
        let (sum, squares, count) =
            errors.fold((0.0, 0.0, 0.0_f64), |(a, b, n), it| (a + it, b + it * it, n + 1.0));
        let mean = sum / count.max(1.0);
        mean + 0.5 * squares / count.max(1.0) + 4.0 * (mean - GOAL).max(0.0)
    };
    groups.iter().map(of).sum::<f64>()
}

/// What constants cost that are far from the middle of what their sources allow: where measurements decide nothing, they stay.
fn distance(constants: &[Fitted]) -> f64 {
    let of = |it: &Fitted| ((it.value - it.low) / (it.high - it.low) - 0.5).powi(2);
    0.02 * constants.iter().map(of).sum::<f64>()
}

/// Fits to these rows, from the published constants.
fn fit(rows: &[&Row], sweeps: usize) -> (Calibration, Vec<(String, f64)>) {
    let mut calibration = Calibration::published();
    let mut groups: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|it| it.step.is_some()) {
        match groups.iter_mut().find(|it| it.0 == row.family) {
            Some(group) => group.1.push(row),
            None => groups.push((&row.family, vec![row])),
        }
    }
    let groups: Vec<Vec<&Row>> = groups.into_iter().map(|it| it.1).collect();
    let all = constants::all().into_iter();
    let mut constants: Vec<Fitted> = all
        .filter_map(|(name, it)| it.fit.map(|(low, high)| Fitted { name, value: it.value, low, high }))
        .collect();
    let mut best = loss(&calibration, &groups) + distance(&constants);
    for _ in 0..sweeps {
        let before = best;
        for index in 0..constants.len() {
            for step in STEPS.into_iter().flat_map(|step| [step, -step]) {
                loop {
                    let it = &constants[index];
                    let (old, name) = (it.value, it.name.clone());
                    let value = (old + step * (it.high - it.low)).clamp(it.low, it.high);
                    let mut changed = calibration.clone();
                    changed.set(&name, value);
                    constants[index].value = value;
                    let now = loss(&changed, &groups) + distance(&constants);
                    if now >= best * 0.99995 {
                        constants[index].value = old;
                        break;
                    }
                    (best, calibration) = (now, changed);
                }
            }
        }
        if best > before * 0.999 {
            break;
        }
    }
    (calibration, constants.into_iter().map(|it| (it.name, it.value)).collect())
}

/// The constants for all rows.
pub(crate) fn all(rows: &[Row]) -> (Calibration, Vec<(String, f64)>) {
    fit(&rows.iter().collect::<Vec<_>>(), 12)
}

/// The constants without one family.
pub(crate) fn without(rows: &[Row], family: &str) -> Calibration {
    fit(&rows.iter().filter(|it| it.family != family).collect::<Vec<_>>(), 4).0
}

/// The constants without each family.
pub(crate) fn leave_one_out(rows: &[Row]) -> Vec<(&str, Calibration)> {
    families(rows).into_iter().map(|family| (family, without(rows, family))).collect()
}
