//! The job as a whole: who failed first, who is late, who differs; and what no other rule explains.

pub mod hardware_unknown;
pub mod hosts_counted_as_one_node;
pub mod initialisation_failed;
pub mod job_failed;
pub mod late_ranks;
pub mod nccl_message;
pub mod network_inside_node;
pub mod ranks_disagree;
pub mod several_jobs;
pub mod sources_disagree;
pub mod unexplained_warning;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &hardware_unknown::RULE,
    &hosts_counted_as_one_node::RULE,
    &initialisation_failed::RULE,
    &job_failed::RULE,
    &late_ranks::RULE,
    &nccl_message::RULE,
    &network_inside_node::RULE,
    &ranks_disagree::RULE,
    &several_jobs::RULE,
    &sources_disagree::RULE,
    &unexplained_warning::RULE,
];
