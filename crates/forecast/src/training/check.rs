//! Which layouts are possible.

use std::fmt;

use super::hardware::Cluster;
use super::model::Model;
use super::run::{Framework, Recompute, Run};

/// A rule that a layout breaks, with the numbers that break it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A number that must be at least 1 is 0.
    Zero(&'static str),
    /// The first number must be divisible by the second.
    Divides {
        /// Of what there are `whole`.
        of: &'static str,
        /// The number that is divided.
        whole: u64,
        /// What divides it.
        by: &'static str,
        /// The divisor.
        parts: u64,
    },
    /// A number is larger than another.
    Exceeds {
        /// What is too large.
        what: &'static str,
        /// How large it is.
        is: u64,
        /// What it may not exceed.
        limit: &'static str,
        /// How large that is.
        most: u64,
    },
    /// Two settings that exclude each other, or need each other.
    Together(&'static str),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero(what) => write!(f, "`{what}` is 0: it must be at least 1"),
            Self::Divides { of, whole, by, parts } => {
                write!(f, "{whole} {of} are not a multiple of {by} = {parts}")
            }
            Self::Exceeds { what, is, limit, most } => {
                write!(f, "{what} = {is} is more than {limit} = {most}")
            }
            Self::Together(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Broken {}

/// Data-parallel ranks and micro-batches of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) dp: u64,
    pub(crate) micro_batches: u64,
}

fn divides(of: &'static str, whole: u64, by: &'static str, parts: u64) -> Result<u64, Broken> {
    match whole.checked_rem(parts) {
        Some(0) => Ok(whole / parts),
        _ => Err(Broken::Divides { of, whole, by, parts }),
    }
}

/// Checks a layout; what a framework refuses is refused here.
pub(crate) fn check(model: &Model, cluster: &Cluster, run: &Run) -> Result<Counts, Broken> {
    let numbers = [
        ("layers", model.layers),
        ("hidden", model.hidden),
        ("heads", model.heads),
        ("kv_heads", model.kv_heads),
        ("ffn", model.ffn),
        ("vocab", model.vocab),
        ("nodes", cluster.nodes),
        ("gpus_per_node", cluster.gpus_there),
        ("pods", cluster.pods),
        ("GPUs of a pod", cluster.gpus),
        ("tp", run.tp),
        ("pp", run.pp),
        ("vpp", run.vpp),
        ("cp", run.cp),
        ("ep", run.ep),
        ("etp", run.etp),
        ("seq", run.seq),
        ("micro_batch", run.micro_batch),
        ("global_batch", run.global_batch),
    ];
    if let Some((name, _)) = numbers.into_iter().find(|it| it.1 == 0) {
        return Err(Broken::Zero(name));
    }
    if run.zero > 3 {
        return Err(Broken::Exceeds {
            what: "zero",
            is: run.zero.into(),
            limit: "the last stage of ZeRO",
            most: 3,
        });
    }
    divides("heads", model.heads.into(), "kv_heads", model.kv_heads.into())?;
    divides("heads", model.heads.into(), "tp", run.tp.into())?;
    // Fewer key heads than ranks are copied; otherwise they are split.
    if run.tp < model.kv_heads {
        divides("kv_heads", model.kv_heads.into(), "tp", run.tp.into())?;
    }
    divides("ffn", model.ffn.into(), "tp", run.tp.into())?;
    if run.pp > model.layers {
        return Err(Broken::Exceeds {
            what: "pp",
            is: run.pp.into(),
            limit: "layers",
            most: model.layers.into(),
        });
    }
    if run.vpp > 1 {
        if run.pp == 1 {
            return Err(Broken::Together("`vpp` needs pipeline stages: set `pp` above 1"));
        }
        // Embedding and head can count as a layer each.
        let pieces = u64::from(run.pp) * u64::from(run.vpp);
        if pieces > u64::from(model.layers) + 2 {
            return Err(Broken::Exceeds {
                what: "pp x vpp",
                is: pieces,
                limit: "layers",
                most: model.layers.into(),
            });
        }
    }
    if run.cp > 1 {
        // Each rank takes a piece of the beginning and one of the end, which balances causal attention.
        divides("tokens of a sequence", run.seq.into(), "2 x cp", 2 * u64::from(run.cp))?;
    }
    if cluster.on_node() > u64::from(cluster.gpus_there) {
        return Err(Broken::Exceeds {
            what: "GPUs of all pods",
            is: cluster.on_node(),
            limit: "gpus_per_node",
            most: cluster.gpus_there.into(),
        });
    }
    let dp = divides("GPUs", cluster.ranks(), "tp x pp x cp", run.model_ranks())?;
    if let Some(experts) = model.experts {
        divides("experts", experts.count.into(), "ep", run.ep.into())?;
        // Experts may be split over the ranks of tensor parallelism too.
        let ranks = dp.saturating_mul(u64::from(run.cp) * u64::from(run.tp));
        divides("ranks of a pipeline stage", ranks, "ep x etp", u64::from(run.ep) * u64::from(run.etp))?;
        if experts.per_token > experts.count {
            return Err(Broken::Exceeds {
                what: "experts_per_token",
                is: experts.per_token.into(),
                limit: "experts",
                most: experts.count.into(),
            });
        }
        if run.etp > 1 && run.ep == 1 {
            return Err(Broken::Together(
                "without `ep`, experts are split as `tp` splits the rest: leave out `etp`",
            ));
        }
        divides("width of an expert", experts.ffn.into(), "etp", run.etp.into())?;
    } else if run.ep > 1 {
        return Err(Broken::Together("`ep` needs a mixture of experts: set `experts` in [model]"));
    }
    if run.expert_overlap && run.framework == Framework::Megatron {
        if run.recompute == Recompute::Full {
            return Err(Broken::Together(
                "Megatron refuses `expert_overlap` with full recomputation: set `recompute` to none or selective",
            ));
        }
        if run.pp > 1 && run.vpp == 1 {
            return Err(Broken::Together(
                "Megatron needs interleaved stages for `expert_overlap` with `pp` above 1: set `vpp` to 2 or more",
            ));
        }
    }
    if run.zero >= 2 && run.pp > 1 && run.framework == Framework::DeepSpeed {
        return Err(Broken::Together(
            "DeepSpeed's ZeRO-2 and ZeRO-3 have no pipeline stages: set `pp` to 1, or `zero` to 1",
        ));
    }
    if run.zero > 0 && run.framework == Framework::Ddp {
        return Err(Broken::Together(
            "DDP keeps all states on every rank: set `zero` to 0, or `framework` to fsdp or deepspeed",
        ));
    }
    if (run.offload.params && run.zero < 3) || (run.offload.optimizer && run.zero == 0) {
        return Err(Broken::Together(
            "offloading parameters needs `zero` = 3, offloading the optimizer `zero` of 1 or more",
        ));
    }
    let each = divides(
        "sequences of a step",
        run.global_batch.into(),
        "micro_batch x data-parallel ranks",
        u64::from(run.micro_batch).saturating_mul(dp),
    )?;
    if run.vpp > 1 {
        divides("micro-batches of a step", each, "pp", run.pp.into())?;
    }
    Ok(Counts { dp, micro_batches: each })
}
