//! The terms of the field, explained for newcomers.
//!
//! The texts are in `data/glossary.md`: a heading `## term (also: alias,
//! alias)` and one paragraph. Claims about behaviour carry their source in
//! brackets.

use std::sync::OnceLock;

/// A term and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The term, as it is usually written.
    pub name: &'static str,
    /// Synonyms, and related terms explained with it.
    pub aliases: Vec<&'static str>,
    /// The explanation, one paragraph without line breaks.
    pub text: &'static str,
}

/// Every term, in alphabetical order.
pub fn all() -> &'static [Term] {
    static ALL: OnceLock<Vec<Term>> = OnceLock::new();
    ALL.get_or_init(|| read(include_str!("../data/glossary.md")))
}

/// The term with this name or alias, ignoring case.
pub fn find(word: &str) -> Option<&'static Term> {
    let word = word.trim();
    let named = all().iter().find(|it| it.name.eq_ignore_ascii_case(word));
    named.or_else(|| all().iter().find(|it| it.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(word))))
}

fn read(text: &'static str) -> Vec<Term> {
    // The text before the first heading is the title of the page.
    text.split("\n## ").skip(1).map(read_term).collect()
}

fn read_term(section: &'static str) -> Term {
    let (heading, text) = section.split_once('\n').unwrap_or((section, ""));
    let heading = heading.trim_end();
    let (name, aliases) = match heading.strip_suffix(')').and_then(|it| it.split_once(" (also: ")) {
        Some((name, aliases)) => (name, aliases.split(", ").collect()),
        None => (heading, Vec::new()),
    };
    Term { name, aliases, text: text.trim() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{all, find, read};

    #[test]
    fn terms_are_sorted() {
        assert!(all().len() >= 70, "{}", all().len());
        for pair in all().windows(2) {
            let (a, b) = (pair[0].name.to_ascii_lowercase(), pair[1].name.to_ascii_lowercase());
            assert!(a < b, "{b} must come before {a}");
        }
    }

    #[test]
    fn every_word_leads_to_one_term() {
        let mut seen = BTreeMap::new();
        for term in all() {
            for word in term.aliases.iter().chain([&term.name]) {
                assert!(!word.is_empty() && word.trim() == *word, "{}", term.name);
                let before = seen.insert(word.to_ascii_lowercase(), term.name);
                assert_eq!(before, None, "{word} stands under two terms, also under {}", term.name);
                assert_eq!(find(word), Some(term));
            }
        }
    }

    #[test]
    fn every_text_is_one_short_paragraph() {
        for term in all() {
            let (name, text) = (term.name, term.text);
            assert!(text.len() > 40, "{name} is not explained");
            assert!(text.len() < 900, "{name} is explained at too great length");
            assert!(!text.contains('\n'), "{name} has more than one paragraph");
            assert!(text.ends_with(['.', ']']), "{name} does not end");
            assert_eq!(text.matches('[').count(), text.matches(']').count(), "{name}: brackets");
        }
    }

    #[test]
    fn finds_words_in_any_case() {
        assert_eq!(find("gdrdma").unwrap().name, "GPUDirect RDMA");
        assert_eq!(find(" NVSwitch ").unwrap().name, "NVSwitch");
        assert!(find("").is_none());
        assert!(find("no such word").is_none());
    }

    #[test]
    fn reads_headings() {
        let terms = read("# Title\n\n## one (also: first, the first)\n\nText.\n\n## two (2)\n\nMore.\n");
        assert_eq!(terms.len(), 2);
        assert_eq!((terms[0].name, terms[0].text), ("one", "Text."));
        assert_eq!(terms[0].aliases, ["first", "the first"]);
        assert_eq!((terms[1].name, terms[1].aliases.len()), ("two (2)", 0));
        assert!(read("nothing").is_empty());
    }
}
