//! The page of `plumb env`.

use std::io;

use manifest::environment::Action;

use super::View;
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use crate::{Env, Style};

impl View for Env {
    fn page(&self) -> Page {
        let mut page = Page::new("env", self.schema);
        page.title = self.subject();
        page.verdict = self.verdict();
        page.tone = if self.lines(Action::Remove).next().is_some() { Tone::Warning } else { Tone::Plain };
        page.about = vec![self.subject()];
        let lists = [
            (Action::Set, "set", "Set"),
            (Action::Remove, "remove", "Remove"),
            (Action::Leave, "leave", "Leave unset"),
        ];
        for (action, id, title) in lists {
            if self.lines(action).next().is_none() {
                continue;
            }
            let rows: Vec<Vec<Cell>> = self
                .lines(action)
                .map(|it| {
                    let value = it.value.clone().unwrap_or_default();
                    vec![
                        Cell::code(it.name.clone()),
                        if value.is_empty() { Cell::new("") } else { Cell::code(value) },
                        Cell::new(it.reason.clone()),
                        Cell::new(it.source.clone()),
                    ]
                })
                .collect();
            page.section(id, title, |html| {
                let columns = ["variable", "value", "why", "source"].map(Column::Text);
                parts::table(html, title, &columns, &rows);
                if action != Action::Leave {
                    let mut shell = Vec::new();
                    // A Vec takes everything.
                    if self.sh(&mut shell).is_ok() {
                        parts::code(html, "the lines for a shell", &String::from_utf8_lossy(&shell));
                    }
                }
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
