//! `plumb bench`: compares two results anywhere, and measures on Linux.

#[cfg(target_os = "linux")]
mod answer;
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "only --compare is used there"))]
mod args;
mod compare;
#[cfg(target_os = "linux")]
mod join;
#[cfg(target_os = "linux")]
mod measure;

pub(crate) use args::Bench;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::args::{Asked, Colour, FailOn, PageFormat};
use crate::{UNDECIDED, complain, input, page};

pub(crate) fn run(args: &Bench, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let [old, new] = args.compare.as_slice() {
        return compare::run(args, old, new, colour, out);
    }
    if let Some(Asked::Page(path)) = &args.collective {
        return again(args, path, out);
    }
    #[cfg(target_os = "linux")]
    return measure::run(args, colour, out);
    #[cfg(not(target_os = "linux"))]
    {
        complain(
            "error: plumb bench measures on Linux only; on this system it compares results: plumb bench --compare OLD NEW",
        );
        Ok(UNDECIDED)
    }
}

/// Shows a page of an earlier answer.
fn again(args: &Bench, path: &PathBuf, out: &mut impl Write) -> io::Result<u8> {
    match page::only(std::slice::from_ref(path), "bench") {
        Some(read) => {
            let format = args.format.first().copied().unwrap_or(PageFormat::Text);
            page::show(read, page::Form::new(format, false), FailOn::Error, out)
        }
        None => {
            complain(&format!(
                "error: {}: is neither a collective nor a page of plumb bench",
                input::name(path)
            ));
            Ok(UNDECIDED)
        }
    }
}
