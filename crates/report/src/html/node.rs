//! The pages of `plumb node`, of one machine and of several.

use std::cmp::Reverse;
use std::io;

use rules::node::Fitness;

use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View};
use crate::node::text::word;
use crate::node::{One, Shape, facts};
use crate::{Finding, Node, Nodes, Style};

impl View for Node {
    fn page(&self) -> Page {
        let mut page = Page::new("node", self.schema);
        head(&mut page, self.verdict, &self.text, &facts::stack(&self.state));
        page.title.clone_from(&self.text);
        page.worst = self.worst();
        findings(&mut page, &self.full);
        page.section("seen", "What was seen", |html| parts::facts(html, &facts::rows(&self.state, true)));
        if !self.state.not_seen.is_empty() || !self.not_checked.is_empty() {
            page.section("unseen", "What was not checked", |html| {
                let rows: Vec<Vec<Cell>> = self
                    .state
                    .not_seen
                    .iter()
                    .map(|it| vec![Cell::new(&*it.what), Cell::new(&*it.why), Cell::new(&*it.how)])
                    .collect();
                if !rows.is_empty() {
                    let columns = ["what", "why", "how to see it"].map(Column::Text);
                    parts::table(html, "What plumb could not see", &columns, &rows);
                }
                parts::not_checked(html, &self.not_checked);
            });
        }
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        self.text(style, out)
    }
}

impl View for Nodes {
    fn page(&self) -> Page {
        let mut page = Page::new("node", self.schema);
        head(&mut page, self.verdict, &self.text, "");
        page.title.clone_from(&self.text);
        page.worst = self.worst();
        findings(&mut page, &self.full);
        let mut rows: Vec<(Fitness, &One)> = self.nodes.iter().map(|it| (it.verdict, it)).collect();
        rows.sort_by_key(|it| Reverse(it.0));
        let rows: Vec<Vec<Cell>> = rows
            .into_iter()
            .map(|(fitness, it)| {
                let worst =
                    it.findings.iter().chain(self.differences_of(it)).min_by_key(|it| Reverse(it.severity));
                let card = |it: &Shape| {
                    self.full.iter().position(|of| of.id == it.id && of.message.ends_with(&it.message))
                };
                vec![
                    Cell::code(it.host.clone()),
                    Cell::new(word(fitness)).toned(tone(fitness)),
                    Cell::new(it.devices.clone()),
                    match worst.map(|it| (&it.message, card(it))) {
                        None => Cell::default(),
                        Some((message, None)) => Cell::new(message.clone()),
                        Some((message, Some(at))) => {
                            Cell::new(message.clone()).linked(format!("#finding-{}", at + 1))
                        }
                    },
                ]
            })
            .collect();
        page.section("nodes", "Nodes", |html| {
            let columns = ["node", "verdict", "devices", "worst finding"].map(Column::Text);
            parts::table(html, "Every node, the worst first", &columns, &rows);
        });
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        self.text(style, out)
    }
}

impl Nodes {
    /// In what a machine differs from the others.
    fn differences_of(&self, node: &One) -> impl Iterator<Item = &Shape> {
        self.differences.iter().filter(|it| it.entities.iter().any(|it| it.name == node.host))
    }
}

fn head(page: &mut Page, verdict: Fitness, text: &str, below: &str) {
    page.tone = tone(verdict);
    word(verdict).clone_into(&mut page.word);
    text.clone_into(&mut page.verdict);
    page.about.extend((!below.is_empty()).then(|| below.to_owned()));
    page.undecided = verdict == Fitness::Unknown;
}

fn tone(verdict: Fitness) -> Tone {
    match verdict {
        Fitness::Fit => Tone::Good,
        Fitness::Warnings => Tone::Warning,
        Fitness::NotFit => Tone::Bad,
        Fitness::Unknown => Tone::Unknown,
    }
}

fn findings(page: &mut Page, all: &[Finding]) {
    if all.is_empty() {
        return;
    }
    page.section("findings", "Findings", |html| {
        for (at, it) in all.iter().enumerate() {
            parts::finding(html, at + 1, it, |_: &mut Html| {});
        }
    });
}
