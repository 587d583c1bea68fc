//! Rules of the family `devices`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
