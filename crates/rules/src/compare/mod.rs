//! Runs side by side: what differs between them, what each took, and how much of the difference their paths explain.
//!
//! ```text
//! Log and job file of each run -> facts (machine, layout, paths, releases, variables), figures (step, run, memory), rates of collectives
//! the two training jobs, changed into each other part by part -> seconds because of each part, and what remains
//! ```

mod causes;
mod facts;
mod figures;
mod rates;

use serde_json::Value;

use crate::Log;
use crate::training::Logged;

pub use causes::{Causes, Part, Unexplained};
pub use facts::Fact;
pub use figures::{Amount, Figure, Quantity};
pub use rates::{Measured, Rate};

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
    /// Why the steps of each other run take longer or shorter than those of the baseline.
    pub causes: Vec<Causes>,
}

impl Comparison {
    /// Compares runs with one of them, by its position.
    pub fn of(runs: &[Run<'_>], baseline: usize) -> Self {
        let sides: Vec<Side<'_>> = runs.iter().map(|it| Side::of(*it)).collect();
        let causes = match sides.get(baseline) {
            None => Vec::new(),
            Some(base) => {
                let others = sides.iter().enumerate().filter(|(at, _)| *at != baseline);
                others.filter_map(|(at, side)| causes::of(at, base, side)).collect()
            }
        };
        Self {
            runs: runs.iter().map(|it| it.name.to_owned()).collect(),
            baseline,
            facts: facts::of(&sides),
            figures: figures::of(&sides),
            rates: rates::of(&sides),
            causes,
        }
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
}

impl<'a> Side<'a> {
    fn of(run: Run<'a>) -> Self {
        let mut side = Self { run, logged: Logged::of(run.log) };
        let steps = side.value("run.steps").and_then(|it| it.as_f64()).filter(|it| *it > 0.0);
        if let Some(took) = run.took {
            match (&mut side.logged.measured, steps) {
                (Some(measured), _) => measured.run = Some(took),
                (None, Some(steps)) => side.logged.measured = Some(side.spread_over(took, steps)),
                (None, None) => {}
            }
        }
        side
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
        crate::training::Measured { seconds, how, run: Some(took) }
    }

    /// A value of the job, as the job file or the log gives it.
    fn value(&self, key: &str) -> Option<Value> {
        let (table, name) = key.split_once('.')?;
        let of_file = self.run.job_file.get(table).and_then(|it| it.get(name));
        of_file.or_else(|| self.logged.get(key)).cloned()
    }
}

#[cfg(test)]
mod tests;
