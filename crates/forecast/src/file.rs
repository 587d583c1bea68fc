//! A cluster described in a file: the `[cluster]` table of a job.

use fabric::machine::{Bridge, Gpu, Machine, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
use fabric::units::GigabitsPerSecond;
use fabric::{catalogue, gpu};
use nccl::Settings;
use serde::Deserialize;

use crate::cluster::{Cluster, Impossible, NIC_RATES};

/// Machines of one kind, and how a job is spread over them.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// One of the machines.
    pub machine: Machine,
    /// How many.
    pub nodes: u32,
    /// Pods on each and GPUs in each; none for one pod with all.
    pub pods: Option<(u32, u32)>,
}

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
    #[serde(alias = "tcp")]
    Ethernet,
}

/// Reads a description. The error names the line where the file is wrong.
pub fn describe_file(text: &str) -> Result<Description, Impossible> {
    let file: File =
        toml::from_str(text).map_err(|error| Impossible(error.to_string().trim_end().to_owned()))?;
    let table = file.cluster;
    let machine = match (&table.instance, &table.gpu) {
        (Some(_), Some(_)) => return wrong("`instance` and `gpu` are both given: one is enough"),
        (Some(name), None) => of_instance(name, &table)?,
        (None, Some(name)) => of_gpu(name, &table)?,
        (None, None) => return wrong("[cluster] needs `instance`, or `gpu` and `gpus_per_node`"),
    };
    let pods = match table.pods.as_deref().map(parse_pods) {
        Some(None) => return wrong("`pods` is written as 1x8: pods on each node, and GPUs in each"),
        Some(pods) => pods,
        None => None,
    };
    Ok(Description { machine, nodes: table.nodes.unwrap_or(1), pods })
}

/// Reads a description as far as bandwidth depends on it.
pub fn read(text: &str, settings: &Settings) -> Result<Cluster, Impossible> {
    let Description { machine, nodes, pods } = describe_file(text)?;
    let cluster = Cluster::of_machine(&machine, nodes, settings)?;
    match pods {
        Some((pods, gpus)) => cluster.with_pods(pods, gpus),
        None => Ok(cluster),
    }
}

/// Reads `1x8`: pods on each node, and GPUs in each.
fn parse_pods(text: &str) -> Option<(u32, u32)> {
    nccl::Layout::parse(text).ok().map(|it| (it.pods_per_node, it.gpus_per_pod))
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Impossible> {
    Err(Impossible(text.into()))
}

/// A machine of the catalogue.
pub fn known(name: &str) -> Result<Machine, Impossible> {
    catalogue::resolve(name).map(catalogue::Model::machine).map_err(|it| Impossible(it.to_string()))
}

fn of_instance(name: &str, table: &Table) -> Result<Machine, Impossible> {
    if table.intra.is_some() || table.inter.is_some() || table.gpus_per_node.is_some() {
        return wrong(
            "`instance` tells GPUs and links already: leave `gpus_per_node`, `intra` and `inter` out",
        );
    }
    known(name)
}

/// How the GPUs of a described machine are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intra {
    NvLink,
    Pci,
    SharedMemory,
}

fn of_gpu(name: &str, table: &Table) -> Result<Machine, Impossible> {
    let Some(model) = gpu::find(name) else { return wrong(format!("`{name}` is no GPU that plumb knows")) };
    let Some(gpus) = table.gpus_per_node.filter(|it| *it > 0) else {
        return wrong("`gpu` needs `gpus_per_node`");
    };
    let nics = table.inter.as_ref().map_or(0, |it| it.nics);
    if gpus > MOST || nics > MOST {
        return wrong(format!("{gpus} GPUs and {nics} NICs in one machine: at most {MOST} of each"));
    }
    if let Some(inter) = table.inter.as_ref().filter(|it| !NIC_RATES.contains(&it.gbps)) {
        return wrong(format!("gbps = {:?} is no rate of a NIC", inter.gbps));
    }
    let intra = intra(table.intra.as_deref(), model)?;
    // Nothing is said of the wiring: NICs are spread over the GPUs, each below one switch with its own.
    let groups = match intra {
        Intra::Pci => 1,
        Intra::NvLink | Intra::SharedMemory if nics > 0 => gpus.min(nics),
        Intra::NvLink | Intra::SharedMemory => gpus,
    };
    let link =
        model.pcie_gen.and_then(PciLink::generation).map(|it| PciLink { width: model.pcie_lanes, ..it });
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
    })
}

fn kind(kind: Kind) -> NicKind {
    match kind {
        Kind::Efa => NicKind::Efa,
        Kind::Infiniband => NicKind::InfiniBand,
        Kind::Roce => NicKind::Roce,
        Kind::Ethernet => NicKind::Ethernet,
    }
}

/// `nvlink4`, `pcie` (cards below one switch), `shm` (cards at the CPU); without a word, what the GPU is built for.
fn intra(word: Option<&str>, model: &gpu::GpuModel) -> Result<Intra, Impossible> {
    // Cards mostly hang at the CPU, where NCCL goes through host memory.
    let word = word.unwrap_or(if model.nvlink.is_some() { "nvlink" } else { "shm" }).to_lowercase();
    if word == "shm" {
        return Ok(Intra::SharedMemory);
    }
    if word.starts_with("pcie") {
        return Ok(Intra::Pci);
    }
    let Some(generation) = word.strip_prefix("nvlink") else {
        return wrong(format!("intra = \"{word}\" is not known: nvlink2 to nvlink5, pcie, shm"));
    };
    let Some(port) = model.nvlink else { return wrong(format!("{} has no NVLink", model.name)) };
    if !generation.is_empty() && generation != port.generation.to_string() {
        return wrong(format!("{} has NVLink {}, not {generation}", model.name, port.generation));
    }
    Ok(Intra::NvLink)
}

fn nvlinks(model: &gpu::GpuModel, gpus: u32) -> Vec<NvLink> {
    let Some(port) = model.nvlink else { return Vec::new() };
    let n = gpus as usize;
    let count = port.links;
    match port.by {
        gpu::NvLinkBy::Switch => (0..n).map(|from| NvLink { from, to: NvEnd::Switch, count }).collect(),
        // Cards in pairs.
        gpu::NvLinkBy::Bridge => {
            let pair = |from: usize| NvLink { from, to: NvEnd::Gpu(from ^ 1), count };
            (0..n).filter(|it| it ^ 1 < n).map(pair).collect()
        }
        // Wires from GPU to GPU: the mesh of eight that all of them have.
        gpu::NvLinkBy::Wires => {
            let mesh = catalogue::machine("dgx-1v").unwrap_or_default().nvlinks;
            let here = |it: &NvLink| it.from < n && matches!(it.to, NvEnd::Gpu(to) if to < n);
            mesh.into_iter().filter(here).collect()
        }
    }
}
