//! How processes and jobs end: the lines that say so, whichever program printed them.
//!
//! The endings of programs are a small grammar rather than a list of texts: an exception is a class name and a text, a launcher
//! reports an exit code or a signal, a shell names the signal, a scheduler and Kubernetes give a reason. [`read`] recognises
//! these forms in a line that NCCL did not write. What words a failure without such a form is [`Kind::Trouble`]: it does not
//! prove that the job died, but nobody may call the job healthy while it is among the last lines.

mod exception;
mod exit;
mod phrases;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

use crate::source::{Quote, Spot};

pub use exit::signal_name;

/// What a line says about an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A normal end: exit code 0, the summary of a finished run.
    Finished,
    /// Words of a failure without a form that proves an end.
    Trouble,
    /// An exception and its text.
    Exception,
    /// A call of NCCL or CUDA failed, and the program says so.
    Call,
    /// The process broke: a signal of its own, an abort, a failed assertion.
    Crash,
    /// The process was ended from outside.
    Killed,
    /// A launcher, shell, scheduler or container reports an exit code that is not 0.
    Exit,
    /// The program could not start: it, its script or a module of it is not there.
    NotStarted,
    /// A scheduler or cluster ended the job: time limit, preemption, node failure, eviction.
    Cancelled,
    /// The job waits for something that does not come, and a watchdog says so.
    Hang,
}

impl Kind {
    /// Whether it proves that a process of the job ended badly.
    pub fn is_death(self) -> bool {
        !matches!(self, Self::Finished | Self::Trouble)
    }
}

/// A line that says how something ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// What it says.
    pub kind: Kind,
    /// The part of the line that says it.
    pub text: Box<str>,
    /// The exit code, or the negative number of a signal.
    pub code: Option<i32>,
    /// The rank that wrote it or that it is about.
    pub rank: Option<u32>,
    /// The host that it names.
    pub host: Option<Box<str>>,
    /// The time of the line, as written.
    pub time: Option<Box<str>>,
    /// The first such line.
    pub quote: Quote,
    /// The last such line.
    pub last: Spot,
    /// How many lines were the same.
    pub count: u64,
}

/// What [`read`] finds in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'a> {
    /// What it says.
    pub kind: Kind,
    /// The part of the line that says it.
    pub text: &'a str,
    /// The exit code, or the negative number of a signal.
    pub code: Option<i32>,
    /// The rank that it is about.
    pub rank: Option<u32>,
    /// The host that it names.
    pub host: Option<&'a str>,
}

impl<'a> Found<'a> {
    fn new(kind: Kind, text: &'a str) -> Self {
        Self { kind, text, code: None, rank: None, host: None }
    }
}

/// The texts without which a line says nothing about an end.
pub(crate) fn fixed_texts() -> impl Iterator<Item = &'static str> {
    phrases::WORDS.iter().copied().chain(phrases::all().map(|it| it.text))
}

/// Whether a line can say anything about an end: most lines cannot, and cost one search.
pub fn may_end(line: &[u8]) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words =
        WORDS.get_or_init(|| AhoCorasick::builder().ascii_case_insensitive(true).build(fixed_texts()).ok());
    words.as_ref().is_some_and(|it| it.is_match(line))
}

/// Whether a line shows a job at work: a step with its loss, a progress bar.
pub fn is_progress(line: &[u8]) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        let words = [
            "loss",
            "it/s",
            "s/it",
            "tok/s",
            "tokens/s",
            "samples/s",
            "elapsed time per iteration",
            "tflop",
            "step_time",
        ];
        AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
    });
    let found = words.as_ref().and_then(|it| it.find(line));
    // A loss without a value is a name.
    found.is_some_and(|it| {
        let near =
            line.get(it.start().saturating_sub(16)..(it.end() + 16).min(line.len())).unwrap_or_default();
        near.iter().any(u8::is_ascii_digit)
    })
}

/// Reads a line that NCCL did not write.
pub fn read(line: &str) -> Option<Found<'_>> {
    let line = line.trim();
    if exception::is_code(line) {
        return None;
    }
    // An exception that ends a process begins its line, whatever its text says about later attempts.
    let begins = || exception::read(line).is_some_and(|it| line.len() - it.text.len() <= "[rank12]: ".len());
    if phrases::is_survived(line) && !begins() {
        return None;
    }
    let mild = is_mild(line);
    let found = exit::read(line)
        .or_else(|| phrases::read(line, mild))
        .or_else(|| if mild { None } else { exception::read(line) })
        .or_else(|| if mild { None } else { phrases::trouble(line) })?;
    Some(found)
}

/// Whether the program that wrote it calls it a warning, or less.
fn is_mild(line: &str) -> bool {
    let head: String = line.chars().take(100).collect();
    let mut start = 0;
    for word in head.split(|it: char| !it.is_ascii_alphanumeric() && it != '_') {
        let before = head.get(..start).and_then(|it| it.chars().next_back());
        start += word.len() + 1;
        // `NCCL_DEBUG=INFO` is a setting.
        if before == Some('=') {
            continue;
        }
        // glog: `W1115 02:54:41.123456 ...`, `[W socket.cpp:697]`
        let glog = matches!(word, "W" | "I" | "D")
            || (word.len() >= 5
                && word.starts_with(['W', 'I'])
                && word.get(1..5).is_some_and(|it| it.bytes().all(|it| it.is_ascii_digit())));
        if glog || matches!(word, "WARNING" | "WARN" | "INFO" | "DEBUG" | "warning" | "Warning") {
            return true;
        }
    }
    head.split_whitespace().any(|it| it.ends_with("Warning:"))
}

/// Whether `at..at + length` of `text` is not part of a longer word.
fn is_whole(text: &str, at: usize, length: usize) -> bool {
    let before = text.get(..at).and_then(|it| it.chars().next_back());
    let after = text.get(at + length..).and_then(|it| it.chars().next());
    let inside = |it: Option<char>| it.is_some_and(|it| it.is_alphanumeric() || it == '_');
    !inside(before) && !inside(after)
}

/// Finds `needle` (lower case) in `text`, ignoring case.
fn find_ignoring_case(text: &str, needle: &str) -> Option<usize> {
    let (text, needle) = (text.as_bytes(), needle.as_bytes());
    let first = *needle.first()?;
    let both = [first.to_ascii_lowercase(), first.to_ascii_uppercase()];
    memchr::memchr2_iter(both[0], both[1], text)
        .find(|&at| text.get(at..at + needle.len()).is_some_and(|it| it.eq_ignore_ascii_case(needle)))
}

/// The endings of a region, equal ones joined.
#[derive(Debug, Default)]
pub(crate) struct Endings {
    all: Vec<Ending>,
    /// Lines that prove a bad end, equal ones too.
    deaths: Vec<Spot>,
    /// Exceptions below `Exception ignored in` are not uncaught ones.
    ignored: bool,
    /// The last line that shows the job at work.
    pub(crate) progress: Option<Spot>,
}

/// How many different endings of one region are kept.
const LIMIT: usize = 4096;
/// How many lines that prove a bad end are kept.
const DEATH_LIMIT: usize = 65_536;

impl Endings {
    /// Notes a line that NCCL did not write. `known` means that a signal takes it: a rule answers for it.
    pub(crate) fn note(
        &mut self,
        line: &[u8],
        spot: Spot,
        rank: Option<u32>,
        time: Option<&str>,
        known: bool,
    ) -> bool {
        let before = self.progress;
        let progress = is_progress(line);
        if progress {
            self.progress = self.progress.max(Some(spot));
        }
        if !may_end(line) {
            return false;
        }
        let text = String::from_utf8_lossy(line);
        if find_ignoring_case(&text, "exception ignored").is_some() {
            self.ignored = true;
            return false;
        }
        let Some(found) = read(&text) else { return false };
        if (known || progress) && found.kind == Kind::Trouble {
            return false;
        }
        // `ValueError: loss is nan at step 4` is no step.
        if found.kind.is_death() && self.progress == Some(spot) {
            self.progress = before;
        }
        if found.kind == Kind::Exception && std::mem::take(&mut self.ignored) {
            return false;
        }
        let ending = Ending {
            kind: found.kind,
            text: found.text.chars().take(300).collect::<String>().into(),
            code: found.code,
            rank: found.rank.or(rank),
            host: found.host.map(Into::into),
            time: time.map(Into::into),
            quote: Quote::new(spot, line),
            last: spot,
            count: 1,
        };
        let kind = ending.kind;
        if kind.is_death() && self.deaths.len() < DEATH_LIMIT {
            self.deaths.push(spot);
        }
        self.add(ending);
        kind != Kind::Trouble
    }

    fn add(&mut self, ending: Ending) {
        let same = |it: &&mut Ending| {
            (it.kind, &it.text, it.code, it.rank, &it.host)
                == (ending.kind, &ending.text, ending.code, ending.rank, &ending.host)
        };
        // Equal lines come close together.
        if let Some(known) = self.all.iter_mut().rev().take(64).find(same) {
            known.count += ending.count;
            known.last = known.last.max(ending.last);
        } else if self.all.len() < LIMIT {
            self.all.push(ending);
        }
    }

    /// Leaves out what was noted of these lines: they are the text of NCCL's last warning.
    pub(crate) fn forget(&mut self, spots: &[Spot]) {
        if !spots.is_empty() {
            self.all.retain(|it| !spots.contains(&it.quote.spot));
            self.deaths.retain(|it| !spots.contains(it));
        }
    }

    /// Adds what a later region says.
    pub(crate) fn merge(&mut self, later: Self) {
        let room = DEATH_LIMIT.saturating_sub(self.deaths.len());
        self.deaths.extend(later.deaths.into_iter().take(room));
        later.all.into_iter().for_each(|it| self.add(it));
    }

    /// The endings, and every line that proves a bad one.
    pub(crate) fn into_all(self) -> (Vec<Ending>, Vec<Spot>) {
        (self.all, self.deaths)
    }
}
