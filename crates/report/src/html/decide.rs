//! The page of `plumb topo --decide` and `--what-if`.

use std::io;

use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View, topo};
use crate::Style;
use crate::decide::text::{about, fullness, headline, size, what_if_headline};
use crate::decide::{Decide, Ranges, WhatIf};
use crate::text::{bytes, clean, counted};
use crate::topo::words::number;
use crate::topo::{Topo, TopoOverlay};

/// What NCCL decides, on the drawing of the machine.
#[derive(Debug, Clone, Copy)]
pub struct DecidePage<'a> {
    /// The answer.
    pub decide: &'a Decide,
    /// The machine, where it can be drawn.
    pub topo: Option<&'a Topo>,
    /// The rings and trees of its channels; of a what-if, those without and with the settings.
    pub overlays: &'a [TopoOverlay],
}

impl View for DecidePage<'_> {
    fn page(&self) -> Page {
        let decide = self.decide;
        let mut page = Page::new("topo", decide.schema);
        page.title = headline(decide);
        match &decide.what_if {
            None => page.verdict = headline(decide),
            Some(it) => {
                page.verdict = what_if_headline(it);
                page.about.push(headline(decide));
                if it.refused.is_some() {
                    page.tone = Tone::Bad;
                }
            }
        }
        page.about.push(about(decide));
        page.about.push(format!("machine from {}", clean(&decide.source)));
        if let Some(it) = &decide.what_if {
            page.section("what-if", "What changes", |html| what_if(html, it));
        }
        if let Some(machine) = self.topo {
            page.section("drawing", "Rings and trees", |html| {
                if let Some(it) = &decide.what_if {
                    html.line("p", "", states(it, self.overlays));
                }
                topo::drawing(html, machine, self.overlays);
            });
        }
        // What follows is the state without the settings of a what-if.
        let now = if decide.what_if.is_some() { ", now" } else { "" };
        page.section("channels", &format!("Channels{now}"), |html| channels(html, decide));
        if !decide.choices.is_empty() {
            let title = format!("Algorithm and protocol by size{now}");
            page.section("choices", &title, |html| choices(html, decide));
        }
        if !decide.between_nodes.is_empty() {
            let title = format!("From node 0 to node 1{now}");
            page.section("between", &title, |html| crossings(html, decide));
        }
        page.section("settings", &format!("Settings{now}"), |html| settings(html, decide));
        if !decide.notes.is_empty() {
            page.section("notes", "Notes", |html| parts::list(html, decide.notes.iter().map(String::as_str)));
        }
        page.section("lines", &format!("What NCCL prints{now}"), |html| {
            let title = format!("the {} of rank {}", counted(decide.lines.len(), "line"), decide.rank);
            parts::more(html, &title, |html| parts::code(html, "these lines", &decide.lines.join("\n")));
        });
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        crate::decide::json(self.decide, out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        if self.decide.what_if.is_some() {
            crate::decide::what_if_text(self.decide, style, out)
        } else {
            crate::decide::text(self.decide, style, out)
        }
    }
}

/// Which states of a what-if the drawing shows.
fn states(it: &WhatIf, overlays: &[TopoOverlay]) -> &'static str {
    let differs = overlays.iter().any(|it| it.name.starts_with("then: ") || it.name.starts_with("now: "));
    if it.refused.is_some() {
        "As it is now: with these settings NCCL would not run."
    } else if differs {
        "Now: as it is. Then: with these settings. Thick lines are connections that the other state does not have."
    } else {
        "These settings change no ring and no tree."
    }
}

fn what_if(html: &mut Html, it: &WhatIf) {
    if let Some(reason) = &it.refused {
        parts::facts(html, &[("reason", clean(reason))]);
    }
    if !it.changes.is_empty() {
        let rows: Vec<Vec<Cell>> = it
            .changes
            .iter()
            .map(|it| vec![Cell::new(&*it.what), Cell::new(&*it.before), Cell::new(&*it.after)])
            .collect();
        parts::table(html, "Decisions that change", &["what", "now", "then"].map(Column::Text), &rows);
    }
    if !it.expected.is_empty() {
        let rows: Vec<Vec<Cell>> = it
            .expected
            .iter()
            .map(|it| {
                vec![
                    Cell::new(it.collective),
                    Cell::new(bytes(it.bytes)),
                    Cell::new(number(it.before)),
                    Cell::new(number(it.after)),
                    Cell::new(format!(
                        "{:+.0} %",
                        100.0 * (it.after / it.before.max(f64::MIN_POSITIVE) - 1.0)
                    )),
                ]
            })
            .collect();
        let columns = [
            Column::Text("collective"),
            Column::Number("size"),
            Column::Number("now"),
            Column::Number("then"),
            Column::Number("change"),
        ];
        parts::table(html, "Expected bus bandwidth, GB/s", &columns, &rows);
    }
    parts::list(html, it.unheeded.iter().map(String::as_str));
}

fn channels(html: &mut Html, decide: &Decide) {
    let it = &decide.channels;
    let mut rows = vec![("collectives", format!("{}: {}", it.collectives, it.why.join(", ")))];
    if it.nvls > 0 {
        rows.push(("NVLS", counted(it.nvls, "channel")));
    }
    rows.push((
        "send/recv",
        format!(
            "{}, {} per peer, chunks of {}",
            counted(it.p2p as usize, "channel"),
            it.p2p_per_peer,
            bytes(it.p2p_chunk)
        ),
    ));
    if let Some(limit) = &decide.limit {
        let place = if decide.nccl_nodes > 1 { "between nodes" } else { "inside the node" };
        rows.push((
            "rings",
            format!(
                "{} x {} = {} GB/s each way {place}",
                counted(it.searched, "ring"),
                number(limit.channel),
                number(limit.rings)
            ),
        ));
    }
    parts::facts(html, &rows);
    if let Some(limit) = decide.limit.as_ref().filter(|it| !it.links.is_empty()) {
        let rows: Vec<Vec<Cell>> = limit
            .links
            .iter()
            .map(|it| {
                let percent = Cell::new(format!("{:.0} %", 100.0 * fullness(it)));
                let percent = if fullness(it) > 0.99 { percent.toned(Tone::Warning) } else { percent };
                vec![
                    Cell::new(&*it.link),
                    Cell::new(number(it.used)),
                    Cell::new(number(it.capacity)),
                    percent,
                ]
            })
            .collect();
        let columns = [
            Column::Text("link"),
            Column::Number("used, GB/s"),
            Column::Number("carries, GB/s"),
            Column::Number("full"),
        ];
        parts::table(html, "What the rings use of the fullest link of each kind, one way", &columns, &rows);
    }
    if !decide.graphs.is_empty() {
        let rows: Vec<Vec<Cell>> = decide
            .graphs
            .iter()
            .map(|it| {
                vec![
                    Cell::code(it.algorithm),
                    Cell::new(it.channels.len().to_string()),
                    Cell::new(format!("{} ({})", number(f64::from(it.intra)), it.type_intra)),
                    Cell::new(format!("{} ({})", number(f64::from(it.inter)), it.type_inter)),
                    Cell::new(if it.cross_nic > 0 { "crosses NICs" } else { "" }),
                ]
            })
            .collect();
        let columns = [
            Column::Text("algorithm"),
            Column::Number("channels"),
            Column::Text("inside, GB/s each (path)"),
            Column::Text("between, GB/s each (path)"),
            Column::Text("NICs"),
        ];
        let caption = format!("What the search found on the node of rank {}", decide.rank);
        parts::table(html, &caption, &columns, &rows);
    }
}

fn choices(html: &mut Html, decide: &Decide) {
    let of = |it: &Ranges| -> Vec<Vec<Cell>> {
        it.ranges
            .iter()
            .map(|it| {
                let sizes = match it.to {
                    Some(to) => format!("{} to {}", size(it.from), size(to)),
                    None => format!("from {}", size(it.from)),
                };
                let [first, last] = it.channels;
                let channels = if first == last { first.to_string() } else { format!("{first} to {last}") };
                vec![
                    Cell::new(sizes),
                    Cell::new(it.algorithm),
                    Cell::new(it.protocol),
                    Cell::new(channels),
                    Cell::new(if it.by_tuner { "the tuner of aws-ofi-nccl" } else { "NCCL's model" }),
                ]
            })
            .collect()
    };
    let columns = ["size", "algorithm", "protocol", "channels", "chosen by"].map(Column::Text);
    let names: Vec<String> = decide.choices.iter().map(|it| it.collective.to_owned()).collect();
    parts::choice(html, "Collective:", &names, |html, at| {
        parts::table(html, decide.choices[at].collective, &columns, &of(&decide.choices[at]));
    });
    if let Some(reason) = decide.tuner.as_ref().filter(|it| !it.decides).and_then(|it| it.reason.as_ref()) {
        parts::facts(html, &[("tuner", clean(reason))]);
    }
}

fn crossings(html: &mut Html, decide: &Decide) {
    let rows: Vec<Vec<Cell>> = decide
        .between_nodes
        .iter()
        .map(|it| {
            let channels: Vec<String> = it.channels.iter().map(ToString::to_string).collect();
            vec![
                Cell::new(format!("{} \u{2192} {}", it.from_rank, it.to_rank)),
                Cell::code(clean(&it.from_nic)),
                Cell::code(clean(&it.to_nic)),
                Cell::new(it.by_rank.map(|it| format!("rank {it} sends")).unwrap_or_default()),
                Cell::new(channels.join(", ")),
            ]
        })
        .collect();
    let columns = ["ranks", "sends by", "receives by", "PXN", "channels"].map(Column::Text);
    parts::table(html, "Where rings go from node 0 to node 1", &columns, &rows);
}

fn settings(html: &mut Html, decide: &Decide) {
    let mut rows: Vec<Vec<Cell>> = decide
        .environment
        .iter()
        .map(|(name, value)| {
            let about = decide.unheeded.iter().find(|it| it.name == *name);
            vec![
                Cell::code(clean(name)),
                Cell::code(clean(value)),
                Cell::new("set"),
                Cell::new(about.map_or("", |it| &it.reason)),
            ]
        })
        .collect();
    rows.extend(decide.set_by_plugin.iter().map(|it| {
        vec![
            Cell::code(it.name.clone()),
            Cell::code(it.value.clone()),
            Cell::new("the plugin sets it"),
            Cell::new(""),
        ]
    }));
    if rows.is_empty() {
        html.line("p", "soft", "No variable is set.");
    } else {
        let columns = ["variable", "value", "by", "effect"].map(Column::Text);
        parts::table(html, "Variables the decisions rest on", &columns, &rows);
    }
}
