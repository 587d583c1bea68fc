//! What the program does: collectives that differ, timeouts, training settings.

pub mod collective_mismatch;
pub mod cpu_threads_with_offload;
pub mod fatal_python_error;
pub mod gpu_out_of_memory;
pub mod gradient_accumulation_overridden;
pub mod peer_process_died;
pub mod timeout_rank0_preprocessing;
pub mod timeout_rank0_save;
pub mod timeout_undetermined;
pub mod unknown_variable;
pub mod variable_value_misread;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &collective_mismatch::RULE,
    &cpu_threads_with_offload::RULE,
    &fatal_python_error::RULE,
    &gpu_out_of_memory::RULE,
    &gradient_accumulation_overridden::RULE,
    &peer_process_died::RULE,
    &timeout_rank0_preprocessing::RULE,
    &timeout_rank0_save::RULE,
    &timeout_undetermined::RULE,
    &unknown_variable::RULE,
    &variable_value_misread::RULE,
];
