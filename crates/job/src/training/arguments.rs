//! `TrainingArguments` of Hugging Face, as JSON, YAML or on a command line, and the options of trainers that are like them.
//!
//! Names and defaults: transformers, `src/transformers/training_args.py`.

use super::draft::{Draft, Place, Weight};
use super::options::{Options, Setting};

/// Names by which settings are those of the Trainer.
pub(super) const OWN: [&str; 8] = [
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "model_name_or_path",
    "max_seq_length",
    "fsdp",
    "hidden_width",
    "max_context_width",
];

const ADAPTERS: &str = "plumb predict models the training of all parameters in 16 or 8 bits, not of adapters (LoRA) on frozen or quantised \
                        weights";

/// What the settings name besides.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Named {
    /// Settings of `DeepSpeed`, by file.
    pub(super) deepspeed: Option<(String, Place)>,
    /// The model, by name or folder.
    pub(super) model: Option<(String, Place)>,
}

/// Reads the settings of a trainer.
pub(super) fn read(options: &Options, place: &Place, draft: &mut Draft) -> Result<Named, Vec<Setting>> {
    let mut open = Vec::new();
    for (key, names) in [
        (
            "run.micro_batch",
            &["per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size", "batch_size"][..],
        ),
        ("batch.accumulation", &["gradient_accumulation_steps"]),
        ("run.steps", &["max_steps"]),
        (
            "run.seq",
            &[
                "max_seq_length",
                "max_seq_len",
                "model_max_length",
                "max_context_width",
                "cutoff_len",
                "block_size",
                "max_length",
                "seq_length",
                "sequence_length",
                "seq_len",
            ],
        ),
        ("run.tp", &["tensor_parallel_size", "tensor_parallel_degree"]),
        ("run.pp", &["pipeline_parallel_degree"]),
        ("model.layers", &["num_layers", "num_hidden_layers"]),
        ("model.hidden", &["hidden_width", "hidden_size"]),
        ("model.heads", &["num_heads", "num_attention_heads"]),
        ("model.kv_heads", &["num_key_value_heads"]),
        ("model.ffn", &["intermediate_size"]),
        ("model.vocab", &["vocab_size"]),
    ] {
        let Some(setting) = options.get(names) else { continue };
        match setting.number() {
            Some(value) if value > 0 => draft.state(key, value, &setting.called, &setting.place),
            // Steps of -1 are those of the epochs.
            _ if key == "run.steps" || setting.open().is_none() => {}
            _ => open.push(setting.clone()),
        }
    }
    if draft.has("model.hidden") && options.get(&["hidden_width"]).is_some() {
        let kind = options.get(&["model_type"]).map(Setting::text).unwrap_or_default();
        let gated = ["llama", "mistral", "mixtral", "qwen"].iter().any(|it| kind.contains(it));
        draft.set("model.gated_mlp", gated, "--model_type", place, Weight::Follows);
        let vocab = if kind.contains("llama_v3") { 128_256 } else { 32_000 };
        if !draft.has("model.vocab") {
            draft.set("model.vocab", vocab, "vocabulary", place, Weight::Assumed);
            draft.assumed.push(format!("a vocabulary of {vocab} (vocab)"));
        }
    }
    precision(options, draft);
    // The model of transformers as it is, unless its kernels are replaced or fused by a compiler.
    let fused = options.on(&["use_liger_kernel"]) || options.on(&["torch_compile"]);
    draft.set(
        "run.model_code",
        if fused { "fused" } else { "transformers" },
        "the Trainer",
        place,
        Weight::Follows,
    );
    if let Some(setting) = options.get(&["gradient_checkpointing", "activation_checkpointing", "recompute"]) {
        let recompute = if setting.is_on() { "full" } else { "none" };
        draft.state("run.recompute", recompute, &setting.called, &setting.place);
    }
    sharding(options, place, draft);
    if let Some(attention) = options.get(&["attn_implementation", "flash_attn"]) {
        let fused = !matches!(attention.text(), "eager" | "disabled" | "off");
        draft.set("run.flash_attention", fused, &attention.called, &attention.place, Weight::Follows);
    }
    for (name, what) in [
        ("use_liger_kernel", "the fused loss of use_liger_kernel"),
        ("packing", "packing"),
        ("group_by_length", "group_by_length (all sequences are taken as full)"),
        ("offload_activations", "offload_activations"),
    ] {
        if options.on(&[name]) {
            draft.not_modelled(what);
        }
    }
    for name in ["use_peft", "lora_r", "lora_rank", "use_lora", "load_in_4bit", "load_in_8bit"] {
        if let Some(setting) = options.get(&[name]).filter(|it| it.is_on()) {
            draft.refuse(&setting.called, &setting.place, ADAPTERS);
        }
    }
    if let Some(setting) = options.get(&["finetuning_type"]).filter(|it| it.text() == "lora") {
        draft.refuse(&setting.called, &setting.place, ADAPTERS);
    }
    if let Some(optimizer) = options
        .get(&["optim"])
        .filter(|it| !it.text().starts_with("adamw_torch") && !it.text().starts_with("adamw_hf"))
    {
        draft.not_modelled(&format!("the optimizer {} (memory is that of Adam in FP32)", optimizer.text()));
    }
    let file = |it: &&Setting| it.text().contains('.') || it.text().contains('/');
    let deepspeed = options.get(&["deepspeed", "deepspeed_config", "deepspeed_config_file"]).filter(file);
    let model = options.get(&[
        "model_name_or_path",
        "model_name",
        "model_id",
        "config_name",
        "pretrained_model_name_or_path",
    ]);
    let named = Named {
        deepspeed: deepspeed.map(|it| (it.text().to_owned(), it.place.clone())),
        model: model.filter(|it| it.open().is_none()).map(|it| (it.text().to_owned(), it.place.clone())),
    };
    if open.is_empty() { Ok(named) } else { Err(open) }
}

fn precision(options: &Options, draft: &mut Draft) {
    for (name, precision) in [("bf16", "bf16"), ("fp16", "fp16")] {
        if let Some(setting) = options.get(&[name]).filter(|it| it.is_on()) {
            draft.state("run.precision", precision, &setting.called, &setting.place);
        }
    }
    if let Some(setting) = options.get(&["mixed_precision"]) {
        let text = setting.text();
        if matches!(text, "bf16" | "fp16" | "fp8") {
            draft.state("run.precision", text, &setting.called, &setting.place);
        }
    }
}

fn sharding(options: &Options, place: &Place, draft: &mut Draft) {
    let fsdp = options.get(&["fsdp", "sharding_strategy", "fsdp_sharding_strategy"]).filter(|it| it.is_on());
    let Some(fsdp) = fsdp else {
        let uses = options.get(&["deepspeed", "deepspeed_config"]).is_some_and(Setting::is_on);
        draft.set(
            "run.framework",
            if uses { "deepspeed" } else { "ddp" },
            "the Trainer",
            place,
            Weight::Assumed,
        );
        return;
    };
    draft.state("run.framework", "fsdp", &fsdp.called, &fsdp.place);
    // accelerate reduces in the type of the mixed precision (`utils/dataclasses.py`, `set_mixed_precision`).
    let half = if draft.text("run.precision") == Some("fp16") { "fp16" } else { "bf16" };
    draft.set("run.reduce_dtype", half, "accelerate", &fsdp.place, Weight::Follows);
    let words = fsdp.values.join(" ").to_ascii_lowercase();
    let kept =
        options.get(&["reshard_after_forward", "fsdp_reshard_after_forward"]).is_some_and(|it| !it.is_on());
    let stage =
        if kept || words.contains("shard_grad_op") || words.contains("hybrid_shard_zero2") || words == "2" {
            2
        } else if words.contains("no_shard") || words == "3" {
            0
        } else {
            3
        };
    draft.state("run.zero", stage, &fsdp.called, &fsdp.place);
    if words.contains("hybrid") {
        draft.not_modelled("hybrid sharding (taken as full sharding over all GPUs)");
    }
    if words.contains("offload") || options.on(&["fsdp_offload_params", "cpu_offload"]) {
        draft.set("run.offload.params", true, &fsdp.called, &fsdp.place, Weight::Follows);
        draft.set("run.offload.optimizer", true, &fsdp.called, &fsdp.place, Weight::Follows);
    }
    if options.on(&["fsdp_activation_checkpointing"]) {
        draft.set("run.recompute", "full", "fsdp_activation_checkpointing", &fsdp.place, Weight::Follows);
    }
}
