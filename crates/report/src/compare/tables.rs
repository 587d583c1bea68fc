//! The tables of a comparison, for the screen and as Markdown.

use rules::compare::{COLLECTIVE, SIZE};

use super::{Causes, Compare, Fact, Measured, Paths, Setting, amount};
use crate::expect::shown;
use crate::text::bytes;

/// A table: a head and rows, the first column with names.
pub(super) struct Table {
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Whether the columns after the first are numbers.
    pub(super) numbers: bool,
}

/// Sizes of a collective that are shown, the largest.
const MOST_SIZES: usize = 6;

impl Compare {
    /// All sizes of collectives or the largest; with how far values are spread, or in short.
    pub(super) fn tables(&self, all: bool, spread: bool) -> Vec<Table> {
        let head = |name: &str| {
            let runs = self.runs.iter().cloned();
            [name.to_owned()].into_iter().chain(runs).collect::<Vec<String>>()
        };
        let differs = self.differs.iter().map(|it| {
            let values = it.values.iter().map(|it| it.clone().unwrap_or_else(|| "-".to_owned()));
            [it.name.clone()].into_iter().chain(values).collect()
        });
        let figures = self.figures.iter().map(|it| self.row(self.label(it), &it.values, it.unit, spread));
        let has = self.runs.iter().zip(&self.measurements).map(|(run, has)| {
            vec![run.clone(), if has.is_empty() { "no measurement".to_owned() } else { has.join(", ") }]
        });
        let has = if self.not_comparable.is_some() { has.collect() } else { Vec::new() };
        let mut tables = vec![
            Table { head: vec!["run".to_owned(), "what it has".to_owned()], rows: has, numbers: false },
            Table { head: head("what differs"), rows: differs.collect(), numbers: false },
            Table { head: head("measured"), rows: figures.collect(), numbers: true },
        ];
        let mut collectives: Vec<&str> = self.bandwidths.iter().map(|it| it.collective).collect();
        collectives.dedup();
        for collective in collectives {
            let of: Vec<_> = self.bandwidths.iter().filter(|it| it.collective == collective).collect();
            let common = |it: &&&super::Bandwidth| it.values.iter().flatten().count() > 1;
            let skipped = if all { 0 } else { of.iter().filter(common).count().saturating_sub(MOST_SIZES) };
            let shown_of = of.iter().filter(|it| all || common(it)).skip(skipped);
            let rows = shown_of.map(|it| {
                let mut row = self.row(bytes(it.size), &it.values, "", spread);
                row.push(normal(&it.normal));
                row
            });
            let mut head = head(&format!("{collective}, GB/s"));
            head.push("normal".to_owned());
            let mut table = Table { head, rows: rows.collect(), numbers: true };
            if table.rows.iter().all(|it| it.last().is_none_or(String::is_empty)) {
                table.head.pop();
                for row in &mut table.rows {
                    row.pop();
                }
            }
            tables.push(table);
        }
        tables.retain(|it| !it.rows.is_empty());
        tables
    }

    fn row(&self, name: String, values: &[Option<Measured>], unit: &str, spread: bool) -> Vec<String> {
        let one = |(at, it): (usize, &Option<Measured>)| {
            let Some(it) = it else { return "-".to_owned() };
            let mut text = it.shown(unit, spread);
            if let Some(ratio) = it.ratio.filter(|_| at != self.base) {
                text.push_str(&format!("  x{ratio:.2}"));
            }
            text
        };
        [name].into_iter().chain(values.iter().enumerate().map(one)).collect()
    }

    /// What is the same, in one sentence.
    pub(crate) fn common(&self) -> Option<String> {
        let one = |it: &super::Fact| {
            let value = it.values.iter().flatten().next()?;
            // Where not all runs say it, it is not known to be the same.
            let known = it.values.iter().flatten().count();
            (known == self.runs.len()).then(|| format!("{} {value}", it.name))
        };
        let all: Vec<String> = self.same.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Why steps take longer and bandwidths are lower, in sentences.
    pub(crate) fn because(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let mut reasons: Vec<&str> = Vec::new();
        for it in &self.causes {
            match it.not_predicted.as_deref() {
                None => all.push(it.because()),
                // What the baseline lacks is missing for every run.
                Some(reason) if !reasons.contains(&reason) => {
                    reasons.push(reason);
                    all.push(format!("what explains times of steps is not predicted: {reason}"));
                }
                Some(_) => {}
            }
        }
        for it in self.causes.iter().filter(|it| it.not_predicted.is_some()) {
            all.extend(self.unpriced_facts(&it.run).map(|what| format!("{}: {what}", it.run)));
        }
        all.extend(self.paths.iter().filter_map(Paths::because));
        for (_, run) in self.runs.iter().enumerate().filter(|it| self.is_far(it.0)) {
            all.extend(self.because_of_settings(run).map(|it| format!("{run}: {it}")));
        }
        all
    }

    /// The work of a step, machines and paths in which a run differs from the baseline, where their effect on steps is not predicted.
    fn unpriced_facts(&self, run: &str) -> Option<String> {
        // The work of a step comes before its paths.
        const CAUSES: [&str; 13] = [
            "model",
            "batch",
            "micro-batch",
            "tokens of a sequence",
            "tokens of a step",
            "precision",
            "recomputation",
            "machine",
            "GPU",
            "nodes",
            "inside a node",
            "between nodes",
            "GPUDirect",
        ];
        let at = self.runs.iter().position(|it| it == run).filter(|it| self.is_far(*it))?;
        let one = |it: &Fact| {
            let value = |at: usize| it.values.get(at)?.as_deref();
            let (mine, base) = value(at).zip(value(self.base)).filter(|it| it.0 != it.1)?;
            Some(format!("{} {mine} ({base} in {})", it.name, self.baseline))
        };
        let named = CAUSES.iter().filter_map(|name| self.differs.iter().find(|it| it.name == *name));
        let all: Vec<String> = named.filter_map(one).collect();
        let cause = if all.len() == 1 { "a cause" } else { "causes" };
        (!all.is_empty())
            .then(|| format!("{} may be {cause}; not priced without that prediction", all.join(", ")))
    }

    /// Whether a run is faster or slower than the baseline by more than is usual between two of the same.
    fn is_far(&self, run: usize) -> bool {
        let far = |it: &Option<Measured>| {
            it.as_ref().and_then(|it| it.ratio).is_some_and(|it| (it - 1.0).abs() > SAME)
        };
        let times = self.figures.iter().filter(|it| it.unit == "s" || it.unit.ends_with("/s"));
        let times = times.map(|it| &it.values).chain(self.bandwidths.iter().map(|it| &it.values));
        run != self.base && times.filter_map(|it| it.get(run)).any(far)
    }

    /// Settings and releases in which a run differs from the baseline, and what they do as far as that is known.
    fn because_of_settings(&self, run: &str) -> impl Iterator<Item = String> {
        let mut priced: Vec<String> = Vec::new();
        let mut others: Vec<(&str, Vec<String>)> = Vec::new();
        for it in self.settings.iter().filter(|it| it.run == run) {
            let what = self.setting(it);
            match (it.expected_ratio, it.not_priced) {
                (Some(ratio), _) => priced.push(format!(
                    "{what} may be a cause: expect gives {ratio:.2} times the bandwidth for {} of {}",
                    COLLECTIVE.name(),
                    bytes(SIZE)
                )),
                (None, reason) => {
                    let reason = reason.unwrap_or_default();
                    match others.iter_mut().find(|it| it.0 == reason) {
                        Some(same) => same.1.push(what),
                        None => others.push((reason, vec![what])),
                    }
                }
            }
        }
        priced.into_iter().chain(others.into_iter().map(|(reason, mut all)| {
            let cause = if all.len() == 1 { "may be a cause" } else { "may be causes" };
            let more = all.len().saturating_sub(MOST_SETTINGS);
            all.truncate(MOST_SETTINGS);
            if more > 0 {
                all.push(format!("{more} more"));
            }
            format!("{} {cause}; not priced: {reason}", all.join(", "))
        }))
    }

    /// `NCCL_ALGO=Ring (not set in efa)`, `libfabric 2.1 (1.22 in efa)`
    fn setting(&self, it: &Setting) -> String {
        const UNSET: &str = "not set";
        let equals = if it.name.contains('_') && it.value != UNSET { '=' } else { ' ' };
        format!("{}{equals}{} ({} in {})", it.name, it.value, it.baseline, self.baseline)
    }
}

impl Causes {
    /// The difference in seconds per step, and what of it the causes explain.
    fn because(&self) -> String {
        let name = &self.run;
        let total = signed(self.seconds);
        let mut text = format!("{name}: {total} s per step");
        for (number, part) in self.parts.iter().enumerate() {
            text.push_str(if number == 0 { ": " } else { ", " });
            text.push_str(&format!("{} s because of {}", signed(part.seconds), part.what));
            if (part.alone_s - part.seconds).abs() > 0.1 * part.seconds.abs() {
                text.push_str(&format!(" ({} s if nothing else differed)", signed(part.alone_s)));
            }
        }
        if self.parts.is_empty() {
            text.push_str(": the jobs should take the same");
        }
        let (explained, rest) =
            (self.explained_s.unwrap_or_default(), self.unexplained_s.unwrap_or_default());
        let between = self.explained_interval_s.filter(|_| !self.parts.is_empty());
        match between.map(|[low, high]| format!("predicted, {} to {} s", signed(low), signed(high))) {
            Some(between) if self.parts.len() > 1 => {
                text.push_str(&format!(", together {} s ({between})", signed(explained)));
            }
            Some(between) => text.push_str(&format!(" ({between})")),
            None => text.push_str(" (predicted)"),
        }
        if self.overshoots {
            text.push_str(&format!(
                "; the prediction overshoots by {} s, so how much of the difference is explained is not known",
                shown(rest.abs())
            ));
        } else {
            text.push_str(&format!("; {} s are not explained", signed(rest)));
        }
        text
    }
}

impl Paths {
    /// The ratio of bandwidths beside the normal one; nothing where both are as in the baseline.
    fn because(&self) -> Option<String> {
        let what = format!(
            "{}: {} of {}: {:.2} times the bandwidth",
            self.run,
            self.collective,
            bytes(self.size),
            self.ratio
        );
        let far = (self.ratio - 1.0).abs() > SAME;
        let Some((expected, [low, high])) = self.expected_ratio.zip(self.interval) else {
            return far.then(|| format!("{what}; what is normal is not known for both"));
        };
        if self.explained && !far && (expected - 1.0).abs() < SAME {
            return None;
        }
        let judged = if self.explained {
            "these explain it".to_owned()
        } else {
            format!("a factor of {:.2} is not explained", self.ratio / expected)
        };
        Some(format!(
            "{what}; {expected:.2} times ({low:.2} to {high:.2}) is normal for these machines and paths: {judged}"
        ))
    }
}

impl Measured {
    /// The value with its unit, and from where to where it is spread.
    pub(crate) fn shown(&self, unit: &str, spread: bool) -> String {
        // The name of a rate says its unit.
        let short = if !spread && unit.ends_with("/s") { "" } else { unit };
        let text = amount(self.value, short);
        match self.range(unit).filter(|_| spread) {
            Some(range) => format!("{text} {range}"),
            None => text,
        }
    }

    /// From where to where it is spread: `(0.32 to 0.33)`, in the unit of the value.
    pub(crate) fn range(&self, unit: &str) -> Option<String> {
        let [low, high] = self.spread.filter(|it| it[0] < it[1])?;
        let scale = if amount(self.value, unit).ends_with(" ms") { 1e3 } else { 1.0 };
        Some(format!("({} to {})", shown(low * scale), shown(high * scale)))
    }
}

/// Settings of a run that are named.
const MOST_SETTINGS: usize = 4;

/// Ratios closer to one than this are not worth a sentence, if nothing else is expected.
const SAME: f64 = 0.05;

fn signed(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", shown(-seconds)) } else { format!("+{}", shown(seconds)) }
}

/// `280 to 360`; of several machines each.
pub(crate) fn normal(of_runs: &[Option<[f64; 2]>]) -> String {
    let mut all: Vec<String> =
        of_runs.iter().flatten().map(|[low, high]| format!("{} to {}", shown(*low), shown(*high))).collect();
    all.dedup();
    all.join(" / ")
}
