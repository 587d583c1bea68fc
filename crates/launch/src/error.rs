//! What can go wrong between a launcher and a rank.

use std::fmt;

use crate::Launcher;

/// Why a rank does not know its place, cannot meet the others or could not be started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A variable holds what it cannot hold.
    Variable {
        /// Its name.
        name: String,
        /// Its value, cut.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// A launcher is recognised, but a variable it always sets is not there.
    Missing {
        /// Whose variables they are.
        launcher: Launcher,
        /// The variable that is there.
        found: &'static str,
        /// The variable that is not.
        missing: &'static str,
    },
    /// Ranks have no place to meet.
    NoMeeting {
        /// Who started the rank.
        launcher: Launcher,
        /// Why, and what to set.
        advice: String,
    },
    /// The process manager did not answer as it should.
    Board {
        /// The protocol: `PMI`, `PMIx`, `pipe`.
        board: &'static str,
        /// What happened.
        detail: String,
    },
    /// Something could not be started or looked after.
    Start {
        /// What was tried, and what the system said.
        detail: String,
    },
}

impl Error {
    /// A variable with a value that cannot be.
    pub(crate) fn variable(name: &str, value: &str, expected: impl Into<String>) -> Self {
        Self::Variable {
            name: name.to_owned(),
            value: value.chars().take(60).collect(),
            expected: expected.into(),
        }
    }

    /// A failure of a board.
    pub(crate) fn board(board: &'static str, detail: impl Into<String>) -> Self {
        Self::Board { board, detail: detail.into() }
    }

    /// A system call for the starter that failed.
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
            Self::NoMeeting { launcher, advice } => {
                write!(f, "ranks of {launcher} have no place to meet: {advice}")
            }
            Self::Board { board, detail } => write!(f, "{board} of the process manager: {detail}"),
            Self::Start { detail } => f.write_str(detail),
        }
    }
}

impl std::error::Error for Error {}
