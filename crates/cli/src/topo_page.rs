//! The pages of `plumb topo`: a machine with its rings and trees, and what NCCL decides.

use std::io::{self, Write};
use std::path::Path;

use fabric::{Layout, Settings};
use job::channel::{self, Channel, Selection, Shape};
use job::{Description, machine};
use nccl::{Decisions, Prediction};
use report::decide::Decide;
use report::html::{DecidePage, TopoPage};
use report::topo::channels::{self, Ranks};
use report::topo::{Topo, TopoFamily, TopoOverlay};

use crate::args::{self, FailOn, PageFormat};
use crate::decide::Asked;
use crate::{UNDECIDED, complain, input, page, topo};

/// NCCL has no more channels: `MAXCHANNELS` in `src/include/device.h` of v2.27.
const MOST_CHANNELS: u32 = 64;

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

/// Writes the page of a machine, with the rings and trees of the file.
pub(crate) fn write(args: &args::Topo, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
    let overlays = args.file.as_deref().and_then(|it| of_file(args, it)).unwrap_or_default();
    report::html::write(&TopoPage { topo, overlays: &overlays }, out)
}

/// Writes the page of what NCCL decides, on the drawing of the machine where there is one.
pub(crate) fn decided(args: &args::Topo, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
    let topo = topo::topo(args).ok();
    let overlays = topo::read(args).and_then(|it| of_job(args, &it)).unwrap_or_default();
    report::html::write(&DecidePage { decide, topo: topo.as_ref(), overlays: &overlays }, out)
}

/// All rings and trees that a log or NCCL's graph XML shows.
fn of_file(args: &args::Topo, path: &Path) -> Option<Vec<TopoOverlay>> {
    let text = topo::contents(path).ok()?;
    let read = topo::read(args).ok()?;
    let name = input::name(path);
    let case = evidence::read_texts([(name.as_str(), text.as_slice())]);
    let machine = &read.machine.machine.value;
    let find = |selection: Selection| {
        channel::of_case(&case, machine, selection)
            .or_else(|_| channel::of_graphs(&read.graphs, selection))
            .ok()
    };
    let all = |shape: Shape| (0..MOST_CHANNELS).map(move |number| Selection { shape, number });
    let mut found: Vec<Channel> =
        [Shape::Ring, Shape::Tree].into_iter().flat_map(|shape| all(shape).map_while(find)).collect();
    // What the log does not say about connections inside a machine follows from its paths.
    if let Some(decisions) = decisions(args, &read) {
        for it in found.iter_mut().flat_map(|it| &mut it.connections).filter(|it| it.from.node == it.to.node)
        {
            let (from, to) = (it.from.local_rank.into(), it.to.local_rank.into());
            let known = it.transport.take();
            it.transport = known.or_else(|| decisions.transport(from, to)?.transport);
        }
    }
    Some(channels::known(&found))
}

fn decisions(args: &args::Topo, read: &Description) -> Option<Decisions> {
    let job = topo::job(args, read).ok()?;
    let layout: Layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
    let seen = machine::seen_by_nccl(&job.machines.first()?.value);
    Decisions::new(&seen, &job.effective_settings(), &layout).ok()
}

/// The rings and trees of all channels that are predicted, of a what-if without and with its settings; none for more ranks than the answer lists.
fn of_job(args: &args::Topo, read: &Description) -> Result<Vec<TopoOverlay>, String> {
    let asked = Asked::new(args, read)?;
    if asked.layout.ranks() > Decide::RANKS as u64 {
        return Ok(Vec::new());
    }
    let ranks = u32::try_from(asked.layout.ranks_per_node()).unwrap_or(u32::MAX);
    let now = State::new(&asked, &asked.settings)?;
    let settings =
        args.what_if.iter().fold(asked.settings.clone(), |all, (name, value)| all.with(name, value));
    let then = if args.what_if.is_empty() { None } else { State::new(&asked, &settings).ok() };
    let inside = |state: &State, from: u32, to: u32| {
        let decision = state.decisions.as_ref()?.transport(from.into(), to.into())?;
        decision.transport.as_ref().map(TopoFamily::from)
    };
    let inside_now = |from: u32, to: u32| inside(&now, from, to);
    let of_now = Ranks { machine: &asked.seen, each: ranks, inside: &inside_now };
    let Some(then) = then else { return Ok(channels::predicted(&now.prediction, &of_now)) };
    let inside_then = |from: u32, to: u32| inside(&then, from, to);
    let of_then = Ranks { inside: &inside_then, ..of_now };
    Ok(channels::compared((&now.prediction, &of_now), (&then.prediction, &of_then)))
}

/// What NCCL does with some settings.
struct State {
    prediction: Prediction,
    decisions: Option<Decisions>,
}

impl State {
    fn new(asked: &Asked, settings: &Settings) -> Result<Self, String> {
        let decisions = Decisions::new(&asked.seen, settings, &asked.layout).ok();
        Ok(Self { prediction: asked.predict(settings)?, decisions })
    }
}
