//! The page of `plumb topo`: the drawing with its paths, and what is normal.

use std::collections::BTreeMap;
use std::io;

use fabric::PathType;

use super::chart::{Axis, Frame, Lines, Scale, Series, lines};
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View, size_axis};
use crate::Style;
use crate::expect::shown;
use crate::text::{bytes, clean, counted};
use crate::topo::words::{bandwidth, between, names, shared, time};
use crate::topo::{
    Topo, TopoEdge, TopoFamily, TopoGraph, TopoJob, TopoNormal, TopoOverlay, matrix, svg, text, tree,
};

/// A machine, and the rings and trees that can be shown on it.
#[derive(Debug, Clone, Copy)]
pub struct TopoPage<'a> {
    /// The machine.
    pub topo: &'a Topo,
    /// Rings and trees.
    pub overlays: &'a [TopoOverlay],
    /// Where they are from, or why there are none.
    pub about: &'a [String],
}

impl View for TopoPage<'_> {
    fn page(&self) -> Page {
        let topo = self.topo;
        let mut page = Page::new("topo", topo.schema);
        let name = topo.name.as_deref().map(clean).filter(|it| !it.is_empty());
        page.verdict = match &name {
            Some(it) => format!("{it}: {}", topo.summary),
            None => topo.summary.clone(),
        };
        page.title = name.unwrap_or_else(|| topo.summary.clone());
        page.about.extend((!topo.source.is_empty()).then(|| format!("from {}", topo.source)));
        page.about.extend(topo.conflicts.iter().map(|it| format!("conflict: {it}")));
        if !topo.conflicts.is_empty() {
            page.tone = Tone::Warning;
        }
        page.section("drawing", "The machine", |html| {
            drawing(html, topo, self.overlays);
            for it in self.about {
                html.line("p", "soft", &clean(it));
            }
            let facts =
                [("NVLink", text::nvlink(topo)), ("PCIe", text::pcie(topo)), ("NICs", text::networks(topo))];
            let rows: Vec<(&str, String)> = facts.into_iter().filter_map(|it| Some((it.0, it.1?))).collect();
            parts::facts(html, &rows);
        });
        if !topo.paths.is_empty() {
            page.section("paths", "Paths", |html| paths(html, topo));
        }
        if !topo.nics.is_empty() {
            page.section("nics", "The NIC of each GPU", |html| nics(html, topo));
        }
        if let Some(job) = &topo.job {
            page.section("transports", "What NCCL would use", |html| transports(html, job));
        }
        if !topo.graphs.is_empty() {
            page.section("search", "What NCCL's search found", |html| graphs(html, &topo.graphs));
        }
        if !topo.normal.is_empty() {
            page.section("normal", "Normal bandwidth", |html| normal(html, topo));
        }
        let notes: Vec<&str> =
            topo.notes.iter().filter(|it| !topo.conflicts.contains(it)).map(String::as_str).collect();
        if !notes.is_empty() || topo.price.is_some() {
            page.section("notes", "Notes", |html| {
                if let Some(price) = &topo.price {
                    parts::facts(html, &[("the layout costs", price.words())]);
                }
                parts::list(html, notes.iter().copied());
            });
        }
        if !topo.unknown.is_empty() {
            page.section("unknown", "Not known", |html| {
                parts::list(html, topo.unknown.iter().map(String::as_str));
            });
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        crate::topo::json(self.topo, out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        crate::topo::text(self.topo, style, out)
    }
}

/// The drawing; a device that has the pointer or the focus shows its paths, and one ring or tree is shown at a time.
pub(super) fn drawing(html: &mut Html, topo: &Topo, overlays: &[TopoOverlay]) {
    let paths = near_and_far(topo);
    let own = topo.overlay.as_ref().filter(|it| !it.edges.is_empty());
    // What was asked for comes first.
    let others = overlays.iter().filter(|it| own.is_none_or(|own| own.edges != it.edges));
    let all: Vec<TopoOverlay> = own.into_iter().chain(others).cloned().collect();
    let data = serde_json::to_string(&paths).unwrap_or_default();
    html.put("div", &[("class", "devices"), ("data-paths", &data)], |html| {
        if !paths.is_empty() {
            html.put("p", &[("class", "paths-of soft"), ("aria-live", "polite")], |html| {
                html.words("Point at a GPU or NIC, or move to it with the Tab key: its paths are shown here and at the other devices.");
            });
        }
        if !all.is_empty() {
            layers(html, &all);
        }
        html.picture("topo", &svg::picture(topo, &all));
    });
    if !all.is_empty() {
        as_text(html, &all);
    }
}

/// The choice of a ring or tree.
fn layers(html: &mut Html, all: &[TopoOverlay]) {
    let mut options: Vec<(String, String)> =
        all.iter().enumerate().map(|(at, it)| (at.to_string(), clean(&it.name))).collect();
    options.push((String::new(), "none: the machines alone".to_owned()));
    html.put("label", &[("class", "layers")], |html| {
        html.words("Ring or tree to show: ");
        html.put("select", &[], |html| {
            for (value, name) in &options {
                html.put("option", &[("value", value)], |html| html.words(name));
            }
        });
    });
}

/// The connections of rings and trees on the machines that are drawn.
fn as_text(html: &mut Html, all: &[TopoOverlay]) {
    let drawn = |it: &&TopoEdge| it.from.0.min(it.to.0) < svg::ON_PAGE;
    let changes = all.iter().any(|it| !it.changed.is_empty());
    let row = |it: &TopoOverlay| {
        let mut row = vec![Cell::new(clean(&it.name)), Cell::new(chains(it.edges.iter().filter(drawn)))];
        if changes {
            row.push(Cell::new(chains(it.changed.iter().filter(drawn))));
        }
        row
    };
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    let mut columns = vec![Column::Text("ring or tree"), Column::Text("connections")];
    if changes {
        columns.push(Column::Text("not so in the other state"));
    }
    let title = match all {
        [_] => "its connections".to_owned(),
        many => format!("connections of all {} rings and trees", many.len()),
    };
    parts::more(html, &title, |html| {
        parts::table(html, "Connections, by machine and GPU: 1.3 is GPU3 of machine 1", &columns, &rows);
    });
}

/// `0.0 → 0.1 → (NET) 1.0, 0.2 → 0.3`: a connection that begins where the last one ended continues it.
fn chains<'a>(edges: impl Iterator<Item = &'a TopoEdge>) -> String {
    let mut text = String::new();
    let mut last = None;
    for it in edges {
        if last != Some(it.from) {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(&format!("{}.{}", it.from.0, it.from.1));
        }
        let family = if it.family == TopoFamily::P2p || it.family == TopoFamily::Inside {
            ""
        } else {
            it.family.name()
        };
        let nics = match (&it.nic, &it.to_nic) {
            (Some(out), Some(into)) if out != into => format!(" {} to {}", clean(out), clean(into)),
            (Some(nic), _) => format!(" {}", clean(nic)),
            _ => String::new(),
        };
        let by = if family.is_empty() { String::new() } else { format!("({family}{nics}) ") };
        text.push_str(&format!(" \u{2192} {by}{}.{}", it.to.0, it.to.1));
        last = Some(it.to);
    }
    text
}

/// Of each device the others: name, class, words.
fn near_and_far(topo: &Topo) -> BTreeMap<String, Vec<[String; 3]>> {
    let mut all: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
    for it in topo.paths.iter().filter(|it| it.from != it.to) {
        let class = match tone(it.kind) {
            Tone::Good => "near",
            Tone::Warning => "middle",
            _ => "far",
        };
        let speed = it.bandwidth.map(|it| format!(", {}", bandwidth(it))).unwrap_or_default();
        let words = format!("{}{speed}", it.kind.name());
        let (from, to) = (clean(&it.from), clean(&it.to));
        // Paths of NICs are listed with their GPUs.
        if !to.starts_with("GPU") {
            all.entry(to.clone()).or_default().push([from.clone(), class.to_owned(), words.clone()]);
        }
        all.entry(from).or_default().push([to, class.to_owned(), words]);
    }
    all
}

/// GPUs against GPUs and NICs.
fn paths(html: &mut Html, topo: &Topo) {
    /// More columns than this are a table that nobody reads: the drawing shows them one by one.
    const MOST: usize = 64;
    let mut gpus = tree::gpus(topo);
    gpus.sort_by_key(|it| matrix::by_number(it));
    let known: BTreeMap<(&str, &str), &crate::topo::TopoPath> =
        topo.paths.iter().map(|it| ((&*it.from, &*it.to), it)).collect();
    let nics: Vec<&str> = tree::nics(topo)
        .into_iter()
        .filter(|nic| gpus.iter().any(|gpu| known.contains_key(&(*gpu, *nic))))
        .collect();
    let others: Vec<&str> = gpus.iter().copied().chain(nics).collect();
    if others.len() <= MOST {
        let rows: Vec<Vec<Cell>> = gpus
            .iter()
            .map(|gpu| {
                let cell = |other: &&str| match known.get(&(*gpu, *other)) {
                    None => Cell::new(if gpu == other { "\u{2013}" } else { "" }),
                    Some(it) => Cell::new(it.kind.name()).toned(tone(it.kind)),
                };
                std::iter::once(Cell::code(clean(gpu))).chain(others.iter().map(cell)).collect()
            })
            .collect();
        let names: Vec<String> = others.iter().map(|it| clean(it)).collect();
        let columns: Vec<Column<'_>> =
            std::iter::once(Column::Text("from")).chain(names.iter().map(|it| Column::Text(it))).collect();
        parts::table(html, "Paths as NCCL names them", &columns, &rows);
    }
    let meanings = matrix::meanings(topo);
    let rows: Vec<(&str, String)> = meanings.iter().map(|it| (it.kind.name(), it.text.clone())).collect();
    parts::facts(html, &rows);
}

fn tone(kind: PathType) -> Tone {
    match kind {
        PathType::Loc | PathType::Nvl | PathType::Nvb | PathType::C2c | PathType::Pix | PathType::Pxb => {
            Tone::Good
        }
        PathType::P2c | PathType::Pxn | PathType::Phb => Tone::Warning,
        PathType::Sys | PathType::Net | PathType::Dis => Tone::Bad,
    }
}

fn nics(html: &mut Html, topo: &Topo) {
    let rows: Vec<Vec<Cell>> = topo
        .nics
        .iter()
        .map(|it| {
            let nics: Vec<&str> = it.nics.iter().map(String::as_str).collect();
            vec![
                Cell::code(clean(&it.gpu)),
                Cell::code(if nics.is_empty() { "none".to_owned() } else { names(&nics) }),
                Cell::new(clean(&it.path)),
                if it.gpudirect {
                    Cell::new("GPUDirect").toned(Tone::Good)
                } else {
                    Cell::new("no GPUDirect").toned(Tone::Warning)
                },
                Cell::new(shared(it.shared_by).unwrap_or_default()),
                Cell::new(it.share.map(bandwidth).unwrap_or_default()),
            ]
        })
        .collect();
    let columns = [
        Column::Text("GPU"),
        Column::Text("nearest NICs"),
        Column::Text("path"),
        Column::Text("GPUDirect"),
        Column::Text("shared"),
        Column::Number("for each GPU"),
    ];
    parts::table(html, "The NICs that each GPU should use", &columns, &rows);
}

fn transports(html: &mut Html, job: &TopoJob) {
    let rows: Vec<Vec<Cell>> = job
        .transports
        .iter()
        .map(|it| {
            let pairs = format!("{}; ranks {} and {}", it.pairs, it.example.0, it.example.1);
            vec![
                Cell::new(between(it.between)),
                Cell::code(it.transport.clone()),
                Cell::new(it.reason.clone()),
                Cell::new(pairs),
            ]
        })
        .collect();
    let caption = format!(
        "NCCL {} on {}, pods x GPUs {}",
        clean(&job.nccl),
        counted(job.nodes as usize, if job.nodes_may_share_machines { "node" } else { "machine" }),
        clean(&job.pods)
    );
    let columns = ["between", "transport", "why", "pairs, and one of them"].map(Column::Text);
    parts::table(html, &caption, &columns, &rows);
}

fn graphs(html: &mut Html, all: &[TopoGraph]) {
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .flat_map(|it| {
            it.orders.iter().map(move |order| {
                let channels: Vec<String> = order.channels.iter().map(u32::to_string).collect();
                let steps: Vec<String> = order.steps.iter().map(|it| clean(it)).collect();
                vec![
                    Cell::new(clean(&it.name)),
                    Cell::new(channels.join(", ")),
                    Cell::new(steps.join(" \u{2192} ")),
                    Cell::new(format!("{} ({})", bandwidth(it.inside), clean(&it.path_inside))),
                    Cell::new(format!("{} ({})", bandwidth(it.between), clean(&it.path_to_nic))),
                ]
            })
        })
        .collect();
    let columns = ["algorithm", "channels", "order", "inside", "between machines"].map(Column::Text);
    parts::table(html, "Channels of NCCL's search, before it doubles them", &columns, &rows);
}

/// Curves with their interval, and the same as a table.
fn normal(html: &mut Html, topo: &Topo) {
    let all = &topo.normal;
    let release = topo.job.as_ref().map(|it| format!(" with NCCL {}", it.nccl)).unwrap_or_default();
    for rows in all.chunk_by(|a, b| a.collective == b.collective) {
        let Some(first) = rows.first() else { continue };
        #[expect(clippy::cast_precision_loss, reason = "a place on an axis")]
        let size = |it: &TopoNormal| it.bytes as f64;
        let series = Series {
            name: format!("{}, expected, with the normal interval", first.collective),
            points: rows.iter().map(|it| (size(it), it.expected)).collect(),
            interval: rows.iter().map(|it| (size(it), it.low, it.high)).collect(),
            spread: Vec::new(),
        };
        let last = rows.last().unwrap_or(first);
        let about = format!(
            "Normal bus bandwidth of {} by size: {} GB/s at {}, {} GB/s at {}.",
            first.collective,
            shown(first.expected),
            bytes(first.bytes),
            shown(last.expected),
            bytes(last.bytes)
        );
        if rows.len() > 1 {
            html.picture(
                "chart",
                &lines(&Lines {
                    frame: Frame {
                        title: &format!("Normal bus bandwidth of {}", first.collective),
                        about: &about,
                        x: size_axis(),
                        y: Axis { label: "bus bandwidth, GB/s", scale: Scale::Decades, show: shown },
                    },
                    series: &[series],
                    spans: &[],
                }),
            );
        }
        let rows: Vec<Vec<Cell>> = rows
            .iter()
            .map(|it| {
                vec![
                    Cell::new(bytes(it.bytes)),
                    Cell::new(shown(it.low)),
                    Cell::new(shown(it.expected)),
                    Cell::new(shown(it.high)),
                    Cell::new(time(it.time_us)),
                    Cell::new(it.algorithm.clone()),
                    Cell::new(it.ceiling.clone()),
                ]
            })
            .collect();
        let columns = [
            Column::Number("size"),
            Column::Number("low"),
            Column::Number("expected"),
            Column::Number("high"),
            Column::Number("a call"),
            Column::Text("algorithm"),
            Column::Text("limited by"),
        ];
        parts::table(html, &format!("{}{release}: bus bandwidth in GB/s", first.collective), &columns, &rows);
    }
}
