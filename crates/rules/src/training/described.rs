//! Reads the keys of a job file from the lines of trainers, frameworks and NCCL.

use evidence::Quote;
use evidence::plain::{State, Training};
use evidence::signals::application::CPU_OPTIMIZER;
use evidence::signals::launch::ONE_THREAD;
use forecast::training::{Model, models};
use serde_json::{Value, json};

use super::paths::Paths;
use super::{Batch, Logged, Measured, Said};
use crate::Log;

pub(super) fn read(log: &Log) -> Logged {
    let mut logged = Logged::default();
    logged.paths = Paths::of(log, &mut logged.notes);
    let reader = Reader { log, training: &log.case.training };
    reader.model(&mut logged);
    reader.run(&mut logged);
    reader.cluster(&mut logged);
    logged.ranks = reader.ranks().map(|it| it.0);
    logged.measured = Measured::of(&log.case.training, &logged, logged.ranks.map(f64::from));
    logged.batch = batch_of_steps(&log.case.training, logged.measured.as_ref());
    // What a run does at its steps counts more than what it was told, which may be the batch that it grows to.
    if let Some(Batch::Same(samples)) = logged.batch {
        logged.said.retain(|it| it.key != Logged::BATCH || it.value == samples);
        logged.say(Logged::BATCH, samples, None);
    }
    logged
}

/// The samples that are printed at the steps whose time counts.
fn batch_of_steps(training: &Training, measured: Option<&Measured>) -> Option<Batch> {
    let left_out = measured.and_then(|it| it.spread.as_ref()).map_or(0, |it| it.left_out);
    let mut all = training.steps.batch.after(left_out).into_iter();
    let first = all.next()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of samples above 0")]
    let same = Batch::Same(first.round() as u64);
    Some(if all.any(|it| (it - first).abs() > 0.5) { Batch::Changes } else { same })
}

struct Reader<'a> {
    log: &'a Log,
    training: &'a Training,
}

impl Logged {
    fn say(&mut self, key: &'static str, value: impl Into<Value>, quote: Option<&Quote>) {
        if self.get(key).is_none() {
            self.said.push(Said { key, value: value.into(), quote: quote.cloned() });
        }
    }
}

/// `36,718`
fn whole(text: &str) -> Option<u64> {
    text.trim().replace(',', "").parse().ok()
}

fn is_true(text: &str) -> Option<bool> {
    match text.trim() {
        "True" | "true" => Some(true),
        "False" | "false" => Some(false),
        _ => None,
    }
}

/// The samples of a step, by those of all steps.
fn samples_per_step(state: &State) -> Option<u64> {
    #[allow(clippy::cast_precision_loss, reason = "steps are far below 2^53")]
    let samples = state.samples_per_s? * state.runtime? / state.steps as f64;
    let whole = samples.round();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 1 and a million"
    )]
    let samples =
        ((samples / whole - 1.0).abs() < 0.01 && (1.0..1e6).contains(&whole)).then_some(whole as u64);
    samples
}

/// The parameters of a public model and of the log are the same within this: heads that are trained or not, and rounding.
const SAME: f64 = 0.0005;

impl<'a> Reader<'a> {
    /// The first of these arguments that has a whole number above 0.
    fn count(&self, names: &[&str]) -> Option<(u64, &'a Quote)> {
        names.iter().find_map(|name| {
            let seen = self.training.argument(name)?;
            Some((whole(&seen.value.value).filter(|it| *it > 0)?, &seen.quote))
        })
    }

    fn flag(&self, name: &str) -> Option<(bool, &'a Quote)> {
        let seen = self.training.argument(name)?;
        Some((is_true(&seen.value.value)?, &seen.quote))
    }

    /// A setting of the trainer's block, `Total optimization steps = 50`.
    fn setting(&self, name: &str) -> Option<(u64, &'a Quote)> {
        let seen = self.training.setting(name)?;
        Some((whole(&seen.value.value).filter(|it| *it > 0)?, &seen.quote))
    }

    fn is_megatron(&self) -> bool {
        self.training.argument("tensor_model_parallel_size").is_some()
    }

    fn model(&self, logged: &mut Logged) {
        let layers = self.count(&["num_layers", "num_hidden_layers", "n_layer"]);
        let hidden = self.count(&["hidden_size", "n_embd"]);
        let heads = self.count(&["num_attention_heads", "n_head"]);
        let vocab = self.count(&["padded_vocab_size", "vocab_size"]);
        let (Some(layers), Some(hidden), Some(heads), Some(vocab)) = (layers, hidden, heads, vocab) else {
            self.known_model(logged);
            return;
        };
        for (key, (value, quote)) in [
            ("model.layers", layers),
            ("model.hidden", hidden),
            ("model.heads", heads),
            ("model.vocab", vocab),
        ] {
            logged.say(key, value, Some(quote));
        }
        // Megatron prints one group of queries also where it has none.
        let grouped = self.flag("group_query_attention").is_none_or(|it| it.0);
        let groups: &[&str] = if grouped { &["num_key_value_heads", "num_query_groups"] } else { &[] };
        for (key, names) in [
            ("model.kv_heads", groups),
            ("model.ffn", &["ffn_hidden_size", "intermediate_size"]),
            ("model.head_width", &["head_dim", "kv_channels"]),
            ("model.experts", &["num_experts", "num_local_experts"]),
            ("model.experts_per_token", &["moe_router_topk", "num_experts_per_tok"]),
            ("model.moe_ffn", &["moe_ffn_hidden_size", "moe_intermediate_size"]),
        ] {
            if let Some((value, quote)) = self.count(names) {
                logged.say(key, value, Some(quote));
            }
        }
        // Models of Hugging Face with a width of their own for the feed-forward part have a gate, those with `n_embd` none.
        let gated = self.flag("swiglu").or_else(|| {
            let quote = self.count(&["intermediate_size"]).filter(|_| !self.is_megatron())?.1;
            let plain = ["gpt_neox", "phi", "opt", "bloom", "falcon", "starcoder2"];
            let kind = self.training.argument("model_type").map_or("", |it| &*it.value.value);
            Some((!plain.contains(&kind), quote))
        });
        if let Some((gated, quote)) = gated {
            logged.say("model.gated_mlp", gated, Some(quote));
        }
        let untied = self.flag("untie_embeddings_and_output_weights").map(|it| (!it.0, it.1));
        if let Some((tied, quote)) = self.flag("tie_word_embeddings").or(untied) {
            logged.say("model.tied_embeddings", tied, Some(quote));
        }
    }

    /// A public model that has exactly as many parameters as the trainer counts.
    fn known_model(&self, logged: &mut Logged) {
        let Some((parameters, quote)) = self.setting("Number of trainable parameters") else { return };
        #[allow(clippy::cast_precision_loss, reason = "parameters are far below 2^53")]
        let parameters = parameters as f64;
        let same = |model: &Model| (model.parameters() / parameters - 1.0).abs() < SAME;
        let fitting =
            || models::names().filter_map(|it| Some((it, models::find(it).ok()?))).filter(|it| same(&it.1));
        let Some((name, model)) = fitting().next() else { return };
        if fitting().any(|it| it.1 != model) {
            return;
        }
        logged.say("model.name", name, Some(quote));
        logged.notes.push(format!(
            "the model is taken as {name}: it has the {:.3} billion parameters that the trainer counts",
            parameters / 1e9
        ));
    }

    fn run(&self, logged: &mut Logged) {
        for (key, names) in [
            ("run.tp", &["tensor_model_parallel_size"][..]),
            ("run.pp", &["pipeline_model_parallel_size"]),
            ("run.vpp", &["virtual_pipeline_model_parallel_size"]),
            ("run.cp", &["context_parallel_size"]),
            ("run.ep", &["expert_model_parallel_size"]),
            ("run.seq", &["seq_length", "max_seq_length"]),
            (
                "run.micro_batch",
                &["micro_batch_size", "train_micro_batch_size_per_gpu", "per_device_train_batch_size"],
            ),
            (Logged::BATCH, &["global_batch_size", "train_batch_size"]),
            ("run.steps", &["train_iters", "max_steps"]),
        ] {
            if let Some((value, quote)) = self.count(names) {
                logged.say(key, value, Some(quote));
            }
        }
        for (key, name) in [
            ("run.micro_batch", "Instantaneous batch size per device"),
            (Logged::BATCH, "Total train batch size (w. parallel, distributed & accumulation)"),
            ("run.steps", "Total optimization steps"),
        ] {
            if let Some((value, quote)) = self.setting(name) {
                logged.say(key, value, Some(quote));
            }
        }
        if let Some(state) = &self.training.state {
            for (key, value) in [
                ("run.steps", state.planned),
                ("run.micro_batch", state.micro_batch),
                (Logged::BATCH, samples_per_step(state)),
            ] {
                if let Some(value) = value {
                    logged.say(key, value, None);
                }
            }
        }
        self.sharding(logged);
        self.precision(logged);
        // The layers of Transformer Engine have fused attention, whatever `use_flash_attn` says.
        let engine = self.training.argument("transformer_impl");
        if let Some(seen) = engine.filter(|it| &*it.value.value == "transformer_engine") {
            logged.say("run.flash_attention", true, Some(&seen.quote));
        }
        for (key, name) in [
            ("run.sequence_parallel", "sequence_parallel"),
            ("run.flash_attention", "use_flash_attn"),
            ("run.overlap", "overlap_grad_reduce"),
        ] {
            if let Some((value, quote)) = self.flag(name).filter(|_| self.is_megatron()) {
                logged.say(key, value, Some(quote));
            }
        }
        self.recompute(logged);
        let threads = self
            .log
            .job
            .settings
            .named("OMP_NUM_THREADS")
            .find_map(|it| Some((whole(it.text())?, it.quote())));
        let told = || {
            let seen = self.log.case.sightings_of(&ONE_THREAD).next()?;
            Some((whole(seen.get("n"))?, Some(&seen.quote)))
        };
        if let Some((value, quote)) = threads.or_else(told).filter(|it| it.0 > 0) {
            logged.say("run.omp_threads", value, quote);
        }
    }

    /// Framework, stage of `ZeRO`, and what is offloaded.
    fn sharding(&self, logged: &mut Logged) {
        if self.is_megatron() {
            let quote = self.training.argument("tensor_model_parallel_size").map(|it| &it.quote);
            logged.say("run.framework", "megatron", quote);
            if let Some((distributed, quote)) = self.flag("use_distributed_optimizer") {
                logged.say("run.zero", u64::from(distributed), Some(quote));
            }
        }
        let stage = ["zero_optimization_stage", "stage"].into_iter().find_map(|name| {
            let seen = self.training.argument(name)?;
            Some((whole(&seen.value.value).filter(|it| *it <= 3)?, &seen.quote))
        });
        let Some((stage, quote)) = stage else { return };
        logged.say("run.framework", "deepspeed", Some(quote));
        logged.say("run.zero", stage, Some(quote));
        let device = |object: &str| {
            let seen = self.training.member(object, "device")?;
            Some((&*seen.value.value != "none", &seen.quote))
        };
        let cpu = self.log.case.sightings_of(&CPU_OPTIMIZER).next().map(|it| (true, &it.quote));
        let optimizer = device("offload_optimizer").or(cpu);
        let params = device("offload_param").or_else(|| self.parameters_left(logged, stage));
        if optimizer.is_some() || params.is_some() {
            let is = |it: Option<(bool, &Quote)>| it.is_some_and(|it| it.0);
            let quote = optimizer.or(params).map(|it| it.1);
            logged.say("run.offload", json!({ "params": is(params), "optimizer": is(optimizer) }), quote);
        }
    }

    /// With ZeRO-3, GPUs hold their part of the parameters once they are divided, unless these are offloaded.
    fn parameters_left(&self, logged: &mut Logged, stage: u64) -> Option<(bool, &'a Quote)> {
        let (parameters, _) = self.setting("Number of trainable parameters").filter(|_| stage == 3)?;
        let held = self.training.memory.gpu_last.as_ref()?;
        #[allow(clippy::cast_precision_loss, reason = "parameters are far below 2^53")]
        let share = 2.0 * parameters as f64 / f64::from(self.ranks()?.0) / f64::from(1 << 30);
        let offloaded = held.value < 0.5 * share;
        if offloaded {
            logged.notes.push(format!(
                "parameters are taken as offloaded: after ZeRO-3 divided them, {} GB of {share:.2} GB are on a GPU",
                held.value
            ));
        }
        Some((offloaded, &held.quote))
    }

    fn precision(&self, logged: &mut Logged) {
        let enabled = |name: &str| {
            let seen = self.training.member(name, "enabled")?;
            Some((is_true(&seen.value.value)?, &seen.quote))
        };
        let fp8 = self.training.argument("fp8").map(|it| &it.quote);
        let bf16 = self.flag("bf16").or_else(|| enabled("bf16")).or_else(|| self.flag("bfloat16_enabled"));
        let fp16 = self.flag("fp16").or_else(|| enabled("fp16"));
        let found = match (fp8, bf16, fp16) {
            (Some(quote), ..) if self.is_megatron() => Some(("fp8", quote)),
            (_, Some((true, quote)), _) => Some(("bf16", quote)),
            (_, _, Some((true, quote))) => Some(("fp16", quote)),
            _ => None,
        };
        if let Some((name, quote)) = found {
            logged.say("run.precision", name, Some(quote));
        }
    }

    fn recompute(&self, logged: &mut Logged) {
        let named = self.training.argument("recompute_granularity");
        let selective = self.flag("recompute_activations").filter(|it| it.0).map(|it| ("selective", it.1));
        let full = self.flag("gradient_checkpointing").map(|it| (if it.0 { "full" } else { "none" }, it.1));
        let named = named.and_then(|it| match &*it.value.value {
            "full" => Some(("full", &it.quote)),
            "selective" => Some(("selective", &it.quote)),
            _ => None,
        });
        if let Some((value, quote)) = named.or(selective).or(full) {
            logged.say("run.recompute", value, Some(quote));
        }
    }

    /// Ranks of the job, and the line that says so.
    fn ranks(&self) -> Option<(u32, Option<&'a Quote>)> {
        let size = &self.log.job.size;
        let reported = size.ranks.as_ref().map(|it| (it.value, it.source.quote()));
        let world = || {
            let (ranks, quote) = self.count(&["world_size"])?;
            Some((u32::try_from(ranks).ok()?, Some(quote)))
        };
        // Of a trainer that divides nothing but the batch.
        let trained = || {
            let (each, _) = self.setting("Instantaneous batch size per device")?;
            let (all, quote) =
                self.setting("Total train batch size (w. parallel, distributed & accumulation)")?;
            let (again, _) = self.setting("Gradient Accumulation steps")?;
            let ranks = all.checked_div(each.checked_mul(again)?).filter(|it| it * each * again == all)?;
            Some((u32::try_from(ranks).ok()?, Some(quote)))
        };
        reported.or_else(world).or_else(trained)
    }

    fn cluster(&self, logged: &mut Logged) {
        let job = &self.log.job;
        let there = if let Some(model) = &job.model {
            logged.say("cluster.instance", model.value.name, model.source.quote());
            Some(model.value.gpus)
        } else {
            self.parts(logged)
        };
        let reported = job.size.reported.as_ref().filter(|it| it.value.is_even());
        let layout = job.layout.as_ref().filter(|it| it.value.pods_per_node > 1).map(|it| it.value);
        if let (Some(layout), Some(reported)) = (layout, reported) {
            let nodes = reported.value.nodes.div_ceil(layout.pods_per_node);
            logged.say("cluster.nodes", nodes, reported.source.quote());
            logged.say("cluster.pods", format!("{}x{}", layout.pods_per_node, layout.gpus_per_pod), None);
        } else if let Some(reported) = reported {
            let each = reported.value.ranks_per_node;
            logged.say("cluster.nodes", reported.value.nodes, reported.source.quote());
            if let Some(there) = there.filter(|it| each < *it) {
                logged.say("cluster.pods", format!("1x{each}"), reported.source.quote());
                logged.notes.push(format!(
                    "NCCL counts {} nodes with {each} of {there} GPUs: each is taken as a machine of its own; `pods` in [cluster] or --set pods={}x{each} says otherwise",
                    reported.value.nodes,
                    reported.value.nodes.min(there / each)
                ));
            }
        } else if let (Some(there), Some((ranks, quote))) = (there, self.ranks()) {
            if ranks.is_multiple_of(there.max(1)) && ranks >= there {
                logged.say("cluster.nodes", ranks / there.max(1), quote);
            } else if ranks < there {
                logged.say("cluster.nodes", 1, quote);
                logged.say("cluster.pods", format!("1x{ranks}"), quote);
            }
        }
    }

    /// A machine that is not in the catalogue, by its GPUs and NICs; its GPUs.
    fn parts(&self, logged: &mut Logged) -> Option<u32> {
        let job = &self.log.job;
        let machine = job.machines.first();
        let of_machine = machine
            .and_then(|it| Some((it.value.gpus.first()?.model.as_deref()?.to_owned(), it.source.quote())));
        let of_flag = job.gpu.as_ref().map(|it| (it.value.name.clone(), it.source.quote()));
        let of_test = || {
            let test = self.log.case.tests.iter().find(|it| !it.devices.is_empty())?;
            let model = fabric::gpu::by_name_in_text(&test.devices.first()?.name)?;
            Some((model.name.clone(), Some(&test.quote)))
        };
        let (gpu, quote) = of_flag.or(of_machine).or_else(of_test)?;
        let local = job.size.ranks_per_node.as_ref().map(|it| it.value);
        let gpus = machine.and_then(|it| u32::try_from(it.value.gpus.len()).ok()).or(local)?;
        logged.say("cluster.gpu", gpu, quote);
        logged.say("cluster.gpus_per_node", gpus, quote);
        let nics = machine.map(|it| &it.value.nics).filter(|it| !it.is_empty())?;
        let (kind, rate) = nics.first().and_then(|it| Some((it.kind, it.rate?.0)))?;
        let kind = match kind {
            fabric::machine::NicKind::Efa => "efa",
            fabric::machine::NicKind::Roce => "roce",
            fabric::machine::NicKind::Ethernet => "tcp",
            fabric::machine::NicKind::InfiniBand => "infiniband",
            _ => return Some(gpus),
        };
        logged.say("cluster.inter", json!({ "kind": kind, "nics": nics.len(), "gbps": rate }), quote);
        Some(gpus)
    }
}
