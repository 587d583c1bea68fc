//! `plumb topo --bind`: which CPUs and which NIC are next to the GPU of each rank, and what to paste. Schema `plumb.bind/1`.

use std::io::{self, Write};

use anstyle::Style as Ansi;
use fabric::Machine;
use fabric::machine::NicKind;
use manifest::bind::{Binding, Launcher, Pin};
use nccl::Survey;
use serde::Serialize;

use crate::Style;
use crate::json::write_json;
use crate::text::{clean, counted, padded, width, wrap};

/// The ranks of one machine, and what makes a launcher place them so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bind {
    /// `plumb.bind/1`.
    pub schema: &'static str,
    /// The name of the machine.
    pub machine: Option<String>,
    /// Where its description comes from.
    pub source: String,
    /// `slurm`, `mpirun`, `torchrun`, `k8s`.
    pub launcher: &'static str,
    /// Machines.
    pub nodes: u32,
    /// The ranks of one machine; all machines are alike.
    pub ranks: Vec<BoundRank>,
    /// What to paste.
    pub blocks: Vec<Block>,
    /// What to know about NICs.
    pub nics: Vec<String>,
    /// What is unusual, or not known.
    pub notes: Vec<String>,
}

/// A rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BoundRank {
    /// Its number on the machine.
    pub local_rank: u32,
    /// The index of its GPU.
    pub gpu: u32,
    /// The PCI bus id of the GPU.
    pub bus: Option<String>,
    /// The NUMA node of the GPU.
    pub numa: Option<u32>,
    /// The CPUs it runs on: `0-5,48-53`.
    pub cpus: Option<String>,
    /// The same as a mask: `0x3f00000000003f`.
    pub mask: Option<String>,
    /// How many ranks run on these CPUs, or on those of the NUMA node.
    pub shared_by: usize,
    /// The NICs nearest to the GPU.
    pub nics: Vec<String>,
    /// The path to them, as NCCL names it.
    pub nic_path: Option<String>,
}

/// A text to paste.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Block {
    /// What it is.
    pub title: String,
    /// Its lines.
    pub text: String,
}

/// What the answer is made of.
#[derive(Debug, Clone, Copy)]
pub struct BindParts<'a> {
    /// The machine with every NIC.
    pub machine: &'a Machine,
    /// The machine as NCCL sees it, and its paths.
    pub seen_by_nccl: &'a Machine,
    /// Which NICs are near which GPU, of the machine as NCCL sees it.
    pub survey: &'a Survey,
    /// Where the description comes from.
    pub source: &'a str,
    /// The ranks.
    pub binding: &'a Binding,
    /// Who starts them.
    pub launcher: Launcher,
}

impl Bind {
    /// Builds the answer.
    pub fn new(parts: BindParts<'_>) -> Self {
        let BindParts { machine, binding, launcher, .. } = parts;
        let rank = |it: &manifest::bind::Rank| {
            let gpu = machine.gpus.get(it.gpu);
            let cpus = match &it.pin {
                Pin::Cpus(cpus) => Some(cpus),
                Pin::Node(_) | Pin::Unknown => None,
            };
            let near = parts.survey.nics.iter().find(|near| near.gpu == it.gpu);
            BoundRank {
                local_rank: it.local,
                gpu: gpu.map_or(it.local, |it| it.index),
                bus: gpu.and_then(|it| it.bus).map(|it| it.to_string()),
                numa: it.numa,
                cpus: cpus.map(ToString::to_string),
                mask: cpus.map(fabric::CpuSet::mask),
                shared_by: it.shared_by,
                nics: near.map(|it| names(parts, &it.near.nics)).unwrap_or_default(),
                nic_path: near.map(|it| it.near.path.kind.to_string()),
            }
        };
        let blocks = binding.blocks(launcher).into_iter();
        Self {
            schema: "plumb.bind/1",
            machine: machine.name.as_deref().map(str::to_owned),
            source: parts.source.to_owned(),
            launcher: launcher.name(),
            nodes: binding.nodes,
            ranks: binding.ranks.iter().map(rank).collect(),
            blocks: blocks.map(|it| Block { title: it.title, text: it.text }).collect(),
            nics: about_nics(machine, binding),
            notes: binding.notes.clone(),
        }
    }

    /// Writes the answer as JSON.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        write_json(self, out)
    }

    /// Writes the answer for people. What is to be pasted is neither indented nor wrapped.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let style = Style { width: style.width.clamp(40, 160), ..style };
        let bold = |text: &str| style.paint(text, Ansi::new().bold());
        for line in wrap(&self.summary(), style.width) {
            writeln!(out, "{}", bold(&line))?;
        }
        writeln!(out)?;
        self.table(style, out)?;
        for block in &self.blocks {
            writeln!(out)?;
            for line in wrap(&block.title, style.width) {
                writeln!(out, "{}", bold(&line))?;
            }
            write!(out, "{}", block.text)?;
        }
        if !self.nics.is_empty() || !self.notes.is_empty() {
            writeln!(out)?;
        }
        for (label, texts) in [("NICs", &self.nics), ("note", &self.notes)] {
            for text in texts {
                for (at, line) in wrap(&clean(text), style.width.saturating_sub(8)).iter().enumerate() {
                    let label = if at == 0 { label } else { "" };
                    writeln!(out, "  {} {line}", style.paint(&padded(label, 5), Ansi::new().dimmed()))?;
                }
            }
        }
        Ok(())
    }

    /// `p4d.24xlarge: 8 ranks, each with 12 CPUs of its own`
    fn summary(&self) -> String {
        let ranks = counted(self.ranks.len(), "rank");
        let head = match (&self.machine, self.nodes) {
            (Some(name), 1) => format!("{}: {ranks}", clean(name)),
            (Some(name), nodes) => format!("{nodes} x {}: {ranks} per machine", clean(name)),
            (None, 1) => ranks,
            (None, nodes) => format!("{nodes} machines: {ranks} per machine"),
        };
        let counts: Option<Vec<usize>> =
            self.ranks.iter().map(|it| Some(fabric::CpuSet::parse(it.cpus.as_deref()?)?.len())).collect();
        let alone = self.ranks.iter().all(|it| it.shared_by == 1);
        match counts.as_deref() {
            Some([first, rest @ ..]) if alone => {
                let (least, most) =
                    rest.iter().fold((*first, *first), |all, it| (all.0.min(*it), all.1.max(*it)));
                let cpus =
                    if least == most { counted(least, "CPU") } else { format!("{least} to {most} CPUs") };
                format!("{head}, each with {cpus} of its own")
            }
            Some(_) => format!("{head}, fewer CPUs than ranks"),
            None if self.ranks.iter().all(|it| it.cpus.is_none() && it.numa.is_none()) => {
                format!("{head}; the CPUs near the GPUs are not known")
            }
            None if self.ranks.iter().any(|it| it.cpus.is_some()) => {
                format!("{head}; the CPUs of some are known")
            }
            None => format!("{head}, the CPUs of a NUMA node together"),
        }
    }

    fn table(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let nics = |it: &BoundRank| match &*it.nics {
            [] => "-".to_owned(),
            [only] => clean(only),
            [first, rest @ ..] => format!("{} +{}", clean(first), rest.len()),
        };
        let numa = |it: &BoundRank| it.numa.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let cpus = |it: &BoundRank| match (&it.cpus, it.numa) {
            (Some(cpus), _) => cpus.clone(),
            (None, Some(node)) => format!("all of node {node}"),
            (None, None) => "not known".to_owned(),
        };
        let mut rows: Vec<[String; 6]> =
            vec![["rank", "GPU", "NUMA", "CPUs", "nearest NIC", "path"].map(str::to_owned)];
        rows.extend(self.ranks.iter().map(|it| {
            let path = it.nic_path.clone().unwrap_or_default();
            [it.local_rank.to_string(), it.gpu.to_string(), numa(it), cpus(it), nics(it), path]
        }));
        let columns: Vec<usize> =
            (0..6).map(|at| rows.iter().map(|it| width(&it[at])).max().unwrap_or(0)).collect();
        for (at, row) in rows.iter().enumerate() {
            let cells: Vec<String> =
                row.iter().zip(&columns).map(|(cell, room)| padded(cell, *room)).collect();
            let line = format!("  {}", cells.join("  "));
            let line = line.trim_end();
            let line = if at == 0 { style.paint(line, Ansi::new().dimmed()) } else { line.to_owned() };
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// NICs by name; where aws-ofi-nccl shows several as one device, all of them.
fn names(parts: BindParts<'_>, near: &[usize]) -> Vec<String> {
    let (all, seen) = (&parts.machine.nics, &parts.seen_by_nccl.nics);
    let mut names = Vec::new();
    for nic in near.iter().filter_map(|it| seen.get(*it)) {
        let begin = all.iter().position(|it| it.name == nic.name);
        let next =
            seen.get(nic.index as usize + 1).and_then(|next| all.iter().position(|it| it.name == next.name));
        let group = match begin {
            Some(begin) if all.len() > seen.len() => {
                all.get(begin..next.unwrap_or(all.len())).unwrap_or_default()
            }
            Some(begin) => all.get(begin..=begin).unwrap_or_default(),
            None => &[],
        };
        names.extend(group.iter().filter(|it| it.at == nic.at).map(|it| it.name.to_string()));
    }
    names
}

/// NICs cannot be pinned as CPUs are: NCCL distributes them over the ranks of a node itself.
///
/// With PXN a rank asks the process of another rank of its node for a NIC, by the index in that process's list (since 2.12; NCCL v2.28.9
/// src/graph/search.cc `ncclTopoGetNetDev`, src/transport/net.cc `sendSetup`): the lists must be equal.
fn about_nics(machine: &Machine, binding: &Binding) -> Vec<String> {
    let Some(first) = machine.nics.first() else { return Vec::new() };
    let mut texts = Vec::new();
    match first.kind {
        NicKind::Efa => {
            texts.push("for information: aws-ofi-nccl and NCCL choose the NIC of each rank.".to_owned());
        }
        NicKind::InfiniBand | NicKind::Roce | NicKind::Unknown => {
            texts.push(
                "for information: NCCL chooses the NIC of each rank. Do not set NCCL_IB_HCA per rank: with PXN ranks of a node name NICs to each other by index, so all need one list."
                    .to_owned(),
            );
            // Where the source does not name it, it is called NIC0 here.
            let named = first.name.strip_prefix("NIC").is_none_or(|it| it.parse::<u32>().is_err());
            if binding.ranks.len() > 1 && machine.nics.len() > 1 && named {
                texts.push(format!(
                    "UCX (MPI, NVSHMEM) takes one per rank: UCX_NET_DEVICES={}:1 for the first.",
                    clean(&first.name)
                ));
            }
        }
        NicKind::GpuDirectTcp | NicKind::Slingshot | NicKind::Ethernet => {
            texts.push("for information: NCCL chooses the NIC of each rank.".to_owned());
        }
    }
    texts
}
