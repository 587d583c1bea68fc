//! The answer of `plumb compare`: runs side by side. Schema `plumb.compare/1`.

mod tables;
mod text;

use std::io::{self, Write};

use rules::compare::{Amount, Comparison, Quantity, Unexplained};
use serde::Serialize;

use crate::expect::{rounded, shown};
use crate::text::bytes;

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
    /// What is known to differ.
    pub differs: Vec<Fact>,
    /// What is known and does not differ.
    pub same: Vec<Fact>,
    /// What the runs took.
    pub figures: Vec<Figure>,
    /// Bus bandwidths of collectives.
    pub bandwidths: Vec<Bandwidth>,
    /// Why steps take longer or shorter than those of the baseline.
    pub causes: Vec<Causes>,
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
    /// The smallest and the largest, where several were printed.
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
    /// Seconds per step that it adds.
    pub seconds: f64,
}

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
            normal: it.normal.iter().map(|it| it.map(|(low, high)| [rounded(low), rounded(high)])).collect(),
        });
        let causes = compared.causes.iter().map(|it| {
            let (unexplained_s, not_predicted) = match &it.rest {
                Unexplained::Seconds(rest) => (Some(rounded(*rest)), None),
                Unexplained::All(reason) => (None, Some(reason.clone())),
            };
            Causes {
                run: compared.runs.get(it.run).cloned().unwrap_or_default(),
                seconds: rounded(it.seconds),
                parts: it
                    .parts
                    .iter()
                    .map(|it| Part { what: it.what.clone(), seconds: rounded(it.seconds) })
                    .collect(),
                unexplained_s,
                not_predicted,
            }
        });
        let mut compare = Self {
            schema: "plumb.compare/1",
            answer: Vec::new(),
            runs: compared.runs.clone(),
            baseline: compared.runs.get(base).cloned().unwrap_or_default(),
            differs: facts(true),
            same: facts(false),
            figures: figures.collect(),
            bandwidths: bandwidths.collect(),
            causes: causes.collect(),
            base,
        };
        compare.answer =
            (0..compare.runs.len()).filter(|it| *it != base).map(|it| compare.sentence(it)).collect();
        compare
    }

    /// As JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// What a run takes beside the baseline, by the best quantity that both have.
    fn sentence(&self, run: usize) -> String {
        let (name, base) = (self.runs.get(run).map_or("", String::as_str), &self.baseline);
        let both = |values: &[Option<Measured>]| {
            let (mine, other) = (values.get(run)?.as_ref()?, values.get(self.base)?.as_ref()?);
            Some((mine.value, other.value, mine.ratio?))
        };
        for (quantity, of) in [(Quantity::Step, "per step "), (Quantity::Run, "")] {
            let figure = self.figures.iter().find(|it| it.name == quantity.name());
            let Some((mine, other, ratio)) = figure.and_then(|it| both(&it.values)) else { continue };
            let (mine, other) = (shown(mine), shown(other));
            return match ratio {
                it if (it - 1.0).abs() < SAME => {
                    format!("{name} takes as long {of}as {base}: {mine} s and {other} s")
                }
                it if it > 1.0 => {
                    format!("{name} takes {it:.2} times as long {of}as {base}: {mine} s instead of {other} s")
                }
                it => format!(
                    "{name} takes {:.0} % less time {of}than {base}: {mine} s instead of {other} s",
                    (1.0 - it) * 100.0
                ),
            };
        }
        for quantity in [Quantity::Tokens, Quantity::TokensPerGpu, Quantity::Samples] {
            let figure = self.figures.iter().find(|it| it.name == quantity.name());
            let Some((mine, other, ratio)) = figure.and_then(|it| both(&it.values)) else { continue };
            let (percent, what, unit) = (ratio * 100.0, quantity.name(), quantity.unit());
            let (mine, other) = (shown(mine), shown(other));
            return format!(
                "{name} reaches {percent:.0} % of the {what} of {base}: {mine} instead of {other} {unit}"
            );
        }
        let largest = self
            .bandwidths
            .iter()
            .filter_map(|it| Some((it, both(&it.values)?)))
            .max_by_key(|(it, _)| it.size);
        if let Some((it, (mine, other, ratio))) = largest {
            return format!(
                "{name} reaches {:.0} % of the bandwidth of {base} in {} of {}: {} instead of {} GB/s",
                ratio * 100.0,
                it.collective,
                bytes(it.size),
                shown(mine),
                shown(other)
            );
        }
        format!("{name} and {base} have no measurement in common")
    }
}

/// Times that differ by less than this are called the same.
const SAME: f64 = 0.01;
