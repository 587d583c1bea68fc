//! What all inputs make together: sizes that follow from each other, defaults, contradictions.

use fabric::catalogue;
use serde_json::Value;

use super::draft::{Draft, Place, Weight, shown};

/// A job file made of all inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The tables of the job file.
    pub job: Value,
    /// Changes to make to it, as `network=eni`.
    pub changes: Vec<String>,
    /// What was assumed, in words with the key.
    pub assumed: Vec<String>,
    /// What a reader should know, in sentences.
    pub notes: Vec<String>,
    /// Files of measurements, with the place that names them.
    pub measured: Vec<(String, Place)>,
    /// What to call the model, where its shape comes from a file.
    pub title: Option<String>,
}

pub(super) fn finish(mut draft: Draft, foreign: bool) -> Result<Finished, String> {
    if let Some(refused) = draft.refused.take() {
        return Err(refused);
    }
    let conflicts = std::mem::take(&mut draft.conflicts);
    if !conflicts.is_empty() {
        return Err(format!("the inputs contradict each other: {}", conflicts.join("; ")));
    }
    let mut changes = Vec::new();
    if foreign {
        model(&mut draft)?;
        cluster(&mut draft, &mut changes)?;
        batch(&mut draft)?;
        offloads(&mut draft);
        defaults(&mut draft);
    }
    let mut notes = std::mem::take(&mut draft.notes);
    if !draft.not_modelled.is_empty() {
        notes.push(format!("not modelled: {}", draft.not_modelled.join(", ")));
    }
    let assumed = std::mem::take(&mut draft.assumed);
    Ok(Finished { job: draft.value(), changes, assumed, notes, measured: draft.measured, title: draft.title })
}

fn model(draft: &mut Draft) -> Result<(), String> {
    let layers = draft.weight("model.layers");
    let name = draft.weight("model.name");
    if layers.is_none() && name.is_none() {
        return Err("the model is not given: add --model NAME, as in --model llama-3-8b, or --model config.json of Hugging Face".to_owned());
    }
    // A model by a flag replaces the one of the inputs; `--set layers=40` alone changes it.
    let shape = ["model.layers", "model.hidden", "model.heads"];
    if name == Some(Weight::Flag) || shape.iter().all(|it| draft.weight(it) == Some(Weight::Flag)) {
        let replaced = layers.is_some_and(|it| it < Weight::Flag);
        draft.retain(|key, weight| !key.starts_with("model.") || weight == Weight::Flag);
        draft.assumed.retain(|it| !it.contains("vocabulary"));
        if replaced {
            draft.notes.push("the model is that of --model, not that of the inputs".to_owned());
        }
        if name != Some(Weight::Flag) {
            return Ok(());
        }
        draft.title = None;
    } else if layers >= Some(Weight::Stated) && name < Some(Weight::Stated) {
        draft.remove("model.name");
    }
    Ok(())
}

fn cluster(draft: &mut Draft, changes: &mut Vec<String>) -> Result<(), String> {
    if !draft.has("cluster.instance") && !draft.has("cluster.gpu") {
        return Err("the machine is not given: add --instance NAME, as in --instance p5.48xlarge (plumb machines lists them), or --set gpu=A100-80GB".to_owned());
    }
    // A machine by a flag replaces the one of the inputs.
    if draft.weight("cluster.instance") == Some(Weight::Flag)
        && draft.weight("cluster.gpu") < Some(Weight::Flag)
    {
        draft.retain(|key, weight| {
            !["cluster.gpu", "cluster.gpus_per_node", "cluster.intra"].contains(&key)
                || weight == Weight::Flag
        });
        draft.retain(|key, weight| !key.starts_with("cluster.inter.") || weight == Weight::Flag);
    }
    let there = draft.text("cluster.instance").and_then(catalogue::find).map(|it| u64::from(it.gpus));
    let each = draft.number("launch.per_node");
    let pods = draft.has("cluster.pods");
    if let (Some(each), Some(there), false) = (each, there, pods) {
        if each != there {
            draft.set(
                "cluster.pods",
                format!("1x{each}"),
                "processes of a node",
                &Place::flag(""),
                Weight::Follows,
            );
        }
    } else if draft.has("cluster.gpu") && !draft.has("cluster.gpus_per_node") {
        match each {
            Some(each) => draft.set(
                "cluster.gpus_per_node",
                each,
                "processes of a node",
                &Place::flag(""),
                Weight::Follows,
            ),
            None => draft.assume("cluster.gpus_per_node", 8, "8 GPUs of a node (gpus_per_node)"),
        }
    }
    let each = gpus_of_node(draft);
    if !draft.has("cluster.nodes") {
        let total = draft.number("launch.processes");
        match (total, each) {
            (Some(total), Some(each)) if each > 0 && total > each && total % each == 0 => {
                draft.set("cluster.nodes", total / each, "processes", &Place::flag(""), Weight::Follows);
            }
            _ if draft.has("launch.open_nodes") => {
                let open = draft.get("launch.open_nodes").map(|it| it.place.to_string()).unwrap_or_default();
                return Err(format!(
                    "the number of nodes is not given ({open} leaves it open): add --nodes N"
                ));
            }
            _ => draft.assume("cluster.nodes", 1, "one node (nodes)"),
        }
    }
    // Fewer processes than a node has GPUs use only some of them.
    if let (Some(total), Some(nodes), Some(each)) =
        (draft.number("launch.processes"), draft.number("cluster.nodes"), each)
        && nodes > 0
        && total % nodes == 0
        && total / nodes < each
        && !draft.has("cluster.pods")
        && draft.weight("cluster.nodes") < Some(Weight::Flag)
    {
        draft.set(
            "cluster.pods",
            format!("1x{}", total / nodes),
            "processes",
            &Place::flag(""),
            Weight::Follows,
        );
    }
    if let Some(network) = draft.text("launch.network").map(ToOwned::to_owned)
        && draft.number("cluster.nodes").is_some_and(|it| it > 1)
        && !draft.has("cluster.inter.kind")
    {
        draft.notes.push("the pods request no vpc.amazonaws.com/efa: NCCL uses TCP between nodes".to_owned());
        changes.push(format!("network={network}"));
    }
    Ok(())
}

/// GPUs that the job uses on a node.
fn gpus_of_node(draft: &Draft) -> Option<u64> {
    if let Some(pods) = draft.text("cluster.pods") {
        let layout = fabric::Layout::parse(pods).ok()?;
        return Some(u64::from(layout.pods_per_node) * u64::from(layout.gpus_per_pod));
    }
    let there = draft.text("cluster.instance").and_then(catalogue::find).map(|it| u64::from(it.gpus));
    there.or_else(|| draft.number("cluster.gpus_per_node"))
}

/// Micro-batch, accumulation and global batch: each two give the third, and all three must agree.
fn batch(draft: &mut Draft) -> Result<(), String> {
    let ranks = gpus_of_node(draft)
        .zip(draft.number("cluster.nodes"))
        .map(|(each, nodes)| each.saturating_mul(nodes));
    let of = |key: &str| draft.number(key).unwrap_or(1).max(1);
    let parts = of("run.tp").saturating_mul(of("run.pp")).saturating_mul(of("run.cp"));
    let dp = ranks.map(|it| (it / parts).max(1));
    let (micro, steps, global) = (
        draft.number("run.micro_batch"),
        draft.number("batch.accumulation"),
        draft.number("run.global_batch"),
    );
    let say = |draft: &Draft, key: &str| {
        draft
            .get(key)
            .map(|it| format!("{} {} ({})", it.called, shown(it.value), it.place))
            .unwrap_or_default()
    };
    if let (Some(micro), Some(steps), Some(global), Some(dp)) = (micro, steps, global, dp) {
        let product = micro.saturating_mul(steps).saturating_mul(dp);
        if product != global {
            return Err(format!(
                "{} x {} x {dp} data-parallel ranks are {product} sequences of a step, but {}",
                say(draft, "run.micro_batch"),
                say(draft, "batch.accumulation"),
                say(draft, "run.global_batch"),
            ));
        }
    }
    let megatron = draft.text("run.framework").is_none_or(|it| it.starts_with("megatron"));
    // Values left to the Hugging Face Trainer have its defaults.
    let trainer = draft.has("batch.auto") || !megatron;
    match (micro, steps, global, dp) {
        // Frameworks accumulate nothing unless they are told to. A batch of a flag says nothing of how it is divided.
        (None, steps, Some(global), Some(dp))
            if !megatron && (steps.is_some() || draft.weight("run.global_batch") < Some(Weight::Flag)) =>
        {
            let each = dp.saturating_mul(steps.unwrap_or(1)).max(1);
            if global % each != 0 {
                return Err(format!(
                    "{} is not a multiple of {each}, the data-parallel ranks times the accumulated steps: --nodes N and --set pods=1x4 change the GPUs of the job",
                    say(draft, "run.global_batch")
                ));
            }
            draft.set("run.micro_batch", global / each, "micro-batch", &Place::flag(""), Weight::Follows);
            if steps.is_none() {
                draft.assumed.push("no accumulated steps (micro_batch)".to_owned());
            }
        }
        (None, ..) if draft.has("batch.auto") => {
            draft.assume(
                "run.micro_batch",
                8,
                "8 sequences of a micro-batch, the default of the Trainer (micro_batch)",
            );
        }
        _ => {}
    }
    if let (None, Some(dp)) = (global, dp) {
        let (micro, steps) = (draft.number("run.micro_batch").unwrap_or(1), steps.unwrap_or(1));
        let batch = micro.saturating_mul(steps).saturating_mul(dp);
        draft.set("run.global_batch", batch, "global batch", &Place::flag(""), Weight::Follows);
        if !draft.has("batch.accumulation") {
            draft.assumed.push(if trainer {
                "no accumulated steps (global_batch)".to_owned()
            } else {
                format!(
                    "a step of {batch} sequences, one micro-batch of each data-parallel rank (global_batch)"
                )
            });
        }
    }
    Ok(())
}

/// `DeepSpeed` ignores offloading that its stage of `ZeRO` does not have.
fn offloads(draft: &mut Draft) {
    let zero = draft.number("run.zero").unwrap_or(0);
    for (key, least) in [("run.offload.params", 3), ("run.offload.optimizer", 1)] {
        let on = draft.get(key).is_some_and(|it| it.value == &Value::Bool(true));
        if on && zero < least && draft.weight(key) < Some(Weight::Flag) {
            let entry = draft.remove(key);
            let at = entry.map(|it| format!("{} ({})", it.called, it.place)).unwrap_or_default();
            draft.notes.push(format!("{at} needs ZeRO-{least} and is left out: the stage is {zero}"));
        }
    }
}

fn defaults(draft: &mut Draft) {
    let whole = draft.has("run.framework");
    draft.assume(
        "run.precision",
        "bf16",
        "bf16, as no input sets a precision and FP32 is not modelled (precision)",
    );
    if !whole {
        let zero = draft.number("run.zero").unwrap_or(0);
        if !draft.has("run.tp") && zero > 0 {
            draft.assume("run.framework", "deepspeed", "deepspeed (framework)");
        }
    }
}
