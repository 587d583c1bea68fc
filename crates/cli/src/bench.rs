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

use crate::args::Colour;

pub(crate) fn run(args: &Bench, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    if let [old, new] = args.compare.as_slice() {
        return compare::run(args, old, new, colour, out);
    }
    #[cfg(target_os = "linux")]
    return measure::run(args, colour, out);
    #[cfg(not(target_os = "linux"))]
    {
        crate::complain(
            "error: plumb bench measures on Linux only; on this system it compares results: plumb bench --compare OLD NEW",
        );
        Ok(crate::UNDECIDED)
    }
}
