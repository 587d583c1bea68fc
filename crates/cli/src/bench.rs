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
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, output, page};

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
    let formats = if args.format.is_empty() { &[PageFormat::Text] } else { &args.format[..] };
    if args.output.len() > formats.len() || formats.len() > args.output.len() + 1 {
        complain("error: give one --format for each --output, and at most one more for standard output");
        return Ok(UNDECIDED);
    }
    if !output::spares(&args.output, std::slice::from_ref(path), false) {
        return Ok(UNDECIDED);
    }
    let mut code = CLEAN;
    for (at, format) in formats.iter().enumerate() {
        let file = args.output.get(at);
        let mut bytes = Vec::new();
        code = again_as(*format, path, file.is_none() && doctor::coloured(colour), &mut bytes)?;
        match file {
            // What cannot be read has been said.
            _ if bytes.is_empty() => return Ok(code),
            Some(file) => output::write_file(file, |out| out.write_all(&bytes))?,
            None => out.write_all(&bytes)?,
        }
    }
    Ok(code)
}

fn again_as(format: PageFormat, path: &PathBuf, colour: bool, out: &mut Vec<u8>) -> io::Result<u8> {
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
            record.to_text(Style { colour, width: doctor::width(), verbose: false }, out)?;
        }
    }
    Ok(if record.first_wrong.is_some() { FINDINGS } else { CLEAN })
}
