//! The arguments of `plumb topo`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use fabric::Layout;
use fabric::catalogue::Model;
use fabric::gpu::GpuModel;
use job::LayoutFlags;

use super::{PageFormat, gpu, machine, pods, price, variable, version};

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

    /// Output format; html for the machine, --decide and --what-if.
    #[arg(long, short, value_enum, default_value_t = PageFormat::Text)]
    pub(crate) format: PageFormat,
}

impl Topo {
    /// What the flags say about the layout of the job.
    pub(crate) fn layout(&self) -> LayoutFlags {
        LayoutFlags {
            nodes: self.nodes,
            pods: self.pods.map(|(pods, gpus)| Layout::new(pods, gpus)),
            nics_per_pod: self.nics_per_pod,
            same_host: self.same_host,
            shared_memory: self.shared_shm,
        }
    }
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
