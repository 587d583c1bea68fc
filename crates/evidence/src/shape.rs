//! Lines that differ in their numbers alone.
//!
//! Most of a long log is steps, timings and metrics: the same text with other numbers. Whether such a line says anything
//! to keep does not depend on the numbers, so it is decided once for each shape.

use std::hash::BuildHasher as _;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use rustc_hash::FxBuildHasher;

use crate::{ending, signals};

/// How many shapes are remembered, as a power of two.
const BITS: u32 = 13;
const PROGRESS: u64 = 1;
const TRAINING: u64 = 2;
const LISTED: u64 = 4;
const FIELDS: u64 = PROGRESS | TRAINING | LISTED;
/// Longer lines are read every time.
const LONGEST: usize = 2048;

/// A line with each run of digits as one digit, as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(u64);

/// What all lines of a shape say, and nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repeated {
    /// The job is at work.
    pub(crate) progress: bool,
    /// A trainer's numbers.
    pub(crate) training: bool,
    /// The catalogue of messages has it.
    pub(crate) listed: bool,
}

/// The shapes of lines that say nothing else.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// Hashes; the lowest bits are the fields of [`Repeated`].
    known: Vec<u64>,
    buffer: Vec<u8>,
}

impl Shapes {
    /// The shape of a line; `None` for a line that is not worth it.
    pub(crate) fn of(&mut self, line: &[u8]) -> Option<Shape> {
        if line.is_empty() || line.len() > LONGEST {
            return None;
        }
        Some(Shape(FxBuildHasher.hash_one(without_digits(line, &mut self.buffer)) | FIELDS))
    }

    /// What lines of this shape say; `None` if they have to be read.
    pub(crate) fn recall(&self, shape: Shape) -> Option<Repeated> {
        let known = *self.known.get(place(shape)?)?;
        let has = |field: u64| known & field != 0;
        let it = Repeated { progress: has(PROGRESS), training: has(TRAINING), listed: has(LISTED) };
        (known | FIELDS == shape.0).then_some(it)
    }

    /// Remembers what a line says, unless one with other numbers may say something else.
    pub(crate) fn remember(&mut self, shape: Shape, line: &[u8], it: Repeated) {
        if numbers_matter(line) {
            return;
        }
        self.known.resize(1 << BITS, 0);
        if let Some(known) = place(shape).and_then(|it| self.known.get_mut(it)) {
            let field = |is: bool, field: u64| if is { field } else { 0 };
            let fields =
                field(it.progress, PROGRESS) | field(it.training, TRAINING) | field(it.listed, LISTED);
            *known = shape.0 & !FIELDS | fields;
        }
    }
}

fn place(shape: Shape) -> Option<usize> {
    usize::try_from(shape.0 >> (64 - BITS)).ok()
}

/// The line with each run of digits as `0`.
fn without_digits<'a>(line: &[u8], buffer: &'a mut Vec<u8>) -> &'a [u8] {
    buffer.resize(line.len(), 0);
    let (mut length, mut inside) = (0, false);
    for &byte in line {
        let digit = byte.is_ascii_digit();
        if let Some(to) = buffer.get_mut(length) {
            *to = if digit { b'0' } else { byte };
        }
        // No branch: digits come at random.
        length += usize::from(!(digit && inside));
        inside = digit;
    }
    buffer.get(..length).unwrap_or_default()
}

/// Whether the same line with other numbers could hold a text that is looked for.
fn numbers_matter(line: &[u8]) -> bool {
    static TEXTS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let texts = signals::fixed_texts().chain(ending::fixed_texts().filter(|it| has_digits(it)));
        AhoCorasick::new(texts.map(|it| bare(it.as_bytes())).filter(|it| letters(it) > 0)).ok()
    });
    texts.as_ref().is_none_or(|it| it.is_match(&bare(line)))
}

/// Whether a line is so much of numbers that they are what it says.
pub(crate) fn is_table(line: &[u8]) -> bool {
    letters(line) * 5 < line.len()
}

fn letters(text: &[u8]) -> usize {
    text.iter().filter(|it| it.is_ascii_alphabetic()).count()
}

fn has_digits(text: &str) -> bool {
    text.bytes().any(|it| it.is_ascii_digit())
}

/// As signals compare texts, each run of digits as one.
fn bare(text: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    without_digits(&signals::fold(text), &mut buffer).to_vec()
}

#[cfg(test)]
mod tests {
    use super::{Repeated, Shapes, has_digits, is_table, letters, numbers_matter};
    use crate::signals::fixed_texts;

    #[test]
    fn lines_with_other_numbers_have_one_shape() {
        let mut shapes = Shapes::default();
        let mut shape = |it: &str| shapes.of(it.as_bytes());
        assert_eq!(shape("step 1 | loss 2.84"), shape("step 1412 | loss 12.1"));
        assert_ne!(shape("step 1 | loss 2.84"), shape("step 1 | loss nan"));
        assert_ne!(shape("step 1"), shape("step "));
        assert_eq!(shape(""), None);
    }

    #[test]
    fn a_shape_is_remembered() {
        let mut shapes = Shapes::default();
        let shape = shapes.of(b"step 1").unwrap();
        assert_eq!(shapes.recall(shape), None);
        for (progress, training, listed) in [(true, false, true), (false, true, false), (false, false, true)]
        {
            shapes.remember(shape, b"step 1", Repeated { progress, training, listed });
            let other = shapes.of(b"step 20").unwrap();
            assert_eq!(shapes.recall(other), Some(Repeated { progress, training, listed }));
        }
    }

    /// A text with a number in it is found in a line whose shape was seen with another number.
    #[test]
    fn lines_that_are_looked_for_are_not_remembered() {
        let texts: Vec<_> =
            fixed_texts().chain(crate::ending::fixed_texts()).filter(|it| has_digits(it)).collect();
        assert!(!texts.is_empty());
        for text in texts.into_iter().filter(|it| letters(it.as_bytes()) > 0) {
            let other = text.replace(|it: char| it.is_ascii_digit(), "7");
            assert!(numbers_matter(format!("a {other} b").as_bytes()), "{text}");
        }
        assert!(is_table(b"172.17.0.0      0.0.0.0         255.255.0.0     U     0      0        0 docker0"));
        assert!(!numbers_matter(
            b"step 12 | loss 2.84 | grad_norm 0.9 | lr 3.0e-04 | 15.3k tok/s | mem 71.2 GB"
        ));
    }
}
