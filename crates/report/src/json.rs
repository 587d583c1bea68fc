//! JSON: the model as it is.

use std::io::{self, Write};

use crate::Doctor;

/// Writes the answer as JSON, indented, with a final newline.
pub fn json(doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, doctor)?;
    writeln!(out)
}
