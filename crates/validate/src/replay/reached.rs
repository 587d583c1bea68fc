//! What runs of the same machines reach.

use fabric::units::GigabytesPerSecond;

use super::Set;
use crate::reference::Reference;

/// Runs above what is normal by more than this do not say how far normal ones scatter.
const ABOVE: f64 = 1.1;

impl Set {
    /// What its runs reached, those that failed left out.
    pub fn rates(&self) -> impl Iterator<Item = f64> {
        self.runs.iter().filter_map(|it| it.rate).map(|it| it.0)
    }

    /// What is normal among its runs. Of runs of the same machines the middle one counts: no other machine explains why one of them is
    /// slower than the best.
    pub fn reference(&self) -> Option<Reference> {
        let Some(middle) = self.middle().filter(|_| self.is_of_the_same_machines()) else {
            return Reference::of(self.rates());
        };
        let around = Reference::of(self.rates().filter(|it| *it <= middle * ABOVE))?;
        let scale = middle / around.normal;
        Some(Reference {
            normal: middle,
            slow_below: around.slow_below * scale,
            normal_from: around.normal_from * scale,
            ..around
        })
    }

    /// The middle of what its runs reached; of an even number the lower one of two.
    pub fn middle(&self) -> Option<f64> {
        let mut rates: Vec<f64> = self.rates().collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len().checked_sub(1)? / 2).copied()
    }

    /// Runs of which this is not reached.
    pub fn below(&self, needed: GigabytesPerSecond) -> usize {
        self.rates().filter(|it| *it < needed.0).count()
    }

    fn is_of_the_same_machines(&self) -> bool {
        self.runs.iter().all(|it| self.runs.first().is_some_and(|first| first.hosts == it.hosts))
    }
}
