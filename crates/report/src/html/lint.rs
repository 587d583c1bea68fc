//! The page of `plumb lint`.

use std::cmp::Reverse;
use std::io;

use evidence::submission::Kind;
use rules::Severity;

use super::View;
use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use crate::lint::Lint;
use crate::text::counted;
use crate::{Finding, Style};

impl View for Lint {
    fn page(&self) -> Page {
        let mut page = Page::new("lint", self.schema);
        let counts = [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Info, "note")];
        let worst = self.findings.iter().map(|it| it.severity).max();
        let unread = self.files.iter().filter(|it| it.problem.is_some()).count();
        page.tone = match worst {
            Some(Severity::Error) => Tone::Bad,
            Some(Severity::Warning) => Tone::Warning,
            _ if unread > 0 => Tone::Unknown,
            _ => Tone::Good,
        };
        page.worst = worst;
        page.undecided = self.is_undecided();
        let first = self.findings.iter().find(|it| Some(it.severity) == worst);
        page.verdict = match first.filter(|it| it.severity > Severity::Info) {
            Some(it) => it.message.clone(),
            None if unread > 0 => format!("{} could not be read", counted(unread, "file")),
            None => "nothing wrong was found".to_owned(),
        };
        worst.filter(|it| *it > Severity::Info).map_or("ok", Severity::name).clone_into(&mut page.word);
        if unread > 0 && worst.is_none() {
            "unknown".clone_into(&mut page.word);
        }
        let found: Vec<String> = counts.map(|(it, name)| counted(self.count(it), name)).to_vec();
        page.about = vec![format!("{} in {}", found.join(", "), counted(self.files.len(), "file"))];
        page.title = page.about.join(" ");
        // The most severe first, then by file and place.
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|it| Reverse(it.severity));
        if !findings.is_empty() {
            page.section("findings", "Findings", |html| {
                for (at, it) in findings.iter().enumerate() {
                    parts::finding(html, at + 1, it, |html| {
                        it.evidence.iter().for_each(|it| parts::quote(html, it));
                    });
                }
            });
        }
        let rows: Vec<Vec<Cell>> = self
            .files
            .iter()
            .map(|it| {
                let state = match &it.problem {
                    Some(problem) => {
                        Cell::new(format!("line {}: {}", problem.line, problem.text)).toned(Tone::Bad)
                    }
                    None => {
                        let own = |of: &&&Finding| of.evidence.iter().any(|of| of.file == it.file);
                        let cell = Cell::new(counted(findings.iter().filter(own).count(), "finding"));
                        match findings.iter().position(|it| own(&it)) {
                            Some(at) => cell.linked(format!("#finding-{}", at + 1)),
                            None => cell,
                        }
                    }
                };
                let kind = it.kind.map_or("", kind);
                let numbers = [it.pods, it.settings, it.launches].map(|it| Cell::new(it.to_string()));
                [vec![Cell::code(it.file.clone()), Cell::new(kind)], numbers.into(), vec![state]]
                    .into_iter()
                    .flatten()
                    .collect()
            })
            .collect();
        page.section("files", "Files", |html| {
            let columns = [
                Column::Text("file"),
                Column::Text("kind"),
                Column::Number("pods"),
                Column::Number("variables"),
                Column::Number("launch commands"),
                Column::Text("result"),
            ];
            parts::table(html, "What was read", &columns, &rows);
        });
        page
    }

    fn to_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        self.json(out)
    }

    fn to_text(&self, style: Style, out: &mut Vec<u8>) -> io::Result<()> {
        crate::lint::text(self, style, out)
    }
}

fn kind(it: Kind) -> &'static str {
    match it {
        Kind::Kubernetes => "Kubernetes",
        Kind::DeepSpeed => "DeepSpeed",
        Kind::Sbatch => "sbatch",
        Kind::Script => "shell script",
        Kind::Dockerfile => "Dockerfile",
        Kind::Environment => "variables",
        Kind::Other => "other",
    }
}
