//! `plumb page`: the page that answers in a browser, where this binary carries it.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::{CLEAN, UNDECIDED, complain, output};

#[derive(Debug, Args)]
pub(crate) struct Page {
    /// Write the page to this file instead of standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
}

/// What `tools/page` built. The variable names the file when plumb is built (`build.rs`).
#[cfg(has_page)]
const PAGE: Option<&[u8]> = Some(include_bytes!(env!("PLUMB_PAGE")));

#[cfg(not(has_page))]
const PAGE: Option<&[u8]> = None;

pub(crate) fn run(args: &Page, out: &mut impl Write) -> io::Result<u8> {
    let Some(page) = PAGE else {
        complain(
            "error: this plumb was built without the page: `cargo run --manifest-path tools/page/Cargo.toml` in plumb's repository writes it to target/plumb.html",
        );
        return Ok(UNDECIDED);
    };
    match &args.output {
        Some(path) => output::write_file(path, |out| out.write_all(page))?,
        None => out.write_all(page)?,
    }
    Ok(CLEAN)
}
