//! Why the steps of one run take longer than those of another: the training job of the first is changed into that of the second part by
//! part, and the predicted time of each is compared with the one before.

use forecast::training::{Calibration, Inter, Intra, Job, Predictor};

use super::Side;
use crate::training::NoJob;

/// The difference between the steps of a run and those of the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Causes {
    /// The run, by its position.
    pub run: usize,
    /// Seconds per step that it takes longer, as measured.
    pub seconds: f64,
    /// What a part of the job adds to a step, as predicted; the largest first.
    pub parts: Vec<Part>,
    /// What the parts do not add up to, or why there are none.
    pub rest: Unexplained,
}

/// A part of the job that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// `TCP instead of EFA between nodes`.
    pub what: String,
    /// Seconds per step that it adds.
    pub seconds: f64,
}

/// What remains.
#[derive(Debug, Clone, PartialEq)]
pub enum Unexplained {
    /// So many seconds per step.
    Seconds(f64),
    /// Nothing could be predicted, for this reason.
    All(String),
}

/// Less than this share of a step is not worth a line.
const LEAST: f64 = 0.001;

pub(super) fn of(at: usize, base: &Side<'_>, other: &Side<'_>) -> Option<Causes> {
    let (before, after) = (base.logged.measured.as_ref()?.seconds, other.logged.measured.as_ref()?.seconds);
    let seconds = after - before;
    let cause = |parts, rest| Some(Causes { run: at, seconds, parts, rest });
    let jobs = base.logged.job(base.run.job_file).map_err(|error| (base.run.name, error)).and_then(|from| {
        other.logged.job(other.run.job_file).map(|to| (from, to)).map_err(|it| (other.run.name, it))
    });
    let (from, to) = match jobs {
        Ok((from, to)) => (from, to),
        Err((name, error)) => return cause(Vec::new(), Unexplained::All(reason(name, &error))),
    };
    let mut parts = Vec::new();
    let mut last = from.job.clone();
    let Some(mut time) = predicted(&last) else {
        return cause(Vec::new(), Unexplained::All(format!("{} has no possible layout", base.run.name)));
    };
    for (job, what) in changes(&from.job, &to.job) {
        if job == last {
            continue;
        }
        let Some(next) = predicted(&job) else { continue };
        if (next - time).abs() > LEAST * before {
            parts.push(Part { what, seconds: next - time });
        }
        (last, time) = (job, next);
    }
    parts.sort_by(|one, other| other.seconds.abs().total_cmp(&one.seconds.abs()));
    let explained: f64 = parts.iter().map(|it| it.seconds).sum();
    cause(parts, Unexplained::Seconds(seconds - explained))
}

/// The job of the baseline, changed one part after the other until it is that of the other run.
fn changes(from: &Job, to: &Job) -> Vec<(Job, String)> {
    let mut job = from.clone();
    let mut all = Vec::new();
    let mut step = |job: &Job, what: String| all.push((job.clone(), what));
    job.model = to.model;
    step(&job, "another model".to_owned());
    job.run = to.run;
    step(&job, "another layout, batch or setting of the run".to_owned());
    let (old, new) = (from.cluster, to.cluster);
    let paths = (job.cluster.intra, job.cluster.inter);
    job.cluster = new;
    (job.cluster.intra, job.cluster.inter) = if old.gpu == new.gpu { paths } else { (new.intra, new.inter) };
    let machine = match (old.gpu == new.gpu, old.nodes == new.nodes) {
        (false, _) => format!("{} instead of {}", new.gpu.name, old.gpu.name),
        (true, false) => format!("{} nodes instead of {}", new.nodes, old.nodes),
        (true, true) => format!(
            "{} pods of {} GPUs on a node instead of {} of {}",
            new.pods, new.gpus, old.pods, old.gpus
        ),
    };
    step(&job, machine);
    job.cluster.intra = new.intra;
    step(&job, format!("{} instead of {} inside a node", inside(&new.intra), inside(&old.intra)));
    if let (Some(now), Some(then)) = (new.inter, job.cluster.inter) {
        job.cluster.inter = Some(Inter { gpudirect: then.gpudirect && now.kind == then.kind, ..now });
        step(&job, format!("{} instead of {} between nodes", network(&now), network(&then)));
        job.cluster.inter = Some(now);
        step(&job, format!("{} GPUDirect", if now.gpudirect { "with" } else { "without" }));
    } else {
        job.cluster.inter = new.inter;
        step(&job, "another network".to_owned());
    }
    all
}

const fn inside(intra: &Intra) -> &'static str {
    match intra {
        Intra::NvLink { .. } => "NVLink",
        Intra::Pci { .. } => "PCIe from GPU to GPU",
        Intra::Host { .. } => "host memory (SHM)",
    }
}

/// `4 x 100 Gbps of EFA`
fn network(inter: &Inter) -> String {
    format!("{} x {} Gbps of {}", inter.nics, inter.rate.0, inter.kind.network())
}

fn reason(name: &str, error: &NoJob) -> String {
    match error {
        NoJob::Lacks(lacks) => {
            let all: Vec<&str> = lacks.iter().map(|it| it.what).collect();
            format!("{name} does not say {}; --job JOB adds it", all.join(", "))
        }
        NoJob::Wrong(error) => format!("{name}: {error}"),
    }
}

fn predicted(job: &Job) -> Option<f64> {
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).ok()?;
    Some(step.time.0).filter(|it| it.is_finite() && *it > 0.0)
}
