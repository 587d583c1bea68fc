//! Rules of the family `deepspeed`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
