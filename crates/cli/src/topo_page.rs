//! The pages of `plumb topo`: a machine with its rings and trees, and what NCCL decides.

use std::io::{self, Write};

use answer::decide::Asked;
use answer::topo::Rings;
use report::decide::Decide;
use report::html::{DecidePage, TopoPage};
use report::topo::Topo;

use crate::args::{self, FailOn, PageFormat};
use crate::{UNDECIDED, complain, input, page, topo};

/// Shows a page that was given as FILE again, and refuses pages that do not exist. The exit code, if that was all.
pub(crate) fn again_or_refused(args: &args::Topo, out: &mut impl Write) -> io::Result<Option<u8>> {
    if let Some(read) = page::only(args.file.as_slice(), "topo") {
        let form = page::Form::new(args.format, args.verbose);
        return page::show(read, form, FailOn::Error, out).map(Some);
    }
    let other = args.bind.is_some()
        || args.write_topo_file.is_some()
        || args.write_cluster.is_some()
        || !args.check.is_empty();
    if other && args.format == PageFormat::Html {
        complain(
            "error: there is no page of --bind, --check and files that are written: --format html shows a machine, --decide and --what-if",
        );
        return Ok(Some(UNDECIDED));
    }
    Ok(None)
}

/// Writes the page of a machine, with the rings and trees of the file or those that NCCL would build.
pub(crate) fn write(args: &args::Topo, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
    let rings = rings(args).unwrap_or_default();
    report::html::write(&TopoPage { topo, overlays: &rings.overlays, about: &rings.about }, out)
}

fn rings(args: &args::Topo) -> Option<Rings> {
    let read = topo::read(args).ok()?;
    let text = args.file.as_deref().and_then(|it| Some((input::name(it), topo::contents(it).ok()?)));
    let file = text.as_ref().map(|(name, text)| (name.as_str(), text.as_slice()));
    Some(topo::asked(args).rings(&read, file, args.plugin))
}

/// Writes the page of what NCCL decides, on the drawing of the machine where there is one.
pub(crate) fn decided(
    args: &args::Topo,
    asked: &Asked,
    decide: &Decide,
    out: &mut impl Write,
) -> io::Result<()> {
    let topo = topo::topo(args).ok();
    let overlays = asked.drawn(&args.what_if).unwrap_or_default();
    report::html::write(&DecidePage { decide, topo: topo.as_ref(), overlays: &overlays }, out)
}
