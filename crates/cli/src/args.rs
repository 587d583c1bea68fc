//! The arguments: one definition for the parser, `--help`, the man page and the completions.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

/// Which path every byte of a training job really takes, and what to change.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 bad input, bad usage, or nothing could be decided."
)]
pub(crate) struct Plumb {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When to colour the answer.
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN")]
    pub(crate) color: Colour,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read logs of a job and tell which paths it uses, what is wrong and what to change.
    Doctor(Doctor),
    /// Explain a rule, a variable, a word, an instance type or a line of a log.
    Explain {
        /// A rule's id, a variable, a word, an instance type, or a line of a log in quotes.
        #[arg(required = true, value_name = "WHAT")]
        what: Vec<String>,
    },
    /// List all rules.
    Rules {
        /// How to print them.
        #[arg(long, value_enum, default_value_t = ListFormat::Text)]
        format: ListFormat,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, in roff.
    Man {
        /// The page of a subcommand.
        command: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Logs and whatever else there is: files, folders, `-` for standard input; `.gz` and `.zst` too.
    ///
    /// Each input's kind is found by its content: NCCL and plugin logs, output of PyTorch, DeepSpeed, trainers and
    /// nccl-tests, kernel messages, `nvidia-smi topo -m`, NCCL's topology XML, pod manifests, pasted settings. All inputs
    /// together make one case.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// How to write the answer. Can be given several times, each with its own --output.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub(crate) format: Vec<Format>,

    /// Where to write it: the first --output belongs to the first --format, and so on; without one, standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Vec<PathBuf>,

    /// The severity from which the exit code is 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Replace host names, addresses, paths and secrets by aliases, the same everywhere.
    #[arg(long)]
    pub(crate) redact: bool,

    /// Show every connection of every communicator.
    #[arg(long)]
    pub(crate) matrix: bool,

    /// Name the rules that were not checked.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: schema plumb.doctor/1.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// `JUnit` XML, for CI.
    Junit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Info,
    Warning,
    Error,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}
