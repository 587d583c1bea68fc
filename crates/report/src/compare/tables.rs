//! The tables of a comparison, for the screen and as Markdown.

use super::{Compare, Measured};
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
    pub(super) fn tables(&self, all: bool) -> Vec<Table> {
        let head = |name: &str| {
            let runs = self.runs.iter().cloned();
            [name.to_owned()].into_iter().chain(runs).collect::<Vec<String>>()
        };
        let differs = self.differs.iter().map(|it| {
            let values = it.values.iter().map(|it| it.clone().unwrap_or_else(|| "-".to_owned()));
            [it.name.clone()].into_iter().chain(values).collect()
        });
        let figures = self.figures.iter().map(|it| self.row(it.name.to_owned(), &it.values, it.unit));
        let mut tables = vec![
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
                let mut row = self.row(bytes(it.size), &it.values, "");
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

    fn row(&self, name: String, values: &[Option<Measured>], unit: &str) -> Vec<String> {
        let one = |(at, it): (usize, &Option<Measured>)| {
            let Some(it) = it else { return "-".to_owned() };
            let mut text = shown(it.value);
            if !unit.is_empty() {
                text.push(' ');
                text.push_str(unit);
            }
            if let Some([low, high]) = it.spread.filter(|it| it[0] < it[1]) {
                text.push_str(&format!(" ({} to {})", shown(low), shown(high)));
            }
            if let Some(ratio) = it.ratio.filter(|_| at != self.base) {
                text.push_str(&format!("  x{ratio:.2}"));
            }
            text
        };
        [name].into_iter().chain(values.iter().enumerate().map(one)).collect()
    }

    /// What is the same, in one sentence.
    pub(super) fn common(&self) -> Option<String> {
        let one = |it: &super::Fact| {
            let value = it.values.iter().flatten().next()?;
            // Where not all runs say it, it is not known to be the same.
            let known = it.values.iter().flatten().count();
            (known == self.runs.len()).then(|| format!("{} {value}", it.name))
        };
        let all: Vec<String> = self.same.iter().filter_map(one).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Why the steps of a run take longer, in sentences.
    pub(super) fn because(&self) -> Vec<String> {
        self.causes
            .iter()
            .map(|it| {
                if let Some(reason) = &it.not_predicted {
                    return format!("{}: what explains the difference is not predicted: {reason}", it.run);
                }
                let total = signed(it.seconds);
                let mut text = format!("{}: {total} s per step", it.run);
                for (number, part) in it.parts.iter().enumerate() {
                    text.push_str(if number == 0 { ": " } else { ", " });
                    text.push_str(&format!("{} s because of {}", signed(part.seconds), part.what));
                }
                if it.parts.is_empty() {
                    text.push_str(": the jobs should take the same");
                }
                let rest = it.unexplained_s.unwrap_or_default();
                text.push_str(&format!(" (predicted); {} s are not explained", signed(rest)));
                text
            })
            .collect()
    }
}

fn signed(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", shown(-seconds)) } else { format!("+{}", shown(seconds)) }
}

/// `280 to 360`; of several machines each.
fn normal(of_runs: &[Option<[f64; 2]>]) -> String {
    let mut all: Vec<String> =
        of_runs.iter().flatten().map(|[low, high]| format!("{} to {}", shown(*low), shown(*high))).collect();
    all.dedup();
    all.join(" / ")
}
