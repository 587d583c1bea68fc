//! Environment variables of a job: their values, who set each and for whom.

use std::collections::BTreeMap;

use evidence::Quote;
use evidence::submission::Owner;
use fabric::Version;

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
    /// Whether NCCL reported that it reads it.
    pub read_by_nccl: bool,
    /// Where that is written.
    pub source: Source,
}

impl Variable {
    /// Its value, as it is written; empty where something else fills it in.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// The line of a log that shows it.
    pub fn quote(&self) -> Option<&Quote> {
        self.source.quote()
    }

    /// Whether a process of the job was seen to have it.
    pub fn is_logged(&self) -> bool {
        matches!(self.scope, Scope::Process(_))
    }
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
    /// A note pasted beside a log.
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

    /// The variables that NCCL read, in the order of the processes.
    pub fn read_by_nccl(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter().filter(|it| it.read_by_nccl)
    }

    /// The variables that NCCL read in each process, by the process's position in `evidence::Case::processes`. A process
    /// that read none is not listed.
    pub fn by_process(&self) -> BTreeMap<usize, Vec<&Variable>> {
        let mut all: BTreeMap<usize, Vec<&Variable>> = BTreeMap::new();
        for it in self.read_by_nccl() {
            if let Scope::Process(at) = it.scope {
                all.entry(at).or_default().push(it);
            }
        }
        all
    }

    /// Adds a variable of the command line, which counts more than all others.
    pub fn add_flag(&mut self, flag: &'static str, name: &str, value: &str) {
        self.variables.push(Variable {
            name: name.into(),
            value: Some(value.into()),
            setter: Setter::Flag,
            scope: Scope::Job,
            read_by_nccl: false,
            source: Source::Flag(flag),
        });
    }

    /// What NCCL of this release sees; of the newest that plumb knows, where none is known.
    ///
    /// Of several values of one variable the first counts, flags before what logs show, that before submitted files, and
    /// those before notes. A value that something fills in later does not count.
    pub fn effective(&self, nccl: Option<Version>) -> fabric::Settings {
        let mut found: BTreeMap<&str, (u8, &str)> = BTreeMap::new();
        for it in &self.variables {
            let Some(value) = it.value.as_deref() else { continue };
            let order = match it.setter {
                Setter::Flag => 0,
                Setter::Job | Setter::Plugin => 1,
                Setter::Submission => 2,
                Setter::Note => 3,
            };
            // The last of several flags counts, as for most programs.
            let replaces = |known: &(u8, &str)| order < known.0 || (order == 0 && known.0 == 0);
            if found.get(&*it.name).is_none_or(replaces) {
                found.insert(&it.name, (order, value));
            }
        }
        let release = fabric::Settings::new(nccl.unwrap_or(fabric::Settings::NEWEST));
        found.into_iter().fold(release, |settings, (name, (_, value))| settings.with(name, value))
    }
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::{Scope, Setter, Settings, Variable};
    use crate::known::Source;

    #[test]
    fn flags_then_logs_then_files_then_notes() {
        let variable = |name: &str, value: Option<&str>, setter| Variable {
            name: name.into(),
            value: value.map(Into::into),
            setter,
            scope: Scope::Job,
            read_by_nccl: false,
            source: Source::Default,
        };
        let mut settings = Settings {
            variables: vec![
                variable("NCCL_NET", Some("Socket"), Setter::Note),
                variable("NCCL_NET", Some("IB"), Setter::Job),
                variable("NCCL_NET", Some("AWS Libfabric"), Setter::Job),
                variable("NCCL_ALGO", None, Setter::Job),
                variable("NCCL_ALGO", Some("Ring"), Setter::Submission),
                variable("NCCL_DEBUG", Some("INFO"), Setter::Job),
            ],
        };
        settings.add_flag("--env", "NCCL_DEBUG", "WARN");
        settings.add_flag("--env", "NCCL_DEBUG", "TRACE");
        let seen = settings.effective(Some(Version::new(2, 27, 3)));
        assert_eq!(seen.version, Version::new(2, 27, 3));
        let texts = ["NCCL_NET", "NCCL_ALGO", "NCCL_DEBUG"].map(|it| seen.text(it));
        assert_eq!(texts, [Some("IB"), Some("Ring"), Some("TRACE")]);
        assert_eq!(Settings::default().effective(None), fabric::Settings::default());
    }
}
