//! What runs took.

use evidence::plain::Track;

use super::Side;
use crate::training::{Measured, Method, Spread};

/// A quantity that was measured in runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it is.
    pub quantity: Quantity,
    /// What each run has.
    pub amounts: Vec<Option<Amount>>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Seconds of a step.
    Step,
    /// Tokens per second of the whole job.
    Tokens,
    /// Tokens per second of one GPU, as printed.
    TokensPerGpu,
    /// Samples per second of the whole job, as printed.
    Samples,
    /// Seconds of the whole run.
    Run,
    /// Seconds of the first step, which warms up.
    First,
    /// Seconds from the first line to the end of the first step.
    ToFirst,
    /// Seconds of the run beyond its steps.
    Startup,
    /// The peak of GPU memory, in GB.
    GpuMemory,
    /// Percent of host memory in use.
    HostMemory,
}

/// A measured value with its spread, where several were printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Amount {
    /// The value.
    pub value: f64,
    /// Of times and rates of steps: a tenth of them is below, a tenth above. Of a few bandwidths: the lowest and the highest.
    pub spread: Option<(f64, f64)>,
    /// How it was measured, where that matters.
    pub how: Option<String>,
}

impl Amount {
    pub(super) fn of(value: f64) -> Self {
        Self { value, spread: None, how: None }
    }

    /// Of the values at steps, each changed.
    fn of_steps(track: &Track, change: impl Fn(f64) -> f64) -> Option<Self> {
        let Spread { median, tenths: (low, high), .. } = Spread::of(track.by_step())?;
        Some(Self { value: change(median), spread: Some((change(low), change(high))), how: None })
    }
}

impl Measured {
    /// Between which times most steps lie.
    fn tenths(&self) -> Option<(f64, f64)> {
        self.spread.as_ref().filter(|it| it.kept() > 1).map(|it| it.tenths)
    }

    /// How many of something that a step has are done in a second.
    fn rate(&self, of_step: f64) -> Option<Amount> {
        let spread = self.tenths().map(|(low, high)| (of_step / high, of_step / low));
        Some(Amount { value: of_step / self.seconds, spread, how: None })
            .filter(|it| it.value.is_finite() && it.value > 0.0)
    }
}

impl Quantity {
    /// All, in the order of output.
    pub const ALL: [Self; 10] = [
        Self::Step,
        Self::Tokens,
        Self::TokensPerGpu,
        Self::Samples,
        Self::Run,
        Self::ToFirst,
        Self::First,
        Self::Startup,
        Self::GpuMemory,
        Self::HostMemory,
    ];

    /// `step time`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step time",
            Self::Tokens => "tokens per second",
            Self::TokensPerGpu => "tokens per second of a GPU",
            Self::Samples => "samples per second",
            Self::Run => "whole run",
            Self::First => "first step",
            Self::ToFirst => "launch to first step",
            Self::Startup => "start-up and the rest",
            Self::GpuMemory => "peak GPU memory",
            Self::HostMemory => "host memory in use",
        }
    }

    /// `s`.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Step | Self::Run | Self::First | Self::ToFirst | Self::Startup => "s",
            Self::Tokens | Self::TokensPerGpu => "tokens/s",
            Self::Samples => "samples/s",
            Self::GpuMemory => "GB",
            Self::HostMemory => "%",
        }
    }

    fn of(self, side: &Side<'_>) -> Option<Amount> {
        let training = &side.run.log.case.training;
        let (measured, step) = (side.logged.measured.as_ref(), side.step.as_ref());
        match self {
            Self::Step => {
                let step = step?;
                Some(Amount { value: step.seconds, spread: step.tenths(), how: Some(step.how.clone()) })
            }
            Self::First => {
                let spread = measured?.spread.as_ref().filter(|it| it.left_out > 0)?;
                // Where a step is printed now and then, it stands for those before it.
                let one = spread.points.first().filter(|it| it.0 <= 1)?;
                Some(Amount::of(one.1))
            }
            Self::ToFirst => measured?.to_first_step.map(Amount::of),
            Self::Tokens => {
                let ranks = side.run.log.job.size.ranks.as_ref().map(|it| f64::from(it.value));
                let printed = Amount::of_steps(&training.steps.tokens, |it| it).or_else(|| {
                    let ranks = ranks?;
                    Amount::of_steps(&training.steps.tokens_per_gpu, |it| it * ranks)
                });
                let number = |key| side.value(key)?.as_f64();
                let of_file = || Some(number("run.global_batch")? * number("run.seq")?);
                let of_step = || {
                    let tokens = of_file().or_else(|| side.logged.tokens_of_step(training))?;
                    step?.rate(tokens)
                };
                printed.or_else(of_step)
            }
            Self::TokensPerGpu => Amount::of_steps(&training.steps.tokens_per_gpu, |it| it),
            Self::Samples => {
                let of_step = || {
                    let batch = side.value("run.global_batch")?.as_f64()?;
                    step?.rate(batch)
                };
                Amount::of_steps(&training.steps.samples, |it| it).or_else(of_step)
            }
            Self::Run => {
                Some(Amount::of(side.run.took.or(training.runtime_seconds.as_ref().map(|it| it.value))?))
            }
            Self::Startup => {
                // A step that is the run divided by its steps leaves nothing over.
                let measured = measured.filter(|it| it.method != Method::Run)?;
                let (steps, run) = (side.value("run.steps")?.as_f64()?, measured.run?);
                Some(Amount::of(run - steps * measured.seconds)).filter(|it| it.value > run * LEAST)
            }
            Self::GpuMemory => training.memory.gpu_max.as_ref().map(|it| Amount::of(it.value)),
            Self::HostMemory => training.memory.host_percent.as_ref().map(|it| Amount::of(it.value)),
        }
    }
}

/// Less of a run than this share is within the error of the time of a step.
const LEAST: f64 = 1e-3;

pub(super) fn of(sides: &[Side<'_>]) -> Vec<Figure> {
    let figure = |quantity: Quantity| {
        let one = |it: &Side<'_>| quantity.of(it).or_else(|| it.run.recorded.figure(quantity));
        let amounts: Vec<Option<Amount>> = sides.iter().map(one).collect();
        amounts.iter().any(Option::is_some).then_some(Figure { quantity, amounts })
    };
    Quantity::ALL.into_iter().filter_map(figure).collect()
}
