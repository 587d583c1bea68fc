//! Settings of accelerate (`accelerate config`): <https://huggingface.co/docs/accelerate/package_reference/cli>.

use evidence::yaml::{NodeId, Tree};

use super::draft::{Draft, Place, Weight};
use super::options::Options;
use super::{Inputs, deepspeed};

pub(super) fn read(inputs: &mut Inputs<'_>, tree: &Tree, root: NodeId, file: &str) -> Result<(), String> {
    let options = Options::of_tree(tree, root, file);
    let place = Place::new(file, 1);
    let draft = &mut inputs.draft;
    for (name, key) in [("num_machines", "cluster.nodes"), ("num_processes", "launch.processes")] {
        if let Some(setting) = options.get(&[name])
            && let Some(value) = setting.number()
        {
            draft.set(key, value, &setting.called, &setting.place, Weight::Configured);
        }
    }
    if let Some(setting) = options.get(&["mixed_precision"])
        && matches!(setting.text(), "bf16" | "fp16" | "fp8")
    {
        draft.set("run.precision", setting.text(), &setting.called, &setting.place, Weight::Configured);
    }
    let kind =
        options.get(&["distributed_type"]).map(|it| it.text().to_ascii_uppercase()).unwrap_or_default();
    match kind.as_str() {
        "DEEPSPEED" => {
            draft.set("run.framework", "deepspeed", "distributed_type", &place, Weight::Follows);
            let Some(inner) = tree.get(root, "deepspeed_config") else { return Ok(()) };
            let settings = Options::of_tree(tree, inner, file);
            of_deepspeed(&settings, Weight::Configured, draft);
            if settings.get(&["deepspeed_config_file"]).is_some() {
                named_by(&settings, inputs)?;
            } else if deepspeed::KEYS.iter().any(|it| tree.get(inner, it).is_some()) {
                deepspeed::read(tree, inner, file, 1, &mut inputs.draft)?;
            }
        }
        "FSDP" => {
            draft.state("run.framework", "fsdp", "distributed_type", &place);
            let inner = tree.get(root, "fsdp_config");
            let settings = inner.map(|it| Options::of_tree(tree, it, file));
            of_fsdp(settings.as_ref(), &place, Weight::Configured, draft);
        }
        "MULTI_GPU" | "NO" | "" => {
            draft.set("run.framework", "ddp", "distributed_type", &place, Weight::Assumed);
        }
        other => draft.not_modelled(&format!("distributed_type {other}")),
    }
    if let Some(inner) = tree.get(root, "parallelism_config") {
        let settings = Options::of_tree(tree, inner, file);
        for (name, key) in
            [("parallelism_config_tp_size", "run.tp"), ("parallelism_config_cp_size", "run.cp")]
        {
            if let Some(setting) = settings.get(&[name])
                && let Some(value) = setting.number()
            {
                inputs.draft.state(key, value, &setting.called, &setting.place);
            }
        }
        if settings.number(&["parallelism_config_sp_size"]).is_some_and(|it| it > 1) {
            inputs.draft.not_modelled("parallelism_config_sp_size (sequence parallelism of DeepSpeed)");
        }
    }
    Ok(())
}

/// Options of `accelerate launch`: they have the names of the settings.
pub(super) fn launched(inputs: &mut Inputs<'_>, options: &Options, place: &Place) -> Result<(), String> {
    let draft = &mut inputs.draft;
    if options.on(&["use_deepspeed"]) || options.get(&["zero_stage"]).is_some() {
        draft.state("run.framework", "deepspeed", "use_deepspeed", place);
        of_deepspeed(options, Weight::Stated, draft);
        return named_by(options, inputs);
    }
    if options.on(&["use_fsdp"]) {
        draft.state("run.framework", "fsdp", "use_fsdp", place);
        of_fsdp(Some(options), place, Weight::Stated, draft);
    }
    Ok(())
}

fn of_deepspeed(settings: &Options, weight: Weight, draft: &mut Draft) {
    for (name, key) in [("zero_stage", "run.zero"), ("gradient_accumulation_steps", "batch.accumulation")] {
        if let Some(setting) = settings.get(&[name])
            && let Some(value) = setting.number()
        {
            draft.set(key, value, &setting.called, &setting.place, weight);
        }
    }
    for (name, key) in [
        ("offload_optimizer_device", "run.offload.optimizer"),
        ("offload_param_device", "run.offload.params"),
    ] {
        if let Some(setting) = settings.get(&[name]).filter(|it| it.text() != "none") {
            draft.set(key, true, &setting.called, &setting.place, weight);
        }
    }
}

/// The file with settings of `DeepSpeed`.
fn named_by(settings: &Options, inputs: &mut Inputs<'_>) -> Result<(), String> {
    let Some(setting) = settings.get(&["deepspeed_config_file"]) else { return Ok(()) };
    let (path, place) = (setting.text().to_owned(), setting.place.clone());
    inputs.deepspeed_file(&path, &place)
}

fn of_fsdp(settings: Option<&Options>, place: &Place, weight: Weight, draft: &mut Draft) {
    let half = if draft.text("run.precision") == Some("fp16") { "fp16" } else { "bf16" };
    draft.set("run.reduce_dtype", half, "accelerate", place, Weight::Follows);
    let Some(settings) = settings else { return };
    let strategy = settings.get(&["fsdp_sharding_strategy", "fsdp_reshard_after_forward"]);
    let text = strategy.map(|it| it.text().to_ascii_uppercase()).unwrap_or_default();
    // The first form of the setting counts from 1.
    let stage = match text.as_str() {
        "SHARD_GRAD_OP" | "2" | "FALSE" => 2,
        "NO_SHARD" | "3" => 0,
        _ => 3,
    };
    if text.contains("HYBRID") {
        draft.not_modelled("hybrid sharding (taken as full sharding over all GPUs)");
    }
    let at = strategy.map_or(place, |it| &it.place).clone();
    draft.set("run.zero", stage, "fsdp_sharding_strategy", &at, weight);
    if settings.on(&["fsdp_offload_params"]) {
        for key in ["run.offload.params", "run.offload.optimizer"] {
            draft.set(key, true, "fsdp_offload_params", &at, weight);
        }
    }
    if settings.on(&["fsdp_activation_checkpointing"]) {
        draft.state("run.recompute", "full", "fsdp_activation_checkpointing", &at);
    }
}
