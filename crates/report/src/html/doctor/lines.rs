//! Lines of the input that the page names: where it shows them, for links.

use std::collections::BTreeMap;

use crate::html::Html;
use crate::html::parts::{self, Cell};
use crate::{Doctor, Evidence};

/// The lines that are in the page, by file and number, with their numbers in it.
#[derive(Debug, Default)]
pub(super) struct Lines<'a> {
    ids: BTreeMap<(&'a str, u64), usize>,
    /// Those that no finding shows.
    rest: Vec<&'a Evidence>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(doctor: &'a Doctor) -> Self {
        let mut lines = Self::default();
        for it in doctor.findings.iter().flat_map(|it| &it.evidence) {
            lines.add(it);
        }
        let checks = doctor.checks.iter().filter_map(|it| it.evidence.as_ref());
        let settings = doctor.facts.environment.iter().map(|it| &it.evidence);
        let failure = doctor.facts.first_failure.iter().map(|it| &it.evidence);
        for it in failure.chain(checks).chain(settings) {
            if lines.add(it) {
                lines.rest.push(it);
            }
        }
        lines.rest.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        lines
    }

    /// Adds a line, unless it is there.
    fn add(&mut self, it: &'a Evidence) -> bool {
        // A line of a very large input is not kept.
        if it.text.is_empty() || self.ids.contains_key(&(&*it.file, it.line)) {
            return false;
        }
        self.ids.insert((&it.file, it.line), self.ids.len() + 1);
        true
    }

    /// The id of a line.
    fn id(&self, file: &str, line: u64) -> Option<String> {
        self.ids.get(&(file, line)).map(|it| format!("line-{it}"))
    }

    /// The id of a line at the first place that shows it: of findings the one with the evidence itself.
    pub(super) fn id_here(&self, doctor: &Doctor, it: &Evidence) -> Option<String> {
        let first = doctor.findings.iter().flat_map(|it| &it.evidence);
        let first = first.into_iter().find(|other| other.file == it.file && other.line == it.line);
        self.id(&it.file, it.line).filter(|_| first.is_some_and(|first| std::ptr::eq(first, it)))
    }

    /// File and line, as a link where the page has the line.
    pub(super) fn cell(&self, file: &str, line: u64) -> Cell {
        let cell = Cell::new(format!("{file}:{line}"));
        match self.id(file, line) {
            Some(id) => cell.linked(format!("#{id}")),
            None => cell,
        }
    }

    /// The same in a sentence.
    pub(super) fn link(&self, html: &mut Html, it: &Evidence) {
        match self.id(&it.file, it.line) {
            Some(id) => html.link(&format!("#{id}"), &parts::place(it)),
            None => html.words(&parts::place(it)),
        }
    }

    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// The lines that no finding shows, by file.
    pub(super) fn write_rest(&self, html: &mut Html) {
        for file in self.rest.chunk_by(|one, other| one.file == other.file) {
            html.put("div", &[("class", "quote")], |html| {
                html.line("p", "", file.first().map_or("", |it| &it.file));
                html.put("pre", &[("tabindex", "0")], |html| {
                    for it in file {
                        let id = self.id(&it.file, it.line);
                        parts::numbered(html, it.line, false, id.as_deref(), |html| html.words(&it.text));
                    }
                });
            });
        }
    }
}
