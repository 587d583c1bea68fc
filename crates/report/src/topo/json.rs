//! JSON: the model as it is.

use std::io::{self, Write};

use super::Topo;

/// Writes the answer as JSON, indented, with a final newline.
pub fn json(topo: &Topo, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_json(topo, out)
}
