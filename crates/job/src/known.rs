//! Values and where they come from.

use std::fmt;

use evidence::Quote;
use evidence::topology::Kind;
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

    /// The line of a log that says so, where it is one.
    pub fn quote(&self) -> Option<&Quote> {
        self.source.quote()
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
    /// A description of a machine: a matrix, XML or the GRAPH lines of a log.
    Topology {
        /// The file.
        file: Box<str>,
        /// The line at which it begins.
        line: u64,
        /// What it is.
        kind: Kind,
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

impl fmt::Display for Source {
    /// As a sentence names it; a line of a log by its text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(quote) => write!(f, "`{}`", quote.text),
            Self::Span { span, .. } => write!(f, "line {} of the file", span.line),
            Self::Topology { file, line, kind } => write!(f, "{file}:{line} ({})", kind.name()),
            Self::Flag(name) => f.write_str(name),
            Self::ClusterFile(name) => f.write_str(name),
            Self::Catalogue(name) => write!(f, "the catalogue's {name}"),
            Self::LiveNode => f.write_str("this machine"),
            Self::Default => f.write_str("the default"),
        }
    }
}

/// Sources that disagree about one thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Conflict {
    /// What they disagree about: `instance type`, `number of GPUs`, `GPU model`. Ranks that differ in a
    /// release or a variable are a matter of rules, not of sources.
    pub subject: Box<str>,
    /// What each of them says, the one that counts first.
    pub values: Vec<Known<Box<str>>>,
}

impl fmt::Display for Conflict {
    /// `Sources disagree about the number of GPUs: topo.txt:1 (nvidia-smi topo -m) says 2, the catalogue's g6e.12xlarge says
    /// 4. The first counts.`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sources disagree about the {}:", self.subject)?;
        for (index, it) in self.values.iter().enumerate() {
            write!(f, "{} {} says {}", if index == 0 { "" } else { "," }, it.source, it.value)?;
        }
        f.write_str(". The first counts.")
    }
}
