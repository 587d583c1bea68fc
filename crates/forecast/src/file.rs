//! A cluster described in a file: the `[cluster]` table of a job.

use fabric::machine::{Machine, NicKind, NvEnd, PciLink};
use fabric::{catalogue, gpu, link};
use nccl::Settings;
use serde::Deserialize;

use crate::cluster::{Between, Cluster, Impossible, Inside};

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
pub fn read(text: &str, settings: &Settings) -> Result<Cluster, Impossible> {
    let file: File =
        toml::from_str(text).map_err(|error| Impossible(error.to_string().trim_end().to_owned()))?;
    let table = file.cluster;
    let nodes = table.nodes.unwrap_or(1);
    let cluster = match (&table.instance, &table.gpu) {
        (Some(_), Some(_)) => return wrong("`instance` and `gpu` are both given: one is enough"),
        (Some(name), None) => of_instance(name, &table, nodes, settings)?,
        (None, Some(name)) => of_gpu(name, &table, nodes, settings)?,
        (None, None) => return wrong("[cluster] needs `instance`, or `gpu` and `gpus_per_node`"),
    };
    match table.pods.as_deref().map(parse_pods) {
        None => Ok(cluster),
        Some(Some((pods, gpus))) => cluster.with_pods(pods, gpus),
        Some(None) => wrong("`pods` is written as 1x8: pods on each node, and GPUs in each"),
    }
}

/// Reads `1x8`: pods on each node, and GPUs in each.
pub fn parse_pods(text: &str) -> Option<(u32, u32)> {
    let (pods, gpus) = text.trim().split_once(['x', 'X'])?;
    Some((pods.trim().parse().ok()?, gpus.trim().parse().ok()?))
}

fn wrong<T>(text: impl Into<String>) -> Result<T, Impossible> {
    Err(Impossible(text.into()))
}

/// A machine of the catalogue.
pub fn of_catalogue(name: &str, nodes: u32, settings: &Settings) -> Result<Cluster, Impossible> {
    let Some(machine) = catalogue::machine(name) else {
        let near = catalogue::suggest(name);
        let hint =
            if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) };
        return wrong(format!("`{name}` is no machine that plumb knows{hint}"));
    };
    Cluster::of_machine(&machine, nodes, settings)
}

fn of_instance(name: &str, table: &Table, nodes: u32, settings: &Settings) -> Result<Cluster, Impossible> {
    if table.intra.is_some() || table.inter.is_some() || table.gpus_per_node.is_some() {
        return wrong(
            "`instance` tells GPUs and links already: leave `gpus_per_node`, `intra` and `inter` out",
        );
    }
    of_catalogue(name, nodes, settings)
}

fn of_gpu(name: &str, table: &Table, nodes: u32, settings: &Settings) -> Result<Cluster, Impossible> {
    let Some(model) = gpu::find(name) else { return wrong(format!("`{name}` is no GPU that plumb knows")) };
    let Some(gpus) = table.gpus_per_node.filter(|it| *it > 0) else {
        return wrong("`gpu` needs `gpus_per_node`");
    };
    let pci = model
        .pcie_gen
        .and_then(PciLink::generation)
        .map(|it| link::pci(PciLink { width: model.pcie_lanes, ..it }));
    let cluster = Cluster {
        machine: format!("{gpus} x {}", model.name),
        nodes,
        pods: 1,
        gpus,
        gpus_there: gpus,
        compute: Some(model.compute),
        inside: inside(table.intra.as_deref(), model, gpus, settings)?,
        pci,
        between: table.inter.as_ref().map(between),
    };
    cluster.checked()
}

fn between(inter: &Inter) -> Between {
    let kind = match inter.kind {
        Kind::Efa => NicKind::Efa,
        Kind::Infiniband => NicKind::InfiniBand,
        Kind::Roce => NicKind::Roce,
        Kind::Ethernet => NicKind::Ethernet,
    };
    let gpudirect = inter.gpudirect.unwrap_or(kind != NicKind::Ethernet);
    Between { kind, nics: inter.nics, gbps: inter.gbps, gpudirect, efa: None }
}

/// `nvlink4`, `pcie5`, `shm`; without a word, what the GPU is built for.
fn inside(
    word: Option<&str>,
    model: &gpu::GpuModel,
    gpus: u32,
    settings: &Settings,
) -> Result<Inside, Impossible> {
    let word = word.unwrap_or(if model.nvlink.is_some() { "nvlink" } else { "pcie" }).to_lowercase();
    if word == "shm" {
        return Ok(Inside::Pci { peer_to_peer: false });
    }
    if word.starts_with("pcie") {
        return Ok(Inside::Pci { peer_to_peer: true });
    }
    let Some(generation) = word.strip_prefix("nvlink") else {
        return wrong(format!("intra = \"{word}\" is not known: nvlink2 to nvlink5, pcie, shm"));
    };
    let Some(port) = model.nvlink else { return wrong(format!("{} has no NVLink", model.name)) };
    if !generation.is_empty() && generation != port.generation.to_string() {
        return wrong(format!("{} has NVLink {}, not {generation}", model.name, port.generation));
    }
    let bandwidth = link::nvlink(model.compute, settings.version);
    match port.by {
        gpu::NvLinkBy::Switch => Ok(Inside::Switch {
            links: port.links,
            bandwidth: bandwidth * f64::from(port.links),
            domain: gpus,
        }),
        gpu::NvLinkBy::Bridge => {
            let pairs = (0..gpus as usize / 2)
                .flat_map(|it| [(2 * it, 2 * it + 1, port.links), (2 * it + 1, 2 * it, port.links)]);
            Ok(Inside::Mesh { links: pairs.take(1024).collect(), bandwidth })
        }
        // Wires from GPU to GPU: the mesh of eight that all of them have.
        gpu::NvLinkBy::Wires => {
            let machine = catalogue::machine("dgx-1v").unwrap_or_default();
            Ok(Inside::Mesh { links: mesh(&machine), bandwidth })
        }
    }
}

fn mesh(machine: &Machine) -> Vec<(usize, usize, u32)> {
    let ends = machine.nvlinks.iter().filter_map(|it| match it.to {
        NvEnd::Gpu(to) => Some((it.from, to, it.count)),
        NvEnd::Switch | NvEnd::Socket(_) => None,
    });
    ends.collect()
}
