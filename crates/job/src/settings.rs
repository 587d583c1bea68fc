//! Environment variables of a job: their values, who set each and for whom.

use evidence::submission::Owner;

use crate::known::Source;

/// An environment variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// `NCCL_DEBUG`
    pub name: Box<str>,
    /// Its value; none where something else fills it in later (`valueFrom`, `$X`, a template).
    pub value: Option<Box<str>>,
    /// Who set it.
    pub setter: Setter,
    /// For whom it holds.
    pub scope: Scope,
    /// Where that is to be seen.
    pub source: Source,
}

/// Who set a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setter {
    /// Whoever started the process: NCCL found it in its environment.
    Job,
    /// A network plugin, inside the process.
    Plugin,
    /// A manifest, a script or a file of settings.
    Submission,
    /// Somebody who pasted it beside a log.
    Note,
    /// A flag of plumb's command line.
    Flag,
}

/// For whom a variable holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For all ranks, as far as the source says.
    Job,
    /// For one process, by its position in `evidence::Case::processes`.
    Process(usize),
    /// For one container of a submitted file, by the file's position.
    Container {
        /// The file.
        file: usize,
        /// The container.
        owner: Owner,
    },
    /// For one submitted file without containers: a script, a file of settings.
    File(usize),
}

/// The variables of a job, in the order of their sources: logs, then files, then notes, then flags.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Every occurrence; one name may occur often.
    pub variables: Vec<Variable>,
}

impl Settings {
    /// Every occurrence of a name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Variable> {
        self.variables.iter().filter(move |it| &*it.name == name)
    }
}
