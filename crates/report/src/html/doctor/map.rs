//! The nodes of the job, as NCCL counts them, and the paths NCCL uses: through which devices data goes, and at which share of the rate
//! that these machines allow.

use std::collections::{BTreeMap, BTreeSet};

use rules::Extent;

use super::trouble::{Trouble, Troubles};
use crate::expect::shown;
use crate::html::parts::{self, Cell, Column};
use crate::html::{Html, Picture};
use crate::text::counted;
use crate::topo::svg::canvas::{Canvas, Rect, in_two, length};
use crate::{Communicator, Cost, Doctor, Finding};

const STYLE: &str = include_str!("map.css");
/// Machines that are drawn.
const MACHINES: usize = 4;
/// GPUs of a machine that are drawn.
const GPUS: usize = 8;
/// What is written in a node of which no rank has a line.
const UNSEEN: &str = "not seen in this input";
/// The same in a node whose lines name no rank.
const RANKS_UNKNOWN: &str = "ranks not known";
/// The node of ranks that no line places.
const NOWHERE: &str = "node not known";
const WIDE: f64 = 236.0;
const GAP: f64 = 28.0;
const MARGIN: f64 = 12.0;

/// The finding that makes paths of this kind slowest, with how many times slower they are.
fn slowest(doctor: &Doctor, extent: Extent) -> Option<(&Finding, Cost)> {
    let costs = doctor.findings.iter().filter_map(|it| Some((it, it.cost?)));
    costs.filter(|it| it.1.paths == Some(extent)).max_by(|one, other| one.1.factor.total_cmp(&other.1.factor))
}

/// What a share of the rate is measured by.
fn share(doctor: &Doctor, extent: Extent) -> Option<String> {
    let (finding, cost) = slowest(doctor, extent)?;
    let name = match extent {
        Extent::InsideNodes => "Inside nodes",
        Extent::BetweenNodes => "Between nodes",
    };
    let rates = match cost.here.zip(cost.normal) {
        Some((here, normal)) => format!(
            "plumb expects {} GB/s of bus bandwidth there, and {} GB/s without",
            shown(here),
            shown(normal)
        ),
        None => format!("plumb expects these paths to be {:.1} times slower than without", cost.factor),
    };
    Some(format!("{name}, {}: {rates} the finding {}.", Speed::new(doctor, extent).words(), finding.id))
}

/// How fast a kind of path is against what the machines can do.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Speed {
    /// As expected of these machines.
    Full,
    /// This share of it.
    Share(f64),
    /// Not known.
    Unknown,
}

impl Speed {
    fn new(doctor: &Doctor, extent: Extent) -> Self {
        match slowest(doctor, extent) {
            // The factor has two digits; the rates, which stand beside the share, say it more exactly.
            Some((_, cost)) => Self::Share(match cost.here.zip(cost.normal) {
                Some((here, normal)) if normal > 0.0 => (here / normal).min(1.0),
                _ => 1.0 / cost.factor.max(1.0),
            }),
            None if doctor.facts.job.machine.is_some() || doctor.facts.job.instance.is_some() => Self::Full,
            None => Self::Unknown,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Share(it) if it >= 0.5 => "half",
            Self::Share(_) => "slow",
            Self::Unknown => "unsure",
        }
    }

    fn words(self) -> String {
        match self {
            Self::Full => "as fast as these machines allow".to_owned(),
            Self::Share(it) => format!("{:.0} % of the rate these machines allow", it * 100.0),
            Self::Unknown => "expected rate not known".to_owned(),
        }
    }
}

/// A machine with its ranks and what its paths are.
#[derive(Debug, Default)]
struct Place<'a> {
    ranks: Vec<u32>,
    /// Whether a line comes from it.
    seen: bool,
    /// Transports between its ranks, with pairs of ranks.
    inside: BTreeMap<&'a str, u32>,
    /// Transports to other machines.
    across: BTreeMap<&'a str, u32>,
}

impl Place<'_> {
    /// Its transports, for a comparison with other machines.
    fn transports(&self) -> [BTreeSet<&str>; 2] {
        [&self.inside, &self.across].map(|it| it.keys().copied().collect())
    }

    fn has_paths(&self) -> bool {
        !self.inside.is_empty() || !self.across.is_empty()
    }

    /// What is said instead of its ranks, where none is known.
    fn without_ranks(&self) -> Option<&'static str> {
        let words = if self.seen { RANKS_UNKNOWN } else { UNSEEN };
        self.ranks.is_empty().then_some(words)
    }
}

/// Why a machine is drawn, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Trouble(Trouble),
    /// It uses other transports than most machines.
    OtherPaths,
    /// There is room for it.
    Room,
}

/// A machine of the picture.
struct Shown<'a> {
    host: &'a str,
    place: &'a Place<'a>,
    reason: Reason,
}

impl Shown<'_> {
    fn name(&self) -> &str {
        if self.host.is_empty() { NOWHERE } else { self.host }
    }

    /// What is wrong with it: `rank 2 failed first`. Empty if nothing is.
    fn words(&self, troubles: &Troubles<'_>) -> String {
        match self.reason {
            Reason::Room => String::new(),
            Reason::OtherPaths => "other transports than most".to_owned(),
            Reason::Trouble(trouble) => {
                let of = |it: &&u32| troubles.rank(**it) == Some(trouble);
                let ranks: Vec<u32> = self.place.ranks.iter().filter(of).copied().collect();
                match ranks.as_slice() {
                    [] => trouble.words().to_owned(),
                    [rank] => format!("rank {rank} {}", trouble.words()),
                    ranks => format!("ranks {} {}", super::numbers(ranks), trouble.words_of_many()),
                }
            }
        }
    }
}

/// Whether there is something to draw: paths, or one of several nodes in trouble.
pub(super) fn is_drawn(doctor: &Doctor, troubles: &Troubles<'_>) -> bool {
    let places = places(doctor, world(doctor));
    let mut all = by_importance(&places, troubles).into_iter();
    places.values().any(Place::has_paths)
        || (places.len() > 1 && all.any(|it| matches!(it.reason, Reason::Trouble(_))))
}

/// Draws the map.
pub(super) fn map(doctor: &Doctor, troubles: &Troubles<'_>, html: &mut Html) {
    let world = world(doctor);
    let places = places(doctor, world);
    let speeds = [Speed::new(doctor, Extent::InsideNodes), Speed::new(doctor, Extent::BetweenNodes)];
    let mut shown = by_importance(&places, troubles);
    let left_out = shown.split_off(shown.len().min(MACHINES));
    html.picture("map", &drawing(&shown, left_out.len(), troubles, speeds));
    for it in [Extent::InsideNodes, Extent::BetweenNodes].into_iter().filter_map(|it| share(doctor, it)) {
        html.line("p", "soft", &it);
    }
    if !left_out.is_empty() {
        html.line("p", "soft", &choice(&shown, &left_out, troubles));
    }
    match world {
        Some(world) => table_of_paths(world, speeds, html),
        None => table_of_nodes(&by_importance(&places, troubles), troubles, html),
    }
}

/// Where no line says which paths NCCL uses.
fn table_of_nodes(all: &[Shown<'_>], troubles: &Troubles<'_>, html: &mut Html) {
    html.line("p", "soft", "No line of the input says which paths NCCL uses.");
    let row = |it: &Shown<'_>| {
        let ranks = it.place.without_ranks().map_or_else(|| super::numbers(&it.place.ranks), str::to_owned);
        vec![Cell::code(it.name().to_owned()), Cell::new(ranks), Cell::new(it.words(troubles))]
    };
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    parts::more(html, &format!("{} as a table", counted(rows.len(), "node")), |html| {
        let columns = ["node", "ranks", "what is wrong"].map(Column::Text);
        parts::table(html, "Nodes of the job", &columns, &rows);
    });
}

fn table_of_paths(world: &Communicator, speeds: [Speed; 2], html: &mut Html) {
    let rows: Vec<Vec<Cell>> = world
        .paths_by_nodes
        .iter()
        .map(|it| {
            let (to, speed) = if it.from == it.to { ("inside", speeds[0]) } else { (&*it.to, speeds[1]) };
            let ways: Vec<String> =
                it.ways.iter().map(|(way, n)| format!("{way} ({})", counted(*n as usize, "pair"))).collect();
            vec![
                Cell::code(it.from.clone()),
                Cell::new(to),
                Cell::new(ways.join(", ")),
                Cell::new(speed.words()),
            ]
        })
        .collect();
    parts::more(html, &format!("{} as a table", counted(rows.len(), "path")), |html| {
        let columns = ["from", "to", "transport, with pairs of ranks", "rate"].map(Column::Text);
        parts::table(html, "Paths of the largest communicator", &columns, &rows);
    });
}

/// The largest communicator with paths.
fn world(doctor: &Doctor) -> Option<&Communicator> {
    let with_paths = doctor.facts.communicators.iter().filter(|it| !it.paths_by_nodes.is_empty());
    with_paths.max_by_key(|it| (it.ranks, it.ranks_seen))
}

fn places<'a>(doctor: &'a Doctor, world: Option<&'a Communicator>) -> BTreeMap<&'a str, Place<'a>> {
    let mut all: BTreeMap<&str, Place<'_>> = BTreeMap::new();
    for it in &doctor.facts.ranks {
        all.entry(&it.host).or_default().ranks.push(it.rank);
    }
    for it in &doctor.facts.other_ranks {
        match &it.host {
            Some(host) => all.entry(host).or_default().ranks.push(it.rank),
            None if it.missing => all.entry("").or_default().ranks.push(it.rank),
            // Its lines may be those of any node.
            None => {}
        }
    }
    for host in &doctor.facts.job.hosts {
        all.entry(host).or_default().seen = true;
    }
    for pair in world.into_iter().flat_map(|it| &it.paths_by_nodes) {
        for (way, n) in &pair.ways {
            if pair.from == pair.to {
                *all.entry(&pair.from).or_default().inside.entry(way).or_default() += n;
            } else {
                for host in [&pair.from, &pair.to] {
                    *all.entry(host).or_default().across.entry(way).or_default() += n;
                }
            }
        }
    }
    all
}

/// Whether data of this transport is copied through host memory.
fn is_staged(way: &str) -> bool {
    way.starts_with("SHM")
        || (way.starts_with("NET") && (way.contains("without GPUDirect") || way.contains("Socket")))
}

/// All machines, those that matter first.
fn by_importance<'a>(places: &'a BTreeMap<&'a str, Place<'a>>, troubles: &Troubles<'_>) -> Vec<Shown<'a>> {
    // What most machines use, of those whose ranks wrote lines: of the others only what their peers print is known.
    let mut kinds: BTreeMap<[BTreeSet<&str>; 2], usize> = BTreeMap::new();
    for place in places.values().filter(|it| it.has_paths() && !it.ranks.is_empty()) {
        *kinds.entry(place.transports()).or_default() += 1;
    }
    let read: usize = kinds.values().sum();
    let usual = kinds.into_iter().max_by_key(|it| it.1).filter(|it| it.1 * 2 > read).map(|it| it.0);
    let trouble = |host: &str, place: &Place<'_>| match host {
        "" => place.ranks.iter().filter_map(|it| troubles.rank(*it)).min(),
        host => troubles.host(host),
    };
    let reason = |host: &str, place: &Place<'_>| match (trouble(host, place), &usual) {
        (Some(trouble), _) => Reason::Trouble(trouble),
        (None, Some(usual)) if !place.ranks.is_empty() && place.transports() != *usual => Reason::OtherPaths,
        _ => Reason::Room,
    };
    let mut all: Vec<Shown<'_>> =
        places.iter().map(|(host, place)| Shown { host, place, reason: reason(host, place) }).collect();
    all.sort_by_key(|it| {
        // Then machines that exchange data, in the order of ranks.
        (it.reason, !it.place.has_paths(), it.place.ranks.is_empty(), it.place.ranks.first().copied())
    });
    all
}

/// Which machines are drawn of many, and why these.
fn choice(shown: &[Shown<'_>], left_out: &[Shown<'_>], troubles: &Troubles<'_>) -> String {
    let all = shown.len() + left_out.len();
    let mut text = format!("{} of {all} nodes are drawn", shown.len());
    let special: Vec<String> = shown
        .iter()
        .filter(|it| it.reason != Reason::Room)
        .map(|it| format!("{} ({})", it.name(), it.words(troubles)))
        .collect();
    if special.is_empty() {
        text.push_str(", those of the lowest ranks");
    } else {
        text.push_str(&format!(": first {}", special.join(", ")));
    }
    let special_too = left_out.iter().filter(|it| it.reason != Reason::Room).count();
    if special_too > 0 {
        text.push_str(&format!(
            ". {special_too} of the {} others are in trouble or use other transports too",
            left_out.len()
        ));
    } else {
        text.push_str(&format!(". Nothing sets the {} others apart", left_out.len()));
    }
    text.push_str("; the table has the paths of all.");
    text
}

fn drawing(shown: &[Shown<'_>], left_out: usize, troubles: &Troubles<'_>, speeds: [Speed; 2]) -> Picture {
    let mut canvas = Canvas::default();
    let columns = f64::from(u32::try_from(shown.len()).unwrap_or(1)).max(1.0);
    let machines = columns * (WIDE + GAP) - GAP;
    let width = machines.max(620.0) + 2.0 * MARGIN;
    let crosses = shown.iter().any(|it| !it.place.across.is_empty());
    let (top, height) =
        if shown.iter().any(|it| it.place.has_paths()) { (MARGIN + 46.0, 216.0) } else { (MARGIN, 88.0) };
    let inside = shown.iter().any(|it| !it.place.inside.is_empty());
    legend([inside.then_some(speeds[0]), crosses.then_some(speeds[1])], &mut canvas);
    let mut about: Vec<String> = Vec::new();
    for (at, it) in shown.iter().enumerate() {
        let x = MARGIN + f64::from(u32::try_from(at).unwrap_or(0)) * (WIDE + GAP);
        let rect = Rect { x, y: top, width: WIDE, height };
        machine(it, troubles, rect, speeds, &mut canvas);
        let ways: BTreeSet<&str> = it.place.transports().into_iter().flatten().collect();
        let ways = match it.place.without_ranks() {
            Some(words) => words.to_owned(),
            None => ways.into_iter().collect::<Vec<_>>().join(", "),
        };
        let facts = [it.words(troubles), ways];
        let facts: Vec<&str> = facts.iter().map(|it| &**it).filter(|it| !it.is_empty()).collect();
        about.push(format!("{}: {}", it.name(), facts.join("; ")));
    }
    let bottom = top + height + 16.0;
    let more = (left_out > 0).then(|| counted(left_out, "more node"));
    if crosses {
        canvas.rect(Rect { x: MARGIN, y: bottom + 16.0, width: machines, height: 30.0 }, 6.0, "network");
        let name = more.as_ref().map_or_else(|| "network".to_owned(), |it| format!("network, and {it}"));
        canvas.words((MARGIN + machines / 2.0, bottom + 36.0), "m", &name);
    } else if let Some(more) = &more {
        canvas.words((MARGIN, bottom + 36.0), "soft", &format!("and {more}"));
    }
    about.extend(more);
    let below = if crosses || left_out > 0 { 58.0 } else { 0.0 };
    canvas.picture([width, bottom + below], ["Paths between GPUs, by node", &about.join(". ")], STYLE)
}

fn legend(speeds: [Option<Speed>; 2], canvas: &mut Canvas) {
    let mut x = MARGIN;
    for (name, speed) in ["inside a node", "between nodes"].into_iter().zip(speeds) {
        let Some(speed) = speed else { continue };
        canvas.line((x, MARGIN + 12.0), (x + 30.0, MARGIN + 12.0), &format!("way {}", speed.class()));
        let text = format!("{name}: {}", speed.words());
        canvas.words((x + 38.0, MARGIN + 16.0), "", &text);
        x += 60.0 + length(&text);
    }
}

fn machine(
    it: &Shown<'_>,
    troubles: &Troubles<'_>,
    rect: Rect,
    [inside, between]: [Speed; 2],
    canvas: &mut Canvas,
) {
    let (host, place) = (it.name(), it.place);
    let Rect { x, y, width: _, height } = rect;
    let class = match it.reason {
        Reason::Trouble(trouble) => trouble.class(),
        Reason::OtherPaths => "warned",
        Reason::Room => "",
    };
    let known = if it.host.is_empty() { "nowhere" } else { "" };
    canvas.rect(rect, 8.0, format!("machine {class} {known}").trim());
    canvas.fitted((x + 12.0, y + 20.0), "b", host, WIDE - 24.0);
    canvas.fitted((x + 12.0, y + 36.0), &format!("b says {class}"), &it.words(troubles), WIDE - 24.0);
    if let Some(words) = place.without_ranks() {
        canvas.words((x + WIDE / 2.0, y + f64::midpoint(height, 8.0)), "soft m", words);
        if !place.across.is_empty() {
            let middle = x + WIDE / 2.0;
            canvas.line((middle, y + 216.0), (middle, y + 248.0), &format!("way {}", Speed::Unknown.class()));
        }
        return;
    }
    // In the order of ranks, and those in trouble among them.
    let mut ranks = place.ranks.clone();
    ranks.sort_by_key(|it| (troubles.rank(*it).is_none(), troubles.rank(*it), *it));
    ranks.truncate(GPUS);
    ranks.sort_unstable();
    let shown = ranks.len();
    let step = (WIDE - 24.0) / f64::from(u32::try_from(shown.max(4)).unwrap_or(4));
    let (gpus, memory, nic) = (y + 46.0, y + 118.0, y + 178.0);
    let centre = |at: usize| x + 12.0 + step * (f64::from(u32::try_from(at).unwrap_or(0)) + 0.5);
    let staged = |ways: &BTreeMap<&str, u32>| ways.keys().any(|it| is_staged(it));
    let direct = |ways: &BTreeMap<&str, u32>| ways.keys().any(|it| !is_staged(it));
    let uses_memory = staged(&place.inside) || staged(&place.across);
    // Lines first, so that devices are drawn over them.
    for at in 0..shown {
        if staged(&place.inside) {
            canvas.line(
                (centre(at) - 4.0, gpus + 26.0),
                (centre(at) - 4.0, memory),
                &format!("way {}", inside.class()),
            );
        }
        if direct(&place.inside) && at + 1 < shown {
            canvas.line(
                (centre(at), gpus + 13.0),
                (centre(at + 1), gpus + 13.0),
                &format!("way {}", inside.class()),
            );
        }
        if staged(&place.across) {
            canvas.line(
                (centre(at) + 4.0, gpus + 26.0),
                (centre(at) + 4.0, memory),
                &format!("way {}", between.class()),
            );
            canvas.line(
                (centre(at) + 4.0, memory + 26.0),
                (centre(at) + 4.0, nic),
                &format!("way {}", between.class()),
            );
        }
        if direct(&place.across) {
            canvas.line((centre(at), gpus + 26.0), (centre(at), nic), &format!("way {}", between.class()));
        }
    }
    for (at, rank) in ranks.iter().enumerate() {
        let trouble = troubles.rank(*rank);
        let state = trouble.map(|it| format!(": {}", it.words())).unwrap_or_default();
        canvas.named(&format!("rank {rank} on {host}{state}"), |canvas| {
            canvas.rect(
                Rect { x: centre(at) - step / 2.0 + 2.0, y: gpus, width: step - 4.0, height: 26.0 },
                4.0,
                &format!("gpu {}", trouble.map_or("", Trouble::class)),
            );
            let name = if step > 48.0 { format!("rank {rank}") } else { rank.to_string() };
            let class = if matches!(trouble, Some(Trouble::First(_))) { "m b on-first" } else { "m" };
            canvas.words((centre(at), gpus + 17.0), class, &name);
        });
    }
    let more = place.ranks.len().saturating_sub(GPUS);
    let note = if more > 0 { format!("and {}", counted(more, "more rank")) } else { String::new() };
    canvas.words((x + 12.0, gpus + 42.0), "soft back", &note);
    if uses_memory {
        canvas.rect(Rect { x: x + 12.0, y: memory, width: WIDE - 24.0, height: 26.0 }, 4.0, "memory");
        canvas.words((x + WIDE / 2.0, memory + 17.0), "m", "host memory: data is copied here");
    }
    let list = |ways: &BTreeMap<&str, u32>| ways.keys().copied().collect::<Vec<_>>().join(", ");
    if !place.inside.is_empty() {
        canvas.fitted((x + WIDE / 2.0, memory - 8.0), "m back", &list(&place.inside), WIDE - 20.0);
    }
    if !place.across.is_empty() {
        let names = list(&place.across);
        let lines = in_two(&names, WIDE - 30.0);
        let bottom = if lines.len() > 1 { 34.0 } else { 28.0 };
        canvas.rect(Rect { x: x + 12.0, y: nic, width: WIDE - 24.0, height: bottom }, 4.0, "nic");
        let mut at = nic + if lines.len() > 1 { 14.0 } else { 18.0 };
        for line in &lines {
            canvas.fitted((x + WIDE / 2.0, at), "m", line, WIDE - 30.0);
            at += 14.0;
        }
        canvas.line(
            (x + WIDE / 2.0, nic + bottom),
            (x + WIDE / 2.0, y + 248.0),
            &format!("way {}", between.class()),
        );
    }
}
