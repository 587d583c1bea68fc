//! The page of `plumb validate`.

use std::io;

use rules::Severity;

use super::page::{Page, Tone};
use super::parts::{self, Cell, Column};
use super::{Html, View};
use crate::Style;
use crate::expect::shown;
use crate::text::{bytes, counted};
use crate::validate::{Accused, Launch, Matrix, Stage, Test, Validate, bandwidth, class_percent, percent};

/// Slow pairs that are listed below the matrix.
const PAIRS: usize = 200;

impl View for Validate {
    fn page(&self) -> Page {
        let mut page = Page::new("validate", self.schema);
        page.title.clone_from(&self.text);
        let (word, tone) = match self.verdict {
            "go" => ("GO", Tone::Good),
            "no-go" => ("NO-GO", Tone::Bad),
            _ => ("INCONCLUSIVE", Tone::Unknown),
        };
        page.tone = tone;
        word.clone_into(&mut page.word);
        let sentence = self.text.strip_prefix(word).unwrap_or(&self.text);
        sentence.trim_start_matches([':', ' ']).clone_into(&mut page.verdict);
        page.about.push(self.source.clone());
        page.worst = self.is_no_go().then_some(Severity::Error);
        page.undecided = !self.is_go() && !self.is_no_go();
        if let Some(next) = &self.next {
            page.section("next", "What to do now", |html| {
                html.line("p", "", &next.text);
                parts::code(html, "the command", &next.command);
            });
        }
        if !self.findings.is_empty() || !self.splits.is_empty() {
            page.section("suspects", "Findings", |html| suspects(html, self));
        }
        if !self.stages.is_empty() {
            page.section("stages", "Stages", |html| stages(html, &self.stages));
        }
        if let Some(matrix) = &self.matrix {
            page.section("matrix", "Pairs of machines", |html| pairs(html, self, matrix));
        }
        if !self.tests.is_empty() {
            page.section("tests", "Tests", |html| tests(html, &self.tests));
        }
        if !self.launches.is_empty() {
            page.section("launches", "Launches", |html| launches(html, &self.launches));
        }
        if !self.notes.is_empty() || !self.not_known.is_empty() {
            page.section("notes", "Notes, and what is not known", |html| {
                parts::list(html, self.notes.iter().map(String::as_str));
                let unknown: Vec<Vec<Cell>> =
                    self.not_known.iter().map(|it| vec![Cell::new(it.clone())]).collect();
                if !unknown.is_empty() {
                    parts::table(html, "Not known, and why", &[Column::Text("what")], &unknown);
                }
            });
        }
        if let Some(results) = &self.results {
            page.about.push(format!("every measurement is in {results}"));
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

fn suspects(html: &mut Html, validate: &Validate) {
    for (at, it) in validate.findings.iter().enumerate() {
        suspect(html, at + 1, it, end_of_link(validate, it));
    }
    for (at, it) in validate.splits.iter().enumerate() {
        let id = format!("split-{}-heading", at + 1);
        html.put("article", &[("class", "finding bad"), ("aria-labelledby", &id)], |html| {
            html.put("h3", &[("id", &id)], |html| {
                html.line("span", "word", "tier");
                html.words(&format!(" {}", it.test));
            });
            let rows = [
                (
                    "seen",
                    format!(
                        "{} pairs across reach {} of what pairs inside do: another switch, rail or block lies between them",
                        it.across,
                        percent(it.share)
                    ),
                ),
                ("do", "keep a job inside one group, or check the links between these switches".to_owned()),
            ];
            parts::facts(html, &rows);
            let groups = it.groups.iter().enumerate();
            let rows: Vec<Vec<Cell>> = groups
                .map(|(at, it)| vec![Cell::new((at + 1).to_string()), Cell::new(it.len().to_string()), Cell::code(it.join(", "))])
                .collect();
            let columns = [Column::Number("group"), Column::Number("machines"), Column::Text("names")];
            parts::table(html, &format!("Groups of {}", it.test), &columns, &rows);
        });
    }
}

/// Which end of a slow link to take out: the measurements do not prefer one, and the verdict names only one of them.
fn end_of_link(validate: &Validate, link: &Accused) -> Option<String> {
    let [one, other] = &link.hosts[..] else { return None };
    if link.class != "link" {
        return None;
    }
    let by_itself =
        |host: &&String| validate.findings.iter().any(|it| it.class != "link" && it.hosts.contains(host));
    if let Some(host) = [one, other].into_iter().find(by_itself) {
        return Some(format!("`{host}` is taken out anyway, and this link with it"));
    }
    let named = |host: &&String| validate.text.split([' ', ',', ':', ';']).any(|it| it == host.as_str());
    let which = match ([one, other].into_iter().filter(named).collect::<Vec<_>>()).as_slice() {
        [host] => format!("; the verdict takes out `{host}`, the later of the two in the list of machines"),
        _ => String::new(),
    };
    Some(format!("either will do: both are normal with other machines, so one of the two is enough{which}"))
}

fn suspect(html: &mut Html, number: usize, it: &Accused, end_of_link: Option<String>) {
    let id = format!("suspect-{number}");
    let heading = format!("{id}-heading");
    let attributes = [("class", "finding bad"), ("id", &*id), ("aria-labelledby", &heading)];
    html.put("article", &attributes, |html| {
        html.put("h3", &[("id", &heading)], |html| {
            html.line("span", "word", it.class);
            html.words(" ");
            html.line("code", "", &it.hosts.join(", "));
        });
        let mut rows = vec![("seen", it.text.clone())];
        rows.extend(it.remark.clone().map(|it| ("but", it)));
        rows.extend(end_of_link.map(|it| ("which end", it)));
        rows.extend(it.rule.clone().map(|it| ("rule", format!("`{it}`"))));
        if !it.tests.is_empty() {
            rows.push(("in", it.tests.join(", ")));
        }
        parts::facts(html, &rows);
        if it.of > 0 {
            let chance = if it.chance > 0.0 { format!("{:.1e}", it.chance) } else { String::new() };
            let mut row = vec![
                Cell::new(percent(it.share)),
                Cell::new(format!("{} of {}", it.slow.saturating_sub(it.failed), it.of)),
                Cell::new(it.failed.to_string()),
                Cell::new(chance),
            ];
            let mut columns = vec![
                Column::Number("share of normal (median)"),
                Column::Number("slow measurements"),
                Column::Number("failed"),
                Column::Number("probability by chance"),
            ];
            if let Some(nic) = it.nic {
                row.push(Cell::new(nic.to_string()));
                columns.push(Column::Number("NIC"));
            }
            parts::table(html, &format!("Evidence about {}", it.hosts.join(", ")), &columns, &[row]);
        }
        html.put("div", &[("class", "fix")], |html| {
            html.put("p", &[], |html| {
                html.line("b", "", "Do: ");
                html.prose(&it.action);
            });
            parts::copy(html, &format!("what to do about {}", it.hosts.join(", ")), &it.action);
        });
    });
}

fn stages(html: &mut Html, all: &[Stage]) {
    let tone = |verdict: &str| match verdict {
        "ok" => Tone::Good,
        "low" | "failed" | "found" => Tone::Bad,
        "open" => Tone::Warning,
        _ => Tone::Unknown,
    };
    let row = |it: &Stage| {
        vec![
            Cell::new(it.number.to_string()),
            Cell::new(it.name),
            Cell::new(it.verdict).toned(tone(it.verdict)),
            Cell::new(it.text.clone()),
        ]
    };
    let rows: Vec<Vec<Cell>> = all.iter().map(row).collect();
    let columns = [
        Column::Number("stage"),
        Column::Text("name"),
        Column::Text("verdict"),
        Column::Text("what was seen"),
    ];
    parts::table(html, "Stages of the validation, in order", &columns, &rows);
}

fn pairs(html: &mut Html, validate: &Validate, matrix: &Matrix) {
    html.line(
        "p",
        "soft",
        &format!(
            "{}: shares of {}, which most pairs reach. Numbers are percent.",
            matrix.test,
            bandwidth(matrix.normal)
        ),
    );
    for (what, picture) in validate.pictures(matrix) {
        html.line("p", "", &what);
        html.picture("matrix", &picture);
    }
    let host = |at: usize| validate.hosts.get(at).cloned().unwrap_or_default();
    let mut slow: Vec<_> = matrix.pairs.iter().filter(|it| it.slow).collect();
    slow.sort_by(|a, b| {
        a.share.unwrap_or(0.0).total_cmp(&b.share.unwrap_or(0.0)).then(a.hosts.cmp(&b.hosts))
    });
    let measured = counted(matrix.pairs.len(), "pair");
    if slow.is_empty() {
        return html.line("p", "", &format!("{measured} were measured, none of them is slow."));
    }
    let rows: Vec<Vec<Cell>> = slow
        .iter()
        .take(PAIRS)
        .map(|it| {
            vec![
                Cell::code(format!("{} \u{2013} {}", host(it.hosts[0]), host(it.hosts[1]))),
                Cell::new(it.share.map_or_else(|| "failed".to_owned(), class_percent)).toned(Tone::Bad),
                Cell::new(it.share.map(|it| bandwidth(it * matrix.normal)).unwrap_or_default()),
            ]
        })
        .collect();
    let title = match slow.len().checked_sub(PAIRS) {
        Some(more) if more > 0 => format!("{} slow of {measured}; the slowest {PAIRS}", slow.len()),
        _ => format!("{} slow of {measured}", slow.len()),
    };
    parts::more(html, &title, |html| {
        let columns =
            [Column::Text("pair"), Column::Number("share of normal"), Column::Number("bus bandwidth")];
        parts::table(html, "Slow pairs, the slowest first", &columns, &rows);
    });
}

fn tests(html: &mut Html, all: &[Test]) {
    let rate = |it: Option<f64>| it.map(shown).unwrap_or_default();
    let number = |it: usize| {
        let cell = Cell::new(it.to_string());
        if it > 0 { cell.toned(Tone::Bad) } else { cell }
    };
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .map(|it| {
            let expected = it.expected.as_ref();
            let normal =
                expected.map(|it| format!("{} to {} ({})", shown(it.low), shown(it.high), it.machine));
            let is_low = expected.zip(it.normal).is_some_and(|(known, here)| here < known.low);
            let reached = Cell::new(rate(it.normal));
            vec![
                Cell::new(it.name.clone()),
                Cell::new(bytes(it.bytes)),
                Cell::new(it.runs.to_string()),
                number(it.failed),
                number(it.slow.saturating_sub(it.failed)),
                if is_low { reached.toned(Tone::Warning) } else { reached },
                Cell::new(rate(it.lowest)),
                Cell::new(it.spread.map(percent).unwrap_or_default()),
                Cell::new(normal.unwrap_or_default()),
            ]
        })
        .collect();
    let columns = [
        Column::Text("test"),
        Column::Number("size"),
        Column::Number("runs"),
        Column::Number("failed"),
        Column::Number("slow"),
        Column::Number("most reach"),
        Column::Number("lowest"),
        Column::Number("spread"),
        Column::Text("plumb expects"),
    ];
    parts::table(
        html,
        "Kinds of runs, in GB/s of bus bandwidth; slow: at least 10 % below what most reach",
        &columns,
        &rows,
    );
}

fn launches(html: &mut Html, all: &[Launch]) {
    let rows: Vec<Vec<Cell>> = all
        .iter()
        .enumerate()
        .map(|(at, it)| {
            vec![
                Cell::new((at + 1).to_string()),
                Cell::new(it.stage),
                Cell::new(it.what.clone()),
                if it.ok { Cell::new("ok").toned(Tone::Good) } else { Cell::new("low").toned(Tone::Bad) },
                Cell::new(it.result.clone()),
            ]
        })
        .collect();
    let columns = [
        Column::Number("launch"),
        Column::Text("stage"),
        Column::Text("what ran"),
        Column::Text("verdict"),
        Column::Text("result"),
    ];
    let title = if all.len() == 1 { "one launch".to_owned() } else { format!("{} launches", all.len()) };
    parts::more(html, &title, |html| {
        parts::table(html, "Launches, in order", &columns, &rows);
    });
}
