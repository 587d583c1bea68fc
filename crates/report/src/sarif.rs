//! Stub.
use std::io::{self, Write};
/// Stub.
pub fn sarif(_: &crate::Doctor, _: &mut impl Write) -> io::Result<()> {
    Ok(())
}
