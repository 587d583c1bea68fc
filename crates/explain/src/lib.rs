//! Explains a name or a pasted line: rules, variables, machines, GPUs, terms, codes and lines of logs.
//!
//! The answer is data; `report` writes it.

#![forbid(unsafe_code)]

mod hardware;
mod line;
mod similar;

use fabric::{glossary, variable};

pub use similar::similar;

/// An explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Its kind.
    pub kind: Kind,
    /// Its name and what it is, in one line.
    pub title: String,
    /// The sections, in order.
    pub sections: Vec<Section>,
    /// The sources.
    pub sources: Vec<String>,
}

/// The kinds of things that can be explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule of doctor or lint, by its id.
    Rule,
    /// An environment variable.
    Variable,
    /// A machine of the catalogue.
    Machine,
    /// A model of GPU.
    Gpu,
    /// A term of the field.
    Term,
    /// A code: an error, a status, a signal.
    Value,
    /// A line of a log.
    Line,
}

/// A heading and its paragraphs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// One or two words; empty if the text needs no heading.
    pub heading: &'static str,
    /// At least one, and none is empty.
    pub paragraphs: Vec<String>,
}

impl Explanation {
    fn new(kind: Kind, title: String) -> Self {
        Self { kind, title, sections: Vec::new(), sources: Vec::new() }
    }

    /// Adds a section of one paragraph, unless it is empty.
    fn add(&mut self, heading: &'static str, text: impl AsRef<str>) {
        self.add_all(heading, [text]);
    }

    /// Adds a section.
    fn add_all(&mut self, heading: &'static str, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        let paragraphs = paragraphs(texts);
        if !paragraphs.is_empty() {
            self.sections.push(Section { heading, paragraphs });
        }
    }
}

fn paragraphs(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    texts.into_iter().map(|it| it.as_ref().trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

/// The explanations of `asked`; empty if it is unknown, several if several parsers read a line.
///
/// A rule's id is tried first, then a variable, a machine, a GPU, a term, a code, and last a line of a log.
pub fn explain(asked: &str) -> Vec<Explanation> {
    let asked = asked.trim();
    let named = rule(asked)
        .or_else(|| of_variable(asked))
        .or_else(|| hardware::machine(asked))
        .or_else(|| hardware::gpu(asked))
        .or_else(|| term(asked));
    match named {
        Some(found) => vec![found],
        None => match line::value(asked) {
            codes if codes.is_empty() => line::explain(asked),
            codes => codes,
        },
    }
}

fn rule(id: &str) -> Option<Explanation> {
    let rule = rules::find(id)?;
    let text = rule.text();
    let kind = match () {
        () if rule.log().is_some() => "rule",
        () if rule.submission().is_some() => "rule of lint",
        () => "rule of node",
    };
    let title = format!("{}: {} ({kind}, {})", rule.id, text.title, rule.severity.name());
    let mut it = Explanation::new(Kind::Rule, title);
    it.add("why", text.why);
    it.add("fix", text.fix);
    it.add_all("reads", rule.needs.iter().map(|it| it.how_to_get()));
    it.sources = paragraphs(rule.references);
    Some(it)
}

fn of_variable(name: &str) -> Option<Explanation> {
    // `NCCL_DEBUG=INFO` means the variable.
    let name = name.split('=').next().unwrap_or(name).trim_start_matches("export ").trim();
    let known = variable::find(name).or_else(|| variable::find(&name.to_ascii_uppercase()))?;
    let read_by = known.read_by.name();
    let mut it = Explanation::new(Kind::Variable, format!("{} (variable, read by {read_by})", known.name));
    it.add("meaning", &known.effect);
    it.add("values", known.kind.description());
    let history = if known.default_history.is_empty() {
        String::new()
    } else {
        format!(" (by release: {})", known.default_history)
    };
    it.add("default", format!("{}{history}", known.default));
    let since = if known.since.is_empty() { String::new() } else { format!("since {}", known.since) };
    let status = [known.status.to_string(), since];
    it.add("status", status.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", "));
    it.add("instead", known.instead.as_deref().unwrap_or_default());
    for advice in &known.advice {
        let versions: Vec<String> = advice.versions.iter().map(ToString::to_string).collect();
        let versions =
            if versions.is_empty() { String::new() } else { format!(" [{}]", versions.join(", ")) };
        it.add("advice", format!("{}{versions} ({})", advice.when_not_to_set, advice.source));
    }
    it.sources = paragraphs([&known.source]);
    Some(it)
}

fn term(name: &str) -> Option<Explanation> {
    let term = glossary::find(name)?;
    let also =
        if term.aliases.is_empty() { String::new() } else { format!(" (also: {})", term.aliases.join(", ")) };
    let mut it = Explanation::new(Kind::Term, format!("{}{also}", term.name));
    it.add("", term.text);
    Some(it)
}

#[cfg(test)]
mod tests {
    use super::{Kind, explain};

    #[test]
    fn explains_every_sort_of_thing() {
        for (asked, kind, want) in [
            ("duplicate-gpu", Kind::Rule, "two ranks use the same GPU"),
            ("shm-small", Kind::Rule, "rule of lint"),
            ("NCCL_BUFFSIZE", Kind::Variable, "variable"),
            ("export NCCL_DEBUG=INFO", Kind::Variable, "NCCL_DEBUG"),
            ("p4d.24xlarge", Kind::Machine, "8 x A100"),
            ("DGX H100", Kind::Machine, "NVSwitch"),
            ("NVIDIA H100 80GB HBM3", Kind::Gpu, "BF16 989"),
            ("PXN", Kind::Term, "PXN"),
            ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", Kind::Line, "not a fault"),
            (
                "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000",
                Kind::Line,
                "duplicate-gpu",
            ),
        ] {
            let found = explain(asked);
            assert!(found.first().is_some_and(|it| it.kind == kind), "{asked}: {found:#?}");
            assert!(format!("{found:?}").contains(want), "{asked}: {found:#?}");
        }
        assert!(explain("the moon").is_empty());
    }

    #[test]
    fn what_is_said_has_its_source() {
        for asked in ["duplicate-gpu", "NCCL_BUFFSIZE", "p4d.24xlarge", "dgx-h100", "H100"] {
            assert!(!explain(asked)[0].sources.is_empty(), "{asked}");
        }
    }
}
