//! The text output of `plumb topo`.
//!
//! The machine, its wiring, the paths, the NIC of each GPU, what NCCL would use, the normal bandwidth, and what is not known. Everything
//! is understandable without colour.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style as Ansi};

use super::words::{bandwidth, between, names, number, shared, some_names, time};
use super::{Topo, TopoGraph, TopoJob, TopoNode, TopoNormal, TopoOverlay, drawing, matrix, tree};
use crate::Style;
use crate::expect::shown;
use crate::text::{bytes, clean, counted, cut, padded, width, wrap};

/// How many kinds of connections are shown one by one.
const TRANSPORTS: usize = 12;
/// How many orders of GPUs are shown of one algorithm.
const ORDERS: usize = 4;
/// How many places of a ring are shown.
const PLACES: usize = 64;

/// Names of NICs are cut to this.
const NAME: usize = 40;

/// Writes the answer.
pub fn text(topo: &Topo, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page { style: Style { width: style.width.clamp(40, 160), ..style } };
    page.head(topo, out)?;
    page.drawing(topo, out)?;
    page.paths(topo, out)?;
    page.nics(topo, out)?;
    if let Some(job) = &topo.job {
        page.job(job, out)?;
    }
    page.graphs(&topo.graphs, out)?;
    if let Some(overlay) = topo.overlay.as_ref().filter(|it| !it.edges.is_empty()) {
        page.overlay(topo, overlay, out)?;
    }
    page.normal(&topo.normal, topo.job.as_ref().map(|it| it.nccl.as_str()), out)?;
    page.notes(topo, out)
}

struct Page {
    style: Style,
}

impl Page {
    fn heading(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        for line in wrap(text, self.style.width) {
            writeln!(out, "{}", self.style.paint(&line, Ansi::new().bold()))?;
        }
        Ok(())
    }

    /// A label and a text that may need several lines.
    fn row(&self, name: &str, room: usize, value: &str, ansi: Ansi, out: &mut impl Write) -> io::Result<()> {
        // A long label is on a line of its own.
        let alone = width(name) > room;
        if alone {
            let name = cut(name, self.style.width.saturating_sub(2));
            writeln!(out, "  {}", self.style.paint(&name, ansi))?;
        }
        // A number stays with its unit.
        let value = value.replace(" GB/s", "\u{a0}GB/s").replace(" Gbps", "\u{a0}Gbps");
        let lines = wrap(&value, self.style.width.saturating_sub(room + 3));
        for (at, line) in lines.iter().map(|it| it.replace('\u{a0}', " ")).enumerate() {
            let name = if at == 0 && !alone { name } else { "" };
            let painted =
                if name.is_empty() { " ".repeat(room) } else { self.style.paint(&padded(name, room), ansi) };
            writeln!(out, "{}", format!("  {painted} {line}").trim_end())?;
        }
        Ok(())
    }

    fn fact(&self, name: &str, value: &str, out: &mut impl Write) -> io::Result<()> {
        self.row(name, 8, value, Ansi::new().dimmed(), out)
    }

    fn head(&self, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
        let name = topo.name.as_deref().map(clean).filter(|it| !it.is_empty());
        let head = match &name {
            Some(it) => format!("{it}: {}", topo.summary),
            None => topo.summary.clone(),
        };
        for line in wrap(&head, self.style.width) {
            writeln!(out, "{}", self.style.paint(&line, Ansi::new().bold()))?;
        }
        if !topo.conflicts.is_empty() {
            writeln!(out)?;
        }
        for it in &topo.conflicts {
            self.row("conflict", 8, it, Ansi::new().fg_color(Some(AnsiColor::Yellow.into())), out)?;
        }
        if topo.source.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.fact("from", &topo.source, out)
    }

    fn drawing(&self, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
        let lines = drawing::drawing(topo, self.style.width - 2, self.style.verbose);
        if !lines.is_empty() {
            writeln!(out)?;
        }
        for line in lines {
            writeln!(out, "  {line}")?;
        }
        let facts = [("NVLink", nvlink(topo)), ("PCIe", pcie(topo)), ("NICs", networks(topo))];
        if facts.iter().any(|it| it.1.is_some()) {
            writeln!(out)?;
        }
        for (name, value) in facts {
            if let Some(value) = value {
                self.fact(name, &value, out)?;
            }
        }
        Ok(())
    }

    fn paths(&self, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
        let lines = matrix::matrix(topo, self.style.width - 2);
        if lines.is_empty() {
            return Ok(());
        }
        self.heading("paths, as NCCL names them", out)?;
        for line in lines {
            let end = line.iter().rposition(|it| !it.0.trim().is_empty()).map_or(0, |it| it + 1);
            let mut text = "  ".to_owned();
            for (at, (piece, ansi)) in line[..end].iter().enumerate() {
                let word = piece.trim();
                let piece = if at + 1 == end { piece.trim_end() } else { piece };
                let painted =
                    if *ansi == Ansi::new() { word.to_owned() } else { self.style.paint(word, *ansi) };
                text.push_str(&piece.replacen(word, &painted, usize::from(!word.is_empty())));
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        writeln!(out)?;
        for it in matrix::meanings(topo) {
            self.row(it.kind.name(), 4, &it.text, matrix::colour(it.kind), out)?;
        }
        Ok(())
    }

    fn nics(&self, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
        let mut groups: Vec<(Vec<&str>, &super::TopoNicUse)> = Vec::new();
        for it in &topo.nics {
            let alike =
                |known: &super::TopoNicUse| super::TopoNicUse { gpu: it.gpu.clone(), ..known.clone() } == *it;
            match groups.iter_mut().find(|known| alike(known.1)) {
                Some(known) => known.0.push(&it.gpu),
                None => groups.push((vec![&it.gpu], it)),
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        groups.sort_by_key(|it| it.0.first().map(|it| matrix::by_number(it)));
        self.heading("the NIC of each GPU", out)?;
        let gpus: Vec<String> = groups.iter().map(|it| names(&it.0)).collect();
        let room = gpus.iter().map(|it| width(it)).max().unwrap_or(0).min(16);
        let nics = |it: &super::TopoNicUse| {
            let list: Vec<String> = it.nics.iter().map(|it| cut(it, NAME)).collect();
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            if list.is_empty() { "none".to_owned() } else { some_names(&list, 4) }
        };
        let wide = groups.iter().map(|it| width(&nics(it.1))).max().unwrap_or(0).min(24);
        for (name, (_, it)) in gpus.iter().zip(&groups) {
            let mut about = Vec::new();
            about.extend(Some(clean(&it.path)).filter(|it| !it.is_empty()));
            about.push(if it.gpudirect { "GPUDirect" } else { "no GPUDirect" }.to_owned());
            about.extend(shared(it.shared_by));
            let each = match it.share.map(bandwidth) {
                Some(share) if it.shared_by > 1 => format!(": {share} each"),
                Some(share) => format!(", {share}"),
                None => String::new(),
            };
            let list = nics(it);
            let text = if it.nics.is_empty() {
                list
            } else {
                format!("{}  {}{each}", padded(&list, wide), about.join(", "))
            };
            self.row(name, room + 1, &text, Ansi::new().bold(), out)?;
        }
        Ok(())
    }

    fn job(&self, job: &TopoJob, out: &mut impl Write) -> io::Result<()> {
        // A single rank has no peer.
        if job.transports.is_empty() {
            return Ok(());
        }
        let what = if job.nodes_may_share_machines { "node" } else { "machine" };
        let machines = counted(job.nodes as usize, what);
        let each = if job.nodes == 1 { "" } else { " on each" };
        let count = |it: &str| it.parse::<usize>().ok();
        let pods = match job.pods.split_once('x').map(|(pods, gpus)| (count(pods), count(gpus))) {
            Some((Some(pods), Some(gpus))) => {
                format!("{} of {}{each}", counted(pods, "pod"), counted(gpus, "GPU"))
            }
            _ => clean(&job.pods),
        };
        self.heading(&format!("what NCCL {} would use on {machines}, {pods}", clean(&job.nccl)), out)?;
        let room = job.transports.iter().map(|it| width(between(it.between))).max().unwrap_or(0).min(26);
        for it in job.transports.iter().take(TRANSPORTS) {
            let (a, b) = it.example;
            let pairs = match it.pairs {
                1 => format!("ranks {a} and {b}"),
                n => format!("{n} pairs, for example ranks {a} and {b}"),
            };
            let text = format!("{}   ({pairs})\n{}", it.transport, it.reason);
            // To the right if there is room for a sentence, otherwise below.
            if self.style.width >= room + 40 {
                self.row(between(it.between), room + 1, &text, Ansi::new(), out)?;
            } else {
                self.row(between(it.between), 2, &text, Ansi::new(), out)?;
            }
        }
        if job.transports.len() > TRANSPORTS {
            writeln!(out, "  and {} more (all of them: --format json)", job.transports.len() - TRANSPORTS)?;
        }
        Ok(())
    }

    /// What NCCL's search found: channels, what each gets, and the order of GPUs.
    fn graphs(&self, graphs: &[TopoGraph], out: &mut impl Write) -> io::Result<()> {
        if graphs.is_empty() {
            return Ok(());
        }
        self.heading("what NCCL's search found, before channels are doubled", out)?;
        for it in graphs {
            let text = format!(
                "{} of {} inside ({}), {} between machines (NIC at {})",
                counted(it.channels as usize, "channel"),
                bandwidth(it.inside),
                clean(&it.path_inside),
                bandwidth(it.between),
                clean(&it.path_to_nic)
            );
            self.row(&clean(&it.name), 15, &text, Ansi::new().bold(), out)?;
            for order in it.orders.iter().take(ORDERS) {
                let channels = match order.channels.as_slice() {
                    [one] => one.to_string(),
                    [first, .., last] if (last - first) as usize + 1 == order.channels.len() => {
                        format!("{first}-{last}")
                    }
                    many => many.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
                };
                let steps: Vec<String> = order.steps.iter().map(|it| clean(it)).collect();
                self.row("", 15, &format!("{channels}: {}", steps.join(" > ")), Ansi::new(), out)?;
            }
            if it.orders.len() > ORDERS {
                self.row(
                    "",
                    15,
                    &format!("and {} more orders (--format json)", it.orders.len() - ORDERS),
                    Ansi::new(),
                    out,
                )?;
            }
        }
        Ok(())
    }

    /// The ring or tree in words: where it goes, machine by machine.
    fn overlay(&self, topo: &Topo, overlay: &TopoOverlay, out: &mut impl Write) -> io::Result<()> {
        let machines = counted(overlay.nodes as usize, "machine");
        self.heading(&format!("{} over {machines}", clean(&overlay.name)), out)?;
        let gpus = tree::gpus(topo);
        let place = |(machine, gpu): (u32, u32)| {
            let name = gpus.get(gpu as usize).map_or_else(|| format!("GPU{gpu}"), |it| clean(it));
            if overlay.nodes > 1 { format!("{machine}:{name}") } else { name }
        };
        let mut text = String::new();
        let mut at = None;
        for edge in overlay.edges.iter().take(PLACES) {
            if at != Some(edge.from) {
                let begin = if text.is_empty() { "" } else { "\n" };
                text.push_str(&format!("{begin}{}", place(edge.from)));
            }
            let family = edge.family.name();
            let way = match &edge.nic {
                Some(nic) => format!("{family} {}", cut(nic, NAME)),
                None => family.to_owned(),
            };
            text.push_str(&format!(" -{}-> {}", clean(&way).replace(' ', "\u{a0}"), place(edge.to)));
            at = Some(edge.to);
        }
        if overlay.edges.len() > PLACES {
            text.push_str(&format!("\nand {} more", overlay.edges.len() - PLACES));
        }
        for line in wrap(&text, self.style.width - 2) {
            writeln!(out, "  {}", line.replace('\u{a0}', " "))?;
        }
        Ok(())
    }

    fn normal(&self, all: &[TopoNormal], nccl: Option<&str>, out: &mut impl Write) -> io::Result<()> {
        let mut rest = all;
        while let Some(first) = rest.first() {
            let (now, later) =
                rest.split_at(rest.iter().take_while(|it| it.collective == first.collective).count());
            self.table(&first.collective, nccl, now, out)?;
            rest = later;
        }
        Ok(())
    }

    fn table(
        &self,
        collective: &str,
        nccl: Option<&str>,
        rows: &[TopoNormal],
        out: &mut impl Write,
    ) -> io::Result<()> {
        let release = nccl.map(|it| format!(" with NCCL {}", clean(it))).unwrap_or_default();
        self.heading(&format!("normal {}{release}: bus bandwidth in GB/s", clean(collective)), out)?;
        // If there is no room, leave out the time, which follows from size and bandwidth.
        let timed = self.style.width >= 50;
        let columns = |size: &str, [low, expected, high]: [&str; 3], time: &str| {
            let time = if timed { format!(" {time:>9}") } else { String::new() };
            format!("{size:>9} {low:>7} {expected:>9} {high:>7}{time}")
        };
        let head = columns("size", ["low", "expected", "high"], "time");
        let room = self.style.width.saturating_sub(width(&head) + 5);
        let beside = room >= 24;
        let title = if beside { "   algorithm: limit" } else { "" };
        writeln!(out, "  {}", self.style.paint(&format!("{head}{title}"), Ansi::new().dimmed()))?;
        let mut before = String::new();
        for it in rows {
            let [low, expected, high] = [it.low, it.expected, it.high].map(shown);
            let line = columns(&bytes(it.bytes), [&low, &expected, &high], &time(it.time_us));
            // A limit applies to all rows until the next one.
            let ceiling = format!("{}: {}", it.algorithm, it.ceiling);
            if ceiling == before {
                writeln!(out, "  {line}")?;
                continue;
            }
            if beside {
                for (at, text) in wrap(&ceiling, room).iter().enumerate() {
                    let line = if at == 0 { line.clone() } else { " ".repeat(width(&line)) };
                    writeln!(out, "{}", format!("  {line}   {text}").trim_end())?;
                }
            } else {
                writeln!(out, "  {line}")?;
                for text in wrap(&ceiling, self.style.width - 14) {
                    writeln!(out, "            {text}")?;
                }
            }
            before = ceiling;
        }
        Ok(())
    }

    fn notes(&self, topo: &Topo, out: &mut impl Write) -> io::Result<()> {
        let notes = || topo.notes.iter().filter(|it| !topo.conflicts.contains(it));
        if notes().next().is_some() {
            writeln!(out)?;
        }
        let note = Ansi::new().fg_color(Some(AnsiColor::Cyan.into()));
        for it in notes() {
            self.row("note", 8, it, note, out)?;
        }
        if topo.unknown.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        writeln!(out, "not known:")?;
        for it in &topo.unknown {
            for (at, line) in wrap(it, self.style.width - 4).iter().enumerate() {
                writeln!(out, "  {} {line}", if at == 0 { "-" } else { " " })?;
            }
        }
        Ok(())
    }
}

/// `all 8 GPUs connected by NVSwitch, 18 links each; NCCL assumes 371 GB/s one way`, or the pairs.
pub(crate) fn nvlink(topo: &Topo) -> Option<String> {
    let gpus = tree::gpus(topo).len();
    if let Some(it) = &topo.nvswitch {
        let speed =
            it.bandwidth.map(|it| format!("; NCCL assumes {} one way", bandwidth(it))).unwrap_or_default();
        let links = counted(it.links as usize, "link");
        return Some(format!("all {gpus} GPUs connected by NVSwitch, {links} each{speed}"));
    }
    if topo.nvlink_is_hidden && topo.nvlinks.is_empty() {
        return Some("not shown by this source".to_owned());
    }
    if topo.nvlinks.is_empty() {
        return (gpus > 1).then(|| "none between the GPUs".to_owned());
    }
    let mut kinds: BTreeMap<std::cmp::Reverse<u32>, Vec<&super::TopoNvlink>> = BTreeMap::new();
    topo.nvlinks.iter().for_each(|it| kinds.entry(std::cmp::Reverse(it.count)).or_default().push(it));
    let lines = kinds.into_iter().map(|(count, links)| {
        let speed = links[0].bandwidth.map(|it| format!(", {} one way", bandwidth(it))).unwrap_or_default();
        let pairs: Vec<String> =
            links.iter().map(|it| format!("{}-{}", clean(&it.from), clean(&it.to))).collect();
        format!("{}{speed}: {}", counted(count.0 as usize, "link"), pairs.join(", "))
    });
    Some(lines.collect::<Vec<String>>().join("\n"))
}

/// The most common value, and the exceptions.
pub(crate) fn pcie(topo: &Topo) -> Option<String> {
    let mut kinds: BTreeMap<(usize, &str), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for it in topo.sockets.iter().flat_map(tree::items) {
        let kind = match it.node {
            TopoNode::Gpu { .. } => (0, "GPUs"),
            TopoNode::Nic { .. } => (1, "NICs"),
            TopoNode::Switch { .. } => (2, "switches"),
        };
        if let Some(link) = tree::link(it.node) {
            let name = tree::name(it.node).unwrap_or("a switch");
            kinds.entry(kind).or_default().entry(link).or_default().push(name);
        }
    }
    let mut parts = Vec::new();
    for ((_, what), links) in kinds {
        let Some(usual) = links.iter().max_by_key(|it| it.1.len()).map(|it| *it.0) else { continue };
        let others = links.iter().filter(|it| *it.0 != usual);
        let others: Vec<String> =
            others.map(|(link, who)| format!("{} on {}", clean(link), some_names(who, 4))).collect();
        let but = if others.is_empty() { String::new() } else { format!(" (but {})", others.join(", ")) };
        parts.push(format!("{what} {}{but}", clean(usual)));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `4 x 100 Gbps EFA with GPUDirect`.
pub(crate) fn networks(topo: &Topo) -> Option<String> {
    let mut kinds: Vec<(String, u64)> = Vec::new();
    let devices = tree::devices(topo);
    for node in &devices {
        let TopoNode::Nic { rate, network, gpudirect, rail, .. } = node else { continue };
        let mut words = Vec::new();
        words.extend(rate.map(|it| format!("{} Gbps", number(it))));
        words.extend(network.as_deref().map(clean));
        words.extend(gpudirect.map(|it| if it { "with GPUDirect" } else { "without GPUDirect" }.to_owned()));
        let words = words.join(" ");
        let count = u64::from((*rail).max(1));
        match kinds.iter_mut().find(|it| it.0 == words) {
            Some(known) => known.1 += count,
            None => kinds.push((words, count)),
        }
    }
    if kinds.is_empty() {
        return (!devices.is_empty()).then(|| "none seen".to_owned());
    }
    let parts = kinds.into_iter().map(|(words, count)| {
        if words.is_empty() {
            counted(usize::try_from(count).unwrap_or(usize::MAX), "NIC")
        } else {
            format!("{count} x {words}")
        }
    });
    Some(parts.collect::<Vec<String>>().join(", "))
}
