//! Runs a collective on an engine, verifies, times and fits it.

mod agree;
mod compare;
pub mod engine;
mod fit;
mod host;
mod layout;
mod memory;
pub mod nccl;
mod pattern;
mod plan;
mod run;
pub mod statistics;
mod verify;

pub use agree::agree;
pub use collective::Oversubscription;
pub use compare::{Change, Drift, Times, Verdict, change};
pub use engine::{Call, Device, Engine, Failure, Side};
pub use fit::{CEILING, FLOOR, Fit, Point, Regime, Regimes, fit};
pub use host::Host;
pub use layout::{Layout, works_in_place};
pub use pattern::{POISON, Pattern};
pub use plan::{
    Average, LEAST_ITERATIONS, LEAST_SECONDS, Plan, Series, Sizes, Step, has_root, reduces, shown_operation,
};
pub use run::{Event, Row, Run, Timing, Wrong, run};
pub use verify::{Element, Found, Verified};
