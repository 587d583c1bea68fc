//! From model, cluster and layout to the time of a step.

use fabric::Collective;

use super::check::{Broken, Counts, check};
use super::comm::Links;
use super::compute::{Layer, Speed};
use super::constants::{self, Constants};
use super::hardware::Cluster;
use super::measured::{Measured, Shape};
use super::memory::memory;
use super::model::Model;
use super::offload::{Offloaded, offloaded};
use super::run::{Framework, Precision, Recompute, Run};
use super::schedule::{Stages, piped};
use super::step::{Breakdown, Kind, Seconds, Step};
use super::zero::{Beside, Gathers, Sharded, Tensors, once};

/// The model of training with a set of constants: those of this release, or fitted ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    constants: Constants,
}

impl Calibration {
    /// With the constants of this release.
    pub fn published() -> Self {
        Self { constants: constants::constants().clone() }
    }

    /// Replaces a constant, named as in `gemm.ampere`; whether there is one of this name.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        self.constants.set(name, value)
    }
}

/// Predicts steps of one model on one cluster, for many layouts. A prediction allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct Predictor<'a> {
    constants: &'a Constants,
    model: &'a Model,
    cluster: &'a Cluster,
    links: Links<'a>,
}

/// What one layer does for one micro-batch besides computing, in seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Exchanges {
    tensor: f64,
    expert: f64,
    context: f64,
    /// Collectives that the CPU starts.
    calls: f64,
}

/// A pass of one layer over one micro-batch.
#[derive(Debug, Clone, Copy, Default)]
struct Timed {
    /// On the GPU, with what it exchanges.
    gpu: f64,
    /// What it waits for the CPU.
    launch: f64,
    /// What sharding adds.
    sharded: Beside,
    /// What tokens take to their experts and back.
    expert: Beside,
}

impl Timed {
    fn sum(&self) -> f64 {
        self.gpu + self.launch + self.sharded.exposed
    }
}

impl<'a> Predictor<'a> {
    /// For a model on a cluster, with these constants.
    pub fn new(calibration: &'a Calibration, model: &'a Model, cluster: &'a Cluster) -> Self {
        let constants = &calibration.constants;
        Self { constants, model, cluster, links: Links::new(constants, cluster) }
    }

    /// The same with this share of the bandwidth of all links between GPUs.
    #[must_use]
    pub fn with_bandwidth(self, share: f64) -> Self {
        Self { links: self.links.with_bandwidth(share), ..self }
    }

    /// With what was measured on the cluster, for the groups of ranks that it fits.
    #[must_use]
    pub fn measured(self, measured: &'a Measured) -> Self {
        Self { links: self.links.with(measured), ..self }
    }

    /// For which groups of a layout measurements are used, in sentences.
    pub fn measured_notes(&self, measured: &Measured, run: &Run) -> Vec<String> {
        if measured.is_empty() {
            return Vec::new();
        }
        let (tp, cp, ep) = (f64::from(run.tp), f64::from(run.cp), f64::from(run.ep));
        #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
        let dp = self.cluster.ranks() as f64 / run.model_ranks().max(1) as f64;
        let sums = |sharded: bool| if sharded { Collective::AllGather } else { Collective::AllReduce };
        let groups = [
            ("tensor parallelism", tp, 1.0, sums(run.sequence_parallel)),
            ("data parallelism", dp * cp, tp, sums(run.zero > 0)),
            ("expert parallelism", ep, f64::from(run.etp), Collective::AllToAll),
        ];
        let groups: Vec<(&str, Collective, Shape)> = groups
            .into_iter()
            .filter(|it| it.1 > 1.0)
            .map(|(name, ranks, stride, collective)| {
                (name, collective, self.links.group(ranks, stride).shape())
            })
            .collect();
        measured.notes(&groups)
    }

    /// The step of a layout, or the rule that it breaks.
    pub fn step(&self, run: &Run) -> Result<Step, Broken> {
        let counts = check(self.model, self.cluster, run)?;
        let stages = Stages::new(self.model.layers, run.pp, run.is_megatron_deepspeed());
        let memory = memory(self.constants, self.model, self.cluster, run, counts, &stages);
        let breakdown = self.breakdown(run, counts, &stages);
        let time = breakdown.exposed();
        let tokens = f64::from(run.global_batch) * f64::from(run.seq);
        #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
        let tokens_per_gpu = tokens / time.0 / self.cluster.ranks() as f64;
        let tflops = tokens_per_gpu * self.model.flops_per_token(run.seq) / 1e12;
        let gpu = &self.cluster.gpu;
        let peak = match run.precision {
            Precision::Fp8 => gpu.quarter.unwrap_or(gpu.half),
            Precision::Fp16 | Precision::Bf16 => gpu.half,
        };
        let spread = self.spread(run);
        let interval = (Seconds(time.0 / (1.0 + spread)), Seconds(time.0 * (1.0 + spread)));
        Ok(Step { time, interval, breakdown, tokens_per_gpu, tflops, mfu: tflops / peak, memory })
    }

    fn spread(&self, run: &Run) -> f64 {
        let spread = &self.constants.spread;
        if run.offload.optimizer || run.offload.params {
            spread.offload
        } else if matches!(self.cluster.gpu.compute, 80 | 90)
            && matches!(run.framework, Framework::Megatron | Framework::Fsdp)
            && self.model.experts.is_none()
            && run.cp == 1
        {
            spread.known
        } else {
            spread.unknown
        }
    }

    fn breakdown(&self, run: &Run, counts: Counts, stages: &Stages) -> Breakdown {
        let constants = self.constants;
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let (dp, micro_batches) = (counts.dp as f64, counts.micro_batches as f64);
        let (tp, cp) = (f64::from(run.tp), f64::from(run.cp));
        let speed = Speed::new(constants, self.model, &self.cluster.gpu, run);
        let layer = speed.layer(constants, self.model, run);
        let head = speed.head(constants, self.model, run);
        let exchanges = self.exchanges(run, &layer);
        let group = self.links.group(dp * cp, tp);
        // Experts that are on different ranks have fewer ranks that hold the same ones.
        let split = run.expert_split();
        let expert_ranks = (dp * cp * tp / split).max(1.0);
        let expert_group = self.links.group(expert_ranks, split);
        let (of_layer, of_experts) =
            (self.model.layer_parameters() / tp, self.model.expert_parameters() / split);
        let gathers = Gathers::new(constants, &self.cluster.gpu, run);
        let matrices = 2.0 + self.model.matrices();
        let dense = Tensors { count: matrices, parameters: of_layer };
        let of_each = self.model.experts.map_or(0.0, |it| f64::from(it.count) / f64::from(run.ep));
        let expert = Tensors { count: self.model.matrices() * of_each, parameters: of_experts };
        let sharded =
            Sharded::new(run, &group, gathers, dense).and(Sharded::new(run, &expert_group, gathers, expert));
        let [forward, backward] = self.passes(run, &speed, &layer, exchanges, sharded);

        // The slowest stage: one in the middle, or the last with the head.
        let of_stage = |layers: f64, with_head: bool| {
            let head = if with_head { head.0 + head.1 } else { 0.0 };
            layers * (forward.sum() + backward.sum()) + head
        };
        let only = run.pp == 1;
        let last = of_stage(stages.last, true);
        let middle = if only { 0.0 } else { of_stage(stages.middle, false) };
        let (layers, with_head) = if last >= middle { (stages.last, true) } else { (stages.middle, false) };
        let slowest = last.max(middle);
        let all = f64::from(self.model.layers) * (forward.sum() + backward.sum()) + head.0 + head.1;
        let whole = if only { slowest } else { all };
        let piped = piped(micro_batches, f64::from(run.vpp), slowest, whole);

        let mut parts = Breakdown::default();
        let each = micro_batches * layers;
        parts.add(Kind::Matrices, each * (layer.forward.matrices + layer.backward.matrices));
        parts.add(Kind::Attention, each * (layer.forward.attention + layer.backward.attention));
        parts.add(Kind::Elementwise, each * (layer.forward.elementwise + layer.backward.elementwise));
        parts.add(Kind::Recompute, each * layer.again);
        parts.add(Kind::Launch, each * (forward.launch + backward.launch));
        let passes = if run.recompute == Recompute::Full { 3.0 } else { 2.0 };
        let exposed = 1.0 - self.tensor_hidden(run);
        parts.add(Kind::Tensor, each * passes * exchanges.tensor * exposed);
        parts.hide(Kind::Tensor, each * passes * exchanges.tensor * (1.0 - exposed));
        parts.add(Kind::Expert, each * (forward.expert.exposed + backward.expert.exposed));
        parts.hide(Kind::Expert, each * (forward.expert.hidden + backward.expert.hidden));
        parts.add(Kind::Context, each * passes * exchanges.context);
        if with_head {
            parts.add(Kind::Head, micro_batches * (head.0 + head.1));
        }
        let gathered = sharded.forward + sharded.backward;
        let share = if sharded.sum() > 0.0 { gathered / sharded.sum() } else { 0.0 };
        let beside = Beside {
            exposed: each * (forward.sharded.exposed + backward.sharded.exposed),
            hidden: each * (forward.sharded.hidden + backward.sharded.hidden),
        };
        parts.add(Kind::Gather, beside.exposed * share);
        parts.hide(Kind::Gather, beside.hidden * share);
        parts.add(Kind::Gradients, beside.exposed * (1.0 - share));
        parts.hide(Kind::Gradients, beside.hidden * (1.0 - share));
        parts.add(Kind::Bubble, piped.bubble);
        self.sends(run, &mut parts, micro_batches, dp);
        self.tables(run, &mut parts, micro_batches, &group, gathers);

        // Once a step.
        let parameters = stages.first * of_layer
            + self.model.embedding_parameters() / tp * if only && !self.model.tied { 2.0 } else { 1.0 };
        let experts = stages.first * of_experts;
        let (reduce, gather) = once(run, &group, parameters);
        let (reduce_experts, gather_experts) = once(run, &expert_group, experts);
        let (reduce, gather) = (reduce + reduce_experts, gather + gather_experts);
        let (before, after) =
            if run.overlaps() { (layers * backward.sum(), layers * forward.sum()) } else { (0.0, 0.0) };
        for (kind, comm, compute) in [(Kind::Gradients, reduce, before), (Kind::Gather, gather, after)] {
            let beside = Beside::of(constants, compute, comm, constants.comm.hidden);
            parts.add(kind, beside.exposed);
            parts.hide(kind, beside.hidden);
        }
        let owned = if run.zero >= 1 {
            parameters / (dp * cp) + experts / expert_ranks
        } else {
            parameters + experts
        };
        if run.offload.optimizer || run.offload.params {
            let Offloaded { copies, once, optimizer } = offloaded(constants, self.cluster, run, owned);
            parts.add(Kind::Pcie, copies * micro_batches + once);
            parts.add(Kind::CpuOptimizer, optimizer);
        }
        if !run.offload.optimizer {
            parts.add(Kind::Optimizer, speed.stream(owned * constants.memory.optimizer));
        }
        // Clocks and temperatures differ: the slowest of n is as far from the usual one as the largest of n normal numbers.
        let compute: f64 = Kind::ALL.iter().filter(|it| it.is_compute()).map(|it| parts[*it].exposed.0).sum();
        #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
        let others = (self.cluster.ranks() as f64).ln() / 4096_f64.ln();
        parts.add(Kind::Straggler, constants.comm.slowest * others * compute);
        parts
    }

    /// Forward and backward pass of one layer and micro-batch, with what the CPU and sharding add.
    fn passes(
        &self,
        run: &Run,
        speed: &Speed,
        layer: &Layer,
        exchanges: Exchanges,
        sharded: Sharded,
    ) -> [Timed; 2] {
        let constants = self.constants;
        let again = run.recompute == Recompute::Full;
        let tensor = exchanges.tensor * (1.0 - self.tensor_hidden(run));
        let exchange = tensor + exchanges.context;
        let calls = exchanges.calls * constants.host.collective * 1e-6;
        let share = match run.framework {
            Framework::DeepSpeed if run.gathers_each_tensor(&self.cluster.gpu) => 0.0,
            Framework::DeepSpeed => constants.comm.prefetch,
            _ => 1.0,
        };
        let waits = self.waits_for_counts(run) * self.constants.experts.host * 1e-6;
        let timed = |compute: f64, passes: f64, host: f64, comm: f64, waits: f64| {
            let tokens = passes * exchanges.expert;
            let expert = if run.expert_overlap {
                Beside::of(constants, compute, tokens, 1.0)
            } else {
                Beside { exposed: tokens, hidden: 0.0 }
            };
            let gpu = compute + passes * exchange + expert.exposed;
            let launch = if run.starts_one_by_one() { host } else { (host - gpu).max(waits) };
            let sharded = Beside::of(constants, gpu + launch, comm, share);
            Timed { gpu, launch, sharded, expert }
        };
        let forward = timed(layer.forward.sum(), 1.0, speed.host.0 + calls, sharded.forward, waits);
        let (passes, more_host) = if again { (2.0, speed.host.0 + calls) } else { (1.0, 0.0) };
        let backward = timed(
            layer.backward.sum() + layer.again,
            passes,
            speed.host.1 + calls + more_host,
            sharded.backward + sharded.gradients,
            waits * constants.host.backward,
        );
        [forward, backward]
    }

    /// The part of tensor-parallel communication that runs beside products.
    fn tensor_hidden(&self, run: &Run) -> f64 {
        if run.overlaps() { self.constants.comm.tensor_hidden } else { 0.0 }
    }

    /// The share of layers in which the CPU waits for the number of tokens of each expert before it starts more kernels: NCCL's
    /// all-to-all needs them on the host. `DeepEP` does not, but runs on InfiniBand and RoCE alone.
    fn waits_for_counts(&self, run: &Run) -> f64 {
        let waits = run.ep > 1
            && self.links.crosses(f64::from(run.etp), f64::from(run.ep))
            && !self.links.sends_once();
        if waits { self.model.expert_share() } else { 0.0 }
    }

    /// What the ranks of a layer exchange in one pass.
    fn exchanges(&self, run: &Run, layer: &Layer) -> Exchanges {
        let (tp, cp, ep) = (f64::from(run.tp), f64::from(run.cp), f64::from(run.ep));
        let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / cp;
        let bytes = 2.0 * tokens * f64::from(self.model.hidden);
        let mut exchanges = Exchanges::default();
        if run.tp > 1 {
            let group = self.links.group(tp, 1.0);
            // After attention and after the feed-forward part; with sequence parallelism also before each.
            exchanges.tensor =
                2.0 * if run.sequence_parallel { 2.0 * group.gather(bytes) } else { group.all_reduce(bytes) };
            exchanges.calls += if run.sequence_parallel { 4.0 } else { 2.0 };
        }
        if let Some(experts) = self.model.experts.filter(|_| run.ep > 1) {
            let etp = f64::from(run.etp);
            let group = self.links.group(ep, etp);
            let used = f64::from(experts.per_token);
            exchanges.expert = 2.0 * self.model.expert_share() * group.exchange(bytes / tp, used);
            exchanges.calls += 2.0;
            if run.etp > 1 {
                // The ranks with parts of an expert gather its tokens before, and add up after.
                let parts = self.links.group(etp, 1.0);
                exchanges.tensor += 2.0 * self.model.expert_share() * parts.gather(bytes / tp * used * etp);
                exchanges.calls += 2.0;
            }
        }
        if run.cp > 1 {
            let group = self.links.group(cp, tp);
            let keys = 2.0 * 2.0 * f64::from(run.micro_batch) * f64::from(run.seq) * self.model.keys() / tp;
            // Keys and values go round while attention works on those that are there.
            exchanges.context = (group.gather(keys) - layer.forward.attention).max(0.0);
            exchanges.calls += 1.0;
        }
        exchanges
    }

    /// Activations from stage to stage, and their gradients back.
    fn sends(&self, run: &Run, parts: &mut Breakdown, micro_batches: f64, dp: f64) {
        if run.pp < 2 {
            return;
        }
        let (tp, cp, pp, vpp) = (f64::from(run.tp), f64::from(run.cp), f64::from(run.pp), f64::from(run.vpp));
        let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / cp;
        // Each rank of tensor parallelism sends a part, which the receivers gather.
        let bytes = 2.0 * tokens * f64::from(self.model.hidden) / tp;
        let stride = tp * cp * dp;
        let send = self.links.send(bytes, stride, self.links.crosses(stride, pp));
        let all = 2.0 * send * (micro_batches * vpp + pp - 1.0);
        // Interleaved stages have other pieces to work on while they wait.
        let hidden = if run.vpp > 1 && run.overlaps() { self.constants.comm.sends_hidden } else { 0.0 };
        parts.add(Kind::Pipeline, all * (1.0 - hidden));
        parts.hide(Kind::Pipeline, all * hidden);
    }

    /// Embedding and head, which FSDP and ZeRO-3 gather before and reduce after everything else.
    fn tables(
        &self,
        run: &Run,
        parts: &mut Breakdown,
        micro_batches: f64,
        group: &super::comm::Group<'_>,
        gathers: Gathers,
    ) {
        let count = if self.model.tied { 1.0 } else { 2.0 };
        let parameters = self.model.embedding_parameters() / f64::from(run.tp) * count;
        let sharded = Sharded::new(run, group, gathers, Tensors { count, parameters });
        parts.add(Kind::Gather, micro_batches * sharded.forward);
        parts.add(Kind::Gradients, micro_batches * sharded.gradients);
    }
}
