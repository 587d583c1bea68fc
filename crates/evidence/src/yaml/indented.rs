//! Lines of brackets and quotes with too little indentation.
//!
//! YAML requires them deeper than the key they belong to, and the parser rejects anything else. Kubernetes does not care, and a `]` below its key
//! is common. Such lines are moved right, where blanks mean nothing, and positions are given in the original text.

use saphyr_parser::ScanError;

/// The deepest indentation that is repaired.
const PUSH: usize = 256;
/// The most bytes that are read again for it.
const MOST_WORK: usize = 16 << 20;

/// A text whose lines may have been pushed right.
#[derive(Debug)]
pub(super) struct Indented {
    /// The text as it can be read.
    pub(super) text: String,
    /// Where lines that were pushed begin in it, in order.
    pushed: Vec<usize>,
    work: usize,
}

impl Indented {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), pushed: Vec::new(), work: 0 }
    }

    /// Pushes the lines that an error is about. False where that is not the trouble, was tried, or costs too much.
    pub(super) fn cure(&mut self, error: &ScanError) -> bool {
        self.work = self.work.saturating_add(self.text.len());
        if self.work > MOST_WORK {
            return false;
        }
        let at = self.byte(error.marker().index());
        match error.info() {
            "invalid indentation" | "invalid indentation in flow construct" => {
                let line = self.text.get(..at).and_then(|it| it.rfind(['\n', '\r'])).map_or(0, |it| it + 1);
                self.push(&[line])
            }
            "invalid indentation in quoted scalar" => {
                let lines = quoted_lines(self.text.get(at..).unwrap_or_default());
                self.push(&lines.iter().map(|it| at + it).collect::<Vec<_>>())
            }
            _ => false,
        }
    }

    fn byte(&self, character: usize) -> usize {
        if self.text.is_ascii() {
            return character.min(self.text.len());
        }
        self.text.char_indices().nth(character).map_or(self.text.len(), |it| it.0)
    }

    /// Pushes lines, given by their beginnings in order.
    fn push(&mut self, lines: &[usize]) -> bool {
        let new: Vec<usize> =
            lines.iter().copied().filter(|it| self.pushed.binary_search(it).is_err()).collect();
        self.work = self.work.saturating_add(new.len().saturating_mul(PUSH));
        if new.is_empty() || self.work > MOST_WORK {
            return false;
        }
        let mut text = String::with_capacity(self.text.len() + new.len() * PUSH);
        let mut from = 0;
        for line in &new {
            text.push_str(self.text.get(from..*line).unwrap_or_default());
            text.extend(std::iter::repeat_n(' ', PUSH));
            from = *line;
        }
        text.push_str(self.text.get(from..).unwrap_or_default());
        let moved = |it: usize| it + PUSH * new.partition_point(|line| *line < it);
        let mut pushed: Vec<usize> = self.pushed.iter().chain(&new).map(|it| moved(*it)).collect();
        pushed.sort_unstable();
        self.text = text;
        self.pushed = pushed;
        true
    }

    /// A byte of the readable text as one of the text that was given.
    pub(super) fn original(&self, byte: usize) -> usize {
        let before = self.pushed.partition_point(|it| *it < byte);
        let inside = before.checked_sub(1).and_then(|it| self.pushed.get(it)).map_or(PUSH, |it| byte - it);
        byte.saturating_sub(before * PUSH).saturating_add(PUSH.saturating_sub(inside))
    }

    /// A column, from 0, as it was given; with the beginning of its line in the readable text.
    pub(super) fn column(&self, line: usize, column: usize) -> usize {
        if self.pushed.binary_search(&line).is_ok() { column.saturating_sub(PUSH) } else { column }
    }

    /// The position of an error in the original text: line and column from 1.
    pub(super) fn position(&self, error: &ScanError) -> (usize, usize) {
        let marker = error.marker();
        let line = self.byte(marker.index().saturating_sub(marker.col()));
        (marker.line(), self.column(line, marker.col()) + 1)
    }
}

/// The beginnings of the lines after the first of a text in quotes.
fn quoted_lines(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let Some(&quote) = bytes.first() else { return Vec::new() };
    let mut lines = Vec::new();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if quote == b'"' && !matches!(bytes.get(at + 1), Some(b'\n' | b'\r')) => at += 1,
            b'\n' => lines.push(at + 1),
            // Two single quotes are one: the text goes on.
            _ if byte == quote && quote == b'\'' && bytes.get(at + 1) == Some(&quote) => at += 1,
            _ if byte == quote => break,
            _ => {}
        }
        at += 1;
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::yaml::Tree;

    /// The text, the line and the column of a value.
    fn seen<'a>(text: &'a str, tree: &Tree, path: &[&str]) -> (&'a str, usize, usize) {
        let span = &tree.node(tree.at(tree.documents[0], path).expect("is there")).span;
        (&text[span.range.clone()], span.line, span.column)
    }

    #[test]
    fn brackets_may_stand_below_their_key() {
        let text = "spec:\n  ä: [\n    a,\n  ]\n  b: {\n  c: 1,\nd: \"ü\"\n  }\n  e: [f,\n  g]\n  h: last\n";
        let tree = Tree::read(text).expect("as Kubernetes reads it");
        assert_eq!(tree.items(tree.at(tree.documents[0], &["spec", "ä"]).expect("a list")).len(), 1);
        assert_eq!(seen(text, &tree, &["spec", "b", "c"]), ("1", 6, 6));
        assert_eq!(seen(text, &tree, &["spec", "b", "d"]), ("\"ü\"", 7, 4));
        assert_eq!(tree.items(tree.at(tree.documents[0], &["spec", "e"]).expect("a list")).len(), 2);
        assert_eq!(seen(text, &tree, &["spec", "h"]), ("last", 11, 6));
    }

    #[test]
    fn quotes_may_go_on_below_their_key() {
        for (value, read) in [
            ("\"profile \\\n  --delay \\\"1\\\"\n  -o x\"", "profile --delay \"1\" -o x"),
            ("'it''s\n\n  here'", "it's\nhere"),
        ] {
            let text = format!("a:\n  b: {value}\n  c: d\n");
            let tree = Tree::read(&text).expect("as Kubernetes reads it");
            assert_eq!(tree.text(tree.at(tree.documents[0], &["a", "b"]).expect("b")), Some(read));
            assert_eq!(seen(&text, &tree, &["a", "b"]).0, value);
            assert_eq!(seen(&text, &tree, &["a", "c"]).0, "d");
        }
    }

    #[test]
    fn what_is_not_closed_is_still_refused() {
        for (text, line) in [
            ("a:\n  b: [1, 2\n  c: 3\n", 3),
            ("a:\n  b: {c: 1,\n  d:\n  - e\n", 4),
            ("a:\n  b: \"c\n  d: e\n", 2),
        ] {
            let trouble = Tree::read(text).expect_err("is not closed");
            assert!(trouble.line >= line && trouble.column < 20, "{text:?}: {trouble:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_it() {
        let lines = "x,\n".repeat(100_000);
        for text in [format!("a:\n  b: [\n{lines}]\n"), format!("a:\n  b: '\n{lines}'\n")] {
            assert!(Tree::read(&text).is_err());
        }
    }
}
