//! How a verdict on a fleet is written.

use std::io::{self, Write};

use clap::ValueEnum;
use report::{Style, Validate};

/// How a verdict on a fleet is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For CI systems.
    Junit,
    /// One page for a browser; plumb reads it again.
    Html,
}

/// Writes the verdict.
pub(crate) fn write(
    validate: &Validate,
    format: Format,
    style: Style,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        Format::Text => validate.text(style, out),
        Format::Json => validate.json(out),
        Format::Junit => validate.junit(out),
        Format::Html => report::html::write(validate, out),
    }
}
