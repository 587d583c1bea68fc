//! What the program does: collectives that differ, timeouts, training settings.

pub mod collective_mismatch;
pub mod cpu_threads_with_offload;
pub mod fatal_python_error;
pub mod gpu_out_of_memory;
pub mod gradient_accumulation_overridden;
pub mod peer_process_died;
pub mod rank_finished_early;
pub mod timeout_rank0_preprocessing;
pub mod timeout_rank0_save;
pub mod timeout_undetermined;
pub mod unknown_variable;
pub mod variable_value_misread;

use evidence::Quote;
use job::whose::Owners;

use crate::{Log, Rule};

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &collective_mismatch::RULE,
    &cpu_threads_with_offload::RULE,
    &fatal_python_error::RULE,
    &gpu_out_of_memory::RULE,
    &gradient_accumulation_overridden::RULE,
    &peer_process_died::RULE,
    &rank_finished_early::RULE,
    &timeout_rank0_preprocessing::RULE,
    &timeout_rank0_save::RULE,
    &timeout_undetermined::RULE,
    &unknown_variable::RULE,
    &variable_value_misread::RULE,
];

/// How the log of a rank ends, in words, and its last line.
pub(crate) fn end_of_log(log: &Log, rank: u32) -> Option<(String, Option<Quote>)> {
    let owners = Owners::of_case(&log.case);
    let file = owners.file_of(rank)?;
    let short = file.rsplit(['/', '\\']).next().unwrap_or(file);
    Some(match log.case.sources.last_line(file) {
        Some(last) => {
            let line = log.case.locate(&last).1;
            (format!(" (its log {short} ends at line {line})"), Some(last))
        }
        None => (format!(" (its log {short} is empty)"), None),
    })
}
