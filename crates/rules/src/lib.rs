//! Rules that read a job's logs, what is submitted or the state of nodes, and report [`Finding`]s.
//!
//! A rule is one file with one [`Rule`] static and one function. It sees facts
//! only: it does no I/O, holds no state and never formats for a screen. To add
//! one, write the file and enter it in its family's list; see CONTRIBUTING.md.

#![forbid(unsafe_code)]

pub mod application;
pub mod blocked;
pub mod compare;
pub mod cuda;
pub mod decisions;
pub mod efa;
pub mod general;
pub mod hardware;
pub mod ib;
pub mod interface;
pub mod launch;
pub mod limits;
#[expect(
    clippy::unnecessary_wraps,
    reason = "all checks have one signature; most submitted files lack nothing"
)]
pub mod lint;
pub mod network;
pub mod node;
pub mod nvswitch;
pub mod p2p;
pub mod performance;
pub mod recorder;
pub mod topology;
pub mod training;
pub mod versions;

mod checklist;
mod diagnosis;
mod expected;
mod finding;
mod log;
mod rule;
mod sentence;
mod stack;
mod summary;
mod verdict;

#[cfg(test)]
mod testing;

use std::sync::LazyLock;

pub use checklist::{ChecklistItem, State};
pub use diagnosis::{Diagnosis, Judged, Unchecked, check, conclude, diagnose};
pub use finding::{Cost, Edit, Entity, EntityKind, Evidence, Extent, Finding, Found, Rates};
pub use job::FirstFailure;
pub use log::Log;
pub use rule::{Check, Checked, Confidence, Role, Rule, Severity, Text};
pub use summary::{Summary, driver, summary};
pub use training::Price;
pub use verdict::{Level, Verdict};

/// Every family of rules.
static FAMILIES: &[&[&Rule]] = &[
    application::RULES,
    blocked::RULES,
    cuda::RULES,
    efa::RULES,
    hardware::RULES,
    ib::RULES,
    interface::RULES,
    general::RULES,
    launch::RULES,
    limits::RULES,
    lint::cluster::RULES,
    lint::deepspeed::RULES,
    lint::devices::RULES,
    lint::document::RULES,
    lint::launch::RULES,
    lint::pod::RULES,
    lint::settings::RULES,
    lint::suppression::RULES,
    network::RULES,
    node::RULES,
    nvswitch::RULES,
    p2p::RULES,
    performance::RULES,
    recorder::RULES,
    topology::RULES,
    versions::RULES,
];

/// Sorted by id.
static REGISTRY: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| {
    let mut rules: Vec<&Rule> = FAMILIES.iter().flat_map(|it| it.iter().copied()).collect();
    rules.sort_by_key(|it| it.id);
    rules
});

/// Every rule, sorted by id.
pub fn all() -> &'static [&'static Rule] {
    &REGISTRY
}

/// The rule with this id.
pub fn find(id: &str) -> Option<&'static Rule> {
    let at = REGISTRY.binary_search_by(|it| it.id.cmp(id)).ok()?;
    REGISTRY.get(at).copied()
}

/// The text of the rule with this id. Only English is written so far.
pub fn text(id: &str) -> Option<Text> {
    find(id).map(Rule::text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evidence::Case;

    use super::{Log, all, find, text};

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
    fn a_rule_has_one_check_for_each_kind_of_input() {
        for rule in all() {
            let kinds: BTreeSet<_> =
                rule.checks.iter().map(std::mem::discriminant).map(|it| format!("{it:?}")).collect();
            assert!(kinds.len() == rule.checks.len() && !kinds.is_empty(), "{}", rule.id);
            assert!(std::ptr::eq(find(rule.id).unwrap(), *rule) && text(rule.id) == Some(rule.text()));
        }
        assert!(find("no-such-rule").is_none());
    }

    #[test]
    fn rules_say_not_checked_when_they_see_nothing() {
        for rule in all() {
            let Some(check) = rule.log() else { continue };
            let Err(missing) = check(&Log::new(Case::default())) else {
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
            assert!(rule.fix.len() >= 10, "{}: say what to do", rule.id);
            assert!(rule.id == "unused-allow" || !rule.references.is_empty(), "{}: name a source", rule.id);
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
                    assert!(find(id).is_some(), "{}: no rule is called {id}", path.display());
                }
            }
        }
        assert!(named > 10, "the search finds nothing: has `or` another name now?");
    }
}
