//! Short answers: errors by family, and every run with its parts.

use std::fmt::Write as _;

use forecast::training::{Calibration, Kind};

use super::page::{errors, pairs};
use super::rows::{Row, families};

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
pub(crate) fn all(rows: &[Row], family: Option<&str>, calibration: &Calibration) -> String {
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
                for kind in Kind::ALL {
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
