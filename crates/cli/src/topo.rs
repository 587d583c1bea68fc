//! `plumb topo`: how a machine is wired, which paths it offers, and what speed is normal.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use fabric::units::GigabitsPerSecond;
use fabric::{Collective, Layout, Transport};
use forecast::Cluster;
use job::channel::{Connection, Selection, Shape};
use job::machine::{self, Resolved};
use job::{Description, Known, LayoutFlags, Source};
use nccl::Decisions;
use report::Style;
use report::topo::{Topo, TopoParts};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, UNDECIDED, bind, check, complain, decide, doctor, expect, input, output, predict, write};

/// How much of a file is read: the topology is at the beginning of a log.
pub(crate) const MOST: u64 = 1 << 28;

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let inputs: Vec<PathBuf> = args.file.iter().chain(&args.cluster).cloned().collect();
    if !output::spares(
        [&args.svg, &args.write_topo_file, &args.write_cluster].into_iter().flatten(),
        &inputs,
        false,
    ) {
        return Ok(UNDECIDED);
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
    let topo = match read(args).and_then(|it| answer(args, it)) {
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
        ListFormat::Text => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            report::topo::text(&topo, style, out)?;
        }
        ListFormat::Json => report::topo::json(&topo, out)?,
    }
    Ok(CLEAN)
}

pub(crate) fn read(args: &args::Topo) -> Result<Description, String> {
    if args.file.is_none() && (args.channel.is_some() || args.tree) {
        return Err("--channel and --tree need a log: give it as FILE".to_owned());
    }
    let mut read = match (&args.file, &args.cluster, args.instance) {
        (Some(path), ..) => of_file(args, path)?,
        (None, Some(path), _) => expect::of_cluster_file(path)?,
        (None, None, Some(model)) => Description::of_flag(model),
        (None, None, None) => this_machine()?,
    };
    if let Some(model) = args.gpu {
        read.machine.set_gpu_model(model);
    }
    if let Some(gbps) = args.nic_gbps {
        for nic in &mut read.machine.machine.value.nics {
            nic.rate = nic.rate.or(Some(GigabitsPerSecond(gbps)));
        }
    }
    read.machine.deduce_generation();
    if let Some(version) = args.nccl {
        read.releases.nccl = Some(Known::new(version, Source::Flag("--nccl")));
    }
    for (name, value) in &args.env {
        read.settings.add_flag("--env", name, value);
    }
    Ok(read)
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it is an error")]
fn this_machine() -> Result<Description, String> {
    let live = node::read();
    Ok(Description::new(machine::of_live_node(live.machine, live.notes), "this machine"))
}

#[cfg(not(target_os = "linux"))]
fn this_machine() -> Result<Description, String> {
    Err("plumb topo reads the local machine on Linux only: give a FILE, --instance NAME or --cluster FILE"
        .to_owned())
}

fn of_file(args: &args::Topo, path: &Path) -> Result<Description, String> {
    let name = input::name(path);
    let text = contents(path).map_err(|error| format!("{name}: {error}"))?;
    let shape = if args.tree { Shape::Tree } else { Shape::Ring };
    let selected = args.channel.is_some() || args.tree;
    let selection = selected.then_some(Selection { shape, number: args.channel.unwrap_or(0) });
    Description::of_text(&name, &text, args.instance, selection)
}

/// The beginning of a file, whatever it is compressed with.
pub(crate) fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input::open_whole(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

fn answer(args: &args::Topo, read: Description) -> Result<Topo, String> {
    let job = job(args, &read)?;
    let Description { machine: Resolved { notes, .. }, source, mut channel, graphs, .. } = read;
    let machine = &job.machines[0].value;
    let (seen, settings) = (machine::seen_by_nccl(machine), job.effective_settings());
    let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
    let decisions = Decisions::new(&seen, &settings, &layout).map_err(|error| {
        match args.file.as_ref().or(args.cluster.as_ref()) {
            Some(path) => format!("{}: {error}", input::name(path)),
            None => error.to_string(),
        }
    })?;
    for it in channel.iter_mut().flat_map(|it| &mut it.connections) {
        it.transport = it.transport.take().or_else(|| inside_machine(&decisions, it));
    }
    let collective = args.collective.unwrap_or(Collective::AllReduce);
    let sizes: Vec<u64> = match args.collective {
        Some(_) => (10..=34).step_by(2).map(|it| 1 << it).collect(),
        None => [20, 24, 28, 30, 33].map(|it| 1 << it).into(),
    };
    let cluster = Cluster::of_layout(machine, &layout, &settings);
    let price = price(args, &job, cluster.as_ref().ok())?;
    Ok(Topo::new(TopoParts {
        price,
        job: &job,
        source,
        seen_by_nccl: &seen,
        survey: &decisions.survey(&seen),
        normal: cluster.map(|it| forecast::table(collective, &it, &sizes)),
        collective,
        channel: channel.as_ref(),
        graphs: &graphs,
        notes,
    }))
}

/// What the layout costs the training job of --job, against one pod with all GPUs and NCCL's defaults.
fn price(args: &args::Topo, job: &job::Job, here: Option<&Cluster>) -> Result<Option<report::Price>, String> {
    let Some(path) = &args.job else { return Ok(None) };
    let name = input::name(path);
    let file = predict::from::job_file(path)?;
    let (Some(here), Some(machine)) = (here, job.machines.first()) else {
        return Err(format!("{name}: the paths of this machine are not known"));
    };
    let gpus = here.pods.saturating_mul(here.gpus);
    let best = Cluster::of_machine(
        &machine.value,
        here.nodes,
        &fabric::Settings::new(job.effective_settings().version),
    );
    let best = best.and_then(|it| it.with_pods(1, gpus)).map_err(|error| format!("{name}: {error}"))?;
    let price = rules::training::of_layout(&file, job.model().map(|it| it.name), &best, here);
    let price = price.map_err(|error| format!("{name}: {error}"))?;
    Ok(price.map(|it| report::Price::with_money(&it, args.price_per_hour)))
}

/// The job that the flags describe on this machine, which must have GPUs.
pub(crate) fn job(args: &args::Topo, read: &Description) -> Result<job::Job, String> {
    let found = &read.machine.machine.value;
    if found.gpus.is_empty() {
        let reasons = read.machine.notes.iter().chain(&found.unknown).map(String::as_str);
        let reasons: Vec<&str> = std::iter::once("").chain(reasons).collect();
        return Err(format!("{}: no GPU found{}", read.source, reasons.join("\n  - ")));
    }
    Ok(read.job(&LayoutFlags {
        nodes: args.nodes,
        pods: args.pods.map(|(pods, gpus)| Layout::new(pods, gpus)),
        nics_per_pod: args.nics_per_pod,
        same_host: args.same_host,
        shared_memory: args.shared_shm,
    }))
}

/// The transport that NCCL takes for a connection inside a machine.
fn inside_machine(decisions: &Decisions, it: &Connection) -> Option<Transport> {
    let same = it.from.node == it.to.node;
    let decision = decisions.transport(it.from.local_rank.into(), it.to.local_rank.into());
    decision.filter(|_| same)?.transport
}
