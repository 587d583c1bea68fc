//! The arguments: one definition for the parser, `--help`, the man page and the completions.

mod compare;
mod training;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use fabric::catalogue::{self, Model, UnknownMachine};
use fabric::gpu::GpuModel;

pub(crate) use self::compare::{Compare, CompareFormat};
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

    /// Replace host names, addresses, paths and secrets with aliases, the same in every format.
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
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Topo {
    /// `nvidia-smi topo -m`, NCCL's topology or graph XML, or a log; `-` for standard input. Without it and without --instance, plumb
    /// reads this machine.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// A machine by its name: p5.48xlarge, dgx-h100. With a FILE, it supplies what the file does not say.
    #[arg(long, value_name = "NAME", value_parser = machine)]
    pub(crate) instance: Option<&'static Model>,

    /// A file with a `[cluster]` table that describes another machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["file", "instance"])]
    pub(crate) cluster: Option<PathBuf>,

    /// The GPU model, if the FILE does not name it: H100.
    #[arg(long, value_name = "MODEL", value_parser = gpu)]
    pub(crate) gpu: Option<&'static GpuModel>,

    /// The rate of each NIC in Gbit/s, if the FILE does not say it: 400.
    #[arg(long, value_name = "GBPS", value_parser = rate)]
    pub(crate) nic_gbps: Option<f64>,

    /// The number of machines of the job.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes: Option<u32>,

    /// Pods per machine x GPUs per pod: 1x8, 8x1.
    #[arg(long, value_name = "PODSxGPUS", value_parser = pods)]
    pub(crate) pods: Option<(u32, u32)>,

    /// The pods of a machine have one host name or one `NCCL_HOSTID`.
    #[arg(long)]
    pub(crate) same_host: bool,

    /// The pods of a machine share /dev/shm.
    #[arg(long)]
    pub(crate) shared_shm: bool,

    /// NICs per pod; by default every pod has all of them.
    #[arg(long, value_name = "N")]
    pub(crate) nics_per_pod: Option<u32>,

    /// The release of NCCL; by default the newest that plumb knows.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) nccl: Option<fabric::Version>,

    /// A variable NCCL reads, as in `NCCL_P2P_LEVEL=SYS`. Can be given several times.
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<(String, String)>,

    /// The collective of the table of normal bandwidth by size.
    #[arg(long, value_name = "COLLECTIVE")]
    pub(crate) collective: Option<fabric::Collective>,

    /// Show what NCCL decides for a job: channels, rings, trees, and algorithm and protocol by size.
    #[arg(long, conflicts_with_all = ["svg", "channel", "tree"])]
    pub(crate) decide: bool,

    /// Show only the lines about its decisions that NCCL would print, as --decide.
    #[arg(long, conflicts_with_all = ["svg", "channel", "tree", "verbose"])]
    pub(crate) lines: bool,

    /// Show the difference that a variable would make, as in `NCCL_CROSS_NIC=1`. Can be given several times; all count together.
    #[arg(long, value_parser = variable, value_name = "NAME=VALUE", conflicts_with_all = ["svg", "channel", "tree", "lines"])]
    pub(crate) what_if: Vec<(String, String)>,

    /// Compare what these logs of one job say NCCL decided with what plumb predicts; exit code 0 if nothing differs, 1 if something
    /// does, 2 if there is not enough in the logs.
    ///
    /// The machine is the one NCCL printed (`NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING`), unless --xml or --instance is given.
    #[arg(long, value_name = "LOG", num_args = 1.., value_hint = ValueHint::FilePath, conflicts_with_all = ["svg", "channel", "tree", "decide", "lines", "what_if", "file"])]
    pub(crate) check: Vec<PathBuf>,

    /// Show which CPUs, NUMA node and NIC are next to the GPU of each rank, and what to paste to run it there.
    #[arg(long, value_name = "LAUNCHER", value_parser = launcher(), conflicts_with_all = ["svg", "channel", "tree", "decide", "lines", "what_if", "check"])]
    pub(crate) bind: Option<manifest::bind::Launcher>,

    /// Write the machine as the XML that `NCCL_TOPO_FILE` takes, for a virtual machine that shows no PCI tree.
    ///
    /// NCCL finds devices by their PCI bus ids. A topology XML or a log with GRAPH lines has them; with --instance alone they are those of
    /// this machine.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["svg", "channel", "tree", "decide", "lines", "what_if", "check", "bind"])]
    pub(crate) write_topo_file: Option<PathBuf>,

    /// Write the machine and the layout as a cluster file, which --cluster takes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["svg", "channel", "tree", "decide", "lines", "what_if", "check", "bind", "write_topo_file"])]
    pub(crate) write_cluster: Option<PathBuf>,

    /// A job file of `plumb predict`: what the layout costs against one pod with all GPUs is then shown in seconds per step.
    #[arg(long, value_name = "JOB", value_hint = ValueHint::FilePath, conflicts_with_all = ["channel", "tree", "decide", "lines", "what_if", "check", "bind"])]
    pub(crate) job: Option<PathBuf>,

    /// The price of one node for an hour, for --job.
    #[arg(long, value_parser = price, value_name = "PRICE", requires = "job")]
    pub(crate) price_per_hour: Option<f64>,

    /// NCCL's topology XML of the machine, for --check.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "check")]
    pub(crate) xml: Option<PathBuf>,

    /// The rank whose lines are shown.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) rank: u64,

    /// The release of aws-ofi-nccl; by default the newest that plumb knows. It counts on EFA only.
    #[arg(long, value_parser = version, value_name = "VERSION")]
    pub(crate) plugin: Option<fabric::Version>,

    /// Show everything: with --decide every range of sizes and NCCL's own lines.
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Draw the machine as SVG into this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,

    /// Draw the ring of this channel, from a log.
    #[arg(long, value_name = "N")]
    pub(crate) channel: Option<u32>,

    /// Draw the tree of the channel instead of its ring.
    #[arg(long)]
    pub(crate) tree: bool,

    /// Output format.
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
    #[arg(long, short, value_enum, default_value_t = ListFormat::Text)]
    pub(crate) format: ListFormat,
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

/// Reads `--bind`.
fn launcher() -> impl TypedValueParser<Value = manifest::bind::Launcher> {
    use manifest::bind::Launcher;
    PossibleValuesParser::new(Launcher::ALL.map(Launcher::name))
        .try_map(|name| Launcher::find(&name).ok_or("not a launcher"))
}

/// The rate of a NIC in Gbit/s.
fn rate(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok();
    number
        .filter(|it| fabric::machine::Nic::RATES.contains(it))
        .ok_or_else(|| format!("`{text}` is not a NIC rate in Gbit/s"))
}

/// A size of at least one byte.
fn some_bytes(text: &str) -> Result<u64, String> {
    size(text).and_then(|it| if it == 0 { Err("must be at least 1 byte".to_owned()) } else { Ok(it) })
}

/// Bytes with K, M, G or T, which are powers of two as in nccl-tests.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let plain = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let digits = plain.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let shift = match plain.get(digits.len()..).unwrap_or_default() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("`{text}` is not a size; write for example 8, 4K, 1M or 1G")),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("`{text}` is not a size; write for example 8, 4K, 1M or 1G"))?;
    number.checked_mul(1 << shift).filter(|it| *it < 1 << 50).ok_or_else(|| format!("`{text}` is too large"))
}

pub(crate) fn bandwidth(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("GB/s").trim_end().parse::<f64>();
    number
        .ok()
        .filter(|it| (0.0..=1e6).contains(it))
        .ok_or_else(|| format!("`{text}` is not a bandwidth in GB/s"))
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
