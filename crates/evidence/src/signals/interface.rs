//! Network interfaces of the setup and of sockets.

use super::Signal;

/// All signals of this family.
pub static ALL: &[&Signal] = &[];
