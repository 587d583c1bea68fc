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
//! iter 83593: loss 2.6294, time 6669.64ms, mfu 31.2%
//!   train_runtime            = 0:40:41.04
//!  iteration       10/     500 | consumed samples:  5120 | elapsed time per iteration (ms): 5234.5 | ...
//!  10%|#         | 5/50 [03:51<34:39, 46.21s/it]
//! ```

mod arguments;
mod speed;

use crate::facts::Assignment;
use crate::scan::word_after;
use crate::source::{Distinct, Quote, Seen};

pub use speed::Rates;

/// A training run, as its log shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Training {
    /// `Num examples = 36,718` and the other settings, by their printed name.
    pub settings: Distinct<Assignment>,
    /// Arguments and settings of a framework, by their printed name: `hidden_size`, `"stage"`.
    pub arguments: Distinct<Assignment>,
    /// `train_runtime`, in seconds.
    pub runtime_seconds: Option<Seen<f64>>,
    /// How many lines with a loss were read.
    pub loss_lines: u64,
    /// Step times, where they are printed.
    pub step_times: Option<StepTimes>,
    /// Samples per second of all ranks, where they are printed.
    pub samples_per_s: Option<Rates>,
    /// Tokens per second of one GPU, where they are printed.
    pub tokens_per_s_per_gpu: Option<Rates>,
    /// The last progress bar without a name.
    pub bar: Option<Seen<Bar>>,
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

/// A progress bar: `5/50 [03:51<34:39, 46.21s/it]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bar {
    /// Steps that are done.
    pub done: u64,
    /// All steps.
    pub total: u64,
    /// What they took.
    pub seconds: u64,
}

impl Bar {
    /// A bar that begins the line: what has a name before it counts something else than steps.
    fn read(line: &str) -> Option<Self> {
        let (percent, rest) = line.split_once("%|")?;
        if percent.len() > 3 || !percent.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        let (counts, times) = rest.rsplit_once("| ")?.1.split_once(" [")?;
        let (done, total) = counts.split_once('/')?;
        let elapsed =
            times.split_once('<').filter(|it| it.1.ends_with("s/it]") || it.1.ends_with("it/s]"))?.0;
        let mut parts = elapsed.split(':').map(|it| it.parse::<u64>().ok());
        let seconds = parts.try_fold(0_u64, |sum, it| sum.checked_mul(60)?.checked_add(it?))?;
        let bar = Self { done: done.trim().parse().ok()?, total: total.trim().parse().ok()?, seconds };
        (bar.done > 0 && bar.done <= bar.total && bar.seconds > 0).then_some(bar)
    }
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

    /// The mean without the longest, which is usually the first: it also compiles, allocates and connects.
    #[expect(clippy::cast_precision_loss, reason = "a count of steps is far below 2^52")]
    pub fn usual(&self) -> f64 {
        if self.count < 3 { self.mean() } else { (self.sum - self.longest) / (self.count - 1) as f64 }
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
    /// GPU memory allocated when it was last printed.
    pub gpu_last: Option<Seen<f64>>,
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
        Some(b'N' | b'I' | b'T' | b'G' | b'*' | b'S' | b'D' | b'B' | b'A' | b'P' | b'U') => is_known(inner),
        Some(b'm') if is_known(inner) => true,
        Some(b'{') => {
            inner.starts_with(b"{'loss':")
                || inner.starts_with(b"{'train_runtime':")
                || inner.starts_with(b"{'eval_")
        }
        Some(b'M') => inner.starts_with(b"MA ") && memchr::memmem::find(inner, b"Max_MA").is_some(),
        Some(b'C') => inner.starts_with(b"CPU Virtual Memory:") || inner.starts_with(b"Config: alpha="),
        Some(b'i') if inner.starts_with(b"iter ") => memchr::memmem::find(inner, b"time").is_some(),
        Some(b'i') if inner.starts_with(b"iteration ") => memchr::memmem::find(inner, ITERATION).is_some(),
        Some(b's') if inner.starts_with(b"step ") => memchr::memmem::find(inner, b"loss").is_some(),
        Some(b's' | b'[' | b'e') if speed::is_line(inner) => true,
        Some(b't') if inner.starts_with(b"train_runtime ") => runtime(inner).is_some(),
        Some(b'0'..=b'9') => {
            memchr::memmem::find(inner, b"%|").is_some_and(|it| it < 4)
                && str::from_utf8(inner).is_ok_and(|it| Bar::read(it.trim_end()).is_some())
        }
        Some(b'"') if runtime(inner).is_some() => true,
        Some(b'"' | b'a'..=b'z') => arguments::is_line(inner),
        _ => false,
    }
}

/// Whether a line begins as one of the lists.
fn is_known(inner: &[u8]) -> bool {
    SETTINGS.iter().chain(ROUTINE).any(|it| inner.starts_with(it.as_bytes()))
}

/// In a line of Megatron.
const ITERATION: &[u8] = b"elapsed time per iteration (ms): ";

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
        } else if line.starts_with("Stage 3 initialize beginning") {
            let stage = Assignment { name: "zero_optimization_stage".into(), value: "3".into() };
            self.arguments.note(stage, quote);
        } else if line.starts_with("MA ") {
            let max = word_after(line, "Max_MA ").and_then(|it| it.parse::<f64>().ok());
            keep_largest(&mut self.memory.gpu_max, max, &quote);
            let now = word_after(line, "MA ").and_then(|it| it.parse::<f64>().ok());
            self.memory.gpu_last =
                now.map(|value| Seen { value, count: 1, quote: quote() }).or(self.memory.gpu_last.take());
        } else if line.starts_with("CPU Virtual Memory:") {
            let percent =
                word_after(line, "percent = ").and_then(|it| it.trim_end_matches('%').parse::<f64>().ok());
            keep_largest(&mut self.memory.host_percent, percent, &quote);
        } else if line.starts_with("iter ") {
            self.loss_lines += 1;
            let time = word_after(line, "time: ").or_else(|| word_after(line, "time "));
            self.step(time.and_then(|it| it.trim_end_matches(',').strip_suffix("ms")));
        } else if line.starts_with("iteration ") {
            self.loss_lines += 1;
            self.step(word_after(line, "elapsed time per iteration (ms): "));
        } else if let Some(seconds) = runtime(line.as_bytes()) {
            self.runtime_seconds.get_or_insert_with(|| Seen { value: seconds, count: 1, quote: quote() });
        } else if speed::is_line(line.as_bytes()) {
            self.loss_lines += 1;
            let speed = speed::read(line);
            keep_largest(&mut self.memory.gpu_max, speed.memory, &quote);
            join(&mut self.samples_per_s, speed.samples.map(Rates::one));
            join(&mut self.tokens_per_s_per_gpu, speed.tokens.map(Rates::one));
        } else if let Some(bar) = Bar::read(line) {
            self.bar = Some(Seen { value: bar, count: 1, quote: quote() });
        } else if let Some((name, value)) = line.split_once(" = ")
            && SETTINGS.iter().any(|it| line.starts_with(it))
        {
            self.settings.note(Assignment { name: name.trim().into(), value: value.trim().into() }, quote);
        } else {
            for it in arguments::read(line.as_bytes()) {
                self.arguments.note(it, &quote);
            }
        }
    }

    /// Adds the time of a step, in milliseconds as printed.
    fn step(&mut self, text: Option<&str>) {
        if let Some(ms) = text.and_then(|it| it.parse::<f64>().ok()).filter(|it| it.is_finite() && *it > 0.0)
        {
            let one = StepTimes::one(ms);
            self.step_times = Some(self.step_times.map_or(one, |it| it.join(one)));
        }
    }

    pub(super) fn merge(&mut self, later: Self) {
        self.settings.merge(later.settings);
        self.arguments.merge(later.arguments);
        self.bar = later.bar.or(self.bar.take());
        self.runtime_seconds = self.runtime_seconds.take().or(later.runtime_seconds);
        self.loss_lines += later.loss_lines;
        self.step_times = match (self.step_times, later.step_times) {
            (Some(mine), Some(later)) => Some(mine.join(later)),
            (mine, later) => mine.or(later),
        };
        join(&mut self.samples_per_s, later.samples_per_s);
        join(&mut self.tokens_per_s_per_gpu, later.tokens_per_s_per_gpu);
        self.memory.gpu_last = later.memory.gpu_last.or(self.memory.gpu_last.take());
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

    /// An argument by its printed name: the first value that is one.
    pub fn argument(&self, name: &str) -> Option<&Seen<Assignment>> {
        let has_value = |it: &&Seen<Assignment>| !matches!(&*it.value.value, "None" | "auto" | "null" | "{");
        self.arguments.iter().filter(|it| &*it.value.name == name).find(has_value)
    }

    /// A member of an object of a DeepSpeed file: `device` of `offload_param`.
    pub fn member(&self, object: &str, member: &str) -> Option<&Seen<Assignment>> {
        let open = self.arguments.iter().find(|it| &*it.value.name == object && &*it.value.value == "{")?;
        let members = || self.arguments.iter().filter(|it| &*it.value.name == member);
        // A value that is the same in every object is kept once, at its first place.
        match members().count() {
            1 => members().next(),
            _ => members().find(|it| it.quote.spot >= open.quote.spot),
        }
    }

    /// Whether anything was read.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn join(mine: &mut Option<Rates>, later: Option<Rates>) {
    *mine = match (*mine, later) {
        (Some(mine), Some(later)) => Some(mine.join(later)),
        (mine, later) => mine.or(later),
    };
}

/// The seconds of `train_runtime = 0:40:41.04`, as the Trainer's table of metrics has it, and of `"train_runtime": 2441.04,` in the file
/// with its state.
fn runtime(line: &[u8]) -> Option<f64> {
    let text = str::from_utf8(line).ok()?.trim();
    let seconds = if let Some(rest) = text.strip_prefix("\"train_runtime\":") {
        rest.trim().trim_end_matches(',').parse().ok()?
    } else {
        let rest = text.strip_prefix("train_runtime")?.trim_start().strip_prefix('=')?.trim();
        let mut parts = rest.split(':').map(|it| it.parse::<f64>().ok());
        parts.try_fold(0.0, |sum, it| Some(sum * 60.0 + it?))?
    };
    Some(seconds).filter(|it: &f64| it.is_finite() && *it > 0.0)
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
    use super::{Bar, Training, is_line};
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
            " iteration       10/     500 | consumed samples:         5120 | elapsed time per iteration (ms): 5234.5 | learning rate: 1e-4 |",
            "iter 10: loss 10.9858, time 456.78ms, mfu 12.00%",
            " 10%|#         | 5/50 [03:51<34:39, 46.21s/it]",
            "[titan] 2025-01-01 10:00:00,000 - root - INFO - step: 10  loss:  8.12  memory: 1.00GiB(12.64%)  tps: 3,456  tflops: 123.40  mfu: 12.48%",
            "  seq_length ...................................... 2048",
        ] {
            assert!(is_line(line.as_bytes()), "{line}");
            it.take(line.as_bytes(), || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert_eq!(it.setting("Gradient Accumulation steps").map(|it| &*it.value.value), Some("4"));
        assert_eq!(it.runtime_seconds.as_ref().map(|it| it.value), Some(2441.04));
        assert_eq!(it.memory.gpu_max.as_ref().map(|it| it.value), Some(1.99));
        assert_eq!(it.step_times.map(|it| (it.count, it.longest)), Some((3, 6235.95)));
        assert_eq!(it.bar.as_ref().map(|it| it.value), Some(Bar { done: 5, total: 50, seconds: 231 }));
        assert_eq!(it.tokens_per_s_per_gpu.map(|it| it.usual()), Some(3456.0));
        assert_eq!(it.argument("seq_length").map(|it| &*it.value.value), Some("2048"));
    }

    #[test]
    fn the_time_of_a_run_in_three_forms() {
        for line in [
            "{'train_runtime': 2441.0, 'x': 1}",
            "  train_runtime            = 0:40:41.0",
            "  \"train_runtime\": 2441.0,",
        ] {
            let mut it = Training::default();
            assert!(is_line(line.as_bytes()), "{line}");
            it.take(line.as_bytes(), || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
            assert_eq!(it.runtime_seconds.map(|it| it.value), Some(2441.0), "{line}");
        }
        for line in ["train_runtime", "train_runtime = ", "train_runtime = 0:x", "\"train_runtime\": null"] {
            assert!(!is_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn bars_with_a_name_count_something_else() {
        assert_eq!(
            Bar::read("100%|####| 50/50 [1:38:28<00:00, 46.17s/it]"),
            Some(Bar { done: 50, total: 50, seconds: 5908 })
        );
        for line in [
            "Loading checkpoint shards: 100%|####| 4/4 [00:03<00:00,  1.2it/s]",
            "  0%|          | 0/50 [00:00<?, ?it/s]",
            "100%|####| 36718/36718 [00:10<00:00, 3500 examples/s]",
            "%|",
        ] {
            assert_eq!(Bar::read(line), None, "{line}");
        }
    }

    #[test]
    fn members_belong_to_their_object() {
        let mut it = Training::default();
        let lines = [
            "\"offload_optimizer\": {",
            "\"device\": \"cpu\"",
            "\"offload_param\": {",
            "\"device\": \"none\"",
        ];
        for (line, at) in lines.into_iter().zip(0..) {
            it.take(line.as_bytes(), || Quote::new(Spot { region: 0, line: at }, line.as_bytes()));
        }
        let device = |object: &str| it.member(object, "device").map(|it| it.value.value.to_string());
        assert_eq!(device("offload_optimizer").as_deref(), Some("cpu"));
        assert_eq!(device("offload_param").as_deref(), Some("none"));
        assert_eq!(device("bf16"), None);
    }
}
