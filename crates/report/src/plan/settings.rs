//! The best layout in the settings of a framework.

use forecast::training::{Framework, Job, Precision, Recompute, models, pipeline_layout};
use manifest::Variable;
use serde_json::{Value, json};

/// What settings are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Arguments of Megatron-LM's `pretrain_gpt.py`.
    Megatron,
    /// `DeepSpeed`'s JSON.
    DeepSpeed,
    /// `TrainingArguments` of Hugging Face, with FSDP.
    Fsdp,
    /// The TOML of torchtitan.
    Torchtitan,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Megatron, Self::DeepSpeed, Self::Fsdp, Self::Torchtitan];

    /// As `--emit` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::DeepSpeed => "deepspeed",
            Self::Fsdp => "fsdp",
            Self::Torchtitan => "torchtitan",
        }
    }

    fn framework(self) -> Framework {
        match self {
            Self::Megatron => Framework::Megatron,
            Self::DeepSpeed => Framework::DeepSpeed,
            Self::Fsdp | Self::Torchtitan => Framework::Fsdp,
        }
    }

    /// The settings of a job, or why this framework has none for it.
    pub fn settings(self, job: &Job) -> Result<String, String> {
        let run = &job.run;
        if self.framework() != run.framework {
            return Err(format!(
                "the plan is for `framework` = {}, and its layout for that: --emit {} needs another [run]",
                run.framework.name(),
                self.name()
            ));
        }
        let split = |name: &str| {
            format!(
                "{name} has no tensor, pipeline or context parallelism, which the best layout uses: fix them with --fix tp=1"
            )
        };
        let plain = run.model_ranks() == 1;
        let name = match self {
            Self::DeepSpeed => "DeepSpeed's JSON",
            _ => "TrainingArguments with FSDP",
        };
        let elsewhere = if self == Self::Fsdp { ", or use --emit torchtitan" } else { "" };
        match self {
            Self::Megatron => Ok(lines(&megatron(job))),
            Self::DeepSpeed | Self::Fsdp if run.ep > 1 => Err(format!(
                "{name} has no expert parallelism, which the best layout uses: fix it with --fix ep=1{elsewhere}"
            )),
            Self::DeepSpeed | Self::Fsdp if run.precision == Precision::Fp8 => {
                Err(format!("{name} has no FP8: set `precision` in [run] to bf16{elsewhere}"))
            }
            Self::DeepSpeed if plain => pretty(&deepspeed(job)),
            Self::DeepSpeed => Err(split(name)),
            Self::Fsdp if plain => pretty(&fsdp(job)),
            Self::Fsdp => Err(format!("{}{elsewhere}", split(name))),
            Self::Torchtitan => Ok(torchtitan(job)),
        }
    }
}

/// The program of a rank for a manifest: the one given, or the framework's usual one; Megatron-LM's takes the layout as arguments.
pub fn command(job: &Job, given: &[String]) -> Vec<String> {
    let usual: &[&str] = match job.run.framework {
        Framework::Megatron => &["pretrain_gpt.py"],
        Framework::DeepSpeed => &["train.py", "--deepspeed", "ds_config.json"],
        Framework::Fsdp | Framework::Ddp => &["train.py"],
    };
    let mut words =
        if given.is_empty() { usual.iter().map(|it| (*it).to_owned()).collect() } else { given.to_vec() };
    if job.run.framework == Framework::Megatron {
        words.extend(megatron(job));
    }
    words
}

/// Variables without which the program of a rank does not start.
pub fn variables(job: &Job) -> Vec<Variable> {
    let run = &job.run;
    // Its FSDP refuses to start with it.
    let ordered = run.framework == Framework::Megatron && run.zero < 2 && (run.tp > 1 || run.cp > 1);
    let mut all = Vec::new();
    // `megatron/training/arguments.py` of core 0.13.0 to 0.19.0 refuses to start without it before Blackwell.
    if ordered && job.cluster.gpu.compute < 100 {
        all.push(Variable {
            name: "CUDA_DEVICE_MAX_CONNECTIONS",
            value: "1",
            why: "Megatron-LM refuses tensor and context parallelism without it before Blackwell.",
        });
    }
    all
}

fn pretty(value: &Value) -> Result<String, String> {
    serde_json::to_string_pretty(value).map(|it| it + "\n").map_err(|error| error.to_string())
}

/// Arguments for a shell, one option on each line.
fn lines(words: &[String]) -> String {
    let mut text = String::new();
    for word in words {
        if word.starts_with("--") {
            text.push_str(if text.is_empty() { "" } else { " \\\n" });
        } else {
            text.push(' ');
        }
        let plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
        if word.chars().all(plain) {
            text.push_str(word);
        } else {
            text.push_str(&format!("'{word}'"));
        }
    }
    text.push('\n');
    text
}

fn accumulation(job: &Job) -> u64 {
    let dp = job.cluster.ranks() / job.run.model_ranks().max(1);
    u64::from(job.run.global_batch) / u64::from(job.run.micro_batch).saturating_mul(dp).max(1)
}

/// Options of `megatron/training/arguments.py` and of the configurations it makes options of; checked against core 0.13.0 and 0.19.0.
fn megatron(job: &Job) -> Vec<String> {
    let (model, run) = (&job.model, &job.run);
    let mut words: Vec<String> = Vec::new();
    let mut set = |name: &str, value: Option<u64>| {
        words.push(format!("--{name}"));
        words.extend(value.map(|it| it.to_string()));
    };
    let number = |it: u32| Some(u64::from(it));
    set("num-layers", number(model.layers));
    set("hidden-size", number(model.hidden));
    set("ffn-hidden-size", number(model.ffn));
    set("num-attention-heads", number(model.heads));
    if let Some(latent) = job.model_name.as_deref().and_then(models::latent) {
        set("multi-latent-attention", None);
        set("q-lora-rank", number(latent.q_lora_rank));
        set("kv-lora-rank", number(latent.kv_lora_rank));
        set("qk-head-dim", number(latent.qk_nope_head_dim));
        set("qk-pos-emb-head-dim", number(latent.qk_rope_head_dim));
        set("v-head-dim", number(latent.v_head_dim));
    } else {
        if model.kv_heads != model.heads {
            set("group-query-attention", None);
            set("num-query-groups", number(model.kv_heads));
        }
        if u64::from(model.head_width) * u64::from(model.heads) != u64::from(model.hidden) {
            set("kv-channels", number(model.head_width));
        }
    }
    if model.gated {
        // Models with a gate are of Llama's kind: rotary positions, RMSNorm, no biases.
        set("swiglu", None);
        set("disable-bias-linear", None);
    }
    if !model.tied {
        set("untie-embeddings-and-output-weights", None);
    }
    if let Some(experts) = model.experts {
        set("num-experts", number(experts.count));
        set("moe-router-topk", number(experts.per_token));
        set("moe-ffn-hidden-size", number(experts.ffn));
        if experts.shared > 0 {
            set(
                "moe-shared-expert-intermediate-size",
                Some(u64::from(experts.shared) * u64::from(experts.ffn)),
            );
        }
        set("moe-grouped-gemm", None);
        set("expert-model-parallel-size", number(run.ep));
        if run.ep > 1 && run.tp > 1 {
            // Without it, experts are split over the ranks of tensor parallelism.
            set("expert-tensor-parallel-size", Some(1));
        }
    }
    set("vocab-size", number(model.vocab));
    set("seq-length", number(run.seq));
    set("max-position-embeddings", number(run.seq));
    set("micro-batch-size", number(run.micro_batch));
    set("global-batch-size", number(run.global_batch));
    set("tensor-model-parallel-size", number(run.tp));
    set("pipeline-model-parallel-size", number(run.pp));
    set("context-parallel-size", number(run.cp));
    let uneven = !model.layers.is_multiple_of(run.pp.max(1));
    let with_tables = uneven && model.layers.saturating_add(2).is_multiple_of(run.pp);
    if run.vpp > 1 {
        let layers = model.layers + if with_tables { 2 } else { 0 };
        set("num-layers-per-virtual-pipeline-stage", number(layers / (run.pp * run.vpp).max(1)));
    }
    if with_tables {
        set("account-for-embedding-in-pipeline-split", None);
        set("account-for-loss-in-pipeline-split", None);
    }
    if run.sequence_parallel && run.tp > 1 {
        set("sequence-parallel", None);
    }
    let overlaps = run.overlap.unwrap_or(run.flash_attention);
    if overlaps {
        set("overlap-grad-reduce", None);
    }
    if run.zero > 0 {
        set("use-distributed-optimizer", None);
        if overlaps {
            set("overlap-param-gather", None);
        }
    }
    if run.zero > 1 {
        set("use-megatron-fsdp", None);
        words.push("--data-parallel-sharding-strategy".to_owned());
        words.push(if run.zero == 2 { "optim_grads" } else { "optim_grads_params" }.to_owned());
        words.extend(["--ckpt-format", "fsdp_dtensor"].map(str::to_owned));
    }
    if run.offload.optimizer {
        words.extend(["--optimizer-cpu-offload", "--use-precision-aware-optimizer"].map(str::to_owned));
    }
    if let Some(layout) = pipeline_layout(model.layers, run.pp) {
        words.extend(["--pipeline-model-parallel-layout".to_owned(), layout]);
    }
    if model.gated {
        words.extend(["--position-embedding-type", "rope", "--normalization", "RMSNorm"].map(str::to_owned));
    }
    if let Some(experts) = model.experts {
        words.extend(["--moe-token-dispatcher-type", "alltoall"].map(str::to_owned));
        if run.expert_overlap {
            words.push("--overlap-moe-expert-parallel-comm".to_owned());
        }
        let dense = model.layers.saturating_sub(experts.layers);
        if dense > 0 {
            words.extend(["--moe-layer-freq".to_owned(), format!("([0]*{dense}+[1]*{})", experts.layers)]);
        }
    }
    let more: &[&str] = match run.recompute {
        Recompute::None => &[],
        Recompute::Selective => &["--recompute-granularity", "selective"],
        Recompute::Full => &[
            "--recompute-granularity",
            "full",
            "--recompute-method",
            "uniform",
            "--recompute-num-layers",
            "1",
        ],
    };
    words.extend(more.iter().map(|it| (*it).to_owned()));
    let precision: &[&str] = match run.precision {
        Precision::Fp16 => &["--fp16"],
        Precision::Bf16 => &["--bf16"],
        Precision::Fp8 => &["--bf16", "--fp8-format", "hybrid"],
    };
    words.extend(precision.iter().map(|it| (*it).to_owned()));
    if run.precision != Precision::Fp16 && run.gradient_bytes() < 4.0 {
        // Without it, BF16 means that gradients are reduced in FP32.
        words.push("--grad-reduce-in-bf16".to_owned());
    }
    words.push("--attention-backend".to_owned());
    words.push(if run.flash_attention { "auto" } else { "unfused" }.to_owned());
    words
}

/// Keys of `deepspeed/runtime/constants.py`, `runtime/zero/config.py` and `runtime/zero/offload_config.py`, 0.19.6.
fn deepspeed(job: &Job) -> Value {
    let run = &job.run;
    let mut zero = json!({ "stage": run.zero });
    if run.zero > 0 {
        zero["overlap_comm"] = json!(run.overlap.unwrap_or(true));
        zero["contiguous_gradients"] = json!(true);
    }
    for (key, on) in [("offload_param", run.offload.params), ("offload_optimizer", run.offload.optimizer)] {
        if on {
            zero[key] = json!({ "device": "cpu", "pin_memory": true });
        }
    }
    let half = if run.precision == Precision::Fp16 { "fp16" } else { "bf16" };
    json!({
        "train_batch_size": run.global_batch,
        "train_micro_batch_size_per_gpu": run.micro_batch,
        "gradient_accumulation_steps": accumulation(job),
        half: { "enabled": true },
        "zero_optimization": zero,
    })
}

/// Fields of `TrainingArguments` (transformers, `docs/source/en/fsdp.md`).
fn fsdp(job: &Job) -> Value {
    let run = &job.run;
    let half = if run.precision == Precision::Fp16 { "fp16" } else { "bf16" };
    json!({
        "per_device_train_batch_size": run.micro_batch,
        "gradient_accumulation_steps": accumulation(job),
        half: true,
        "fsdp": true,
        "fsdp_config": {
            "version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "reshard_after_forward": run.zero == 3,
            "cpu_offload": run.offload.params,
            "activation_checkpointing": run.recompute == Recompute::Full,
        },
    })
}

/// Keys of torchtitan 0.2.2, `torchtitan/config/job_config.py`.
fn torchtitan(job: &Job) -> String {
    let run = &job.run;
    let dp = job.cluster.ranks() / run.model_ranks().max(1);
    // A pipeline takes all its micro-batches at once.
    let local =
        if run.pp > 1 { u64::from(run.micro_batch) * accumulation(job) } else { u64::from(run.micro_batch) };
    let reshard = if run.zero == 3 { "always" } else { "never" };
    let mut text = format!(
        "[training]\nlocal_batch_size = {local}\nglobal_batch_size = {}\nseq_len = {}\nenable_cpu_offload = {}\n\n\
         [parallelism]\ndata_parallel_replicate_degree = 1\ndata_parallel_shard_degree = {dp}\n\
         fsdp_reshard_after_forward = \"{reshard}\"\ntensor_parallel_degree = {}\ncontext_parallel_degree = {}\n\
         pipeline_parallel_degree = {}\n",
        run.global_batch, run.seq, run.offload.params, run.tp, run.cp, run.pp
    );
    if run.pp > 1 {
        text.push_str(&format!("pipeline_parallel_microbatch_size = {}\n", run.micro_batch));
    }
    if job.model.experts.is_some() {
        text.push_str(&format!("expert_parallel_degree = {}\n", run.ep));
    }
    text.push_str(&format!("\n[activation_checkpoint]\nmode = \"{}\"\n", run.recompute.name()));
    if run.precision == Precision::Fp8 {
        // Its kernels for scales are fused by the compiler (`docs/float8.md`).
        text.push_str("\n[model]\nconverters = [\"quantize.linear.float8\"]\n\n[compile]\nenable = true\n");
    }
    text
}
