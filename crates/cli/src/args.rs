//! The arguments: one definition for the parser, `--help`, the man page and the completions.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
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
    /// Check manifests, scripts and settings before they are submitted.
    Lint(Lint),
    /// Write a manifest or script for a job on a machine.
    Manifest(Manifest),
    /// Tell which environment variables to set, to leave alone and to remove.
    Env(Env),
    /// Show how a machine is wired, which paths NCCL takes and what speed is normal.
    Topo(Topo),
    /// Tell which bandwidth is normal for a collective, and whether a measured one is.
    Expect(Expect),
    /// Measure a collective, on host memory or with NCCL on GPUs, and verify it.
    Bench(Box<crate::bench::Bench>),
    /// Explain a rule, a variable, a word, a machine, a GPU or a line of a log.
    Explain {
        /// A rule's id, a variable, a word, a machine, a GPU, or a line of a log in quotes.
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

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Manifests (YAML, JSON), sbatch and shell scripts, Dockerfiles, files of settings, folders; `-` for standard input.
    ///
    /// All files together make one case: a Service in one is seen by a rule about a Job in another.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Change what can be changed safely; comments, order and layout are kept.
    #[arg(long)]
    pub(crate) fix: bool,

    /// Show what --fix would change, as a diff, and change nothing.
    #[arg(long)]
    pub(crate) diff: bool,

    /// The instance type, where no file names it.
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,

    /// The release of NCCL, where no image tells it.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// The release of aws-ofi-nccl.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// The release of libfabric.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) libfabric: Option<fabric::Version>,

    /// How to write the answer. Can be given several times, each with its own --output.
    #[arg(long, short, value_parser = lint_format(), value_name = "FORMAT")]
    pub(crate) format: Vec<Format>,

    /// Where to write it: the first --output belongs to the first --format, and so on; without one, standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Vec<PathBuf>,

    /// The severity from which the exit code is 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,
}

#[derive(Debug, Args)]
pub(crate) struct Manifest {
    /// What to write: trainjob, pytorchjob, mpijob, jobset, job or sbatch.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: String,

    /// The machine by its name: p5.48xlarge, dgx-h100.
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: String,

    /// How many of them, which is how many pods.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) nodes: u32,

    /// GPUs of a pod; without it, all of the machine.
    #[arg(long, value_name = "N")]
    pub(crate) gpus: Option<u32>,

    /// The container image.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// The name of the job.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The namespace.
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// The availability zone; without it, any single one.
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,

    /// The Kueue queue, or the Slurm partition.
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// For nccl-tests instead of training: mpijob and sbatch.
    #[arg(long)]
    pub(crate) nccl_tests: bool,

    /// What every rank runs, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Env {
    /// The instance type: g6e.12xlarge.
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,

    /// The release of NCCL.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// The release of aws-ofi-nccl.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// Files of a job whose settings are judged: manifests, scripts, settings. Can be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) job: Vec<PathBuf>,

    /// How to write the answer.
    #[arg(long, short, value_enum, default_value_t = EnvFormat::Text)]
    pub(crate) format: EnvFormat,

    /// Name the sources.
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// For people.
    Text,
    /// Lines for a shell.
    Sh,
    /// A list for `env:` of a container.
    Yaml,
    /// For programs: schema plumb.env/1.
    Json,
    /// Lines for a Dockerfile.
    Dockerfile,
}

#[derive(Debug, Args)]
pub(crate) struct Topo {
    /// `nvidia-smi topo -m`, NCCL's topology or graph XML, or a log; `-` for standard input. Without it and without
    /// --instance, this machine is looked at.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// A machine by its name: p5.48xlarge, dgx-h100. With a FILE, what the file leaves open is taken from it.
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,

    /// A file with a `[cluster]` table that describes any other machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["file", "instance"])]
    pub(crate) cluster: Option<PathBuf>,

    /// The model of the GPUs, where the FILE does not tell it: H100.
    #[arg(long, value_name = "MODEL")]
    pub(crate) gpu: Option<String>,

    /// How many such machines a job has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes: Option<u32>,

    /// Pods on each machine and GPUs in each: 1x8, 8x1.
    #[arg(long, value_name = "PODSxGPUS", value_parser = pods)]
    pub(crate) pods: Option<(u32, u32)>,

    /// The pods of a machine have one host name or one `NCCL_HOSTID`.
    #[arg(long)]
    pub(crate) same_host: bool,

    /// The pods of a machine share /dev/shm.
    #[arg(long)]
    pub(crate) shared_shm: bool,

    /// NICs each pod has; without it, every pod has all.
    #[arg(long, value_name = "N")]
    pub(crate) nics_per_pod: Option<u32>,

    /// The release of NCCL; without it, the newest that plumb knows.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// A variable NCCL reads, as in `NCCL_P2P_LEVEL=SYS`. Can be given several times.
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<(String, String)>,

    /// The collective for which to show a table of normal bandwidth by size.
    #[arg(long, value_name = "COLLECTIVE")]
    pub(crate) collective: Option<fabric::Collective>,

    /// Draw the machine as SVG into this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Draw the ring of this channel, from a log, over the machines.
    #[arg(long, value_name = "N")]
    pub(crate) channel: Option<u32>,

    /// Draw the tree of the channel instead of its ring.
    #[arg(long)]
    pub(crate) tree: bool,

    /// How to write the answer.
    #[arg(long, short, value_enum, default_value_t = ListFormat::Text)]
    pub(crate) format: ListFormat,
}

#[derive(Debug, Args)]
pub(crate) struct Expect {
    /// The collective: `all_reduce`, `all_gather`, `reduce_scatter`, broadcast, reduce, alltoall, gather, scatter, sendrecv.
    pub(crate) collective: fabric::Collective,

    #[command(flatten)]
    pub(crate) machines: Machines,

    /// Bytes, as nccl-tests counts them: 8, 4K, 1M, 1G.
    #[arg(long, short, default_value = "1G", value_parser = size, value_name = "BYTES")]
    pub(crate) size: u64,

    /// The bus bandwidth that was measured, in GB/s.
    #[arg(long, short, value_parser = bandwidth, value_name = "GBPS")]
    pub(crate) measured: Option<f64>,

    /// The release of NCCL.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// A variable NCCL reads, as in `NCCL_P2P_DISABLE=1`. Can be given several times.
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<(String, String)>,

    /// How to write the answer.
    #[arg(long, short, value_enum, default_value_t = ListFormat::Text)]
    pub(crate) format: ListFormat,
}

/// Which machines, and how a job is spread over them.
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// A machine by its name: p5.48xlarge, dgx-h100.
    #[arg(long, value_name = "NAME", conflicts_with = "cluster")]
    pub(crate) instance: Option<String>,

    /// A file with a `[cluster]` table that describes any other machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Option<PathBuf>,

    /// How many machines.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes: Option<u32>,

    /// Pods on each machine and GPUs in each: 1x8, 8x1.
    #[arg(long, value_name = "PODSxGPUS", value_parser = pods)]
    pub(crate) pods: Option<(u32, u32)>,
}

/// Bytes with K, M, G or T, which are powers of two, as nccl-tests has them.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let plain = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let digits = plain.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let shift = match plain.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("`{text}` is no size: 8, 4K, 1M, 1G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size: 8, 4K, 1M, 1G"))?;
    number.checked_mul(1 << shift).filter(|it| *it < 1 << 50).ok_or_else(|| format!("`{text}` is too large"))
}

fn bandwidth(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("GB/s").trim_end().parse::<f64>();
    number
        .ok()
        .filter(|it| (0.0..=1e6).contains(it))
        .ok_or_else(|| format!("`{text}` is no bandwidth in GB/s"))
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').filter(|it| !it.0.trim().is_empty()).ok_or("is written as NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn version(text: &str) -> Result<fabric::Version, String> {
    fabric::Version::parse(text).ok_or_else(|| format!("`{text}` is no release: 2.27.3"))
}

fn pods(text: &str) -> Result<(u32, u32), String> {
    let layout = nccl::Layout::parse(text).map_err(|it| it.to_string())?;
    Ok((layout.pods_per_node, layout.gpus_per_pod))
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

/// [`Format`], with the help that names lint's schema.
fn lint_format() -> impl TypedValueParser<Value = Format> {
    let possible = Format::value_variants().iter().filter_map(|it| {
        let value = it.to_possible_value()?;
        Some(if *it == Format::Json { value.help("For programs: schema plumb.lint/1") } else { value })
    });
    PossibleValuesParser::new(possible.collect::<Vec<_>>()).try_map(|name| Format::from_str(&name, false))
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

impl FailOn {
    /// The severity from which a finding is a failure.
    pub(crate) fn severity(self) -> Option<rules::Severity> {
        match self {
            Self::Info => Some(rules::Severity::Info),
            Self::Warning => Some(rules::Severity::Warning),
            Self::Error => Some(rules::Severity::Error),
            Self::Never => None,
        }
    }

    /// Whether one of the findings is a failure.
    pub(crate) fn is_reached(self, findings: &[report::Finding]) -> bool {
        self.severity().is_some_and(|least| findings.iter().any(|it| it.severity >= least))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    Always,
    Never,
}
