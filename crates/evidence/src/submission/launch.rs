//! Commands that start ranks, and their options.

use super::Owner;
use super::words::{Word, file_name, words};

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
    pub(super) fn new(launcher: Launcher, words: Vec<Word>, owner: Option<Owner>) -> Self {
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

    /// The launcher of a command, and the one that it starts: `srun torchrun ...`.
    pub fn of_words(words: &[Word]) -> Vec<Self> {
        let mut all = Vec::new();
        let mut rest = words;
        while let Some((found, at)) = launcher(rest) {
            let words = rest.get(at..).unwrap_or_default();
            all.push(Self::new(found, words.to_vec(), None));
            if !matches!(found, Launcher::Mpirun | Launcher::Srun) {
                break;
            }
            rest = words.get(1..).unwrap_or_default();
        }
        all
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

fn is_nccl_test(word: &str) -> bool {
    let name = file_name(word);
    // A sentence about a program is not a command.
    name.ends_with("_perf") && name.len() > 5 && !word.contains(char::is_whitespace)
}

/// The launcher of a command, and the index of its word.
pub(super) fn launcher(words: &[Word]) -> Option<(Launcher, usize)> {
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

#[cfg(test)]
mod tests {
    use super::{Launch, Launcher};

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
}
