//! The cluster file that `plumb topo`, `plumb expect` and `plumb bench` take: machines in a few lines of TOML.
//!
//! The file has the GPU, the number of devices and the network, not the wiring: `job::cluster_file` reads it.

use fabric::catalogue::Model;
use fabric::gpu::{self, GpuModel};
use fabric::machine::{Nic, NicKind, Place};
use fabric::{Layout, Machine};

/// A file, and what to know about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFile {
    /// The TOML.
    pub text: String,
    /// What is left out or assumed, in sentences.
    pub notes: Vec<String>,
}

/// Writes the file; `model` is the machine's entry of the catalogue. The error is a sentence for the user.
pub fn write(
    machine: &Machine,
    model: Option<&'static Model>,
    layout: &Layout,
) -> Result<ClusterFile, String> {
    let mut notes = Vec::new();
    let mut text = String::from("[cluster]\n");
    match model {
        Some(model) => text.push_str(&format!("instance = \"{}\"\n", model.name)),
        None => text.push_str(&described(machine, &mut notes)?),
    }
    text.push_str(&format!("nodes = {}\n", layout.nodes));
    let whole = Layout::whole(machine);
    if (layout.pods_per_node, layout.gpus_per_pod) != (whole.pods_per_node, whole.gpus_per_pod) {
        text.push_str(&format!("pods = \"{}x{}\"\n", layout.pods_per_node, layout.gpus_per_pod));
    }
    Ok(ClusterFile { text, notes })
}

/// `4 machines, 8 GPUs each`
pub fn summary(machine: &Machine, layout: &Layout) -> String {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    let gpus = plural(machine.gpus.len(), "GPU");
    match layout.nodes {
        1 => format!("one machine, {gpus}"),
        nodes => format!("{}, {gpus} each", plural(nodes as usize, "machine")),
    }
}

fn described(machine: &Machine, notes: &mut Vec<String>) -> Result<String, String> {
    let first = machine.gpus.first().ok_or("the machine has no GPU")?;
    let gpu = first.model.as_deref().and_then(gpu::find).ok_or_else(|| match &first.model {
        Some(name) => format!("plumb knows no GPU `{name}`: give one that it knows with --gpu"),
        None => "the model of the GPUs is not known: give it with --gpu, as in --gpu H100".to_owned(),
    })?;
    if machine.gpus.iter().any(|it| it.model != first.model) {
        notes.push(format!("The GPUs differ: the file has {} for all.", gpu.name));
    }
    let mut text = format!("gpu = \"{}\"\ngpus_per_node = {}\n", gpu.name, machine.gpus.len());
    text.push_str(&format!("intra = \"{}\"\n", intra(machine, gpu)));
    if let Some(nic) = machine.nics.first() {
        text.push_str(&inter(machine, nic, notes));
    }
    Ok(text)
}

/// `nvlink4`, `pcie` (GPUs below one switch), `shm` (GPUs at the CPU).
fn intra(machine: &Machine, gpu: &GpuModel) -> String {
    if let Some(port) = gpu.nvlink.filter(|_| !machine.nvlinks.is_empty()) {
        return format!("nvlink{}", port.generation);
    }
    let top = |at: Place| machine.bridges_above(at).last().copied();
    let switches: Vec<Option<usize>> = machine.gpus.iter().map(|it| top(it.at)).collect();
    let one_switch =
        switches.first().is_some_and(Option::is_some) && switches.windows(2).all(|it| it[0] == it[1]);
    if one_switch { "pcie" } else { "shm" }.to_owned()
}

fn inter(machine: &Machine, first: &Nic, notes: &mut Vec<String>) -> String {
    let nics = machine.nics.len();
    let kind = match first.kind {
        NicKind::Efa => "efa",
        NicKind::InfiniBand => "infiniband",
        NicKind::Roce => "roce",
        NicKind::Slingshot => "slingshot",
        NicKind::Ethernet | NicKind::GpuDirectTcp => "ethernet",
        NicKind::Unknown => {
            notes.push(format!(
                "Whether {} is InfiniBand or RoCE is not known: the file has infiniband (`ibstat` shows the link layer).",
                first.name
            ));
            "infiniband"
        }
    };
    let Some(rate) = first.rate else {
        notes.push(
            "The rate of the NICs is not known: the network is left out. Give it with --nic-gbps, as in --nic-gbps 400."
                .to_owned(),
        );
        return format!("# inter = {{ kind = \"{kind}\", nics = {nics}, gbps = RATE }}\n");
    };
    if machine.nics.iter().any(|it| it.rate != first.rate || it.kind != first.kind) {
        notes.push(format!("The NICs differ: the file has those of {} for all {nics}.", first.name));
    }
    let gpudirect = first.gpudirect.map_or_else(String::new, |it| format!(", gpudirect = {it}"));
    format!("inter = {{ kind = \"{kind}\", nics = {nics}, gbps = {:?}{gpudirect} }}\n", rate.0)
}
