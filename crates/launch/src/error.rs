use std::fmt;

use crate::Launcher;

/// Why the identity or the rendezvous of a rank is unknown, or ranks could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A variable has an invalid value.
    Variable {
        /// The variable.
        name: String,
        /// At most 60 characters of its value.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// A launcher is recognised, but a variable that it always sets is missing.
    Missing {
        /// The launcher that sets both.
        launcher: Launcher,
        /// The variable that is set.
        found: &'static str,
        /// The variable that is not set.
        missing: &'static str,
    },
    /// No rendezvous address can be found.
    NoRendezvous {
        /// The launcher of the rank.
        launcher: Launcher,
        /// Why, and what to set.
        advice: String,
    },
    /// The key-value store failed.
    KeyValueStore {
        /// `PMI`, `PMIx` or `pipe`.
        protocol: &'static str,
        /// What happened.
        detail: String,
    },
    /// A host of a list cannot be used.
    Host {
        /// At most 60 characters of what was given.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// A line of a hostfile cannot be used.
    Line {
        /// Counted from 1.
        number: usize,
        /// What is wrong with it.
        error: Box<Error>,
    },
    /// A hostfile has only comments and empty lines.
    NoHosts,
    /// A rank, or what starts others, could not be started or supervised.
    Start {
        /// The operation that failed, and the error of the system.
        detail: String,
    },
}

impl Error {
    pub(crate) fn variable(name: &str, value: &str, expected: impl Into<String>) -> Self {
        Self::Variable {
            name: name.to_owned(),
            value: value.chars().take(60).collect(),
            expected: expected.into(),
        }
    }

    pub(crate) fn host(text: &str, why: &str) -> Self {
        Self::Host { text: text.chars().take(60).collect(), why: why.to_owned() }
    }

    pub(crate) fn kvs(protocol: &'static str, detail: impl Into<String>) -> Self {
        Self::KeyValueStore { protocol, detail: detail.into() }
    }

    pub(crate) fn start(what: &str, error: impl fmt::Display) -> Self {
        Self::Start { detail: format!("{what}: {error}") }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value, expected } => write!(f, "{name} is {value:?}: expected {expected}"),
            Self::Missing { launcher, found, missing } => {
                write!(f, "{found} is set but {missing} is not ({launcher} needs both)")
            }
            Self::NoRendezvous { launcher, advice } => {
                write!(f, "no rendezvous address for the ranks of {launcher}: {advice}")
            }
            Self::KeyValueStore { protocol, detail } => write!(f, "rendezvous over {protocol}: {detail}"),
            Self::Host { text, why } => write!(f, "host {text:?}: {why}"),
            Self::Line { number, error } => write!(f, "line {number}: {error}"),
            Self::NoHosts => f.write_str("the file names no host"),
            Self::Start { detail } => f.write_str(detail),
        }
    }
}

impl std::error::Error for Error {}
