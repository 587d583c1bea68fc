//! Lines compared with what NCCL, its plugins and libfabric are known to print.

use std::sync::{Mutex, OnceLock};

use aho_corasick::AhoCorasick;
use messages::family::Class;
use messages::{Entry, Hint, Known, Level, Match, Product};
use rustc_hash::FxHashMap;

use crate::facts::Warning;
use crate::prefix::{self, Anchor, Line};
use crate::scan::number;
use crate::source::Quote;
use crate::strip;

/// The entry that an NCCL line was printed by.
pub fn entry_of<'a>(line: &Line<'a>) -> Option<Match<'a>> {
    messages::find(line.message, hint(line))
}

fn hint<'a>(line: &Line<'a>) -> Hint<'a> {
    let ofi = line.message.trim_ascii_start().starts_with(b"NET/OFI ");
    let product = if ofi { Product::AwsOfiNccl } else { Product::Nccl };
    let level = if line.level == prefix::Level::Warn { Level::Warn } else { Level::Info };
    Hint { product: Some(product), level: Some(level), location: line.location }
}

/// What is known about a whole line of NCCL or libfabric: entry, family, component.
pub fn look_up(line: &str) -> Option<Known<'_>> {
    let bytes = line.as_bytes();
    match Anchor::default().split(bytes) {
        Some(it) => messages::look_up(it.message, hint(&it)),
        None => Libfabric::split(bytes).and_then(|it| messages::look_up(it.message, it.hint())),
    }
}

/// The same for a line that is known to be a warning, also without what NCCL puts before it: PyTorch shows the last one so.
pub fn look_up_warning(line: &str) -> Option<Known<'_>> {
    let hint = Hint { product: Some(Product::Nccl), level: Some(Level::Warn), location: b"" };
    look_up(line).or_else(|| {
        let mut texts = std::iter::once(line.as_bytes()).chain(strip::layers(line.as_bytes()));
        texts.find_map(|it| messages::look_up(it.trim_ascii(), hint))
    })
}

/// What kind of message a line of NCCL or libfabric is, if it is known.
pub fn class_of(line: &str) -> Option<Class> {
    look_up(line)?.class()
}

/// Whether the family of an entry is harmless. Every rank prints the same few entries: each is looked up once.
pub(crate) fn is_harmless(entry: &'static Entry) -> bool {
    static HARMLESS: OnceLock<Mutex<FxHashMap<usize, bool>>> = OnceLock::new();
    let known = HARMLESS.get_or_init(Mutex::default);
    let Ok(mut known) = known.lock() else { return false };
    *known
        .entry(std::ptr::from_ref(entry).addr())
        .or_insert_with(|| entry.family().is_some_and(|it| it.class == Class::Harmless))
}

/// Whether a text words a trouble.
pub(crate) fn words_trouble(text: &[u8]) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        let words = [
            "fail",
            "error",
            "timeout",
            "timed out",
            "mismatch",
            "unable to",
            "cannot",
            "can't",
            "could not",
            "couldn't",
            "invalid",
            "unexpected",
            "closed by",
            "lost",
            " dead",
            "abort",
            "terminat",
            "disabled",
            "not supported",
            "unused",
            "deprecated",
            "marked as",
        ];
        AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok()
    });
    words.as_ref().is_some_and(|it| it.is_match(text))
}

impl Warning {
    /// What the line is known as, and the values in it.
    pub fn found(&self) -> Option<Match<'_>> {
        entry_of(&Anchor::default().split(self.quote.text.as_bytes())?)
    }
}

/// `libfabric:PID:TIME:[PREFIX]:PROVIDER:SUBSYSTEM:FUNCTION():LINE<LEVEL> TEXT` (libfabric `src/log.c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Libfabric<'a> {
    /// The process; its host is not printed.
    pub pid: u32,
    /// Seconds since 1970.
    pub time: &'a str,
    /// `efa`, `core`, ...
    pub provider: &'a str,
    /// `cq`, `ep_ctrl`, ...
    pub subsystem: &'a str,
    /// Where it was printed.
    pub function: &'a str,
    /// Whether its level is `warn`.
    pub warning: bool,
    /// The message.
    pub message: &'a [u8],
}

impl<'a> Libfabric<'a> {
    /// Takes `line` apart, if libfabric wrote it. Launchers may put text before it.
    pub fn split(line: &'a [u8]) -> Option<Self> {
        let at = memchr::memmem::find(line, b"libfabric:")?;
        let rest = line.get(at + b"libfabric:".len()..)?;
        let open = memchr::memchr(b'<', rest)?;
        let head = str::from_utf8(rest.get(..open)?).ok()?;
        let after = rest.get(open + 1..)?;
        let close = memchr::memchr(b'>', after)?;
        let level = after.get(..close)?;
        let mut fields = head.rsplit(':');
        let (_line, function, subsystem, provider) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let function = function.strip_suffix("()")?;
        let mut first = head.split(':');
        let (pid, time) = (first.next()?, first.next()?);
        Some(Self {
            pid: number(pid.as_bytes())?.0,
            time,
            provider,
            subsystem,
            function,
            warning: level == b"warn",
            message: after.get(close + 1..)?.trim_ascii(),
        })
    }

    /// The entry that printed it; only the EFA provider is in the catalogue.
    pub fn entry(&self) -> Option<Match<'a>> {
        messages::find(self.message, self.hint())
    }

    fn hint(&self) -> Hint<'a> {
        Hint {
            product: Some(Product::LibfabricEfa),
            level: Some(if self.warning { Level::Warn } else { Level::Info }),
            location: self.function.as_bytes(),
        }
    }
}

/// A warning that libfabric printed, outside NCCL's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibfabricWarning {
    /// The first such line.
    pub quote: Quote,
    /// The process; its host is not printed.
    pub pid: u32,
    /// `efa`, `core`, ...
    pub provider: Box<str>,
    /// What it is known as.
    pub entry: Option<&'static Entry>,
    /// How many lines of this process were printed by the same place.
    pub count: u64,
}

impl LibfabricWarning {
    /// How many different ones are kept.
    const LIMIT: usize = 256;

    pub(crate) fn merge(all: &mut Vec<Self>, later: Self) {
        let same = |it: &Self| {
            it.pid == later.pid && it.entry.zip(later.entry).is_some_and(|(a, b)| std::ptr::eq(a, b))
        };
        let known = all.iter().position(same);
        if let Some(known) = known.and_then(|at| all.get_mut(at)) {
            known.count += later.count;
        } else if all.len() < Self::LIMIT {
            all.push(later);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Libfabric, look_up_warning, words_trouble};
    use crate::read_texts;

    #[test]
    fn a_line_of_libfabric_is_taken_apart() {
        let line = b"[1,0]<stderr>:libfabric:35:1668017255::efa:cq:efa_rdm_cq_x():243<warn> Unknown remote";
        let it = Libfabric::split(line).unwrap();
        assert_eq!((it.pid, it.provider, it.subsystem, it.function), (35, "efa", "cq", "efa_rdm_cq_x"));
        assert!(it.warning && it.message == b"Unknown remote");
        assert_eq!(Libfabric::split(b"libfabric: <x>"), None);
    }

    #[test]
    fn warnings_of_libfabric_are_kept() {
        let line =
            "libfabric:35:1668017255::efa:ep_ctrl:efa_rdm_ep_alloc_rxe():243<warn> RX entries exhausted\n";
        let case = read_texts([("log", line.repeat(3).as_bytes())]);
        let kept = &case.libfabric;
        assert_eq!(kept.len(), 1);
        assert_eq!((kept[0].pid, kept[0].count, kept[0].entry.is_some()), (35, 3, true));
        assert_eq!(case.sources.tally().understood(), 3);
    }

    #[test]
    fn the_last_warning_is_known_without_its_head() {
        let text = "[rank3]: Failed to find reverse path from remNode 0/5f000 nlinks 4 to node 0/cb000";
        assert!(look_up_warning(text).is_some_and(|it| it.reading.is_some()));
        assert_eq!(look_up_warning("[rank3]: the moon is in the wrong house"), None);
    }

    #[test]
    fn an_invented_warning_is_kept_and_not_understood() {
        let line = "n:1:2 [0] x.cc:1 NCCL WARN The moon is in the wrong house\n";
        let case = read_texts([("log", line.as_bytes())]);
        assert_eq!(case.sources.tally().understood(), 0);
        assert_eq!(case.processes[0].facts.warnings.count, 1);
        assert_eq!(case.processes[0].facts.warnings.first[0].found(), None);
    }

    #[test]
    fn information_that_words_a_trouble_is_kept() {
        let log = "n:1:2 [0] NCCL INFO NET/IB: f: Marking device 1 as permanently failed (x comm=0x1)\n\
                   n:1:2 [0] NCCL INFO NET/IB: the moon is in the wrong house\n";
        let case = read_texts([("log", log.as_bytes())]);
        assert_eq!(case.sources.tally().understood(), 1);
        assert_eq!(case.processes[0].facts.troubles.count, 1);
        assert!(words_trouble(b"Recovery FAILED") && !words_trouble(b"Using network IB"));
    }
}
