//! Data parallelism: gradients, sharded states, and what of their traffic hides behind computation.

use super::comm::Group;
use super::constants::Constants;
use super::hardware::Gpu;
use super::run::{Framework, Run};

/// Communication beside computation: what the two take together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Beside {
    /// What communication adds to the computation, its slow-down included.
    pub(crate) exposed: f64,
    /// What of it runs beside.
    pub(crate) hidden: f64,
}

impl Beside {
    /// Communication that can start with the computation and uses `share` of it at most.
    pub(crate) fn of(constants: &Constants, compute: f64, comm: f64, share: f64) -> Self {
        let hidden = comm.min(compute * share);
        Self { exposed: comm - hidden + constants.comm.slowdown * hidden, hidden }
    }
}

/// Traffic of one layer's parameters for each micro-batch, where they or their gradients are sharded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sharded {
    /// Parameters gathered for the forward pass.
    pub(crate) forward: f64,
    /// Parameters gathered again for the backward pass.
    pub(crate) backward: f64,
    /// Gradients reduced.
    pub(crate) gradients: f64,
}

/// Parameters of some matrices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensors {
    /// How many matrices.
    pub(crate) count: f64,
    /// Parameters of all of them.
    pub(crate) parameters: f64,
}

/// How `ZeRO`-3 gathers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Gathers {
    /// Tensors together, and ahead.
    Together,
    /// Each tensor alone, and waits for it.
    Alone {
        /// What it reaches of the bandwidth.
        reached: f64,
        /// Seconds for one rank's part of a tensor.
        part: f64,
    },
}

impl Gathers {
    pub(crate) fn new(constants: &Constants, gpu: &Gpu, run: &Run) -> Self {
        if run.gathers_each_tensor(gpu) {
            Self::Alone { reached: constants.early.gathered, part: constants.early.part * 1e-6 }
        } else {
            Self::Together
        }
    }

    fn time(self, group: &Group<'_>, tensors: Tensors, bytes: f64) -> f64 {
        match self {
            Self::Together => group.gather(bytes * tensors.parameters),
            Self::Alone { reached, part } => {
                let each = group.gather(bytes * tensors.parameters / tensors.count) / reached;
                tensors.count * (each + part * group.ranks())
            }
        }
    }
}

impl Sharded {
    /// Of these parameters.
    pub(crate) fn new(run: &Run, group: &Group<'_>, gathers: Gathers, tensors: Tensors) -> Self {
        if run.keeps_gathered() || tensors.parameters == 0.0 {
            return Self::default();
        }
        let gather = gathers.time(group, tensors, 2.0);
        let gradients = gathers.time(group, tensors, run.gradient_bytes());
        match (run.framework, run.zero) {
            (_, 3) => Self { forward: gather, backward: gather, gradients },
            // FSDP that shards gradients gathers parameters once and keeps them for the backward pass.
            (Framework::Fsdp, 1 | 2) => Self { forward: gather, backward: 0.0, gradients },
            (Framework::DeepSpeed, 2) => Self { forward: 0.0, backward: 0.0, gradients },
            _ => Self::default(),
        }
    }

    /// With the traffic of other parameters.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            gradients: self.gradients + other.gradients,
        }
    }

    pub(crate) fn sum(&self) -> f64 {
        self.forward + self.backward + self.gradients
    }
}

/// Traffic once a step, of the parameters of a rank: reducing gradients, and gathering updated parameters.
pub(crate) fn once(run: &Run, group: &Group<'_>, parameters: f64) -> (f64, f64) {
    let bytes = run.gradient_bytes() * parameters;
    let per_micro_batch = !run.keeps_gathered()
        && (run.zero == 3
            || (run.framework == Framework::Fsdp && run.zero > 0)
            || (run.framework == Framework::DeepSpeed && run.zero == 2));
    if per_micro_batch {
        let gather = if run.framework == Framework::DeepSpeed && run.zero == 2 {
            group.gather(2.0 * parameters)
        } else {
            0.0
        };
        return (0.0, gather);
    }
    if run.zero > 0 {
        (group.gather(bytes), group.gather(2.0 * parameters))
    } else {
        (group.all_reduce(bytes), 0.0)
    }
}
