//! `plumb plan`: which layout of a training job is best here?

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use ::manifest::{Kind, Request};
use fabric::catalogue;
use forecast::plan::{Fixed, Found, JobFile, Plan, Search, Space};
use forecast::training::{Calibration, Framework, Job, Recompute};
use report::Style;
use report::html::PlanPage;
use report::plan::{Asked, Target, command, variables};

use crate::args::{self, Colour, FailOn, PageFormat};
use crate::predict::inputs::{self, Described};
use crate::progress::{self, Progress};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, output, page};

/// What is left of the bandwidth between GPUs when the choice is tried again.
const LESS_BANDWIDTH: f64 = 0.8;

pub(crate) fn run(args: &args::Plan, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if !output::spares(&args.write, &args.inputs.files(), false) {
        return Ok(UNDECIDED);
    }
    if let Some(read) = page::only(&args.inputs.job, "plan") {
        return page::show(read, page::Form::new(args.format, false), FailOn::Error, out);
    }
    let answer = inputs::read(&args.inputs).and_then(|(it, _)| answer(args, &it));
    match answer {
        Err(reason) => {
            complain(&format!("error: {reason}"));
            Ok(UNDECIDED)
        }
        Ok(answer) => answer.show(args, colour, out),
    }
}

/// What is printed and written.
struct Answer {
    report: report::plan::Plan,
    /// The job file of the best layout.
    file: Option<String>,
    /// Its settings.
    settings: Option<String>,
    /// Settings and job file for a page.
    copied: Vec<(String, String)>,
    /// What these cannot say.
    hint: Option<String>,
}

fn answer(args: &args::Plan, described: &Described) -> Result<Answer, String> {
    let (job, file) = (&described.job.clone().planned(), &JobFile::of_value(described.tables.clone()));
    let mut fixed = Fixed::default();
    for it in &args.fix {
        fixed.add(it).map_err(|error| format!("--fix {error}"))?;
    }
    let space = Space::new(job, &fixed, file.sequence_parallel())
        .map_err(|empty| format!("{}{empty}", named(args)))?;
    let calibration = Calibration::published();
    let search = Search::new(&calibration, &space, args.headroom / 100.0);
    let slow = search.with_bandwidth(LESS_BANDWIDTH);
    let (found, less) = both(&search, &slow);
    // One GPU has no link to another.
    let less = (job.cluster.ranks() > 1).then_some((LESS_BANDWIDTH, &slow, &less));
    let plan = Plan::new(&search, &found, less);
    let asked = Asked { job, has_layout: file.has_layout(), fixed: &args.fix, ranks: args.groups };
    let report = report::plan::Plan::new(asked, &plan);
    let Some(best) = plan.best else {
        return Ok(Answer { report, file: None, settings: None, copied: Vec::new(), hint: None });
    };
    let chosen = Job { run: best.run, ..job.clone() };
    let settings = args.emit.as_deref().map(|what| emit(args, what, &chosen, file)).transpose()?;
    let unsaid = args.write.is_some().then_some(&described.changes).filter(|it| !it.is_empty());
    let unsaid = unsaid.map(|it| format!("the written file does not say {}", it.join(", ")));
    let again = args.emit.as_deref() == Some("deepspeed") && best.run.recompute != Recompute::None;
    let hint = again.then(|| {
        "DeepSpeed's JSON does not turn on recomputation: set gradient_checkpointing in the trainer"
            .to_owned()
    });
    let hint = hint.or(unsaid);
    let written = file.with(&best.run);
    let copied = if args.format == PageFormat::Html { copied(&chosen, &written) } else { Vec::new() };
    Ok(Answer { report, file: Some(written), settings, copied, hint })
}

/// What of the best layout can be copied: settings of its framework, and a job file.
fn copied(job: &Job, file: &str) -> Vec<(String, String)> {
    let settings =
        Target::ALL.into_iter().filter_map(|it| Some((it.name().to_owned(), it.settings(job).ok()?)));
    settings.chain([("job file of plumb predict".to_owned(), file.to_owned())]).collect()
}

/// The name of the input, for an error.
fn named(args: &args::Plan) -> String {
    args.inputs.first().map(|it| format!("{}: ", input::name(it))).unwrap_or_default()
}

/// Searches with all and with less bandwidth, on all cores. The answer does not depend on their number.
fn both(search: &Search<'_>, slow: &Search<'_>) -> (Found, Found) {
    let cells = search.space().cells();
    let all = search.space().layouts().saturating_mul(2);
    let done = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&done);
    let _progress =
        Progress::of(move |elapsed| progress::bar(counted.load(Ordering::Relaxed), all, "layouts", elapsed));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = (Found::default(), Found::default());
        while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            found.0 = found.0.merge(search.cell(cell));
            found.1 = found.1.merge(slow.cell(cell));
            done.fetch_add(2 * cell.layouts, Ordering::Relaxed);
        }
        found
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(cells.len());
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut found = work();
        for other in others {
            // A thread that panicked has already said so.
            if let Ok(other) = other.join() {
                found = (found.0.merge(other.0), found.1.merge(other.1));
            }
        }
        found
    })
}

/// The best layout in the settings of a framework, or as a manifest.
fn emit(args: &args::Plan, what: &str, job: &Job, file: &JobFile) -> Result<String, String> {
    if let Some(target) = Target::ALL.into_iter().find(|it| it.name() == what) {
        return target.settings(job);
    }
    let kind = if what == "manifest" { Kind::TrainJob } else { Kind::find(what).unwrap_or(Kind::TrainJob) };
    if kind == Kind::MpiJob && job.run.framework != Framework::DeepSpeed {
        return Err(format!(
            "an MPIJob starts ranks with mpirun, but {} takes rank and size from torchrun: emit {}",
            job.run.framework.name(),
            "trainjob, pytorchjob, jobset, job or sbatch"
        ));
    }
    let Some(instance) = file.instance() else {
        return Err("a manifest needs `instance` in [cluster]: pods request what the machine has".to_owned());
    };
    let machine = catalogue::resolve(instance).map_err(|error| error.to_string())?;
    let pods = job.cluster.nodes.saturating_mul(job.cluster.pods);
    let request = Request {
        gpus: Some(job.cluster.gpus),
        image: args.image.clone(),
        command: command(job, &args.command),
        variables: variables(job),
        ..Request::new(kind, machine, pods)
    };
    ::manifest::write(&request)
}

impl Answer {
    fn show(&self, args: &args::Plan, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
        match (args.write.as_deref(), self.file.as_deref()) {
            (Some(path), Some(text)) => write(path, text, out)?,
            (Some(path), None) => {
                complain(&format!("error: {}: no layout fits, nothing is written", path.display()));
            }
            (None, _) => {}
        }
        if let Some(hint) = &self.hint {
            complain(&format!("hint: {hint}"));
        }
        let width = doctor::width();
        match (&self.settings, args.format) {
            (Some(settings), _) => out.write_all(settings.as_bytes())?,
            (None, PageFormat::Json) => self.report.json(out)?,
            (None, PageFormat::Html) => {
                report::html::write(&PlanPage { plan: &self.report, settings: &self.copied }, out)?;
            }
            (None, PageFormat::Text) => {
                let style = Style { colour: doctor::coloured(colour), width, verbose: false };
                self.report.text(style, out)?;
                if args.groups {
                    self.report.group_table(width, out)?;
                }
            }
        }
        Ok(if self.report.best.is_some() { CLEAN } else { FINDINGS })
    }
}

fn write(path: &Path, text: &str, out: &mut impl Write) -> io::Result<()> {
    if path.as_os_str() == "-" {
        return out.write_all(text.as_bytes());
    }
    output::write_file(path, |out| out.write_all(text.as_bytes()))
}
