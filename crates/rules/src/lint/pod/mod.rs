//! Rules of the family `pod`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
