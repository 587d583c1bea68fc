//! Why the steps of one run take longer than those of another: the training job of the first is changed into that of the second part by
//! part, and the predicted time of each is compared with the one before.

use forecast::training::{Calibration, Inter, Intra, Job, Predictor};

use super::Side;
use crate::training::{Batch, NoJob};

/// The difference between the steps of a run and those of the baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Causes {
    /// The run, by its position.
    pub run: usize,
    /// Seconds per step that it takes longer, as measured.
    pub seconds: f64,
    /// What a part of the job adds to a step, as predicted; the largest first. They add up to what is predicted for all together.
    pub parts: Vec<Part>,
    /// What the parts do not add up to, or why there are none.
    pub rest: Unexplained,
}

/// A part of the job that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// `TCP instead of EFA between nodes`.
    pub what: String,
    /// Seconds per step that it adds to a job that has the parts before it already.
    pub seconds: f64,
    /// Seconds per step that it adds to the baseline alone.
    pub alone: f64,
}

/// What remains.
#[derive(Debug, Clone, PartialEq)]
pub enum Unexplained {
    /// What is predicted, and the rest.
    Seconds(Explained),
    /// Nothing could be predicted, for this reason.
    All(String),
}

/// Seconds per step that the parts explain together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Explained {
    /// Predicted.
    pub seconds: f64,
    /// Between which seconds it lies, by the errors of the prediction on published runs.
    pub interval: (f64, f64),
    /// Measured without what is predicted.
    pub rest: f64,
}

impl Explained {
    fn of(measured: f64, predicted: f64, spread: f64) -> Self {
        let (one, other) = (predicted / spread, predicted * spread);
        Self { seconds: predicted, interval: (one.min(other), one.max(other)), rest: measured - predicted }
    }

    /// Whether more is predicted than was measured, beyond the error of the prediction: no share of the difference is known then.
    pub fn is_too_much(&self) -> bool {
        let measured = self.seconds + self.rest;
        let least = if self.seconds < 0.0 { self.interval.1 } else { self.interval.0 };
        least.abs() > measured.abs() || (least * measured < 0.0)
    }
}

/// Less than this share of a step is not worth a line.
const LEAST: f64 = 0.001;

pub(super) fn of(at: usize, base: &Side<'_>, other: &Side<'_>) -> Option<Causes> {
    let (before, after) = (base.step.as_ref()?.seconds, other.step.as_ref()?.seconds);
    let seconds = after - before;
    let cause = |parts, rest| Some(Causes { run: at, seconds, parts, rest });
    if let Some(it) = [base, other].into_iter().find(|it| it.logged.batch == Some(Batch::Changes)) {
        let why = format!("the batch of {} changes from step to step", it.run.name);
        return cause(Vec::new(), Unexplained::All(why));
    }
    let jobs = base
        .job()
        .map_err(|error| (base.run.name, error))
        .and_then(|from| other.job().map(|to| (from, to)).map_err(|it| (other.run.name, it)));
    let (from, to) = match jobs {
        Ok((from, to)) => (from, to),
        Err((name, error)) => return cause(Vec::new(), Unexplained::All(reason(name, &error))),
    };
    let mut parts = Vec::new();
    let mut last = from.job.clone();
    let Some(Time { seconds: first, spread }) = predicted(&last) else {
        return cause(Vec::new(), Unexplained::All(format!("{} has no possible layout", base.run.name)));
    };
    let mut time = first;
    for (change, what) in changes(&from.job, &to.job) {
        let job = change(&last);
        if job == last {
            continue;
        }
        let Some(Time { seconds: next, .. }) = predicted(&job) else { continue };
        if (next - time).abs() > LEAST * before {
            let alone = predicted(&change(&from.job)).map_or(next - time, |it| it.seconds - first);
            parts.push(Part { what, seconds: next - time, alone });
        }
        (last, time) = (job, next);
    }
    parts.sort_by(|one, other| other.seconds.abs().total_cmp(&one.seconds.abs()));
    cause(parts, Unexplained::Seconds(Explained::of(seconds, time - first, spread)))
}

/// A change of a job.
type Change<'a> = Box<dyn Fn(&Job) -> Job + 'a>;

/// What turns the job of the baseline into that of the other run, one after the other.
fn changes<'a>(from: &'a Job, to: &'a Job) -> Vec<(Change<'a>, String)> {
    let mut all: Vec<(Change<'a>, String)> = Vec::new();
    let mut step = |what: String, change: Change<'a>| all.push((change, what));
    step("another model".to_owned(), Box::new(|job| Job { model: to.model, ..job.clone() }));
    step(
        "another layout, batch or setting of the run".to_owned(),
        Box::new(|job| Job { run: to.run, ..job.clone() }),
    );
    let (old, new) = (&from.cluster, &to.cluster);
    let machine = match (old.gpu == new.gpu, old.nodes == new.nodes) {
        (false, _) => format!("{} instead of {}", new.gpu.name, old.gpu.name),
        (true, false) => format!("{} nodes instead of {}", new.nodes, old.nodes),
        (true, true) => format!(
            "{} pods of {} GPUs on a node instead of {} of {}",
            new.pods, new.gpus, old.pods, old.gpus
        ),
    };
    step(
        machine,
        Box::new(move |job| {
            let (intra, inter) = if old.gpu == new.gpu {
                (job.cluster.intra, job.cluster.inter)
            } else {
                (new.intra, new.inter)
            };
            let mut job = job.clone();
            job.cluster = *new;
            (job.cluster.intra, job.cluster.inter) = (intra, inter);
            job
        }),
    );
    step(
        format!("{} instead of {} inside a node", inside(&new.intra), inside(&old.intra)),
        Box::new(move |job| {
            let mut job = job.clone();
            job.cluster.intra = new.intra;
            job
        }),
    );
    let with = |job: &Job, inter: Option<Inter>| {
        let mut job = job.clone();
        job.cluster.inter = inter;
        job
    };
    if let (Some(now), Some(then)) = (new.inter, old.inter) {
        let gpudirect = then.gpudirect && now.kind == then.kind;
        step(
            format!("{} instead of {} between nodes", network(&now), network(&then)),
            Box::new(move |job| with(job, Some(Inter { gpudirect, ..now }))),
        );
        step(
            format!("{} GPUDirect", if now.gpudirect { "with" } else { "without" }),
            Box::new(move |job| {
                let inter = job.cluster.inter.map(|it| Inter { gpudirect: now.gpudirect, ..it });
                with(job, inter)
            }),
        );
    } else {
        step("another network".to_owned(), Box::new(move |job| with(job, new.inter)));
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
        NoJob::Wrong(_) | NoJob::Ranks { .. } => format!("{name}: {error}"),
    }
}

/// A predicted step, and by which factor it may be wrong.
struct Time {
    seconds: f64,
    spread: f64,
}

fn predicted(job: &Job) -> Option<Time> {
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).ok()?;
    let (seconds, high) = (step.time.0, step.interval.1.0);
    (seconds.is_finite() && seconds > 0.0).then_some(Time { seconds, spread: (high / seconds).max(1.0) })
}
