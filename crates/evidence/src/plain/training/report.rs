//! Lines in which trainers report the speed of a step.
//!
//! Each form has a text that no other line has, and the names that stand before its numbers.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

/// What one line reports.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Report {
    /// The number of the step.
    pub(super) number: Option<u64>,
    /// The epoch, where steps are not numbered.
    pub(super) epoch: Option<f64>,
    /// Seconds of a step.
    pub(super) seconds: Option<f64>,
    /// Seconds since training began.
    pub(super) elapsed: Option<f64>,
    /// Tokens per second of one GPU.
    pub(super) tokens_per_gpu: Option<f64>,
    /// Tokens per second of all.
    pub(super) tokens: Option<f64>,
    /// Samples per second of all.
    pub(super) samples: Option<f64>,
    /// Steps per second.
    pub(super) steps: Option<f64>,
    /// Samples of the step.
    pub(super) batch: Option<f64>,
    /// GPU memory at most, in GB.
    pub(super) memory: Option<f64>,
}

/// What a number is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Step,
    Epoch,
    Milliseconds,
    Seconds,
    Elapsed,
    TokensPerGpu,
    Tokens,
    Samples,
    Steps,
    Batch,
    /// In the unit that follows it, else in GiB.
    Memory,
    /// In MiB where no unit follows it.
    MemoryMib,
}

/// A form of line.
struct Form {
    /// A text that lines of this form have and others do not.
    mark: &'static str,
    /// What else they have.
    with: &'static str,
    /// What stands before a number, and what the number is. Of several names for one thing the first that is there counts.
    names: &'static [(&'static str, Is)],
}

// nanoGPT (train.py), litgpt (pretrain.py), Megatron-LM (training.py: `training_log`), Megatron-DeepSpeed, GPT-NeoX, DeepSpeed (utils/timer.py:
// `ThroughputTimer`, runtime/pipe/engine.py, DeepSpeed-Chat), torchtitan (components/metrics.py), Composer and llm-foundry
// (`SpeedMonitor` on the console), OLMo, NeMo, Megatron-Bridge, MaxText, LLaMA-Factory (trainer_log.jsonl), torchtune, and the Trainer of
// Hugging Face with TRL and Axolotl.
static FORMS: &[Form] = &[
    Form {
        mark: "iter ",
        with: "loss",
        names: &[
            ("iter ", Is::Step),
            ("iter time: ", Is::Milliseconds),
            ("time: ", Is::Milliseconds),
            (" time ", Is::Milliseconds),
            ("speed: ", Is::TokensPerGpu),
        ],
    },
    Form {
        mark: "elapsed time per iteration (ms): ",
        with: "iteration ",
        names: &[
            ("iteration ", Is::Step),
            ("elapsed time per iteration (ms): ", Is::Milliseconds),
            ("tokens per gpu per second (tgs): ", Is::TokensPerGpu),
            ("samples per second: ", Is::Samples),
            ("samples/sec: ", Is::Samples),
            ("global batch size: ", Is::Batch),
        ],
    },
    Form {
        mark: "SamplesPerSec=",
        with: "",
        names: &[
            ("global_step=", Is::Step),
            (" 0/", Is::Step),
            ("CurrSamplesPerSec=", Is::Samples),
            (", SamplesPerSec=", Is::Samples),
            ("MaxMemAllocated=", Is::Memory),
        ],
    },
    Form {
        mark: "iter time (s): ",
        with: "step",
        names: &[
            ("steps: ", Is::Step),
            ("step: ", Is::Step),
            ("step=", Is::Step),
            ("iter time (s): ", Is::Seconds),
            ("samples/sec: ", Is::Samples),
        ],
    },
    Form {
        mark: " tps: ",
        with: "step: ",
        names: &[("step: ", Is::Step), (" tps: ", Is::TokensPerGpu), ("memory: ", Is::Memory)],
    },
    Form {
        mark: "throughput/",
        with: "",
        names: &[
            ("throughput/device/tokens_per_sec", Is::TokensPerGpu),
            ("throughput/tokens_per_sec", Is::Tokens),
            ("throughput/samples_per_sec", Is::Samples),
            ("throughput/batches_per_sec", Is::Steps),
        ],
    },
    Form {
        mark: "memory/peak_",
        with: "_mem",
        names: &[("memory/peak_reserved_mem", Is::Memory), ("memory/peak_allocated_mem", Is::Memory)],
    },
    Form {
        mark: "train_step_timing in s",
        with: "",
        names: &[
            ("global_step", Is::Step),
            ("train_step_timing in s", Is::Seconds),
            ("global_batch_size: ", Is::Batch),
        ],
    },
    Form {
        mark: "completed step: ",
        with: "seconds: ",
        names: &[
            ("completed step: ", Is::Step),
            ("seconds: ", Is::Seconds),
            ("Tokens/s/device: ", Is::TokensPerGpu),
        ],
    },
    Form {
        mark: "\"current_steps\": ",
        with: "",
        names: &[
            ("\"current_steps\": ", Is::Step),
            ("\"elapsed_time\": ", Is::Elapsed),
            ("\"throughput\": ", Is::Tokens),
        ],
    },
    Form { mark: "Step Time : ", with: "", names: &[("Step Time : ", Is::Seconds)] },
    Form {
        mark: "tokens_per_second_per_gpu:",
        with: "Step ",
        names: &[
            ("Step ", Is::Step),
            ("tokens_per_second_per_gpu:", Is::TokensPerGpu),
            ("peak_memory_active:", Is::Memory),
        ],
    },
    Form { mark: "Latency: ", with: "Samples/sec: ", names: &[("Latency: ", Is::Seconds)] },
    Form {
        mark: "{'loss': ",
        with: "",
        names: &[
            ("'epoch': ", Is::Epoch),
            ("'step_time': ", Is::Seconds),
            ("'train_runtime': ", Is::Elapsed),
            ("'tokens_per_second_per_gpu': ", Is::TokensPerGpu),
            ("'tokens/train_per_sec_per_gpu': ", Is::TokensPerGpu),
            ("'memory/max_allocated (GiB)': ", Is::Memory),
            ("'memory/max_mem_allocated(gib)': ", Is::Memory),
        ],
    },
    Form { mark: "max allocated: ", with: "memory (MB)", names: &[("max allocated: ", Is::MemoryMib)] },
    Form { mark: "memory allocated", with: "", names: &[("memory allocated", Is::Memory)] },
    Form { mark: "Memory used: ", with: "GB", names: &[("Memory used: ", Is::Memory)] },
    Form { mark: "eak memory", with: "", names: &[("eak memory", Is::Memory)] },
];

const GIB: f64 = 1.073_741_824;

/// What a line reports; none where it reports nothing.
pub(super) fn read(line: &str) -> Option<Report> {
    static MARKS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let marks = MARKS.get_or_init(|| AhoCorasick::new(FORMS.iter().map(|it| it.mark)).ok()).as_ref()?;
    // A table in which a model is evaluated has the same names.
    if line.contains("validate step") {
        return None;
    }
    let found = marks.find_overlapping_iter(line).filter_map(|it| FORMS.get(it.pattern().as_usize()));
    found.filter(|it| line.contains(it.with)).find_map(|it| it.read(line))
}

/// Whether a line may be one: quick, and rarely wrong.
pub(super) fn is_line(inner: &[u8]) -> bool {
    str::from_utf8(inner).is_ok_and(|it| read(it).is_some())
}

impl Form {
    fn read(&self, line: &str) -> Option<Report> {
        let mut report = Report::default();
        for (name, is) in self.names {
            let Some(after) = line.split_once(name).map(|it| it.1) else { continue };
            report.take(after, *is);
        }
        let Report { seconds, elapsed, tokens_per_gpu, tokens, samples, steps, memory, epoch, .. } = report;
        let any = [seconds, elapsed, tokens_per_gpu, tokens, samples, steps, memory, epoch];
        any.iter().any(Option::is_some).then_some(report)
    }
}

impl Report {
    fn take(&mut self, after: &str, is: Is) {
        let text = after.trim_start_matches(|it: char| {
            it.is_ascii_alphabetic()
                && matches!(is, Is::Memory | Is::TokensPerGpu | Is::Tokens | Is::Samples | Is::Steps)
                || matches!(it, ' ' | ':' | '=' | '\'' | '"')
        });
        if is == Is::Elapsed && text.get(..8).is_some_and(|it| it.contains(':')) {
            set(&mut self.elapsed, clock(text));
            return;
        }
        let end =
            text.find(|it: char| !it.is_ascii_digit() && !matches!(it, '.' | ',' | 'e' | 'E' | '-' | '+'));
        let (number, unit) = text.split_at(end.unwrap_or(text.len()));
        // `3,456` has a thousand; a comma before a blank ends the number.
        let number = number.trim_end_matches([',', '.', 'e', 'E', '-', '+']).replace(',', "");
        let Some(value) = number.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0) else {
            return;
        };
        let positive = Some(value).filter(|it| *it > 0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float becomes the nearest number"
        )]
        match is {
            Is::Step => {
                self.number = self.number.or(Some(value as u64));
            }
            Is::Epoch => set(&mut self.epoch, Some(value)),
            Is::Milliseconds => set(&mut self.seconds, positive.map(|it| it / 1e3)),
            Is::Seconds => set(&mut self.seconds, positive),
            Is::Elapsed => set(&mut self.elapsed, positive),
            Is::TokensPerGpu => set(&mut self.tokens_per_gpu, positive),
            Is::Tokens => set(&mut self.tokens, positive),
            Is::Samples => set(&mut self.samples, positive),
            Is::Steps => set(&mut self.steps, positive),
            Is::Batch => set(&mut self.batch, positive),
            Is::Memory | Is::MemoryMib => set(&mut self.memory, positive.map(|it| it * unit_of(unit, is))),
        }
    }
}

fn set(slot: &mut Option<f64>, value: Option<f64>) {
    *slot = slot.or(value);
}

/// What the unit after a number is in GB. Some trainers divide by a power of two and write GB: that is left as written.
fn unit_of(text: &str, is: Is) -> f64 {
    let text = text.trim_start();
    let starts = |unit: &str| text.get(..unit.len()).is_some_and(|it| it.eq_ignore_ascii_case(unit));
    match is {
        _ if starts("GiB") => GIB,
        _ if starts("MiB") || starts("MB") => GIB / 1024.0,
        Is::MemoryMib => GIB / 1024.0,
        _ if starts("bytes") => 1e-9,
        _ => 1.0,
    }
}

/// `0:00:35`
fn clock(text: &str) -> Option<f64> {
    let end = text.find(|it: char| !it.is_ascii_digit() && !matches!(it, ':' | '.')).unwrap_or(text.len());
    let mut parts = text.get(..end)?.split(':').map(|it| it.parse::<f64>().ok());
    parts.try_fold(0.0, |sum, it| Some(sum * 60.0 + it?)).filter(|it| *it > 0.0)
}

#[cfg(test)]
mod tests {
    use super::{Report, read};

    fn of(line: &str) -> Report {
        read(line).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn times_of_steps() {
        for (line, number, seconds) in [
            ("iter 83594: loss 1.9491, time: 6235.95ms, speed: 1771 toks/s/device", 83_594, 6.23595),
            ("iter 10: loss 10.9858, time 456.78ms, mfu 12.00%", 10, 0.45678),
            (
                "Epoch 1 | iter 8 step 2 | loss train: 10.1, val: n/a | iter time: 350.56 ms (step)",
                8,
                0.35056,
            ),
            (
                " iteration       10/     500 | consumed samples:  5120 | elapsed time per iteration (ms): 5234.5 | learning rate: 1e-4 |",
                10,
                5.2345,
            ),
            (
                " samples/sec: 7.799 | iteration       34/   10000 | elapsed time per iteration (ms): 4103.1 | lm_loss: 1.1E+01 |",
                34,
                4.1031,
            ),
            ("steps: 40 loss: 3.1416 iter time (s): 0.345 samples/sec: 741.232", 40, 0.345),
            (
                "Training epoch 0, iteration 9/99 | lr: 1e-05 | global_batch_size: 16 | global_step: 9 | reduced_train_loss: 11.03 | train_step_timing in s: 5.42",
                9,
                5.42,
            ),
            (
                "completed step: 5, seconds: 2.341, TFLOP/s/device: 151.2, Tokens/s/device: 3500.1, loss: 9.8",
                5,
                2.341,
            ),
        ] {
            let it = of(line);
            assert_eq!(it.number, Some(number), "{line}");
            assert!((it.seconds.unwrap() - seconds).abs() < 1e-9, "{line}");
        }
    }

    #[test]
    fn the_batch_of_a_step() {
        let megatron = of(
            " iteration        1/     100 | consumed samples:          128 | elapsed time per iteration (ms): 9000.0 | global batch size:   128 | lm loss: 1.1E+01 |",
        );
        assert_eq!((megatron.number, megatron.batch), (Some(1), Some(128.0)));
        let nemo = of(
            "Training epoch 0, iteration 9/99 | lr: 1e-05 | global_batch_size: 16 | global_step: 9 | train_step_timing in s: 5.42",
        );
        assert_eq!((nemo.number, nemo.batch), (Some(9), Some(16.0)));
        let without = of(" iteration 1/ 100 | elapsed time per iteration (ms): 9000.0 | lm loss: 1.1E+01 |");
        assert_eq!(without.batch, None);
    }

    #[test]
    fn rates_and_memory() {
        let deepspeed = of(
            "epoch=0/micro_step=40/global_step=10, RunningAvgSamplesPerSec=12.3, CurrSamplesPerSec=12.4, MemAllocated=5.0GB, MaxMemAllocated=20.1GB",
        );
        assert_eq!(
            (deepspeed.number, deepspeed.samples, deepspeed.memory),
            (Some(10), Some(12.4), Some(20.1))
        );
        let old =
            of("[timer.py:189:stop] 0/40, SamplesPerSec=83.486, MemAllocated=0.26GB, MaxMemAllocated=9.02GB");
        assert_eq!((old.number, old.samples), (Some(40), Some(83.486)));
        let titan = of(
            "step: 14  loss:  3.2  grad_norm:  0.8  memory: 10.00GiB(64.99%)  tps: 7,282  tflops: 0.52  mfu: 0.17%",
        );
        assert_eq!((titan.number, titan.tokens_per_gpu), (Some(14), Some(7282.0)));
        assert!((titan.memory.unwrap() - 10.737_418_24).abs() < 1e-9);
        assert_eq!(
            of("\t Train throughput/device/tokens_per_sec: 1255.1776").tokens_per_gpu,
            Some(1255.1776)
        );
        assert_eq!(of("    throughput/device/tokens_per_second=9,012").tokens_per_gpu, Some(9012.0));
        assert_eq!(of("\t Train throughput/batches_per_sec: 0.1085").steps, Some(0.1085));
        let factory = of(
            "{\"current_steps\": 10, \"total_steps\": 300, \"loss\": 1.2, \"elapsed_time\": \"0:01:35\", \"throughput\": 1234.5}",
        );
        assert_eq!((factory.number, factory.elapsed, factory.tokens), (Some(10), Some(95.0), Some(1234.5)));
        let megatron = of(
            "[Rank 0] (after 1 iterations) memory (MB) | allocated: 100.0 | max allocated: 2048.0 | reserved: 3.0",
        );
        assert!((megatron.memory.unwrap() - 2.147_483_648).abs() < 1e-9);
        assert_eq!(of("Max CUDA memory allocated was 15 GB").memory, Some(15.0));
    }

    #[test]
    fn the_trainer_counts_epochs() {
        let it = of(
            "{'loss': '7.116', 'grad_norm': '3.348', 'epoch': '0.625', 'num_input_tokens_seen': 10240, 'train_runtime': '2.435'}",
        );
        assert_eq!((it.epoch, it.elapsed, it.number), (Some(0.625), Some(2.435), None));
    }

    #[test]
    fn other_lines_report_nothing() {
        for line in [
            "step: 10 loss: 3",
            "https: //x tps: 4",
            "CurrSamplesPerSec",
            "print(f\"iter time (s): {iter_time}\")",
            "validate step: 10  loss: 8.1  memory: 10.00GiB(12.64%)  tps: 3,456",
            "SamplesPerSec=nan",
            "iter one: loss",
            "memory allocated",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
