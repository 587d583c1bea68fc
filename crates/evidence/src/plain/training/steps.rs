//! What trainers print at steps.

use super::track::Track;

/// What is printed at steps, by the number of the step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Steps {
    /// Seconds of the step.
    pub seconds: Track,
    /// Seconds since training began.
    pub elapsed: Track,
    /// When the line was written, in seconds from a fixed point.
    pub at: Track,
    /// The same by the ten-thousandth part of an epoch, for a trainer that does not number its steps.
    pub elapsed_by_epoch: Track,
    /// When the line was written, by the ten-thousandth part of an epoch.
    pub at_by_epoch: Track,
    /// Tokens per second of one GPU.
    pub tokens_per_gpu: Track,
    /// Tokens per second of all.
    pub tokens: Track,
    /// Samples per second of all.
    pub samples: Track,
    /// Steps per second.
    pub rate: Track,
    /// Samples of the step.
    pub batch: Track,
}

/// Parts of an epoch by which [`Steps`] counts.
pub const EPOCH: f64 = 1e4;

impl Steps {
    pub(super) fn merge(&mut self, later: Self) {
        let Self {
            seconds,
            elapsed,
            at,
            elapsed_by_epoch,
            at_by_epoch,
            tokens_per_gpu,
            tokens,
            samples,
            rate,
            batch,
        } = later;
        for (mine, later) in [
            (&mut self.seconds, seconds),
            (&mut self.elapsed, elapsed),
            (&mut self.at, at),
            (&mut self.elapsed_by_epoch, elapsed_by_epoch),
            (&mut self.at_by_epoch, at_by_epoch),
            (&mut self.tokens_per_gpu, tokens_per_gpu),
            (&mut self.tokens, tokens),
            (&mut self.samples, samples),
            (&mut self.rate, rate),
            (&mut self.batch, batch),
        ] {
            mine.merge(later);
        }
    }
}
