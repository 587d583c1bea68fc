//! Who failed first.

use evidence::{Case, Quote};

/// The earliest failure of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstFailure {
    /// The rank, if known.
    pub rank: Option<u32>,
    /// Its host, if known.
    pub host: Option<String>,
    /// The time, as written.
    pub time: Option<String>,
    /// What happened.
    pub what: String,
    /// The line.
    pub quote: Quote,
    /// Whether the input orders all failures.
    pub certain: bool,
}

/// The earliest failure over all ranks.
pub fn first_failure(_: &Case) -> Option<FirstFailure> {
    None
}
