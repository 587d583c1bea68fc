//! Network interfaces of setup and sockets.

use crate::Rule;

/// The rules of this family.
pub static RULES: &[&Rule] = &[];
