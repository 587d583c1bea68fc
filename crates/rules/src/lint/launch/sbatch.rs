//! What a script asks of Slurm: its `#SBATCH` lines.

use std::ops::Range;

use evidence::submission::{Kind, Submission, words};
use evidence::yaml::Span;

use super::scene::Count;

/// One option of a `#SBATCH` line.
#[derive(Debug, Clone)]
pub(super) struct Directive {
    /// Its long name without `--`.
    pub(super) name: Box<str>,
    /// Its value; empty where it has none.
    pub(super) value: Box<str>,
    /// Its bytes.
    range: Range<usize>,
}

impl Directive {
    /// Its place.
    pub(super) fn span(&self, submission: &Submission) -> Span {
        submission.span(self.range.clone())
    }
}

/// The most options that are read.
const MOST: usize = 200;

/// All options, up to the first command, where Slurm ends too. A job of several kinds of nodes has none that hold for all.
pub(super) fn directives(submission: &Submission) -> Vec<Directive> {
    let mut all = Vec::new();
    if submission.kind != Kind::Sbatch {
        return all;
    }
    let mut at = 0;
    for line in submission.text.split_inclusive('\n') {
        if all.len() >= MOST {
            break;
        }
        let start = at;
        at += line.len();
        if let Some(rest) = line.strip_prefix("#SBATCH").filter(|it| it.starts_with([' ', '\t'])) {
            if rest.trim() == "hetjob" || rest.trim() == "packjob" {
                return Vec::new();
            }
            options(rest, start + "#SBATCH".len(), &mut all);
        } else if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            break;
        }
    }
    all
}

fn options(text: &str, base: usize, all: &mut Vec<Directive>) {
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
        all.push(Directive { name: name.into(), value, range });
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

/// The last option of this name.
pub(super) fn directive(submission: &Submission, name: &str) -> Option<Directive> {
    directives(submission).into_iter().rev().find(|it| &*it.name == name)
}

/// An option that is a number.
pub(super) fn number(submission: &Submission, name: &str) -> Option<Count> {
    let it = directive(submission, name)?;
    Some(Count { value: it.value.parse().ok()?, span: it.span(submission) })
}

/// How many nodes it asks for.
pub(super) fn nodes(submission: &Submission) -> Option<Count> {
    number(submission, "nodes")
}

/// How many GPUs it asks for on each node.
pub(super) fn gpus(submission: &Submission) -> Option<Count> {
    // `8`, `h100:8`
    let last = |text: &str| text.rsplit(':').next().and_then(|it| it.parse::<u64>().ok());
    if let Some(it) = directive(submission, "gpus-per-node") {
        return Some(Count { value: last(&it.value)?, span: it.span(submission) });
    }
    if let Some(it) = directive(submission, "gres") {
        let gpu = it.value.split(',').find(|it| it.split(':').next() == Some("gpu"))?;
        let value = if gpu == "gpu" { 1 } else { last(gpu)? };
        return Some(Count { value, span: it.span(submission) });
    }
    let (per, count) = match directive(submission, "gpus-per-task") {
        Some(it) => (number(submission, "ntasks-per-node")?.value, it),
        None => (1, directive(submission, "gpus")?),
    };
    let value = last(&count.value)?;
    if &*count.name == "gpus-per-task" {
        return Some(Count { value: value.saturating_mul(per), span: count.span(submission) });
    }
    let nodes = nodes(submission)?.value;
    let each = value.checked_div(nodes).filter(|_| value % nodes == 0)?;
    Some(Count { value: each, span: count.span(submission) })
}

#[cfg(test)]
mod tests {
    use evidence::submission::Submission;

    use super::{directive, gpus, nodes};

    #[test]
    fn lines_for_slurm_are_read() {
        let text = "#!/bin/bash\n#SBATCH -N 4 --gres=gpu:a100:8 # all\n##SBATCH --nodes=9\n#SBATCH --exclusive\necho\n#SBATCH --nodes=7\n";
        let it = Submission::read("job.sbatch", text).unwrap();
        assert_eq!((nodes(&it).unwrap().value, gpus(&it).unwrap().value), (4, 8));
        assert!(directive(&it, "exclusive").is_some());
        assert_eq!(&text[gpus(&it).unwrap().span.range], "--gres=gpu:a100:8");
        for (line, expected) in [
            ("--nodes=2 --gpus=16", Some(8)),
            ("--gpus-per-node=h100:4", Some(4)),
            ("--tasks-per-node=2 --gpus-per-task=4", Some(8)),
            ("-G 8", None),
            ("--gres=shard:2", None),
        ] {
            let it = Submission::read("job", &format!("#!/bin/sh\n#SBATCH {line}\nsrun x\n")).unwrap();
            assert_eq!(gpus(&it).map(|it| it.value), expected, "{line}");
        }
    }
}
