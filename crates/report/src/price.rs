//! What a finding costs in every step of the training job, and in money.

use forecast::training::Seconds;
use serde::Serialize;

use crate::Finding;
use crate::expect::rounded;

/// What a problem costs a training job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Price {
    /// Seconds of every step.
    pub seconds_per_step: f64,
    /// The step as it is, in seconds.
    pub step_s: f64,
    /// Whether the step was measured; otherwise it is predicted.
    pub measured: bool,
    /// The part of the step.
    pub share: f64,
    /// The part of the whole run, its start included; none where its steps are not known.
    pub share_of_run: Option<f64>,
    /// What it costs with the price that was given.
    pub cost: Option<f64>,
    /// What `cost` is of: `run`, or `hour` of steps.
    pub cost_of: &'static str,
    /// As the rules have it.
    #[serde(skip)]
    exact: rules::Price,
}

impl Price {
    /// A price with what it costs in money.
    pub fn with_money(price: &rules::Price, per_hour: Option<f64>) -> Self {
        Self { cost: per_hour.map(|it| rounded(price.money(it))), ..Self::new(price) }
    }

    pub(crate) fn new(price: &rules::Price) -> Self {
        Self {
            seconds_per_step: rounded(price.seconds),
            step_s: rounded(price.step),
            measured: price.measured,
            share: rounded(price.share()),
            share_of_run: price.share_of_run().map(rounded),
            cost: None,
            cost_of: if price.run.is_some() { "run" } else { "hour" },
            exact: *price,
        }
    }

    /// `13.7 s of 46.2 s per step, 29 % of the run, 12.40 of the price of the run (the step was measured, its part is predicted)`
    pub(crate) fn words(&self) -> String {
        let money =
            self.cost.map(|it| format!(", {it:.2} of the price of {}", self.whole())).unwrap_or_default();
        let basis = if self.measured {
            "the step was measured, its part is predicted"
        } else {
            "predicted for this job"
        };
        let (share, of) = self.share_of_run.map_or((self.share, "the step"), |it| (it, "the run"));
        format!(
            "{} of {} per step, {:.0} % of {of}{money} ({basis})",
            Seconds(self.seconds_per_step),
            Seconds(self.step_s),
            100.0 * share
        )
    }

    fn whole(&self) -> &'static str {
        if self.cost_of == "run" { "the run" } else { "an hour of steps" }
    }
}

/// Adds what findings cost in money, by the price of one node and hour.
pub fn charge(findings: &mut [Finding], per_hour: f64) {
    for price in findings.iter_mut().filter_map(|it| it.price.as_mut()) {
        price.cost = Some(rounded(price.exact.money(per_hour)));
    }
}
