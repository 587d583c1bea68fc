//! Compares two records, as text and as JSON.

use std::io::{self, Write};

use bench::{Comparison, Difference, Incomparable, Verdict, What};
use serde_json::Value;

use crate::Style;
use crate::expect::time;
use crate::text::{bytes, clean, counted, wrap};

/// Why two records cannot be compared.
pub fn incomparable(reason: &Incomparable) -> String {
    match reason {
        Incomparable::Collectives { old, new } => format!("one measures {old}, the other {new}"),
        Incomparable::NothingInCommon => "they share no size, type and operation".to_owned(),
    }
}

pub(crate) fn difference(it: &Difference) -> String {
    match it {
        Difference::Value { what, old, new } => {
            let name = match what {
                What::Ranks => "ranks",
                What::Hosts => "hosts",
                What::Engine => "engine",
                What::Release => "release",
                What::PrivateBuffers => "private buffers",
                What::Transport => "transport",
                What::Algorithm => "algorithm",
            };
            format!("{name}: {old}, then {new}")
        }
        Difference::OnePass => {
            "changes were found at sizes with fewer than 4 passes, which do not show drift: measure both again with -N 5"
                .to_owned()
        }
        Difference::MeansOnly => {
            "plumb compared the means: one file has no other times (nccl-tests -J without -I 1)".to_owned()
        }
    }
}

/// One sentence about all sizes.
pub fn sentence(comparison: &Comparison) -> String {
    let [faster, slower] = [Verdict::Faster, Verdict::Slower].map(|it| comparison.count(it));
    let all = counted(comparison.lines.len(), "measurement");
    let overall = format!("times {:+.1} % on average", comparison.overall() * 100.0);
    match (faster, slower) {
        (0, 0) => format!("the same within noise in all {all}; {overall}"),
        (_, 0) => format!("faster in {faster} of {all}, slower in none; {overall}"),
        (0, _) => format!("slower in {slower} of {all}, faster in none; {overall}"),
        _ => format!("slower in {slower} of {all}, faster in {faster}; {overall}"),
    }
}

/// Writes a comparison for people.
pub fn comparison_text(comparison: &Comparison, style: Style, out: &mut impl Write) -> io::Result<()> {
    let paint = |text: &str, verdict: Verdict| match verdict {
        Verdict::Slower if style.colour => format!("\x1b[1;33m{text}\x1b[0m"),
        Verdict::Faster if style.colour => format!("\x1b[32m{text}\x1b[0m"),
        _ => text.to_owned(),
    };
    let worst = if comparison.count(Verdict::Slower) > 0 { Verdict::Slower } else { Verdict::Same };
    writeln!(out, "{}\n", paint(&sentence(comparison), worst))?;
    writeln!(out, "  {:>10}  {:<22}  {:>9}  {:>9}  {:>8}  {:>7}", "size", "", "old", "new", "time", "noise")?;
    for it in &comparison.lines {
        let place = if it.in_place { "in place" } else { "out of place" };
        let name = match it.change.verdict {
            Verdict::Same => "",
            it => it.name(),
        };
        let line = format!(
            "  {:>10}  {:<22}  {:>9}  {:>9}  {:>+6.1} %  {:>5.1} %  {}",
            bytes(it.bytes),
            format!("{} {place}", clean(&it.what)),
            time(it.old_us),
            time(it.new_us),
            (it.change.ratio - 1.0) * 100.0,
            it.change.noise * 100.0,
            paint(name, it.change.verdict)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    let mut notes = Vec::new();
    if comparison.unmatched > 0 {
        notes.push(format!("{} only in one of the two", counted(comparison.unmatched, "size")));
    }
    notes.extend(comparison.differences.iter().map(difference));
    for note in &notes {
        for (i, line) in wrap(note, style.width.saturating_sub(11).max(30)).into_iter().enumerate() {
            writeln!(
                out,
                "{}  {:<8} {line}",
                if i == 0 { "\n" } else { "" },
                if i == 0 { "note" } else { "" }
            )?;
        }
    }
    Ok(())
}

/// Writes a comparison for programs: schema `plumb.bench-compare/1`.
pub fn comparison_json(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    let lines: Vec<Value> = comparison
        .lines
        .iter()
        .map(|it| {
            serde_json::json!({
                "bytes": it.bytes, "what": it.what, "in_place": it.in_place, "old_us": it.old_us, "new_us": it.new_us,
                "ratio": it.change.ratio, "noise": it.change.noise, "verdict": it.change.verdict.name(),
            })
        })
        .collect();
    let all = serde_json::json!({
        "schema": "plumb.bench-compare/1", "text": sentence(comparison), "results": lines, "unmatched": comparison.unmatched,
        "differences": comparison.differences.iter().map(difference).collect::<Vec<String>>(),
    });
    crate::json::write_json(&all, out)
}
