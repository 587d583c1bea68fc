//! The ranks, and the paths between them.

use std::io::{self, Write};

use anstyle::Style as Ansi;

use super::{Page, clean, counted, wrap};
use crate::{Communicator, Doctor, picture};

/// How many communicators are shown one by one.
const COMMUNICATORS: usize = 6;
/// How many ranks are shown one by one.
const RANKS: usize = 8;
/// How many pairs of nodes are shown of one communicator.
const NODE_PAIRS: usize = 8;

impl Page {
    /// Host, process and GPU of each rank; all of them with `--verbose`.
    pub(super) fn ranks(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let all = &doctor.facts.ranks;
        if all.is_empty() {
            return Ok(());
        }
        let shown = if self.style.verbose { all.len() } else { all.len().min(RANKS) };
        writeln!(out)?;
        writeln!(out, "{}", self.style.paint("ranks", Ansi::new().bold()))?;
        for it in all.iter().take(shown) {
            let number = |it: Option<u32>| it.map_or("-".to_owned(), |it| it.to_string());
            let bus = it.bus_id.as_deref().unwrap_or("-");
            let state = if it.complete { "" } else { "   setup not completed" };
            if it.cuda_device.is_none() && it.bus_id.is_none() {
                writeln!(out, "  {:>5}  {:<28} pid {}{state}", it.rank, clean(&it.host), it.pid)?;
                continue;
            }
            writeln!(
                out,
                "  {:>5}  {:<28} pid {:<8} CUDA device {:<3} NVML {:<3} PCI {bus}{state}",
                it.rank,
                clean(&it.host),
                it.pid,
                number(it.cuda_device),
                number(it.nvml_device),
            )?;
        }
        if all.len() > shown {
            writeln!(out, "  and {} (--verbose shows them)", counted(all.len() - shown, "more rank"))?;
        }
        Ok(())
    }

    pub(super) fn paths(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let all = &doctor.facts.communicators;
        let shown: Vec<&Communicator> = all
            .iter()
            .filter(|it| !it.paths_by_kind.is_empty() || !it.rings.is_empty())
            .take(COMMUNICATORS)
            .collect();
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{}", self.style.paint("paths", Ansi::new().bold()))?;
        for communicator in &shown {
            self.communicator(communicator, out)?;
        }
        if all.len() > shown.len() {
            writeln!(
                out,
                "  and {} (all of them: --format json)",
                counted(all.len() - shown.len(), "more communicator")
            )?;
        }
        Ok(())
    }

    fn communicator(&self, it: &Communicator, out: &mut impl Write) -> io::Result<()> {
        let mut head = format!("communicator {}", it.name);
        if let Some(ranks) = it.ranks {
            head.push_str(&format!(": {}", counted(ranks as usize, "rank")));
        }
        if let Some(nodes) = it.nodes {
            head.push_str(&format!(", {}", counted(nodes as usize, "node")));
        }
        if let Some(channels) = it.channels {
            head.push_str(&format!(", {}", counted(channels as usize, "channel")));
        }
        if let Some(network) = &it.network {
            head.push_str(&format!(", network {network}"));
        }
        if it.connections_guessed {
            head.push_str("   (connections do not name their communicator: this is the most likely one)");
        }
        for (i, line) in wrap(&head, self.style.width - 4).iter().enumerate() {
            writeln!(out, "  {}{line}", if i == 0 { "" } else { "  " })?;
        }
        for pair in it.paths_by_nodes.iter().take(NODE_PAIRS) {
            let ways: Vec<String> = pair
                .ways
                .iter()
                .map(|(way, n)| format!("{way} ({})", counted(*n as usize, "pair")))
                .collect();
            let nodes = if pair.from == pair.to {
                format!("inside {}", pair.from)
            } else {
                format!("{} -> {}", pair.from, pair.to)
            };
            writeln!(out, "    {:<44} {}", clean(&nodes), clean(&ways.join(", ")))?;
        }
        if it.paths_by_nodes.len() > NODE_PAIRS {
            writeln!(out, "    and {} more pairs of nodes", it.paths_by_nodes.len() - NODE_PAIRS)?;
        }
        if let Some(edges) = &it.paths {
            for edge in edges {
                writeln!(
                    out,
                    "      {:>4} -> {:<4} {} ({})",
                    edge.from,
                    edge.to,
                    clean(&edge.way),
                    counted(edge.channels as usize, "channel")
                )?;
            }
        }
        for line in picture::rings(&it.rings, self.style.width - 6)
            .into_iter()
            .chain(picture::trees(&it.trees, self.style.width - 6))
        {
            writeln!(out, "    {line}")?;
        }
        Ok(())
    }
}
