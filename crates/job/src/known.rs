//! Values and where they come from.

use evidence::Quote;
use evidence::yaml::Span;

/// A value and its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Known<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: Source,
}

impl<T> Known<T> {
    /// A value of this source.
    pub fn new(value: T, source: Source) -> Self {
        Self { value, source }
    }

    /// Another value that follows from this one, with the same source.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        Known { value: change(self.value), source: self.source }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Source {
    /// A line of a log or of a table.
    Line(Quote),
    /// A part of a submitted file, by the file's position among those given.
    Span {
        /// The file.
        file: usize,
        /// The part.
        span: Span,
    },
    /// A flag of the command line: `--instance`.
    Flag(&'static str),
    /// A cluster file, by name.
    ClusterFile(Box<str>),
    /// The catalogue of machines, by the entry's name.
    Catalogue(Box<str>),
    /// The machine plumb runs on.
    LiveNode,
    /// A default of NCCL's release or of the file format.
    Default,
}

impl Source {
    /// The line of a log that says so, where it is one.
    pub fn quote(&self) -> Option<&Quote> {
        match self {
            Self::Line(quote) => Some(quote),
            _ => None,
        }
    }
}

/// Sources that disagree about one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// What they disagree about: `instance type`, `NCCL release`, `NCCL_NET`.
    pub subject: Box<str>,
    /// What each of them says, the one that counts first.
    pub values: Vec<Known<Box<str>>>,
}
