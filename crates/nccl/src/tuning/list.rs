//! `NCCL_ALGO` and `NCCL_PROTO`: `parseList` in `src/graph/tuning.cc`.

use std::fmt;

use super::{TUNED, function_name};
use crate::Settings;

/// A list that NCCL does not accept: it fails to initialise with this warning. Only since 2.24; before, it ignored what it did not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadList {
    /// An unknown algorithm or protocol.
    Element {
        /// The word.
        word: String,
        /// The whole text.
        text: String,
    },
    /// An unknown collective.
    Prefix {
        /// The word.
        word: String,
        /// The whole text.
        text: String,
    },
    /// A list after the first that names no collective.
    NoPrefix {
        /// The whole text.
        text: String,
    },
}

impl fmt::Display for BadList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Element { word, text } => {
                write!(f, "Unrecognized element token \"{word}\" when parsing \"{text}\"")
            }
            Self::Prefix { word, text } => {
                write!(f, "Unrecognized prefix token \"{word}\" when parsing \"{text}\"")
            }
            Self::NoPrefix { text } => {
                write!(f, "All entries except the first must have a prefix: \"{text}\"")
            }
        }
    }
}

impl std::error::Error for BadList {}

/// What a list says of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing is set.
    Default,
    Yes,
    No,
}

/// By collective and element.
pub(super) type Wishes<const N: usize> = [[Wish; N]; 5];

/// Reads a variable. `names` are the elements of the release.
pub(super) fn wishes<const N: usize>(
    settings: &Settings,
    variable: &str,
    names: &[&str],
) -> Result<Wishes<N>, BadList> {
    let mut all = [[Wish::Default; N]; 5];
    let Some(text) = settings.text(variable) else { return Ok(all) };
    if !settings.since(2, 24, 0) {
        let words = Words::new(text);
        for row in &mut all {
            words.apply(row, names);
        }
        return Ok(all);
    }
    let parts = text.split(';').filter(|it| !it.is_empty());
    for (number, part) in parts.enumerate() {
        let mut pieces = part.split(':').filter(|it| !it.is_empty());
        let (Some(first), second) = (pieces.next(), pieces.next()) else { continue };
        let (prefix, list) = match second {
            Some(list) => (Some(first), list),
            // NCCL compares addresses: only a list at the very beginning of the text may have no prefix.
            None if number > 0 || text.starts_with(';') => {
                return Err(BadList::NoPrefix { text: text.to_owned() });
            }
            None => (None, first),
        };
        let is_meant =
            |collective| prefix.is_none_or(|it| it.eq_ignore_ascii_case(function_name(collective)));
        if !TUNED.into_iter().any(is_meant) {
            let word = prefix.unwrap_or_default().to_owned();
            return Err(BadList::Prefix { word, text: text.to_owned() });
        }
        let words = Words::new(list);
        if let Some(word) = words.unknown(names) {
            return Err(BadList::Element { word: word.to_owned(), text: text.to_owned() });
        }
        for (row, collective) in all.iter_mut().zip(TUNED) {
            if is_meant(collective) {
                words.apply(row, names);
            }
        }
    }
    Ok(all)
}

/// `ring,tree` or `^LL128`.
struct Words<'a> {
    except: bool,
    words: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        let (except, text) = text.strip_prefix('^').map_or((false, text), |it| (true, it));
        Self { except, words: text.split(',').filter(|it| !it.is_empty()).collect() }
    }

    fn unknown(&self, names: &[&str]) -> Option<&'a str> {
        self.words.iter().copied().find(|word| !names.iter().any(|it| it.eq_ignore_ascii_case(word)))
    }

    fn apply<const N: usize>(&self, row: &mut [Wish; N], names: &[&str]) {
        for (wish, name) in row.iter_mut().zip(names) {
            let is_listed = self.words.iter().any(|it| it.eq_ignore_ascii_case(name));
            *wish = if is_listed == self.except { Wish::No } else { Wish::Yes };
        }
    }
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::{BadList, Wish, wishes};
    use crate::Settings;

    const NAMES: [&str; 3] = ["LL", "LL128", "Simple"];

    fn read(version: Version, text: &str) -> Result<[[Wish; 3]; 5], BadList> {
        wishes(&Settings::new(version).with("NCCL_PROTO", text), "NCCL_PROTO", &NAMES)
    }

    #[test]
    fn lists_of_all_collectives() {
        for version in [Version::new(2, 18, 6), Version::new(2, 28, 9)] {
            assert_eq!(read(version, "ll,Simple"), Ok([[Wish::Yes, Wish::No, Wish::Yes]; 5]));
            assert_eq!(read(version, "^LL128"), Ok([[Wish::Yes, Wish::No, Wish::Yes]; 5]));
        }
    }

    #[test]
    fn lists_by_collective_since_2_24() {
        let new = Version::new(2, 24, 3);
        let all = read(new, "^LL128;allreduce:LL128").expect("a list");
        assert_eq!(all[0], [Wish::Yes, Wish::No, Wish::Yes]);
        assert_eq!(all[4], [Wish::No, Wish::Yes, Wish::No]);
        assert_eq!(read(new, "AllReduce:Simple").expect("a list")[3], [Wish::Default; 3]);
        assert!(matches!(read(new, "fast"), Err(BadList::Element { .. })));
        assert!(matches!(read(new, "everything:LL"), Err(BadList::Prefix { .. })));
        assert!(matches!(read(new, "LL;Simple"), Err(BadList::NoPrefix { .. })));
    }

    #[test]
    fn unknown_words_are_ignored_before_2_24() {
        let old = Version::new(2, 21, 5);
        assert_eq!(read(old, "fast"), Ok([[Wish::No; 3]; 5]));
        assert_eq!(read(old, "fast,LL128"), Ok([[Wish::No, Wish::Yes, Wish::No]; 5]));
    }
}
