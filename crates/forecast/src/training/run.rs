//! How a model is trained: the layout over ranks and the settings of the framework.

use serde_json::Value;

use super::hardware::Gpu;

/// What trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// Megatron-LM, Megatron-Core, `NeMo`, Megatron-DeepSpeed.
    Megatron,
    /// `DeepSpeed`'s `ZeRO`.
    DeepSpeed,
    /// PyTorch's fully sharded data parallelism.
    Fsdp,
    /// PyTorch's data parallelism.
    Ddp,
}

impl Framework {
    /// As a job file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::DeepSpeed => "deepspeed",
            Self::Fsdp => "fsdp",
            Self::Ddp => "ddp",
        }
    }
}

/// The precision of matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// FP16, with gradients in FP16.
    Fp16,
    /// BF16, with gradients added up in FP32.
    Bf16,
    /// FP8 in the layers, BF16 elsewhere.
    Fp8,
}

impl Precision {
    /// As a job file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }
}

/// What is computed again in the backward pass instead of kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    None,
    /// The core of the attention.
    Selective,
    /// Every layer, from its input.
    Full,
}

impl Recompute {
    /// As a job file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Full => "full",
        }
    }
}

/// The releases of CUDA, cuBLAS and PyTorch that a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libraries {
    /// Those of 2021 and early 2022.
    Early,
    /// Later ones.
    Current,
}

impl Libraries {
    /// As a job file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Early => "2021",
            Self::Current => "current",
        }
    }
}

/// What a model is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelCode {
    /// Norms, positions and activations are one kernel each, made by hand or by a compiler.
    Fused,
    /// The models of transformers as they are: several kernels each.
    Transformers,
}

impl ModelCode {
    /// As a job file names it.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "fused" => Some(Self::Fused),
            "transformers" => Some(Self::Transformers),
            _ => None,
        }
    }
}

/// What rests in the memory of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Offload {
    /// Parameters.
    pub params: bool,
    /// States of the optimizer, which then runs on the CPU.
    pub optimizer: bool,
}

/// Bytes that adding up gradients moves for each weight and micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Added {
    /// By kernels of their own.
    pub(crate) apart: f64,
    /// By the product that makes the gradients.
    pub(crate) beside: f64,
}

/// A layout and its settings. Data parallelism is what remains of the ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// What trains.
    pub framework: Framework,
    /// Tensor parallelism.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Pieces of the model that each stage holds, in an interleaved schedule.
    pub vpp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Expert parallelism, inside of data parallelism.
    pub ep: u32,
    /// Ranks over which one expert is split, with expert parallelism.
    pub etp: u32,
    /// The stage of `ZeRO`; 3 for FSDP with full sharding.
    pub zero: u32,
    /// What rests in the memory of the host.
    pub offload: Offload,
    /// Tokens of a sequence.
    pub seq: u32,
    /// Sequences of a micro-batch.
    pub micro_batch: u32,
    /// Sequences of a step.
    pub global_batch: u32,
    /// The precision of matrix products.
    pub precision: Precision,
    /// What is computed again.
    pub recompute: Recompute,
    /// Whether norms and dropouts are split over the ranks of tensor parallelism.
    pub sequence_parallel: bool,
    /// Whether attention is one kernel that keeps no scores.
    pub flash_attention: bool,
    /// CPU threads of a rank; `None` for what the launcher sets.
    pub omp_threads: Option<u32>,
    /// Whether communication of data parallelism runs beside the backward pass; `None` for what the framework does.
    pub overlap: Option<bool>,
    /// Whether tokens travel to experts and back while another micro-batch is computed.
    pub expert_overlap: bool,
    /// The libraries that it runs with; `None` for what such runs usually had.
    pub libraries: Option<Libraries>,
    /// Whether the CPU waits for each kernel before it starts the next one, `CUDA_LAUNCH_BLOCKING=1`; `None` for what such runs
    /// usually did.
    pub launch_blocking: Option<bool>,
    /// Whether gradients are reduced in 16 bits or in FP32; `None` for what the framework does.
    pub reduces_half: Option<bool>,
    /// What the model is written in.
    pub model_code: ModelCode,
    /// Whether Megatron is that of DeepSpeed; `None` for what attention and `ZeRO` say.
    pub with_deepspeed: Option<bool>,
}

/// What a prediction takes where nothing says in which precision gradients are reduced: the time of one and the memory of the other.
pub(crate) const SENT_IN_HALF: &str = "assumed: gradients sent in 16 bits, as NVIDIA's recipes do, from a buffer that has room for FP32; `reduce_dtype = \"fp32\"` is Megatron-LM's own default";
/// What a plan takes, and writes down.
const SUMMED_IN_HALF: &str = "chosen: gradients added up and sent in 16 bits, as NVIDIA's recipes do (--grad-reduce-in-bf16); `reduce_dtype = \"fp32\"` is Megatron-LM's own default";

impl Run {
    /// The same run with its software said: another layout of it does not change what it runs with.
    #[must_use]
    pub(crate) fn settled(self, gpu: &Gpu) -> Self {
        let early = self.has_early_libraries(gpu);
        Self {
            libraries: Some(if early { Libraries::Early } else { Libraries::Current }),
            launch_blocking: Some(self.starts_one_by_one()),
            with_deepspeed: Some(self.is_megatron_deepspeed()),
            ..self
        }
    }

    /// The keys of a job file that say what it runs with, where a reader would take it for something else.
    pub(crate) fn software(&self) -> Vec<(&'static str, Value)> {
        let silent = Self { libraries: None, launch_blocking: None, with_deepspeed: None, ..*self };
        let other = silent.is_megatron_deepspeed() != self.is_megatron_deepspeed();
        let framework = match self.with_deepspeed.filter(|_| other) {
            Some(true) => "megatron-deepspeed",
            Some(false) => "megatron-lm",
            None => self.framework.name(),
        };
        let mut keys = vec![("framework", framework.into())];
        let early = self.libraries.filter(|it| *it == Libraries::Early || self.is_taken_for_early());
        keys.extend(early.map(|it| ("libraries", it.name().into())));
        let waits = self.launch_blocking.filter(|it| *it != self.is_megatron_deepspeed());
        keys.extend(waits.map(|it| ("launch_blocking", it.into())));
        keys
    }

    /// Ranks that hold different parts of the model or of a sequence.
    pub fn model_ranks(&self) -> u64 {
        (u64::from(self.tp) * u64::from(self.pp)).saturating_mul(self.cp.into())
    }

    /// Whether communication of data parallelism runs beside the backward pass. Megatron had no such option before releases
    /// with flash attention.
    pub(crate) fn overlaps(&self) -> bool {
        self.overlap.unwrap_or(match self.framework {
            Framework::Megatron => self.flash_attention,
            Framework::DeepSpeed | Framework::Fsdp | Framework::Ddp => true,
        })
    }

    /// Whether the run is of the time before flash attention: Megatron-DeepSpeed and Megatron-LM up to 2022.
    pub(crate) fn is_early_megatron(&self) -> bool {
        self.framework == Framework::Megatron && !self.flash_attention
    }

    /// Whether the run has the libraries of 2021 and 2022. If it does not say: Megatron and DeepSpeed with FP16, which BF16 replaced
    /// on A100 in 2022, and Megatron-DeepSpeed.
    pub(crate) fn has_early_libraries(&self, gpu: &Gpu) -> bool {
        match self.libraries {
            Some(libraries) => libraries == Libraries::Early,
            None => gpu.is_a100() && self.is_taken_for_early(),
        }
    }

    /// Whether runs like it had such libraries on A100.
    fn is_taken_for_early(&self) -> bool {
        let replaced = self.precision == Precision::Fp16
            && matches!(self.framework, Framework::Megatron | Framework::DeepSpeed);
        self.is_megatron_deepspeed() || replaced
    }

    /// Whether `ZeRO`-3 gathers and reduces each tensor alone, into a list of parts that it copies one by one, and waits for it:
    /// DeepSpeed before 0.6 (early 2022), which fetches them together and ahead.
    pub(crate) fn gathers_each_tensor(&self, gpu: &Gpu) -> bool {
        self.framework == Framework::DeepSpeed && self.zero == 3 && self.has_early_libraries(gpu)
    }

    /// Whether FSDP keeps gathered parameters and whole gradients until the step ends. With pipeline stages, PyTorch neither frees
    /// parameters nor reduces gradients between micro-batches.
    pub(crate) fn keeps_gathered(&self) -> bool {
        self.framework == Framework::Fsdp && self.zero > 0 && self.pp > 1
    }

    /// Whether FSDP keeps parameters, once gathered in 16 bits for the forward pass, until the backward pass is done: `SHARD_GRAD_OP`,
    /// `reshard_after_forward=False`.
    pub(crate) fn gathers_once(&self) -> bool {
        self.framework == Framework::Fsdp && matches!(self.zero, 1 | 2)
    }

    /// Whether the run is one of Megatron-DeepSpeed: Megatron of that time had no optimizer that is split over ranks.
    pub(crate) fn is_megatron_deepspeed(&self) -> bool {
        let megatron = self.framework == Framework::Megatron;
        megatron && self.with_deepspeed.unwrap_or(self.is_early_megatron() && self.zero > 0)
    }

    /// Whether the CPU waits for each kernel before it starts the next one. Megatron-DeepSpeed needed `CUDA_LAUNCH_BLOCKING=1`
    /// on more than 100 GPUs, or it hung (its runs for BLOOM, tr11-176B-ml, `chronicles-prequel.md`).
    pub(crate) fn starts_one_by_one(&self) -> bool {
        self.launch_blocking.unwrap_or(self.is_megatron_deepspeed())
    }

    /// What the run does not say and plumb takes from runs like it, in sentences with the key that says otherwise.
    pub(crate) fn usual_modes(&self, gpu: &Gpu) -> Vec<String> {
        let mut notes = Vec::new();
        let like = match self.framework {
            Framework::Megatron if self.is_megatron_deepspeed() => {
                "Megatron with ZeRO and without flash attention"
            }
            Framework::DeepSpeed => "DeepSpeed with FP16",
            _ => "Megatron with FP16",
        };
        if self.libraries.is_none() && self.has_early_libraries(gpu) {
            let releases = match self.framework {
                Framework::DeepSpeed => "DeepSpeed and CUDA",
                _ => "CUDA and cuBLAS",
            };
            notes.push(format!(
                "assumed: {releases} of 2021, as published runs of {like} on {} had; `libraries = \"current\"` for later ones",
                gpu.name
            ));
        }
        if self.launch_blocking.is_none() && self.starts_one_by_one() {
            notes.push(format!(
                "assumed: CUDA_LAUNCH_BLOCKING=1, as published runs of {like} had; `launch_blocking = false` without it"
            ));
        }
        if self.leaves_reduction_open() {
            notes.push(SENT_IN_HALF.to_owned());
        }
        notes
    }

    /// Whether nothing says in which precision Megatron reduces gradients.
    fn leaves_reduction_open(&self) -> bool {
        self.framework == Framework::Megatron
            && self.reduces_half.is_none()
            && self.precision != Precision::Fp16
            && !self.is_megatron_deepspeed()
    }

    /// The same run with the settings that a plan writes where the job is silent, and what it says of them.
    pub(crate) fn planned(self) -> (Self, Option<&'static str>) {
        // Megatron before 2023 has no other way to add up.
        if !self.leaves_reduction_open() || self.is_early_megatron() {
            return (self, None);
        }
        (Self { reduces_half: Some(true), ..self }, Some(SUMMED_IN_HALF))
    }

    /// Whether selective recomputation is PyTorch's by operator: attention and every second product are kept. Megatron's keeps all
    /// but the core of the attention.
    pub(crate) fn recomputes_operators(&self) -> bool {
        self.recompute == Recompute::Selective
            && self.flash_attention
            && matches!(self.framework, Framework::Fsdp | Framework::Ddp)
    }

    /// Whether scale, mask and softmax are one kernel, which needs a multiple of four rows of heads and sequences on a rank.
    pub(crate) fn fuses_softmax(&self, heads: u32) -> bool {
        (u64::from(heads / self.tp.max(1)) * u64::from(self.micro_batch)).is_multiple_of(4)
    }

    /// Ranks over which one expert is split: without expert parallelism those of tensor parallelism; with it, ranks of tensor parallelism
    /// may hold different experts (`--expert-tensor-parallel-size 1`).
    pub(crate) fn expert_width(&self) -> f64 {
        f64::from(if self.ep > 1 { self.etp } else { self.tp })
    }

    /// Ranks over which the experts of a layer are split.
    pub(crate) fn expert_split(&self) -> f64 {
        f64::from(self.ep) * self.expert_width()
    }

    /// Whether gradients of 16 bits are added to others in FP32 by kernels of their own: the BF16 optimizer of Megatron-DeepSpeed.
    pub(crate) fn adds_apart(&self) -> bool {
        self.is_megatron_deepspeed() && self.precision == Precision::Bf16
    }

    /// Whether the model is that of transformers.
    pub(crate) fn is_of_transformers(&self) -> bool {
        self.model_code == ModelCode::Transformers
    }

    /// Whether gradients go to the memory of the host after every micro-batch: `ZeRO`-2, `ZeRO`-3 and FSDP with the optimizer there,
    /// which keep a part of them. Megatron and `ZeRO`-1 add up whole gradients on the GPU and copy their part once a step
    /// (Megatron-Core, `param_and_grad_buffer.py`; DeepSpeed, `stage_1_and_2.py`).
    pub fn offloads_gradients(&self) -> bool {
        self.offload.optimizer
            && self.zero >= 2
            && matches!(self.framework, Framework::DeepSpeed | Framework::Fsdp)
            && !self.keeps_gathered()
    }

    /// Bytes to move for each weight to add up the gradients of a micro-batch.
    pub(crate) fn added(&self) -> Added {
        let (apart, beside) = match self.framework {
            // A kernel of its own reads the gradient, reads the sum and writes it, in the precision of the sum.
            Framework::Megatron if self.is_early_megatron() => match self.precision {
                Precision::Fp16 => (2.0 + 2.0 * 2.0, 0.0),
                Precision::Bf16 | Precision::Fp8 => (2.0 + 2.0 * 4.0, 0.0),
            },
            // The product itself reads the sum and writes it in FP32, not 16 bits. NVIDIA's recipes keep sums of 16 bits, and their runs
            // are met better with this too.
            Framework::Megatron => (0.0, 2.0 * 4.0 - 2.0),
            // Copied to the buffer that is reduced.
            Framework::DeepSpeed | Framework::Fsdp | Framework::Ddp => (2.0 * 2.0, 0.0),
        };
        Added { apart, beside }
    }

    /// Whether Megatron adds up gradients in 16 bits: its buffer has the precision in which it reduces them (Megatron-Core,
    /// `param_and_grad_buffer.py`, `group_params_for_buffers`). Where that is not known, as much memory is taken as FP32 needs.
    pub(crate) fn sums_in_half(&self) -> bool {
        self.framework == Framework::Megatron
            && !self.is_early_megatron()
            && !self.is_megatron_deepspeed()
            && self.reduces_half == Some(true)
    }

    /// Bytes in which gradients are sent. `DeepSpeed` sends 16 bits, and so does Megatron in NVIDIA's published runs (`NeMo`'s
    /// `grad_reduce_in_fp32=False`), while Megatron-LM's options for BF16 mean FP32 unless they say otherwise; PyTorch sends FP32
    /// unless it is told otherwise, as accelerate does.
    pub fn gradient_bytes(&self) -> f64 {
        if let Some(half) = self.reduces_half {
            return if half { 2.0 } else { 4.0 };
        }
        match (self.framework, self.precision) {
            (_, Precision::Fp16) | (Framework::DeepSpeed | Framework::Megatron, _) => 2.0,
            (Framework::Fsdp | Framework::Ddp, _) => 4.0,
        }
    }
}
