//! The entries whose texts are most like a text that none of them printed.

use std::collections::HashSet;

use crate::entry::{Entry, Part, all};

/// At most this many entries are given.
const MOST: usize = 5;

/// The entries nearest to `text`, nearest first, at most one for each wording: those that have the whole text first, then those that
/// share at least half of its words.
pub fn nearest(text: &str) -> Vec<&'static Entry> {
    let asked = words(text);
    if asked.is_empty() {
        return Vec::new();
    }
    let phrase = asked.join(" ");
    let set: HashSet<&str> = asked.iter().map(String::as_str).collect();
    let mut scored: Vec<(usize, &'static Entry)> = all()
        .filter_map(|entry| {
            let own = words(&fixed(entry));
            if phrase.len() >= 8 && own.join(" ").contains(&phrase) {
                return Some((1_000 + 1_000 / (1 + own.len()), entry));
            }
            let unique: HashSet<&str> = own.iter().map(String::as_str).collect();
            let common = unique.intersection(&set).count();
            // Shared words among all words of both texts, in percent.
            let share = common * 100 / (unique.len() + set.len() - common).max(1);
            (common >= 3 && share >= 40).then_some((share, entry))
        })
        .collect();
    // Later releases first among equals.
    scored.sort_by_key(|it| std::cmp::Reverse((it.0, it.1.last)));
    let mut seen = HashSet::new();
    scored.into_iter().map(|it| it.1).filter(|it| seen.insert(it.text)).take(MOST).collect()
}

fn fixed(entry: &Entry) -> String {
    let texts = entry.parts().map(|it| match it {
        Part::Text(text) => text,
        Part::Hole(_) => " ",
    });
    texts.collect()
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_' && it != '\'');
    words
        .filter(|it| it.len() > 1 && !it.bytes().all(|it| it.is_ascii_digit()))
        .map(str::to_ascii_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_fragment_leads_to_its_messages() {
        let found = nearest("no algorithm/protocol available");
        assert!(found.first().is_some_and(|it| it.text.contains("no algorithm/protocol")), "{found:?}");
        let found = nearest("Could not receive the type from localRank 3, res=6, and closed");
        assert!(found.first().is_some_and(|it| it.text.contains("localRank")), "{found:?}");
        assert!(nearest("the moon").is_empty() && nearest("").is_empty());
    }
}
