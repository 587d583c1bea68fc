//! The arguments: one definition for the parser, `--help`, the man page and the completions.

mod compare;
mod topo;
mod training;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use fabric::catalogue::{self, Model, UnknownMachine};
use fabric::gpu::GpuModel;

pub(crate) use answer::flags::{bandwidth, size};

pub(crate) use self::compare::{Compare, CompareFormat};
pub(crate) use self::topo::Topo;
use self::training::price;
pub(crate) use self::training::{Plan, Predict, TrainedJob, TrainingJob};

/// Which path every byte of a training job really takes, and what to change.
#[derive(Debug, Parser)]
#[command(name = "plumb", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 nothing at or above --fail-on; 1 findings; 2 bad input, bad usage, or nothing could be decided."
)]
pub(crate) struct Plumb {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When to colour the output.
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", display_order = 900)]
    pub(crate) color: Colour,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Diagnose the logs of a job: which paths it uses, what is wrong, what to change.
    Doctor(Doctor),
    /// Check manifests, scripts and settings before they are submitted.
    Lint(Lint),
    /// Write a manifest or script for a job on a machine.
    Manifest(Manifest),
    /// List the environment variables to set, to leave unset and to remove.
    Env(Env),
    /// Show how a machine is wired, which paths NCCL uses and what speed is normal.
    Topo(Topo),
    /// Show the normal bandwidth of a collective, and whether a measured one is normal.
    Expect(Expect),
    /// Compare runs: what differs, what each took, and how much of it their paths explain.
    Compare(Compare),
    /// Predict the time of a training step, where it goes, and the memory it needs.
    Predict(Predict),
    /// Search all layouts of a training job for the fastest that fits.
    Plan(Plan),
    /// Judge a fleet: is it fit to train, and if not, which machine, NIC, link or switch is not.
    Validate(Box<crate::validate::Validate>),
    /// Look at this machine: GPUs, network, limits, kernel log; is it fit to train, and are nodes alike?
    Node(Box<crate::node::Node>),
    /// Measure a collective, on host memory or with NCCL on GPUs, and verify it.
    Bench(Box<crate::bench::Bench>),
    /// Explain a rule, a variable, a term, a machine, a GPU or a line of a log.
    Explain {
        /// A rule's id, a variable, a term, a machine, a GPU, or a line of a log in quotes.
        #[arg(required = true, value_name = "WHAT")]
        what: Vec<String>,
    },
    /// Write the page that runs doctor, lint, topo, expect, explain and compare in a browser.
    Page(crate::browser::Page),
    /// List all rules.
    Rules {
        /// Output format.
        #[arg(long, value_enum, default_value_t = ListFormat::Text)]
        format: ListFormat,
    },
    /// List all machines that --instance takes.
    Machines {
        /// Output format; JSON has the schema plumb.machines/1.
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
    /// Logs and other files of one job: files, folders, `-` for standard input; `.gz` and `.zst` too.
    ///
    /// plumb detects the kind of each input by its content: NCCL and plugin logs, output of PyTorch, DeepSpeed, trainers and
    /// nccl-tests, kernel messages, `nvidia-smi topo -m`, NCCL's topology XML, pod manifests, pasted settings. All inputs together are
    /// one case.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Output format. Can be given several times, each with its own --output.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub(crate) format: Vec<Format>,

    /// Output file: the first --output belongs to the first --format, and so on; standard output by default.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Vec<PathBuf>,

    /// The lowest severity that makes the exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Replace host names, addresses and paths with aliases, the same in every format. Keys, tokens and passwords are always replaced.
    #[arg(long)]
    pub(crate) redact: bool,

    /// Show every connection of every communicator.
    #[arg(long)]
    pub(crate) matrix: bool,

    /// Show everything: check list, all findings, ranks, paths, rules that were not checked.
    #[arg(long, short)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) hardware: Hardware,

    #[command(flatten)]
    pub(crate) training: TrainingJob,
}

/// What the machine is, where the input does not say so. What the input says otherwise is reported.
#[derive(Debug, Args)]
pub(crate) struct Hardware {
    /// The machine by its name: p5.48xlarge, a3-megagpu-8g, dgx-h100. `plumb machines` lists all.
    #[arg(long, value_name = "NAME", value_parser = machine, conflicts_with = "cluster")]
    pub(crate) instance: Option<&'static Model>,

    /// A file with a `[cluster]` table that describes the machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Option<PathBuf>,

    /// The GPU model: H100, L40S, RTX 4090.
    #[arg(long, value_name = "MODEL", value_parser = gpu)]
    pub(crate) gpu: Option<&'static GpuModel>,
}

impl Hardware {
    /// The machine of the flags; the error names the file.
    pub(crate) fn read(&self) -> Result<job::Hardware, String> {
        let cluster = self.cluster.as_deref().map(crate::expect::of_cluster_file).transpose()?;
        Ok(job::Hardware::new(self.instance, cluster, self.gpu))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Manifests (YAML, JSON), sbatch and shell scripts, Dockerfiles, settings files, folders; `-` for standard input.
    ///
    /// All files together are one case: a rule about a Job in one file sees a Service in another.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// Apply the changes that are always safe; comments, order and layout are kept.
    #[arg(long)]
    pub(crate) fix: bool,

    /// Show what --fix would change, as a diff, without changing it.
    #[arg(long)]
    pub(crate) diff: bool,

    /// Replace host names, addresses and paths with aliases, the same in every format. Keys, tokens and passwords are always replaced.
    #[arg(long)]
    pub(crate) redact: bool,

    #[command(flatten)]
    pub(crate) hardware: Hardware,

    #[command(flatten)]
    pub(crate) training: TrainingJob,

    /// The release of NCCL, if the image does not show it.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// The release of aws-ofi-nccl.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// The release of libfabric.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) libfabric: Option<fabric::Version>,

    /// Output format. Can be given several times, each with its own --output.
    #[arg(long, short, value_parser = lint_format(), value_name = "FORMAT")]
    pub(crate) format: Vec<Format>,

    /// Output file: the first --output belongs to the first --format, and so on; standard output by default.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: Vec<PathBuf>,

    /// The lowest severity that makes the exit code 1.
    #[arg(long, value_enum, default_value_t = FailOn::Error, value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,
}

#[derive(Debug, Args)]
pub(crate) struct Manifest {
    /// The kind of file to write: trainjob, pytorchjob, mpijob, jobset, job or sbatch.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: String,

    /// The machine by its name: p5.48xlarge, dgx-h100. `plumb machines` lists all.
    #[arg(long, value_name = "NAME", value_parser = machine)]
    pub(crate) instance: &'static Model,

    /// The number of machines, which is the number of pods.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) nodes: u32,

    /// GPUs per pod; by default all GPUs of the machine.
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

    /// The availability zone; by default any single zone.
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,

    /// The Kueue queue, or the Slurm partition.
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// Run nccl-tests instead of training; mpijob and sbatch only.
    #[arg(long)]
    pub(crate) nccl_tests: bool,

    /// The command of every rank, after `--`.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Env {
    /// A page of an earlier answer, to show it again.
    #[arg(value_name = "PAGE", value_hint = ValueHint::FilePath)]
    pub(crate) page: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) hardware: Hardware,

    /// The release of NCCL.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// The release of aws-ofi-nccl.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// A file of a job whose settings to check: manifest, script or settings. Can be given several times.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) job: Vec<PathBuf>,

    /// Output format.
    #[arg(long, short, value_enum, default_value_t = EnvFormat::Text)]
    pub(crate) format: EnvFormat,

    /// Show the sources.
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
    /// One page for a browser; plumb reads it again.
    Html,
}

#[derive(Debug, Args)]
pub(crate) struct Expect {
    /// The collective: `all_reduce`, `all_gather`, `reduce_scatter`, broadcast, reduce, alltoall, gather, scatter, sendrecv. Or a page of
    /// an earlier answer, to show it again.
    #[arg(value_parser = asked)]
    pub(crate) collective: Asked,

    #[command(flatten)]
    pub(crate) machines: Machines,

    /// Bytes, as nccl-tests counts them: 8, 4K, 1M, 1G.
    #[arg(long, short, default_value = "1G", value_parser = some_bytes, value_name = "BYTES")]
    pub(crate) size: u64,

    /// The measured bus bandwidth, in GB/s.
    #[arg(long, short, value_parser = bandwidth, value_name = "GBPS")]
    pub(crate) measured: Option<f64>,

    /// Only the ranks of one group communicate, while all groups of its kind do: tp, cp, ep, dp, pp.
    #[arg(long, value_parser = str::parse::<forecast::Dimension>, value_name = "GROUP", requires = "parallel")]
    pub(crate) group: Option<forecast::Dimension>,

    /// How the model is divided over the ranks, as in `tp=8,pp=2`; dp is the rest. Ranks are numbered as Megatron-LM does.
    #[arg(long, value_parser = str::parse::<forecast::Parallel>, value_name = "SIZES", requires = "group")]
    pub(crate) parallel: Option<forecast::Parallel>,

    /// The release of NCCL; without it the interval covers what releases since 2.18 choose.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// The release of aws-ofi-nccl, where EFA joins the machines; without it the interval covers releases since 1.7.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// A variable NCCL reads, as in `NCCL_P2P_DISABLE=1`. Can be given several times.
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<(String, String)>,

    /// Output format.
    #[arg(long, short, value_enum, default_value_t = PageFormat::Text)]
    pub(crate) format: PageFormat,
}

/// What `plumb expect` is asked about.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    Collective(fabric::Collective),
    Page(PathBuf),
}

pub(crate) fn asked(text: &str) -> Result<Asked, <fabric::Collective as std::str::FromStr>::Err> {
    let is_page = text == "-"
        || std::path::Path::new(text).extension().is_some_and(|it| it.eq_ignore_ascii_case("html"));
    if is_page { Ok(Asked::Page(PathBuf::from(text))) } else { text.parse().map(Asked::Collective) }
}

/// The machines, and the layout of the job on them.
#[derive(Debug, Args)]
pub(crate) struct Machines {
    /// A machine by its name: p5.48xlarge, dgx-h100.
    #[arg(long, value_name = "NAME", value_parser = machine, conflicts_with = "cluster")]
    pub(crate) instance: Option<&'static Model>,

    /// A file with a `[cluster]` table that describes another machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: Option<PathBuf>,

    /// The number of machines.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes: Option<u32>,

    /// Pods per machine x GPUs per pod: 1x8, 8x1.
    #[arg(long, value_name = "PODSxGPUS", value_parser = pods)]
    pub(crate) pods: Option<(u32, u32)>,
}

/// Reads `--instance` for every command: a machine of the catalogue.
pub(crate) fn machine(name: &str) -> Result<&'static Model, UnknownMachine> {
    catalogue::resolve(name)
}

/// Reads `--gpu` for every command: a GPU of the catalogue.
fn gpu(name: &str) -> Result<&'static GpuModel, String> {
    fabric::gpu::find(name).ok_or_else(|| {
        let known: Vec<&str> = fabric::gpu::all().iter().map(|it| it.family.as_str()).collect();
        let mut known: Vec<&str> = known.into_iter().collect();
        known.dedup();
        format!("plumb knows no GPU `{name}`; it knows {}", known.join(", "))
    })
}

/// A size of at least one byte.
fn some_bytes(text: &str) -> Result<u64, String> {
    size(text).and_then(|it| if it == 0 { Err("must be at least 1 byte".to_owned()) } else { Ok(it) })
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').filter(|it| !it.0.trim().is_empty()).ok_or("must be NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn version(text: &str) -> Result<fabric::Version, String> {
    fabric::Version::parse(text).ok_or_else(|| format!("`{text}` is not a release; write for example 2.27.3"))
}

fn pods(text: &str) -> Result<(u32, u32), String> {
    let layout = fabric::Layout::parse(text).map_err(|it| it.to_string())?;
    Ok((layout.pods_per_node, layout.gpus_per_pod))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs: schema plumb.doctor/2.
    Json,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// JUnit XML, for CI.
    Junit,
    /// One page for a browser; plumb reads it again.
    Html,
}

/// [`Format`] with a help text that names lint's schema.
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
pub(crate) enum PageFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// One page for a browser; plumb reads it again.
    Html,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Info,
    Warning,
    Error,
    Never,
}

impl FailOn {
    /// The lowest severity that counts as a failure.
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
