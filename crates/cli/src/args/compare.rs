//! The arguments of `plumb compare`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::Hardware;

#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// Two runs or more, each a file or a folder: logs of NCCL and of the trainer, output of nccl-tests, JSON of plumb bench, manifests.
    /// Or one page of an earlier answer, to show it again.
    #[arg(required = true, num_args = 1.., value_name = "RUN", value_hint = ValueHint::AnyPath)]
    pub(crate) runs: Vec<PathBuf>,

    /// The run that the others are compared with; the first without it.
    #[arg(long, value_name = "RUN", value_hint = ValueHint::AnyPath)]
    pub(crate) baseline: Option<PathBuf>,

    /// A job file of `plumb predict` that says of all runs what their files do not: the difference in step time is then explained.
    #[arg(long, value_name = "JOB", value_hint = ValueHint::FilePath)]
    pub(crate) job: Option<PathBuf>,

    /// The time of a whole run in seconds, where its files do not say it: efa=2441. Can be given several times.
    #[arg(long, value_name = "RUN=SECONDS")]
    pub(crate) took: Vec<String>,

    #[command(flatten)]
    pub(crate) hardware: Hardware,

    /// Every size of every collective.
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Output format; JSON has the schema plumb.compare/1.
    #[arg(long, short, value_enum, default_value_t = CompareFormat::Text)]
    pub(crate) format: CompareFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// Tables for a wiki or a ticket.
    Markdown,
    /// One page for a browser; plumb reads it again.
    Html,
}
