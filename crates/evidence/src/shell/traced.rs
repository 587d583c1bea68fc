//! A text that remembers on which lines its parts are written.

/// A text with the place of each part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Traced {
    /// The text.
    pub text: String,
    /// Where a part begins, its line, and the number of its file plus one.
    marks: Vec<(usize, usize, usize)>,
}

impl Traced {
    /// Adds a part. A file of 0 is that of the command.
    pub(super) fn push(&mut self, text: &str, line: usize, file: usize) {
        let last = self.marks.last().map(|it| (it.1, it.2));
        if last != Some((line, file)) {
            self.marks.push((self.text.len(), line, file));
        }
        self.text.push_str(text);
    }

    /// Adds another text with its places.
    pub(super) fn append(&mut self, other: &Self) {
        let base = self.text.len();
        self.marks.extend(other.marks.iter().map(|(at, line, file)| (base + at, *line, *file)));
        self.text.push_str(&other.text);
    }

    /// A part, with its places.
    pub(super) fn part(&self, begin: usize, end: usize) -> Self {
        let (line, file) = self.place(begin);
        let mut marks = vec![(0, line, file)];
        let inside = self.marks.iter().filter(|it| it.0 > begin && it.0 < end);
        marks.extend(inside.map(|(at, line, file)| (at - begin, *line, *file)));
        Self { text: self.text.get(begin..end).unwrap_or_default().to_owned(), marks }
    }

    /// The line of a byte, and the number of its file plus one; zeros where they are not known.
    pub(super) fn place(&self, at: usize) -> (usize, usize) {
        let after = self.marks.partition_point(|it| it.0 <= at);
        after.checked_sub(1).and_then(|it| self.marks.get(it)).map_or((0, 0), |it| (it.1, it.2))
    }
}
