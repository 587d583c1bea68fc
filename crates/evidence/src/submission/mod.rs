//! What is submitted to a cluster: manifests, scripts, settings, before anything runs.
//!
//! ```text
//! text -> kind, by content -> Tree (YAML, JSON) or lines (scripts) -> Submission: pods, settings, commands, each with its position
//! ```
//!
//! The pod template is found in one place, `pod`, whatever kind of object carries it.

mod command;
mod config_map;
mod launch;
mod pod;
mod quantity;
pub mod resource;
mod sbatch;
mod script;
mod trainjob;
mod words;

pub use launch::{Launch, Launcher, OptionValue};
pub use pod::{
    Container, Flag, InstanceName, Located, Mount, NodeSelector, Pod, Toleration, Volume, VolumeSource,
    Workload,
};
pub use quantity::Quantity;
pub use resource::{Resource, ResourceKind, Vendor};
pub use sbatch::{Directive, Directives};
pub use words::{Word, words};

use serde::Serialize;

use crate::yaml::{NodeId, Span, Tree, Trouble};

/// One file, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Its name, as it was given.
    pub name: Box<str>,
    /// Its text.
    pub text: Box<str>,
    /// What it is.
    pub kind: Kind,
    /// Its values, where it is YAML or JSON.
    pub tree: Tree,
    /// Kubernetes objects that carry pods.
    pub workloads: Vec<Workload>,
    /// Other objects, by their root: node pools, services, DeepSpeed settings.
    pub objects: Vec<Object>,
    /// Environment variables, wherever they are set: `env` of a container, a command, a script, a file of settings.
    pub settings: Vec<Setting>,
    /// Commands that start ranks, wherever they are.
    pub launches: Vec<Launch>,
    /// `#SBATCH` options of a script for Slurm.
    pub directives: Directives,
    /// Whether the file begins with a byte order mark, which the text is without.
    pub byte_order_mark: bool,
    /// Where each line begins.
    lines: Vec<usize>,
    /// How many characters are before every [`STEP`]th byte.
    characters: Vec<usize>,
}

/// Bytes between two counts of characters: a column of a very long line costs no more than this.
const STEP: usize = 1024;

/// A number and where it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// The number.
    pub value: u64,
    /// Its position in the file.
    pub span: Span,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Objects for Kubernetes.
    Kubernetes,
    /// Settings of DeepSpeed.
    DeepSpeed,
    /// A script for Slurm.
    Sbatch,
    /// Another shell script.
    Script,
    /// A Dockerfile.
    Dockerfile,
    /// Lines of `NAME=value`.
    Environment,
    /// YAML or JSON of another kind.
    Other,
}

/// A document without pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// `NodePool`, `Service`, ...; empty where none is given.
    pub kind: Box<str>,
    /// `metadata.name`
    pub name: Option<Box<str>>,
    /// Its root.
    pub root: NodeId,
}

/// An environment variable.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: Box<str>,
    /// Its value, where it is literal.
    pub value: Option<Box<str>>,
    /// Where its name is.
    pub name_span: Span,
    /// Where its value is, quotes included.
    pub value_span: Option<Span>,
    /// The whole entry, which can be removed: a list item, an assignment, a line.
    pub span: Span,
    /// Which pod and container it belongs to, by their indices in [`Submission::workloads`].
    pub owner: Option<Owner>,
    /// How it is written.
    pub written: Written,
}

/// A container, by the indices of workload, pod and container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Of [`Submission::workloads`].
    pub workload: usize,
    /// Of [`Workload::pods`].
    pub pod: usize,
    /// Of [`Pod::containers`].
    pub container: usize,
}

/// How a variable is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// `- name: X` and `value: Y` of a container.
    Env,
    /// `X: Y` in a mapping, as in a `ConfigMap`, an `env:` of Ray or of a launcher.
    Entry,
    /// `export X=Y`, `X=Y command`, `-x X=Y`, `--env X=Y` in a command or script.
    Command,
    /// `ENV X=Y` of a Dockerfile, or a line of a file of settings.
    Line,
}

impl Submission {
    /// Reads a text. The error says where it cannot be read.
    pub fn read(name: &str, text: &str) -> Result<Self, Trouble> {
        let without = text.strip_prefix('\u{feff}');
        let byte_order_mark = without.is_some();
        let text = without.unwrap_or(text);
        let mut it = Self {
            name: name.into(),
            text: text.into(),
            kind: script::kind(name, text),
            tree: Tree::default(),
            workloads: Vec::new(),
            objects: Vec::new(),
            settings: Vec::new(),
            launches: Vec::new(),
            directives: Directives::default(),
            byte_order_mark,
            lines: std::iter::once(0).chain(text.match_indices('\n').map(|it| it.0 + 1)).collect(),
            characters: counts(text),
        };
        match it.kind {
            Kind::Sbatch | Kind::Script | Kind::Dockerfile | Kind::Environment => {
                script::read(&mut it);
                return Ok(it);
            }
            Kind::Kubernetes | Kind::DeepSpeed | Kind::Other => {}
        }
        it.tree = Tree::read(text).map_err(|trouble| template(text, trouble))?;
        pod::read(&mut it);
        config_map::read(&mut it);
        if it.workloads.is_empty() && it.objects.iter().all(|object| object.kind.is_empty()) {
            let settings = ["zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"];
            let deepspeed = it
                .tree
                .documents
                .iter()
                .any(|root| settings.iter().any(|name| it.tree.get(*root, name).is_some()));
            it.kind = if deepspeed { Kind::DeepSpeed } else { Kind::Other };
        } else {
            it.kind = Kind::Kubernetes;
        }
        Ok(it)
    }

    /// The container a setting or command belongs to.
    pub fn container(&self, owner: Owner) -> Option<&Container> {
        self.workloads.get(owner.workload)?.pods.get(owner.pod)?.containers.get(owner.container)
    }

    /// All pods with the workload that carries them.
    pub fn pods(&self) -> impl Iterator<Item = (&Workload, &Pod)> {
        self.workloads.iter().flat_map(|workload| workload.pods.iter().map(move |pod| (workload, pod)))
    }

    /// The position of a part of the text, by its bytes.
    pub fn span(&self, range: std::ops::Range<usize>) -> Span {
        let line = self.lines.partition_point(|it| *it <= range.start).max(1);
        let begin = self.lines.get(line - 1).copied().unwrap_or(0);
        let column = self.characters_before(range.start).saturating_sub(self.characters_before(begin)) + 1;
        Span { range, line, column }
    }

    fn characters_before(&self, byte: usize) -> usize {
        let byte = byte.min(self.text.len());
        let step = byte / STEP;
        let rest = self.text.as_bytes().get(step * STEP..byte).unwrap_or_default();
        self.characters.get(step).copied().unwrap_or_default() + begun(rest)
    }

    /// The text of a line, from 1, without its end.
    pub fn line(&self, number: usize) -> &str {
        let begin =
            number.checked_sub(1).and_then(|it| self.lines.get(it)).copied().unwrap_or(self.text.len());
        let end = self.lines.get(number).copied().unwrap_or(self.text.len());
        let line = self.text.get(begin..end).unwrap_or_default();
        let line = line.strip_suffix('\n').unwrap_or(line);
        line.strip_suffix('\r').unwrap_or(line)
    }
}

/// How many characters begin in these bytes.
fn begun(bytes: &[u8]) -> usize {
    bytes.iter().filter(|it| **it & 0xc0 != 0x80).count()
}

fn counts(text: &str) -> Vec<usize> {
    let mut before = 0;
    let mut counts = vec![0];
    for step in text.as_bytes().chunks(STEP) {
        before += begun(step);
        counts.push(before);
    }
    counts
}

/// Adds a hint where the text that cannot be read is an unrendered template.
fn template(text: &str, mut trouble: Trouble) -> Trouble {
    let line = text.lines().nth(trouble.line.saturating_sub(1)).unwrap_or_default();
    if text.contains("{{") || line.contains("${") || line.contains("%{") {
        trouble
            .text
            .push_str("; it looks like a template: render it first and give the result to `plumb lint -`");
    }
    trouble
}

#[cfg(test)]
mod tests {
    use super::Submission;

    #[test]
    fn columns_count_characters() {
        let text = format!("# {}\na: {}x\n", "ü".repeat(700), "값".repeat(900));
        let it = Submission::read("a.yaml", &text).unwrap();
        let at = text.find('x').unwrap();
        let span = it.span(at..at + 1);
        assert_eq!((span.line, span.column), (2, 904));
        assert_eq!(it.span(0..0).column, 1);
        assert_eq!(it.span(text.len()..text.len()).line, 3);
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let it = Submission::read("a.yaml", "a: 1\r\n\nb: 2").unwrap();
        let lines: Vec<&str> = (0..6).map(|number| it.line(number)).collect();
        assert_eq!(lines, ["", "a: 1", "", "b: 2", "", ""]);
    }
}
