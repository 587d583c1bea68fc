//! The first screen: the verdict, up to three findings, what to collect next, and how many findings there are.

use std::io::{self, Write};

use anstyle::Style as Ansi;
use rules::{Confidence, Level, Role, Severity};

use super::{NOTE, Page, clean, counted, cut, width, wrap, write_lines};
use crate::{Cost, Doctor, Evidence, Finding, FirstFailure};

/// Rows of a terminal of 24, without the prompt.
const ROWS: usize = 23;
/// How many findings are shown.
const FINDINGS: usize = 3;
/// How many rows an instruction has at most.
const ACTION_ROWS: usize = 3;

/// How much of a finding is shown.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// The message with its numbers, or the title of the rule.
    message: bool,
    /// Lines of evidence.
    lines: usize,
    /// Rows of the instruction.
    rows: usize,
    /// Rows of the reason.
    why: usize,
}

/// The first finding, the longest form first. The verdict already has its message.
const FIRST: [Form; 3] = [
    Form { message: false, lines: 2, rows: ACTION_ROWS, why: 0 },
    Form { message: false, lines: 1, rows: ACTION_ROWS, why: 0 },
    Form { message: false, lines: 1, rows: 2, why: 0 },
];

/// The others.
const LATER: [Form; 5] = [
    Form { message: true, lines: 1, rows: ACTION_ROWS, why: 0 },
    Form { message: true, lines: 0, rows: 2, why: 0 },
    Form { message: false, lines: 0, rows: 2, why: 0 },
    Form { message: true, lines: 0, rows: 0, why: 0 },
    Form { message: false, lines: 0, rows: 0, why: 0 },
];

/// How the answer begins.
pub(crate) struct Opening {
    /// `failed`, `warning`, `ok`.
    pub(crate) word: String,
    /// What ended the job or slows it down, or what the job is.
    pub(crate) sentence: String,
    /// What the job is, and how far the answer reaches.
    pub(crate) below: Vec<String>,
}

impl Doctor {
    pub(crate) fn opening(&self) -> Opening {
        let verdict = &self.verdict;
        let word = match (verdict.level, self.outcome.state.as_str()) {
            (Level::Error, state @ ("failed" | "hung")) => state,
            (level, _) => level.name(),
        };
        // What ended the job comes before what slows it down.
        let error = self.findings.iter().find(|it| it.severity == Severity::Error);
        let first = error.or_else(|| self.findings.first().filter(|it| it.severity > Severity::Info));
        let sentence = match first {
            // That something was printed is a fact, whatever its cause is.
            Some(it)
                if it.confidence == Confidence::Possible
                    && it.role == Role::Cause
                    && it.id != "nccl-message" =>
            {
                format!("possibly {}", it.message)
            }
            Some(it) => it.message.clone(),
            None if self.inputs.iter().all(|it| it.lines == 0) => "nothing could be read".to_owned(),
            None => verdict.job.clone(),
        };
        let facts = &self.facts;
        let known = facts.job.ranks.is_some()
            || !facts.job.networks.is_empty()
            || !facts.job.inside.is_empty()
            || facts.stack.nccl.is_some();
        let mut below = Vec::new();
        if first.is_some() && known {
            below.push(verdict.job.clone());
        }
        // The first word has it already.
        if word == verdict.level.name() || facts.job.ranks_seen > 0 {
            below.push(verdict.reach.clone());
        }
        Opening { word: word.to_owned(), sentence, below }
    }
}

impl Page {
    pub(super) fn screen(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let opening = self.opening(doctor);
        let mut ending = self.next(doctor);
        ending.extend(self.closing(doctor));
        let mut left = ROWS.saturating_sub(opening.len() + ending.len() + 1);
        let mut blocks: Vec<Vec<String>> = Vec::new();
        let mut chosen = None;
        let mut fixes: Vec<&str> = Vec::new();
        let shown =
            doctor.findings.iter().filter(|it| it.severity > Severity::Info && !is_folded(doctor, it));
        for (at, finding) in shown.take(FINDINGS).enumerate() {
            let forms = if at == 0 { &FIRST[..] } else { &LATER[..] };
            // The same instruction is given once.
            let again = fixes.contains(&&*finding.fix);
            let mut forms = forms.iter().map(|it| Form { rows: if again { 0 } else { it.rows }, ..*it });
            let least = forms.clone().next_back().filter(|_| at == 0);
            let Some(form) = forms.find(|it| self.short(finding, *it).len() < left).or(least) else { break };
            let block = self.short(finding, form);
            chosen = chosen.or(Some((finding, form)));
            fixes.push(&finding.fix);
            left = left.saturating_sub(block.len() + 1);
            blocks.push(block);
        }
        match (blocks.as_mut_slice(), chosen) {
            ([], _) => blocks.extend(self.normal(doctor)),
            // A single problem has room for its reason.
            ([only], Some((finding, form))) => {
                *only = self.short(finding, Form { why: left.saturating_sub(1), ..form });
            }
            _ => {}
        }
        write_lines(&opening, out)?;
        for block in &blocks {
            writeln!(out)?;
            write_lines(block, out)?;
        }
        writeln!(out)?;
        write_lines(&ending, out)
    }

    /// How the job ended and why, what it is, and how far the answer reaches.
    pub(super) fn opening(&self, doctor: &Doctor) -> Vec<String> {
        let Opening { word, sentence, below } = doctor.opening();
        let bold = |it: &str| self.style.paint(it, Ansi::new().bold());
        let painted = self.style.paint(&word, Self::by_level(doctor.verdict.level));
        let mut lines: Vec<String> = Vec::new();
        for line in wrap(&format!("{word}: {sentence}"), self.style.width) {
            lines.push(match line.strip_prefix(&*word).filter(|_| lines.is_empty()) {
                Some(rest) => format!("{painted}{}", bold(rest)),
                None => bold(&line),
            });
        }
        for it in &below {
            lines.extend(wrap(it, self.style.width));
        }
        if let Some(failure) = &doctor.facts.first_failure {
            lines.extend(self.first_failure(failure));
        }
        lines
    }

    fn first_failure(&self, failure: &FirstFailure) -> Vec<String> {
        let who = match (failure.rank, &failure.host) {
            (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
            (Some(rank), None) => format!("rank {rank}"),
            (None, Some(host)) => host.clone(),
            // The findings have the line.
            (None, None) => return Vec::new(),
        };
        let when = failure.time.as_ref().map(|it| format!(" at {it}")).unwrap_or_default();
        let sure = if failure.certain { "" } else { " (as far as the input can be ordered)" };
        let at = self.place(&failure.evidence);
        let frame = format!("first: {who}{when}: {sure}   {at}");
        let room = (2 * self.style.width).saturating_sub(width(&frame) + 16);
        let what = cut_at_blank(&clean(&failure.what), room.max(24));
        wrap(&format!("first: {who}{when}: {what}{sure}   {at}"), self.style.width)
    }

    /// A finding in a few rows.
    fn short(&self, finding: &Finding, form: Form) -> Vec<String> {
        let head = format!("{}[{}]", finding.severity.name(), finding.id);
        let sure = match finding.confidence {
            Confidence::Certain => String::new(),
            other => format!(" ({})", other.name()),
        };
        let text = if form.message { &finding.message } else { &finding.title };
        let mut block = Vec::new();
        for (at, line) in hanging(&format!("{head}: {text}{sure}"), self.style.width, 2).iter().enumerate() {
            let rest = line.strip_prefix(&*head).filter(|_| at == 0);
            block.push(match rest {
                Some(rest) => {
                    format!("{}{rest}", self.style.paint(&head, Self::by_severity(finding.severity)))
                }
                None => line.clone(),
            });
        }
        if let Some(cost) = &finding.cost {
            block.extend(self.field_rows("cost: ", &cost_words(cost), 2));
        }
        if let Some(price) = &finding.price {
            block.extend(self.field_rows("time: ", &price.words(), 2));
        }
        for evidence in finding.evidence.iter().filter(|it| it.span.is_none()).take(form.lines) {
            block.push(self.evidence_row(evidence));
        }
        let reason = reason(&finding.why, self.style.width.saturating_sub(7), form.why);
        if !reason.is_empty() {
            block.extend(self.field_rows("why: ", &reason, form.why));
        }
        let room = self.style.width.saturating_sub(6);
        if form.rows > 0 {
            block.extend(self.field_rows("do: ", &action(&finding.fix, room, form.rows), form.rows));
        }
        block
    }

    /// A name and a text below each other, indented by two.
    fn field_rows(&self, name: &str, text: &str, rows: usize) -> Vec<String> {
        let lines = wrap_commands(text, self.style.width.saturating_sub(2 + name.len()));
        let rest = " ".repeat(name.len());
        let row = |(at, line): (usize, &String)| {
            let name = if at == 0 { self.style.paint(name, NOTE) } else { rest.clone() };
            format!("  {name}{line}")
        };
        lines.iter().take(rows).enumerate().map(row).collect()
    }

    /// `  --> job.log:182   Connection closed by remote peer`
    fn evidence_row(&self, evidence: &Evidence) -> String {
        let place = self.place(evidence);
        let room = self.style.width.saturating_sub(6 + width(&place) + 3);
        let text = cut_at_blank(message(&clean(&evidence.text)), room);
        let arrow = self.style.paint("-->", NOTE);
        if room < 16 || text.is_empty() {
            return format!("  {arrow} {}", cut(&place, self.style.width.saturating_sub(6)));
        }
        format!("  {arrow} {place}   {text}")
    }

    /// What is normal for this job, where nothing is wrong with it.
    fn normal(&self, doctor: &Doctor) -> Option<Vec<String>> {
        let check = doctor.checks.iter().find(|it| it.id == "bandwidth" && it.evidence.is_some())?;
        Some(self.field_rows("bandwidth: ", &check.text, 4))
    }

    /// The one thing to collect or to do next.
    fn next(&self, doctor: &Doctor) -> Vec<String> {
        let job = &doctor.facts.job;
        let failed = matches!(doctor.outcome.state.as_str(), "failed" | "hung");
        let unsure = doctor.findings.first().is_some_and(|it| it.confidence < Confidence::Certain);
        let missing = job.ranks.map_or(0, |it| (it as usize).saturating_sub(job.ranks_seen));
        let died = doctor
            .findings
            .first()
            .is_some_and(|it| matches!(it.id.as_str(), "peer-process-died" | "host-oom-kill"));
        let kernel = doctor.not_checked.iter().find(|it| it.needs.contains("dmesg"));
        let unknown = doctor.findings.first().filter(|it| it.id == "hardware-unknown");
        let text = if let Some(next) = &doctor.verdict.next {
            next.clone()
        } else if failed && unsure && job.ranks_seen > 0 && missing > 0 {
            format!(
                "the logs of the other {}: the one that failed first may be among them",
                counted(missing, "rank")
            )
        } else if let Some(need) = kernel.filter(|_| failed && unsure && died) {
            need.needs.clone()
        } else if let Some(unknown) = unknown {
            action(&unknown.fix, self.style.width, ACTION_ROWS)
        } else {
            return Vec::new();
        };
        let lines = wrap_commands(&format!("next: {text}"), self.style.width);
        let mut rows: Vec<String> = lines.into_iter().take(ACTION_ROWS).collect();
        if let Some(first) = rows.first_mut() {
            *first = first.replacen("next:", &self.style.paint("next:", NOTE), 1);
        }
        rows
    }

    /// `1 error, 2 warnings (worst: 2.1x slower), 3 notes; -v shows all`
    pub(super) fn closing(&self, doctor: &Doctor) -> Vec<String> {
        let count = |severity: Severity| {
            doctor.findings.iter().filter(|it| it.severity == severity && !is_folded(doctor, it)).count()
        };
        let folded = doctor.findings.iter().filter(|it| is_folded(doctor, it)).count();
        let mut errors = counted(count(Severity::Error), "error");
        if folded > 0 {
            errors.push_str(&format!(" with {}", counted(folded, "consequence")));
        }
        let worst =
            doctor.findings.iter().filter_map(|it| it.cost).map(|it| it.factor).max_by(f64::total_cmp);
        let worst = worst.map(|it| format!(" (worst: {it}x slower)")).unwrap_or_default();
        let notes = match count(Severity::Info) {
            0 => String::new(),
            n => format!(", {}", counted(n, "note")),
        };
        let more = if self.style.verbose { "" } else { "; -v shows all" };
        wrap(
            &format!("{errors}, {}{worst}{notes}{more}", counted(count(Severity::Warning), "warning")),
            self.style.width,
        )
    }
}

/// Whether a finding only follows from a known cause.
fn is_folded(doctor: &Doctor, finding: &Finding) -> bool {
    let explains = |it: &Finding| {
        it.severity == Severity::Error && it.role == Role::Cause && it.confidence > Confidence::Possible
    };
    finding.role == Role::Consequence && doctor.findings.iter().any(explains)
}

fn cost_words(cost: &Cost) -> String {
    match (cost.normal, cost.here) {
        (Some(normal), Some(here)) => {
            format!(
                "about {here} GB/s instead of {normal} GB/s for a large all_reduce, {}x slower",
                cost.factor
            )
        }
        _ => format!("about {}x slower", cost.factor),
    }
}

/// Lines after the first are indented.
fn hanging(text: &str, room: usize, indent: usize) -> Vec<String> {
    let mut lines = wrap(text, room).into_iter();
    let Some(first) = lines.next() else { return Vec::new() };
    let rest: Vec<String> = lines.collect();
    if rest.is_empty() {
        return vec![first];
    }
    let rest = wrap(&rest.join(" "), room.saturating_sub(indent));
    [first].into_iter().chain(rest.into_iter().map(|it| format!("{}{it}", " ".repeat(indent)))).collect()
}

/// Cuts a text at a blank, if there is one in its second half.
fn cut_at_blank(text: &str, room: usize) -> String {
    let short = cut(text, room);
    let blank = short.strip_suffix("...").filter(|_| short != text).and_then(|it| it.rfind(' '));
    match blank.and_then(|at| short.get(..at)).filter(|it| 2 * width(it) > room) {
        Some(words) => format!("{words} ..."),
        None => short,
    }
}

/// A line without what stands before the message of NCCL or of PyTorch's C++ part.
fn message(line: &str) -> &str {
    let after = |mark: &str| line.split_once(mark).map(|it| it.1.trim_start());
    // `[rank0]:[E1115 23:36:02.461834475 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog ...`
    let torch = || after(".cpp:")?.split_once("] ").filter(|it| it.0.bytes().all(|it| it.is_ascii_digit()));
    let found = after(" NCCL WARN ").or_else(|| after(" NCCL INFO ")).or_else(|| torch().map(|it| it.1));
    found.filter(|it| !it.is_empty()).unwrap_or(line).trim()
}

/// As many sentences as fit.
fn reason(why: &str, room: usize, rows: usize) -> String {
    let mut end = 0;
    while let Some(rest) = why.get(end..).filter(|it| !it.is_empty()) {
        let next = end + first_sentence(rest).len();
        let next = next + why.get(next..).map_or(0, |it| it.len() - it.trim_start().len());
        if why.get(..next).is_none_or(|it| wrap_commands(it.trim_end(), room).len() > rows) {
            break;
        }
        end = next;
    }
    why.get(..end).unwrap_or_default().trim_end().to_owned()
}

/// The first instruction of a text: its first sentence, or as many parts of it as fit.
fn action(fix: &str, room: usize, rows: usize) -> String {
    let sentence = first_sentence(fix);
    let fits = |text: &str| wrap_commands(text, room).len() <= rows;
    if fits(sentence) {
        return sentence.to_owned();
    }
    let outside = |at: usize| sentence.get(..at).is_some_and(|it| it.matches('`').count() % 2 == 0);
    let ends = sentence.char_indices().filter(|(at, it)| matches!(it, ';' | ':' | ',') && outside(*at));
    let parts = ends.filter_map(|(at, _)| sentence.get(..at));
    let longest = parts.rev().find(|it| fits(&format!("{it} ...")));
    let first_rows = || {
        let rows = wrap_commands(&format!("{sentence} ..."), room).into_iter().take(rows);
        rows.collect::<Vec<_>>().join(" ")
    };
    longest.map_or_else(first_rows, |it| format!("{it} ..."))
}

/// Breaks a text at blanks, but not inside a command between backticks that fits into a line.
fn wrap_commands(text: &str, room: usize) -> Vec<String> {
    let parts = text.split('`').enumerate().map(|(at, part)| {
        let command = at % 2 == 1 && width(part) + 2 <= room;
        if command { part.replace(' ', "\u{a0}") } else { part.to_owned() }
    });
    let glued = parts.collect::<Vec<_>>().join("`");
    wrap(&glued, room).into_iter().map(|it| it.replace('\u{a0}', " ")).collect()
}

/// Up to a full stop before a capital or a backtick, outside of backticks and brackets.
fn first_sentence(text: &str) -> &str {
    let ends = |(at, _): &(usize, &str)| {
        let before = text.get(..*at).unwrap_or_default();
        let after = text.get(at + 2..).and_then(|it| it.chars().next());
        before.matches('`').count() % 2 == 0
            && before.matches('(').count() <= before.matches(')').count()
            && after.is_some_and(|it| it.is_uppercase() || it == '`')
    };
    text.match_indices(". ").find(ends).and_then(|(at, _)| text.get(..=at)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::{action, cut_at_blank, first_sentence, hanging, message, reason, wrap_commands};

    #[test]
    fn one_instruction_is_shown() {
        assert_eq!(
            first_sentence("Set `a. B` to 1 (e.g. X. Y). Then run it."),
            "Set `a. B` to 1 (e.g. X. Y)."
        );
        assert_eq!(first_sentence("Unset it. `nvidia-smi` shows more."), "Unset it.");
        let long = format!("Do this: {}, or that", "word ".repeat(60));
        assert_eq!(action(&long, 74, 3), "Do this ...");
        assert_eq!(
            wrap_commands("now run `a b c d e f g h` at once", 20),
            ["now run", "`a b c d e f g h` at", "once"]
        );
    }

    #[test]
    fn rows_after_the_first_are_indented() {
        assert_eq!(hanging("error[x]: a b c d e f g h i", 20, 2), ["error[x]: a b c d e", "  f g h i"]);
    }

    #[test]
    fn the_message_is_shown_and_not_its_prefix() {
        assert_eq!(message("n:1:2 [0] init.cc:4 NCCL WARN Duplicate GPU"), "Duplicate GPU");
        assert_eq!(message("RuntimeError: x"), "RuntimeError: x");
        assert_eq!(
            message("[rank0]:[E1115 23:36:02.4 ProcessGroupNCCL.cpp:683] [Rank 0] late"),
            "[Rank 0] late"
        );
        assert_eq!(message("NCCL error in: /x/a.cpp:1, b"), "NCCL error in: /x/a.cpp:1, b");
        assert_eq!(cut_at_blank("one two three four", 13), "one two ...");
        assert_eq!(
            reason("It is so. It was (see A. B) so. Long it will be so.", 20, 2),
            "It is so. It was (see A. B) so."
        );
    }
}
