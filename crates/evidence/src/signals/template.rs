//! Finding templates in lines.

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem;

use super::Signal;

/// A set of signals to search for in one pass over a line.
#[derive(Debug)]
pub struct Book {
    search: Option<AhoCorasick>,
    /// For each pattern of the search, the template whose longest fixed text it is.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    signal: &'static Signal,
    parts: Vec<Part>,
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

impl Book {
    pub(super) fn new(signals: impl Iterator<Item = &'static Signal>) -> Self {
        let mut entries = Vec::new();
        let mut keys = Vec::new();
        for signal in signals {
            for template in signal.texts() {
                let parts = parts(template);
                // The longest fixed text decides whether the template is tried at all.
                let Some(key) = parts.iter().filter_map(Part::text).max_by_key(|it| it.len()) else {
                    continue;
                };
                keys.push(key);
                entries.push(Entry { signal, parts });
            }
        }
        // An empty set, or one too large to build, finds nothing; a test proves that ours is built.
        let search = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&keys).ok();
        Self { search, entries }
    }

    /// The signals in `line`, each once, in the order of the book.
    pub fn find<'a>(&self, line: &'a [u8]) -> Vec<Found<'a>> {
        let mut found: Vec<(usize, Found<'a>)> = Vec::new();
        let Some(search) = &self.search else { return Vec::new() };
        // A line may repeat itself; every template is tried once.
        let mut tried: Vec<usize> = Vec::new();
        for hit in search.find_overlapping_iter(line) {
            let number = hit.pattern().as_usize();
            let Some(entry) = self.entries.get(number) else { continue };
            if tried.contains(&number) || found.iter().any(|it| it.1.signal == entry.signal) {
                continue;
            }
            tried.push(number);
            if let Some(captures) = entry.matches(line) {
                found.push((number, Found { signal: entry.signal, captures }));
            }
        }
        found.sort_by_key(|it| it.0);
        found.into_iter().map(|it| it.1).collect()
    }
}

impl Entry {
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
                        _ => rest
                            .iter()
                            .position(|it| it.is_ascii_whitespace() || matches!(it, b',' | b'\'' | b'"'))
                            .unwrap_or(rest.len()),
                    };
                    captures.push(Capture { name, text: rest.get(..end)?.trim_ascii() });
                    rest = rest.get(end..)?;
                }
            }
        }
        Some(captures)
    }
}

impl Part {
    fn text(&self) -> Option<&'static str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Name(_) | Self::Rest(_) => None,
        }
    }
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
        templates: &["rank {a} and rank {b} on {bus}", "size {n...}"],
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
    fn nothing_else_matches() {
        assert!(captures("rank 3 or rank 0").is_empty());
    }
}
