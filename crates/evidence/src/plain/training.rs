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
mod bar;
mod report;
mod stamp;
mod state;
mod steps;
mod track;

use crate::facts::Assignment;
use crate::prefix;
use crate::scan::word_after;
use crate::source::{Distinct, Quote, Seen};

pub use bar::{Bar, Bars, Updates};
pub use state::State;
pub use steps::{EPOCH, Steps};
pub use track::Track;

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
    /// What is printed at steps.
    pub steps: Steps,
    /// Progress bars of steps.
    pub bars: Bars,
    /// The file with the state of the Trainer.
    pub state: Option<State>,
    /// The time of the earliest first line of a file, in seconds from a fixed point, where a logger writes date and time.
    pub began: Option<f64>,
    /// The epoch in which training ended.
    pub last_epoch: Option<f64>,
    /// The largest memory seen.
    pub memory: Memory,
}

/// Step times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimes {
    /// How many were printed.
    pub count: u64,
    /// Their sum in nanoseconds: whole, so that it is the same however a log is cut.
    sum: u64,
    /// The shortest.
    pub shortest: f64,
    /// The longest.
    pub longest: f64,
}

impl StepTimes {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn one(milliseconds: f64) -> Self {
        let sum = (milliseconds * 1e6).round() as u64;
        Self { count: 1, sum, shortest: milliseconds, longest: milliseconds }
    }

    fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum.saturating_add(other.sum),
            shortest: self.shortest.min(other.shortest),
            longest: self.longest.max(other.longest),
        }
    }

    /// The mean.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of steps and nanoseconds are below 2^52 in any real log"
    )]
    pub fn mean(&self) -> f64 {
        self.sum as f64 / 1e6 / self.count as f64
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
    let inner = line.trim_ascii_start();
    begins_as_known(inner) || is_bar(inner) || report::is_line(inner)
}

fn begins_as_known(inner: &[u8]) -> bool {
    match inner.first() {
        Some(b'f' | b'F' | b'T' | b'L' | b'E' | b'n')
            if TRACEBACK.iter().any(|it| inner.starts_with(it.as_bytes())) =>
        {
            true
        }
        Some(b'N' | b'I' | b'T' | b'G' | b'*' | b'S' | b'D' | b'B' | b'A' | b'P' | b'U' | b'm')
            if is_known(inner) =>
        {
            true
        }
        Some(b'{') => {
            inner.starts_with(b"{'loss':")
                || inner.starts_with(b"{'train_runtime':")
                || inner.starts_with(b"{'eval_")
        }
        Some(b'M') => inner.starts_with(b"MA ") && memchr::memmem::find(inner, b"Max_MA").is_some(),
        Some(b'C') => inner.starts_with(b"CPU Virtual Memory:") || inner.starts_with(b"Config: alpha="),
        Some(b's') if inner.starts_with(b"step ") => memchr::memmem::find(inner, b"loss").is_some(),
        Some(b't') if inner.starts_with(TOKENS.as_bytes()) => true,
        Some(b't') if inner.starts_with(b"train_runtime ") => runtime(inner).is_some(),
        Some(b'"') if runtime(inner).is_some() => true,
        Some(b'"' | b'a'..=b'z') => arguments::is_line(inner),
        _ => false,
    }
}

fn is_bar(inner: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(inner, part).is_some();
    (has(b"s/it") || has(b"it/s")) && str::from_utf8(inner).is_ok_and(|it| Bar::read(it).is_some())
}

/// Whether a line begins as one of the lists.
fn is_known(inner: &[u8]) -> bool {
    SETTINGS.iter().chain(ROUTINE).any(|it| inner.starts_with(it.as_bytes()))
}

/// The line in which `nanoGPT` says how many tokens a step has.
const TOKENS: &str = "tokens per iteration will be: ";

impl Training {
    /// A line, and what a logger or launcher put before it.
    pub(super) fn take(&mut self, line: &[u8], before: &[u8], quote: impl Fn() -> Quote) {
        let line = String::from_utf8_lossy(line);
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("{'train_runtime': ") {
            self.last_epoch = word_after(line, "'epoch': ").and_then(number).or(self.last_epoch);
            if let Some(seconds) =
                rest.split([',', '}']).next().and_then(|it| it.trim().trim_matches(['\'', '"']).parse().ok())
            {
                self.runtime_seconds.get_or_insert_with(|| Seen { value: seconds, count: 1, quote: quote() });
            }
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
        } else if let Some(seconds) = runtime(line.as_bytes()) {
            self.runtime_seconds.get_or_insert_with(|| Seen { value: seconds, count: 1, quote: quote() });
        } else if let Some(tokens) = line.strip_prefix(TOKENS) {
            let value = tokens.trim().replace(',', "").into();
            self.arguments.note(Assignment { name: "tokens_per_iteration".into(), value }, quote);
        } else if let Some(report) = report::read(line) {
            // A report is recognised wherever it stands in its line, so that the time may be in the line itself.
            let begin = line.as_bytes().get(..line.len().min(OPENING)).unwrap_or_default();
            self.report(&report, if before.is_empty() { begin } else { before }, &quote);
        } else if line.starts_with("{'loss':") {
            self.loss_lines += 1;
        } else if let Some(bar) = Bar::read(line) {
            self.bars.push(bar);
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

    /// A part of a line that a progress bar overwrote.
    pub(crate) fn overwritten(&mut self, part: &[u8]) {
        if let Some(bar) = str::from_utf8(part).ok().and_then(|it| Bar::read(it.trim_start())) {
            self.bars.push(bar);
        }
    }

    /// The first line of a file.
    pub(crate) fn opening(&mut self, line: &[u8]) {
        let written = prefix::time(line.get(..line.len().min(OPENING)).unwrap_or_default());
        // A time of day alone may be anything, and one without a year cannot be compared with one that has it.
        let at = written.filter(|it| stamp::has_year(it)).and_then(stamp::seconds);
        self.began = earlier(self.began, at);
    }

    fn report(&mut self, report: &report::Report, before: &[u8], quote: &impl Fn() -> Quote) {
        let &report::Report {
            number,
            epoch,
            seconds,
            elapsed,
            tokens_per_gpu,
            tokens,
            samples,
            steps,
            batch,
            memory,
        } = report;
        keep_largest(&mut self.memory.gpu_max, memory, quote);
        let is_step = number.is_some() || epoch.is_some();
        self.loss_lines += u64::from(is_step);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an epoch is a small number above 0"
        )]
        let part = epoch.map(|it| (it * EPOCH).round() as u64);
        let key = number.or(part);
        self.loss_lines += u64::from(!is_step && (seconds.is_some() || samples.is_some()));
        if let Some(seconds) = seconds {
            let one = StepTimes::one(seconds * 1e3);
            self.step_times = Some(self.step_times.map_or(one, |it| it.join(one)));
        }
        let at = prefix::time(before).filter(|_| is_step).and_then(stamp::seconds);
        self.steps.seconds.push(key, seconds);
        self.steps.tokens_per_gpu.push(key, tokens_per_gpu);
        self.steps.tokens.push(key, tokens);
        self.steps.samples.push(key, samples);
        self.steps.rate.push(key, steps);
        self.steps.batch.push(key, batch);
        let (track, stamps) = match number {
            Some(_) => (&mut self.steps.elapsed, &mut self.steps.at),
            None => (&mut self.steps.elapsed_by_epoch, &mut self.steps.at_by_epoch),
        };
        track.push(key, elapsed);
        stamps.push(key, at);
    }

    /// The file with the state of the Trainer. Of several, as in the folders of checkpoints, the last one counts.
    pub(crate) fn state(&mut self, state: State, quote: &Quote) {
        if let Some(value) = state.runtime {
            self.runtime_seconds.get_or_insert_with(|| Seen { value, count: 1, quote: quote.clone() });
        }
        self.loss_lines = self.loss_lines.max(state.losses);
        if self.state.as_ref().is_none_or(|it| it.steps <= state.steps) {
            self.state = Some(state);
        }
    }

    pub(super) fn merge(&mut self, later: Self) {
        self.settings.merge(later.settings);
        self.arguments.merge(later.arguments);
        self.steps.merge(later.steps);
        self.bars.merge(later.bars);
        self.began = earlier(self.began, later.began);
        self.last_epoch = later.last_epoch.or(self.last_epoch);
        self.runtime_seconds = self.runtime_seconds.take().or(later.runtime_seconds);
        self.loss_lines += later.loss_lines;
        self.step_times = match (self.step_times, later.step_times) {
            (Some(mine), Some(later)) => Some(mine.join(later)),
            (mine, later) => mine.or(later),
        };
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
        *self == Self { began: self.began, ..Self::default() }
    }
}

/// How far into a line its time is looked for.
const OPENING: usize = 64;

fn earlier(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    [one, other].into_iter().flatten().min_by(f64::total_cmp)
}

/// `'0.625'}`
fn number(text: &str) -> Option<f64> {
    text.trim_matches(['\'', '"', ',', '}']).parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0)
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
            " iteration       10/     500 | consumed samples:         5120 | elapsed time per iteration (ms): 5234.5 | learning rate: 1e-4 |",
            "iter 10: loss 10.9858, time 456.78ms, mfu 12.00%",
            " 10%|#         | 5/50 [03:51<34:39, 46.21s/it]",
            "[titan] 2025-01-01 10:00:00,000 - root - INFO - step: 10  loss:  8.12  memory: 1.00GiB(12.64%)  tps: 3,456  tflops: 123.40  mfu: 12.48%",
            "  seq_length ...................................... 2048",
        ] {
            assert!(is_line(line.as_bytes()), "{line}");
            it.take(line.as_bytes(), b"", || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert_eq!(it.setting("Gradient Accumulation steps").map(|it| &*it.value.value), Some("4"));
        assert_eq!(it.runtime_seconds.as_ref().map(|it| it.value), Some(2441.04));
        assert_eq!(it.memory.gpu_max.as_ref().map(|it| it.value), Some(1.99));
        assert_eq!(it.step_times.map(|it| (it.count, it.longest)), Some((3, 6235.95)));
        assert_eq!(it.bars.of_steps(Some(50)).map(|it| it.last.seconds), Some(231));
        assert_eq!(it.steps.tokens_per_gpu.by_step(), [(10, 3456.0), (83_594, 1771.0)]);
        assert_eq!(it.argument("seq_length").map(|it| &*it.value.value), Some("2048"));
    }

    #[test]
    fn what_loggers_of_python_write_before_lines_hides_nothing() {
        let lines = [
            "***** Running training *****",
            "  Num examples = 400",
            "  Instantaneous batch size per device = 4",
            "  Total optimization steps = 50",
            "MA 0.03 GB         Max_MA 1.99 GB         CA 15.08 GB         Max_CA 15 GB ",
            "{'train_runtime': 2441.04, 'train_samples_per_second': 5.2}",
        ];
        let read = |before: &str| {
            let text = lines.map(|it| format!("{before}{it}")).join("\n");
            crate::read_texts([("log", text.as_bytes())]).training
        };
        let bare = read("");
        for before in [
            "[INFO|trainer.py:2128] 2026-01-01 00:00:00,000 >> ",
            "[INFO|2026-01-01 00:00:00] llamafactory.train:12 >> ",
            "01/01/2026 00:00:00 - INFO - transformers.trainer - ",
            "INFO:transformers.trainer:",
            "[transformers] ",
            "[2026-01-01 00:00:00,000] [INFO] [utils.py:785:see_memory_usage] ",
            "[rank0]: [INFO|trainer.py:2128] 2026-01-01 00:00:00,000 >> ",
            "2026-01-01 00:00:00.000 | INFO     | __main__:main:12 - ",
        ] {
            let it = read(before);
            for name in ["Num examples", "Instantaneous batch size per device", "Total optimization steps"] {
                let value = |it: &Training| it.setting(name).map(|it| it.value.value.clone());
                assert!(value(&it).is_some() && value(&it) == value(&bare), "{before}: {name}");
            }
            assert_eq!(it.runtime_seconds.map(|it| it.value), Some(2441.04), "{before}");
            assert_eq!(it.memory.gpu_max.map(|it| it.value), Some(1.99), "{before}");
        }
        assert!(bare.began.is_none() && read("01/01/2026 00:00:00 - INFO - a - ").began.is_some());
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
            it.take(line.as_bytes(), b"", || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
            assert_eq!(it.runtime_seconds.map(|it| it.value), Some(2441.0), "{line}");
        }
        for line in ["train_runtime", "train_runtime = ", "train_runtime = 0:x", "\"train_runtime\": null"] {
            assert!(!is_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn the_time_before_a_line_is_kept_by_its_step() {
        let mut it = Training::default();
        let quote = || Quote::new(Spot { region: 0, line: 0 }, b"");
        for (before, line) in [
            (
                "[titan] 2025-06-16 22:30:50,322 - root - INFO - ",
                "step: 200  loss:  6.1  memory: 1GiB  tps: 5,856",
            ),
            (
                "[titan] 2025-06-16 22:31:04,322 - root - INFO - ",
                "step: 210  loss:  6.0  memory: 1GiB  tps: 5,593",
            ),
            ("2024-01-01T10:00:00Z ", "{'loss': 1.2, 'epoch': 0.1}"),
            ("2024-01-01T10:00:10Z ", "{'loss': 1.1, 'epoch': 0.2}"),
        ] {
            it.take(line.as_bytes(), before.as_bytes(), quote);
            it.take(format!("{before}{line}").as_bytes(), b"", quote);
        }
        assert_eq!(it.steps.at.growth(), [(210, 1.4)]);
        assert_eq!(it.steps.at_by_epoch.growth(), [(2000, 0.01)]);
    }

    #[test]
    fn values_without_the_number_of_a_step_are_in_order() {
        let mut it = Training::default();
        for line in [
            "[batch=5/20]:",
            "\t Train throughput/batches_per_sec: 0.5",
            "\t Train throughput/batches_per_sec: 0.25",
        ] {
            it.take(line.as_bytes(), b"", || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert_eq!(it.steps.rate.by_step(), [(1, 0.5), (2, 0.25)]);
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
            it.take(line.as_bytes(), b"", || Quote::new(Spot { region: 0, line: at }, line.as_bytes()));
        }
        let device = |object: &str| it.member(object, "device").map(|it| it.value.value.to_string());
        assert_eq!(device("offload_optimizer").as_deref(), Some("cpu"));
        assert_eq!(device("offload_param").as_deref(), Some("none"));
        assert_eq!(device("bf16"), None);
    }
}
