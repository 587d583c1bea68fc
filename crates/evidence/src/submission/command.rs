//! Commands that start ranks, and the variables set in them, wherever a shell would read them.

use std::ops::Range;

use super::{Owner, Setting, Submission, Written};
use crate::yaml::{Kind, NodeId};

/// A command that starts ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// What starts them.
    pub launcher: Launcher,
    /// Its words, the launcher's own first.
    pub words: Vec<Word>,
    /// The pod and container it belongs to.
    pub owner: Option<Owner>,
    /// How many of the words come before the program that is started.
    own: usize,
}

/// What starts ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `torchrun`, `python -m torch.distributed.run`, `torch.distributed.launch`.
    Torchrun,
    /// `mpirun`, `mpiexec`.
    Mpirun,
    /// `srun`.
    Srun,
    /// `deepspeed`.
    DeepSpeed,
    /// `accelerate launch`.
    Accelerate,
    /// `all_reduce_perf` and the other tests, started directly.
    NcclTests,
}

impl Launcher {
    /// The program's name, as messages print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Torchrun => "torchrun",
            Self::Mpirun => "mpirun",
            Self::Srun => "srun",
            Self::DeepSpeed => "deepspeed",
            Self::Accelerate => "accelerate",
            Self::NcclTests => "nccl-tests",
        }
    }
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Without quotes.
    pub text: Box<str>,
    /// Where it is in the file.
    pub range: Range<usize>,
}

/// The value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionValue<'a> {
    /// The value alone: `4` of `--nnodes=4`, `8` of `ppr:8:node`.
    pub text: &'a str,
    /// The word it is part of.
    pub word: &'a Word,
}

impl OptionValue<'_> {
    /// As a number.
    pub fn number(&self) -> Option<u64> {
        self.text.parse().ok()
    }
}

impl Launch {
    fn new(launcher: Launcher, words: Vec<Word>, owner: Option<Owner>) -> Self {
        let own = own_words(launcher, &words);
        Self { launcher, words, owner, own }
    }

    /// A command pasted beside a log: the first launch of the line, or a line of options that continues one.
    pub fn pasted(line: &str) -> Option<Self> {
        let line =
            line.trim().trim_start_matches(['#', '$', '>', '+']).trim_end_matches('\\').replace('`', " ");
        // In prose the whole command may be in quotes.
        let quoted = line.contains(['"', '\'']).then(|| line.replace(['"', '\''], " "));
        let texts = || std::iter::once(&line).chain(&quoted);
        let found =
            texts().find_map(|text| words(text, 0).iter().find_map(|command| Self::of_command(command)));
        found.or_else(|| {
            let words: Vec<Word> = words(quoted.as_ref().unwrap_or(&line), 0).into_iter().flatten().collect();
            let begins = |name: &str| words.iter().any(|it| it.text.replace('_', "-").starts_with(name));
            let launcher = match (begins("--nproc-per-node"), begins("-np")) {
                (true, _) => Launcher::Torchrun,
                (false, true) => Launcher::Mpirun,
                (false, false) => return None,
            };
            Some(Self::new(launcher, words, None))
        })
    }

    fn of_command(command: &[Word]) -> Option<Self> {
        let (found, at) = launcher(command)?;
        let rest = command.get(at..)?;
        // A sentence may name a test before the command that runs it.
        if found == Launcher::NcclTests
            && let Some((other, later)) =
                rest.get(1..).and_then(launcher).filter(|it| it.0 != Launcher::NcclTests)
        {
            return Some(Self::new(other, rest.get(later + 1..)?.to_vec(), None));
        }
        Some(Self::new(found, rest.to_vec(), None))
    }

    /// The value of an option in any of its spellings: `--nnodes 4`, `--nnodes=4`, `-np 16`.
    pub fn option(&self, names: &[&str]) -> Option<OptionValue<'_>> {
        let mut words = self.own().iter();
        while let Some(word) = words.next() {
            if names.iter().any(|name| same_option(&word.text, name)) {
                return words.next().map(|word| OptionValue { text: &word.text, word });
            }
            let assigned = word.text.split_once('=');
            if let Some((_, text)) = assigned.filter(|it| names.iter().any(|name| same_option(it.0, name))) {
                return Some(OptionValue { text, word });
            }
        }
        None
    }

    /// The value of an option as a text.
    pub fn value(&self, names: &[&str]) -> Option<&str> {
        self.option(names).map(|it| it.text)
    }

    /// The value of an option as a number.
    pub fn number(&self, names: &[&str]) -> Option<u64> {
        self.option(names)?.number()
    }

    /// Whether an option is given at all.
    pub fn has(&self, names: &[&str]) -> bool {
        let given = |it: &Word| {
            let option = it.text.split('=').next().unwrap_or_default();
            names.iter().any(|name| same_option(option, name))
        };
        self.own().iter().any(given)
    }

    /// How many nodes it is for.
    pub fn nodes(&self) -> Option<OptionValue<'_>> {
        match self.launcher {
            Launcher::Torchrun => self.option(&["--nnodes"]),
            Launcher::Srun => self.option(&["-N", "--nodes"]),
            Launcher::DeepSpeed => self.option(&["--num_nodes"]),
            Launcher::Accelerate => self.option(&["--num_machines"]),
            Launcher::Mpirun | Launcher::NcclTests => None,
        }
    }

    /// How many processes it starts on all nodes together.
    pub fn processes(&self) -> Option<OptionValue<'_>> {
        match self.launcher {
            Launcher::Mpirun => self.option(&["-np", "-n", "--np"]),
            Launcher::Srun => self.option(&["-n", "--ntasks"]),
            Launcher::Accelerate => self.option(&["--num_processes"]),
            Launcher::Torchrun | Launcher::DeepSpeed | Launcher::NcclTests => None,
        }
    }

    /// How many processes it starts on one node.
    pub fn processes_per_node(&self) -> Option<OptionValue<'_>> {
        match self.launcher {
            Launcher::Torchrun => self.option(&["--nproc-per-node"]),
            Launcher::DeepSpeed => self.option(&["--num_gpus"]),
            Launcher::Srun => self.option(&["--ntasks-per-node", "--tasks-per-node"]),
            Launcher::Mpirun => {
                let each = self.option(&["-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost"]);
                each.or_else(|| {
                    let OptionValue { text, word } = self.option(&["--map-by", "-map-by"])?;
                    let (count, unit) = text.strip_prefix("ppr:")?.split_once(':')?;
                    unit.starts_with("node").then_some(OptionValue { text: count, word })
                })
            }
            Launcher::Accelerate | Launcher::NcclTests => None,
        }
    }

    /// The most slots that mpirun gets on one host: `-H a:8,b:8`.
    pub fn slots_per_host(&self) -> Option<u64> {
        let hosts = self.value(&["-H", "--host", "-host"]).filter(|_| self.launcher == Launcher::Mpirun)?;
        hosts.split(',').filter_map(|it| it.split_once(':')?.1.parse().ok()).max()
    }

    /// Whether the options say how mpirun binds processes to cores.
    pub fn sets_binding(&self) -> bool {
        let about = ["bind-to", "map-by", "cpu-set", "rankfile"];
        self.own().iter().any(|word| about.iter().any(|it| word.text.contains(it)))
    }

    /// The words up to the program that is started.
    pub fn own(&self) -> &[Word] {
        self.words.get(..self.own).unwrap_or_default()
    }

    /// The program of nccl-tests that a launcher starts, as a separate command.
    pub fn nccl_tests(&self) -> Option<Self> {
        let at = self.words.iter().position(|it| is_nccl_test(&it.text))?;
        Some(Self::new(Launcher::NcclTests, self.words.get(at..)?.to_vec(), self.owner))
    }

    /// How many GPUs a thread of nccl-tests uses.
    pub fn gpus_per_thread(&self) -> Option<OptionValue<'_>> {
        self.option(&["-g", "--ngpus"]).filter(|_| self.launcher == Launcher::NcclTests)
    }

    /// How many threads a process of nccl-tests starts.
    pub fn threads(&self) -> Option<OptionValue<'_>> {
        self.option(&["-t", "--nthreads"]).filter(|_| self.launcher == Launcher::NcclTests)
    }
}

/// torchrun treats `-` and `_` alike.
fn same_option(one: &str, other: &str) -> bool {
    let plain = |it: u8| if it == b'_' { b'-' } else { it };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

fn own_words(launcher: Launcher, words: &[Word]) -> usize {
    if launcher == Launcher::NcclTests {
        return words.len();
    }
    let program = |it: &Word| {
        let name = file_name(&it.text);
        let starts = matches!(name, "python" | "python3" | "bash" | "sh" | "torchrun" | "deepspeed");
        let module = launcher == Launcher::Torchrun && matches!(name, "-m" | "--module");
        starts || module || it.text.ends_with(".py") || name.ends_with("_perf") || name == "--"
    };
    // A path that is not the value of an option is the program too.
    let path = |at: usize, it: &Word| {
        let before = at.checked_sub(1).and_then(|it| words.get(it));
        it.text.starts_with(['/', '.'])
            && before.is_some_and(|it| !it.text.starts_with('-') || it.text.contains('='))
    };
    let ends = |(at, it): &(usize, &Word)| program(it) || path(*at, it);
    words.iter().enumerate().skip(1).find(ends).map_or(words.len(), |it| it.0)
}

/// Cuts a part of a shell text into commands of words. It is not a shell: it knows quotes, comments, `\` at line ends, `;`, `&&`, `||`,
/// `|`, and leaves `$` and all else as it is.
pub fn words(text: &str, base: usize) -> Vec<Vec<Word>> {
    let mut commands = vec![Vec::new()];
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' | b'\r' => at += 1,
            b'\\' if matches!(bytes.get(at + 1), Some(b'\n')) => at += 2,
            b'\\' if bytes.get(at + 1) == Some(&b'\r') && bytes.get(at + 2) == Some(&b'\n') => at += 3,
            b'\n' | b';' | b'|' | b'&' => {
                if commands.last().is_some_and(|it: &Vec<Word>| !it.is_empty()) {
                    commands.push(Vec::new());
                }
                at += 1;
            }
            b'#' => {
                at += bytes[at..].iter().position(|it| *it == b'\n').unwrap_or(bytes.len() - at);
            }
            _ => {
                let (word, end) = word(text, at);
                let range = base + at..base + end;
                if let Some(command) = commands.last_mut() {
                    command.push(Word { text: word.into(), range });
                }
                at = end;
            }
        }
    }
    commands.retain(|it| !it.is_empty());
    commands
}

fn word(text: &str, start: usize) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = start;
    let mut quote = None;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (None, b' ' | b'\t' | b'\n' | b'\r' | b';' | b'|' | b'&') => break,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if byte == open => quote = None,
            (None | Some(b'"'), b'\\') if at + 1 < bytes.len() => {
                at += 1;
                if bytes[at] != b'\n' {
                    out.push(bytes[at]);
                }
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    (String::from_utf8_lossy(&out).into_owned(), at)
}

fn is_nccl_test(word: &str) -> bool {
    let name = file_name(word);
    // A sentence about a program is not a command.
    name.ends_with("_perf") && name.len() > 5 && !word.contains(char::is_whitespace)
}

fn launcher(words: &[Word]) -> Option<(Launcher, usize)> {
    // What is only mentioned, searched for or installed is not started.
    let first = words.first().map(|it| file_name(&it.text)).unwrap_or_default();
    if matches!(
        first,
        "echo" | "printf" | "which" | "command" | "ls" | "cp" | "mv" | "cd" | "cat" | "test" | "[" | "[["
    ) {
        return None;
    }
    for (at, word) in words.iter().enumerate() {
        if &*word.text == "install" {
            return None;
        }
        if word.text.contains('=') {
            continue;
        }
        let next = |n: usize| words.get(at + n).map(|it| &*it.text).unwrap_or_default();
        let found = match file_name(&word.text) {
            "torchrun" => Launcher::Torchrun,
            "python" | "python3" if next(1) == "-m" && next(2).starts_with("torch.distributed.") => {
                return Some((Launcher::Torchrun, at + 2));
            }
            "mpirun" | "mpiexec" | "orterun" => Launcher::Mpirun,
            "srun" => Launcher::Srun,
            "deepspeed" => Launcher::DeepSpeed,
            "accelerate" if next(1) == "launch" => Launcher::Accelerate,
            other if is_nccl_test(other) => Launcher::NcclTests,
            _ => continue,
        };
        return Some((found, at));
    }
    None
}

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

/// Without the quotes around a word of a shell.
fn unquoted(source: &str, base: usize) -> (String, usize) {
    match source.as_bytes().first() {
        Some(b'"' | b'\'') if source.len() >= 2 => {
            (source.get(1..source.len() - 1).unwrap_or_default().replace("\\\"", " \""), base + 1)
        }
        _ => (source.to_owned(), base),
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
    use super::{Launch, Launcher, words};
    use crate::submission::Submission;

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
    fn a_shell_text_is_commands_of_words() {
        let text =
            "export A=1 # note\nmpirun -np 16 \\\n  -N 8 ./all_reduce_perf -b \"8\" && echo 'a b'; x | y";
        let all: Vec<Vec<String>> =
            words(text, 0).into_iter().map(|it| it.into_iter().map(|it| it.text.into()).collect()).collect();
        assert_eq!(all[0], ["export", "A=1"]);
        assert_eq!(all[1], ["mpirun", "-np", "16", "-N", "8", "./all_reduce_perf", "-b", "8"]);
        assert_eq!((all[2].len(), all[3].len(), all[4].len()), (2, 1, 1));
    }

    #[test]
    fn a_pasted_command_is_read_by_the_same_parser() {
        let read = |line: &str| {
            let it = Launch::pasted(line)?;
            let number = |it: Option<super::OptionValue<'_>>| it.and_then(|it| it.number());
            Some((it.launcher, number(it.processes()), number(it.processes_per_node())))
        };
        for (line, expected) in [
            ("$ mpirun -np 16 -N 8 all_reduce_perf -n 20", (Launcher::Mpirun, Some(16), Some(8))),
            ("`mpirun --map-by ppr:4:node --np=8 ./train`", (Launcher::Mpirun, Some(8), Some(4))),
            ("I ran \"srun -N 2 -n 16 x\" there", (Launcher::Srun, Some(16), None)),
            ("all_reduce_perf with mpirun -np 2 x", (Launcher::Mpirun, Some(2), None)),
            ("    -np 16 -N 8 \\", (Launcher::Mpirun, Some(16), Some(8))),
            ("  --nproc_per_node=8 train.py -np 3", (Launcher::Torchrun, None, Some(8))),
        ] {
            assert_eq!(read(line), Some(expected), "{line}");
        }
        assert_eq!(read("the job has 16 ranks"), None);
        assert_eq!(Launch::pasted("mpirun -H a:4,b:8 x").unwrap().slots_per_host(), Some(8));
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
