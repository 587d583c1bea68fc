//! The text output of `plumb topo --decide`: one screen that says what matters; with `--verbose` every range and NCCL's own lines.

use std::io::{self, Write};

use anstyle::Style as Ansi;

use super::what_if::CROSSINGS;
use super::{Decide, Range, Ranges, Speed, Use, WhatIf};
use crate::Style;
use crate::text::{bytes, clean, counted, padded, width, wrap};
use crate::topo::words::number;

/// How many collectives the first screen shows.
const USUAL: usize = 3;
/// The width of labels.
const LABEL: usize = 14;
/// How many ways from node 0 to node 1 the first screen shows.
const WAYS: usize = 8;

/// Writes the answer.
pub fn text(decide: &Decide, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page { style: Style { width: style.width.clamp(40, 160), ..style } };
    page.head(decide, out)?;
    page.channels(decide, out)?;
    page.choices(decide, out)?;
    page.between(decide, out)?;
    page.settings(decide, out)?;
    if style.verbose {
        page.heading(&format!("what rank {} prints", decide.rank), out)?;
        return decide.lines.iter().try_for_each(|it| writeln!(out, "  {it}"));
    }
    let more = "-v shows all, --lines NCCL's own lines, --what-if NAME=VALUE what it changes";
    wrap(more, page.style.width).iter().try_for_each(|it| writeln!(out, "{}", page.style.paint(it, DIM)))
}

/// Writes what a rank prints, and nothing else.
pub fn lines(decide: &Decide, out: &mut impl Write) -> io::Result<()> {
    decide.lines.iter().try_for_each(|it| writeln!(out, "{it}"))
}

const DIM: Ansi = Ansi::new().dimmed();

pub(super) struct Page {
    pub(super) style: Style,
}

impl Page {
    pub(super) fn heading(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        self.bold(text, out)
    }

    pub(super) fn bold(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        wrap(text, self.style.width)
            .iter()
            .try_for_each(|it| writeln!(out, "{}", self.style.paint(it, Ansi::new().bold())))
    }

    pub(super) fn row(&self, name: &str, value: &str, out: &mut impl Write) -> io::Result<()> {
        let value = value.replace(" GB/s", "\u{a0}GB/s").replace(" KiB", "\u{a0}KiB");
        let value = value.replace(" MiB", "\u{a0}MiB").replace(" GiB", "\u{a0}GiB");
        let lines = wrap(&value, self.style.width.saturating_sub(LABEL + 3));
        for (at, line) in lines.iter().map(|it| it.replace('\u{a0}', " ")).enumerate() {
            let name = if at == 0 { name } else { "" };
            let label = padded(name, LABEL);
            let label = if name.is_empty() { label } else { self.style.paint(&label, DIM) };
            writeln!(out, "{}", format!("  {label} {line}").trim_end())?;
        }
        Ok(())
    }

    fn head(&self, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
        self.bold(&headline(decide), out)?;
        wrap(&about(decide), self.style.width).iter().try_for_each(|it| writeln!(out, "{it}"))?;
        if self.style.verbose {
            writeln!(out, "machine from {}", clean(&decide.source))?;
        }
        Ok(())
    }

    fn channels(&self, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
        let it = &decide.channels;
        writeln!(out)?;
        let mut text = format!("{}: {}", it.collectives, it.why.join(", "));
        if it.nvls > 0 {
            text.push_str(&format!("; NVLS {}", it.nvls));
        }
        self.row("channels", &text, out)?;
        let chunk = bytes(it.p2p_chunk);
        self.row(
            "send/recv",
            &format!(
                "{}, {} per peer, chunks of {chunk}",
                counted(it.p2p as usize, "channel"),
                it.p2p_per_peer
            ),
            out,
        )?;
        let Some(limit) = &decide.limit else { return Ok(()) };
        let place = if decide.nccl_nodes > 1 { "between nodes" } else { "inside the node" };
        let rings = format!(
            "{} x {} = {} GB/s each way {place}",
            counted(it.searched, "ring"),
            number(limit.channel),
            number(limit.rings)
        );
        self.row("rings", &rings, out)?;
        let used = |it: &Use| {
            let full = if fullness(it) > 0.99 { " (full)" } else { "" };
            format!("{}: {} of {} GB/s{full}", it.link, number(it.used), number(it.capacity))
        };
        let links: Vec<String> = limit.links.iter().map(used).collect();
        self.row("links used", &links.join("; "), out)
    }

    fn choices(&self, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
        if decide.choices.is_empty() {
            return Ok(());
        }
        self.heading("algorithm and protocol by size", out)?;
        let usual = if self.style.verbose || decide.choices.len() < 3 { decide.choices.len() } else { USUAL };
        for it in &decide.choices[..usual] {
            if self.style.verbose {
                every_range(it, out)?;
            } else {
                self.row(it.collective, &ranges(&it.ranges), out)?;
            }
        }
        let marked = decide.choices.iter().flat_map(|it| &it.ranges).any(|it| it.by_tuner);
        match &decide.tuner {
            Some(it) if it.decides && marked => {
                self.row("", "* by the tuner of aws-ofi-nccl; the rest by NCCL's model", out)
            }
            Some(it) if !it.decides => {
                let reason = it.reason.as_deref().unwrap_or("the tuner of aws-ofi-nccl does not decide");
                self.row("", &format!("by NCCL's model: {reason}"), out)
            }
            _ => Ok(()),
        }
    }

    fn between(&self, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
        if decide.between_nodes.is_empty() {
            return Ok(());
        }
        self.heading("rings from node 0 to node 1: sending rank -> receiving rank, NIC", out)?;
        let digits = |rank: fn(&super::Crossing) -> u32| {
            decide.between_nodes.iter().map(|it| rank(it).to_string().len()).max().unwrap_or(1)
        };
        let (from, to) = (digits(|it| it.from_rank), digits(|it| it.to_rank));
        let cell = |it: &super::Crossing| {
            let nics = if it.from_nic == it.to_nic {
                clean(&it.from_nic)
            } else {
                format!("{} to {}", clean(&it.from_nic), clean(&it.to_nic))
            };
            let by = it.by_rank.map(|it| format!(" (PXN: rank {it} sends)")).unwrap_or_default();
            let channels = if self.style.verbose {
                let all: Vec<String> = it.channels.iter().map(ToString::to_string).collect();
                format!("  channels {}", all.join(","))
            } else {
                String::new()
            };
            let nics = if self.style.verbose { padded(&nics, 16) } else { nics };
            format!("{:>from$} -> {:<to$}  {nics}{by}{channels}", it.from_rank, it.to_rank)
        };
        let cells: Vec<String> = decide.between_nodes.iter().map(cell).collect();
        let shown = if self.style.verbose { cells.len() } else { cells.len().min(WAYS) };
        let wide = cells[..shown].iter().map(|it| width(it)).max().unwrap_or(0);
        let columns = if self.style.verbose { 1 } else { ((self.style.width - 2) / (wide + 3)).clamp(1, 4) };
        for row in cells[..shown].chunks(columns) {
            let row: Vec<String> = row.iter().map(|it| padded(it, wide)).collect();
            writeln!(out, "{}", format!("  {}", row.join("   ")).trim_end())?;
        }
        match cells.len() - shown {
            0 => Ok(()),
            more => writeln!(out, "  and {more} more"),
        }
    }

    fn settings(&self, decide: &Decide, out: &mut impl Write) -> io::Result<()> {
        writeln!(out)?;
        let unheeded = |name: &String| decide.unheeded.iter().any(|it| it.name == *name);
        let set = decide.environment.iter().filter(|it| !unheeded(it.0));
        let set: Vec<String> = set.map(|it| format!("{}={}", clean(it.0), clean(it.1))).collect();
        if !set.is_empty() {
            self.row("set", &set.join(", "), out)?;
        }
        for it in &decide.unheeded {
            self.row(
                if it.not_modelled { "not modelled" } else { "no effect here" },
                &clean(&it.reason),
                out,
            )?;
        }
        let by_plugin: Vec<String> =
            decide.set_by_plugin.iter().map(|it| format!("{}={}", it.name, it.value)).collect();
        match by_plugin.as_slice() {
            [] => {}
            [first, rest @ ..] if rest.len() > 1 && !self.style.verbose => {
                self.row("plugin sets", &format!("{first} and {} more", rest.len()), out)?;
            }
            all => self.row("plugin sets", &all.join(", "), out)?,
        }
        decide.notes.iter().try_for_each(|it| self.row("note", &clean(it), out))
    }
}

/// What the answer begins with.
pub(crate) fn headline(decide: &Decide) -> String {
    let machines = machines(decide);
    let collectives = counted(decide.channels.collectives, "channel");
    let limit = match decide.limit.as_ref().and_then(|it| it.links.first()) {
        Some(it) if fullness(it) > 0.84 => format!(", limited by {}", it.link),
        _ => String::new(),
    };
    format!("{machines}: {collectives}{limit}")
}

/// Release, ranks, nodes and network.
pub(crate) fn about(decide: &Decide) -> String {
    let ranks = counted(usize::try_from(decide.ranks).unwrap_or(usize::MAX), "rank");
    let nodes = match decide.nccl_nodes {
        1 if decide.nodes > 1 => {
            format!(" on {} machines, one node to NCCL (NVLink domain)", decide.nodes)
        }
        1 => " on one node".to_owned(),
        n if n < decide.nodes as usize => {
            format!(" on {} machines, {n} nodes to NCCL (NVLink domains)", decide.nodes)
        }
        n if n == decide.nodes as usize => format!(" on {n} nodes"),
        n => format!(" on what NCCL counts as {n} nodes"),
    };
    let network = match (decide.network, &decide.plugin) {
        (Some(name), Some(plugin)) => format!(", {name} by aws-ofi-nccl {plugin}"),
        (Some(name), None) => format!(", network {name}"),
        (None, _) => String::new(),
    };
    format!("NCCL {}, {ranks}{nodes}{network}", decide.nccl)
}

/// What settings change, in a sentence.
pub(crate) fn what_if_headline(it: &WhatIf) -> String {
    let settings = clean(&it.settings.join(" "));
    match (&it.refused, it.changes.len()) {
        (Some(_), _) => format!("NCCL would not run with {settings}"),
        (None, 0) if !it.not_modelled.is_empty() => format!("plumb does not know what {settings} changes"),
        (None, 0) => format!("{settings} changes nothing"),
        (None, 1) => format!("{settings} changes one thing"),
        (None, n) => format!("{settings} changes {n} things"),
    }
}

/// Writes what `--what-if` changes.
pub fn what_if_text(decide: &Decide, style: Style, out: &mut impl Write) -> io::Result<()> {
    let page = Page { style: Style { width: style.width.clamp(40, 160), ..style } };
    let Some(it) = &decide.what_if else { return Ok(()) };
    page.bold(&what_if_headline(it), out)?;
    let about = format!("{}, NCCL {}, {} ranks", machines(decide), decide.nccl, decide.ranks);
    wrap(&about, page.style.width).iter().try_for_each(|it| writeln!(out, "{it}"))?;
    writeln!(out)?;
    if let Some(reason) = &it.refused {
        page.row("reason", &clean(reason), out)?;
    }
    for change in &it.changes {
        if change.before.is_empty() {
            page.row(&change.what, &clean(&change.after), out)?;
            continue;
        }
        // A pair of ranks and its NIC stay on one line.
        let whole = |text: &str| match &*change.what {
            CROSSINGS => clean(text).replace(' ', "\u{a0}").replace(",\u{a0}", ", "),
            _ => clean(text),
        };
        page.row(&change.what, &format!("now   {}", whole(&change.before)), out)?;
        page.row("", &format!("then  {}", whole(&change.after)), out)?;
    }
    let speeds = |value: fn(&Speed) -> f64| {
        let all = it.expected.iter();
        let all: Vec<String> =
            all.map(|it| format!("{} GB/s at {}", number(value(it)), bytes(it.bytes))).collect();
        all.join(", ")
    };
    if let Some(first) = it.expected.first() {
        let (before, after) = (speeds(|it| it.before), speeds(|it| it.after));
        if before == after {
            page.row("expected", &format!("no difference: {} {before}", first.collective), out)?;
        } else {
            page.row("expected", &format!("now   {} {before}", first.collective), out)?;
            page.row("", &format!("then  {} {after}", first.collective), out)?;
        }
    }
    let label = if it.not_modelled.is_empty() { "no effect here" } else { "not modelled" };
    it.unheeded.iter().try_for_each(|it| page.row(label, &clean(it), out))
}

/// `4 x p5.48xlarge`
fn machines(decide: &Decide) -> String {
    match decide.nodes {
        1 => clean(&decide.machine),
        nodes => format!("{nodes} x {}", clean(&decide.machine)),
    }
}

/// One row for each range of sizes.
fn every_range(it: &Ranges, out: &mut impl Write) -> io::Result<()> {
    for (at, range) in it.ranges.iter().enumerate() {
        let sizes = match range.to {
            Some(to) => format!("{} to {}", size(range.from), size(to)),
            None => format!("from {}", size(range.from)),
        };
        let [first, last] = range.channels;
        let channels = if first == last { first.to_string() } else { format!("{first} to {last}") };
        let by = if range.by_tuner { ", by the tuner" } else { "" };
        let kind = format!("{} {}", range.algorithm, range.protocol);
        let text = format!("{sizes:<26}{kind:<18}channels {channels}{by}");
        // Columns are kept: these rows are not wrapped.
        let label = padded(if at == 0 { it.collective } else { "" }, LABEL);
        writeln!(out, "  {label} {text}")?;
    }
    Ok(())
}

pub(crate) fn fullness(it: &Use) -> f64 {
    it.used / it.capacity
}

/// `Tree LL to 96 KiB, Ring Simple above`.
pub(super) fn ranges(all: &[Range]) -> String {
    let part = |some: &[Range]| {
        let mut kinds: Vec<String> = Vec::new();
        for it in some {
            let mark = if it.by_tuner { "*" } else { "" };
            let kind = format!("{} {}{mark}", it.algorithm, it.protocol).replace(' ', "\u{a0}");
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let kinds = kinds.join(" or ");
        match some.last().and_then(|it| it.to) {
            Some(to) => format!("{kinds} to {}", size(to)),
            None if all.len() == 1 => format!("{kinds} for every size"),
            None => format!("{kinds} above"),
        }
    };
    runs(all).into_iter().map(part).collect::<Vec<_>>().join(", ")
}

/// The ranges, those together between which NCCL changes to and fro: it corrects the bandwidth of trees by powers of two of the size
/// (`treeCorrectionFactor` in `src/graph/tuning.cc`), so that two algorithms take turns where they are as fast.
fn runs(all: &[Range]) -> Vec<&[Range]> {
    let is_short = |it: &Range| it.to.is_some_and(|to| it.from > 1 && to < it.from.saturating_mul(2));
    all.chunk_by(|one, next| is_short(one) && is_short(next)).collect()
}

/// A size with two digits: `96 KiB`, `9.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let (shift, unit) = match bytes {
        it if it >= 1 << 30 => (30, "GiB"),
        it if it >= 1 << 20 => (20, "MiB"),
        it if it >= 1 << 10 => (10, "KiB"),
        it => return format!("{it} B"),
    };
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let value = bytes as f64 / (1_u64 << shift) as f64;
    let text = if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{} {unit}", text.trim_end_matches(".0"))
}

#[cfg(test)]
mod tests {
    use super::{Range, ranges, size};

    #[test]
    fn ranges_that_alternate_are_one() {
        let range = |from, to, algorithm| Range {
            from,
            to,
            algorithm,
            protocol: "Simple",
            channels: [1, 1],
            by_tuner: false,
        };
        let (tree, ring) = ("Tree", "Ring");
        let mib = |it: u64| it << 20;
        let all = [
            range(1, Some(mib(10)), tree),
            range(mib(10), Some(mib(12)), ring),
            range(mib(12), Some(mib(15)), tree),
            range(mib(15), Some(mib(16)), ring),
            range(mib(16), Some(mib(128)), tree),
            range(mib(128), Some(mib(129)), ring),
            range(mib(129), None, tree),
        ];
        let text = ranges(&all).replace('\u{a0}', " ");
        let want = "Tree Simple to 10 MiB, Ring Simple or Tree Simple to 16 MiB, Tree Simple to 128 MiB, \
                    Ring Simple to 129 MiB, Tree Simple above";
        assert_eq!(text, want);
        assert_eq!(ranges(&all[..1]).replace('\u{a0}', " "), "Tree Simple to 10 MiB");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (98_304, "96 KiB"),
            (9_856_614, "9.4 MiB"),
            ((1 << 20) - 1, "1024 KiB"),
            (16 << 30, "16 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
