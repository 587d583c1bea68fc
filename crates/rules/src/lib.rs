//! Rules that read a [`Case`] and report [`Finding`]s.
//!
//! A rule is one file with one [`Rule`] static and one function. It sees facts
//! only: it does no I/O, holds no state and never formats for a screen. To add
//! one, write the file and enter it in its family's list; see CONTRIBUTING.md.

#![forbid(unsafe_code)]

pub mod application;
pub mod blocked;
pub mod efa;
pub mod hardware;
pub mod ib;
pub mod interface;
pub mod job;
pub mod launch;
pub mod limits;
pub mod lint;
pub mod nvswitch;
pub mod p2p;
pub mod performance;
pub mod topology;
pub mod versions;

mod checklist;
mod culprit;
mod diagnosis;
mod expectation;
mod summary;
mod verdict;

#[cfg(test)]
mod testing;

use evidence::{Case, Missing, Quote, Sighting, Source};

pub use checklist::{Check, State, checklist};
pub use culprit::{FirstFailure, first_failure};
pub use diagnosis::{Diagnosed, Diagnosis, diagnose};
pub use summary::{Summary, driver, summary};
pub use verdict::{Level, Verdict, problems, verdict};

/// A rule: what it is, why it matters, what to do, and how it is checked.
#[derive(Debug)]
pub struct Rule {
    /// Stable kebab-case name. It is printed and linked to.
    pub id: &'static str,
    /// One line, lowercase, naming the problem rather than the remedy.
    pub title: &'static str,
    /// The severity of its findings unless one says otherwise.
    pub severity: Severity,
    /// Whether it names a cause or what follows from one.
    pub role: Role,
    /// The facts it reads.
    pub needs: &'static [Source],
    /// What is wrong and what it costs.
    pub why: &'static str,
    /// What to do about it: the exact setting or command.
    pub fix: &'static str,
    /// Where this is documented by others.
    pub references: &'static [&'static str],
    /// Reads the case. `Missing` means not checked, never "fine".
    pub check: fn(&Case) -> Result<Vec<Finding>, Missing>,
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Costs performance, or will cost it.
    Warning,
    /// Breaks the job or wastes most of the hardware.
    Error,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// One of several explanations; the input cannot decide.
    Possible,
    /// The usual cause of what was seen.
    Likely,
    /// The input says so itself.
    Certain,
}

/// Causes are reported before what follows from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Something to repair.
    Cause,
    /// What others notice when something broke.
    Consequence,
}

/// One problem, with the evidence that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The sentence that states the problem with its numbers.
    pub message: String,
    /// Where this finding differs from its rule's severity.
    pub severity: Option<Severity>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Lines that show it, the most telling first.
    pub evidence: Vec<Quote>,
    /// Why it matters here, where that is more exact than the rule's text.
    pub why: Option<String>,
    /// What to do here, where that is more exact than the rule's text.
    pub fix: Option<String>,
    /// What it is about.
    pub entities: Vec<Entity>,
    /// Ids of other rules whose cause the same lines can have.
    pub also: Vec<&'static str>,
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    /// `rank`, `host`, `gpu`, `nic`, `variable`, `communicator`, ...
    pub kind: &'static str,
    /// Its name.
    pub name: String,
}

impl Finding {
    /// A finding without evidence yet.
    pub fn new(confidence: Confidence, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            severity: None,
            confidence,
            evidence: Vec::new(),
            why: None,
            fix: None,
            entities: Vec::new(),
            also: Vec::new(),
        }
    }

    /// How many lines of evidence a finding carries at most.
    pub const EVIDENCE_LIMIT: usize = 5;

    /// Adds a line of evidence.
    #[must_use]
    pub fn seen(mut self, quote: &Quote) -> Self {
        if self.evidence.len() < Self::EVIDENCE_LIMIT && !self.evidence.contains(quote) {
            self.evidence.push(quote.clone());
        }
        self
    }

    /// Adds lines of evidence.
    #[must_use]
    pub fn seen_all<'a>(self, quotes: impl IntoIterator<Item = &'a Quote>) -> Self {
        quotes.into_iter().fold(self, Self::seen)
    }

    /// Sets the severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = Some(severity);
        self
    }

    /// Sets why it matters here.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Sets what to do here.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds what it is about.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given as they come")]
    pub fn about(mut self, kind: &'static str, name: impl ToString) -> Self {
        let entity = Entity { kind, name: name.to_string() };
        if !entity.name.is_empty() && self.entities.len() < 64 && !self.entities.contains(&entity) {
            self.entities.push(entity);
        }
        self
    }

    /// Adds another cause the same lines can have.
    #[must_use]
    pub fn or(mut self, id: &'static str) -> Self {
        self.also.push(id);
        self
    }

    /// Adds the rank and host of each sighting.
    #[must_use]
    pub fn by(self, case: &Case, sightings: &[&Sighting]) -> Self {
        sightings.iter().fold(self, |it, sighting| {
            let it = it.seen(&sighting.quote);
            let it = match case.rank_of(sighting) {
                Some(rank) => it.about("rank", rank),
                None => it,
            };
            match &sighting.process {
                Some(id) => it.about("host", &id.host),
                None => it,
            }
        })
    }
}

/// Every family of rules.
static FAMILIES: &[&[&Rule]] = &[
    application::RULES,
    blocked::RULES,
    efa::RULES,
    hardware::RULES,
    ib::RULES,
    interface::RULES,
    job::RULES,
    launch::RULES,
    limits::RULES,
    nvswitch::RULES,
    p2p::RULES,
    performance::RULES,
    topology::RULES,
    versions::RULES,
];

/// Every rule, sorted by id.
pub fn all() -> Vec<&'static Rule> {
    let mut rules: Vec<&Rule> = FAMILIES.iter().flat_map(|it| it.iter().copied()).collect();
    rules.sort_by_key(|it| it.id);
    rules
}

/// The rule with this id.
pub fn find(id: &str) -> Option<&'static Rule> {
    all().into_iter().find(|it| it.id == id)
}

impl Severity {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Confidence {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Likely => "likely",
            Self::Certain => "certain",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evidence::Case;

    use super::all;

    #[test]
    fn ids_are_unique_and_kebab_case() {
        let mut ids = BTreeSet::new();
        for rule in all() {
            assert!(ids.insert(rule.id), "two rules are called {}", rule.id);
            assert!(
                rule.id.chars().all(|c| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit()),
                "{}",
                rule.id
            );
        }
    }

    #[test]
    fn rules_say_not_checked_when_they_see_nothing() {
        for rule in all() {
            let Err(missing) = (rule.check)(&Case::default()) else {
                panic!("{} passes an empty case: return Missing instead", rule.id);
            };
            assert!(
                rule.needs.contains(&missing.0),
                "{} asks for {:?}, which it does not list in `needs`",
                rule.id,
                missing.0
            );
        }
    }

    #[test]
    fn rules_are_documented() {
        for rule in all() {
            assert!(rule.why.len() > 40, "{}: say why it matters", rule.id);
            assert!(rule.fix.len() > 20, "{}: say what to do", rule.id);
            assert!(!rule.references.is_empty(), "{}: name a source", rule.id);
            assert!(
                !rule.title.ends_with('.') && rule.title.len() <= 90,
                "{}: a title is a short phrase",
                rule.id
            );
            assert!(
                rule.title.chars().next().is_some_and(
                    |c| !c.is_uppercase() || rule.title.chars().nth(1).is_some_and(char::is_uppercase)
                ),
                "{}: a title begins in lower case",
                rule.id
            );
        }
    }

    #[test]
    fn other_causes_exist() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut named = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for id in text.split(".or(\"").skip(1).filter_map(|it| it.split('"').next()) {
                    named += 1;
                    assert!(super::find(id).is_some(), "{}: no rule is called {id}", path.display());
                }
            }
        }
        assert!(named > 10, "the search finds nothing: has `or` another name now?");
    }
}
