//! Launches with one result, and the same launch several times.

use crate::fleet::Host;

/// A launch with one result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Measured {
    /// It did not run.
    Not,
    /// It failed or did not end.
    Failed,
    /// What it reached, in GB/s.
    Rate(f64),
}

impl Measured {
    pub(crate) fn of(rate: Option<f64>) -> Self {
        rate.map_or(Self::Failed, Self::Rate)
    }

    /// What it reached.
    pub const fn rate(self) -> Option<f64> {
        match self {
            Self::Rate(rate) => Some(rate),
            Self::Not | Self::Failed => None,
        }
    }

    pub(crate) const fn ran(self) -> bool {
        !matches!(self, Self::Not)
    }
}

/// Launches of the same machines: a busy network slows one of them down.
#[derive(Debug, Clone, Default)]
pub(crate) struct Repeated {
    pub(crate) hosts: Vec<Host>,
    pub(crate) rates: Vec<Option<f64>>,
}

/// A rate that is above what is needed by less than this is measured again.
pub(crate) const CLOSE: f64 = 0.05;
/// Launches of the same machines after which the middle one counts.
const REPEATED: usize = 3;

/// Launches of the same machines at most, where the fleet scatters.
const MOST: usize = 15;

impl Repeated {
    pub(crate) fn add(&mut self, hosts: &[Host], rate: Option<f64>) -> Measured {
        if self.hosts != hosts {
            *self = Self { hosts: hosts.to_vec(), rates: Vec::new() };
        }
        self.rates.push(rate);
        let mut sorted = self.rates.clone();
        sorted.sort_by(|a, b| a.unwrap_or(0.0).total_cmp(&b.unwrap_or(0.0)));
        Measured::of(sorted.get((sorted.len() - 1) / 2).copied().flatten())
    }

    /// Whether the last launch did not fail.
    pub(crate) fn ended(&self) -> bool {
        self.rates.last().is_some_and(Option::is_some)
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.rates.len() >= REPEATED
    }

    /// Whether no more launches should be spent on them.
    pub(crate) fn is_spent(&self) -> bool {
        self.rates.len() >= MOST
    }

    /// Whether so many more were enough than were not.
    pub(crate) fn leads(&self, by: usize, enough: impl Fn(Measured) -> bool) -> bool {
        let good = self.rates.iter().filter(|it| enough(Measured::of(**it))).count();
        good >= by + (self.rates.len() - good)
    }

    /// Whether so many more were too low than were enough.
    pub(crate) fn trails(&self, by: usize, enough: impl Fn(Measured) -> bool) -> bool {
        self.leads(by, |it| !enough(it))
    }
}
