//! Rules about the form of a file.

mod duplicate_key;

use super::LintRule;

/// All of them.
pub(super) static RULES: &[&LintRule] = &[&duplicate_key::RULE];
