//! The time of a step as a log has it.

use evidence::plain::{EPOCH, State, Training};
use serde_json::Value;

use super::{Batch, Logged};

/// The time of a step that was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Seconds of one step: the median, where several are known.
    pub seconds: f64,
    /// How it was measured.
    pub method: Method,
    /// The same in words.
    pub how: String,
    /// The time of the whole run, where it is known.
    pub run: Option<f64>,
    /// Times of steps, where several are known.
    pub spread: Option<Spread>,
    /// Seconds from the first line of the log to the end of the first step, where lines have dates.
    pub to_first_step: Option<f64>,
}

/// How the time of a step was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// The trainer prints it.
    Printed,
    /// The trainer prints the time since training began.
    Elapsed,
    /// So does the file with its state.
    State,
    /// The same by the epoch.
    ElapsedByEpoch,
    /// From rates that the trainer prints.
    Samples,
    /// Tokens per second of all or of each GPU.
    Tokens,
    /// Steps per second.
    Steps,
    /// From the times at which lines were written.
    Lines,
    /// From a progress bar that was drawn several times.
    BarUpdates,
    /// The same as `Lines`, by the epoch.
    LinesByEpoch,
    /// What a progress bar shows for all steps.
    Bar,
    /// The whole run divided by its steps.
    #[default]
    Run,
}

impl Method {
    /// All, the most exact first.
    pub const ALL: [Self; 12] = [
        Self::Printed,
        Self::Elapsed,
        Self::State,
        Self::ElapsedByEpoch,
        Self::Samples,
        Self::Tokens,
        Self::Steps,
        Self::Lines,
        Self::BarUpdates,
        Self::LinesByEpoch,
        Self::Bar,
        Self::Run,
    ];

    /// Whether it is a time of steps alone: one of all steps together includes the start of training.
    pub const fn is_of_steps(self) -> bool {
        !matches!(self, Self::Bar | Self::Run)
    }

    /// What its values are.
    const fn values(self) -> &'static str {
        match self {
            Self::Printed => "printed steps",
            Self::Elapsed | Self::ElapsedByEpoch => "intervals between printed times",
            Self::State => "intervals in trainer_state.json",
            Self::Samples => "printed rates of samples",
            Self::Tokens => "printed rates of tokens",
            Self::Steps => "printed rates of steps",
            Self::Lines | Self::LinesByEpoch => "intervals between the times of lines",
            Self::BarUpdates => "updates of the progress bar",
            Self::Bar | Self::Run => "",
        }
    }

    /// Times of steps, as far as the log has them in this way.
    fn spread(self, training: &Training, job: &Known) -> Option<Spread> {
        let steps = &training.steps;
        let of = Spread::of;
        match self {
            Self::Printed => of(steps.seconds.by_step()),
            Self::Elapsed => of(steps.elapsed.growth()),
            Self::State => of(growth(&training.state.as_ref()?.elapsed)),
            Self::ElapsedByEpoch => by_epoch(steps.elapsed_by_epoch.growth(), job),
            Self::Samples => {
                let batch = job.batch?;
                Spread::map(steps.samples.by_step(), |rate| batch / rate)
            }
            Self::Tokens => {
                let tokens = job.tokens?;
                Spread::map(steps.tokens.by_step(), |rate| tokens / rate).or_else(|| {
                    let each = tokens / job.ranks?;
                    Spread::map(steps.tokens_per_gpu.by_step(), |rate| each / rate)
                })
            }
            Self::Steps => Spread::map(steps.rate.by_step(), |rate| 1.0 / rate),
            Self::Lines => of(steps.at.growth()),
            Self::BarUpdates => {
                let updates = training.bars.of_steps(job.steps)?.each.first_by_step();
                Some(updates).filter(|it| it.len() >= FEWEST_UPDATES).and_then(of)
            }
            Self::LinesByEpoch => by_epoch(steps.at_by_epoch.growth(), job),
            Self::Bar | Self::Run => None,
        }
    }
}

/// Values by step, and how they are spread.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// The values by the number of the step; of a step that stands for several the mean of these.
    pub points: Vec<(u64, f64)>,
    /// How many of the first ones are left out of what follows: a first step also compiles, allocates and connects.
    pub left_out: usize,
    /// The value in the middle.
    pub median: f64,
    /// A tenth of the values is below, and a tenth above.
    pub tenths: (f64, f64),
}

/// A start that takes longer than a week is not one: the dates are of different kinds.
const MOST: f64 = 7.0 * 86_400.0;

/// A first step is left out if it is further from the median than this.
const WARM: f64 = 1.25;

impl Spread {
    /// Of at least one value.
    pub fn of(points: Vec<(u64, f64)>) -> Option<Self> {
        let all = sorted(points.iter().map(|it| it.1));
        let usual = at(&all, 0.5)?;
        // Of a few values one may be left out, of many a tenth.
        let most = if points.len() < 3 { 0 } else { (points.len() / 10).max(1) };
        let far = |it: &(u64, f64)| it.1 > usual * WARM || it.1 < usual / WARM;
        let left_out = points.iter().take(most).take_while(|it| far(it)).count();
        let kept = sorted(points.iter().skip(left_out).map(|it| it.1));
        Some(Self { left_out, median: at(&kept, 0.5)?, tenths: (at(&kept, 0.1)?, at(&kept, 0.9)?), points })
    }

    /// The same with every value changed.
    fn map(points: Vec<(u64, f64)>, change: impl Fn(f64) -> f64) -> Option<Self> {
        Self::of(points.into_iter().map(|(number, it)| (number, change(it))).collect())
    }

    /// How many values there are without the first ones.
    pub fn kept(&self) -> usize {
        self.points.len() - self.left_out
    }

    /// `, the first 2 left out as warm-up`, or nothing.
    fn without(&self) -> String {
        match self.left_out {
            0 => String::new(),
            1 => ", the first left out as warm-up".to_owned(),
            more => format!(", the first {more} left out as warm-up"),
        }
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.filter(|it| it.is_finite()).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The value below which a share of the others is, between two where it falls between them.
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a number of steps")]
    let place = share * sorted.len().checked_sub(1)? as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let below = place.floor() as usize;
    let (low, high) = (sorted.get(below)?, sorted.get(below + 1).or(sorted.get(below))?);
    Some(low + (high - low) * place.fract())
}

impl Measured {
    /// From what is printed, the most exact first.
    pub(super) fn of(training: &Training, logged: &Logged, ranks: Option<f64>) -> Option<Self> {
        let job = Known::of(training, logged, ranks);
        Method::ALL.into_iter().find_map(|it| Self::by(it, training, &job))
    }

    fn by(method: Method, training: &Training, job: &Known) -> Option<Self> {
        let run = training.runtime_seconds.as_ref().map(|it| it.value).filter(|it| *it > 0.0);
        let to_first_step = training.began.zip(training.steps.at.earliest().first().copied());
        // A log that begins with a step says nothing about its start.
        let to_first_step =
            to_first_step.map(|(began, first)| first.1 - began).filter(|it| *it > 0.0 && *it < MOST);
        let (seconds, how, spread) = match method {
            Method::Bar => of_bar(training, job).map(|it| (it.0, it.1, None))?,
            Method::Run => of_run(run, job).map(|it| (it.0, it.1, None))?,
            _ => {
                let spread = method.spread(training, job)?;
                let (what, without) = (method.values(), spread.without());
                let how = match spread.kept() {
                    1 => format!("one of the {what}{without}"),
                    kept => format!("median of {kept} {what}{without}"),
                };
                (spread.median, how, Some(spread))
            }
        };
        Some(Self { seconds, method, how, run, spread, to_first_step })
    }
}

/// What is known about the job that turns rates into times.
struct Known {
    steps: Option<u64>,
    batch: Option<f64>,
    /// Tokens of a step.
    tokens: Option<f64>,
    ranks: Option<f64>,
    /// Steps of the ten-thousandth part of an epoch.
    per_part: Option<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
impl Known {
    fn of(training: &Training, logged: &Logged, ranks: Option<f64>) -> Self {
        let number = |key: &str| logged.get(key).and_then(Value::as_f64).filter(|it| *it > 0.0);
        let (steps, batch) = (logged.get("run.steps").and_then(Value::as_u64), number("run.global_batch"));
        let examples = training.setting("Num examples").and_then(|it| number_of(&it.value.value));
        let of_end = steps.zip(training.last_epoch).map(|(steps, epochs)| steps as f64 / epochs);
        let of_epoch = of_end.or_else(|| Some((examples? / batch?).ceil()));
        Self {
            steps,
            batch,
            tokens: logged.tokens_of_step(training),
            ranks,
            per_part: of_epoch.map(|it| it / EPOCH).filter(|it| *it > 0.0),
        }
    }
}

impl Logged {
    /// The time of a step by one method, if the log has it in this way.
    pub(crate) fn measured_by(&self, method: Method, training: &Training) -> Option<Measured> {
        Measured::by(method, training, &Known::of(training, self, self.ranks.map(f64::from)))
    }

    /// Tokens of a step, as far as the log says.
    pub(crate) fn tokens_of_step(&self, training: &Training) -> Option<f64> {
        let number = |key: &str| self.get(key).and_then(Value::as_f64).filter(|it| *it > 0.0);
        #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
        let counted = |it: &State| Some(it.tokens? / it.steps as f64).filter(|it| it.is_finite());
        let said = training.argument("tokens_per_iteration").and_then(|it| number_of(&it.value.value));
        let batch = number(Self::BATCH).filter(|_| self.batch != Some(Batch::Changes));
        said.or_else(|| Some(batch? * number("run.seq")?))
            .or_else(|| training.state.as_ref().and_then(counted))
    }
}

/// `36,718`
fn number_of(text: &str) -> Option<f64> {
    text.trim().replace(',', "").parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0)
}

/// A bar that was drawn less often says what all steps took.
const FEWEST_UPDATES: usize = 5;

/// Below this many seconds, a bar without fractions of seconds is less exact than the rate it shows.
const SHORT: u64 = 100;

fn of_bar(training: &Training, job: &Known) -> Option<(f64, String)> {
    let bar = training.bars.of_steps(job.steps)?.last;
    #[allow(clippy::cast_precision_loss, reason = "seconds and steps are far below 2^53")]
    let mean = bar.seconds as f64 / bar.done as f64;
    let seconds = bar.each.filter(|_| bar.seconds < SHORT).unwrap_or(mean);
    Some((seconds, format!("progress bar after {} steps", bar.done)))
}

fn of_run(run: Option<f64>, job: &Known) -> Option<(f64, String)> {
    let (run, steps) = (run?, job.steps?);
    #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    let seconds = run / steps as f64;
    Some((seconds, format!("train_runtime of {run} s over {steps} steps, the start of training included")))
}

/// Seconds of a step from times by epoch.
fn by_epoch(growth: Vec<(u64, f64)>, job: &Known) -> Option<Spread> {
    let steps = job.per_part?;
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "steps are far below 2^53"
    )]
    let number = |part: u64| (part as f64 * steps).round() as u64;
    Spread::of(growth.into_iter().map(|(part, seconds)| (number(part), seconds / steps)).collect())
}

/// Seconds of a step from times since training began, the first interval included.
fn growth(elapsed: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let before = std::iter::once(&(0, 0.0)).chain(elapsed);
    #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    let each = |(one, next): (&(u64, f64), &(u64, f64))| {
        let steps = next.0.checked_sub(one.0).filter(|it| *it > 0)? as f64;
        Some((next.0, (next.1 - one.1) / steps)).filter(|it| it.1 > 0.0)
    };
    before.zip(elapsed).filter_map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::Spread;

    fn spread(values: &[f64]) -> Spread {
        Spread::of((1..).zip(values.iter().copied()).collect()).unwrap()
    }

    #[test]
    fn the_first_steps_are_left_out_if_they_are_unlike_the_others() {
        let it = spread(&[9.0, 1.0, 1.0]);
        assert_eq!((it.left_out, it.median), (1, 1.0));
        assert_eq!(spread(&[1.0, 1.1, 0.9]).left_out, 0);
        assert_eq!(spread(&[9.0, 1.0]).left_out, 0);
        let mut many = vec![1.0; 40];
        many[..6].fill(3.0);
        // A run that is slow for long is not warming up.
        assert_eq!(spread(&many).left_out, 4);
    }

    #[test]
    fn tenths_are_not_the_extremes() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        let it = Spread::of((0..).zip(values.iter().map(|it| it + 1000.0)).collect()).unwrap();
        assert_eq!((it.median, it.tenths), (1050.0, (1010.0, 1090.0)));
        assert!(Spread::of(Vec::new()).is_none());
    }
}
