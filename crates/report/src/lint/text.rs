//! Findings as compilers show them: the line, the place in it, why and what to change.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style as Ansi};

use super::{Lint, LintFinding, LintPlace};
use crate::Style;
use crate::text::{clean, counted, width, wrap};

/// Writes the answer for a person.
pub fn text(lint: &Lint, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page { style: Style { width: style.width.clamp(40, 160), ..style } };
    for it in &lint.findings {
        page.finding(it, out)?;
        writeln!(out)?;
    }
    foot(lint, out)
}

struct Page {
    style: Style,
}

impl Page {
    fn paint(&self, text: &str, ansi: Ansi) -> String {
        if self.style.colour { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }

    fn finding(&self, it: &LintFinding, out: &mut impl Write) -> io::Result<()> {
        let colour = match it.severity.as_str() {
            "error" => Ansi::new().fg_color(Some(AnsiColor::Red.into())).bold(),
            "warning" => Ansi::new().fg_color(Some(AnsiColor::Yellow.into())).bold(),
            _ => Ansi::new().fg_color(Some(AnsiColor::Cyan.into())).bold(),
        };
        let head = format!("{}[{}]", it.severity, it.id);
        let sure = if it.confidence == "certain" { String::new() } else { format!(" ({})", it.confidence) };
        let message = format!("{}{sure}", clean(&it.message));
        let mut lines = wrap(&format!("{head}: {message}"), self.style.width).into_iter();
        if let Some(first) = lines.next() {
            let painted = self.paint(&head, colour);
            writeln!(out, "{}", first.replacen(&head, &painted, 1))?;
        }
        for line in lines {
            writeln!(out, "  {line}")?;
        }
        for (at, place) in it.places.iter().enumerate() {
            self.place(&it.file, place, at == 0, out)?;
        }
        self.row("why", &it.why, out)?;
        self.row("fix", &it.fix, out)?;
        if it.fixable {
            self.row("note", "`plumb lint --fix` changes it", out)?;
        }
        self.row("see", &format!("plumb explain {}", it.id), out)
    }

    fn place(&self, file: &str, place: &LintPlace, first: bool, out: &mut impl Write) -> io::Result<()> {
        let gutter = place.line.to_string().len().max(3);
        let arrow = if first { "-->" } else { ":::" };
        writeln!(out, "{:gutter$}{arrow} {}:{}:{}", "", clean(file), place.line, place.column)?;
        let source = clean(&place.source);
        let room = self.style.width.saturating_sub(gutter + 4).max(20);
        // A long line is shown around the place.
        let column = place.column.saturating_sub(1);
        let from = if column + 8 > room { column.saturating_sub(room / 3) } else { 0 };
        let shown: String = source.chars().skip(from).take(room).collect();
        writeln!(out, "{:>gutter$} | {}", place.line, shown.trim_end())?;
        let rest = width(shown.trim_end()).saturating_sub(column - from).max(1);
        let length = if place.end_line > place.line {
            rest
        } else {
            place.end_column.saturating_sub(place.column).clamp(1, rest)
        };
        let marks = self.paint(&"^".repeat(length), Ansi::new().fg_color(Some(AnsiColor::Red.into())));
        let label = clean(&place.text);
        let label = if label.is_empty() { String::new() } else { format!(" {label}") };
        writeln!(out, "{:gutter$} | {}{marks}{label}", "", " ".repeat(column - from))
    }

    fn row(&self, name: &str, text: &str, out: &mut impl Write) -> io::Result<()> {
        let indent = name.len() + 7;
        for (at, line) in
            wrap(&clean(text), self.style.width.saturating_sub(indent).max(20)).iter().enumerate()
        {
            if at == 0 {
                writeln!(out, "    = {}: {line}", self.paint(name, Ansi::new().bold()))?;
            } else {
                writeln!(out, "{:indent$} {line}", "")?;
            }
        }
        Ok(())
    }
}

fn foot(lint: &Lint, out: &mut impl Write) -> io::Result<()> {
    for it in &lint.files {
        if let Some(problem) = &it.problem {
            writeln!(
                out,
                "{}:{}:{}: not read: {}",
                clean(&it.file),
                problem.line,
                problem.column,
                clean(&problem.text)
            )?;
        }
    }
    let read = lint.files.iter().filter(|it| it.problem.is_none()).count();
    let sum = |of: fn(&super::LintFile) -> usize| lint.files.iter().map(of).sum::<usize>();
    let fixable = lint.findings.iter().filter(|it| it.fixable).count();
    let fixable = if fixable == 0 { String::new() } else { format!(" ({fixable} can be changed by --fix)") };
    writeln!(
        out,
        "{}, {}, {}{fixable}: {} read, with {}, {} and {}",
        counted(lint.count("error"), "error"),
        counted(lint.count("warning"), "warning"),
        counted(lint.count("info"), "note"),
        counted(read, "file"),
        counted(sum(|it| it.pods), "pod"),
        counted(sum(|it| it.settings), "variable"),
        counted(sum(|it| it.launches), "launch command"),
    )
}
