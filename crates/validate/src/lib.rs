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
//!
//! Lost packets are judged in the same way by what is sent again ([`Usual`]): TCP and EFA make up for them, so that they need not cost
//! bandwidth between two machines, and still delay a collective of many.

#![forbid(unsafe_code)]

mod alone;
mod chance;
mod fleet;
mod judge;
pub mod live;
mod measured;
mod nics;
mod random;
mod reference;
pub mod replay;
mod resent;
mod rounds;
mod search;
pub mod simulate;
mod step;
mod validation;

pub use fleet::{Fleet, Host, Pair, Sample};
pub use judge::{CONFIRMED, Class, Culprit, Finding, Judgement, Loss, Question, Split, judge};
pub use measured::Measured;
pub use nics::NicSample;
pub use reference::Reference;
pub use resent::Usual;
pub use search::{Limits, Search};
pub use step::{Answer, Expected, Rates, Scope, Step, Verdict};
pub use validation::Validation;
