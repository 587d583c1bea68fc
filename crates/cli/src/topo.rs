//! `plumb topo`: how a machine is wired, which paths it offers, and what speed is normal.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use answer::topo::{Asked, Price};
use job::Description;
use job::channel::{Selection, Shape};
use report::Style;
use report::topo::Topo;

use crate::args::{self, Colour, PageFormat};
use crate::{
    CLEAN, UNDECIDED, bind, check, complain, decide, doctor, expect, input, output, predict, topo_page, write,
};

pub(crate) use answer::topo::MOST;

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let inputs: Vec<PathBuf> = args.file.iter().chain(&args.cluster).cloned().collect();
    if !output::spares(
        [&args.svg, &args.write_topo_file, &args.write_cluster].into_iter().flatten(),
        &inputs,
        false,
    ) {
        return Ok(UNDECIDED);
    }
    if let Some(code) = topo_page::again_or_refused(args, out)? {
        return Ok(code);
    }
    if let Some(launcher) = args.bind {
        return bind::run(args, launcher, colour, out);
    }
    if args.write_topo_file.is_some() || args.write_cluster.is_some() {
        return write::run(args, colour, out);
    }
    if !args.check.is_empty() {
        return check::run(args, colour, out);
    }
    if args.decide || args.lines || !args.what_if.is_empty() {
        return decide::run(args, colour, out);
    }
    let topo = match topo(args) {
        Ok(topo) => topo,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    if let Some(path) = &args.svg {
        output::write_file(path, |mut out| report::topo::svg(&topo, &mut out))?;
    }
    match args.format {
        PageFormat::Text => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            report::topo::text(&topo, style, out)?;
        }
        PageFormat::Json => report::topo::json(&topo, out)?,
        PageFormat::Html => topo_page::write(args, &topo, out)?,
    }
    Ok(CLEAN)
}

pub(crate) fn read(args: &args::Topo) -> Result<Description, String> {
    if args.file.is_none() && (args.channel.is_some() || args.tree) {
        return Err("--channel and --tree need a log: give it as FILE".to_owned());
    }
    let read = match (&args.file, &args.cluster, args.instance) {
        (Some(path), ..) => of_file(args, path)?,
        (None, Some(path), _) => expect::of_cluster_file(path)?,
        (None, None, Some(model)) => Description::of_flag(model),
        (None, None, None) => this_machine()?,
    };
    Ok(asked(args).complete(read))
}

/// What the flags say about the machine and the job.
pub(crate) fn asked(args: &args::Topo) -> Asked<'_> {
    let shape = if args.tree { Shape::Tree } else { Shape::Ring };
    let selected = args.channel.is_some() || args.tree;
    Asked {
        instance: args.instance,
        gpu: args.gpu,
        nic_gbps: args.nic_gbps,
        layout: args.layout(),
        nccl: args.nccl,
        env: &args.env,
        collective: args.collective,
        selection: selected.then_some(Selection { shape, number: args.channel.unwrap_or(0) }),
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it is an error")]
fn this_machine() -> Result<Description, String> {
    let live = node::read();
    Ok(Description::new(job::machine::of_live_node(live.machine, live.notes), "this machine"))
}

#[cfg(not(target_os = "linux"))]
fn this_machine() -> Result<Description, String> {
    Err("plumb topo reads the local machine on Linux only: give a FILE, --instance NAME or --cluster FILE"
        .to_owned())
}

fn of_file(args: &args::Topo, path: &Path) -> Result<Description, String> {
    let name = input::name(path);
    let text = contents(path).map_err(|error| format!("{name}: {error}"))?;
    asked(args).of_text(&name, &text)
}

/// The beginning of a file, whatever it is compressed with.
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input::open_whole(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

pub(crate) fn topo(args: &args::Topo) -> Result<Topo, String> {
    let file = args.file.as_ref().or(args.cluster.as_ref()).map(|it| input::name(it));
    let described = read(args)?;
    let job = match &args.job {
        Some(path) => Some((input::name(path), predict::from::job_file(path)?)),
        None => None,
    };
    let price = job.as_ref().map(|(name, job)| Price { name, job, per_hour: args.price_per_hour });
    asked(args).answer(described, file.as_deref(), price.as_ref())
}

/// The job that the flags describe on this machine, which must have GPUs.
pub(crate) fn job(args: &args::Topo, read: &Description) -> Result<job::Job, String> {
    asked(args).job(read)
}
