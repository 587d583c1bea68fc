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

use report::Style;
use report::html::View as _;

use crate::args::{Asked, Colour, FailOn, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, page};

pub(crate) fn run(args: &Bench, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let [old, new] = args.compare.as_slice() {
        return compare::run(args, old, new, colour, out);
    }
    if let Some(Asked::Page(path)) = &args.collective {
        return again(args, path, colour, out);
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

/// Shows a result of an earlier run: its page, or its JSON.
fn again(args: &Bench, path: &PathBuf, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let format = args.format.first().copied().unwrap_or(PageFormat::Text);
    if let Some(read) = page::only(std::slice::from_ref(path), "bench") {
        return page::show(read, page::Form::new(format, false), FailOn::Error, out);
    }
    let record = match compare::read(path) {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    match format {
        PageFormat::Json => report::bench::json(&record, out)?,
        PageFormat::Html => report::html::write(&record, out)?,
        PageFormat::Text => {
            let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
            let mut text = Vec::new();
            record.to_text(style, &mut text)?;
            out.write_all(&text)?;
        }
    }
    Ok(if record.first_wrong.is_some() { FINDINGS } else { CLEAN })
}
