//! One finding, as compilers show it: the line with its relevant part, why it matters and what to do.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style as Ansi};
use rules::{Confidence, Severity};
use unicode_width::UnicodeWidthChar as _;

use super::{NOTE, Page, clean, counted, cut, essential, width, wrap};
use crate::{Evidence, Finding, Span};

/// How many lines of a log are shown.
const LINES: usize = 3;

impl Page {
    pub(super) fn place(&self, evidence: &Evidence) -> String {
        // File names come from outside too.
        let file = clean(&evidence.file);
        let column = evidence.span.as_ref().map(|it| format!(":{}", it.column)).unwrap_or_default();
        format!("{}:{}{column}", file.strip_prefix(&self.folder).unwrap_or(&file), evidence.line)
    }

    pub(crate) fn by_severity(severity: Severity) -> Ansi {
        match severity {
            Severity::Error => Ansi::new().fg_color(Some(AnsiColor::Red.into())).bold(),
            Severity::Warning => Ansi::new().fg_color(Some(AnsiColor::Yellow.into())).bold(),
            Severity::Info => NOTE,
        }
    }

    /// Writes a finding with all it has.
    pub(crate) fn finding(&self, finding: &Finding, out: &mut impl Write) -> io::Result<()> {
        let head = format!("{}[{}]", finding.severity.name(), finding.id);
        let sure = match finding.confidence {
            Confidence::Certain => String::new(),
            other => format!(" ({})", other.name()),
        };
        let message = format!("{}{sure}", finding.message);
        // The first line is shorter by the head.
        let indent = "\u{a0}".repeat(width(&head));
        let mut lines = wrap(&format!("{indent}{message}"), self.style.width - 2).into_iter();
        let first = lines.next().unwrap_or_default().replace('\u{a0}', "");
        let painted = self.style.paint(&head, Self::by_severity(finding.severity));
        writeln!(out, "{painted}: {}", self.style.paint(&first, Ansi::new().bold()))?;
        for line in lines {
            writeln!(out, "  {}", self.style.paint(&line, Ansi::new().bold()))?;
        }
        // Below spans the fields are one column further right, under the bar next to the source.
        let indent = if finding.evidence.iter().any(|it| it.span.is_some()) { 4 } else { 3 };
        let mut quoted = 0;
        for (at, evidence) in finding.evidence.iter().enumerate() {
            if let Some(span) = &evidence.span {
                self.annotated(evidence, span, at == 0, out)?;
            } else if quoted < LINES {
                quoted += 1;
                self.quoted(evidence, out)?;
            }
        }
        let left = finding.evidence.iter().filter(|it| it.span.is_none()).count() - quoted;
        if left > 0 {
            writeln!(out, "   {}  and {}", self.style.paint("|", NOTE), counted(left, "more line"))?;
        }
        if let Some(price) = &finding.price {
            self.field(indent, "time", &price.words(), out)?;
        }
        self.field(indent, "why", &finding.why, out)?;
        self.field(indent, "fix", &finding.fix, out)?;
        if !finding.also.is_empty() {
            let also = format!("the same lines can mean {}", finding.also.join(", "));
            self.field(indent, "or", &also, out)?;
        }
        if finding.fixable {
            self.field(indent, "note", "`plumb lint --fix` fixes it", out)?;
        }
        self.field(indent, "see", &format!("plumb explain {}", finding.id), out)
    }

    /// A line of a log.
    fn quoted(&self, evidence: &Evidence, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  {} {}", self.style.paint("-->", NOTE), self.place(evidence))?;
        if evidence.text.is_empty() {
            return Ok(());
        }
        let room = self.style.width - 6;
        let line = cut(&essential(&clean(&evidence.text), room), room);
        writeln!(out, "   {}  {line}", self.style.paint("|", NOTE))
    }

    /// A line of a file with carets under the relevant part.
    fn annotated(
        &self,
        evidence: &Evidence,
        span: &Span,
        first: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let gutter = evidence.line.to_string().len().max(3);
        let arrow = if first { "-->" } else { ":::" };
        writeln!(out, "{:gutter$}{} {}", "", self.style.paint(arrow, NOTE), self.place(evidence))?;
        let room = self.style.width.saturating_sub(gutter + 4).max(20);
        let Annotation { shown, before, length } = annotation(evidence, span, room);
        let bar = self.style.paint("|", NOTE);
        writeln!(out, "{:>gutter$} {bar} {shown}", evidence.line)?;
        let marks = self.style.paint(&"^".repeat(length), Ansi::new().fg_color(Some(AnsiColor::Red.into())));
        let label = clean(&span.label);
        let label = if label.is_empty() { String::new() } else { format!(" {label}") };
        writeln!(out, "{:gutter$} {bar} {}{marks}{label}", "", " ".repeat(before))
    }

    fn field(&self, indent: usize, name: &str, value: &str, out: &mut impl Write) -> io::Result<()> {
        let hanging = indent + name.len() + 4;
        for (at, line) in wrap(value, self.style.width.saturating_sub(indent + 7)).iter().enumerate() {
            if at == 0 {
                writeln!(out, "{:indent$}{} {name}: {line}", "", self.style.paint("=", NOTE))?;
            } else {
                writeln!(out, "{:hanging$}{line}", "")?;
            }
        }
        Ok(())
    }
}

/// A source line as it is shown, in columns of the terminal.
#[derive(Debug, PartialEq, Eq)]
struct Annotation {
    shown: String,
    /// Columns before the first caret.
    before: usize,
    /// How many carets.
    length: usize,
}

/// A long line is cut around the relevant part.
fn annotation(evidence: &Evidence, span: &Span, room: usize) -> Annotation {
    let characters = |from: u64, to: u64| {
        let skipped = usize::try_from(from).unwrap_or(usize::MAX);
        let taken = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        clean(&evidence.text.chars().skip(skipped).take(taken).collect::<String>())
    };
    let start = span.column.saturating_sub(1);
    let end = if span.end_line > evidence.line { u64::MAX } else { span.end_column.saturating_sub(1) };
    let (before, marked, after) = (characters(0, start), characters(start, end), characters(end, u64::MAX));
    let column = width(&before);
    let left_out = if column + 8 > room { column.saturating_sub(room / 3) } else { 0 };
    let (skipped, shown) = split(&before, left_out);
    let shown = split(&format!("{shown}{marked}{after}"), room).0.trim_end().to_owned();
    let before = column - width(skipped);
    let rest = width(&shown).saturating_sub(before).max(1);
    Annotation { shown, before, length: width(&marked).clamp(1, rest) }
}

/// Splits a text at the given width in columns.
fn split(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    let past = |(_, character): &(usize, char)| {
        used += character.width().unwrap_or(0);
        used > columns
    };
    let at = text.char_indices().find(past).map_or(text.len(), |it| it.0);
    text.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::{Annotation, annotation};
    use crate::{Evidence, Span};

    /// The line and the carets under `marked`.
    fn carets(text: &str, marked: &str, room: usize) -> (String, String) {
        let column = text.split(marked).next().unwrap().chars().count() as u64 + 1;
        let end_column = column + marked.chars().count() as u64;
        let span = Span { column, end_line: 1, end_column, label: String::new() };
        let evidence =
            Evidence { file: "f".to_owned(), line: 1, text: text.to_owned(), span: Some(span.clone()) };
        let Annotation { shown, before, length } = annotation(&evidence, &span, room);
        (shown, format!("{}{}", " ".repeat(before), "^".repeat(length)))
    }

    #[test]
    fn carets_stand_under_wide_characters() {
        assert_eq!(carets("name: x", "x", 60).1, "      ^");
        assert_eq!(carets("이름: 값", "값", 60).1, "      ^^");
        assert_eq!(carets("a: 🚀 b", "b", 60).1, "      ^");
        assert_eq!(carets("a: 🚀 b", "🚀", 60).1, "   ^^");
        // A letter with a combining mark is one column.
        assert_eq!(carets("e\u{301}: x", "x", 60).1, "   ^");
    }

    #[test]
    fn a_long_line_is_shown_around_the_span() {
        let text = format!("{}값{}", "가".repeat(100), "z".repeat(100));
        let (shown, marks) = carets(&text, "값", 40);
        assert!(shown.chars().count() < 40 && shown.contains('값'), "{shown}");
        assert_eq!(marks.trim_start(), "^^");
        assert_eq!(marks.len() - 2, 2 * shown.split('값').next().unwrap().chars().count());
    }
}
