//! Rules of the family `launch`.

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[];
