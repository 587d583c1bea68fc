//! Memory of the GPU that needs most.

use fabric::units::Gibibytes;

use super::check::Counts;
use super::constants::Constants;
use super::hardware::Cluster;
use super::model::Model;
use super::run::{Framework, Precision, Recompute, Run};
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
    fn new(constants: &Constants, model: &Model, run: &Run) -> Self {
        let hidden = f64::from(model.hidden);
        let (norms, gate) =
            if run.is_of_transformers() { (constants.plain.norms, constants.plain.gate) } else { (0.0, 0.0) };
        // Two norms' inputs, inputs of two products; two masks of dropout, which models with a gate do not have.
        let outside = if model.gated { (8.0 + norms) * hidden } else { 10.0 * hidden };
        let wide = |width: f64| if model.gated { (6.0 + gate) * width } else { 4.0 * width };
        let share = model.expert_share();
        // A token stands once for each expert that it uses, before and after, on each rank that has a part of this expert.
        let gathered = if run.ep > 1 { f64::from(run.etp) } else { 1.0 };
        let used = model.experts.map_or(0.0, |it| {
            share
                * (f64::from(it.per_token) * (wide(f64::from(it.ffn)) + 2.0 * hidden * gathered)
                    + f64::from(it.shared) * wide(f64::from(it.ffn)))
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
        let input = 2.0 * f64::from(model.hidden) / split;
        let kept = match run.recompute {
            Recompute::None => whole,
            Recompute::Selective if run.recomputes_operators() => {
                tokens * (input + (2.0 * model.queries() + products(model)) / tp)
            }
            Recompute::Selective => tokens * linear,
            Recompute::Full => tokens * input,
        };
        (whole, kept)
    }
}

/// Bytes of every second product of a layer, for one token: PyTorch's selective checkpointing by operator keeps these.
fn products(model: &Model) -> f64 {
    let hidden = f64::from(model.hidden);
    let up = (model.matrices() - 1.0) * f64::from(model.ffn);
    0.5 * 2.0 * (model.queries() + 2.0 * model.keys() + hidden + up + hidden)
}

/// Bytes of the head and the loss for each token and entry of the vocabulary.
fn head_bytes(run: &Run) -> f64 {
    match (run.framework, run.precision) {
        // Scores in 16 bits, in FP32, and their gradient.
        (Framework::Megatron, _) => 10.0,
        // Compiled, the loss keeps scores and their gradient in 16 bits; FP8 in PyTorch is compiled. Measured with tools/kernels.
        (_, Precision::Fp8) => 4.0,
        // Measured with tools/kernels: scores in FP32, their logarithms, and their gradient.
        _ => 12.0,
    }
}

/// Parameters of one rank: of experts, and all others.
#[derive(Debug, Clone, Copy)]
struct Parameters {
    dense: f64,
    experts: f64,
}

impl Parameters {
    fn sum(self) -> f64 {
        self.dense + self.experts
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
    let (tp, pp, vpp) = (f64::from(run.tp), f64::from(run.pp), f64::from(run.vpp));
    let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / f64::from(run.cp);
    let (whole, kept) = Activations::new(constants, model, run).of_layer(model, run, tokens);
    let vocabulary = model.embedding_parameters() / tp;
    // Each stage that waits for gradients keeps its micro-batches: the first one has the most.
    let waiting = if run.vpp > 1 { pp * (1.0 + (pp - 1.0) / (pp * vpp)) } else { pp.min(micro_batches) };
    let again = if run.recompute == Recompute::Full { whole } else { whole - kept };
    // Scores of the vocabulary, and gradients of the head's input.
    let head = tokens * (f64::from(model.vocab) / tp * head_bytes(run) + 4.0 * f64::from(model.hidden));
    let only = run.pp == 1;
    // DeepSpeed's pipeline also holds what a stage sent until its gradient comes.
    let sent =
        if run.is_megatron_deepspeed() && !only { tokens * 2.0 * f64::from(model.hidden) } else { 0.0 };
    let first = waiting * (stages.first * kept + sent) + again.max(if only { head } else { 0.0 });
    let last = stages.last * kept + again.max(head);
    let share = model.expert_share();
    let of_layer = Parameters {
        dense: model.layer_parameters() / tp,
        experts: if share > 0.0 { model.expert_parameters() / share / run.expert_split() } else { 0.0 },
    };
    let of_stage = |layers: f64, mixed: f64| Parameters {
        dense: layers * of_layer.dense + vocabulary * if only && !model.tied { 2.0 } else { 1.0 },
        experts: mixed * of_layer.experts,
    };
    // Layers without experts come first.
    let mixed = share * f64::from(model.layers);
    let without = f64::from(model.layers) - mixed;
    let ranks = dp * f64::from(run.cp);
    let state = State::new(run, ranks);
    let of_experts = State::new(run, ranks * tp / run.expert_split());
    let bytes = |parameters: Parameters, of: fn(&State) -> f64| {
        parameters.dense * of(&state) + parameters.experts * of(&of_experts)
    };
    let first_parameters = of_stage(stages.first, (stages.first - without).max(0.0));
    let last_parameters = of_stage(stages.last, stages.last.min(mixed));
    let (parameters, activations) =
        if bytes(first_parameters, State::sum) + first >= bytes(last_parameters, State::sum) + last {
            (first_parameters, first)
        } else {
            (last_parameters, last)
        };
    let layer = of_layer.sum();
    // Layers that are gathered at one time: at work, fetched ahead, and the root's tables.
    let live = if run.keeps_gathered() || run.gathers_once() {
        2.0 * parameters.sum()
    } else if run.zero == 3 {
        2.0 * (3.0 * layer + vocabulary)
    } else {
        0.0
    };
    let bucket = match run.framework {
        // Megatron-DeepSpeed holds gradients once more in 16 bits while it reduces them: BigScience's table of 23 runs.
        Framework::Megatron if run.is_megatron_deepspeed() => 2.0 * parameters.sum(),
        Framework::Megatron => 0.0,
        _ => state.buckets(layer + vocabulary),
    };
    let loose = constants.state.fragments * (activations + live + bucket);
    let workspace = constants.state.workspace * GIB;
    let groups =
        [run.tp > 1, run.pp > 1, dp > 1.0, run.cp > 1, run.ep > 1].into_iter().filter(|it| *it).count();
    // DeepSpeed makes its own groups beside Megatron's.
    let twice = if run.is_megatron_deepspeed() { 2.0 } else { 1.0 };
    #[allow(clippy::cast_precision_loss, reason = "at most five")]
    let context = constants.state.context + constants.state.channel * twice * groups as f64;
    let gib = |bytes: f64| Gibibytes(bytes / GIB);
    #[allow(clippy::cast_precision_loss, reason = "GPUs of a node")]
    let on_node = cluster.on_node() as f64;
    let host = bytes(parameters, |it| it.host) * on_node * 1.1;
    let mut memory = Memory {
        weights: gib(bytes(parameters, |it| it.weights)),
        gradients: gib(bytes(parameters, |it| it.gradients)),
        optimizer: gib(bytes(parameters, |it| it.optimizer)),
        activations: gib(activations),
        buffers: gib(live + bucket + loose + workspace),
        context: Gibibytes(context),
        most: Gibibytes(0.0),
        host: gib(host),
        available: cluster.gpu.memory,
        host_available: cluster.host_memory,
    };
    memory.most = Gibibytes(memory.total().0 * (1.0 + constants.spread.memory));
    memory
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
        let dp = dp.max(1.0);
        let part = |from: u32| if run.zero >= from { dp } else { 1.0 };
        let sharded = run.framework == Framework::Fsdp;
        // FSDP keeps its part of one copy in FP32, from which it makes what it gathers; the others keep 16 bits beside the optimizer's copy.
        let weights = if sharded { 4.0 / part(1) } else { 2.0 / part(3) };
        let gradients = match (run.framework, run.precision) {
            (Framework::DeepSpeed, _) => 2.0,
            // Megatron-DeepSpeed's FP16 optimizer adds up in 16 bits, its BF16 optimizer keeps both.
            (Framework::Megatron, Precision::Fp16) if run.is_megatron_deepspeed() => 2.0,
            _ if run.adds_apart() => 6.0,
            _ if run.sums_in_half() => 2.0,
            _ => 4.0,
        };
        let gradients = if run.keeps_gathered() { gradients } else { gradients / part(2) };
        // Megatron-DeepSpeed also keeps its part of the gradients in FP32 for the optimizer.
        let more = if run.is_megatron_deepspeed() { 4.0 } else { 0.0 };
        // The BF16 optimizer of Megatron-DeepSpeed shards its states without ZeRO, too (DeepSpeed, `bf16_optimizer.py`).
        let states = if run.adds_apart() { dp } else { part(1) };
        let optimizer = if sharded { 8.0 } else { 12.0 + more } / states;
        // The optimizer on the host works on FP32 copies of its part of the gradients.
        let (on_gpu, on_host) =
            if run.offload.optimizer { (0.0, optimizer + 4.0 / part(1)) } else { (optimizer, 0.0) };
        let (kept, moved) = if run.offload.params { (0.0, weights) } else { (weights, 0.0) };
        let gradients = if run.offloads_gradients() { 0.0 } else { gradients };
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
