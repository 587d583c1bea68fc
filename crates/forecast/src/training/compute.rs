//! Computation on one GPU, operator by operator.
//!
//! An operator takes the time of its operations at what its kind reaches of the peak, plus the part of its memory traffic that
//! is not hidden behind them, plus the start of its kernel.

use super::constants::{Constants, Plain};
use super::hardware::Gpu;
use super::model::Model;
use super::run::{Added, Framework, Precision, Recompute, Run};

/// What one GPU reaches, in SI units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speed {
    /// Matrix products of the layers.
    gemm: f64,
    /// Matrix products of the head, never in FP8.
    head: f64,
    /// Flash attention, forward and backward.
    flash: (f64, f64),
    /// Batched products of attention without flash attention.
    batched: f64,
    /// The same where a head's width does not suit the matrix units.
    scalar: f64,
    /// Memory.
    memory: f64,
    /// The part of the traffic of a matrix product that is not hidden.
    exposed: f64,
    /// The start of a kernel.
    tail: f64,
    /// Multiprocessors, on GPUs whose products work on waves of tiles.
    units: Option<f64>,
    /// The start of the product of one more expert.
    expert_launch: f64,
    /// CPU time of a layer, forward and backward.
    pub(crate) host: (f64, f64),
}

/// The passes of one layer over one micro-batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pass {
    pub(crate) matrices: f64,
    pub(crate) attention: f64,
    pub(crate) elementwise: f64,
}

impl Pass {
    pub(crate) fn sum(&self) -> f64 {
        self.matrices + self.attention + self.elementwise
    }
}

/// A layer's forward and backward pass, and what is computed again between them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Layer {
    pub(crate) forward: Pass,
    pub(crate) backward: Pass,
    pub(crate) again: f64,
}

/// Matrix units work on groups of eight 16-bit numbers: NVIDIA, "Matrix Multiplication Background User's Guide".
const ALIGNED: u32 = 8;

/// What tiles of 128 x 128 reach of larger ones: the same guide, figure 5.
const SMALLER: f64 = 0.92;

impl Speed {
    pub(crate) fn new(constants: &Constants, model: &Model, gpu: &Gpu, run: &Run) -> Self {
        let gemm = &constants.gemm;
        let attention = &constants.attention;
        let (half, quarter, flash, host) = match gpu.compute {
            ..80 => (gemm.volta, gemm.fp8_ada, attention.volta, constants.host.ampere),
            80..89 => (gemm.ampere, gemm.fp8_ada, attention.ampere, constants.host.ampere),
            89 => (gemm.ada, gemm.fp8_ada, attention.ada, constants.host.ampere),
            90..100 => (gemm.hopper, gemm.fp8_hopper, attention.hopper, constants.host.hopper),
            _ => (gemm.blackwell, gemm.fp8_blackwell, attention.blackwell, constants.host.hopper),
        };
        // Blackwell Ultra has the same peaks, and more power to hold them.
        let power = if gpu.compute == 103 { gemm.ultra } else { 1.0 };
        let early = gpu.is_a100() && run.has_early_libraries(gpu);
        let (half, flash) = if early { (half * gemm.early, flash * attention.first) } else { (half, flash) };
        let peak = gpu.half * power * 1e12;
        let head = half * peak;
        let layers = match (run.precision, gpu.quarter) {
            (Precision::Fp8, Some(fast)) => quarter * fast * power * 1e12,
            _ => head,
        };
        // Megatron's attention on Hopper comes from cuDNN. Published runs of PyTorch have kernels made for Ampere there; what transformers
        // calls in PyTorch 2.11 is cuDNN's again (measured with tools/kernels/steps.py).
        let fused = (run.framework == Framework::Megatron || run.is_of_transformers())
            && (90..100).contains(&gpu.compute);
        let flash = flash * peak * if fused { attention.cudnn } else { 1.0 };
        let apart =
            if run.flash_attention || run.fuses_softmax(model.heads) { 0.0 } else { constants.host.softmax };
        let waits = if run.starts_one_by_one() { constants.host.blocking } else { 1.0 };
        let host = if run.is_of_transformers() { host * constants.plain.host } else { host };
        let host = waits * (host + apart + model.expert_share() * constants.experts.host) * 1e-6;
        Self {
            gemm: layers,
            head,
            flash: (flash, flash * attention.backward),
            batched: head * attention.batched,
            scalar: gpu.single * 1e12,
            memory: gpu.bandwidth.0 * 1e9 * constants.memory.share,
            exposed: gemm.exposed,
            tail: gemm.tail * 1e-6,
            // Measured with tools/kernels on an H200: 0.65 to 0.71 of the peak whatever the shape, as power limits it.
            units: match gpu.compute {
                ..80 => Some(80.0),
                80 => Some(108.0),
                _ => None,
            },
            expert_launch: constants.experts.launch * 1e-6,
            host: (host, host * constants.host.backward),
        }
    }

    /// A product of an m x k and a k x n matrix of 16 bits, with this many more bytes to move.
    fn product(&self, rate: f64, m: f64, n: f64, k: f64, more: f64) -> f64 {
        let bytes = 2.0 * (m * k + k * n + m * n) + more;
        self.beside(2.0 * m * n * k / (rate * self.filled(m, n)), bytes) + self.tail
    }

    /// The part of the multiprocessors that the tiles of an m x n result keep busy. All tiles of a wave take equally long, and a
    /// last wave of few tiles takes as long as a full one: NVIDIA, "Matrix Multiplication Background User's Guide", section 3.2.
    fn filled(&self, m: f64, n: f64) -> f64 {
        let Some(units) = self.units else { return 1.0 };
        let part = |height: f64, width: f64| {
            let tiles = (m / height).ceil() * (n / width).ceil();
            m * n / (height * width) / (units * (tiles / units).ceil())
        };
        // The library takes smaller tiles where they fit better, and loses some speed by them.
        part(256.0, 128.0).max(part(128.0, 256.0)).max(SMALLER * part(128.0, 128.0))
    }

    /// Operations and memory traffic of one kernel: the longer of the two, and the part of the other that it does not hide.
    fn beside(&self, operations: f64, bytes: f64) -> f64 {
        let traffic = bytes / self.memory;
        operations.max(traffic) + self.exposed * operations.min(traffic)
    }

    /// The products of tokens with the matrices of `count` experts, m tokens each, in one kernel.
    fn grouped(&self, count: f64, m: f64, n: f64, k: f64, added: Added) -> (f64, f64) {
        let product = |more: f64| {
            let bytes = 2.0 * (m * k + k * n + m * n) + more;
            self.beside(2.0 * count * m * n * k / self.gemm, count * bytes)
                + self.tail
                + count * self.expert_launch
        };
        let apart = self.stream(count * n * k * added.apart);
        (product(0.0), product(0.0) + product(n * k * added.beside) + apart)
    }

    /// The matrix products of `count` blocks of m tokens with an n x k matrix: forward, and backward for input and weights.
    fn linear(&self, m: f64, n: f64, k: f64, added: Added) -> (f64, f64) {
        let forward = self.product(self.gemm, m, n, k, 0.0);
        let input = self.product(self.gemm, m, k, n, 0.0);
        (forward, input + self.gradients(self.gemm, n, k, m, added))
    }

    /// The gradients of an n x k matrix from m tokens, added up.
    fn gradients(&self, rate: f64, n: f64, k: f64, m: f64, added: Added) -> f64 {
        self.product(rate, n, k, m, n * k * added.beside) + self.stream(n * k * added.apart)
    }

    /// Bytes through the memory of the GPU.
    pub(crate) fn stream(&self, bytes: f64) -> f64 {
        bytes / self.memory
    }

    /// One layer on one rank.
    pub(crate) fn layer(&self, constants: &Constants, model: &Model, run: &Run) -> Layer {
        let (tp, cp) = (f64::from(run.tp), f64::from(run.cp));
        let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / cp;
        let hidden = f64::from(model.hidden);
        let (queries, keys) = (model.queries() / tp, model.keys() / tp);
        let gradients = run.added();
        let qkv = self.linear(tokens, queries + 2.0 * keys, hidden, gradients);
        let out = self.linear(tokens, hidden, queries, gradients);
        let mlp = self.feed_forward(model, run, tokens, gradients);
        let core = self.core(constants, model, run);
        let memory = &constants.memory;
        let outside = if run.sequence_parallel { hidden / tp } else { hidden };
        let width = mlp.width;
        // PyTorch has one kernel for the norms and activations of models without a gate.
        let plain =
            if run.is_of_transformers() && model.gated { constants.plain.clone() } else { Plain::default() };
        let passes = (memory.full + plain.full) * outside
            + memory.heads * (queries + 2.0 * keys)
            + plain.heads * (queries + keys)
            + (memory.ffn + plain.ffn) * width
            + constants.experts.moved * mlp.moved;
        let elementwise = self.stream(2.0 * tokens * passes);
        let forward = Pass { matrices: qkv.0 + out.0 + mlp.forward, attention: core.0, elementwise };
        let backward = Pass {
            matrices: qkv.1 + out.1 + mlp.backward,
            attention: core.1,
            elementwise: elementwise * memory.backward,
        };
        let again = match run.recompute {
            Recompute::None => 0.0,
            // PyTorch's by operator: what is not kept of the products, and all else.
            Recompute::Selective if run.recomputes_operators() => {
                constants.memory.operators * forward.matrices + forward.elementwise
            }
            // Flash attention keeps no scores: nothing is left to compute again.
            Recompute::Selective if run.flash_attention => 0.0,
            Recompute::Selective => core.0,
            Recompute::Full => forward.sum(),
        };
        Layer { forward, backward, again }
    }

    fn feed_forward(&self, model: &Model, run: &Run, tokens: f64, gradients: Added) -> FeedForward {
        let (tp, hidden) = (f64::from(run.tp), f64::from(model.hidden));
        let matrices = model.matrices() - 1.0;
        let one = |tokens: f64, width: f64| {
            let width = width / tp;
            let up = self.linear(tokens, matrices * width, hidden, gradients);
            let down = self.linear(tokens, hidden, width, gradients);
            // Read the product, write the activation: with a gate, the product is twice as wide.
            FeedForward {
                forward: up.0 + down.0,
                backward: up.1 + down.1,
                width: 0.5 * (1.0 + matrices) * width,
                moved: 0.0,
            }
        };
        let dense = one(tokens, f64::from(model.ffn));
        let Some(experts) = model.experts else { return dense };
        let share = model.expert_share();
        let (count, used) = (f64::from(experts.count), f64::from(experts.per_token));
        // A rank holds count / ep experts or parts of them, each with tokens of the ep ranks, and of those that hold its other parts.
        let (ep, split) = (f64::from(run.ep), run.expert_width());
        let own = tokens / tp * split;
        let width = f64::from(experts.ffn) / split;
        let (held, each) = (count / ep, own * used * ep / count);
        let up = self.grouped(held, each, matrices * width, hidden, gradients);
        let down = self.grouped(held, each, hidden, width, gradients);
        let shared = one(tokens, f64::from(experts.ffn) * f64::from(experts.shared));
        let some = if experts.shared > 0 { 1.0 } else { 0.0 };
        let mix =
            |dense: f64, mixed: f64, shared: f64| (1.0 - share) * dense + share * (mixed + some * shared);
        FeedForward {
            forward: mix(dense.forward, up.0 + down.0, shared.forward),
            backward: mix(dense.backward, up.1 + down.1, shared.backward),
            width: mix(dense.width, used * own / tokens * 0.5 * (1.0 + matrices) * width, shared.width),
            moved: share * used * own / tokens * hidden,
        }
    }

    /// The core of the attention: scores, softmax, weighted sum; forward and backward.
    fn core(&self, constants: &Constants, model: &Model, run: &Run) -> (f64, f64) {
        let (tp, cp) = (f64::from(run.tp), f64::from(run.cp));
        let seq = f64::from(run.seq);
        let heads = f64::from(run.micro_batch) * f64::from(model.heads) / tp;
        let width = f64::from(model.head_width);
        // Flash attention pads heads to what matrix units take.
        let padded = (width / f64::from(ALIGNED)).ceil() * f64::from(ALIGNED);
        let scores = heads * seq * seq / cp;
        if run.flash_attention {
            // Half of the scores are masked, and not computed. Two products forward, five backward. Short sequences have few blocks
            // between the first and the masked one.
            let products = scores * padded;
            let short = constants.attention.short / seq;
            let forward = 2.0 * products * (1.0 + short) / self.flash.0;
            // Backward, each block is worked on twice: for queries, and for keys and values.
            let backward = 5.0 * products * (1.0 + 2.0 * short) / self.flash.1;
            return (forward + self.tail, backward + self.tail);
        }
        let rate = if model.head_width.is_multiple_of(ALIGNED) { self.batched } else { self.scalar };
        let product = |count: f64| {
            let bytes = 2.0 * (2.0 * heads * seq * width + scores);
            count * (self.beside(2.0 * scores * width / rate, bytes) + self.tail)
        };
        // Scaled, masked softmax: read and write; scale, mask, cast and softmax each where they are not one kernel. Dropout: read,
        // write, and a mask of bytes. Backward also reads the softmax.
        let apart = if run.fuses_softmax(model.heads) { 0.0 } else { 4.0 };
        let softmax = |passes: f64| self.stream(2.0 * scores * (passes + apart)) + 2.0 * self.tail;
        (product(2.0) + softmax(4.5), product(4.0) + softmax(5.5))
    }

    /// Head and loss: forward and backward, on the ranks that hold them.
    pub(crate) fn head(&self, constants: &Constants, model: &Model, run: &Run) -> (f64, f64) {
        let tp = f64::from(run.tp);
        let tokens = f64::from(run.micro_batch) * f64::from(run.seq) / f64::from(run.cp);
        let (hidden, vocab) = (f64::from(model.hidden), f64::from(model.vocab) / tp);
        let forward = self.product(self.head, tokens, vocab, hidden, 0.0);
        let backward = self.product(self.head, tokens, hidden, vocab, 0.0)
            + self.gradients(self.head, vocab, hidden, tokens, run.added());
        // The loss passes over all scores of the vocabulary, in FP32.
        let loss = self.stream(4.0 * tokens * vocab * constants.memory.head);
        (forward + loss, backward + loss)
    }
}

/// A feed-forward part: its passes, and the width that its activation reads and writes.
struct FeedForward {
    forward: f64,
    backward: f64,
    width: f64,
    /// Width of what is copied to where experts take it.
    moved: f64,
}
