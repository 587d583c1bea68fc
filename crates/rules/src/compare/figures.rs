//! What runs took.

use evidence::plain::Rates;

use super::Side;

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
    /// Seconds of the run beyond its steps.
    Startup,
    /// GB of GPU memory at most.
    GpuMemory,
    /// Percent of host memory in use.
    HostMemory,
}

/// A measured value with its spread, where several were printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Amount {
    /// The value.
    pub value: f64,
    /// The smallest and the largest.
    pub spread: Option<(f64, f64)>,
    /// How it was measured, where that matters.
    pub how: Option<String>,
}

impl Amount {
    pub(super) fn of(value: f64) -> Self {
        Self { value, spread: None, how: None }
    }

    fn of_rates(rates: &Rates) -> Self {
        Self { value: rates.usual(), spread: Some((rates.lowest, rates.highest)), how: None }
    }
}

impl Quantity {
    /// All, in the order of output.
    pub const ALL: [Self; 8] = [
        Self::Step,
        Self::Tokens,
        Self::TokensPerGpu,
        Self::Samples,
        Self::Run,
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
            Self::Startup => "start-up and the rest",
            Self::GpuMemory => "GPU memory at most",
            Self::HostMemory => "host memory in use",
        }
    }

    /// `s`.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Step | Self::Run | Self::Startup => "s",
            Self::Tokens | Self::TokensPerGpu => "tokens/s",
            Self::Samples => "samples/s",
            Self::GpuMemory => "GB",
            Self::HostMemory => "%",
        }
    }

    fn of(self, side: &Side<'_>) -> Option<Amount> {
        let training = &side.run.log.case.training;
        let measured = side.logged.measured.as_ref();
        match self {
            Self::Step => {
                let measured = measured?;
                let spread = training.step_times.map(|it| (it.shortest / 1e3, it.longest / 1e3));
                Some(Amount { value: measured.seconds, spread, how: Some(measured.how.clone()) })
            }
            Self::Tokens => {
                let ranks = side.run.log.job.size.ranks.as_ref().map(|it| f64::from(it.value));
                if let (Some(rates), Some(ranks)) = (training.tokens_per_s_per_gpu, ranks) {
                    let spread = (rates.lowest * ranks, rates.highest * ranks);
                    return Some(Amount { value: rates.usual() * ranks, spread: Some(spread), how: None });
                }
                let number = |key| side.value(key)?.as_f64();
                let tokens = number("run.global_batch")? * number("run.seq")?;
                Some(Amount::of(tokens / measured?.seconds))
                    .filter(|it| it.value.is_finite() && it.value > 0.0)
            }
            Self::TokensPerGpu => training.tokens_per_s_per_gpu.as_ref().map(Amount::of_rates),
            Self::Samples => training.samples_per_s.as_ref().map(Amount::of_rates),
            Self::Run => {
                Some(Amount::of(side.run.took.or(training.runtime_seconds.as_ref().map(|it| it.value))?))
            }
            Self::Startup => {
                // A step that is the run divided by its steps leaves nothing over.
                let measured = measured.filter(|it| !it.how.contains("start"))?;
                let steps = side.value("run.steps")?.as_f64()?;
                Some(Amount::of(measured.run? - steps * measured.seconds)).filter(|it| it.value >= 0.0)
            }
            Self::GpuMemory => training.memory.gpu_max.as_ref().map(|it| Amount::of(it.value)),
            Self::HostMemory => training.memory.host_percent.as_ref().map(|it| Amount::of(it.value)),
        }
    }
}

pub(super) fn of(sides: &[Side<'_>]) -> Vec<Figure> {
    let figure = |quantity: Quantity| {
        let amounts: Vec<Option<Amount>> = sides.iter().map(|it| quantity.of(it)).collect();
        amounts.iter().any(Option::is_some).then_some(Figure { quantity, amounts })
    };
    Quantity::ALL.into_iter().filter_map(figure).collect()
}
