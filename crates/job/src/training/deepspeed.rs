//! Settings of `DeepSpeed`: <https://www.deepspeed.ai/docs/config-json/>.

use evidence::yaml::{NodeId, Tree};

use super::draft::{Draft, Place, Weight};

/// Keys that only this file has.
pub(super) const KEYS: [&str; 4] = [
    "zero_optimization",
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "zero_allow_untested_optimizer",
];

struct Reader<'a> {
    tree: &'a Tree,
    root: NodeId,
    file: &'a str,
    first_line: usize,
}

impl<'a> Reader<'a> {
    fn node(&self, path: &[&str]) -> Option<NodeId> {
        self.tree.at(self.root, path).filter(|it| !self.tree.is_null(*it))
    }

    fn place(&self, node: NodeId) -> Place {
        Place::new(self.file, self.tree.node(node).span.line + self.first_line - 1)
    }

    fn text(&self, path: &[&str]) -> Option<&'a str> {
        self.tree.text(self.node(path)?)
    }

    /// A number, unless it is `auto` or a variable.
    fn number(&self, path: &[&str]) -> Result<Option<(u64, Place)>, String> {
        let Some(node) = self.node(path) else { return Ok(None) };
        let text = self.tree.text(node).unwrap_or_default().trim();
        if text == "auto" || text.contains('$') {
            return Ok(None);
        }
        let place = self.place(node);
        // JSON also writes 1e6 and 32.0.
        let float = || text.parse::<f64>().ok().filter(|it| it.fract() == 0.0 && (0.0..1e15).contains(it));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
        let value = text.parse().ok().or_else(|| float().map(|it| it as u64));
        match value {
            Some(value) => Ok(Some((value, place))),
            None => {
                Err(format!("{place}: `{}` is {text}: it must be a whole number or auto", path.join(".")))
            }
        }
    }

    fn on(&self, path: &[&str]) -> Option<bool> {
        self.tree.bool(self.node(path)?)
    }
}

/// Reads the settings. `part_of` says that a trainer gave the file's name, whose settings fill in what is `auto`.
pub(super) fn read(
    tree: &Tree,
    root: NodeId,
    file: &str,
    first_line: usize,
    draft: &mut Draft,
) -> Result<(), String> {
    let reader = Reader { tree, root, file, first_line };
    let whole = Place::new(file, first_line);
    draft.set("run.framework", "deepspeed", "DeepSpeed", &whole, Weight::Follows);
    for (path, key) in [
        ("train_micro_batch_size_per_gpu", "run.micro_batch"),
        ("train_batch_size", "run.global_batch"),
        ("gradient_accumulation_steps", "batch.accumulation"),
    ] {
        match reader.number(&[path])? {
            Some((value, place)) => draft.state(key, value, path, &place),
            None if reader.text(&[path]) == Some("auto") => {
                draft.set("batch.auto", true, path, &whole, Weight::Follows);
            }
            None => {}
        }
    }
    // AutoTP splits layers over ranks of tensor parallelism.
    if let Some((size, place)) = reader.number(&["tensor_parallel", "autotp_size"])?.filter(|it| it.0 > 0) {
        draft.state("run.tp", size, "tensor_parallel.autotp_size", &place);
    }
    neox(&reader, draft)?;
    precision(&reader, draft);
    if let Some((stage, place)) = reader.number(&["zero_optimization", "stage"])? {
        if stage > 3 {
            return Err(format!("{place}: `zero_optimization.stage` is {stage}: ZeRO has the stages 0 to 3"));
        }
        draft.state("run.zero", stage, "zero_optimization.stage", &place);
    } else if reader.node(&["zero_optimization"]).is_none() {
        draft.set("run.zero", 0, "zero_optimization.stage", &whole, Weight::Assumed);
    }
    for (name, old, key) in [
        ("offload_optimizer", "cpu_offload", "run.offload.optimizer"),
        ("offload_param", "cpu_offload_params", "run.offload.params"),
    ] {
        let device = reader.node(&["zero_optimization", name, "device"]);
        let text = device.and_then(|it| tree.text(it)).unwrap_or_default();
        if let Some(node) = device.filter(|_| !matches!(text, "none" | "")) {
            draft.state(key, true, name, &reader.place(node));
            if text == "nvme" {
                draft.not_modelled(&format!("{name} to NVMe (taken as to host memory)"));
            }
        } else if reader.on(&["zero_optimization", old]) == Some(true)
            && let Some(node) = reader.node(&["zero_optimization", old])
        {
            draft.state(key, true, old, &reader.place(node));
        }
    }
    if let Some(node) = reader.node(&["zero_optimization", "overlap_comm"])
        && let Some(overlaps) = tree.bool(node)
    {
        draft.set("run.overlap", overlaps, "overlap_comm", &reader.place(node), Weight::Follows);
    }
    let keeps = |name: &str| reader.on(&["activation_checkpointing", name]) == Some(true);
    if keeps("partition_activations") || keeps("cpu_checkpointing") {
        draft.set("run.recompute", "full", "activation_checkpointing", &whole, Weight::Follows);
        draft.notes.push(format!(
            "{file}: activation_checkpointing says how, not whether: full recomputation is taken"
        ));
        if keeps("cpu_checkpointing") {
            draft.not_modelled("activation_checkpointing.cpu_checkpointing");
        }
    }
    not_modelled(&reader, draft);
    Ok(())
}

/// GPT-NeoX writes the layout and the shape of the model beside the settings of `DeepSpeed`, with `-` or `_`.
fn neox(reader: &Reader<'_>, draft: &mut Draft) -> Result<(), String> {
    let layout = ["pipe_parallel_size", "pipe-parallel-size", "model_parallel_size", "model-parallel-size"];
    if layout.iter().all(|it| reader.node(&[it]).is_none()) {
        return Ok(());
    }
    let whole = Place::new(reader.file, reader.first_line);
    draft.set("run.framework", "megatron", "GPT-NeoX", &whole, Weight::Stated);
    for (name, key) in [
        ("pipe_parallel_size", "run.pp"),
        ("model_parallel_size", "run.tp"),
        ("seq_length", "run.seq"),
        ("train_iters", "run.steps"),
        ("num_layers", "model.layers"),
        ("hidden_size", "model.hidden"),
        ("num_attention_heads", "model.heads"),
        ("num_kv_heads", "model.kv_heads"),
        ("intermediate_size", "model.ffn"),
        ("padded_vocab_size", "model.vocab"),
    ] {
        let hyphens = name.replace('_', "-");
        for name in [name, &hyphens] {
            // Without a pipeline it is 0.
            if let Some((value, place)) = reader.number(&[name])?.filter(|it| it.0 > 0) {
                draft.state(key, value, name, &place);
            }
        }
    }
    for name in ["checkpoint_activations", "checkpoint-activations"] {
        if reader.on(&[name]) == Some(true) {
            draft.set("run.recompute", "full", name, &whole, Weight::Stated);
        }
    }
    Ok(())
}

fn precision(reader: &Reader<'_>, draft: &mut Draft) {
    for (names, precision) in [(&["bf16", "bfloat16"][..], "bf16"), (&["fp16"][..], "fp16")] {
        for name in names {
            let Some(node) = reader.node(&[name, "enabled"]) else { continue };
            if reader.tree.bool(node) == Some(true) {
                draft.state("run.precision", precision, name, &reader.place(node));
            }
        }
    }
}

fn not_modelled(reader: &Reader<'_>, draft: &mut Draft) {
    for (path, what) in [
        (&["zero_optimization", "zero_hpz_partition_size"][..], "zero_hpz_partition_size (ZeRO++)"),
        (&["zero_optimization", "zero_quantized_weights"], "zero_quantized_weights (ZeRO++)"),
        (&["zero_optimization", "zero_quantized_gradients"], "zero_quantized_gradients (ZeRO++)"),
        (&["zero_optimization", "mics_shard_size"], "mics_shard_size (MiCS)"),
        (&["compression_training"], "compression_training"),
        (&["sparse_attention"], "sparse_attention"),
        (&["quantize_training"], "quantize_training"),
        (&["eigenvalue", "enabled"], "eigenvalue"),
        (&["curriculum_learning", "enabled"], "curriculum_learning"),
        (&["progressive_layer_drop", "enabled"], "progressive_layer_drop"),
        (&["hybrid_engine", "enabled"], "hybrid_engine"),
        (&["communication_data_type"], "communication_data_type"),
        (&["zero_optimization", "offload_optimizer", "ratio"], "offload_optimizer.ratio"),
    ] {
        let Some(node) = reader.node(path) else { continue };
        let text = reader.tree.text(node).unwrap_or("{}");
        let off = matches!(text, "false" | "0" | "1" | "1.0" | "-1" | "auto");
        if !off {
            draft.not_modelled(what);
        }
    }
    let sizes = [
        "reduce_bucket_size",
        "allgather_bucket_size",
        "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold",
        "stage3_max_live_parameters",
    ];
    let given = |it: &&str| reader.text(&["zero_optimization", it]).is_some_and(|it| it != "auto");
    if sizes.iter().any(given) {
        draft.not_modelled("bucket sizes of ZeRO");
    }
    let optimizer = reader.text(&["optimizer", "type"]).unwrap_or("Adam").to_ascii_lowercase();
    if !optimizer.contains("adam") && !optimizer.contains("lamb") {
        draft.not_modelled(&format!("the optimizer {optimizer} (memory is that of Adam)"));
    } else if optimizer.contains("onebit") || optimizer.contains("zeroone") {
        draft.not_modelled(&format!("compressed communication of {optimizer}"));
    }
}
