//! What a script requests from Slurm: its `#SBATCH` lines.

use super::{Count, Kind, Submission, words};
use crate::yaml::Span;

/// One option of a `#SBATCH` line.
#[derive(Debug, Clone, PartialEq)]
pub struct Directive {
    /// Its long name without `--`.
    pub name: Box<str>,
    /// Its value; empty where it has none.
    pub value: Box<str>,
    /// Option and value.
    pub span: Span,
}

/// The options of a script, in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directives(pub Vec<Directive>);

impl Directives {
    /// All options up to the first command, where Slurm stops reading too. A job of several kinds of nodes has none that hold
    /// for all.
    pub(super) fn read(submission: &Submission) -> Self {
        let mut all = Vec::new();
        if submission.kind != Kind::Sbatch {
            return Self(all);
        }
        let mut at = 0;
        for line in submission.text.split_inclusive('\n') {
            let start = at;
            at += line.len();
            if let Some(rest) = line.strip_prefix("#SBATCH").filter(|it| it.starts_with([' ', '\t'])) {
                if rest.trim() == "hetjob" || rest.trim() == "packjob" {
                    return Self::default();
                }
                options(submission, rest, start + "#SBATCH".len(), &mut all);
            } else if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
                break;
            }
        }
        Self(all)
    }

    /// The last option of this name, which counts.
    pub fn find(&self, name: &str) -> Option<&Directive> {
        self.0.iter().rev().find(|it| &*it.name == name)
    }

    /// An option that is a number.
    pub fn number(&self, name: &str) -> Option<Count> {
        let it = self.find(name)?;
        Some(Count { value: it.value.parse().ok()?, span: it.span.clone() })
    }

    /// How many nodes it requests.
    pub fn nodes(&self) -> Option<Count> {
        self.number("nodes")
    }

    /// How many GPUs it requests on each node.
    pub fn gpus_per_node(&self) -> Option<Count> {
        // `8`, `h100:8`
        let last = |text: &str| text.rsplit(':').next().and_then(|it| it.parse::<u64>().ok());
        let count = |value, it: &Directive| Some(Count { value, span: it.span.clone() });
        if let Some(it) = self.find("gpus-per-node") {
            return count(last(&it.value)?, it);
        }
        if let Some(it) = self.find("gres") {
            let gpu = it.value.split(',').find(|it| it.split(':').next() == Some("gpu"))?;
            return count(if gpu == "gpu" { 1 } else { last(gpu)? }, it);
        }
        if let Some(it) = self.find("gpus-per-task") {
            let tasks = self.number("ntasks-per-node")?.value;
            return count(last(&it.value)?.saturating_mul(tasks), it);
        }
        let it = self.find("gpus")?;
        let (all, nodes) = (last(&it.value)?, self.nodes()?.value);
        count(all.checked_div(nodes).filter(|_| all % nodes == 0)?, it)
    }
}

fn options(submission: &Submission, text: &str, base: usize, all: &mut Vec<Directive>) {
    let mut words = words(text, base).into_iter().flatten().peekable();
    while let Some(word) = words.next() {
        let (name, value) = match word.text.strip_prefix("--") {
            Some(long) => long.split_once('=').unwrap_or((long, "")),
            None => match word.text.strip_prefix('-').and_then(|it| Some((it.chars().next()?, it))) {
                Some((letter, rest)) => (long(letter), rest.get(letter.len_utf8()..).unwrap_or_default()),
                None => continue,
            },
        };
        let (mut value, mut range) = (Box::<str>::from(value), word.range.clone());
        if value.is_empty()
            && !word.text.contains('=')
            && let Some(next) = words.next_if(|it| !it.text.starts_with('-'))
        {
            range.end = next.range.end;
            value = next.text;
        }
        let name = if name == "tasks-per-node" { "ntasks-per-node" } else { name };
        all.push(Directive { name: name.into(), value, span: submission.span(range) });
    }
}

fn long(letter: char) -> &'static str {
    match letter {
        'N' => "nodes",
        'n' => "ntasks",
        'G' => "gpus",
        'p' => "partition",
        'c' => "cpus-per-task",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::submission::Submission;

    #[test]
    fn lines_for_slurm_are_read() {
        let text = "#!/bin/bash\n#SBATCH -N 4 --gres=gpu:a100:8 # all\n##SBATCH --nodes=9\n#SBATCH --exclusive\necho\n#SBATCH --nodes=7\n";
        let it = Submission::read("job.sbatch", text).unwrap().directives;
        let gpus = it.gpus_per_node().unwrap();
        assert_eq!((it.nodes().unwrap().value, gpus.value), (4, 8));
        assert!(it.find("exclusive").is_some());
        assert_eq!(&text[gpus.span.range], "--gres=gpu:a100:8");
        for (line, expected) in [
            ("--nodes=2 --gpus=16", Some(8)),
            ("--gpus-per-node=h100:4", Some(4)),
            ("--tasks-per-node=2 --gpus-per-task=4", Some(8)),
            ("-G 8", None),
            ("--gres=shard:2", None),
        ] {
            let it = Submission::read("job", &format!("#!/bin/sh\n#SBATCH {line}\nsrun x\n")).unwrap();
            assert_eq!(it.directives.gpus_per_node().map(|it| it.value), expected, "{line}");
        }
    }
}
