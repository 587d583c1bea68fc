//! Lines that report a problem, a setting or a fact, whichever program printed them.
//!
//! A [`Signal`] is a set of templates, each the text of a real line with its
//! variable parts named in braces:
//!
//! ```text
//! Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {bus}
//! ```
//!
//! A template matches anywhere in a line. `{a}` takes text up to what follows
//! it in the template, or a word at the end; `{a...}` at the end takes the rest
//! of the line. A signal only says *what was printed*: judging it is the work
//! of a rule, and one line may be read by several rules.

pub(crate) mod place;
mod template;

pub mod application;
pub mod blocked;
pub mod collectives;
pub mod cuda;
pub mod efa;
pub mod ended;
pub mod hardware;
pub mod ib;
pub mod interface;
pub mod launch;
pub mod limits;
pub mod network;
pub mod notes;
pub mod nvswitch;
pub mod p2p;
pub mod performance;
pub mod rccl;
pub mod topology_file;
pub mod versions;

use std::sync::OnceLock;

pub(crate) use template::fold;
pub use template::{Book, Capture, Found};

use crate::source::{Kind, Quote};

/// A line worth knowing.
#[derive(Debug)]
pub struct Signal {
    /// A unique name.
    pub name: &'static str,
    /// The texts, one for each form it has had. [`Signal::texts`] has those of the catalogue too.
    pub templates: &'static [&'static str],
    /// Who prints it, and in which releases.
    pub source: &'static str,
    /// What it says.
    pub meaning: &'static str,
    /// The kind of input it belongs to, when it is not an NCCL line.
    pub kind: Kind,
}

impl Signal {
    /// All texts that are searched for: the templates, and for [`efa::MACHINE_NAMED`] the names in the catalogue.
    pub fn texts(&'static self) -> impl Iterator<Item = &'static str> {
        let names = (*self == efa::MACHINE_NAMED).then(efa::machine_names);
        self.templates.iter().copied().chain(names.into_iter().flatten())
    }
}

impl PartialEq for Signal {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Signal {}

/// The name of a process: ids are only unique on their host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessId {
    /// The host; empty where the line had lost its prefix.
    pub host: Box<str>,
    /// The process id there.
    pub pid: u32,
}

/// A signal found in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// Which.
    pub signal: &'static Signal,
    /// The named parts of the template.
    pub captures: Vec<Capture<Box<str>>>,
    /// The first such line.
    pub quote: Quote,
    /// How many lines were the same in all that is kept here.
    pub count: u64,
    /// The host and process that wrote it, if the line says so.
    pub process: Option<ProcessId>,
    /// The rank that wrote it, if a launcher or PyTorch says so (`[rank3]:`).
    pub rank: Option<u32>,
    /// The time of the line, as written.
    pub time: Option<Box<str>>,
    /// Whether NCCL wrote it as a warning.
    pub warning: bool,
}

impl Sighting {
    /// A named part of the template, empty if there is none of this name.
    pub fn get(&self, name: &str) -> &str {
        self.captures.iter().find(|it| it.name == name).map_or("", |it| &it.text)
    }

    /// A named part as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name).trim().parse().ok()
    }
}

/// All families of signals.
pub static FAMILIES: &[&[&Signal]] = &[
    collectives::ALL,
    ended::ALL,
    application::ALL,
    blocked::ALL,
    cuda::ALL,
    efa::ALL,
    hardware::ALL,
    ib::ALL,
    interface::ALL,
    launch::ALL,
    limits::ALL,
    network::ALL,
    notes::ALL,
    nvswitch::ALL,
    p2p::ALL,
    performance::ALL,
    rccl::ALL,
    topology_file::ALL,
    versions::ALL,
];

fn all() -> impl Iterator<Item = &'static Signal> {
    FAMILIES.iter().flat_map(|it| it.iter().copied())
}

/// The longest fixed text of every template: a line without it is not looked at.
pub(crate) fn fixed_texts() -> impl Iterator<Item = &'static str> {
    all().flat_map(Signal::texts).filter_map(template::longest_text)
}

/// All signals, ready to be searched for.
pub fn book() -> &'static Book {
    static BOOK: OnceLock<Book> = OnceLock::new();
    BOOK.get_or_init(|| Book::new(all()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{FAMILIES, book};

    #[test]
    fn names_are_unique_and_everything_is_documented() {
        let mut names = BTreeSet::new();
        for signal in FAMILIES.iter().flat_map(|it| it.iter()) {
            assert!(names.insert(signal.name), "two signals are called {}", signal.name);
            assert!(
                signal.texts().next().is_some() && !signal.source.is_empty() && !signal.meaning.is_empty(),
                "{}",
                signal.name
            );
        }
    }

    #[test]
    fn every_template_matches_itself() {
        for signal in FAMILIES.iter().flat_map(|it| it.iter()) {
            for template in signal.texts() {
                let line = template.replace("...}", "}").replace(['{', '}'], "");
                assert!(
                    book().find(line.as_bytes()).iter().any(|it| it.signal == *signal),
                    "{}: `{line}` is not found",
                    signal.name
                );
            }
        }
    }
}
