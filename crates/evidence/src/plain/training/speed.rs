//! Speed in lines of a trainer that print no time of a step.
//!
//! ```text
//! [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.4, MemAllocated=5.0GB, MaxMemAllocated=20.1GB
//! step: 10  loss:  8.12  grad_norm: 1.1  memory: 23.45GiB(29.64%)  tps: 3,456  tflops: 123.4  mfu: 12.3%
//! ```

/// What such a line says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Speed {
    /// Samples per second of all ranks, as DeepSpeed prints them.
    pub(super) samples: Option<f64>,
    /// Tokens per second of one GPU, as torchtitan prints them.
    pub(super) tokens: Option<f64>,
    /// GPU memory at most, in GB.
    pub(super) memory: Option<f64>,
}

/// Rates that were printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The lowest.
    pub lowest: f64,
    /// The highest.
    pub highest: f64,
}

impl Rates {
    pub(super) fn one(rate: f64) -> Self {
        Self { count: 1, sum: rate, lowest: rate, highest: rate }
    }

    pub(super) fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            lowest: self.lowest.min(other.lowest),
            highest: self.highest.max(other.highest),
        }
    }

    /// The mean without the lowest, which is usually the first: it also compiles, allocates and connects.
    #[expect(clippy::cast_precision_loss, reason = "a count of steps is far below 2^52")]
    pub fn usual(&self) -> f64 {
        match self.count {
            0..3 => self.sum / self.count.max(1) as f64,
            count => (self.sum - self.lowest) / (count - 1) as f64,
        }
    }
}

/// Whether a line has a speed.
pub(super) fn is_line(inner: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(inner, part).is_some();
    has(b"CurrSamplesPerSec=") || (has(b" tps: ") && has(b"step: "))
}

pub(super) fn read(line: &str) -> Speed {
    let number = |name: &str| {
        let rest = line.split_once(name)?.1.trim_start();
        let end =
            rest.find(|it: char| !it.is_ascii_digit() && !matches!(it, '.' | ',')).unwrap_or(rest.len());
        let text = rest.get(..end)?.trim_end_matches([',', '.']).replace(',', "");
        text.parse::<f64>().ok().filter(|it| it.is_finite() && *it > 0.0)
    };
    Speed {
        samples: number("CurrSamplesPerSec="),
        tokens: number(" tps: "),
        // One prints GiB, the other GB.
        memory: number("memory: ").map(|it| it * 1.073_741_824).or_else(|| number("MaxMemAllocated=")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Rates, is_line, read};

    #[test]
    fn deepspeed_and_torchtitan() {
        let deepspeed = "[2024-05-01 10:00:00,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.4, MemAllocated=5.0GB, MaxMemAllocated=20.1GB";
        let titan = "[titan] 2025-01-01 10:00:00,000 - root - INFO - step: 10  loss:  8.1234  grad_norm:  1.1  memory: 10.00GiB(12.64%)  tps: 3,456  tflops: 123.40  mfu: 12.48%";
        assert!(is_line(deepspeed.as_bytes()) && is_line(titan.as_bytes()));
        let (one, other) = (read(deepspeed), read(titan));
        assert_eq!((one.samples, one.tokens, one.memory), (Some(12.4), None, Some(20.1)));
        assert_eq!((other.samples, other.tokens), (None, Some(3456.0)));
        assert!((other.memory.unwrap() - 10.737_418_24).abs() < 1e-9);
        for line in ["step: 10 loss: 3", "https: //x tps: 4", "CurrSamplesPerSec", ""] {
            assert!(!is_line(line.as_bytes()), "{line}");
        }
        assert_eq!(read("CurrSamplesPerSec=nan tps: -3"), super::Speed::default());
    }

    #[test]
    fn the_first_is_not_usual() {
        let all = [1.0, 10.0, 12.0].map(Rates::one).into_iter().reduce(Rates::join).unwrap();
        assert_eq!(all, Rates { count: 3, sum: 23.0, lowest: 1.0, highest: 12.0 });
        assert!((all.usual() - 11.0).abs() < 1e-12);
        assert!((Rates::one(3.0).usual() - 3.0).abs() < 1e-12);
    }
}
