//! The launches and variables of commands, wherever a shell would read them.

use std::ops::Range;

use super::launch::{Launch, Launcher, launcher};
use super::words::{Word, file_name, unquoted, words};
use super::{Owner, Setting, Submission, Written};
use crate::yaml::{Kind, NodeId};

/// Takes the variables and launches of one text of a shell, and of the text that it gives to another: `srun bash -c "..."`.
pub(super) fn take(submission: &mut Submission, text: &str, base: usize, owner: Option<Owner>) {
    for command in words(text, base) {
        take_command(submission, &command, owner);
        if let Some((inner, base)) = quoted(submission, &command) {
            for command in words(&inner, base) {
                take_command(submission, &command, owner);
            }
        }
    }
}

fn take_command(submission: &mut Submission, command: &[Word], owner: Option<Owner>) {
    assignments(submission, command, owner);
    if let Some((launcher, at)) = launcher(command) {
        push(submission, launcher, command.get(at..).unwrap_or_default(), owner);
    }
}

/// The text after `bash -c`, as it is in the file, with its beginning.
fn quoted(submission: &Submission, command: &[Word]) -> Option<(String, usize)> {
    let shell = command.iter().position(|it| matches!(file_name(&it.text), "bash" | "sh"))?;
    let rest = command.get(shell + 1..)?;
    let flag = rest.iter().take(3).position(|it| it.text.starts_with('-') && it.text.ends_with('c'))?;
    let range = rest.get(flag + 1)?.range.clone();
    let source = submission.text.get(range.clone())?;
    source.starts_with(['"', '\'']).then(|| unquoted(source, range.start))
}

/// A launch, and the launch that it starts: `srun torchrun ...`.
fn push(submission: &mut Submission, found: Launcher, words: &[Word], owner: Option<Owner>) {
    submission.launches.push(Launch::new(found, words.to_vec(), owner));
    if !matches!(found, Launcher::Mpirun | Launcher::Srun) {
        return;
    }
    let inner = words.get(1..).and_then(|rest| Some((rest, launcher(rest)?)));
    if let Some((rest, (launcher @ (Launcher::Torchrun | Launcher::DeepSpeed | Launcher::Accelerate), at))) =
        inner
    {
        let words = rest.get(at..).unwrap_or_default().to_vec();
        submission.launches.push(Launch::new(launcher, words, owner));
    }
}

/// `X=Y` before a command, after `export` or `env`, after `-x`, `--env`, `--export`.
fn assignments(submission: &mut Submission, command: &[Word], owner: Option<Owner>) {
    let mut leading = true;
    let mut previous = "";
    for word in command {
        let wanted = leading || matches!(previous, "-x" | "--env" | "-e" | "--genv" | "-genv");
        let exported = word.text.strip_prefix("--export=");
        // torchx accepts several at once, as Slurm does.
        let several = previous == "--env" && word.text.split(',').all(|it| it.contains('='));
        if let Some(list) = exported.or_else(|| several.then_some(&*word.text)) {
            let mut at = word.range.start + (word.text.len() - list.len());
            for part in list.split(',') {
                assignment(submission, part, at..at + part.len(), owner);
                at += part.len() + 1;
            }
        } else if wanted && !assignment(submission, &word.text, word.range.clone(), owner) {
            leading &=
                matches!(&*word.text, "export" | "env" | "exec" | "time" | "sudo" | "-E" | "declare" | "-x");
        }
        previous = &word.text;
    }
}

/// All words that assign.
pub(super) fn take_assignments(submission: &mut Submission, words: &[Word]) {
    for word in words {
        assignment(submission, &word.text, word.range.clone(), None);
    }
}

fn assignment(submission: &mut Submission, text: &str, range: Range<usize>, owner: Option<Owner>) -> bool {
    let Some((name, value)) = text.split_once('=') else { return false };
    let is_name = name
        .bytes()
        .enumerate()
        .all(|(at, it)| it == b'_' || it.is_ascii_alphabetic() || (at > 0 && it.is_ascii_digit()));
    if name.is_empty() || !is_name {
        return false;
    }
    let name_end = (range.start + name.len()).min(range.end);
    let value_range = (name_end + 1).min(range.end)..range.end;
    // What the shell fills in is not known here.
    let literal = !value.contains('$') && !value.contains('`');
    submission.settings.push(Setting {
        name: name.into(),
        value: literal.then(|| value.into()),
        name_span: submission.span(range.start..name_end),
        value_span: Some(submission.span(value_range)),
        span: submission.span(range),
        owner,
        written: Written::Command,
    });
    true
}

/// `command` and `args` of containers: a list of words, or a list that gives one text to a shell.
pub(super) fn of_containers(submission: &mut Submission, commands: &[(NodeId, Owner)]) {
    // Both lists of a container are one command.
    for lists in commands.chunk_by(|one, other| one.1 == other.1) {
        let Some(owner) = lists.first().map(|it| it.1) else { continue };
        let nodes: Vec<NodeId> = lists
            .iter()
            .flat_map(|it| match &submission.tree.node(it.0).kind {
                Kind::Sequence(items) => items.clone(),
                Kind::Scalar { .. } => vec![it.0],
                Kind::Mapping(_) => Vec::new(),
            })
            .collect();
        let text = |it: &NodeId| submission.tree.text(*it).unwrap_or_default().to_owned();
        let shell = nodes.iter().position(|it| {
            let text = text(it);
            text.contains('\n') || text.contains(' ')
        });
        match shell {
            // A script, or a whole command in one word.
            Some(_) => {
                for node in &nodes {
                    let span = submission.tree.node(*node).span.clone();
                    // As it is in the file, so that positions are right; the marks of a block are not words.
                    let source = submission.text.get(span.range.clone()).unwrap_or_default().to_owned();
                    let before = submission.text.get(..span.range.start).unwrap_or_default();
                    let (source, base) = inner(&source, span.range.start, block(before));
                    take(submission, &source, base, Some(owner));
                }
            }
            None => {
                let word = |it: &NodeId| Word {
                    text: submission.tree.text(*it).unwrap_or_default().into(),
                    range: submission.tree.node(*it).span.range.clone(),
                };
                let words: Vec<Word> = nodes.iter().map(word).collect();
                assignments(submission, &words, Some(owner));
                if let Some((launcher, at)) = launcher(&words) {
                    push(submission, launcher, words.get(at..).unwrap_or_default(), Some(owner));
                }
            }
        }
    }
}

/// The mark of a block, `|` or `>`, from the text before its first line.
fn block(before: &str) -> Option<char> {
    let head = before.trim_end_matches([' ', '\t']).strip_suffix('\n')?.trim_end();
    let line = head.rsplit('\n').next()?.split(" #").next()?.trim_end();
    let word = line.rsplit([' ', '\t']).next()?;
    let plain = word.trim_end_matches(|it: char| matches!(it, '-' | '+') || it.is_ascii_digit());
    plain.parse().ok().filter(|it| matches!(it, '|' | '>'))
}

/// A scalar as a shell gets it, without the quotes around it. Every byte keeps its position.
fn inner(source: &str, base: usize, block: Option<char>) -> (String, usize) {
    if block == Some('|') {
        return (source.to_owned(), base);
    }
    match source.as_bytes().first() {
        Some(b'"') if source.len() >= 2 && block.is_none() => {
            let text = source.get(1..source.len() - 1).unwrap_or_default();
            let text = folded(text);
            // A line end, after a backslash that joins lines or not, and quotes.
            (text.replace("\\\\\\n", "  \\\n").replace("\\n", " \n").replace("\\\"", " \""), base + 1)
        }
        Some(b'\'') if source.len() >= 2 && block.is_none() => {
            (folded(source.get(1..source.len() - 1).unwrap_or_default()), base + 1)
        }
        _ => (folded(source), base),
    }
}

/// With a blank for a line end, as YAML reads it outside of `|`; a blank line stays one.
fn folded(text: &str) -> String {
    let bytes = text.as_bytes();
    let blank_after = |at: usize| {
        let rest = bytes.get(at + 1..).unwrap_or_default();
        rest.iter().find(|it| !matches!(it, b' ' | b'\t' | b'\r')).is_none_or(|it| *it == b'\n')
    };
    let mut out = text.to_owned().into_bytes();
    let mut kept = false;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            // The line ends around a blank line stay.
            let keep = blank_after(at);
            if !keep && !kept {
                out[at] = b' ';
            }
            kept = keep;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::submission::{Launcher, Submission};

    #[test]
    fn scalars_are_read_as_yaml_folds_them() {
        for args in [
            "    - >-\n      torchrun --nnodes=2\n      --nproc-per-node=4 t.py\n",
            "    - torchrun --nnodes=2\n      --nproc-per-node=4 t.py\n",
            "    - \"torchrun --nnodes=2\n      --nproc-per-node=4 t.py\"\n",
            "    - \"export A=1\\ntorchrun --nnodes=2 --nproc-per-node=4 t.py\"\n",
            "    - |\n      torchrun --nnodes=2 \\\n      --nproc-per-node=4 t.py\n",
        ] {
            let text = format!(
                "kind: Pod\nspec:\n  containers:\n  - name: a\n    command: [bash, -c]\n    args:\n{args}"
            );
            let it = Submission::read("pod.yaml", &text).unwrap();
            assert_eq!(it.launches.len(), 1, "{args}");
            let launch = &it.launches[0];
            assert_eq!(
                (launch.number(&["--nnodes"]), launch.number(&["--nproc-per-node"])),
                (Some(2), Some(4)),
                "{args}"
            );
            let word = launch.processes_per_node().unwrap().word;
            assert_eq!(&text[word.range.clone()], "--nproc-per-node=4", "{args}");
        }
    }

    #[test]
    fn what_is_only_mentioned_is_not_a_launch() {
        let text = "#!/bin/sh\npip install deepspeed torch\necho torchrun\nwhich mpirun\nX=/opt/torchrun\n\
                    log \"starting all_reduce_perf\"\n\
                    srun -N 2 torchrun --nproc-per-node=8 -m train --nnodes=9\n";
        let it = Submission::read("job.sh", text).unwrap();
        let all: Vec<Launcher> = it.launches.iter().map(|it| it.launcher).collect();
        assert_eq!(all, [Launcher::Srun, Launcher::Torchrun]);
        assert_eq!(
            (it.launches[0].has(&["--nproc-per-node"]), it.launches[1].has(&["--nnodes"])),
            (false, false)
        );
    }

    #[test]
    fn a_text_given_to_another_shell_is_read() {
        let text = "#!/bin/sh\nsrun -N 2 bash -lc 'export NCCL_DEBUG=INFO; torchrun \\\n --nnodes=2 /app/train --nnodes=9'\npython -c 'import torchrun'\n";
        let it = Submission::read("job.sh", text).unwrap();
        let all: Vec<Launcher> = it.launches.iter().map(|it| it.launcher).collect();
        assert_eq!(all, [Launcher::Srun, Launcher::Torchrun]);
        assert_eq!((it.launches[1].number(&["--nnodes"]), it.launches[1].own().len()), (Some(2), 2));
        let span = it.launches[1].words[0].range.clone();
        assert_eq!((&text[span], &*it.settings[0].name), ("torchrun", "NCCL_DEBUG"));
    }

    #[test]
    fn commands_of_containers_are_found() {
        let text = "kind: Pod\nspec:\n  containers:\n  - name: a\n    command: [torchrun, --nnodes=4, --nproc_per_node, \"8\", train.py, --nnodes=9]\n\
                    \x20 - name: b\n    command: [/bin/sh, -c]\n    args:\n    - |\n      export NCCL_DEBUG=INFO\n      mpirun -np 16 -N 8 -x FI_PROVIDER=efa ./all_reduce_perf -b 8 -g 1\n";
        let it = Submission::read("pod.yaml", text).unwrap();
        assert_eq!(it.launches.len(), 2);
        let torchrun = &it.launches[0];
        assert_eq!(torchrun.launcher, Launcher::Torchrun);
        assert_eq!(
            (torchrun.number(&["--nnodes"]), torchrun.number(&["--nproc-per-node"])),
            (Some(4), Some(8))
        );
        let mpirun = &it.launches[1];
        assert_eq!((mpirun.number(&["-np", "-n"]), mpirun.number(&["-N"])), (Some(16), Some(8)));
        assert_eq!(mpirun.nccl_tests().unwrap().number(&["-g"]), Some(1));
        let names: Vec<&str> = it.settings.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["NCCL_DEBUG", "FI_PROVIDER"]);
        let span = &it.settings[1].span;
        assert_eq!((&text[span.range.clone()], span.line), ("FI_PROVIDER=efa", 11));
    }
}
