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
        self.columns().iter().map(|it| it + 2).sum::<usize>() <= room
    }

    fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let lines = || [&self.head].into_iter().chain(&self.rows);
        let columns = self.columns();
        // What does not fit is cut in the widest columns, the names stay.
        let names = columns.first().copied().unwrap_or(0);
        let room = style.width.saturating_sub(4 + names);
        let each = room / columns.len().saturating_sub(1).max(1);
        let fits = columns.iter().skip(1).map(|it| it + 2).sum::<usize>() <= room;
        for row in lines() {
            let mut line = String::from("  ");
            for (at, cell) in row.iter().enumerate() {
                let wide = columns.get(at).copied().unwrap_or(0);
                let wide = if at == 0 || fits { wide } else { wide.min(each.saturating_sub(2).max(8)) };
                let cell = if width(cell) > wide { cut(cell, wide) } else { cell.clone() };
                let gap = if at == 0 { "" } else { "  " };
                if self.numbers && at > 0 {
                    let blanks = " ".repeat(wide.saturating_sub(width(&cell)));
                    line.push_str(&format!("{gap}{blanks}{cell}"));
                } else {
                    line.push_str(&format!("{gap}{}", padded(&cell, wide)));
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

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
