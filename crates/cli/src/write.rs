//! `plumb topo --write-topo-file` and `--write-cluster`: a machine in the forms that NCCL and plumb take.

use std::io::{self, Write};
use std::path::Path;

use ::manifest::cluster_file;
use ::manifest::topology_file::{self, Detail};
use evidence::topology::Kind;
use fabric::Machine;
use forecast::Cluster;
use job::{Description, Job, LayoutFlags, Source};
use report::Style;
use report::written::{Written, differing_expectation};

use crate::args::{self, Colour, PageFormat};
use crate::{CLEAN, UNDECIDED, complain, doctor, output, topo};

pub(crate) fn run(args: &args::Topo, colour: Colour, out: &mut impl Write) -> io::Result<u8> {
    let (path, text, written) = match file(args) {
        Ok(file) => file,
        Err(reason) => {
            complain(&format!("error: {reason}"));
            return Ok(UNDECIDED);
        }
    };
    // The file itself is the answer then; what there is to know about it goes to standard error.
    if path.as_os_str() == "-" {
        if args.format == PageFormat::Json {
            complain(
                "error: --format json and the file would both go to standard output\nhint: write the file to a name",
            );
            return Ok(UNDECIDED);
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        for it in &written.notes {
            complain(&format!("note: {it}"));
        }
        return Ok(CLEAN);
    }
    output::write_file(path, |out| out.write_all(text.as_bytes()))?;
    match args.format {
        PageFormat::Json => written.json(out)?,
        PageFormat::Text | PageFormat::Html => {
            let style =
                Style { colour: doctor::coloured(colour), width: doctor::width(), verbose: args.verbose };
            written.text(style, out)?;
        }
    }
    Ok(CLEAN)
}

/// The name and the text of the file, and what to say about it.
fn file(args: &args::Topo) -> Result<(&Path, String, Written), String> {
    let read = topo::read(args)?;
    let job = topo::job(args, &read)?;
    match (&args.write_topo_file, &args.write_cluster) {
        (Some(path), _) => topology(args, &read, path),
        (None, Some(path)) => cluster(&read, &job, path),
        (None, None) => Err("there is no file to write".to_owned()),
    }
}

fn topology<'a>(
    args: &args::Topo,
    read: &Description,
    path: &'a Path,
) -> Result<(&'a Path, String, Written), String> {
    let (mut machine, mut source) = (read.machine.machine.value.clone(), read.source.clone());
    let mut notes = Vec::new();
    // What NCCL wrote itself is everything it knew; of another machine the system answers better than a catalogue.
    let seen = matches!(read.machine.machine.source, Source::Topology { .. });
    if args.file.is_none() && args.cluster.is_none() && args.instance.is_some() {
        let known = machine.gpus.iter().all(|it| it.bus.is_some());
        match live().and_then(|live| topology_file::with_bus_ids_of(&machine, &live)) {
            Ok(placed) => {
                (machine, notes) = (placed.machine, placed.notes);
                source.push_str("; PCI bus ids of this machine");
            }
            Err(_) if known => notes.push("The PCI bus ids are those of the catalogue.".to_owned()),
            Err(reason) => return Err(format!("{reason}: run this on the machine itself")),
        }
    }
    if args.instance.is_none()
        && read.machine.machine.source == Source::LiveNode
        && machine.bridges.is_empty()
    {
        notes.push(
            "This machine shows no PCIe switch. With --instance NAME the file has those of the catalogue."
                .to_owned(),
        );
    }
    if matches!(read.machine.machine.source, Source::Topology { kind: Kind::TopologyXml, .. }) {
        notes.push(
            "NCCL also takes its own XML as it is. This file has no PCI vendor ids, by which NCCL joins two levels of Broadcom switches."
                .to_owned(),
        );
    }
    let detail = if seen { Detail::Everything } else { Detail::Tree };
    let file = topology_file::write(&machine, detail)?;
    notes.extend(file.notes);
    if !read.machine.wired {
        notes.extend(machine.unknown.iter().cloned());
    }
    let supplied = read.machine.model.and_then(|it| it.instance).and_then(|it| it.ofi_topo_file.as_deref());
    if let Some(name) = supplied {
        notes.push(format!(
            "aws-ofi-nccl gives NCCL a file of its own on this instance type ({name}): set NCCL_TOPO_FILE only without the plugin."
        ));
    }
    let written = Written {
        schema: "plumb.written/1",
        file: path.display().to_string(),
        kind: "topology",
        summary: topology_file::summary(&machine),
        usage: format!("NCCL_TOPO_FILE={} in the environment of every rank", path.display()),
        source,
        notes,
    };
    Ok((path, file.text, written))
}

#[cfg(target_os = "linux")]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere it is an error")]
fn live() -> Result<Machine, String> {
    Ok(node::read().machine)
}

#[cfg(not(target_os = "linux"))]
fn live() -> Result<Machine, String> {
    Err("plumb reads the local machine on Linux only".to_owned())
}

fn cluster<'a>(read: &Description, job: &Job, path: &'a Path) -> Result<(&'a Path, String, Written), String> {
    let machine = &job.machines[0].value;
    let layout = job.layout.as_ref().map(|it| it.value).unwrap_or_default();
    let file = cluster_file::write(machine, read.machine.model, &layout)?;
    let mut notes = file.notes;
    let name = path.display().to_string();
    let settings = job.effective_settings();
    let again =
        Description::of_cluster_file(&file.text, &name).map_err(|error| format!("{name}: {error}"))?;
    let again_job = again.job(&LayoutFlags::default());
    let again_layout = again_job.layout.map(|it| it.value).unwrap_or_default();
    let both = Cluster::of_layout(machine, &layout, &settings)
        .ok()
        .zip(Cluster::of_layout(&again_job.machines[0].value, &again_layout, &settings).ok());
    notes.extend(both.and_then(|(described, file)| differing_expectation(&described, &file)));
    let written = Written {
        schema: "plumb.written/1",
        file: name.clone(),
        kind: "cluster",
        summary: cluster_file::summary(machine, &layout),
        usage: format!("plumb expect all_reduce --cluster {name}"),
        source: read.source.clone(),
        notes,
    };
    Ok((path, file.text, written))
}
