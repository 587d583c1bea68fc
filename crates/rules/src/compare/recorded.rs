//! What an earlier answer of plumb says about a run.

use super::{Amount, Quantity};

/// Facts and figures of a run that are known from an answer about it, not from its logs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Names as in [`super::Fact`], and values.
    pub facts: Vec<(String, String)>,
    /// Environment variables and their values.
    pub variables: Vec<(String, String)>,
    /// What it took, and how that is known.
    pub figures: Vec<(Quantity, f64, Option<String>)>,
}

impl Recorded {
    /// Adds what another answer about the same run says.
    pub fn extend(&mut self, other: Self) {
        self.facts.extend(other.facts);
        self.variables.extend(other.variables);
        self.figures.extend(other.figures);
    }

    pub(super) fn fact(&self, name: &str) -> Option<String> {
        self.facts.iter().find(|it| it.0 == name).map(|it| it.1.clone())
    }

    pub(super) fn figure(&self, quantity: Quantity) -> Option<Amount> {
        let (_, value, how) = self.figures.iter().find(|it| it.0 == quantity)?;
        Some(Amount { how: how.clone(), ..Amount::of(*value) })
            .filter(|it| it.value.is_finite() && it.value > 0.0)
    }
}
