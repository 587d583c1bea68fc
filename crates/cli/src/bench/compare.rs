//! `plumb bench --compare OLD NEW`

use std::io::{self, Read as _, Write};
use std::path::Path;

use ::bench::Verdict;
use report::Style;
use report::html::ComparisonPage;

use super::Bench;
use crate::args::{Colour, PageFormat};
use crate::{CLEAN, FINDINGS, UNDECIDED, complain, doctor, input, page};

/// Bytes of a result at most.
const LONGEST: u64 = 256 << 20;

pub(super) fn run(
    args: &Bench,
    old: &Path,
    new: &Path,
    colour: Colour,
    out: &mut impl Write,
) -> io::Result<u8> {
    let both = read(old).and_then(|old| Ok((old, read(new)?)));
    let compared = both.and_then(|(old, new)| {
        let comparison = ::bench::compare(&old, &new).map_err(|it| report::bench::incomparable(&it))?;
        Ok((comparison, [old, new]))
    });
    let (comparison, [before, after]) = match compared {
        Ok(it) => it,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
    match args.format.first() {
        Some(PageFormat::Json) => report::bench::comparison_json(&comparison, out)?,
        Some(PageFormat::Html) => {
            let (old, new) = (input::name(old), input::name(new));
            let measured = [(old.as_str(), &before), (new.as_str(), &after)];
            report::html::write(&ComparisonPage { comparison: &comparison, measured }, out)?;
        }
        _ => report::bench::comparison_text(&comparison, style, out)?,
    }
    Ok(if comparison.count(Verdict::Slower) > 0 { FINDINGS } else { CLEAN })
}

/// A result in a file: that of plumb, a page of it, or that of nccl-tests.
pub(super) fn read(path: &Path) -> Result<::bench::Record, String> {
    let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", input::name(path));
    let mut text = String::new();
    let length = input::open_whole(path).and_then(|it| it.take(LONGEST + 1).read_to_string(&mut text));
    if length.map_err(|error| named(&error))? as u64 > LONGEST {
        return Err(named(&"is too large for a result"));
    }
    let text = page::json_of(&input::name(path), text, "bench")?;
    ::bench::read(&text).map_err(|reason| named(&reason))
}
