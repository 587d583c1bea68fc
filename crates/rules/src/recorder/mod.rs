//! What dumps of PyTorch's Flight Recorder and answers of NCCL's RAS service show.

pub mod collective_not_entered;
pub mod collective_stuck;
pub mod ras_counts_differ;
pub mod ras_rank_missing;

mod words;

pub(crate) use words::mismatch;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &collective_not_entered::RULE,
    &collective_stuck::RULE,
    &ras_counts_differ::RULE,
    &ras_rank_missing::RULE,
];
