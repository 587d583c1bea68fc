//! The model with a set of constants: the published one, or one that was fitted to other measurements.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use fabric::Collective;

use crate::candidate::regime_of;
use crate::constants::{Constants, constants};
use crate::shape::Shape;

/// The model of what collectives reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    pub(crate) constants: Constants,
}

impl Model {
    /// The one with the constants of this release.
    pub fn published() -> &'static Self {
        static PUBLISHED: OnceLock<Model> = OnceLock::new();
        PUBLISHED.get_or_init(|| Self { constants: constants().clone() })
    }

    /// Replaces a constant, named as in `network.share`; whether there is one of this name.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        self.constants.set(name, value)
    }

    /// Replaces the number of publications that measured each regime.
    pub fn set_sources(&mut self, sources: BTreeMap<String, usize>) {
        self.constants.sources = sources;
    }

    /// The regime in which a collective runs: `hopper`, `infiniband`, `efa.many`, `ampere.pairs`.
    pub fn regime(collective: Collective, shape: &Shape<'_>) -> String {
        regime_of(collective, shape)
    }

    /// How many publications measured the regime in which a collective runs.
    pub(crate) fn sources(&self, collective: Collective, shape: &Shape<'_>) -> usize {
        self.constants.sources.get(&regime_of(collective, shape)).copied().unwrap_or(0)
    }
}
