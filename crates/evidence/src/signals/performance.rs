//! Speed, measured or complained about.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
