//! `plumb explain`: a rule, a variable, a word, a machine, a GPU or a line of a log, in plain text.

mod hardware;

use std::fmt;

use evidence::prefix::Anchor;
use evidence::{nccl, signals};
use fabric::{catalogue, glossary, gpu, variable};

use crate::text::wrap;

/// How wide an answer may be.
const WIDTH: usize = 100;

/// What is known about `asked`, or `None`.
///
/// A rule's id is tried first, then a variable, a machine, a GPU, a word, and
/// last a line of a log.
pub fn explain(asked: &str) -> Option<String> {
    let asked = asked.trim();
    rule(asked)
        .or_else(|| of_variable(asked))
        .or_else(|| hardware::machine(asked))
        .or_else(|| hardware::gpu(asked))
        .or_else(|| word(asked))
        .or_else(|| line(asked))
}

/// Names close to what was asked, for a hint.
pub fn similar(asked: &str) -> Vec<String> {
    let asked = asked.trim().to_ascii_lowercase();
    if asked.len() < 3 {
        return Vec::new();
    }
    let rules = rules::all().iter().map(|it| it.id.to_owned());
    let words = glossary::all().iter().map(|it| it.name.to_owned());
    let models = gpu::all().iter().map(|it| it.name.clone());
    let machines = catalogue::suggest(&asked).into_iter().map(str::to_owned);
    let named = rules.chain(words).chain(models).filter(|it| it.to_ascii_lowercase().contains(&asked));
    let mut found: Vec<String> = named.chain(machines).take(6).collect();
    found.extend(variable::suggest(&asked.to_ascii_uppercase()).map(|it| it.name.clone()));
    found
}

fn rule(id: &str) -> Option<String> {
    let rule = rules::find(id)?;
    let text = rule.text();
    let kind = if rule.log().is_some() { "rule" } else { "rule of lint" };
    let mut page = Page::new(format!("{}: {} ({kind}, {})", rule.id, text.title, rule.severity.name()));
    page.add("why", text.why);
    page.add("fix", text.fix);
    page.add_all("reads", rule.needs.iter().map(|it| it.how_to_get()));
    page.add_all("sources", rule.references.iter().copied());
    Some(page.to_string())
}

fn of_variable(name: &str) -> Option<String> {
    // `NCCL_DEBUG=INFO` asks for the variable.
    let name = name.split('=').next().unwrap_or(name).trim_start_matches("export ").trim();
    let it = variable::find(name).or_else(|| variable::find(&name.to_ascii_uppercase()))?;
    let read_by = if it.read_by.is_empty() { String::new() } else { format!(", read by {}", it.read_by) };
    let mut page = Page::new(format!("{} (variable{read_by})", it.name));
    page.add("meaning", &it.effect);
    page.add("values", &it.kind);
    let history = if it.default_history.is_empty() {
        String::new()
    } else {
        format!(" (by release: {})", it.default_history)
    };
    page.add("default", format!("{}{history}", it.default));
    let seen = if it.since.is_empty() { String::new() } else { format!("since {}", it.since) };
    let status = [it.status.as_str(), &seen];
    page.add("status", status.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", "));
    if let Some(instead) = &it.instead {
        page.add("instead", instead);
    }
    for advice in &it.advice {
        let versions: Vec<String> = advice.versions.iter().map(ToString::to_string).collect();
        let versions =
            if versions.is_empty() { String::new() } else { format!(" [{}]", versions.join(", ")) };
        page.add("advice", format!("{}{versions} ({})", advice.when_not_to_set, advice.source));
    }
    page.add("source", &it.source);
    Some(page.to_string())
}

fn word(word: &str) -> Option<String> {
    let term = glossary::find(word)?;
    let also =
        if term.aliases.is_empty() { String::new() } else { format!(" (also: {})", term.aliases.join(", ")) };
    Some(format!("{}{also}\n\n{}\n", term.name, wrap(term.text, 98).join("\n")))
}

fn line(asked: &str) -> Option<String> {
    let split = Anchor::default().split(asked.as_bytes());
    let message = split.map_or(asked.as_bytes(), |it| it.message);
    let mut pages = Vec::new();
    if let Some(kind) = nccl::describe(message) {
        let writer = if kind.example.starts_with("NET/OFI ") { "aws-ofi-nccl" } else { "NCCL" };
        let mut page = Page::new(format!("a line of {writer}"));
        page.add("printed", kind.since);
        page.add("like", kind.example);
        page.add("meaning", kind.meaning);
        pages.push(page);
    }
    for found in signals::book().find(asked.as_bytes()) {
        let mut page = Page::new(format!("a line that plumb looks for: {}", found.signal.name));
        page.add("printed by", found.signal.source);
        page.add("meaning", found.signal.meaning);
        for (name, value) in &found.captures {
            page.add(name, String::from_utf8_lossy(value));
        }
        pages.push(page);
    }
    // The rules say what it means for a job.
    let case = evidence::read_texts([("line", asked.as_bytes())]);
    let diagnosis = rules::diagnose(&case);
    let ids: Vec<String> = diagnosis
        .findings
        .iter()
        .filter(|it| it.rule.id != "unexplained-warning")
        .map(|it| format!("{} ({}, {})", it.rule.id, it.severity().name(), it.finding.confidence.name()))
        .collect();
    if !ids.is_empty() {
        if pages.is_empty() {
            pages.push(Page::new("a line of a log".to_owned()));
        }
        if let Some(last) = pages.last_mut() {
            last.add_all("alone gives", ids);
        }
    }
    let texts: Vec<String> = pages.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// A title, and below it names with their texts in two columns.
struct Page {
    title: String,
    rows: Vec<(String, Vec<String>)>,
}

impl Page {
    fn new(title: String) -> Self {
        Self { title, rows: Vec::new() }
    }

    /// Adds a row; an empty text is left out.
    fn add(&mut self, name: &str, text: impl AsRef<str>) {
        self.add_all(name, [text]);
    }

    /// Adds a row of several texts, each on lines of its own.
    fn add_all(&mut self, name: &str, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        let texts = texts.into_iter().map(|it| it.as_ref().trim().to_owned()).filter(|it| !it.is_empty());
        let texts: Vec<String> = texts.collect();
        if !texts.is_empty() {
            self.rows.push((name.to_owned(), texts));
        }
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        let column = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let room = WIDTH.saturating_sub(column + 4);
        for (name, texts) in &self.rows {
            let mut name = name.as_str();
            for text in texts {
                // Of several texts, the second line of one must not look like the next.
                let deeper = if texts.len() > 1 { "  " } else { "" };
                for (i, line) in wrap(text, room - deeper.len()).iter().enumerate() {
                    let deeper = if i == 0 { "" } else { deeper };
                    writeln!(f, "  {name:column$}  {deeper}{line}")?;
                    name = "";
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fabric::{catalogue, gpu};

    use super::{WIDTH, explain, similar};

    #[test]
    fn explains_every_sort_of_thing() {
        for (asked, want) in [
            ("duplicate-gpu", "two ranks use the same GPU"),
            ("NCCL_BUFFSIZE", "variable"),
            ("p4d.24xlarge", "8 x A100"),
            ("DGX H100", "NVSwitch"),
            ("NVIDIA H100 80GB HBM3", "BF16 989"),
            ("PXN", "PXN"),
            ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "no fault"),
            ("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000", "duplicate-gpu"),
        ] {
            let text = explain(asked).unwrap_or_else(|| panic!("{asked} is not known"));
            assert!(text.contains(want), "{asked}: {text}");
        }
        assert_eq!(explain("the moon"), None);
    }

    #[test]
    fn hints_at_similar_names() {
        for (asked, want) in [
            ("duplicate", "duplicate-gpu"),
            ("p5.24xlarge", "p5.48xlarge"),
            ("a100", "A100-PCIE-40GB"),
            ("dgx-h10", "dgx-h100"),
        ] {
            assert!(similar(asked).contains(&want.to_owned()), "{asked}: {:?}", similar(asked));
        }
    }

    #[test]
    fn no_answer_is_wider_than_a_terminal() {
        let machines = catalogue::names().map(str::to_owned);
        for asked in machines.chain(gpu::all().iter().map(|it| it.name.clone())) {
            let text = explain(&asked).unwrap();
            // Only a word too long for its column may stick out: a path of a source.
            let wide = text.lines().filter(|it| it.chars().count() > WIDTH);
            for line in wide {
                assert!(line.trim().rsplit("  ").next().is_some_and(|it| !it.contains(' ')), "{line}");
            }
            assert!(!text.lines().any(|it| it.ends_with(' ')), "{text}");
        }
    }
}
