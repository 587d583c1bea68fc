//! Memory of the GPU that needs most.

use fabric::units::Gibibytes;

use super::check::Counts;
use super::constants::Constants;
use super::hardware::Cluster;
use super::model::Model;
use super::run::{Framework, Recompute, Run};
use super::schedule::Stages;
use super::step::Memory;

/// Bytes of a GiB.
const GIB: f64 = 1_073_741_824.0;

/// Bytes of a layer's activations for one token, kept for the backward pass: outside of tensor parallelism, inside of it, and
/// the scores of attention without flash attention. Korthikanti et al., "Reducing Activation Recomputation", section 4.
struct Activations {
    outside: f64,
    inside: f64,
    scores: f64,
}

impl Activations {
    fn new(model: &Model, run: &Run) -> Self {
        let hidden = f64::from(model.hidden);
        // Two norms' inputs, inputs of two products, two masks of dropout.
        let outside = 10.0 * hidden;
        let wide = |width: f64| if model.gated { 6.0 * width } else { 4.0 * width };
        let share = model.expert_share();
        let used = model.experts.map_or(0.0, |it| {
            share
                * (f64::from(it.per_token) + f64::from(it.shared))
                * (wide(f64::from(it.ffn)) + 2.0 * hidden)
        });
        let feed = (1.0 - share) * wide(f64::from(model.ffn)) + used;
        let inside = 2.0 * (model.queries() + 2.0 * model.keys()) + 2.0 * model.queries() + feed;
        // Softmax in 16 bits, its dropout with a mask, for each head and key.
        let scores = 5.0 * f64::from(model.heads) * f64::from(run.seq);
        Self { outside, inside, scores }
    }

    /// Bytes of one layer and micro-batch on a rank, whole and as kept.
    fn of_layer(&self, model: &Model, run: &Run, tokens: f64) -> (f64, f64) {
        let tp = f64::from(run.tp);
        let split = if run.sequence_parallel { tp } else { 1.0 };
        let scores = if run.flash_attention { 0.0 } else { self.scores };
        let linear = self.outside / split + self.inside / tp;
        let whole = tokens * (linear + scores / tp);
        let kept = match run.recompute {
            Recompute::None => whole,
            Recompute::Selective => tokens * linear,
            Recompute::Full => tokens * 2.0 * f64::from(model.hidden) / split,
        };
        (whole, kept)
    }
}

/// What the first and the last stage need, whichever is more.
pub(crate) fn memory(
    constants: &Constants,
    model: &Model,
    cluster: &Cluster,
    run: &Run,
    counts: Counts,
    stages: &Stages,
) -> Memory {
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let (dp, micro_batches) = (counts.dp as f64, counts.micro_batches as f64);
    let (tp, pp, vpp, ep) = (f64::from(run.tp), f64::from(run.pp), f64::from(run.vpp), f64::from(run.ep));
    let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / f64::from(run.cp);
    let (whole, kept) = Activations::new(model, run).of_layer(model, run, tokens);
    let vocabulary = model.embedding_parameters() / tp;
    // Each stage that waits for gradients keeps its micro-batches: the first one has the most.
    let waiting = if run.vpp > 1 { pp * (1.0 + (pp - 1.0) / (pp * vpp)) } else { pp.min(micro_batches) };
    let again = if run.recompute == Recompute::Full { whole } else { whole - kept };
    let scores = tokens * f64::from(model.vocab) / tp;
    // Scores of the vocabulary in 16 bits, in FP32, and their gradient.
    let head = scores * 10.0 + 4.0 * tokens * f64::from(model.hidden);
    let only = run.pp == 1;
    let first = waiting * stages.first * kept + again.max(if only { head } else { 0.0 });
    let last = stages.last * kept + again.max(head);
    let layer = model.layer_parameters() / tp + model.expert_parameters() / tp / ep;
    let tables = |stage: bool| {
        if only && !model.tied {
            2.0 * vocabulary
        } else if stage {
            vocabulary
        } else {
            0.0
        }
    };
    let first_params = stages.first * layer + tables(true);
    let last_params = stages.last * layer + tables(true);
    let state = State::new(run, dp * f64::from(run.cp));
    let need = |params: f64, activations: f64| params * state.sum() + activations;
    let (params, activations) = if need(first_params, first) >= need(last_params, last) {
        (first_params, first)
    } else {
        (last_params, last)
    };
    let sharded = run.zero == 3;
    // Layers that are gathered at one time: at work, fetched ahead, and the root's tables.
    let live = if sharded { 2.0 * (3.0 * layer + vocabulary) } else { 0.0 };
    let bucket = if run.framework == Framework::Megatron { 0.0 } else { state.buckets(layer + vocabulary) };
    let loose = constants.state.fragments * (activations + live + bucket);
    let workspace = constants.state.workspace * GIB;
    let groups = [run.tp > 1, run.pp > 1, dp > 1.0, run.cp > 1].into_iter().filter(|it| *it).count();
    #[allow(clippy::cast_precision_loss, reason = "at most four")]
    let context = constants.state.context + constants.state.channel * groups as f64;
    let gib = |bytes: f64| Gibibytes(bytes / GIB);
    #[allow(clippy::cast_precision_loss, reason = "GPUs of a node")]
    let on_node = cluster.on_node() as f64;
    let host = params * on_node * state.host * 1.1;
    Memory {
        weights: gib(params * state.weights),
        gradients: gib(params * state.gradients),
        optimizer: gib(params * state.optimizer),
        activations: gib(activations),
        buffers: gib(live + bucket + loose + workspace),
        context: Gibibytes(context),
        host: gib(host),
        available: cluster.gpu.memory,
        host_available: cluster.host_memory,
    }
}

/// Bytes for each parameter of a rank's part of the model.
struct State {
    weights: f64,
    gradients: f64,
    optimizer: f64,
    host: f64,
}

impl State {
    fn new(run: &Run, dp: f64) -> Self {
        let part = |from: u32| if run.zero >= from { dp } else { 1.0 };
        let sharded = run.framework == Framework::Fsdp;
        // FSDP keeps one copy in FP32, from which it makes what it gathers; the others keep 16 bits beside the optimizer's copy.
        let weights = if sharded { 4.0 } else { 2.0 } / part(3);
        // Megatron-DeepSpeed's BF16 optimizer keeps gradients of 16 bits beside those it adds up in FP32.
        let both = run.adds_apart();
        let gradients = match run.framework {
            Framework::DeepSpeed => 2.0,
            _ if both => 6.0,
            _ => 4.0,
        };
        let gradients = gradients / part(2);
        let optimizer = if sharded { 8.0 } else { 12.0 } / part(1);
        let (on_gpu, on_host) =
            if run.offload.optimizer { (0.0, optimizer + 4.0 / part(2)) } else { (optimizer, 0.0) };
        let (kept, moved) = if run.offload.params { (0.0, weights) } else { (weights, 0.0) };
        let gradients = if run.offload.optimizer { 0.0 } else { gradients };
        Self { weights: kept, gradients, optimizer: on_gpu, host: on_host + moved }
    }

    fn sum(&self) -> f64 {
        self.weights + self.gradients + self.optimizer
    }

    /// Gradients of what is reduced at one time, before it is sharded.
    fn buckets(&self, parameters: f64) -> f64 {
        if self.weights < 2.0 || self.gradients < 4.0 { 4.0 * parameters } else { 0.0 }
    }
}
