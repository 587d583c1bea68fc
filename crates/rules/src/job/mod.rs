//! The job as a whole: who failed first, who is late, who differs; and what no other rule explains.

pub mod initialisation_failed;
pub mod unexplained_warning;

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[&initialisation_failed::RULE, &unexplained_warning::RULE];
