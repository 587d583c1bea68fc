//! Two records compared, size by size.

use serde::{Deserialize, Serialize};

use crate::change::{Change, Drift, Times, Verdict, change};
use crate::record::{Record, Row, usable};
use crate::statistics::{mean, median};

/// The changes of all sizes that both have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Size by size.
    pub lines: Vec<Line>,
    /// Sizes that only one of both has.
    pub unmatched: usize,
    /// What else differs between both, which may be the reason.
    pub differences: Vec<Difference>,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Bytes.
    pub bytes: u64,
    /// `float sum`.
    pub what: String,
    /// Whether in place.
    pub in_place: bool,
    /// The old time, in microseconds: the median of all passes, or of the samples where there are too few passes.
    pub old_us: f64,
    /// The new one.
    pub new_us: f64,
    /// The change.
    pub change: Change,
}

/// Something else that differs between two records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Difference {
    /// They were run with different values.
    Value {
        /// Of what.
        what: What,
        /// The old value.
        old: String,
        /// The new one.
        new: String,
    },
    /// A change was found at a size with too few passes to show drift.
    OnePass,
    /// One of them has nothing but means.
    MeansOnly,
}

/// What differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum What {
    Ranks,
    Hosts,
    Engine,
    Release,
    PrivateBuffers,
    Transport,
    Algorithm,
}

/// Why two records cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Incomparable {
    /// They are of different collectives.
    Collectives {
        /// The old one.
        old: String,
        /// The new one.
        new: String,
    },
    /// They have no size, type and operation in common.
    NothingInCommon,
}

/// Compares two records of the same collective.
pub fn compare(old: &Record, new: &Record) -> Result<Comparison, Incomparable> {
    if old.collective != new.collective {
        let (old, new) = (old.collective.clone(), new.collective.clone());
        return Err(Incomparable::Collectives { old, new });
    }
    // Where one has nothing but means, means are compared.
    let means = [old, new].into_iter().any(unsampled);
    let pairs: Vec<(&Row, bool, Times, Times)> = old
        .results
        .iter()
        .enumerate()
        .filter(|(i, row)| !old.results.iter().take(*i).any(|it| same(it, row)))
        .flat_map(|(_, row)| [(row, false), (row, true)])
        .filter_map(|(row, in_place)| {
            let [old, new] = [old, new].map(|it| times(it, row, in_place, means));
            (!old.samples.is_empty() && !new.samples.is_empty()).then_some((row, in_place, old, new))
        })
        .collect();
    if pairs.is_empty() {
        return Err(Incomparable::NothingInCommon);
    }
    // Sizes of one kind follow each other, as they were measured.
    let mut series: Vec<(_, Vec<(f64, f64)>)> = Vec::new();
    for (row, in_place, old, new) in &pairs {
        let kind = (row.series(), *in_place);
        let medians = (median(&old.samples), median(&new.samples));
        match series.iter_mut().find(|it| it.0 == kind) {
            Some((_, all)) => all.push(medians),
            None => series.push((kind, vec![medians])),
        }
    }
    let series: Vec<Vec<(f64, f64)>> = series.into_iter().map(|it| it.1).collect();
    let drift = Drift::between(&series);
    let lines: Vec<Line> = pairs
        .iter()
        .map(|(row, in_place, old, new)| {
            let passes = old.shows_drift() && new.shows_drift();
            let middle = |it: &Times| median(if passes { &it.passes } else { &it.samples });
            Line {
                bytes: row.bytes,
                what: format!(
                    "{}{}",
                    row.data_type,
                    row.operation.as_ref().map(|it| format!(" {it}")).unwrap_or_default()
                ),
                in_place: *in_place,
                old_us: middle(old),
                new_us: middle(new),
                change: change(old, new, pairs.len(), drift),
            }
        })
        .collect();
    let one_pass = !means
        && lines.iter().zip(&pairs).any(|(line, (_, _, old, new))| {
            line.change.verdict != Verdict::Same && !(old.shows_drift() && new.shows_drift())
        });
    let missing = |a: &Record, b: &Record| {
        a.results.iter().filter(|row| !b.results.iter().any(|it| same(it, row))).count()
    };
    let unmatched = missing(old, new) + missing(new, old);
    let differs = |what: What, old: &dyn ToString, new: &dyn ToString| {
        let (old, new) = (old.to_string(), new.to_string());
        // A value that one of them does not have is not a difference.
        let known = |it: &str| !matches!(it, "" | "0");
        (old != new && known(&old) && known(&new)).then_some(Difference::Value { what, old, new })
    };
    let option = |it: &Option<String>| it.clone().unwrap_or_else(|| "automatic".to_owned());
    let differences = [
        differs(What::Ranks, &old.ranks, &new.ranks),
        differs(What::Hosts, &old.hosts, &new.hosts),
        differs(What::Engine, &old.engine_name(), &new.engine_name()),
        differs(What::Release, &old.version, &new.version),
        differs(What::PrivateBuffers, &old.config.private, &new.config.private),
        differs(What::Transport, &option(&old.config.transport), &option(&new.config.transport)),
        differs(What::Algorithm, &option(&old.config.algorithm), &option(&new.config.algorithm)),
        one_pass.then_some(Difference::OnePass),
        means.then_some(Difference::MeansOnly),
    ];
    Ok(Comparison { lines, unmatched, differences: differences.into_iter().flatten().collect() })
}

/// Whether it was read from a file that has nothing but means.
fn unsampled(bench: &Record) -> bool {
    let measures = || bench.results.iter().flat_map(|it| [&it.out_of_place, &it.in_place]).flatten();
    bench.version.is_empty() && measures().all(|it| it.samples_us == [it.time_us])
}

/// The times of a size, of all times it was run; or the mean of each time.
fn times(bench: &Record, row: &Row, in_place: bool, means: bool) -> Times {
    let mut times = Times::default();
    let same = bench.results.iter().filter(|it| same(it, row));
    for it in same.filter_map(|it| it.measure(in_place)) {
        let samples = if means { std::slice::from_ref(&it.time_us) } else { &it.samples_us };
        times.samples.extend(samples.iter().copied().filter(|it| usable(*it)));
        if means {
            times.passes.extend(Some(it.time_us).filter(|it| usable(*it)));
        } else {
            times.passes.extend(it.passes());
        }
    }
    times
}

fn same(a: &Row, b: &Row) -> bool {
    a.bytes == b.bytes && a.series() == b.series()
}

impl Comparison {
    /// How many sizes have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|it| it.change.verdict == verdict).count()
    }

    /// How much times changed over all sizes, relative: the geometric mean.
    pub fn overall(&self) -> f64 {
        let logs: Vec<f64> = self.lines.iter().map(|it| it.change.ratio.ln()).collect();
        mean(&logs).exp() - 1.0
    }
}
