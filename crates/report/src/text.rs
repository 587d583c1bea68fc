//! The text output of `plumb doctor`.
//!
//! One screen: the verdict, up to three findings, what to collect next, and how many findings there are. With `--verbose` all
//! of it: the job, the check list, every finding, the ranks, the paths, and what was not checked. Everything is understandable
//! without colour.

mod finding;
mod paths;
mod screen;

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style as Ansi};
use rules::{Level, Severity, State};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::{Check, Doctor};

/// How to write.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Whether to colour.
    pub colour: bool,
    /// How many columns there are.
    pub width: usize,
    /// Everything, not only the first screen.
    pub verbose: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, width: 100, verbose: false }
    }
}

impl Style {
    pub(crate) fn paint(self, text: &str, ansi: Ansi) -> String {
        if self.colour { format!("{ansi}{text}{ansi:#}") } else { text.to_owned() }
    }
}

/// Writes the answer.
pub fn text(doctor: &Doctor, style: Style, out: &mut impl Write) -> io::Result<()> {
    if let Some(fleet) = &doctor.fleet {
        fleet.text(style, out)?;
        return crate::validate::errors(doctor, style, out);
    }
    let page = Page::new(style, folder(doctor));
    if !style.verbose {
        page.screen(doctor, out)?;
        // `--matrix` asks for every connection.
        let matrix = doctor.facts.communicators.iter().any(|it| it.paths.is_some());
        return if matrix { page.paths(doctor, out) } else { Ok(()) };
    }
    page.verdict(doctor, out)?;
    page.head(doctor, out)?;
    page.checks(doctor, out)?;
    page.findings(doctor, out)?;
    page.ranks(doctor, out)?;
    page.paths(doctor, out)?;
    page.not_checked(doctor, out)?;
    writeln!(out)?;
    write_lines(&page.closing(doctor), out)
}

/// The colour of notes.
const NOTE: Ansi = Ansi::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

pub(crate) struct Page {
    pub(crate) style: Style,
    /// The common prefix of all file names, which is not repeated on every line.
    folder: String,
}

impl Page {
    pub(crate) fn new(style: Style, folder: String) -> Self {
        Self { style: Style { width: style.width.clamp(40, 160), ..style }, folder }
    }

    fn by_level(level: Level) -> Ansi {
        match level {
            Level::Error => Self::by_severity(Severity::Error),
            Level::Warning => Self::by_severity(Severity::Warning),
            Level::Info => NOTE,
            Level::Ok => Ansi::new().fg_color(Some(AnsiColor::Green.into())),
            Level::Unknown => Ansi::new().dimmed(),
        }
    }

    fn by_state(state: State) -> Ansi {
        match state {
            State::Error => Self::by_severity(Severity::Error),
            State::Warning => Self::by_severity(Severity::Warning),
            State::Note => NOTE,
            State::Ok => Ansi::new().fg_color(Some(AnsiColor::Green.into())),
            State::NotChecked => Ansi::new().dimmed(),
        }
    }

    fn verdict(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        write_lines(&self.opening(doctor), out)
    }

    fn head(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let job = &doctor.facts.job;
        let stack = &doctor.facts.stack;
        writeln!(out)?;
        if let Some(ranks) = job.ranks {
            let nodes =
                job.nodes.map(|it| format!(" on {}", counted(it as usize, "node"))).unwrap_or_default();
            let each = job.ranks_per_node.filter(|it| {
                job.nodes.is_some_and(|nodes| nodes > 1 && nodes.checked_mul(*it) == Some(ranks))
            });
            let each = each.map(|it| format!(", {it} on each")).unwrap_or_default();
            let hosts = match job.hosts.as_slice() {
                [] => String::new(),
                [one] => format!(" on {one}"),
                many => format!(" on {} hosts", many.len()),
            };
            let seen = if job.ranks_seen == ranks as usize {
                format!("all seen{hosts}")
            } else {
                format!("{} seen{hosts}", counted(job.ranks_seen, "rank"))
            };
            self.row(out, "job", &format!("{}{nodes}{each}   ({seen})", counted(ranks as usize, "rank")))?;
        }
        let mut parts = Vec::new();
        parts.extend(stack.nccl.as_ref().map(|it| format!("NCCL {it}")));
        parts.extend(stack.cuda_driver.as_ref().map(|it| format!("driver for CUDA {it}")));
        parts.extend(
            stack.plugin_name.zip(stack.plugin.as_ref()).map(|(name, release)| format!("{name} {release}")),
        );
        parts.extend(stack.libfabric.as_ref().map(|it| format!("libfabric {it}")));
        if !parts.is_empty() {
            self.row(out, "stack", &parts.join(", "))?;
        }
        if let Some(instance) = &job.instance {
            let machine = job.machine.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            self.row(out, "machine", &format!("{instance}{machine}"))?;
        }
        for test in &doctor.facts.tests {
            let program = test.program.as_deref().unwrap_or("nccl-tests");
            let gpus =
                if test.gpus > 0 { format!(" on {}", counted(test.gpus, "GPU")) } else { String::new() };
            let peak = match (test.largest_bytes, test.largest_busbw) {
                (Some(size), Some(busbw)) => format!(", {busbw} GB/s bus bandwidth at {}", bytes(size)),
                _ => String::new(),
            };
            self.row(out, "measured", &format!("{program}{gpus}: {}{peak}", counted(test.rows, "row")))?;
        }
        if let Some(training) = &doctor.facts.training {
            self.row(out, "training", &training_words(training))?;
        }
        self.inputs(doctor, out)
    }

    fn inputs(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let lines: u64 = doctor.inputs.iter().map(|it| it.lines - it.blank).sum();
        let understood: u64 = doctor.inputs.iter().map(|it| it.understood).sum();
        let share = share(understood, lines);
        match doctor.inputs.as_slice() {
            [] => Ok(()),
            [one] => {
                self.row(
                    out,
                    "input",
                    &format!(
                        "{} ({}): {understood} of {lines} lines understood{share}",
                        one.file,
                        one.kind.name()
                    ),
                )?;
                self.problem(one, out)
            }
            many => {
                let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
                for it in many {
                    *kinds.entry(it.kind.name()).or_default() += 1;
                }
                let kinds: Vec<String> = kinds.into_iter().map(|(kind, n)| format!("{n} {kind}")).collect();
                let text = format!(
                    "{} files ({}): {understood} of {lines} lines understood{share}",
                    many.len(),
                    kinds.join(", ")
                );
                self.row(out, "input", &text)?;
                many.iter().try_for_each(|it| self.problem(it, out))
            }
        }
    }

    fn problem(&self, input: &crate::Input, out: &mut impl Write) -> io::Result<()> {
        if let Some(problem) = &input.problem {
            self.row(out, "", &format!("{}: {problem}", input.file))?;
        }
        match input.cut {
            0 => Ok(()),
            n => self.row(
                out,
                "",
                &format!(
                    "{}: {} longer than 64 KiB, truncated",
                    input.file,
                    counted(usize::try_from(n).unwrap_or(usize::MAX), "line")
                ),
            ),
        }
    }

    /// A label and a text that may need several lines.
    fn row(&self, out: &mut impl Write, name: &str, value: &str) -> io::Result<()> {
        let mut first = true;
        for line in wrap(value, self.style.width - 11) {
            let name = if first { name } else { "" };
            writeln!(out, "  {} {line}", self.style.paint(&format!("{name:<8}"), Ansi::new().dimmed()))?;
            first = false;
        }
        Ok(())
    }

    fn checks(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let (unseen, seen): (Vec<&Check>, Vec<&Check>) =
            doctor.checks.iter().partition(|it| it.state == State::NotChecked);
        if seen.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let room = self.style.width.saturating_sub(24);
        for check in seen {
            let at = check.evidence.as_ref().map(|it| self.place(it)).unwrap_or_default();
            let lines = wrap(&check.text, room);
            for (i, line) in lines.iter().enumerate() {
                let (state, id) = if i == 0 { (check.state.name(), check.id.as_str()) } else { ("", "") };
                let ansi = if i == 0 { Self::by_state(check.state) } else { Ansi::new().dimmed() };
                let state = self.style.paint(&format!("{state:<8}"), ansi);
                // File and line are at the end of the first line if there is room, otherwise on a line of their own.
                let fits = i + 1 == lines.len() && width(line) + width(&at) + 2 <= room;
                let tail = if fits && !at.is_empty() {
                    format!(
                        "{}{}",
                        " ".repeat(room - width(line) - width(&at)),
                        self.style.paint(&at, Ansi::new().dimmed())
                    )
                } else {
                    String::new()
                };
                writeln!(out, "  {state} {id:<12} {line}{tail}")?;
                if i + 1 == lines.len() && !fits && !at.is_empty() {
                    let indent = " ".repeat(24 + room.saturating_sub(width(&at)));
                    writeln!(out, "{indent}{}", self.style.paint(&at, Ansi::new().dimmed()))?;
                }
            }
        }
        if !unseen.is_empty() {
            let names: Vec<&str> = unseen.iter().map(|it| it.id.as_str()).collect();
            let text = format!("not in this input: {}", names.join(", "));
            for (i, line) in wrap(&text, self.style.width - 11).iter().enumerate() {
                let dash = if i == 0 { "-" } else { " " };
                writeln!(
                    out,
                    "  {} {}",
                    self.style.paint(&format!("{dash:<8}"), Ansi::new().dimmed()),
                    self.style.paint(line, Ansi::new().dimmed())
                )?;
            }
        }
        Ok(())
    }

    fn findings(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        for finding in &doctor.findings {
            writeln!(out)?;
            self.finding(finding, out)?;
        }
        Ok(())
    }

    fn not_checked(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        if doctor.not_checked.is_empty() {
            return Ok(());
        }
        let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        doctor.not_checked.iter().for_each(|it| needs.entry(&it.needs).or_default().push(&it.id));
        writeln!(out)?;
        let what = if doctor.not_checked.len() == 1 { "rule was" } else { "rules were" };
        writeln!(out, "{} {what} not checked. To check them, add", doctor.not_checked.len())?;
        for (need, ids) in needs {
            for (i, line) in
                wrap(&format!("{need}: {}", ids.join(", ")), self.style.width - 4).iter().enumerate()
            {
                writeln!(out, "  {} {line}", if i == 0 { "-" } else { " " })?;
            }
        }
        Ok(())
    }
}

fn training_words(training: &crate::Training) -> String {
    let mut parts = Vec::new();
    let setting = |name: &str| training.settings.get(name);
    parts.extend(setting("Number of trainable parameters").map(|it| format!("{it} parameters")));
    parts.extend(
        setting("Total train batch size (w. parallel, distributed & accumulation)")
            .map(|it| format!("batch {it}")),
    );
    parts.extend(setting("Total optimization steps").map(|it| format!("{it} steps")));
    parts.extend(training.runtime_seconds.map(|it| format!("{it:.0} s")));
    parts.extend(training.mean_step_ms.map(|it| format!("{it:.0} ms per step")));
    parts.extend(training.gpu_memory_max_gb.map(|it| format!("GPU memory up to {it} GB")));
    if parts.is_empty() { format!("{} lines with a loss", training.loss_lines) } else { parts.join(", ") }
}

fn write_lines(lines: &[String], out: &mut impl Write) -> io::Result<()> {
    lines.iter().try_for_each(|it| writeln!(out, "{it}"))
}

/// The folder that all inputs are in, with its slash.
fn folder(doctor: &Doctor) -> String {
    let mut names = doctor.inputs.iter().map(|it| it.file.as_str());
    let parent = |name: &str| name.rfind('/').map_or(0, |at| at + 1);
    let Some(first) = names.next() else { return String::new() };
    let mut common = first.get(..parent(first)).unwrap_or_default();
    for name in names {
        while !name.starts_with(common) {
            let shorter = common.trim_end_matches('/');
            common = shorter.get(..parent(shorter)).unwrap_or_default();
        }
    }
    common.to_owned()
}

pub(crate) fn counted(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// ` (97 %)`; empty if there are no lines.
fn share(part: u64, whole: u64) -> String {
    // Rounded down: only all lines are 100 %.
    (part * 100).checked_div(whole).map(|it| format!(" ({it} %)")).unwrap_or_default()
}

/// `1 GiB`, `512 KiB`, `1000 B`.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| n >> shift > 0 && n & ((1 << shift) - 1) == 0);
    unit.map_or_else(|| format!("{n} B"), |(shift, name)| format!("{} {name}", n >> shift))
}

/// Removes what a terminal would obey: input must not control it.
pub fn clean(text: &str) -> String {
    text.chars().map(|it| if it == '\t' { ' ' } else { it }).filter(|it| !is_unprintable(*it)).collect()
}

/// Control characters, bidirectional controls, and Unicode line separators.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Columns of a terminal: two for Hangul, Kanji and most emoji, none for combining marks.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// A long NCCL line without its prefix: the message matters more than the host name.
fn essential(line: &str, room: usize) -> String {
    let long = width(line).saturating_sub(room);
    match line.find(" NCCL ") {
        Some(anchor) if long > 0 => {
            let spare = width(line.get(..anchor).unwrap_or_default()).saturating_sub(12);
            let skip = (long + 3).min(spare);
            if skip < 4 { line.to_owned() } else { "...".chars().chain(line.chars().skip(skip)).collect() }
        }
        _ => line.to_owned(),
    }
}

/// A text with blanks after it, up to a width.
pub(crate) fn padded(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

pub(crate) fn cut(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let mut left = room.saturating_sub(3);
    let fits = |it: &char| {
        let columns = it.width().unwrap_or(0);
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    };
    text.chars().take_while(fits).chain("...".chars()).collect()
}

/// Breaks a text at blanks, but not between a number and its unit.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let room = room.max(20);
    let mut lines = Vec::new();
    for paragraph in clean_lines(text) {
        let mut line = String::new();
        let mut words = paragraph.split(' ').peekable();
        while let Some(word) = words.next() {
            let unit = words.next_if(|next| is_number(word) && is_unit(next));
            let columns = width(word) + unit.map_or(0, |it| 1 + width(it));
            if !line.is_empty() && width(&line) + 1 + columns > room {
                lines.push(std::mem::take(&mut line).trim_end_matches(' ').to_owned());
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
            if let Some(unit) = unit {
                line.push(' ');
                line.push_str(unit);
            }
        }
        lines.push(line);
    }
    lines
}

/// `93`, `(3.7`, `1,024`
fn is_number(word: &str) -> bool {
    let word = word.trim_start_matches(['(', '[', '`', '~', '<', '>', '=', '-', '+']);
    !word.is_empty() && word.bytes().all(|it| it.is_ascii_digit() || matches!(it, b'.' | b','))
}

fn is_unit(word: &str) -> bool {
    static UNITS: &[&str] = &[
        "%", "x", "s", "ms", "us", "ns", "min", "h", "B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB",
        "B/s", "KB/s", "MB/s", "GB/s", "TB/s", "GiB/s", "Gbps", "Mbps", "Gbit/s", "GT/s", "bytes", "times",
    ];
    UNITS.contains(&word.trim_end_matches(['.', ',', ';', ':', ')', ']', '`', '?']))
}

fn clean_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(clean)
}

#[cfg(test)]
mod tests {
    use super::{bytes, clean, cut, share, wrap};

    #[test]
    fn texts_are_wrapped_at_blanks() {
        assert_eq!(wrap("one two three four five six", 20), ["one two three four", "five six"]);
        assert_eq!(wrap("x".repeat(30).as_str(), 20).len(), 1);
        assert_eq!(wrap("가나다라 마바사 아자차", 20), ["가나다라 마바사", "아자차"]);
    }

    #[test]
    fn logs_do_not_command_the_terminal() {
        assert_eq!(clean("a\u{1b}[31mb\tc\u{7}"), "a[31mb c");
        assert_eq!(clean("a\u{202e}gnp\u{2066}"), "agnp");
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        assert_eq!(wrap("lines understood (93 %) of all", 22), ["lines understood", "(93 %) of all"]);
        assert_eq!(wrap("took about, in all, 7.39 s.", 24), ["took about, in all,", "7.39 s."]);
        assert_eq!(wrap("the 16 ranks of this job here", 20), ["the 16 ranks of this", "job here"]);
    }

    #[test]
    fn lines_are_cut() {
        assert_eq!(cut("abcdefghij", 8), "abcde...");
        assert_eq!(cut("가나다라마", 8), "가나...");
    }

    #[test]
    fn the_message_of_a_long_line_is_shown() {
        let line = "a-very-long-host-name-0:191:726 [0] NCCL INFO Using network Libfabric";
        let shown = super::essential(line, 50);
        assert!(
            shown.starts_with("...") && shown.ends_with("[0] NCCL INFO Using network Libfabric"),
            "{shown}"
        );
        assert!(shown.chars().count() <= 50, "{shown}");
        assert_eq!(super::essential("short NCCL INFO x", 50), "short NCCL INFO x");
    }

    #[test]
    fn shares_are_rounded_down() {
        assert_eq!(share(999, 1000), " (99 %)");
        assert_eq!(share(0, 0), "");
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(1000), "1000 B");
    }
}
