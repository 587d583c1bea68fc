//! The answer of `plumb compare`: runs side by side. Schema `plumb.compare/1`.

mod tables;
mod text;

use std::io::{self, Write};

use rules::compare::{Amount, Comparison, PathRatio, Price, Quantity, Unexplained};
use serde::Serialize;

use crate::expect::{rounded, shown};
use crate::text::bytes;

pub(crate) use tables::normal;

/// Runs side by side. Every list of values has one for each run, in their order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compare {
    /// `plumb.compare/1`.
    pub schema: &'static str,
    /// The answer in sentences, one for each run that is not the baseline.
    pub answer: Vec<String>,
    /// What the runs are called.
    pub runs: Vec<String>,
    /// The run that others are compared with.
    pub baseline: String,
    /// The names of what was measured in each run: of the figures and the bandwidths.
    pub measurements: Vec<Vec<String>>,
    /// What is known to differ.
    pub differs: Vec<Fact>,
    /// What is known and does not differ.
    pub same: Vec<Fact>,
    /// What the runs took.
    pub figures: Vec<Figure>,
    /// Bus bandwidths of collectives.
    pub bandwidths: Vec<Bandwidth>,
    /// Seconds of steps by their number: pairs, evenly thinned out in long runs; empty for a run of which they are not known.
    pub steps: Vec<Vec<(u64, f64)>>,
    /// Why steps take longer or shorter than those of the baseline.
    pub causes: Vec<Causes>,
    /// How much of the difference in bandwidth the paths explain, for the largest size of each collective.
    pub paths: Vec<Paths>,
    /// Variables and releases that differ from those of the baseline: possible causes that no prediction of steps includes.
    pub settings: Vec<Setting>,
    /// Why nothing can be compared, where no two runs have a measurement in common: only what each has and what differs is known then.
    #[serde(skip)]
    pub not_comparable: Option<String>,
    #[serde(skip)]
    base: usize,
}

/// Something that is known about runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// What.
    pub name: String,
    /// Of each run.
    pub values: Vec<Option<String>>,
}

/// A quantity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// `step time`.
    pub name: &'static str,
    /// `s`.
    pub unit: &'static str,
    /// Of each run.
    pub values: Vec<Option<Measured>>,
}

/// A bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bandwidth {
    /// `all_reduce`.
    pub collective: &'static str,
    /// Bytes.
    pub size: u64,
    /// In GB/s, of each run.
    pub values: Vec<Option<Measured>>,
    /// What is normal on the machines of each run.
    pub normal: Vec<Option<[f64; 2]>>,
}

/// A measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// The value.
    pub value: f64,
    /// Of times and rates of steps: the 10th and the 90th percentile; of bandwidths: the lowest and the highest.
    pub spread: Option<[f64; 2]>,
    /// The value over that of the baseline.
    pub ratio: Option<f64>,
    /// How it was measured.
    pub how: Option<String>,
}

/// Why the steps of a run take longer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Causes {
    /// The run.
    pub run: String,
    /// Seconds per step that it takes longer, measured.
    pub seconds: f64,
    /// What explains them, predicted.
    pub parts: Vec<Part>,
    /// What all differences together add, predicted.
    pub explained_s: Option<f64>,
    /// Between which seconds that lies.
    pub explained_interval_s: Option<[f64; 2]>,
    /// Whether more is predicted than was measured.
    pub overshoots: bool,
    /// Seconds that nothing explains; none where nothing could be predicted.
    pub unexplained_s: Option<f64>,
    /// Why nothing could be predicted.
    pub not_predicted: Option<String>,
}

/// A part of the job that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Part {
    /// What.
    pub what: String,
    /// Seconds per step that it adds to the others.
    pub seconds: f64,
    /// Seconds per step that it adds to the baseline alone.
    pub alone_s: f64,
}

/// A bandwidth beside that of the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Paths {
    /// The run.
    pub run: String,
    /// `all_reduce`.
    pub collective: &'static str,
    /// Bytes.
    pub size: u64,
    /// Measured: over the bandwidth of the baseline.
    pub ratio: f64,
    /// What machines and paths of both make one expect; none where they are not known.
    pub expected_ratio: Option<f64>,
    /// Between which ratios that lies.
    pub interval: Option<[f64; 2]>,
    /// Whether the measured ratio is between them.
    pub explained: bool,
}

/// A variable or a release in which a run differs from the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// The run.
    pub run: String,
    /// `NCCL_MAX_NCHANNELS`, `libfabric`.
    pub name: String,
    /// What the run has.
    pub value: String,
    /// What the baseline has.
    pub baseline: String,
    /// Times the bandwidth of a large all-reduce that `expect` gives with the value of the baseline; none where it is not priced.
    pub expected_ratio: Option<f64>,
    /// Why it is not priced.
    pub not_priced: Option<&'static str>,
}

/// Steps of a run that are listed.
const MOST_STEPS: usize = 512;

impl Compare {
    /// From what was found out.
    pub fn new(compared: &Comparison) -> Self {
        let base = compared.baseline;
        let measured = |amounts: &[Option<Amount>]| {
            let of_base = amounts.get(base).and_then(Option::as_ref).map(|it| it.value);
            let one = |it: &Amount| Measured {
                value: rounded(it.value),
                spread: it.spread.map(|(low, high)| [rounded(low), rounded(high)]),
                ratio: of_base.filter(|it| *it > 0.0).map(|base| rounded(it.value / base)),
                how: it.how.clone(),
            };
            amounts.iter().map(|it| it.as_ref().map(one)).collect::<Vec<_>>()
        };
        let facts = |differs: bool| {
            let wanted = compared.facts.iter().filter(|it| it.differs == differs);
            wanted.map(|it| Fact { name: it.name.clone(), values: it.values.clone() }).collect()
        };
        let figures = compared.figures.iter().map(|it| Figure {
            name: it.quantity.name(),
            unit: it.quantity.unit(),
            values: measured(&it.amounts),
        });
        let bandwidths = compared.rates.iter().map(|it| Bandwidth {
            collective: it.collective.name(),
            size: it.size,
            values: measured(&it.amounts),
            normal: it.normal.iter().map(|it| it.map(|it| [rounded(it.low), rounded(it.high)])).collect(),
        });
        let causes = compared.causes.iter().map(|it| {
            let (explained, not_predicted) = match &it.rest {
                Unexplained::Seconds(explained) => (Some(explained), None),
                Unexplained::All(reason) => (None, Some(reason.clone())),
            };
            Causes {
                run: compared.runs.get(it.run).cloned().unwrap_or_default(),
                seconds: rounded(it.seconds),
                parts: it
                    .parts
                    .iter()
                    .map(|it| Part {
                        what: it.what.clone(),
                        seconds: rounded(it.seconds),
                        alone_s: rounded(it.alone),
                    })
                    .collect(),
                explained_s: explained.map(|it| rounded(it.seconds)),
                explained_interval_s: explained.map(|it| [rounded(it.interval.0), rounded(it.interval.1)]),
                overshoots: explained.is_some_and(rules::compare::Explained::is_too_much),
                unexplained_s: explained.map(|it| rounded(it.rest)),
                not_predicted,
            }
        });
        let mut compare = Self {
            schema: "plumb.compare/1",
            answer: Vec::new(),
            runs: compared.runs.clone(),
            baseline: compared.runs.get(base).cloned().unwrap_or_default(),
            measurements: compared.measurements(),
            differs: facts(true),
            same: facts(false),
            figures: figures.collect(),
            bandwidths: bandwidths.collect(),
            steps: compared.steps.iter().map(|it| thinned(it)).collect(),
            causes: causes.collect(),
            paths: compared.paths.iter().map(|it| Paths::new(it, &compared.runs)).collect(),
            settings: compared.settings.iter().map(|it| Setting::new(it, &compared.runs)).collect(),
            not_comparable: None,
            base,
        };
        let others = (0..compare.runs.len()).filter(|it| *it != base);
        let sentences = others.map(|it| compare.sentence(it));
        compare.answer = compare.fastest().into_iter().chain(sentences).collect();
        compare
    }

    /// As JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// Of three runs or more, which is fastest.
    fn fastest(&self) -> Option<String> {
        let work = self.runs.iter().enumerate().any(|(at, _)| self.other_work(at));
        let quantity = if work { Quantity::Tokens } else { Quantity::Step };
        let figure = self.figures.iter().find(|it| it.name == quantity.name())?;
        let mut all: Vec<(&String, f64)> = Vec::new();
        for (name, value) in self.runs.iter().zip(&figure.values) {
            all.extend(value.as_ref().map(|it| (name, it.value)));
        }
        all.sort_by(|one, other| one.1.total_cmp(&other.1));
        let one = if work { all.last() } else { all.first() };
        let (name, value) = one.filter(|_| all.len() > 2)?;
        Some(format!("{name} is the fastest of {}: {}", all.len(), amount(*value, figure.unit)))
    }

    /// Whether a step of this run does more or less than one of the baseline, so that times of steps say little.
    fn other_work(&self, run: usize) -> bool {
        let named = self
            .differs
            .iter()
            .filter(|it| ["batch", "tokens of a sequence", "tokens of a step"].contains(&&*it.name));
        let value = |it: &Fact, at: usize| it.values.get(at).cloned().flatten();
        named.into_iter().any(|it| value(it, run).zip(value(it, self.base)).is_some_and(|it| it.0 != it.1))
    }

    /// What both this run and the baseline have of a fact.
    fn both(&self, fact: &str, run: usize) -> [Option<&str>; 2] {
        let it = self.differs.iter().chain(&self.same).find(|it| it.name == fact);
        [run, self.base].map(|at| it?.values.get(at)?.as_deref())
    }

    /// That the batch of only one of this run and the baseline is known, so that their steps may do different work.
    fn unknown_batch(&self, run: usize) -> String {
        if let [Some(_), Some(_)] = self.both("tokens of a step", run) {
            return String::new();
        }
        let unknown = match self.both("batch", run) {
            [None, Some(_)] => self.runs.get(run),
            [Some(_), None] => Some(&self.baseline),
            _ => None,
        };
        let text = |it: &String| format!("; the batch of {it} is not known, so steps may do different work");
        unknown.map(text).unwrap_or_default()
    }

    /// The number of steps of this run and of the baseline, where they differ.
    fn other_steps(&self, run: usize) -> Option<[&str; 2]> {
        match self.both("steps", run) {
            [Some(mine), Some(base)] if mine != base => Some([mine, base]),
            _ => None,
        }
    }

    /// What a figure is called in tables.
    pub(crate) fn label(&self, figure: &Figure) -> String {
        let other = || (0..self.runs.len()).any(|it| self.other_steps(it).is_some());
        if figure.name == Quantity::Run.name() && other() {
            format!("{}, different numbers of steps", figure.name)
        } else {
            figure.name.to_owned()
        }
    }

    /// What a run takes beside the baseline, by the best quantity that both have.
    fn sentence(&self, run: usize) -> String {
        let (name, base) = (self.runs.get(run).map_or("", String::as_str), &self.baseline);
        let both = |values: &[Option<Measured>]| {
            let (mine, other) = (values.get(run)?.as_ref()?, values.get(self.base)?.as_ref()?);
            Some((mine.clone(), other.clone(), mine.ratio?))
        };
        let of =
            |quantity: Quantity| both(&self.figures.iter().find(|it| it.name == quantity.name())?.values);
        let rates = [Quantity::Tokens, Quantity::TokensPerGpu, Quantity::Samples];
        let times = [Quantity::Step, Quantity::Run];
        let order = if self.other_work(run) { [&rates[..], &times[..]] } else { [&times[..], &rates[..]] };
        for quantity in order.into_iter().flatten().copied() {
            let Some((mine, other, ratio)) = of(quantity) else { continue };
            let (one, two) = (amount(mine.value, quantity.unit()), amount(other.value, quantity.unit()));
            if rates.contains(&quantity) {
                let (what, one, share) = (quantity.name(), shown(mine.value), share(ratio));
                return format!("{name} reaches {share} the {what} of {base}: {one} instead of {two}");
            }
            let (of, unsure) = if quantity == Quantity::Step {
                ("per step ", self.unknown_batch(run))
            } else {
                let steps = self.other_steps(run).map(|it| format!("; {} and {} steps", it[0], it[1]));
                ("", steps.unwrap_or_default())
            };
            return match ratio {
                it if is_same(it, &mine, &other) => {
                    format!("{name} takes as long {of}as {base}: {one} and {two}{unsure}")
                }
                it if it > 1.0 => {
                    format!(
                        "{name} takes {it:.2} times as long {of}as {base}: {one} instead of {two}{unsure}"
                    )
                }
                it => format!(
                    "{name} takes {:.0} % less time {of}than {base}: {one} instead of {two}{unsure}",
                    (1.0 - it) * 100.0
                ),
            };
        }
        let largest = self
            .bandwidths
            .iter()
            .filter_map(|it| Some((it, both(&it.values)?)))
            .max_by_key(|(it, _)| it.size);
        if let Some((it, (mine, other, ratio))) = largest {
            return format!(
                "{name} reaches {} the bandwidth of {base} in {} of {}: {} instead of {} GB/s",
                share(ratio),
                it.collective,
                bytes(it.size),
                shown(mine.value),
                shown(other.value)
            );
        }
        format!("{name} and {base} have no measurement in common")
    }
}

impl Setting {
    fn new(it: &rules::compare::Setting, runs: &[String]) -> Self {
        let (expected_ratio, not_priced) = match it.price {
            Price::Bandwidth(ratio) => (Some(rounded(ratio)), None),
            Price::None(reason) => (None, Some(reason)),
        };
        Self {
            run: runs.get(it.run).cloned().unwrap_or_default(),
            name: it.name.clone(),
            value: it.value.clone(),
            baseline: it.baseline.clone(),
            expected_ratio,
            not_priced,
        }
    }
}

impl Paths {
    fn new(it: &PathRatio, runs: &[String]) -> Self {
        Self {
            run: runs.get(it.run).cloned().unwrap_or_default(),
            collective: it.collective.name(),
            size: it.size,
            ratio: rounded(it.measured),
            expected_ratio: it.expected.map(|it| rounded(it.value)),
            interval: it.expected.map(|it| [rounded(it.interval.0), rounded(it.interval.1)]),
            explained: it.is_explained(),
        }
    }
}

/// Every so many of the steps, so that a picture can be drawn.
fn thinned(steps: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let every = steps.len().div_ceil(MOST_STEPS).max(1);
    steps.iter().step_by(every).map(|(number, seconds)| (*number, rounded(*seconds))).collect()
}

/// Times that differ by less than this are called the same, and by less than the second where most steps of both lie in one interval.
const SAME: [f64; 2] = [0.01, 0.05];

fn is_same(ratio: f64, one: &Measured, other: &Measured) -> bool {
    let far = (ratio - 1.0).abs();
    let overlap =
        one.spread.zip(other.spread).is_some_and(|(one, other)| one[0] <= other[1] && other[0] <= one[1]);
    far < SAME[0] || (far < SAME[1] && overlap)
}

/// `45 % of`, `4.78 times`
fn share(ratio: f64) -> String {
    if ratio > 1.5 { format!("{ratio:.2} times") } else { format!("{:.0} % of", ratio * 100.0) }
}

/// `46.2 s`, `325 ms`, `2839 tokens/s`
pub(crate) fn amount(value: f64, unit: &str) -> String {
    match unit {
        "s" if value.abs() < 1.0 => format!("{} ms", shown(value * 1e3)),
        "" => shown(value),
        unit => format!("{} {unit}", shown(value)),
    }
}
