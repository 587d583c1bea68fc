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
        // A few runs say less than many.
        (count / 8.0).min(1.0) * (mean + 0.5 * squares / count.max(1.0) + 4.0 * (mean - GOAL).max(0.0))
    };
    groups.iter().map(of).sum::<f64>()
}

/// What constants cost that are far from the middle of what their sources allow: where measurements decide nothing, they stay.
fn distance(constants: &[Fitted]) -> f64 {
    let of = |it: &Fitted| ((it.value - it.low) / (it.high - it.low) - 0.5).powi(2);
    0.02 * constants.iter().map(of).sum::<f64>()
}

/// Rows by family.
fn groups<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    let mut groups: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|it| it.step.is_some()) {
        match groups.iter_mut().find(|it| it.0 == row.family) {
            Some(group) => group.1.push(row),
            None => groups.push((&row.family, vec![row])),
        }
    }
    // Families count alike: of many runs every fourth says as much.
    let some = |it: Vec<&'a Row>| {
        let every = if it.len() > 200 { 4 } else { 1 };
        it.into_iter().step_by(every).collect()
    };
    groups.into_iter().map(|it| some(it.1)).collect()
}

/// Constants, the model with them, and their loss.
struct Found {
    constants: Vec<Fitted>,
    calibration: Calibration,
    loss: f64,
}

impl Found {
    fn new(constants: Vec<Fitted>, groups: &[Vec<&Row>]) -> Self {
        let mut calibration = Calibration::published();
        for it in &constants {
            calibration.set(&it.name, it.value);
        }
        let loss = loss(&calibration, groups) + distance(&constants);
        Self { constants, calibration, loss }
    }

    /// Changes one constant at a time as long as that helps.
    fn descend(&mut self, groups: &[Vec<&Row>], sweeps: usize) {
        for _ in 0..sweeps {
            let before = self.loss;
            for index in 0..self.constants.len() {
                for step in STEPS.into_iter().flat_map(|step| [step, -step]) {
                    while self.change(groups, index, step) {}
                }
            }
            if self.loss > before * 0.999 {
                break;
            }
        }
    }

    /// Moves a constant by a part of its range, if that helps.
    fn change(&mut self, groups: &[Vec<&Row>], index: usize, step: f64) -> bool {
        let it = &mut self.constants[index];
        let old = it.value;
        it.value = (old + step * (it.high - it.low)).clamp(it.low, it.high);
        let mut changed = self.calibration.clone();
        changed.set(&it.name, it.value);
        let now = loss(&changed, groups) + distance(&self.constants);
        if now < self.loss * 0.99995 {
            (self.loss, self.calibration) = (now, changed);
            return true;
        }
        self.constants[index].value = old;
        false
    }
}

/// Fits to these rows, from the published constants and from others in their ranges.
fn fit(rows: &[&Row], starts: u64, sweeps: usize) -> Found {
    let groups = groups(rows);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut part = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[allow(clippy::cast_precision_loss, reason = "53 bits")]
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        part
    };
    let mut best: Option<Found> = None;
    for start in 0..starts {
        let constants = constants::all().into_iter().filter_map(|(name, it)| {
            let (low, high) = it.fit?;
            let value = if start == 0 { it.value } else { low + part() * (high - low) };
            Some(Fitted { name, value, low, high })
        });
        let mut found = Found::new(constants.collect(), &groups);
        found.descend(&groups, sweeps);
        if best.as_ref().is_none_or(|best| found.loss < best.loss) {
            best = Some(found);
        }
    }
    best.expect("at least one start")
}

/// The constants for all rows.
pub(crate) fn all(rows: &[Row]) -> (Calibration, Vec<(String, f64)>) {
    let found = fit(&rows.iter().collect::<Vec<_>>(), 12, 12);
    (found.calibration, found.constants.into_iter().map(|it| (it.name, it.value)).collect())
}

/// Constants as a fit prints them, one on a line.
pub(crate) fn read(text: &str) -> Calibration {
    let mut calibration = Calibration::published();
    for (name, value) in text.lines().filter_map(|it| it.split_once(" = ")) {
        if let Ok(value) = value.trim().parse() {
            calibration.set(name.trim(), value);
        }
    }
    calibration
}

/// The constants without one family.
pub(crate) fn without(rows: &[Row], family: &str) -> Calibration {
    // Mixtures of experts of a publication are a family of their own, and left out with it.
    let stem = |family: &str| family.trim_end_matches("_moe").to_owned();
    let others = rows.iter().filter(|it| stem(&it.family) != stem(family));
    fit(&others.collect::<Vec<_>>(), 3, 8).calibration
}

/// The constants without each family.
pub(crate) fn leave_one_out(rows: &[Row]) -> Vec<(&str, Calibration)> {
    families(rows).into_iter().map(|family| (family, without(rows, family))).collect()
}
