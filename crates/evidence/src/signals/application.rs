//! What frameworks and programs say: PyTorch, DeepSpeed, trainers.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
