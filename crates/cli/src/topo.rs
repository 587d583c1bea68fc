//! `plumb topo`: how a machine is wired, which paths it offers, and what speed is normal.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use evidence::topology::{self, Graph};
use fabric::{Collective, Layout, Transport, catalogue, gpu};
use forecast::Cluster;
use job::channel::{self, Channel, Connection, Shape};
use job::machine::{self, Resolved};
use job::{Job, Known, Releases, Settings, Source, cluster_file};
use nccl::Decisions;
use report::Style;
use report::topo::{Topo, TopoParts};

use crate::args::{self, Colour, ListFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, expect, input, output};

/// The machine that was read, and other facts from the file.
struct Read {
    machine: Resolved,
    /// For people: a file and line, the catalogue, this machine.
    source: String,
    layout: Option<Known<Layout>>,
    settings: Settings,
    releases: Releases,
    channel: Option<Channel>,
    graphs: Vec<Graph>,
}

impl Read {
    fn new(machine: Resolved, source: impl Into<String>) -> Self {
        Self {
            machine,
            source: source.into(),
            layout: None,
            settings: Settings::default(),
            releases: Releases::default(),
            channel: None,
            graphs: Vec::new(),
        }
    }
}

/// How much of a file is read: the topology is at the beginning of a log.
const MOST: u64 = 1 << 28;

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let inputs: Vec<PathBuf> = args.file.iter().chain(&args.cluster).cloned().collect();
    if !output::spares(&args.svg, &inputs, false) {
        return Ok(UNDECIDED);
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
            let style = Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: false };
            report::topo::text(&topo, style, out)?;
        }
        ListFormat::Json => report::topo::json(&topo, out)?,
    }
    Ok(CLEAN)
}

fn read(args: &args::Topo) -> Result<Read, String> {
    if args.file.is_none() && (args.channel.is_some() || args.tree) {
        return Err("--channel and --tree need a log: give it as FILE".to_owned());
    }
    let mut read = match (&args.file, &args.cluster, args.instance) {
        (Some(path), ..) => of_file(args, path)?,
        (None, Some(path), _) => of_cluster_file(path)?,
        (None, None, Some(model)) => {
            Read::new(machine::of_model(model, Source::Flag("--instance")), "the catalogue")
        }
        (None, None, None) => this_machine()?,
    };
    if let Some(name) = &args.gpu {
        let model = gpu::find(name).ok_or_else(|| format!("plumb knows no GPU `{name}`"))?;
        read.machine.set_gpu_model(model);
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
fn this_machine() -> Result<Read, String> {
    let live = node::read();
    Ok(Read::new(machine::of_live_node(live.machine, live.notes), "this machine"))
}

#[cfg(not(target_os = "linux"))]
fn this_machine() -> Result<Read, String> {
    Err("plumb topo reads the local machine on Linux only: give a FILE, --instance NAME or --cluster FILE"
        .to_owned())
}

fn of_cluster_file(path: &Path) -> Result<Read, String> {
    let name = input::name(path);
    let text = expect::read_text(path)?;
    let file = cluster_file::read(&text, &name).map_err(|error| format!("{name}: {error}"))?;
    Ok(Read { layout: Some(file.layout), ..Read::new(file.machine, name) })
}

fn of_file(args: &args::Topo, path: &Path) -> Result<Read, String> {
    let name = input::name(path);
    let named = |reason: String| format!("{name}: {reason}");
    let text = contents(path).map_err(|error| named(error.to_string()))?;
    let channel = (args.channel.is_some() || args.tree).then_some(args.channel.unwrap_or(0));
    let shape = if args.tree { Shape::Tree } else { Shape::Ring };
    // Rings, trees and the name of the machine are in any log.
    let case = || evidence::read_texts([(name.as_str(), text.as_slice())]);
    let trouble = match topology::read(&text) {
        Ok(found) => {
            let source = Source::Topology { file: name.as_str().into(), line: found.line, kind: found.kind };
            let mut read =
                Read::new(machine::of_topology(&found, source.clone(), args.instance), source.to_string());
            read.channel = match channel {
                None => None,
                Some(number) if found.kind == topology::Kind::GraphXml => {
                    Some(channel::of_graphs(&found.graphs, number, shape).map_err(named)?)
                }
                Some(number) => {
                    let machine = &read.machine.machine.value;
                    Some(channel::of_case(&case(), machine, number, shape).map_err(named)?)
                }
            };
            if found.kind == topology::Kind::Log {
                let case = case();
                (read.settings, read.releases) = (Settings::of_case(&case), Releases::of_case(&case));
            }
            read.graphs = found.graphs;
            return Ok(read);
        }
        Err(trouble) => trouble,
    };
    // An invalid description is an error, not a reason to guess.
    if let Some(line) = trouble.line {
        return Err(format!("{name}:{line}: {}", trouble.text));
    }
    let case = case();
    let (model, source, shown) = match (args.instance, machine::named_in(&case), machine::name_in(&case)) {
        (Some(model), ..) => (model, Source::Flag("--instance"), "the catalogue".to_owned()),
        (None, Some(known), _) => {
            (known.value, known.source, format!("the catalogue; {name} names {}", known.value.name))
        }
        (None, None, Some(unknown)) => {
            let model = catalogue::resolve(&unknown.value).map_err(|it| named(it.to_string()))?;
            (model, Source::Default, "the catalogue".to_owned())
        }
        (None, None, None) => return Err(named(trouble.text)),
    };
    let mut read = Read::new(machine::of_model(model, source), shown);
    if let Some(number) = channel {
        let machine = &read.machine.machine.value;
        read.channel = Some(channel::of_case(&case, machine, number, shape).map_err(named)?);
    }
    (read.settings, read.releases) = (Settings::of_case(&case), Releases::of_case(&case));
    Ok(read)
}

/// The beginning of a file, whatever it is compressed with.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    input::open_whole(path)?.take(MOST).read_to_end(&mut text)?;
    Ok(text)
}

fn answer(args: &args::Topo, read: Read) -> Result<Topo, String> {
    let Read { machine, source, layout, settings, releases, mut channel, graphs } = read;
    let Resolved { machine, notes, conflicts, .. } = machine;
    if machine.value.gpus.is_empty() {
        let reasons = notes.iter().chain(&machine.value.unknown).map(String::as_str);
        let reasons: Vec<&str> = std::iter::once("").chain(reasons).collect();
        return Err(format!("{source}: no GPU found{}", reasons.join("\n  - ")));
    }
    let layout = self::layout(args, layout, &machine, channel.as_ref());
    let job = Job {
        machines: vec![machine],
        layout: Some(layout),
        settings,
        releases,
        conflicts,
        ..Job::default()
    };
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
    Ok(Topo::new(TopoParts {
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

/// The layout from the flags, otherwise from the file, otherwise one pod with the whole machine.
fn layout(
    args: &args::Topo,
    read: Option<Known<Layout>>,
    machine: &Known<fabric::Machine>,
    channel: Option<&Channel>,
) -> Known<Layout> {
    let nodes = args.nodes.or(read.as_ref().map(|it| it.value.nodes)).or(channel.map(|it| it.nodes));
    let mut layout = match (args.pods, read) {
        (Some((pods, gpus)), _) => Known::new(Layout::new(pods, gpus), Source::Flag("--pods")),
        (None, Some(read)) => read,
        (None, None) => Known::new(Layout::whole(&machine.value), Source::Default),
    };
    layout.value.nodes = nodes.unwrap_or(1);
    layout.value.same_host = args.same_host;
    layout.value.shared_memory = args.shared_shm;
    layout.value.nics_per_pod = args.nics_per_pod;
    layout
}

/// The transport that NCCL takes for a connection inside a machine.
fn inside_machine(decisions: &Decisions, it: &Connection) -> Option<Transport> {
    let same = it.from.node == it.to.node;
    let decision = decisions.transport(it.from.local_rank.into(), it.to.local_rank.into());
    decision.filter(|_| same)?.transport
}
