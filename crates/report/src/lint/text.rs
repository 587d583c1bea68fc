//! The text output of `plumb lint`.

use std::io::{self, Write};

use rules::Severity;

use super::Lint;
use crate::Style;
use crate::text::{Page, clean, counted};

/// Writes the answer.
pub fn text(lint: &Lint, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page::new(style, String::new());
    for it in &lint.findings {
        page.finding(it, out)?;
        writeln!(out)?;
    }
    foot(lint, out)
}

fn foot(lint: &Lint, out: &mut impl Write) -> io::Result<()> {
    for it in &lint.files {
        if let Some(problem) = &it.problem {
            writeln!(
                out,
                "{}:{}:{}: could not be read: {}",
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
    let fixable = if fixable == 0 { String::new() } else { format!(" ({fixable} fixable with --fix)") };
    writeln!(
        out,
        "{}, {}, {}{fixable}: {} read, with {}, {} and {}",
        counted(lint.count(Severity::Error), "error"),
        counted(lint.count(Severity::Warning), "warning"),
        counted(lint.count(Severity::Info), "note"),
        counted(read, "file"),
        counted(sum(|it| it.pods), "pod"),
        counted(sum(|it| it.settings), "variable"),
        counted(sum(|it| it.launches), "launch command"),
    )
}
