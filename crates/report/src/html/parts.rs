//! What several views show: tables, quotes, findings, things to copy, things to choose from.

use std::collections::BTreeMap;

use rules::Confidence;

use super::element::Html;
use super::page::Tone;
use crate::text::counted;
use crate::{Evidence, Excerpt, Finding, NotChecked};

/// How the values of a column are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column<'a> {
    /// At the left.
    Text(&'a str),
    /// At the right, with digits of one width.
    Number(&'a str),
}

impl<'a> Column<'a> {
    fn name(self) -> &'a str {
        let (Self::Text(name) | Self::Number(name)) = self;
        name
    }
}

/// A cell of a table.
#[derive(Debug, Default)]
pub struct Cell {
    text: String,
    class: &'static str,
    code: bool,
    link: Option<String>,
    below: Option<String>,
}

impl Cell {
    /// A text; what stands between backticks is code.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A name, a value or a path.
    pub fn code(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: true, ..Self::default() }
    }

    /// With the colour of a verdict.
    #[must_use]
    pub fn toned(self, tone: Tone) -> Self {
        Self { class: tone.class(), ..self }
    }

    /// With a text on a line of its own below.
    #[must_use]
    pub fn below(self, text: Option<String>) -> Self {
        Self { below: text, ..self }
    }

    /// As a link to an address of the web or of this page.
    #[must_use]
    pub fn linked(self, address: impl Into<String>) -> Self {
        Self { link: Some(address.into()), ..self }
    }

    fn write(&self, html: &mut Html) {
        match (&self.link, self.code) {
            (Some(address), _) => html.link(address, &self.text),
            (None, true) => html.line("code", "", &self.text),
            (None, false) => html.prose(&self.text),
        }
        if let Some(below) = &self.below {
            // The blank is for those who copy or hear it.
            html.words(" ");
            html.line("span", "below", below);
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// The most characters of a column whose cells stay on one line.
const SHORT: usize = 18;
/// A text of more characters needs more room than a column of a phone has: a row becomes a block there.
const LONG: usize = 28;
/// A table of more columns is set narrower.
const DENSE: usize = 9;

/// A table with a caption. The first cell of a row is its heading.
pub fn table(html: &mut Html, caption: &str, columns: &[Column<'_>], rows: &[Vec<Cell>]) {
    let longest = |at: usize| rows.iter().filter_map(|it| it.get(at)).map(|it| it.text.chars().count()).max();
    let longest: Vec<usize> = (0..columns.len()).map(|at| longest(at).unwrap_or(0)).collect();
    let class = |at: usize| match columns.get(at) {
        Some(Column::Number(_)) => "number",
        Some(Column::Text(_)) if longest.get(at).is_some_and(|it| *it <= SHORT) => "short",
        _ => "",
    };
    let stacked = longest.iter().any(|it| *it > LONG);
    let kind = match () {
        () if columns.len() > DENSE => "dense",
        () if stacked => "stacked",
        () => "",
    };
    let region = html.region(caption, "table");
    html.put(
        "div",
        &[("class", "wide"), ("tabindex", "0"), ("role", "region"), ("aria-label", &region)],
        |html| {
            html.put("table", &[("class", kind)], |html| {
                html.put("caption", &[], |html| html.words(caption));
                html.put("thead", &[], |html| {
                    html.put("tr", &[], |html| {
                        for (at, it) in columns.iter().enumerate() {
                            // Heads of many columns are broken, unless they are as short as `GPU0`.
                            let class = if kind == "dense" && it.name().len() > 6 { "" } else { class(at) };
                            html.put("th", &[("scope", "col"), ("class", class)], |html| {
                                html.words(it.name());
                            });
                        }
                    });
                });
                html.put("tbody", &[], |html| {
                    for row in rows {
                        html.put("tr", &[], |html| {
                            for (at, it) in row.iter().enumerate() {
                                let class = [class(at), it.class].join(" ");
                                let class = ("class", class.trim());
                                let name = columns.get(at).map_or("", |it| it.name());
                                match at {
                                    0 => html.put("th", &[("scope", "row"), class], |html| it.write(html)),
                                    // A block of a phone has no heads of columns.
                                    _ if kind == "stacked" && !it.text.is_empty() => {
                                        html.put("td", &[class, ("data-name", name)], |html| it.write(html));
                                    }
                                    _ => html.put("td", &[class], |html| it.write(html)),
                                }
                            }
                        });
                    }
                });
            });
        },
    );
}

/// Names and what is known of them.
pub fn facts(html: &mut Html, rows: &[(&str, String)]) {
    html.put("dl", &[("class", "facts")], |html| {
        for (name, value) in rows {
            html.put("div", &[], |html| {
                html.line("dt", "", name);
                html.put("dd", &[], |html| html.prose(value));
            });
        }
    });
}

/// A list of texts.
pub fn list<'a>(html: &mut Html, items: impl IntoIterator<Item = &'a str>) {
    html.put("ul", &[], |html| {
        for it in items {
            html.put("li", &[], |html| html.prose(it));
        }
    });
}

/// A button that copies a text. `what` is what it copies, for a screen reader: `the fix of shm-small`.
pub fn copy(html: &mut Html, what: &str, text: &str) {
    let label = format!("Copy {what}");
    html.put(
        "button",
        &[("type", "button"), ("class", "copy"), ("data-copy", text), ("aria-label", &label)],
        |html| {
            html.words("Copy");
        },
    );
}

/// A command or a text to copy, as it is.
pub fn code(html: &mut Html, what: &str, text: &str) {
    html.put("div", &[("class", "code")], |html| {
        html.put("pre", &[("tabindex", "0")], |html| html.line("code", "", text));
        copy(html, what, text);
    });
}

/// The answer for a ticket.
pub(super) fn ticket(html: &mut Html, markdown: &str) {
    html.put("div", &[("class", "ticket")], |html| {
        html.put("button", &[("type", "button"), ("class", "copy"), ("data-copy", markdown)], |html| {
            html.words("Copy for a ticket");
        });
        more(html, "what is copied: Markdown without names, addresses and paths", |html| {
            html.put("pre", &[("tabindex", "0")], |html| html.line("code", "", markdown));
        });
    });
}

/// What is shown on request.
pub fn more(html: &mut Html, summary: &str, inner: impl FnOnce(&mut Html)) {
    html.put("details", &[], |html| {
        html.line("summary", "", summary);
        inner(html);
    });
}

/// Several parts of which one is shown at a time; without scripts and in print all of them. `draw` draws the part of a number.
pub fn choice(html: &mut Html, label: &str, names: &[String], mut draw: impl FnMut(&mut Html, usize)) {
    html.put("div", &[("class", "choice")], |html| {
        html.put("label", &[], |html| {
            html.words(label);
            html.words(" ");
            html.put("select", &[], |html| {
                for name in names {
                    html.put("option", &[], |html| html.words(name));
                }
            });
        });
        for (at, name) in names.iter().enumerate() {
            html.put("div", &[("class", "option"), ("role", "group"), ("aria-label", name)], |html| {
                html.line("p", "name", name);
                draw(html, at);
            });
        }
    });
}

/// A line of a file with its place, and the part of it that matters underlined.
pub fn quote(html: &mut Html, it: &Evidence) {
    quote_in(html, it, None, &[]);
}

/// The same with an id for links to it, and with the lines around it on request, where an excerpt has them.
pub fn quote_in(html: &mut Html, it: &Evidence, id: Option<&str>, excerpts: &[Excerpt]) {
    let holds = |excerpt: &&Excerpt| {
        let count = u64::try_from(excerpt.lines.len()).unwrap_or(u64::MAX);
        excerpt.file == it.file
            && excerpt.lines.len() > 1
            && (excerpt.first..excerpt.first.saturating_add(count)).contains(&it.line)
    };
    let around = excerpts.iter().find(holds);
    html.put("div", &[("class", "quote")], |html| {
        html.line("p", "", &place(it));
        if !it.text.is_empty() {
            html.put("pre", &[("tabindex", "0")], |html| {
                numbered(html, it.line, true, id, |html| marked(html, it));
            });
        }
        let Some(around) = around else { return };
        more(html, "lines around it", |html| {
            html.put("pre", &[("tabindex", "0")], |html| {
                for (number, line) in (around.first..).zip(&around.lines) {
                    numbered(html, number, number == it.line, None, |html| html.words(line));
                }
            });
        });
    });
}

/// A line with its number.
pub(super) fn numbered(
    html: &mut Html,
    number: u64,
    hit: bool,
    id: Option<&str>,
    inner: impl FnOnce(&mut Html),
) {
    let class = ("class", if hit { "row hit" } else { "row" });
    let with_id = id.map(|id| [class, ("id", id)]);
    html.put("span", with_id.as_ref().map_or(&[class][..], |it| it), |html| {
        html.line("span", "n", &number.to_string());
        inner(html);
    });
}

/// The text of a line, its relevant part underlined, with the label of that part after it.
fn marked(html: &mut Html, it: &Evidence) {
    let Some(span) = &it.span else { return html.words(&it.text) };
    let at = |column: u64| {
        let count = usize::try_from(column.saturating_sub(1)).unwrap_or(usize::MAX);
        it.text.char_indices().nth(count).map_or(it.text.len(), |it| it.0)
    };
    let start = at(span.column);
    let end = if span.end_line > it.line { it.text.len() } else { at(span.end_column).max(start) };
    html.words(it.text.get(..start).unwrap_or_default());
    html.line("mark", "", it.text.get(start..end).unwrap_or_default());
    html.words(it.text.get(end..).unwrap_or_default());
    if !span.label.is_empty() {
        html.words("   ");
        html.line("span", "soft", &format!("\u{2190} {}", span.label));
    }
}

/// File and line.
pub fn place(it: &Evidence) -> String {
    match &it.span {
        Some(span) => format!("{}:{}:{}", it.file, it.line, span.column),
        None => format!("{}:{}", it.file, it.line),
    }
}

/// A finding of any command. `number` counts from 1 and makes its address in the page.
pub fn finding(html: &mut Html, number: usize, it: &Finding, quotes: impl FnOnce(&mut Html)) {
    let tone = Tone::from(it.severity).class();
    let id = format!("finding-{number}");
    let heading = format!("{id}-heading");
    let attributes = [("class", &*format!("finding {tone}")), ("id", &id), ("aria-labelledby", &heading)];
    html.put("article", &attributes, |html| {
        html.put("h3", &[("id", &heading)], |html| {
            let name = if it.severity == rules::Severity::Info { "note" } else { it.severity.name() };
            html.line("span", "word", name);
            html.words(" ");
            html.prose(&it.message);
        });
        html.put("p", &[("class", "soft")], |html| {
            html.line("code", "", &it.id);
            html.words(": ");
            html.words(&it.title);
            if it.confidence != Confidence::Certain {
                html.words(&format!(" ({})", it.confidence.name()));
            }
        });
        quotes(html);
        let cost = it.cost.map(|it| match (it.normal, it.here) {
            (Some(normal), Some(here)) => {
                format!("{}x slower: {here} GB/s instead of {normal} (all-reduce, large messages)", it.factor)
            }
            _ => format!("{}x slower (all-reduce, large messages)", it.factor),
        });
        let mut rows = Vec::new();
        rows.extend(cost.map(|it| ("costs", it)));
        rows.extend(it.price.as_ref().map(|it| ("time", it.words())));
        rows.push(("why", it.why.clone()));
        if !it.also.is_empty() {
            rows.push(("or", format!("the same lines can mean {}", it.also.join(", "))));
        }
        facts(html, &rows);
        if !it.fix.is_empty() {
            html.put("div", &[("class", "fix")], |html| {
                html.put("p", &[], |html| {
                    html.line("b", "", "Fix: ");
                    html.prose(&it.fix);
                    if it.fixable {
                        html.prose(" `plumb lint --fix` does it.");
                    }
                });
                copy(html, &format!("the fix of {}", it.id), &it.fix);
            });
        }
        if !it.references.is_empty() {
            let title = counted(it.references.len(), "source");
            more(html, &title, |html| {
                html.put("ul", &[], |html| {
                    for it in &it.references {
                        html.put("li", &[], |html| html.link(it, it));
                    }
                });
            });
        }
    });
}

/// Rules that could not be checked, by what they need.
pub fn not_checked(html: &mut Html, all: &[NotChecked]) {
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for it in all {
        needs.entry(&it.needs).or_default().push(&it.id);
    }
    if needs.is_empty() {
        return;
    }
    let rule = |it: &&str| format!("`{it}`");
    let row = |(need, ids): (&str, Vec<&str>)| {
        let ids: Vec<String> = ids.iter().map(rule).collect();
        vec![Cell::new(need), Cell::new(ids.join(", "))]
    };
    let rows: Vec<Vec<Cell>> = needs.into_iter().map(row).collect();
    let columns = ["what to add", "rules that need it"].map(Column::Text);
    let caption = format!("{} not checked, and how to check them", counted(all.len(), "rule"));
    table(html, &caption, &columns, &rows);
}
