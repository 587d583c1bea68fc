//! The arguments of `plumb bench`: nccl-tests' flags with their letters and names, and plumb's own.

use std::path::PathBuf;
use std::time::Duration;

use bench::{Average, Plan, Sizes, Step};
use clap::{Args, ValueEnum, ValueHint};
use collective::{Algorithm, DataType, Operation, Transport};
use fabric::Collective;

use crate::args::{ListFormat, Machines, size};

/// Sizes where nothing is said: all that matters, in a few seconds.
const USUAL: (u64, u64) = (8, 64 << 20);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is right; 1 wrong results, or slower than before (--compare); 2 it could not be run."
)]
pub(crate) struct Bench {
    /// The collective: `all_reduce`, `all_gather`, `reduce_scatter`, broadcast, reduce, alltoall, gather, scatter, sendrecv.
    #[arg(required_unless_present = "compare")]
    pub(crate) collective: Option<Collective>,

    /// The smallest size: 8, 4K, 1M, 8G (K is 1024). Without it 8.
    #[arg(short = 'b', long = "minbytes", value_parser = size, value_name = "BYTES")]
    min: Option<u64>,

    /// The largest size. Without it 64M, or the smallest if that is larger.
    #[arg(short = 'e', long = "maxbytes", value_parser = size, value_name = "BYTES")]
    max: Option<u64>,

    /// From size to size so many bytes more.
    #[arg(short = 'i', long = "stepbytes", value_parser = size, value_name = "BYTES")]
    step_bytes: Option<u64>,

    /// From size to size so many times as large. Without it and without -i, 2.
    #[arg(short = 'f', long = "stepfactor", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    step_factor: Option<u64>,

    /// Timed iterations of a size. Without it at least 20, and as many as take 20 ms.
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = count)]
    iterations: Option<usize>,

    /// Calls that count as one iteration.
    #[arg(short = 'm', long = "agg_iters", value_name = "N", default_value_t = 1, value_parser = count)]
    aggregate: usize,

    /// Iterations before the timed ones.
    #[arg(short = 'w', long = "warmup_iters", value_name = "N", default_value_t = 5)]
    warm_up: usize,

    /// How often all sizes are run; 0 goes on until it is interrupted.
    #[arg(short = 'N', long = "run_cycles", value_name = "N", default_value_t = 1)]
    cycles: usize,

    /// How often each size is looked at again after all have been run, so that --compare can tell changes from drift; 0 for never. Without it 4, fewer with -N.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1000))]
    looks: Option<u64>,

    /// How many runs of each size are verified, every element of them; 0 verifies nothing.
    #[arg(short = 'c', long = "check", value_name = "N", default_value_t = 1)]
    check: usize,

    /// The operation: sum, prod, max, min, avg, or all.
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum", value_parser = operations)]
    operations: Several<Operation>,

    /// The type of elements: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, or all.
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float", value_parser = data_types)]
    data_types: Several<DataType>,

    /// The root of broadcast, reduce, gather and scatter; `all` (or -1) for each rank in turn.
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", allow_hyphen_values = true, value_parser = root)]
    root: Root,

    /// Whose time counts: 0 rank 0, 1 the mean of all ranks, 2 the shortest, 3 the longest.
    #[arg(short = 'a', long = "average", value_name = "0-3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    average: u8,

    /// 1 or 3: ranks wait for each other after every iteration, outside of the time. 2: a rank waits for its own.
    #[arg(short = 'z', long = "blocking", value_name = "0-3", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) blocking: u8,

    /// 1: every iteration is timed alone, and its least, longest, p99 and variation are shown.
    #[arg(short = 'I', long = "per_iter_timing", value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    per_iteration: u8,

    /// With -I, leave so many first iterations out.
    #[arg(short = 'K', long = "per_iter_skip", value_name = "N", default_value_t = 0)]
    skip: usize,

    /// 1: the time of day in every row, in UTC.
    #[arg(short = 'S', long = "report_timestamps", value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    timestamps: u8,

    /// Also write nccl-tests' JSON here, without the environment; where the file exists, to FILE.0 and so on.
    #[arg(short = 'J', long = "output_file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// Seconds that ranks wait for one that gives no sign.
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,

    /// How many ranks to start here, where no launcher has; -g and -t multiplied say the same.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Where and how")]
    ranks: Option<u64>,

    /// What moves the data: host memory, or NCCL on GPUs; auto takes NCCL where every rank has it.
    #[arg(long, value_enum, default_value_t = Kind::Auto, help_heading = "Where and how")]
    pub(crate) engine: Kind,

    /// The only path to use, of the host engine: shm or tcp.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) transport: Option<Transport>,

    /// The network: an interface, an address or a subnet.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) net: Option<String>,

    /// The only algorithm to use, of the host engine.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) algo: Option<Algorithm>,

    /// TCP connections to each peer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64), help_heading = "Where and how")]
    channels: Option<u64>,

    /// NCCL's file, where it is not in a usual place: libnccl.so.2.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Where and how")]
    pub(crate) nccl_library: Option<PathBuf>,

    /// Buffers that are not registered with the engine, as those of most programs.
    #[arg(long, help_heading = "Where and how")]
    pub(crate) private: bool,

    /// Write the engine's choices to this file, in the shape `plumb doctor` reads; rank 1 to FILE.1, and so on.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Where and how")]
    pub(crate) log: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) machines: Machines,

    /// Draw bandwidth and time over size into this file.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub(crate) plot: Option<PathBuf>,

    /// How to write the answer. Can be given several times, each with its own --output.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Answer")]
    pub(crate) format: Vec<ListFormat>,

    /// Where to write it: the first --output belongs to the first --format, and so on; without one, standard output.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub(crate) output: Vec<PathBuf>,

    /// Compare two results (--format json, or nccl-tests' -J) and tell what changed beyond noise.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], value_hint = ValueHint::FilePath, conflicts_with = "collective", help_heading = "Answer")]
    pub(crate) compare: Vec<PathBuf>,

    #[command(flatten)]
    other: Other,
}

/// What nccl-tests knows beside, with which nothing changes here.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted as nccl-tests has them")]
struct Other {
    /// Threads of a process: each is a rank of its own here.
    #[arg(short = 't', long = "nthreads", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: u64,
    /// GPUs of a thread: each is a rank of its own here.
    #[arg(short = 'g', long = "ngpus", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    gpus: u64,
    /// No effect.
    #[arg(short = 'p', long = "parallel_init", value_name = "0/1", default_value_t = 0)]
    parallel_init: u64,
    /// No effect.
    #[arg(short = 'y', long = "stream_null", value_name = "0/1", default_value_t = 0)]
    stream_null: u64,
    /// No effect.
    #[arg(short = 'G', long = "cudagraph", value_name = "N", default_value_t = 0)]
    graph: u64,
    /// No effect.
    #[arg(short = 'C', long = "report_cputime", value_name = "0/1", default_value_t = 0)]
    cpu_time: u64,
    /// No effect; see --private.
    #[arg(short = 'R', long = "local_register", value_name = "0-2", default_value_t = 0)]
    register: u64,
    /// No effect.
    #[arg(short = 'x', long = "cta_policy", value_name = "N", default_value_t = 0)]
    cta_policy: u64,
    /// No effect.
    #[arg(short = 'D', long = "device_implementation", value_name = "N", default_value_t = 0)]
    device: u64,
    /// No effect.
    #[arg(short = 'V', long = "device_cta_count", value_name = "N", default_value_t = 0)]
    device_ctas: u64,
    /// No effect.
    #[arg(short = 'M', long = "memory", value_name = "0/1", default_value_t = 0)]
    memory: u64,
    /// No effect.
    #[arg(short = 'u', long = "unalign", value_name = "N", default_value_t = 0)]
    unalign: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Auto,
    Host,
    Nccl,
}

/// One, or all of them.
#[derive(Debug, Clone)]
struct Several<T>(Vec<T>);

/// One rank, or each in turn.
#[derive(Debug, Clone, Copy)]
struct Root(Option<usize>);

impl Bench {
    /// What to run; an error says which arguments do not go together.
    pub(crate) fn plan(&self, collective: Collective) -> Result<Plan, String> {
        let from = self.min.unwrap_or(USUAL.0.min(self.max.unwrap_or(USUAL.0)));
        let to = self.max.unwrap_or(USUAL.1.max(from));
        if from > to {
            return Err(format!("-b {from} is larger than -e {to}"));
        }
        let step = match (self.step_factor, self.step_bytes) {
            (Some(factor), _) if factor > 1 => Step::Factor(factor),
            (None, None) => Step::Factor(2),
            (_, bytes) => Step::Bytes(bytes.unwrap_or(1 << 20)),
        };
        if step == Step::Bytes(0) && from < to {
            return Err("-i 0 never comes to -e".to_owned());
        }
        let sizes = Sizes { from, to, step };
        if sizes.all().take(100_001).count() > 100_000 {
            return Err("these are more than 100000 sizes: take a larger -i, or -f 2".to_owned());
        }
        let plan = Plan {
            sizes,
            data_types: self.data_types.0.clone(),
            operations: self.operations.0.clone(),
            root: self.root.0,
            iterations: self.iterations,
            warm_up: self.warm_up.min(1_000_000),
            aggregate: self.aggregate,
            cycles: self.cycles,
            looks: self.looks(),
            check: self.check,
            average: Average::ALL.get(usize::from(self.average)).copied().unwrap_or(Average::Mean),
            blocking: matches!(self.blocking, 1 | 3),
            per_iteration: self.per_iteration == 1,
            skip: if self.per_iteration == 1 { self.skip } else { 0 },
            ..Plan::new(collective)
        };
        if self.skip > 0 && (self.per_iteration == 0 || plan.iterations.is_some_and(|it| self.skip >= it)) {
            return Err("-K leaves out iterations of -I 1, fewer than -n".to_owned());
        }
        Ok(plan)
    }

    /// What all ranks must have alike.
    pub(crate) fn flags(&self, plan: &Plan) -> Vec<String> {
        let engine = self.engine.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned());
        let mut flags = plan.flags();
        flags.push(format!("--engine {engine}"));
        flags.push(if self.private { "--private" } else { "no --private" }.to_owned());
        flags
    }

    /// Makes sure that the folders of all files to write are there, before it takes its time.
    pub(crate) fn places(&self) -> Result<(), String> {
        let files = self.output.iter().chain(&self.plot).chain(&self.json).chain(&self.log);
        for path in files {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|it| !it.is_dir()) {
                return Err(format!("{}: there is no folder {}", path.display(), folder.display()));
            }
        }
        if let Some(path) = &self.plot
            && !path.extension().is_some_and(|it| it.eq_ignore_ascii_case("svg"))
        {
            return Err(format!("--plot draws an SVG: name it {}.svg", path.display()));
        }
        Ok(())
    }

    /// How many ranks to start, where that was said.
    pub(crate) fn ranks(&self) -> Option<usize> {
        let product = self.other.threads * self.other.gpus;
        let told = self.ranks.or((product > 1).then_some(product));
        told.and_then(|it| usize::try_from(it).ok())
    }

    /// Every size is measured at five moments, if nobody says otherwise.
    fn looks(&self) -> usize {
        match self.looks {
            Some(it) => usize::try_from(it).unwrap_or(usize::MAX),
            None if self.cycles == 0 => 0,
            None => 5_usize.saturating_sub(self.cycles),
        }
    }

    pub(crate) fn channels(&self) -> Option<usize> {
        self.channels.and_then(|it| usize::try_from(it).ok())
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    pub(crate) fn timestamps(&self) -> bool {
        self.timestamps == 1
    }

    /// Flags of the host engine, which change nothing with NCCL.
    pub(crate) fn idle_on_nccl(&self) -> Vec<&'static str> {
        given(&[
            ("--transport", self.transport.is_some()),
            ("--algo", self.algo.is_some()),
            ("--channels", self.channels.is_some()),
            ("--private", self.private),
            ("--log", self.log.is_some()),
        ])
    }

    /// Flags of NCCL, which change nothing in host memory.
    pub(crate) fn idle_on_host(&self) -> Vec<&'static str> {
        given(&[("--nccl-library", self.nccl_library.is_some())])
    }

    /// Flags that change nothing.
    pub(crate) fn idle(&self) -> Vec<&'static str> {
        let it = &self.other;
        let all = [
            ("-p", it.parallel_init),
            ("-y", it.stream_null),
            ("-G", it.graph),
            ("-C", it.cpu_time),
            ("-R", it.register),
            ("-x", it.cta_policy),
            ("-D", it.device),
            ("-V", it.device_ctas),
            ("-M", it.memory),
            ("-u", it.unalign),
        ];
        given(&all.map(|(name, value)| (name, value > 0)))
    }
}

/// The names of those that are.
fn given(flags: &[(&'static str, bool)]) -> Vec<&'static str> {
    flags.iter().filter(|it| it.1).map(|it| it.0).collect()
}

fn operations(text: &str) -> Result<Several<Operation>, String> {
    match text {
        "all" => Ok(Several(Operation::ALL.to_vec())),
        "mulsum" => Err("mulsum is not offered".to_owned()),
        one => one.parse().map(|it| Several(vec![it])),
    }
}

fn data_types(text: &str) -> Result<Several<DataType>, String> {
    if text == "all" { Ok(Several(DataType::ALL.to_vec())) } else { text.parse().map(|it| Several(vec![it])) }
}

fn root(text: &str) -> Result<Root, String> {
    match text {
        "all" | "-1" => Ok(Root(None)),
        one => one.parse().map(|it| Root(Some(it))).map_err(|_| format!("`{text}` is no rank")),
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|it| (1..=100_000_000).contains(it))
        .ok_or_else(|| format!("`{text}` is no count"))
}
