//! The same for people, and as Markdown.

use std::io::{self, Write};

use super::Compare;
use super::tables::Table;
use crate::text::{Style, cut, padded, width, wrap};

impl Compare {
    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let bold = |text: &str| if style.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() };
        for line in self.answer.iter().flat_map(|it| wrap(it, style.width)) {
            writeln!(out, "{}", bold(&line))?;
        }
        for text in self.because() {
            for line in wrap(&text, style.width.saturating_sub(2)) {
                writeln!(out, "  {line}")?;
            }
        }
        let full = self.tables(style.verbose, true);
        for (full, short) in full.iter().zip(&self.tables(style.verbose, false)) {
            writeln!(out)?;
            // A ratio matters more than how far values are spread.
            if full.fits(style.width) { full } else { short }.text(style, out)?;
        }
        if let Some(common) = self.common() {
            writeln!(out)?;
            for line in wrap(&format!("the same in all: {common}"), style.width.saturating_sub(2)) {
                writeln!(out, "  {line}")?;
            }
        }
        for line in self.how().iter().flat_map(|it| wrap(it, style.width.saturating_sub(2))) {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }

    /// How the times of steps were measured: one sentence for runs in which it was done in the same way.
    fn how(&self) -> Vec<String> {
        let mut all: Vec<(Vec<&str>, &str)> = Vec::new();
        let steps = self.figures.first().filter(|it| it.unit == "s");
        for (run, value) in self.runs.iter().zip(steps.iter().flat_map(|it| &it.values)) {
            let Some(how) = value.as_ref().and_then(|it| it.how.as_deref()) else { continue };
            match all.iter_mut().find(|it| it.1 == how) {
                Some(same) => same.0.push(run),
                None => all.push((vec![run], how)),
            }
        }
        all.iter().map(|(runs, how)| format!("step time of {}: {how}", runs.join(", "))).collect()
    }

    /// As Markdown, for a wiki or a ticket.
    pub fn markdown(&self, out: &mut impl Write) -> io::Result<()> {
        for line in &self.answer {
            writeln!(out, "**{}**\n", escaped(line))?;
        }
        for text in self.because() {
            writeln!(out, "- {}", escaped(&text))?;
        }
        for table in self.tables(true, true) {
            writeln!(out)?;
            let line = |cells: &[String]| {
                format!("| {} |", cells.iter().map(|it| escaped(it)).collect::<Vec<_>>().join(" | "))
            };
            writeln!(out, "{}", line(&table.head))?;
            let mark = |at: usize| if table.numbers && at > 0 { "---:" } else { "---" };
            let marks: Vec<&str> = (0..table.head.len()).map(mark).collect();
            writeln!(out, "| {} |", marks.join(" | "))?;
            for row in &table.rows {
                writeln!(out, "{}", line(row))?;
            }
        }
        if let Some(common) = self.common() {
            writeln!(out, "\nThe same in all: {}", escaped(&common))?;
        }
        Ok(())
    }
}

impl Table {
    /// How wide each column is.
    fn columns(&self) -> Vec<usize> {
        let lines = || [&self.head].into_iter().chain(&self.rows);
        let widest = |at: usize| lines().filter_map(|it| it.get(at)).map(|it| width(it)).max().unwrap_or(0);
        (0..self.head.len()).map(widest).collect()
    }

    fn fits(&self, room: usize) -> bool {
        Self::wide(&self.columns()) <= room
    }

    /// How wide lines with these columns are.
    fn wide(columns: &[usize]) -> usize {
        columns.iter().map(|it| it + 2).sum()
    }

    /// The columns in groups that fit beside the first one, and how wide each is. A number is never cut: its ratio is what is asked for.
    fn groups(&self, room: usize) -> Vec<Vec<(usize, usize)>> {
        let columns = self.columns();
        let names = columns.first().copied().unwrap_or(0);
        let room = room.saturating_sub(names + 2);
        let others = columns.len().saturating_sub(1).max(1);
        let most = if self.numbers { room } else { (room / others).max(LEAST_TEXT) };
        let mut groups: Vec<Vec<(usize, usize)>> = Vec::new();
        let mut left = 0;
        for (at, wide) in columns.iter().enumerate().skip(1) {
            let wide = (*wide).min(most.saturating_sub(2)).max(1);
            match groups.last_mut().filter(|_| wide + 2 <= left) {
                Some(group) => {
                    group.push((at, wide));
                    left -= wide + 2;
                }
                None => {
                    groups.push(vec![(at, wide)]);
                    left = room.saturating_sub(wide + 2);
                }
            }
        }
        groups
    }

    fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let lines = || [&self.head].into_iter().chain(&self.rows);
        let columns = self.columns();
        let names = columns.first().copied().unwrap_or(0);
        let groups = if self.fits(style.width) {
            vec![columns.iter().copied().enumerate().skip(1).collect()]
        } else {
            self.groups(style.width)
        };
        for (number, group) in groups.iter().enumerate() {
            if number > 0 {
                writeln!(out)?;
            }
            for row in lines() {
                let name = row.first().map_or("", String::as_str);
                let mut line = format!("  {}", padded(name, names));
                for (at, wide) in group {
                    let cell = row.get(*at).map_or("", String::as_str);
                    let cell = if width(cell) > *wide { cut(cell, *wide) } else { cell.to_owned() };
                    if self.numbers {
                        let blanks = " ".repeat(wide.saturating_sub(width(&cell)));
                        line.push_str(&format!("  {blanks}{cell}"));
                    } else {
                        line.push_str(&format!("  {}", padded(&cell, *wide)));
                    }
                }
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

/// A column of texts is not made narrower than this.
const LEAST_TEXT: usize = 26;

/// Text that Markdown leaves as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '\\' | '#' => out.extend(['\\', it]),
            it if it.is_control() => out.push(' '),
            it => out.push(it),
        }
    }
    out
}
