//! Rules of the family `deepspeed`: its settings against the job and the network.

mod auto_without_trainer;
mod batch_arithmetic;
mod buckets_too_small;
mod config;
mod fp16_and_bf16;
mod offload_below_stage_3;
mod offload_unpinned;
mod offload_with_room;
mod overlap_comm_off;
mod stage_3_per_microbatch;

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &auto_without_trainer::RULE,
    &batch_arithmetic::RULE,
    &buckets_too_small::RULE,
    &fp16_and_bf16::RULE,
    &offload_below_stage_3::RULE,
    &offload_unpinned::RULE,
    &offload_with_room::RULE,
    &overlap_comm_off::RULE,
    &stage_3_per_microbatch::RULE,
];
