//! Rules about the form of a file.

mod duplicate_key;

use crate::Rule;

/// All of them.
pub(crate) static RULES: &[&Rule] = &[&duplicate_key::RULE];
