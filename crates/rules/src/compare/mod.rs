//! Runs side by side: what differs between them, what each took, and how much of the difference their paths explain.
//!
//! ```text
//! Log and job file of each run -> facts (machine, layout, paths, releases, variables), figures (step, run, memory), rates of collectives
//! the two training jobs, changed into each other part by part -> seconds because of each part, and what remains
//! ```

mod causes;
mod facts;
mod figures;
mod paths;
mod rates;
mod recorded;
mod settings;

use serde_json::Value;

use crate::Log;
use crate::training::{Batch, Described, Logged, Method, NoJob};

pub use causes::{Causes, Explained, Part, Unexplained};
pub use facts::Fact;
pub use figures::{Amount, Figure, Quantity};
pub use paths::{ExpectedRatio, PathRatio};
pub use rates::{Expected, Measured, Rate};
pub use recorded::Recorded;
pub use settings::{COLLECTIVE, Price, SIZE, Setting};

/// One run, as it is given.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What to call it.
    pub name: &'a str,
    /// What its files say.
    pub log: &'a Log,
    /// The tables of a job file, which says what the files do not; null without one.
    pub job_file: &'a Value,
    /// Bandwidths that other files of it give.
    pub measured: &'a [Measured],
    /// Seconds of the whole run, where the caller knows them.
    pub took: Option<f64>,
    /// What an answer of plumb about the run says, where its logs do not.
    pub recorded: &'a Recorded,
}

/// Runs beside each other. Every list has a value for each run, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What the runs are called.
    pub runs: Vec<String>,
    /// The run that others are compared with.
    pub baseline: usize,
    /// What is known about them: first what differs, then what is the same.
    pub facts: Vec<Fact>,
    /// What they took.
    pub figures: Vec<Figure>,
    /// Bandwidths of collectives by size.
    pub rates: Vec<Rate>,
    /// Seconds of steps by their number, of each run; empty where they are not known.
    pub steps: Vec<Vec<(u64, f64)>>,
    /// Why the steps of each other run take longer or shorter than those of the baseline.
    pub causes: Vec<Causes>,
    /// How much of the difference in bandwidth the paths explain.
    pub paths: Vec<PathRatio>,
    /// Variables and releases that differ from those of the baseline and may be causes.
    pub settings: Vec<Setting>,
}

impl Comparison {
    /// Compares runs with one of them, by its position.
    pub fn of(runs: &[Run<'_>], baseline: usize) -> Self {
        let mut sides: Vec<Side<'_>> = runs.iter().map(|it| Side::of(*it)).collect();
        measure_alike(&mut sides);
        let causes = match sides.get(baseline) {
            None => Vec::new(),
            Some(base) => {
                let others = sides.iter().enumerate().filter(|(at, _)| *at != baseline);
                others.filter_map(|(at, side)| causes::of(at, base, side)).collect()
            }
        };
        let steps = |it: &Side<'_>| Some(it.logged.measured.as_ref()?.spread.as_ref()?.points.clone());
        let rates = rates::of(&sides);
        let facts = facts::of(&sides);
        Self {
            steps: sides.iter().map(|it| steps(it).unwrap_or_default()).collect(),
            paths: paths::of(&rates, baseline, sides.len()),
            runs: runs.iter().map(|it| it.name.to_owned()).collect(),
            baseline,
            settings: settings::of(&sides, &facts, baseline),
            facts,
            figures: figures::of(&sides),
            rates,
            causes,
        }
    }

    /// What was measured in each run, by name; nothing where nothing was.
    pub fn measurements(&self) -> Vec<Vec<String>> {
        let one = |at: usize| {
            let has = |amounts: &[Option<Amount>]| amounts.get(at).is_some_and(Option::is_some);
            let figures =
                self.figures.iter().filter(|it| has(&it.amounts)).map(|it| it.quantity.name().to_owned());
            let mut rates: Vec<String> = self
                .rates
                .iter()
                .filter(|it| has(&it.amounts))
                .map(|it| format!("bandwidths of {}", it.collective.name()))
                .collect();
            rates.dedup();
            figures.chain(rates).collect::<Vec<String>>()
        };
        (0..self.runs.len()).map(one).collect()
    }

    /// Whether there is anything that two runs have in common to be compared.
    pub fn is_comparable(&self) -> bool {
        let both = |known: usize| known >= 2;
        self.figures.iter().any(|it| both(it.amounts.iter().flatten().count()))
            || self.rates.iter().any(|it| both(it.amounts.iter().flatten().count()))
    }
}

/// A run with what its log says about training.
struct Side<'a> {
    run: Run<'a>,
    logged: Logged,
    /// The time of a step that is compared. The log may have a more exact one that other runs lack.
    step: Option<crate::training::Measured>,
}

impl<'a> Side<'a> {
    fn of(run: Run<'a>) -> Self {
        let mut side = Self { run, logged: Logged::of(run.log), step: None };
        let steps = side.value("run.steps").and_then(|it| it.as_f64()).filter(|it| *it > 0.0);
        if let Some(took) = run.took {
            match (&mut side.logged.measured, steps) {
                (Some(measured), _) => measured.run = Some(took),
                (None, Some(steps)) => side.logged.measured = Some(side.spread_over(took, steps)),
                (None, None) => {}
            }
        }
        side.step.clone_from(&side.logged.measured);
        side
    }

    /// The time of a step by one method.
    fn measured_by(&self, method: Method) -> Option<crate::training::Measured> {
        let steps = self.value("run.steps").and_then(|it| it.as_f64()).filter(|it| *it > 0.0);
        match (method, self.run.took.zip(steps)) {
            (Method::Run, Some((took, steps))) => Some(self.spread_over(took, steps)),
            _ => self.logged.measured_by(method, &self.run.log.case.training),
        }
    }

    /// The step of a run of which only the whole time is known.
    fn spread_over(&self, took: f64, steps: f64) -> crate::training::Measured {
        let startup =
            self.value("run.startup_s").and_then(|it| it.as_f64()).filter(|it| *it > 0.0 && *it < took);
        let how = match startup {
            Some(startup) => format!("{took} s over {steps} steps, without {startup} s of start-up"),
            None => format!("{took} s over {steps} steps, start-up included"),
        };
        let seconds = (took - startup.unwrap_or_default()) / steps;
        crate::training::Measured { seconds, how, run: Some(took), ..Default::default() }
    }

    /// The job that log and job file describe. One file is given for all runs, so the batch that a run prints counts more.
    fn job(&self) -> Result<Described, NoJob> {
        let mut logged = self.logged.clone();
        if let Some(samples) = self.logged.batch.and_then(Batch::samples) {
            logged.set(Logged::BATCH, samples.into());
        }
        logged.job(self.run.job_file)
    }

    /// A value of the job, as the job file or the log gives it.
    fn value(&self, key: &str) -> Option<Value> {
        if key == Logged::BATCH
            && let Some(printed) = self.logged.batch
        {
            return printed.samples().map(Value::from);
        }
        let (table, name) = key.split_once('.')?;
        let of_file = self.run.job_file.get(table).and_then(|it| it.get(name));
        of_file.or_else(|| self.logged.get(key)).cloned()
    }
}

/// Lets all runs have times of steps that can be compared: where those of one include the start of training and those of another do not, they
/// are measured by the most exact method that all have.
fn measure_alike(sides: &mut [Side<'_>]) {
    let methods: Vec<Method> = sides.iter().filter_map(|it| Some(it.step.as_ref()?.method)).collect();
    let same = methods.iter().all(|it| methods.first() == Some(it));
    if same || methods.iter().all(|it| it.is_of_steps()) {
        return;
    }
    for method in Method::ALL {
        let measured: Vec<_> =
            sides.iter().map(|it| it.step.as_ref().and_then(|_| it.measured_by(method))).collect();
        if sides.iter().zip(&measured).any(|(side, it)| side.step.is_some() && it.is_none()) {
            continue;
        }
        for (side, measured) in sides.iter_mut().zip(measured) {
            let (Some(before), Some(mut now)) = (side.step.take(), measured) else { continue };
            if before.method != method {
                let other = before.how.split(',').next().unwrap_or_default();
                now.how.push_str(&format!("; not the {other}, which not every run has"));
            }
            side.step = Some(now);
        }
        return;
    }
}

#[cfg(test)]
mod tests;
