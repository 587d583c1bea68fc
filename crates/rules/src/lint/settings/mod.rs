//! Rules of the family `settings`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
