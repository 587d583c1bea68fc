//! How ranks are started and given GPUs.

use super::Signal;
use crate::source::Kind;

/// Two ranks on one GPU.
pub static DUPLICATE_GPU: Signal = Signal {
    name: "duplicate-gpu",
    templates: &[
        "Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {bus}",
        "Multiple ranks detected using the same GPU on this node",
        "Multiple Ranks are using the same GPU/Partition",
    ],
    source: "NCCL src/init.cc, up to 2.29.7, 2.30.3, 2.30.7",
    meaning: "Two ranks of one host use one GPU; NCCL refuses.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&DUPLICATE_GPU];
