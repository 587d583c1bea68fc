//! The page of errors, and shorter answers.

use std::fmt::Write as _;

use forecast::training::Calibration;

use super::rows::{Row, families};

/// Errors of one family.
pub(crate) struct Errors {
    pub(crate) count: usize,
    pub(crate) mean: f64,
    pub(crate) worst: f64,
    pub(crate) bias: f64,
    pub(crate) rank: f64,
}

#[allow(clippy::cast_precision_loss, reason = "a thousand rows")]
pub(crate) fn errors(pairs: &[(f64, f64)]) -> Option<Errors> {
    if pairs.is_empty() {
        return None;
    }
    let count = pairs.len();
    let relative: Vec<f64> = pairs.iter().map(|(measured, predicted)| predicted / measured - 1.0).collect();
    let mean = relative.iter().map(|it| it.abs()).sum::<f64>() / count as f64;
    let worst = relative.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
    let bias = relative.iter().sum::<f64>() / count as f64;
    Some(Errors { count, mean, worst, bias, rank: spearman(pairs) })
}

#[allow(clippy::cast_precision_loss, reason = "a thousand rows")]
fn spearman(pairs: &[(f64, f64)]) -> f64 {
    let ranks = |values: Vec<f64>| {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut ranks = vec![0.0; values.len()];
        for (position, index) in order.into_iter().enumerate() {
            ranks[index] = position as f64;
        }
        ranks
    };
    let measured = ranks(pairs.iter().map(|it| it.0).collect());
    let predicted = ranks(pairs.iter().map(|it| it.1).collect());
    let n = pairs.len() as f64;
    let squares: f64 = measured.iter().zip(&predicted).map(|(a, b)| (a - b).powi(2)).sum();
    1.0 - 6.0 * squares / (n * (n * n - 1.0)).max(1.0)
}

/// Measured and predicted times of a family.
pub(crate) fn pairs(rows: &[Row], family: &str, calibration: &Calibration) -> Vec<(f64, f64)> {
    rows.iter()
        .filter(|it| it.family == family)
        .filter_map(|it| Some((it.step?, it.predict(calibration).ok()?.time.0)))
        .collect()
}

/// Errors by family.
pub(crate) fn summary(rows: &[Row], calibration: &Calibration) -> String {
    let mut text = String::new();
    for family in families(rows) {
        let refused =
            rows.iter().filter(|it| it.family == family && it.predict(calibration).is_err()).count();
        if let Some(it) = errors(&pairs(rows, family, calibration)) {
            let _ = writeln!(
                text,
                "{family:18} {:4} mean {:5.1} % worst {:+6.1} % bias {:+5.1} % rank {:.2} refused {refused}",
                it.count,
                100.0 * it.mean,
                100.0 * it.worst,
                100.0 * it.bias,
                it.rank
            );
        }
        let memory: Vec<(f64, f64)> = rows
            .iter()
            .filter(|it| it.family == family)
            .filter_map(|it| Some((it.memory?, it.predict(calibration).ok()?.memory.total().0)))
            .collect();
        if let Some(it) = errors(&memory) {
            let _ = writeln!(
                text,
                "{family:18} {:4} memory: mean {:5.1} % worst {:+6.1} % bias {:+5.1} %",
                it.count,
                100.0 * it.mean,
                100.0 * it.worst,
                100.0 * it.bias
            );
        }
    }
    text
}

/// Every run of a family, or of all.
pub(crate) fn show(rows: &[Row], family: Option<&str>, calibration: &Calibration) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|it| family.is_none_or(|family| it.family == family)) {
        let run = &row.job.run;
        let model = &row.job.model;
        let _ = write!(
            text,
            "{} L{} h{} a{} {} n{} tp{} pp{} v{} z{} mb{} gb{} s{} {:?}",
            row.id,
            model.layers,
            model.hidden,
            model.heads,
            row.job.cluster.gpu.name,
            row.job.cluster.ranks(),
            run.tp,
            run.pp,
            run.vpp,
            run.zero,
            run.micro_batch,
            run.global_batch,
            run.seq,
            run.recompute
        );
        match row.predict(calibration) {
            Err(broken) => {
                let _ = writeln!(text, ": {broken}");
            }
            Ok(step) => {
                if let Some(measured) = row.step {
                    let _ = write!(
                        text,
                        ": {measured:.3} s, predicted {:.3}, {:+.1} %;",
                        step.time.0,
                        100.0 * (step.time.0 / measured - 1.0)
                    );
                }
                if let Some(measured) = row.memory {
                    let it = &step.memory;
                    let _ = write!(
                        text,
                        " mem {measured:.1} predicted {:.1} (w {:.1} g {:.1} o {:.1} a {:.1} b {:.1});",
                        it.total().0,
                        it.weights.0,
                        it.gradients.0,
                        it.optimizer.0,
                        it.activations.0,
                        it.buffers.0
                    );
                }
                for kind in forecast::training::Kind::ALL {
                    let part = step.breakdown[kind].exposed.0 / step.time.0;
                    if part > 0.005 {
                        let _ = write!(text, " {} {:.0}", kind.key(), 100.0 * part);
                    }
                }
                text.push('\n');
            }
        }
    }
    text
}

/// The page.
pub(crate) fn page(rows: &[Row]) -> String {
    summary(rows, &Calibration::published())
}
