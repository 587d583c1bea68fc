//! The ranks, and the paths between them.

use std::io::{self, Write};

use anstyle::Style as Ansi;

use super::{Page, clean, counted, padded, width, wrap};
use crate::{Communicator, Doctor, NodePair, picture};

/// How many communicators are shown one by one.
const COMMUNICATORS: usize = 6;
/// How many pairs of nodes are shown of one communicator.
const NODE_PAIRS: usize = 8;

impl Page {
    /// Host, process and GPU of each rank.
    pub(super) fn ranks(&self, doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
        let all = &doctor.facts.ranks;
        if all.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "{}", self.style.paint("ranks", Ansi::new().bold()))?;
        let longest = |text: fn(&crate::Rank) -> usize| all.iter().map(text).max().unwrap_or_default();
        let host_room = longest(|it| width(&clean(&it.host))).min(self.style.width / 2);
        let pid_room = longest(|it| it.pid.to_string().len());
        let number = |it: Option<u32>| it.map_or("-".to_owned(), |it| it.to_string());
        for it in all {
            let head = format!("  {:>5}  {}", it.rank, padded(&clean(&it.host), host_room));
            let mut parts = vec![format!("pid {:<pid_room$}", it.pid)];
            if it.cuda_device.is_some() || it.bus_id.is_some() {
                parts.push(format!("CUDA {:<2}", number(it.cuda_device)));
                parts.push(format!("NVML {:<2}", number(it.nvml_device)));
                parts.push(format!("PCI {:<6}", it.bus_id.as_deref().unwrap_or("-")));
            }
            if !it.complete {
                parts.push("setup not completed".to_owned());
            }
            // What does not fit beside the host stands below it.
            let mut line = head;
            for part in parts {
                if width(&line) + 2 + width(part.trim_end()) > self.style.width {
                    writeln!(out, "{}", line.trim_end())?;
                    line = " ".repeat(7);
                }
                line.push_str("  ");
                line.push_str(&part);
            }
            writeln!(out, "{}", line.trim_end())?;
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
        let label = |pair: &NodePair| {
            clean(&if pair.from == pair.to {
                format!("inside {}", pair.from)
            } else {
                format!("{} -> {}", pair.from, pair.to)
            })
        };
        let shown = || it.paths_by_nodes.iter().take(NODE_PAIRS);
        let column = shown().map(|it| width(&label(it))).max().unwrap_or_default().min(44);
        for pair in shown() {
            let ways: Vec<String> = pair
                .ways
                .iter()
                .map(|(way, n)| format!("{way} ({})", counted(*n as usize, "pair")))
                .collect();
            let (nodes, ways) = (label(pair), clean(&ways.join(", ")));
            let line = format!("    {} {ways}", padded(&nodes, column + 1));
            if width(&line) <= self.style.width {
                writeln!(out, "{line}")?;
                continue;
            }
            writeln!(out, "    {nodes}")?;
            for line in wrap(&ways, self.style.width - 8) {
                writeln!(out, "        {line}")?;
            }
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
