//! What a trainer and DeepSpeed print about batch, steps, time and memory.
//!
//! ```text
//! ***** Running training *****
//!   Instantaneous batch size per device = 4
//! {'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 2e-05, 'epoch': 0.1}
//! {'train_runtime': 2441.04, 'train_samples_per_second': 5.2, 'train_steps_per_second': 0.02, 'train_loss': 1.1, 'epoch': 0.3}
//! MA 14.96 GB         Max_MA 14.96 GB         CA 15.08 GB         Max_CA 15 GB
//! CPU Virtual Memory:  used = 27.2 GB, percent = 7.3%
//! iter 83593: loss 2.6294, time: 6669.64ms
//! ```

use crate::facts::Assignment;
use crate::scan::word_after;
use crate::source::{Distinct, Quote, Seen};

/// A training run, as its log shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Training {
    /// `Num examples = 36,718` and the other settings, by their printed name.
    pub settings: Distinct<Assignment>,
    /// `train_runtime`, in seconds.
    pub runtime_seconds: Option<Seen<f64>>,
    /// How many lines with a loss were read.
    pub loss_lines: u64,
    /// Step times, where they are printed.
    pub step_times: Option<StepTimes>,
    /// The largest memory seen.
    pub memory: Memory,
}

/// Step times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// How many were printed.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
    /// The shortest.
    pub shortest: f64,
    /// The longest.
    pub longest: f64,
}

impl StepTimes {
    fn one(milliseconds: f64) -> Self {
        Self { count: 1, sum: milliseconds, shortest: milliseconds, longest: milliseconds }
    }

    fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            shortest: self.shortest.min(other.shortest),
            longest: self.longest.max(other.longest),
        }
    }

    /// The mean.
    #[expect(clippy::cast_precision_loss, reason = "a count of steps is far below 2^52")]
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// Memory in GB as printed by DeepSpeed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// GPU memory allocated at most.
    pub gpu_max: Option<Seen<f64>>,
    /// Host memory used, in percent.
    pub host_percent: Option<Seen<f64>>,
}

static SETTINGS: &[&str] = &[
    "Num examples = ",
    "Num Epochs = ",
    "Instantaneous batch size per device = ",
    "Total train batch size (w. parallel, distributed & accumulation) = ",
    "Gradient Accumulation steps = ",
    "Total optimization steps = ",
    "Number of trainable parameters = ",
];

/// Lines of tracebacks: known, and of use only to a programmer.
static TRACEBACK: &[&str] = &[
    "frame #",
    "File \"",
    "Traceback (most recent call last)",
    "Last error:",
    "Exception raised from ",
    "ncclSystemError: ",
    "ncclInternalError: ",
    "ncclInvalidUsage: ",
    "ncclUnhandledCudaError: ",
    "ncclRemoteError: ",
];

static ROUTINE: &[&str] = &[
    "***** Running training *****",
    "Stage 3 initialize beginning",
    "DeepSpeedZeRoOffload initialize",
    "Before creating fp16 partitions",
    "After creating fp16 partitions",
    "Before creating fp32 partitions",
    "After creating fp32 partitions",
    "Before initializing optimizer states",
    "After initializing optimizer states",
    "After initializing ZeRO optimizer",
    "Parameter Offload - Persistent parameters statistics",
    "Adam Optimizer #0 is created with",
    "Config: alpha=",
    "max_steps is given, it will override",
    "Using auto half precision backend",
    "The default value for the training argument `--report_to`",
];

pub(super) fn is_line(line: &[u8]) -> bool {
    let inner = unlabelled(line);
    match inner.first() {
        Some(b'f' | b'F' | b'T' | b'L' | b'E' | b'n')
            if TRACEBACK.iter().any(|it| inner.starts_with(it.as_bytes())) =>
        {
            true
        }
        Some(b'N' | b'I' | b'T' | b'G' | b'*' | b'S' | b'D' | b'B' | b'A' | b'P' | b'U' | b'm') => {
            SETTINGS.iter().chain(ROUTINE).any(|it| inner.starts_with(it.as_bytes()))
        }
        Some(b'{') => {
            inner.starts_with(b"{'loss':")
                || inner.starts_with(b"{'train_runtime':")
                || inner.starts_with(b"{'eval_")
        }
        Some(b'M') => inner.starts_with(b"MA ") && memchr::memmem::find(inner, b"Max_MA").is_some(),
        Some(b'C') => inner.starts_with(b"CPU Virtual Memory:") || inner.starts_with(b"Config: alpha="),
        Some(b'i') => inner.starts_with(b"iter ") && memchr::memmem::find(inner, b"time").is_some(),
        Some(b's') => inner.starts_with(b"step ") && memchr::memmem::find(inner, b"loss").is_some(),
        _ => false,
    }
}

impl Training {
    pub(super) fn take(&mut self, line: &[u8], quote: impl Fn() -> Quote) {
        let line = String::from_utf8_lossy(unlabelled(line));
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("{'train_runtime': ") {
            if let Some(seconds) =
                rest.split([',', '}']).next().and_then(|it| it.trim().trim_matches(['\'', '"']).parse().ok())
            {
                self.runtime_seconds.get_or_insert_with(|| Seen { value: seconds, count: 1, quote: quote() });
            }
        } else if line.starts_with("{'loss':") {
            self.loss_lines += 1;
        } else if line.starts_with("MA ") {
            let max = word_after(line, "Max_MA ").and_then(|it| it.parse::<f64>().ok());
            keep_largest(&mut self.memory.gpu_max, max, &quote);
        } else if line.starts_with("CPU Virtual Memory:") {
            let percent =
                word_after(line, "percent = ").and_then(|it| it.trim_end_matches('%').parse::<f64>().ok());
            keep_largest(&mut self.memory.host_percent, percent, &quote);
        } else if line.starts_with("iter ") {
            self.loss_lines += 1;
            let ms = word_after(line, "time: ").and_then(|it| it.trim_end_matches("ms").parse::<f64>().ok());
            if let Some(ms) = ms.filter(|it| it.is_finite()) {
                let one = StepTimes::one(ms);
                self.step_times = Some(self.step_times.map_or(one, |it| it.join(one)));
            }
        } else if let Some((name, value)) = line.split_once(" = ")
            && SETTINGS.iter().any(|it| line.starts_with(it))
        {
            self.settings.note(Assignment { name: name.trim().into(), value: value.trim().into() }, quote);
        }
    }

    pub(super) fn merge(&mut self, later: Self) {
        self.settings.merge(later.settings);
        self.runtime_seconds = self.runtime_seconds.take().or(later.runtime_seconds);
        self.loss_lines += later.loss_lines;
        self.step_times = match (self.step_times, later.step_times) {
            (Some(mine), Some(later)) => Some(mine.join(later)),
            (mine, later) => mine.or(later),
        };
        for (mine, later) in [
            (&mut self.memory.gpu_max, later.memory.gpu_max),
            (&mut self.memory.host_percent, later.memory.host_percent),
        ] {
            if let Some(later) = later {
                keep_largest(mine, Some(later.value), &|| later.quote.clone());
            }
        }
    }

    /// A setting by its printed name.
    pub fn setting(&self, name: &str) -> Option<&Seen<Assignment>> {
        self.settings.iter().find(|it| &*it.value.name == name)
    }

    /// Whether anything was read.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Without the label that transformers 5 puts before its lines.
fn unlabelled(line: &[u8]) -> &[u8] {
    let inner = line.trim_ascii_start();
    inner.strip_prefix(b"[transformers] ").unwrap_or(inner).trim_ascii_start()
}

fn keep_largest(slot: &mut Option<Seen<f64>>, value: Option<f64>, quote: &impl Fn() -> Quote) {
    if let Some(value) = value.filter(|value| slot.as_ref().is_none_or(|it| *value > it.value)) {
        *slot = Some(Seen { value, count: 1, quote: quote() });
    }
}

#[cfg(test)]
mod tests {
    use super::{Training, is_line};
    use crate::source::{Quote, Spot};

    #[test]
    fn reads_a_trainers_log() {
        let mut it = Training::default();
        for line in [
            "***** Running training *****",
            "  Gradient Accumulation steps = 4",
            "{'train_runtime': 2441.04, 'train_samples_per_second': 5.2}",
            "MA 0.03 GB         Max_MA 1.99 GB         CA 15.08 GB         Max_CA 15 GB ",
            "CPU Virtual Memory:  used = 61.74 GB, percent = 16.6%",
            "iter 83594: loss 1.9491, time: 6235.95ms, speed: 1771 toks/s/device",
        ] {
            assert!(is_line(line.as_bytes()), "{line}");
            it.take(line.as_bytes(), || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert_eq!(it.setting("Gradient Accumulation steps").map(|it| &*it.value.value), Some("4"));
        assert_eq!(it.runtime_seconds.as_ref().map(|it| it.value), Some(2441.04));
        assert_eq!(it.memory.gpu_max.as_ref().map(|it| it.value), Some(1.99));
        assert_eq!(it.step_times.map(|it| it.count), Some(1));
    }
}
