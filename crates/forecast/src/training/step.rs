//! The answer: how long a step takes, where the time goes, and what memory it needs.

use std::fmt;
use std::ops::{Index, IndexMut};

use fabric::units::Gibibytes;

/// A time in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            it if it >= 100.0 => write!(f, "{it:.0} s"),
            it if it >= 10.0 => write!(f, "{it:.1} s"),
            it if it >= 1.0 => write!(f, "{it:.2} s"),
            it if it >= 0.001 => write!(f, "{:.0} ms", it * 1e3),
            it if it > 0.0 => write!(f, "{:.0} us", it * 1e6),
            _ => f.write_str("0 s"),
        }
    }
}

/// What a part of a step is spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Matrix products of the layers.
    Matrices,
    /// The core of the attention.
    Attention,
    /// Norms, activations, residuals: bound by the memory of the GPU.
    Elementwise,
    /// Head, loss and embedding.
    Head,
    /// What is computed again in the backward pass.
    Recompute,
    /// The GPU waits for the CPU to start kernels.
    Launch,
    /// Tensor parallelism.
    Tensor,
    /// Context parallelism.
    Context,
    /// Expert parallelism.
    Expert,
    /// Activations from stage to stage.
    Pipeline,
    /// Stages without work at the beginning and the end of a step.
    Bubble,
    /// Parameters gathered by `ZeRO` or FSDP.
    Gather,
    /// Gradients of data parallelism.
    Gradients,
    /// Copies over PCI Express between GPU and host.
    Pcie,
    /// The optimizer on the GPU.
    Optimizer,
    /// The optimizer on the CPU.
    CpuOptimizer,
    /// Waiting for the slowest GPU.
    Straggler,
}

impl Kind {
    /// All, in the order of an answer.
    pub const ALL: [Self; 17] = [
        Self::Matrices,
        Self::Attention,
        Self::Elementwise,
        Self::Head,
        Self::Recompute,
        Self::Launch,
        Self::Tensor,
        Self::Context,
        Self::Expert,
        Self::Pipeline,
        Self::Bubble,
        Self::Gather,
        Self::Gradients,
        Self::Pcie,
        Self::Optimizer,
        Self::CpuOptimizer,
        Self::Straggler,
    ];

    /// For people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Matrices => "matrix products",
            Self::Attention => "attention",
            Self::Elementwise => "memory-bound operators",
            Self::Head => "head, loss and embedding",
            Self::Recompute => "recomputed activations",
            Self::Launch => "waiting for kernel launches",
            Self::Tensor => "tensor-parallel communication",
            Self::Context => "context-parallel communication",
            Self::Expert => "expert-parallel communication",
            Self::Pipeline => "pipeline sends",
            Self::Bubble => "pipeline bubble",
            Self::Gather => "gathering parameters",
            Self::Gradients => "reducing gradients",
            Self::Pcie => "PCIe copies to and from the host",
            Self::Optimizer => "optimizer",
            Self::CpuOptimizer => "optimizer on the CPU",
            Self::Straggler => "waiting for the slowest GPU",
        }
    }

    /// In JSON.
    pub fn key(self) -> &'static str {
        match self {
            Self::Matrices => "matmul",
            Self::Attention => "attention",
            Self::Elementwise => "elementwise",
            Self::Head => "head",
            Self::Recompute => "recompute",
            Self::Launch => "launch",
            Self::Tensor => "tensor_parallel",
            Self::Context => "context_parallel",
            Self::Expert => "expert_parallel",
            Self::Pipeline => "pipeline",
            Self::Bubble => "bubble",
            Self::Gather => "gather",
            Self::Gradients => "gradients",
            Self::Pcie => "pcie",
            Self::Optimizer => "optimizer",
            Self::CpuOptimizer => "cpu_optimizer",
            Self::Straggler => "straggler",
        }
    }

    /// Whether it is computation on the GPU.
    pub fn is_compute(self) -> bool {
        matches!(
            self,
            Self::Matrices
                | Self::Attention
                | Self::Elementwise
                | Self::Head
                | Self::Recompute
                | Self::Optimizer
        )
    }
}

/// A part of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Part {
    /// What of it adds to the time of the step.
    pub exposed: Seconds,
    /// What of it runs beside something else.
    pub hidden: Seconds,
}

/// Where the time of a step goes, on the rank that takes longest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Breakdown([Part; Kind::ALL.len()]);

impl Index<Kind> for Breakdown {
    type Output = Part;

    fn index(&self, kind: Kind) -> &Part {
        &self.0[kind as usize]
    }
}

impl IndexMut<Kind> for Breakdown {
    fn index_mut(&mut self, kind: Kind) -> &mut Part {
        &mut self.0[kind as usize]
    }
}

impl Breakdown {
    pub(crate) fn add(&mut self, kind: Kind, exposed: f64) {
        self[kind].exposed.0 += exposed;
    }

    pub(crate) fn hide(&mut self, kind: Kind, hidden: f64) {
        self[kind].hidden.0 += hidden;
    }

    /// All that adds to the time of the step.
    pub fn exposed(&self) -> Seconds {
        Seconds(self.0.iter().map(|it| it.exposed.0).sum())
    }

    /// The largest part of the computation of layers where that is more than half of the step and no other part is larger;
    /// otherwise the largest other part.
    pub fn bottleneck(&self) -> Kind {
        let of_layers = |kind: &Kind| kind.is_compute() && *kind != Kind::Optimizer;
        let size = |kind: Kind| self[kind].exposed.0;
        let compute: f64 = Kind::ALL.into_iter().filter(of_layers).map(size).sum();
        let largest = |some: bool| {
            let parts = Kind::ALL.into_iter().filter(|it| of_layers(it) == some);
            parts.max_by(|a, b| size(*a).total_cmp(&size(*b))).unwrap_or(Kind::Matrices)
        };
        let (computing, other) = (largest(true), largest(false));
        if compute * 2.0 > self.exposed().0 && size(computing) >= size(other) { computing } else { other }
    }
}

/// What a step takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// How long it takes.
    pub time: Seconds,
    /// Between which times it lies, in nine of ten published runs.
    pub interval: (Seconds, Seconds),
    /// Where the time goes.
    pub breakdown: Breakdown,
    /// Tokens per second of one GPU.
    pub tokens_per_gpu: f64,
    /// Model operations per second of one GPU, in 1e12.
    pub tflops: f64,
    /// The same over the peak of the GPU in the precision of the run.
    pub mfu: f64,
    /// Memory of the GPU that needs most.
    pub memory: Memory,
}

/// Memory of one GPU, and of a node for what is offloaded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// Weights.
    pub weights: Gibibytes,
    /// Gradients.
    pub gradients: Gibibytes,
    /// States of the optimizer.
    pub optimizer: Gibibytes,
    /// Activations kept for the backward pass, and those of the layer at work.
    pub activations: Gibibytes,
    /// Buffers of communication and of the framework.
    pub buffers: Gibibytes,
    /// What CUDA and NCCL take for themselves.
    pub context: Gibibytes,
    /// What the whole comes to at most, in nine of ten measured runs.
    pub most: Gibibytes,
    /// Memory of a node for what is offloaded.
    pub host: Gibibytes,
    /// What the GPU has.
    pub available: Gibibytes,
    /// What the node has, where that is known.
    pub host_available: Option<Gibibytes>,
}

impl Memory {
    /// What the framework allocates on the GPU.
    pub fn allocated(&self) -> Gibibytes {
        Gibibytes(self.weights.0 + self.gradients.0 + self.optimizer.0 + self.activations.0 + self.buffers.0)
    }

    /// All memory of the GPU.
    pub fn total(&self) -> Gibibytes {
        Gibibytes(self.allocated().0 + self.context.0)
    }

    /// Whether it fits by less than predictions of memory are off: it may run out of memory.
    pub fn is_tight(&self) -> bool {
        self.fits() && self.most.0 > self.available.0
    }

    /// Whether it fits on GPU and host.
    pub fn fits(&self) -> bool {
        self.total().0 <= self.available.0 && self.host_available.is_none_or(|it| self.host.0 <= it.0)
    }
}
