//! A cluster file: machines described in the `[cluster]` table of a TOML file.
//!
//! ```toml
//! [cluster]
//! gpu = "H100"
//! gpus_per_node = 8
//! nodes = 2
//! pods = "1x8"
//! inter = { kind = "infiniband", nics = 8, gbps = 400 }
//! ```

use std::fmt;

use fabric::catalogue;
use fabric::gpu::{self, GpuModel, NvLinkBy};
use fabric::machine::{Bridge, Gpu, Machine, Nic, NicKind, NvEnd, NvLink, Place, Socket};
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, layout};
use serde::Deserialize;

use crate::known::{Known, Source};
use crate::machine::{self, Resolved, link_of};

/// Machines of one kind, and how a job is laid out on them.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterFile {
    /// One of the machines.
    pub machine: Resolved,
    /// One pod with the whole machine, unless `pods` says otherwise.
    pub layout: Known<Layout>,
}

/// What is wrong with a cluster file; a syntax error names its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFileError(String);

impl fmt::Display for ClusterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClusterFileError {}

/// More GPUs or NICs than this are in no machine.
const MOST: u32 = 256;

/// The file. Other tables belong to other commands.
#[derive(Debug, Deserialize)]
struct File {
    cluster: Table,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    instance: Option<String>,
    gpu: Option<String>,
    gpus_per_node: Option<u32>,
    nodes: Option<u32>,
    pods: Option<String>,
    intra: Option<String>,
    inter: Option<Inter>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inter {
    kind: Kind,
    nics: u32,
    gbps: f64,
    gpudirect: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Efa,
    #[serde(alias = "ib")]
    Infiniband,
    Roce,
    Slingshot,
    #[serde(alias = "tcp")]
    Ethernet,
}

/// Reads a cluster file of this name.
pub fn read(text: &str, name: &str) -> Result<ClusterFile, ClusterFileError> {
    let file: File = toml::from_str(text).or_else(|error| wrong(error.to_string().trim_end()))?;
    let table = file.cluster;
    let source = Source::ClusterFile(name.into());
    let machine = match (&table.instance, &table.gpu) {
        (Some(_), Some(_)) => return wrong("`instance` and `gpu` are both given: one is enough"),
        (Some(instance), None) => of_instance(instance, &table, source.clone())?,
        (None, Some(gpu)) => {
            let machine = Known::new(of_gpu(gpu, &table)?, source.clone());
            Resolved { machine, model: None, wired: false, notes: Vec::new(), conflicts: Vec::new() }
        }
        (None, None) => return wrong("[cluster] needs `instance`, or `gpu` and `gpus_per_node`"),
    };
    let layout = match table.pods.as_deref().map(Layout::parse) {
        Some(Ok(layout)) => layout,
        Some(Err(layout::Unfit::Unreadable(_))) => {
            return wrong("`pods` is written as 1x8: pods on each node, and GPUs in each");
        }
        Some(Err(other)) => return wrong(other.to_string()),
        None => Layout::whole(&machine.machine.value),
    };
    Ok(ClusterFile { machine, layout: Known::new(layout.on(table.nodes.unwrap_or(1)), source) })
}

fn wrong<T>(text: impl Into<String>) -> Result<T, ClusterFileError> {
    Err(ClusterFileError(text.into()))
}

fn of_instance(name: &str, table: &Table, source: Source) -> Result<Resolved, ClusterFileError> {
    if table.intra.is_some() || table.inter.is_some() || table.gpus_per_node.is_some() {
        return wrong(
            "`instance` already gives GPUs and links: leave out `gpus_per_node`, `intra` and `inter`",
        );
    }
    match catalogue::resolve(name) {
        Ok(model) => Ok(machine::of_model(model, source)),
        Err(unknown) => wrong(unknown.to_string()),
    }
}

/// How the GPUs of a described machine are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intra {
    NvLink,
    Pci,
    SharedMemory,
}

fn of_gpu(name: &str, table: &Table) -> Result<Machine, ClusterFileError> {
    let Some(model) = gpu::find(name) else { return wrong(format!("plumb knows no GPU `{name}`")) };
    let Some(gpus) = table.gpus_per_node.filter(|it| *it > 0) else {
        return wrong("`gpu` needs `gpus_per_node`");
    };
    let nics = table.inter.as_ref().map_or(0, |it| it.nics);
    if gpus > MOST || nics > MOST {
        return wrong(format!("{gpus} GPUs and {nics} NICs in one machine: at most {MOST} of each"));
    }
    if let Some(inter) = table.inter.as_ref().filter(|it| !Nic::RATES.contains(&it.gbps)) {
        return wrong(format!("gbps = {:?} is not a NIC rate", inter.gbps));
    }
    let intra = intra(table.intra.as_deref(), model)?;
    // The file does not describe the wiring: NICs are spread over the GPUs, each below one switch with its own.
    let groups = match intra {
        Intra::Pci => 1,
        // On boards with A100 two GPUs and their NICs share a switch.
        Intra::NvLink if model.compute == 80 && nics >= gpus => gpus.div_ceil(2),
        Intra::NvLink if nics > 0 => gpus.min(nics),
        Intra::NvLink | Intra::SharedMemory => gpus,
    };
    let link = link_of(model);
    let below = |index: u32, of: u32| Place::Bridge((index * groups / of.max(1)) as usize);
    let gpu = |index: u32| Gpu {
        index,
        at: below(index, gpus),
        bus: None,
        link,
        model: Some(model.name.as_str().into()),
        compute: Some(model.compute),
        gpudirect: Some(true),
        rank: None,
        c2c: None,
    };
    let nic = |index: u32, inter: &Inter| Nic {
        name: format!("nic{index}").into(),
        index,
        at: below(index, nics),
        bus: None,
        link,
        rate: Some(GigabitsPerSecond(inter.gbps)),
        gpudirect: Some(inter.gpudirect.unwrap_or(kind(inter.kind) != NicKind::Ethernet)),
        latency: None,
        port: None,
        kind: kind(inter.kind),
    };
    Ok(Machine {
        name: None,
        sockets: vec![Socket::default()],
        bridges: (0..groups).map(|_| Bridge { at: Place::Socket(0), bus: None, link }).collect(),
        gpus: (0..gpus).map(gpu).collect(),
        nics: table.inter.iter().flat_map(|inter| (0..nics).map(move |it| nic(it, inter))).collect(),
        nvlinks: if intra == Intra::NvLink { nvlinks(model, gpus) } else { Vec::new() },
        unknown: vec![
            "The wiring is not described: NICs are spread evenly, below one switch with their GPUs, with links like theirs."
                .to_owned(),
        ],
        ..Machine::default()
    })
}

fn kind(kind: Kind) -> NicKind {
    match kind {
        Kind::Efa => NicKind::Efa,
        Kind::Infiniband => NicKind::InfiniBand,
        Kind::Roce => NicKind::Roce,
        Kind::Slingshot => NicKind::Slingshot,
        Kind::Ethernet => NicKind::Ethernet,
    }
}

/// `nvlink4`, `pcie` (GPUs below one switch), `shm` (GPUs at the CPU); without it, what the GPU is built for.
fn intra(word: Option<&str>, model: &GpuModel) -> Result<Intra, ClusterFileError> {
    // GPUs without NVLink are usually attached to the CPU, where NCCL uses host memory.
    let word = word.unwrap_or(if model.nvlink.is_some() { "nvlink" } else { "shm" }).to_lowercase();
    if word == "shm" {
        return Ok(Intra::SharedMemory);
    }
    if word.starts_with("pcie") {
        return Ok(Intra::Pci);
    }
    let Some(generation) = word.strip_prefix("nvlink") else {
        return wrong(format!("intra = \"{word}\" is not one of nvlink2 to nvlink5, pcie, shm"));
    };
    let Some(port) = model.nvlink else { return wrong(format!("{} has no NVLink", model.name)) };
    if !generation.is_empty() && generation != port.generation.to_string() {
        return wrong(format!("{} has NVLink {}, not {generation}", model.name, port.generation));
    }
    Ok(Intra::NvLink)
}

fn nvlinks(model: &GpuModel, gpus: u32) -> Vec<NvLink> {
    let Some(port) = model.nvlink else { return Vec::new() };
    let n = gpus as usize;
    let count = port.links;
    match port.by {
        NvLinkBy::Switch => (0..n).map(|from| NvLink { from, to: NvEnd::Switch, count }).collect(),
        // GPUs in pairs.
        NvLinkBy::Bridge => {
            let pair = |from: usize| NvLink { from, to: NvEnd::Gpu(from ^ 1), count };
            (0..n).filter(|it| it ^ 1 < n).map(pair).collect()
        }
        // Wires from GPU to GPU: the mesh of eight that all of them have.
        NvLinkBy::Wires => {
            let mesh = catalogue::machine("dgx-1v").unwrap_or_default().nvlinks;
            let here = |it: &NvLink| it.from < n && matches!(it.to, NvEnd::Gpu(to) if to < n);
            mesh.into_iter().filter(here).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::known::Source;

    #[test]
    fn a_machine_by_name_or_by_parts() {
        let file = read("[cluster]\ninstance = \"p5.48xlarge\"\nnodes = 2", "c.toml").unwrap();
        assert_eq!(file.machine.title(), "p5.48xlarge");
        assert_eq!(file.machine.machine.source, Source::ClusterFile("c.toml".into()));
        assert_eq!(file.layout.value.to_string(), "2 nodes of 1x8");
        let text = "[cluster]\ngpu = \"H100\"\ngpus_per_node = 8\npods = \"8x1\"\n\
                    inter = { kind = \"ib\", nics = 4, gbps = 400 }";
        let file = read(text, "c.toml").unwrap();
        let machine = &file.machine.machine.value;
        assert_eq!((machine.gpus.len(), machine.nics.len(), machine.bridges.len()), (8, 4, 4));
        assert_eq!(file.layout.value.to_string(), "8x1");
        assert!(!file.machine.wired);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for (text, want) in [
            ("[cluster]\ninstance = \"p5.48xlarg\"", "did you mean p5.48xlarge"),
            ("[cluster]\ngpu = \"H1000\"\ngpus_per_node = 8", "plumb knows no GPU `H1000`"),
            ("[cluster]\ngpu = \"H100\"", "`gpu` needs `gpus_per_node`"),
            ("[cluster]\ngpu = \"L40S\"\ngpus_per_node = 4\nintra = \"nvlink4\"", "has no NVLink"),
            ("[cluster]\ninstance = \"p5.48xlarge\"\npods = \"8\"", "written as 1x8"),
            ("[cluster]\ninstance = \"p5.48xlarge\"\npods = \"0x8\"", "at least one node"),
            ("[cluster]\nnodes = 2", "[cluster] needs `instance`"),
            (
                "[cluster]\ngpu = \"H100\"\ngpus_per_node = 8\ninter = { kind = \"ib\", nics = 1, gbps = -1.0 }",
                "gbps = -1.0 is not a NIC rate",
            ),
            ("[cluster]\nnope = 1", "unknown field"),
            ("x", "line 1"),
        ] {
            let error = read(text, "c.toml").unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        }
    }
}
