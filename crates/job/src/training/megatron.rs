//! Command lines of Megatron-LM, Megatron-Core and Megatron-DeepSpeed.
//!
//! Names and defaults: Megatron-LM, `megatron/training/arguments.py` and `megatron/core/transformer/transformer_config.py`;
//! Megatron-DeepSpeed, `megatron/arguments.py`.

use super::draft::{Draft, Place, Weight};
use super::options::{Options, Setting};
use super::pipeline_layout::stages_of_layout;

/// Names by which a command is one of Megatron.
pub(super) const OWN: [&str; 12] = [
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "micro_batch_size",
    "num_attention_heads",
    "seq_length",
    "ffn_hidden_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "use_distributed_optimizer",
    "sequence_parallel",
    "recompute_granularity",
    "untie_embeddings_and_output_weights",
];

/// Options by which embedding and head count as layers where layers are divided into stages.
static TABLES: &[&str] = &["account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"];

/// Options that change time or memory and that the model does not know.
static NOT_MODELLED: &[&str] = &[
    "tp_comm_overlap",
    "moe_token_dispatcher_type",
    "moe_enable_deepep",
    "moe_expert_capacity_factor",
    "moe_use_legacy_grouped_gemm",
    "mtp_num_layers",
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "enable_cuda_graph",
    "external_cuda_graph",
    "cuda_graph_impl",
    "recompute_modules",
    "fp8_param_gather",
    "fp4_format",
    "use_precision_aware_optimizer",
    "exp_avg_dtype",
    "main_grads_dtype",
    "main_params_dtype",
    "window_size",
    "cpu_offloading",
    "fine_grained_activation_offloading",
    "is_hybrid_model",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "delay_wgrad_compute",
    "hierarchical_context_parallel_sizes",
    "num_distributed_optimizer_instances",
    "ds_sequence_parallel_size",
    "use_tutel",
    "lora_r",
    "freeze_all_layers",
    "decoder_pipeline_manual_split_list",
    "heterogeneous_layers_config_path",
    "enable_zero_bubble",
];

fn called(option: &str) -> String {
    format!("--{}", option.replace('_', "-"))
}

/// Keys of the job file that are numbers of the command line.
static NUMBERS: &[(&str, &[&str])] = &[
    ("model.layers", &["num_layers", "encoder_num_layers", "decoder_num_layers"]),
    ("model.hidden", &["hidden_size"]),
    ("model.heads", &["num_attention_heads"]),
    ("model.ffn", &["ffn_hidden_size"]),
    ("model.head_width", &["kv_channels"]),
    ("run.tp", &["tensor_model_parallel_size", "model_parallel_size"]),
    ("run.pp", &["pipeline_model_parallel_size"]),
    ("run.cp", &["context_parallel_size"]),
    ("run.ep", &["expert_model_parallel_size", "moe_expert_parallel_size"]),
    ("run.seq", &["seq_length", "encoder_seq_length"]),
    ("run.micro_batch", &["micro_batch_size"]),
    ("run.global_batch", &["global_batch_size"]),
    ("run.steps", &["train_iters"]),
];

/// Reads the options of a command. The error names those whose values the script does not set.
pub(super) fn read(options: &Options, place: &Place, draft: &mut Draft) -> Result<(), Vec<Setting>> {
    let mut open = Vec::new();
    for (key, names) in NUMBERS {
        let Some(setting) = options.get(names) else { continue };
        match setting.number() {
            // Without stages, Megatron-DeepSpeed takes 0 as 1.
            Some(0) if *key == "run.pp" => {}
            Some(value) => draft.state(key, value, &setting.called, &setting.place),
            None if *key == "run.steps" => {}
            None => open.push(setting.clone()),
        }
    }
    draft.set("run.framework", which(options), "Megatron", place, Weight::Stated);
    model(options, place, draft, &mut open);
    experts(options, draft, &mut open);
    if let Some(each) = options.get(&["num_layers_per_virtual_pipeline_stage"])
        && let (Some(n), Some(layers)) = (each.number().filter(|it| *it > 0), draft.number("model.layers"))
    {
        // Embedding and head count as layers where these options say so.
        let tables = options.count(TABLES);
        let pieces = layers.saturating_add(tables as u64) / n / draft.number("run.pp").unwrap_or(1).max(1);
        draft.state("run.vpp", pieces.max(1), &each.called, &each.place);
    } else if let Some(vpp) = options.get(&["num_virtual_stages_per_pipeline_rank"])
        && let Some(n) = vpp.number()
    {
        draft.state("run.vpp", n, &vpp.called, &vpp.place);
    }
    stages(options, place, draft);
    sharding(options, place, draft);
    run(options, place, draft);
    for name in NOT_MODELLED {
        // What these say is taken without them, too.
        let usual = |it: &Setting| match *name {
            "pipeline_model_parallel_layout" => is_usual_layout(it, draft),
            _ => TABLES.contains(name) && splits_evenly(options, draft),
        };
        let own = |it: &&Setting| !usual(it);
        if options.get(&[name]).filter(|it| it.is_on()).as_ref().is_some_and(own) {
            draft.not_modelled(&called(name));
        }
    }
    if let Some(optimizer) = options.get(&["optimizer"]).filter(|it| !it.text().contains("adam")) {
        draft.not_modelled(&format!("--optimizer {} (memory is that of Adam)", optimizer.text()));
    }
    if open.is_empty() { Ok(()) } else { Err(open) }
}

/// Options that Megatron-LM got with or after fused attention: what has them and no flash attention is not the Megatron-DeepSpeed of 2022.
static LATER: &[&str] = &[
    "attention_backend",
    "grad_reduce_in_bf16",
    "main_grads_dtype",
    "use_distributed_optimizer",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "transformer_impl",
    "use_mcore_models",
    "context_parallel_size",
];

/// Which Megatron it is, where its options say so.
fn which(options: &Options) -> &'static str {
    let later = LATER.iter().any(|it| options.get(&[it]).is_some());
    match options.on(&["deepspeed"]) {
        _ if fused(options) => "megatron",
        true => "megatron-deepspeed",
        false if later => "megatron-lm",
        false => "megatron",
    }
}

/// Whether attention is fused. Releases before 2023 have options for it; later ones use it unless told otherwise.
fn fused(options: &Options) -> bool {
    let early = options.count(&[
        "deepspeed",
        "ddp_impl",
        "checkpoint_activations",
        "data_impl",
        "checkpoint_num_layers",
    ]) > 0;
    let asked = options.on(&[
        "use_flash_attn",
        "use_flash_attn_v2",
        "use_flash_attn_v1",
        "use_flash_attn_triton",
        "use_flash_attn_builder",
    ]);
    let backend = options.get(&["attention_backend"]).map_or("auto", Setting::text);
    // Megatron's own layers have plain attention.
    let plain = options.get(&["transformer_impl"]).is_some_and(|it| it.text() == "local");
    asked || (!early && !plain && !matches!(backend, "unfused" | "local"))
}

/// Megatron-LM refuses stages that are not equal, unless an option says how layers are divided; `DeepSpeed`'s pipeline does not.
fn stages(options: &Options, place: &Place, draft: &mut Draft) {
    let divided = [
        "pipeline_model_parallel_layout",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "decoder_pipeline_manual_split_list",
    ];
    if options.on(&["deepspeed"]) || options.count(&divided) > 0 {
        return;
    }
    let Some(layers) = draft.number("model.layers") else { return };
    let pp = draft.number("run.pp").unwrap_or(1).max(1);
    let counted = layers.saturating_add(options.count(TABLES) as u64);
    if !counted.is_multiple_of(pp) {
        draft.conflicts.push(format!(
            "Megatron refuses {layers} layers in {pp} stages that are not equal ({place}): --pipeline-model-parallel-layout divides them"
        ));
        return;
    }
    let each = options.number(&["num_layers_per_virtual_pipeline_stage"]).filter(|it| *it > 0);
    if let Some(each) = each.filter(|it| !(counted / pp).is_multiple_of(*it)) {
        draft.conflicts.push(format!(
            "Megatron refuses --num-layers-per-virtual-pipeline-stage {each} ({place}): a stage has {} layers",
            counted / pp
        ));
    }
}

/// Whether embedding and head count as a layer each and all stages are then equal.
fn splits_evenly(options: &Options, draft: &Draft) -> bool {
    let sizes = draft.number("model.layers").zip(draft.number("run.pp"));
    options.count(TABLES) == TABLES.len()
        && sizes.is_some_and(|(layers, pp)| layers.saturating_add(2).is_multiple_of(pp.max(1)))
}

/// Whether the layout spreads layers as evenly as can be, with the longer stages first.
fn is_usual_layout(layout: &Setting, draft: &Draft) -> bool {
    let sizes = draft.number("model.layers").zip(draft.number("run.pp"));
    let Some((stages, (layers, pp))) = stages_of_layout(layout.text()).zip(sizes) else { return false };
    let rest = layers % pp.max(1);
    let even = (0..pp).map(|stage| layers / pp + u64::from(stage < rest));
    stages.into_iter().eq(even)
}

fn model(options: &Options, place: &Place, draft: &mut Draft, open: &mut Vec<Setting>) {
    let groups = options.get(&["num_query_groups"]).filter(|_| options.on(&["group_query_attention"]));
    let groups = groups.or(options.get(&["num_key_value_heads"]));
    if let Some(groups) = groups {
        match groups.number() {
            Some(value) => draft.state("model.kv_heads", value, &groups.called, &groups.place),
            None => open.push(groups.clone()),
        }
    }
    let stated = draft.has("model.layers");
    if !stated {
        return;
    }
    let gate = options.get(&["swiglu", "quick_geglu", "geglu", "use_glu"]);
    let glu = options.get(&["glu_activation"]);
    let gated = gate.or(glu).filter(|it| it.is_on());
    draft.set(
        "model.gated_mlp",
        gated.is_some(),
        "--swiglu",
        gated.map_or(place, |it| &it.place),
        Weight::Stated,
    );
    // Without a width, a gate makes it two thirds of four times the hidden size, rounded to 64.
    if gated.is_some()
        && !draft.has("model.ffn")
        && let Some(hidden) = draft.number("model.hidden")
    {
        draft.set(
            "model.ffn",
            hidden.saturating_mul(8) / 3 / 64 * 64,
            "--ffn-hidden-size",
            place,
            Weight::Follows,
        );
    }
    let untied = options.on(&["untie_embeddings_and_output_weights"]);
    draft.set(
        "model.tied_embeddings",
        !untied,
        "--untie-embeddings-and-output-weights",
        place,
        Weight::Stated,
    );
    vocabulary(options, place, draft);
    if options.on(&["multi_latent_attention"]) {
        draft.notes.push(format!(
            "{place}: --multi-latent-attention is approximated by plain attention with as many heads"
        ));
        if let Some(width) = options.number(&["v_head_dim"]) {
            draft.set("model.head_width", width, "--v-head-dim", place, Weight::Stated);
            draft.set("model.kv_heads", 1, "--multi-latent-attention", place, Weight::Follows);
        }
    }
}

/// Entries of the vocabulary, padded as Megatron pads them.
fn vocabulary(options: &Options, place: &Place, draft: &mut Draft) {
    let tp = draft.number("run.tp").unwrap_or(1).max(1);
    let multiple = options.number(&["make_vocab_size_divisible_by"]).unwrap_or(128).max(1).saturating_mul(tp);
    let padded = |size: u64| size.div_ceil(multiple).saturating_mul(multiple);
    if let Some(given) = options.get(&["padded_vocab_size"]).filter(|it| it.number().is_some()) {
        draft.state("model.vocab", given.number().unwrap_or(0), &given.called, &given.place);
    } else if let Some(given) = options.get(&["vocab_size"]).filter(|it| it.number().is_some()) {
        draft.state("model.vocab", padded(given.number().unwrap_or(0)), &given.called, &given.place);
    } else {
        let kind = options.get(&["tokenizer_type"]).map(Setting::text).unwrap_or_default();
        let of = ["tokenizer_model", "tokenizer_name_or_path", "patch_tokenizer_type", "load"];
        let model: Vec<&str> = of.iter().filter_map(|it| options.get(&[it])).map(Setting::text).collect();
        let model = model.join(" ");
        let name = format!("{kind} {model}").to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|it| name.contains(it));
        let (size, whose) = if has(&["llama-3", "llama3", "tiktoken"]) {
            (128_256, "Llama 3")
        } else if has(&["mt5"]) {
            (250_112, "mT5")
        } else if has(&["bigscience", "bloom"]) {
            (250_680, "BLOOM")
        } else if has(&["qwen"]) {
            (151_936, "Qwen")
        } else if has(&["deepseek"]) {
            (129_280, "DeepSeek")
        } else if has(&["llama", "mistral", "mixtral", "sentencepiece"]) {
            (32_000, "Llama 2")
        } else {
            (50_257, "GPT-2")
        };
        let size = padded(size);
        draft.set("model.vocab", size, "vocabulary", place, Weight::Assumed);
        draft.assumed.push(format!("a vocabulary of {size}, that of {whose} (vocab)"));
    }
}

fn experts(options: &Options, draft: &mut Draft, open: &mut Vec<Setting>) {
    let Some(count) = options.get(&["num_experts"]) else { return };
    let Some(experts) = count.number() else {
        open.push(count.clone());
        return;
    };
    if experts < 2 {
        return;
    }
    draft.state("model.experts", experts, &count.called, &count.place);
    let set = |draft: &mut Draft, key: &str, value: u64| {
        draft.state(key, value, &count.called, &count.place);
    };
    set(draft, "model.experts_per_token", options.number(&["moe_router_topk", "topk"]).unwrap_or(2));
    let ffn = draft.number("model.ffn").or_else(|| Some(draft.number("model.hidden")?.saturating_mul(4)));
    let width = options.number(&["moe_ffn_hidden_size"]).or(ffn).unwrap_or(1).max(1);
    set(draft, "model.moe_ffn", width);
    let layers = draft.number("model.layers").unwrap_or(1);
    let counted = match options.get(&["moe_layer_freq"]) {
        Some(setting) => {
            setting.number().map_or_else(|| pattern(setting.text()), |it| Some(layers / it.max(1)))
        }
        None => Some(layers),
    };
    set(draft, "model.moe_layers", counted.unwrap_or(layers).clamp(1, layers.max(1)));
    // Megatron splits experts as the rest, Megatron-DeepSpeed does not, unless it is said otherwise.
    let whole = options.on(&["deepspeed"]) && !options.on(&["enable_expert_tensor_parallelism"]);
    let split = || if whole { Some(1) } else { draft.number("run.tp") };
    if draft.number("run.ep").is_some_and(|it| it > 1)
        && let Some(etp) = options.number(&["expert_tensor_parallel_size"]).or_else(split)
    {
        set(draft, "run.etp", etp);
    }
    let shared = options.number(&["moe_shared_expert_intermediate_size"]).map_or(0, |it| it.div_ceil(width));
    set(draft, "model.shared_experts", shared);
}

/// Ones in `([0]*3+[1]*58)`.
fn pattern(text: &str) -> Option<u64> {
    let text: String = text.chars().filter(|it| !matches!(it, '(' | ')' | ' ' | '\'' | '"')).collect();
    text.split('+').try_fold(0u64, |sum, part| {
        let (item, times) = part.split_once('*').unwrap_or((part, "1"));
        let ones = item.trim_matches(['[', ']']).split(',').filter(|it| *it == "1").count() as u64;
        sum.checked_add(ones.checked_mul(times.parse().ok()?)?)
    })
}

fn sharding(options: &Options, place: &Place, draft: &mut Draft) {
    if options.on(&["use_torch_fsdp2", "use_megatron_fsdp", "use_custom_fsdp"]) {
        let strategy = options.get(&["data_parallel_sharding_strategy"]).map(Setting::text);
        let stage = match strategy {
            Some("no_shard") => 0,
            Some("optim") => 1,
            Some("optim_grads") => 2,
            _ => 3,
        };
        draft.state("run.zero", stage, "--use-megatron-fsdp", place);
    } else if options.on(&["use_distributed_optimizer"]) {
        draft.set("run.zero", 1, "--use-distributed-optimizer", place, Weight::Stated);
    } else if let Some(stage) = options.number(&["zero_stage"]).filter(|_| options.on(&["deepspeed"])) {
        draft.set("run.zero", stage, "--zero-stage", place, Weight::Stated);
    }
    let offload = options.get(&["optimizer_cpu_offload", "cpu_optimizer"]).filter(|it| it.is_on());
    if let Some(offload) = offload {
        draft.state("run.offload.optimizer", true, &offload.called, &offload.place);
    }
}

/// In which precision gradients are reduced: with BF16, Megatron-LM turns FP32 on unless it is told otherwise. `DeepSpeed` has its own way.
fn reduction(options: &Options, draft: &mut Draft) {
    let on = |name: &str| options.get(&[name]).filter(|it| it.is_on());
    let sums = options.get(&["main_grads_dtype"]).filter(|it| it.text() != "fp32");
    let half = on("grad_reduce_in_bf16").or(sums).filter(|_| on("bf16").is_some());
    if let Some(it) = half {
        draft.state("run.reduce_dtype", "bf16", &it.called, &it.place);
    } else if let Some(it) = on("accumulate_allreduce_grads_in_fp32") {
        draft.state("run.reduce_dtype", "fp32", &it.called, &it.place);
    } else if let Some(it) = on("bf16").filter(|_| !options.on(&["deepspeed"])) {
        draft.set("run.reduce_dtype", "fp32", &it.called, &it.place, Weight::Follows);
    }
}

fn run(options: &Options, place: &Place, draft: &mut Draft) {
    let fp8 = options.get(&["fp8_format", "fp8_hybrid", "fp8_e4m3", "fp8"]).filter(|it| it.is_on());
    let half = options.get(&["bf16", "fp16"]).filter(|it| it.is_on());
    if let Some(fp8) = fp8 {
        draft.set("run.precision", "fp8", &fp8.called, &fp8.place, Weight::Stated);
    } else if let Some(half) = half {
        draft.state("run.precision", half.name.as_str(), &half.called, &half.place);
    }
    reduction(options, draft);
    let granularity = options.get(&["recompute_granularity"]);
    let old = options.get(&["checkpoint_activations"]).filter(|it| it.is_on());
    let (recompute, at) = match granularity.map(Setting::text) {
        Some("full") => ("full", granularity),
        Some("selective") => ("selective", granularity),
        _ if options.on(&["recompute_activations"]) => ("selective", options.get(&["recompute_activations"])),
        _ if old.is_some() => ("full", old),
        _ => ("none", None),
    };
    draft.set(
        "run.recompute",
        recompute,
        "--recompute-granularity",
        at.map_or(place, |it| &it.place),
        Weight::Stated,
    );
    let blocks = options.get(&["recompute_method"]).is_some_and(|it| it.text() == "block");
    if recompute == "full" && blocks {
        draft.not_modelled("--recompute-method block (all layers are taken as recomputed)");
    }
    if options.on(&["sequence_parallel"]) {
        draft.set("run.sequence_parallel", true, "--sequence-parallel", place, Weight::Stated);
    }
    let flash = fused(options);
    draft.set("run.flash_attention", flash, "--use-flash-attn", place, Weight::Stated);
    draft.set(
        "run.overlap",
        options.on(&["overlap_grad_reduce"]),
        "--overlap-grad-reduce",
        place,
        Weight::Follows,
    );
    if options.on(&["overlap_moe_expert_parallel_comm"]) {
        let flag = "--overlap-moe-expert-parallel-comm";
        draft.set("run.expert_overlap", true, flag, place, Weight::Stated);
    }
    if options.get(&["rampup_batch_size"]).is_some() {
        draft.notes.push("--rampup-batch-size: the full batch is predicted".to_owned());
    }
    let batch = draft.number("run.global_batch").filter(|it| *it > 0);
    if let (Some(samples), Some(batch), None) =
        (options.number(&["train_samples"]), batch, options.number(&["train_iters"]))
    {
        draft.set("run.steps", samples.div_ceil(batch), "--train-samples", place, Weight::Follows);
    }
}
