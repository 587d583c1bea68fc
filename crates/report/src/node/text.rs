//! The same for people.

use std::io::{self, Write};

use rules::Severity;
use rules::node::Fitness;

use super::{Node, facts};
use crate::text::{Page, Style, counted, padded, width, wrap};
use crate::{Finding, clean};

/// Columns of the names of facts.
const NAMES: usize = 12;

impl Node {
    /// For people: the verdict, what to do, then what was seen.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        head(&self.text, self.verdict, &facts::stack(&self.state), style, out)?;
        findings(&self.full, style, out)?;
        writeln!(out)?;
        for (name, fact) in facts::rows(&self.state, style.verbose) {
            row(name, &fact, style, out)?;
        }
        let not_seen = self.not_seen();
        if !not_seen.is_empty() {
            writeln!(out)?;
        }
        for it in &not_seen {
            row("not seen", it, style, out)?;
        }
        if style.verbose && !self.not_checked.is_empty() {
            let names: Vec<&str> = self.not_checked.iter().map(|it| &*it.id).collect();
            row("not checked", &names.join(", "), style, out)?;
        }
        writeln!(out, "{}", closing(&self.full, style))
    }
}

/// The verdict, bold, and what it is about, with one word at the right.
pub(super) fn head(
    text: &str,
    verdict: Fitness,
    below: &str,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    let bold = anstyle::Style::new().bold();
    for line in wrap(text, style.width) {
        writeln!(out, "{}", style.paint(&line, bold))?;
    }
    let word = word(verdict);
    let severity = match verdict {
        Fitness::NotFit => Severity::Error,
        Fitness::Warnings | Fitness::Unknown => Severity::Warning,
        Fitness::Fit => Severity::Info,
    };
    let mut lines = wrap(below, style.width.saturating_sub(width(word) + 2));
    let last = lines.pop().unwrap_or_default();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    let room = style.width.min(100).saturating_sub(width(word));
    writeln!(out, "{}{}", padded(&last, room), style.paint(word, Page::by_severity(severity)))
}

pub(crate) fn word(verdict: Fitness) -> &'static str {
    match verdict {
        Fitness::Fit => "fit",
        Fitness::Warnings => "warnings",
        Fitness::NotFit => "not fit",
        Fitness::Unknown => "unknown",
    }
}

/// Errors and warnings with what to do; notes by their sentence. Everything with `-v`.
pub(super) fn findings(all: &[Finding], style: Style, out: &mut impl Write) -> io::Result<()> {
    for (at, it) in all.iter().enumerate() {
        if style.verbose {
            writeln!(out)?;
            Page::new(style, String::new()).finding(it, out)?;
            continue;
        }
        if it.severity == Severity::Info {
            continue;
        }
        let before = at.checked_sub(1).and_then(|it| all.get(it));
        if before.is_none_or(|before| before.fix != it.fix) {
            writeln!(out)?;
        }
        heading(it, style, out)?;
        // Once for neighbours with the same remedy.
        if all.get(at + 1).is_none_or(|next| next.fix != it.fix || next.severity == Severity::Info) {
            hanging("  do: ", &it.fix, style, out)?;
        }
    }
    let notes: Vec<&Finding> = all.iter().filter(|it| it.severity == Severity::Info).collect();
    if !style.verbose && !notes.is_empty() {
        writeln!(out)?;
        for it in notes {
            heading(it, style, out)?;
        }
    }
    Ok(())
}

fn heading(it: &Finding, style: Style, out: &mut impl Write) -> io::Result<()> {
    let name = if it.severity == Severity::Info { "note" } else { it.severity.name() };
    let head = format!("{name}[{}]: ", it.id);
    let mut lines =
        wrap(&format!("{}{}", "\u{a0}".repeat(width(&head)), it.message), style.width.saturating_sub(2))
            .into_iter();
    let first = lines.next().unwrap_or_default().replace('\u{a0}', "");
    writeln!(out, "{}{first}", style.paint(&head, Page::by_severity(it.severity)))?;
    lines.try_for_each(|line| writeln!(out, "  {line}"))
}

fn hanging(head: &str, text: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    let indent = width(head);
    for (at, line) in wrap(text, style.width.saturating_sub(indent)).into_iter().enumerate() {
        if at == 0 {
            writeln!(out, "{head}{line}")?;
        } else {
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

pub(super) fn row(name: &str, fact: &str, style: Style, out: &mut impl Write) -> io::Result<()> {
    hanging(&format!("  {}", padded(&clean(name), NAMES)), fact, style, out)
}

pub(super) fn closing(all: &[Finding], style: Style) -> String {
    let count = |severity| all.iter().filter(|it| it.severity == severity).count();
    let more = if style.verbose { "" } else { "; -v shows why, every device and what was not checked" };
    let text = format!(
        "{}, {}, {}{more}",
        counted(count(Severity::Error), "error"),
        counted(count(Severity::Warning), "warning"),
        counted(count(Severity::Info), "note"),
    );
    wrap(&text, style.width).join("\n")
}
