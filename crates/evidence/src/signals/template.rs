//! Finding templates in lines.
//!
//! A template matches as it is written. Where it does not, it is compared without blanks, colons and quotes and in any
//! case, because lines are pasted, reworded between releases and stored by collectors that change them. A line that was
//! cut still matches if enough of the fixed text is left and no other signal's text begins (or ends) in the same way.

use memchr::memmem;
use rustc_hash::FxHashMap;

use super::Signal;
use super::place::errors_with;
use crate::source::Kind;

/// A template with fewer letters of fixed text than this must match as it is written.
const LOOSE_LETTERS: usize = 15;
/// So much of a key is looked up.
const LONG: usize = 8;
/// The same for shorter keys. No key is shorter than this; a test proves it.
const SHORT: usize = 3;
/// How many letters of fixed text a cut line must have left.
const CUT_LETTERS: usize = 12;

/// A set of signals to search for in one pass over a line.
#[derive(Debug, Default)]
pub struct Book {
    /// From the beginning of a key to the templates that have it: a table that is made in no time, which matters for short logs.
    long: FxHashMap<[u8; LONG], Vec<u32>>,
    /// The same for keys that are shorter.
    short: FxHashMap<[u8; SHORT], Vec<u32>>,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    signal: &'static Signal,
    /// Its longest fixed text, folded: where it is missing, the template is not tried.
    key: Box<[u8]>,
    parts: Vec<Part>,
    /// The fixed texts, folded, in the order of `parts`; empty if the template must match as it is written. A last text
    /// of quotes alone is left out.
    folded: Vec<Box<[u8]>>,
    /// Letters and digits of fixed text.
    letters: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Text(&'static str),
    /// Text up to the next part; at the end, a word.
    Name(&'static str),
    /// The rest of the line.
    Rest(&'static str),
}

/// A template found in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'a> {
    /// The signal.
    pub signal: &'static Signal,
    /// Its named parts.
    pub captures: Vec<Capture<&'a [u8]>>,
}

/// A named part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Capture<T> {
    /// The name between the braces.
    pub name: &'static str,
    /// What the line has there.
    pub text: T,
}

/// A line in small letters, without blanks, colons and quotes.
#[derive(Debug)]
struct Folded<'a> {
    line: &'a [u8],
    bytes: Vec<u8>,
    /// For each byte, where it stands in `line`.
    at: Vec<u32>,
}

impl<'a> Folded<'a> {
    fn new(line: &'a [u8]) -> Self {
        let (mut bytes, mut at) = (Vec::with_capacity(line.len()), Vec::with_capacity(line.len()));
        let mut from = 0;
        while let Some(&byte) = line.get(from) {
            let skip = ignored(line, from);
            if skip > 0 {
                from += skip;
                continue;
            }
            bytes.push(byte.to_ascii_lowercase());
            at.push(u32::try_from(from).unwrap_or(u32::MAX));
            from += 1;
        }
        Self { line, bytes, at }
    }

    /// Where byte `n` stands in the line; the line's end for one beyond the last.
    fn start(&self, n: usize) -> usize {
        self.at.get(n).map_or(self.line.len(), |&it| it as usize)
    }

    /// What stands between the end of a fixed text and the begin of the next one, without what surrounds it.
    fn between(&self, from: usize, to: usize, before: &str, after: &str) -> &'a [u8] {
        let start = from.checked_sub(1).map_or(0, |last| self.start(last) + 1);
        let text = self.line.get(start..self.start(to).max(start)).unwrap_or_default();
        let (before, after) = (before.as_bytes(), after.as_bytes());
        let mut text = text.trim_ascii();
        // A colon and a quote that the template has beside the name do not belong to it.
        let tail = before.trim_ascii_end();
        let tail = tail.get(tail.len().saturating_sub(2)..).unwrap_or_default();
        let front = after.get(..after.len().min(2)).unwrap_or_default();
        if tail.contains(&b':') {
            text = text.strip_prefix(b":").unwrap_or(text).trim_ascii_start();
        }
        if tail.iter().copied().any(is_quote) {
            text = without_quote(text);
        }
        if front.contains(&b':') {
            text = text.strip_suffix(b":").unwrap_or(text).trim_ascii_end();
        }
        if front.iter().copied().any(is_quote) {
            let quote = QUOTES.iter().find(|it| text.ends_with(it.as_bytes()));
            text = quote.and_then(|it| text.strip_suffix(it.as_bytes())).unwrap_or(text);
        }
        text.trim_ascii()
    }
}

static QUOTES: &[&str] = &["'", "\"", "`", "\u{2018}", "\u{2019}", "\u{201c}", "\u{201d}"];

fn without_quote(text: &[u8]) -> &[u8] {
    QUOTES.iter().find_map(|it| text.strip_prefix(it.as_bytes())).unwrap_or(text)
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"' | b'`')
}

/// How many bytes from `at` on do not count: blanks, colons, quotes, and the quotes of word processors.
fn ignored(line: &[u8], at: usize) -> usize {
    match line.get(at) {
        Some(b' ' | b'\t' | b':' | b'\'' | b'"' | b'`' | 0x91..=0x94) => {
            // 0x91 to 0x94 inside a UTF-8 character are part of it.
            let inside = matches!(line.get(at), Some(0x91..=0x94))
                && at.checked_sub(1).and_then(|it| line.get(it)).is_some_and(|it| *it >= 0x80);
            usize::from(!inside)
        }
        Some(0xE2) => match line.get(at + 1..at + 3) {
            Some([0x80, 0x98..=0x9F]) => 3,
            _ => 0,
        },
        _ => 0,
    }
}

/// What of a text is compared.
pub(crate) fn fold(text: &[u8]) -> Box<[u8]> {
    Folded::new(text).bytes.into()
}

fn fold_text(text: &str) -> Box<[u8]> {
    fold(text.as_bytes())
}

fn letters(text: &[u8]) -> usize {
    text.iter().filter(|it| it.is_ascii_alphanumeric()).count()
}

impl Book {
    pub(super) fn new(signals: impl Iterator<Item = &'static Signal>) -> Self {
        let mut book = Self::default();
        for signal in signals {
            for template in signal.texts() {
                let parts = parts(template);
                let texts = parts.iter().filter_map(Part::text);
                let Some(key) = longest_text(template).map(fold_text).filter(|it| !it.is_empty()) else {
                    continue;
                };
                let mut folded: Vec<_> = texts.map(fold_text).collect();
                if folded.len() > 1 && folded.last().is_some_and(|it| it.is_empty()) {
                    folded.pop();
                }
                let letters = folded.iter().map(|it| letters(it)).sum();
                if letters < LOOSE_LETTERS || folded.iter().any(|it| it.is_empty()) {
                    folded.clear();
                }
                let number = u32::try_from(book.entries.len()).unwrap_or(u32::MAX);
                if let Some(begin) = key.first_chunk::<LONG>() {
                    book.long.entry(*begin).or_default().push(number);
                } else if let Some(begin) = key.first_chunk::<SHORT>() {
                    book.short.entry(*begin).or_default().push(number);
                }
                book.entries.push(Entry { signal, key, parts, folded, letters });
            }
        }
        book
    }

    /// The signals in `line`, each once, in the order of the book.
    pub fn find<'a>(&self, line: &'a [u8]) -> Vec<Found<'a>> {
        let mut found: Vec<(usize, Found<'a>)> = Vec::new();
        let folded = Folded::new(line);
        // A line may repeat itself; every template is tried once.
        let mut tried: Vec<usize> = Vec::new();
        for number in self.candidates(&folded.bytes) {
            let Some(entry) = self.entries.get(number) else { continue };
            if tried.contains(&number) || found.iter().any(|it| it.1.signal == entry.signal) {
                continue;
            }
            tried.push(number);
            if let Some(captures) = entry.matches(line).or_else(|| entry.matches_folded(&folded)) {
                found.push((number, Found { signal: entry.signal, captures }));
            }
        }
        found.sort_by_key(|it| it.0);
        found.into_iter().map(|it| it.1).collect()
    }

    /// The templates whose key stands in a folded line.
    fn candidates<'b>(&'b self, line: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
        (0..line.len()).flat_map(move |at| {
            let rest = line.get(at..).unwrap_or_default();
            let long = rest.first_chunk::<LONG>().and_then(|it| self.long.get(it));
            let short = rest.first_chunk::<SHORT>().and_then(|it| self.short.get(it));
            let numbers = long.into_iter().chain(short).flatten().map(|it| *it as usize);
            numbers.filter(move |it| self.entries.get(*it).is_some_and(|it| rest.starts_with(&it.key)))
        })
    }

    /// The one signal whose text `line` has a part of, if it was cut at its end (`at_end`) or at its beginning.
    ///
    /// Every template is tried: this is for the few lines that nothing else explains.
    pub fn find_cut<'a>(&self, line: &'a [u8], at_end: bool) -> Option<Found<'a>> {
        let line = line.strip_suffix("…".as_bytes()).unwrap_or(line);
        let line = line.strip_suffix(b"...").unwrap_or(line);
        let folded = Folded::new(line);
        let mut best: Option<(usize, Found<'a>)> = None;
        let mut shared = false;
        // Of two texts with the same beginning, NCCL printed its own.
        let nccl = memmem::find(line, b" NCCL WARN ").is_some();
        for entry in &self.entries {
            let found = if at_end { entry.begins(&folded) } else { entry.ends(&folded) };
            let Some((letters, captures)) = found else { continue };
            let letters = letters * 2 + usize::from(nccl && entry.signal.kind == Kind::NcclLog);
            let known = best.as_ref().map_or(0, |it| it.0);
            if letters > known {
                shared = false;
                best = Some((letters, Found { signal: entry.signal, captures }));
            } else if letters == known && best.as_ref().is_some_and(|it| it.1.signal != entry.signal) {
                shared = true;
            }
        }
        best.filter(|_| !shared).map(|it| it.1)
    }
}

impl Entry {
    /// As [`Entry::matches`], without regard to blanks, colons, quotes and case.
    fn matches_folded<'a>(&self, line: &Folded<'a>) -> Option<Vec<Capture<&'a [u8]>>> {
        let first = self.folded.first()?;
        let mut from = 0;
        let mut attempts = 0..16;
        while attempts.next().is_some()
            && let Some(at) = memmem::find(line.bytes.get(from..)?, first)
        {
            if let Some(captures) = self.folded_rest(line, from + at + first.len()) {
                return Some(captures);
            }
            from += at + 1;
        }
        None
    }

    /// What follows the first fixed text, which ends at `from` of the folded line.
    fn folded_rest<'a>(&self, line: &Folded<'a>, mut from: usize) -> Option<Vec<Capture<&'a [u8]>>> {
        let mut captures = Vec::new();
        let mut texts = self.folded.get(1..)?.iter();
        let mut before = self.parts.first().and_then(Part::text)?;
        let mut parts = self.parts.get(1..)?.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Text(text) => {
                    let folded = texts.next()?;
                    line.bytes.get(from..)?.starts_with(folded).then_some(())?;
                    from += folded.len();
                    before = text;
                }
                Part::Rest(name) => {
                    captures.push(Capture { name, text: line.between(from, line.bytes.len(), before, "") });
                    return Some(captures);
                }
                Part::Name(name) => {
                    let (Some(Part::Text(after)), Some(next)) = (parts.peek(), texts.as_slice().first())
                    else {
                        // The last one: up to the closing quote, or a word.
                        let rest = line.between(from, line.bytes.len(), before, "");
                        let end = if parts.peek().is_some() {
                            (0..rest.len()).find(|&it| {
                                rest.get(it) != Some(&b':')
                                    && rest.get(it) != Some(&b' ')
                                    && ignored(rest, it) > 0
                            })
                        } else {
                            rest.iter().copied().position(is_end_of_word)
                        };
                        captures.push(Capture { name, text: rest.get(..end.unwrap_or(rest.len()))? });
                        return Some(captures);
                    };
                    let end = from + memmem::find(line.bytes.get(from..)?, next)?;
                    captures.push(Capture { name, text: line.between(from, end, before, after) });
                    from = end;
                }
            }
        }
        Some(captures)
    }

    /// The fixed letters of the line's end, if the line ends inside this template.
    fn begins<'a>(&self, line: &Folded<'a>) -> Option<(usize, Vec<Capture<&'a [u8]>>)> {
        let (first, bytes) = (self.folded.first()?, &line.bytes);
        // The line ends inside the first fixed text.
        let Some(start) = memmem::find(bytes, first) else {
            let length =
                (1..first.len()).rev().find(|&it| first.get(..it).is_some_and(|it| bytes.ends_with(it)))?;
            return self.enough(letters(first.get(..length)?)).map(|it| (it, Vec::new()));
        };
        let mut from = start + first.len();
        let mut fixed = letters(first);
        let mut captures = Vec::new();
        let mut before = self.parts.first().and_then(Part::text)?;
        let mut texts = self.folded.get(1..)?.iter();
        let mut name: Option<&'static str> = None;
        for part in self.parts.get(1..)? {
            match part {
                Part::Name(it) | Part::Rest(it) => name = Some(it),
                Part::Text(text) => {
                    // Without the last one, which is quotes alone, the template is whole.
                    let folded = texts.next()?;
                    let rest = bytes.get(from..)?;
                    let Some(at) = memmem::find(rest, folded) else {
                        // The line ends in this text, or in the named part before it.
                        let length = (1..folded.len())
                            .rev()
                            .find(|&it| folded.get(..it).is_some_and(|it| rest.ends_with(it)))
                            .unwrap_or(0);
                        if name.is_none() && length < rest.len() {
                            return None;
                        }
                        if let Some(name) = name {
                            let text = line.between(from, bytes.len() - length, before, text);
                            // Another sentence with the same beginning would go on in words.
                            let in_words = text.iter().any(u8::is_ascii_whitespace);
                            if length == 0 && in_words && errors_with(text).next().is_none() {
                                return None;
                            }
                            captures.push(Capture { name, text });
                        }
                        fixed += letters(folded.get(..length)?);
                        return self.enough(fixed).map(|it| (it, captures));
                    };
                    match name.take() {
                        Some(name) => {
                            let text = line.between(from, from + at, before, text);
                            captures.push(Capture { name, text });
                        }
                        None if at > 0 => return None,
                        None => {}
                    }
                    fixed += letters(folded);
                    from += at + folded.len();
                    before = text;
                }
            }
        }
        None
    }

    /// The fixed letters of the whole line, if it begins inside the first fixed text of this template.
    fn ends<'a>(&self, line: &Folded<'a>) -> Option<(usize, Vec<Capture<&'a [u8]>>)> {
        let first = self.folded.first()?;
        // At most a third of it is missing: less than the rest could be the end of many a sentence.
        let starts = 1..first.len() / 2;
        let left = starts.filter_map(|it| first.get(it..)).find(|it| line.bytes.starts_with(it))?;
        let kept = letters(left);
        (kept * 3 >= letters(first) * 2).then_some(())?;
        let captures = self.folded_rest(line, left.len())?;
        self.enough(self.letters - letters(first) + kept).map(|it| (it, captures))
    }

    fn enough(&self, fixed: usize) -> Option<usize> {
        (fixed >= CUT_LETTERS && fixed * 3 >= self.letters).then_some(fixed)
    }

    fn matches<'a>(&self, line: &'a [u8]) -> Option<Vec<Capture<&'a [u8]>>> {
        let Some(Part::Text(first)) = self.parts.first() else { return None };
        let mut from = 0;
        // The first text may occur several times; the rest decides. A line that repeats it more often is not a message.
        let mut attempts = 0..16;
        while attempts.next().is_some()
            && let Some(at) = memmem::find(line.get(from..)?, first.as_bytes())
        {
            let start = from + at + first.len();
            if let Some(captures) = self.rest_matches(line.get(start..)?) {
                return Some(captures);
            }
            from += at + 1;
        }
        None
    }

    fn rest_matches<'a>(&self, mut rest: &'a [u8]) -> Option<Vec<Capture<&'a [u8]>>> {
        let mut captures = Vec::new();
        let mut parts = self.parts.get(1..)?.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_bytes())?,
                Part::Rest(name) => {
                    captures.push(Capture { name, text: rest.trim_ascii() });
                    return Some(captures);
                }
                Part::Name(name) => {
                    let end = match parts.peek() {
                        Some(Part::Text(next)) => memmem::find(rest, next.as_bytes())?,
                        _ => rest.iter().copied().position(is_end_of_word).unwrap_or(rest.len()),
                    };
                    captures.push(Capture { name, text: rest.get(..end)?.trim_ascii() });
                    rest = rest.get(end..)?;
                }
            }
        }
        Some(captures)
    }
}

fn is_end_of_word(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b',' | b'\'' | b'"')
}

impl Part {
    fn text(&self) -> Option<&'static str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Name(_) | Self::Rest(_) => None,
        }
    }
}

/// The longest fixed text of a template: it decides whether the template is tried at all.
pub(super) fn longest_text(template: &'static str) -> Option<&'static str> {
    parts(template).iter().filter_map(Part::text).max_by_key(|it| fold_text(it).len())
}

fn parts(template: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((text, more)) = rest.split_once('{') {
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        let Some((name, more)) = more.split_once('}') else {
            rest = more;
            break;
        };
        parts.push(match name.strip_suffix("...") {
            Some(name) => Part::Rest(name),
            None => Part::Name(name),
        });
        rest = more;
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::{Book, Signal};
    use crate::source::Kind;

    static SIGNAL: Signal = Signal {
        name: "test",
        templates: &[
            "rank {a} and rank {b} on {bus}",
            "size {n...}",
            "Interface '{a}' of the node : address is '{b}'",
        ],
        source: "here",
        meaning: "nothing",
        kind: Kind::Notes,
    };

    fn captures(line: &str) -> Vec<(&'static str, String)> {
        let book = Book::new([&SIGNAL].into_iter());
        let found = book.find(line.as_bytes());
        found
            .iter()
            .flat_map(|it| &it.captures)
            .map(|it| (it.name, String::from_utf8_lossy(it.text).into()))
            .collect()
    }

    #[test]
    fn takes_the_named_parts() {
        let want = vec![("a", "3".to_owned()), ("b", "0".into()), ("bus", "f000".into())];
        assert_eq!(captures("x rank 3 and rank 0 on f000, and more"), want);
        assert_eq!(captures("size 12 bytes\n"), [("n", "12 bytes".to_owned())]);
    }

    #[test]
    fn the_first_text_may_repeat() {
        assert_eq!(captures("rank one; rank 1 and rank 2 on 3").len(), 3);
    }

    #[test]
    fn blanks_colons_quotes_and_case_do_not_matter() {
        let want = |b: &str| vec![("a", "lo".to_owned()), ("b", b.to_owned())];
        for line in [
            "Interface 'lo' of the node : address is 'f000'",
            "interface lo of the node: address is f000",
            "INTERFACE \u{2018}lo\u{2019} of  the  node:address is \"f000\"",
        ] {
            assert_eq!(captures(line), want("f000"), "{line}");
        }
        assert_eq!(captures("interface lo of the node: address is ::1"), want("::1"));
    }

    #[test]
    fn a_cut_line_matches_by_what_is_left() {
        let book = Book::new([&SIGNAL].into_iter());
        let find = |line: &str, at_end| {
            let found = book.find_cut(line.as_bytes(), at_end)?;
            Some(
                found
                    .captures
                    .iter()
                    .map(|it| String::from_utf8_lossy(it.text).into_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(find("x Interface 'lo' of the no", true), Some(vec!["lo".to_owned()]));
        assert_eq!(find("x Interface 'lo' of the no…", true), Some(vec!["lo".to_owned()]));
        assert_eq!(find("x Interf", true), None);
        assert_eq!(find("x Interface 'lo' on the no", true), None);
        assert_eq!(find("erface 'lo' of the node : address is 'f000'", false).map(|it| it.len()), Some(2));
        assert_eq!(find("e 'lo' of the node : address is 'f000'", false), None);
    }

    #[test]
    fn every_key_is_long_enough() {
        for text in crate::signals::fixed_texts() {
            assert!(super::fold_text(text).len() >= super::SHORT, "{text}");
        }
    }

    #[test]
    fn nothing_else_matches() {
        assert!(captures("rank 3 or rank 0").is_empty());
    }
}
