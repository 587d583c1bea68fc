//! `plumb topo`: what is this box, which paths does it offer, and what speed is normal?

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use evidence::{Case, topology};
use fabric::machine::{Nic, NvEnd, PciLink, Place};
use fabric::{Machine, gpu};
use nccl::{Layout, Settings};
use report::Style;
use report::topo::{Question, Shape, Topo, TopoOverlay};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, expect, input, live, output};

/// Where a machine comes from.
#[derive(Default)]
struct Subject {
    machine: Machine,
    source: String,
    notes: Vec<String>,
    overlay: Option<TopoOverlay>,
    /// What a log tells of the release and of variables.
    settings: Option<Settings>,
    /// The job, where it is described with the machine.
    nodes: Option<u32>,
    pods: Option<(u32, u32)>,
    /// What NCCL's search found.
    graphs: Vec<topology::Graph>,
}

/// More of a file is not read: a topology stands at the beginning of a log.
const MOST: u64 = 1 << 28;

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let inputs: Vec<PathBuf> = args.file.iter().chain(&args.cluster).cloned().collect();
    if !output::spares(&args.svg, &inputs, false) {
        return Ok(UNDECIDED);
    }
    let answer = subject(args).and_then(|subject| ask(args, subject));
    let topo = match answer {
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
            let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
            report::topo::text(&topo, style, out)?;
        }
        ListFormat::Json => report::topo::json(&topo, out)?,
    }
    Ok(CLEAN)
}

/// The machine that is asked about.
fn subject(args: &args::Topo) -> Result<Subject, String> {
    if args.file.is_none() && (args.channel.is_some() || args.tree) {
        return Err("--channel and --tree draw what a log tells: give the FILE of one".to_owned());
    }
    let mut subject = match (&args.file, &args.cluster, &args.instance) {
        (Some(path), ..) => of_file(args, path)?,
        (None, Some(path), _) => of_description(path)?,
        (None, None, Some(name)) => {
            Subject { machine: known(name)?, source: "the catalogue".to_owned(), ..Subject::default() }
        }
        (None, None, None) => {
            let live = live::read();
            let source = "this machine".to_owned();
            Subject { machine: live.machine, source, notes: live.said, ..Subject::default() }
        }
    };
    if let Some(name) = &args.gpu {
        let model = gpu::find(name).ok_or_else(|| format!("`{name}` is no GPU that plumb knows"))?;
        for gpu in &mut subject.machine.gpus {
            gpu.model = Some(model.name.as_str().into());
            gpu.compute = Some(model.compute);
            let link = model.pcie_gen.and_then(PciLink::generation);
            gpu.link = gpu.link.or(link.map(|it| PciLink { width: model.pcie_lanes, ..it }));
        }
    }
    guess_compute(&mut subject);
    Ok(subject)
}

/// Where only the number of NVLinks is told, it tells the generation if only one has so many.
fn guess_compute(subject: &mut Subject) {
    let machine = &mut subject.machine;
    if machine.gpus.iter().any(|it| it.compute.is_some()) {
        return;
    }
    let Some(links) = machine.nvlinks.iter().find(|it| it.to == NvEnd::Switch).map(|it| it.count) else {
        return;
    };
    let fits =
        |it: &&gpu::GpuModel| it.nvlink.is_some_and(|it| it.links == links && it.by == gpu::NvLinkBy::Switch);
    let models: Vec<&gpu::GpuModel> = gpu::all().iter().filter(fits).collect();
    let Some(first) = models.first() else { return };
    if models.iter().all(|it| it.compute == first.compute) {
        for gpu in &mut machine.gpus {
            gpu.compute = Some(first.compute);
        }
        subject.notes.push(format!("{links} NVLinks to a switch: the GPUs are {}.", first.family));
    } else {
        let mut families: Vec<&str> = models.iter().map(|it| it.family.as_str()).collect();
        families.dedup();
        machine.unknown.push(format!(
            "The model of the GPUs is not told: {links} NVLinks fit {}. Say which: --gpu {}.",
            families.join(", "),
            first.family
        ));
    }
}

fn known(name: &str) -> Result<Machine, String> {
    forecast::known(name).map_err(|it| it.0)
}

fn of_description(path: &Path) -> Result<Subject, String> {
    let text = expect::read_text(path)?;
    let found = forecast::describe_file(&text).map_err(|it| format!("{}: {}", input::name(path), it.0))?;
    let source = input::name(path);
    Ok(Subject {
        machine: found.machine,
        source,
        nodes: Some(found.nodes),
        pods: found.pods,
        ..Subject::default()
    })
}

fn of_file(args: &args::Topo, path: &Path) -> Result<Subject, String> {
    let name = input::name(path);
    let text = contents(path).map_err(|error| format!("{name}: {error}"))?;
    let wants_overlay = args.channel.is_some() || args.tree;
    let channel = args.channel.unwrap_or(0);
    let shape = if args.tree { Shape::Tree } else { Shape::Ring };
    let named = |reason: String| format!("{name}: {reason}");
    // Rings, trees and the name of the machine are told by any log.
    let case = || evidence::read_texts([(name.as_str(), text.as_slice())]);
    match topology::read(&text) {
        Ok(found) => {
            let mut machine = found.machine;
            if let Some(instance) = &args.instance {
                fill(&mut machine, &known(instance)?);
            }
            let overlay = match found.kind {
                _ if !wants_overlay => None,
                topology::Kind::GraphXml => {
                    Some(report::topo::overlay_of_graph(&found.graphs, channel, shape).map_err(named)?)
                }
                _ => Some(report::topo::overlay(&case(), &machine, channel, shape).map_err(named)?),
            };
            let source = format!("{name}:{} ({})", found.line, found.kind.name());
            let settings = (found.kind == topology::Kind::Log).then(|| told(&case())).flatten();
            let (notes, graphs) = (found.notes, found.graphs);
            Ok(Subject { machine, source, notes, overlay, settings, graphs, ..Subject::default() })
        }
        Err(trouble) => {
            let unreadable = || match trouble.line {
                Some(line) => format!("{name}:{line}: {}", trouble.text),
                None => format!("{name}: {}", trouble.text),
            };
            // A description that is broken is not replaced by a guess.
            if trouble.line.is_some() {
                return Err(unreadable());
            }
            let case = case();
            let instance = args.instance.as_deref().or_else(|| case.instance_name().map(|it| it.0));
            let Some(instance) = instance else { return Err(unreadable()) };
            let machine = known(instance)?;
            let overlay = if wants_overlay {
                Some(report::topo::overlay(&case, &machine, channel, shape).map_err(named)?)
            } else {
                None
            };
            let source = format!("the catalogue; {name} names {instance}");
            Ok(Subject { machine, source, overlay, settings: told(&case), ..Subject::default() })
        }
    }
}

/// The release and the variables of a job, as its log tells them.
fn told(case: &Case) -> Option<Settings> {
    let mut settings = Settings::new(case.nccl_version()?.0);
    for it in case.processes.iter().flat_map(|it| it.facts.environment.iter()) {
        settings = settings.with(&it.value.0, &it.value.1);
    }
    Some(settings)
}

/// The beginning of a file, whatever it is compressed with.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input::open_whole(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

/// Gives a described machine what its instance type is known to have.
fn fill(machine: &mut Machine, known: &Machine) {
    machine.name.clone_from(&known.name);
    if machine.gpus.len() == known.gpus.len() {
        for (gpu, known) in machine.gpus.iter_mut().zip(&known.gpus) {
            gpu.model = gpu.model.take().or_else(|| known.model.clone());
            gpu.compute = gpu.compute.or(known.compute);
            gpu.link = gpu.link.or(known.link);
            gpu.gpudirect = gpu.gpudirect.or(known.gpudirect);
        }
    }
    if machine.nics.is_empty() && !machine.sockets.is_empty() {
        for nic in &known.nics {
            let socket = known.socket_of(nic.at).unwrap_or(0).min(machine.sockets.len() - 1);
            machine.nics.push(Nic { at: Place::Socket(socket), ..nic.clone() });
        }
        machine.unknown.push(
            "The NICs are those of the instance type; below which switch they are is not told.".to_owned(),
        );
    }
    for nic in &mut machine.nics {
        if let Some(known) = known.nics.first() {
            nic.rate = nic.rate.or(known.rate);
            nic.gpudirect = nic.gpudirect.or(known.gpudirect);
            nic.latency = nic.latency.or(known.latency);
        }
    }
    for (socket, known) in machine.sockets.iter_mut().zip(&known.sockets) {
        if socket.maker == fabric::machine::Maker::Unknown {
            socket.maker = known.maker;
            socket.model = known.model;
        }
    }
}

fn ask(args: &args::Topo, subject: Subject) -> Result<Topo, String> {
    if subject.machine.gpus.is_empty() {
        let said = subject.notes.iter().chain(&subject.machine.unknown).map(String::as_str);
        let said: Vec<&str> = std::iter::once("").chain(said).collect();
        return Err(format!("{}: no GPU is seen{}", subject.source, said.join("\n  - ")));
    }
    let mut settings = subject.settings.unwrap_or_default();
    if let Some(version) = args.nccl {
        settings.version = version;
    }
    for (name, value) in &args.env {
        settings = settings.with(name, value);
    }
    let nodes = args.nodes.or(subject.nodes).or(subject.overlay.as_ref().map(|it| it.nodes));
    let mut layout = match args.pods.or(subject.pods) {
        Some((pods, gpus)) => Layout::new(pods, gpus),
        None => Layout::whole(&subject.machine),
    }
    .on(nodes.unwrap_or(1));
    layout.same_host = args.same_host;
    layout.shared_memory = args.shared_shm;
    layout.nics_per_pod = args.nics_per_pod;
    let few: Vec<u64> = [20, 24, 28, 30, 33].into_iter().map(|it| 1 << it).collect();
    let many = (10..=34).step_by(2).map(|it| 1 << it).collect();
    let question = Question {
        source: subject.source,
        settings,
        layout,
        collective: args.collective.unwrap_or(fabric::Collective::AllReduce),
        sizes: if args.collective.is_some() { many } else { few },
        // Several machines are drawn side by side, with or without a ring.
        overlay: subject.overlay.or_else(|| {
            let nodes = nodes.filter(|it| *it > 1)?;
            Some(TopoOverlay { name: String::new(), nodes, edges: Vec::new() })
        }),
        graphs: subject.graphs,
        notes: subject.notes,
    };
    Topo::new(&subject.machine, question).map_err(|it| match args.file.as_ref().or(args.cluster.as_ref()) {
        Some(path) => format!("{}: {it}", input::name(path)),
        None => it.to_string(),
    })
}
