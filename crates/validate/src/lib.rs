//! Are these machines fit to train, and if not, which one is not?
//!
//! A validation is a plan of steps, each one launch: every machine alone, two together, all together, and, if that is slow, rounds of
//! pairs that run at the same time until one machine, NIC, link or group explains what was seen. [`Validation`] says which step is next
//! and takes its results; who runs it is left to the caller, so that a model of a fleet ([`simulate`]) passes through the same code as
//! real machines.
//!
//! Pairs are judged against each other, not against a fixed number: [`Reference`] is what most of them reach. The rate of a pair is at
//! most that of its slower machine, so that one normal pair clears two machines, and a machine is accused when it is slow against
//! machines that are normal against others, more often than chance explains ([`judge()`]).

#![forbid(unsafe_code)]

mod chance;
mod fleet;
mod judge;
pub mod live;
mod nics;
mod random;
mod reference;
pub mod replay;
mod rounds;
mod search;
pub mod simulate;
mod validation;

pub use fleet::{Fleet, Host, Pair, Sample};
pub use judge::{Class, Culprit, Finding, Judgement, Question, Split, judge};
pub use nics::NicSample;
pub use reference::Reference;
pub use search::{Limits, Search};
pub use validation::{Answer, Expected, Measured, Scope, Step, Validation, Verdict};
