//! Rules of the family `cluster`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
