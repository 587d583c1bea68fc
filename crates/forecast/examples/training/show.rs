//! Short answers: errors by family, and every run with its parts.

use std::fmt::Write as _;

use std::hint::black_box;
use std::time::Instant;

use forecast::training::{Calibration, Job, Kind, Predictor};

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

/// Predicts layouts of GPT-3 175B on 512 A100, again and again.
pub(crate) fn speed() -> String {
    let text = "[model]\nname = 'gpt-3-175b'\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 64\n\
                inter = { kind = 'infiniband', nics = 8, gbps = 200 }\n[run]\nglobal_batch = 1536\nzero = 1\n";
    let job = Job::read(text).expect("a job");
    let calibration = Calibration::published();
    let predictor = Predictor::new(&calibration, &job.model, &job.cluster);
    let begin = Instant::now();
    let (mut all, mut possible) = (0_u32, 0_u32);
    while begin.elapsed().as_secs_f64() < 1.0 {
        for (tp, pp, vpp, micro_batch) in (0..4).flat_map(|tp| {
            (0..6).flat_map(move |pp| {
                (0..3).flat_map(move |vpp| (1..5).map(move |mb| (1 << tp, 1 << pp, 1 << vpp, mb)))
            })
        }) {
            let run = forecast::training::Run { tp, pp, vpp, micro_batch, ..job.run };
            all += 1;
            possible += u32::from(black_box(predictor.step(&run)).is_ok());
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    format!("{:.0} layouts per second on one core, {possible} of {all} possible\n", f64::from(all) / seconds)
}
