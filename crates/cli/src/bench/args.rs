//! The arguments of `plumb bench`: nccl-tests' flags with their letters and names, and plumb's own.

use std::path::PathBuf;
use std::time::Duration;

use bench::{Average, DataType, Operation, Plan, Sizes, Step};
use clap::{Args, ValueEnum, ValueHint};
#[cfg(target_os = "linux")]
use collective::{Algorithm, Transport};
use fabric::Collective;

use crate::args::{Asked, Machines, PageFormat, asked, size};

/// These exist only on Linux; on other systems plumb does not measure and accepts any name.
#[cfg(not(target_os = "linux"))]
type Algorithm = String;
#[cfg(not(target_os = "linux"))]
type Transport = String;

/// The default sizes, -b and -e: from latency to bandwidth in a few seconds.
const USUAL: (u64, u64) = (8, 64 << 20);

/// A collective, or a file with a result.
fn measured(text: &str) -> Result<Asked, <Collective as std::str::FromStr>::Err> {
    let is_json = std::path::Path::new(text).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    if is_json { Ok(Asked::Page(text.into())) } else { asked(text) }
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all results are correct; 1 wrong results, or slower than before (--compare); 2 plumb could not measure."
)]
pub(crate) struct Bench {
    /// The collective: `all_reduce`, `all_gather`, `reduce_scatter`, broadcast, reduce, alltoall, gather, scatter, sendrecv.
    /// Or a page of an earlier answer or its JSON (also that of nccl-tests -J), to show it again.
    #[arg(required_unless_present = "compare", value_parser = measured)]
    pub(crate) collective: Option<Asked>,

    /// The smallest size: 8, 4K, 1M, 8G (K is 1024); by default 8.
    #[arg(short = 'b', long = "minbytes", value_parser = size, value_name = "BYTES")]
    min: Option<u64>,

    /// The largest size; by default 64M, or the smallest size if that is larger.
    #[arg(short = 'e', long = "maxbytes", value_parser = size, value_name = "BYTES")]
    max: Option<u64>,

    /// Add this many bytes at each step.
    #[arg(short = 'i', long = "stepbytes", value_parser = size, value_name = "BYTES")]
    step_bytes: Option<u64>,

    /// Multiply the size by this at each step; by default 2, unless -i is given.
    #[arg(short = 'f', long = "stepfactor", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    step_factor: Option<u64>,

    /// Timed iterations per size; by default at least 20, and as many as take 20 ms.
    #[arg(short = 'n', long = "iters", value_name = "N", value_parser = count)]
    iterations: Option<usize>,

    /// Calls per iteration.
    #[arg(short = 'm', long = "agg_iters", value_name = "N", default_value_t = 1, value_parser = count)]
    aggregate: usize,

    /// Warm-up iterations before the timed ones.
    #[arg(short = 'w', long = "warmup_iters", value_name = "N", default_value_t = 5)]
    warm_up: usize,

    /// Run all sizes this many times; 0 means until interrupted.
    #[arg(short = 'N', long = "run_cycles", value_name = "N", default_value_t = 1)]
    cycles: usize,

    /// Measure every size again this many times after the first pass, so that --compare can tell a change from drift; by default 4, fewer
    /// with -N, none with -n.
    #[arg(long, alias = "looks", value_name = "N", value_parser = clap::value_parser!(u64).range(0..=1000))]
    repeats: Option<u64>,

    /// Verify every element of this many runs of each size; 0 turns verification off.
    #[arg(short = 'c', long = "check", value_name = "N", default_value_t = 1)]
    check: usize,

    /// The reduction: sum, prod, max, min, avg, or all.
    #[arg(short = 'o', long = "op", value_name = "OP", default_value = "sum", value_parser = operations)]
    operations: Several<Operation>,

    /// The element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, or all.
    #[arg(short = 'd', long = "datatype", value_name = "TYPE", default_value = "float", value_parser = data_types)]
    data_types: Several<DataType>,

    /// The root of broadcast, reduce, gather and scatter; `all` (or -1) for each rank in turn.
    #[arg(short = 'r', long = "root", value_name = "RANK", default_value = "0", allow_hyphen_values = true, value_parser = root)]
    root: Root,

    /// Which time to report: 0 that of rank 0, 1 the mean of all ranks, 2 the shortest, 3 the longest.
    #[arg(short = 'a', long = "average", value_name = "0-3", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    average: u8,

    /// 1 or 3: barrier after every iteration, not part of the time. 2: wait for each iteration on its own rank only.
    #[arg(short = 'z', long = "blocking", value_name = "0-3", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) blocking: u8,

    /// 1: time every iteration on its own and show the shortest, the longest, p99 and the variation.
    #[arg(short = 'I', long = "per_iter_timing", value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    per_iteration: u8,

    /// With -I 1, leave this many first iterations out of the statistics.
    #[arg(short = 'K', long = "per_iter_skip", value_name = "N", default_value_t = 0)]
    skip: usize,

    /// 1: add the time of day to every row, in UTC.
    #[arg(short = 'S', long = "report_timestamps", value_name = "0/1", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=1))]
    timestamps: u8,

    /// Also write the JSON of nccl-tests to this file, without the environment; if it exists, to FILE.0 and so on.
    #[arg(short = 'J', long = "output_file", value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// Give up when a rank has not answered for this many seconds.
    #[arg(short = 'T', long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: u64,

    /// Start this many ranks on this machine, if no launcher started them; the same as -t times -g. By default one rank per GPU with
    /// NCCL, otherwise one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096), help_heading = "Where and how")]
    ranks: Option<u64>,

    /// What moves the data: plumb's own collectives in host memory, or NCCL on GPUs; auto uses NCCL where every rank has it.
    #[arg(long, value_enum, default_value_t = Kind::Auto, help_heading = "Where and how")]
    pub(crate) engine: Kind,

    /// Use only this transport of the host-memory engine: shm or tcp.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) transport: Option<Transport>,

    /// The network to use: an interface, an address or a subnet.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) net: Option<String>,

    /// Use only this algorithm of the host-memory engine.
    #[arg(long, value_name = "NAME", help_heading = "Where and how")]
    pub(crate) algo: Option<Algorithm>,

    /// Open this many TCP connections to each peer.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=64), help_heading = "Where and how")]
    channels: Option<u64>,

    /// The NCCL library, if plumb does not find it: /opt/nccl/libnccl.so.2.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Where and how")]
    pub(crate) nccl_library: Option<PathBuf>,

    /// Use buffers that are not registered with the engine, as most programs do.
    #[arg(long, help_heading = "Where and how")]
    pub(crate) private: bool,

    /// Log what the engine chose to this file, in the format that `plumb doctor` reads; rank 1 to FILE.1, and so on.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Where and how")]
    pub(crate) log: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) machines: Machines,

    /// Draw bandwidth and time by size into this file.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub(crate) plot: Option<PathBuf>,

    /// Output format. Can be given several times, each with its own --output.
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Answer")]
    pub(crate) format: Vec<PageFormat>,

    /// Output file: the first --output belongs to the first --format, and so on; standard output by default.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub(crate) output: Vec<PathBuf>,

    /// Compare two results (--format json, or -J of nccl-tests) and show what changed beyond noise.
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], value_hint = ValueHint::FilePath, conflicts_with = "collective", help_heading = "Answer")]
    pub(crate) compare: Vec<PathBuf>,

    #[command(flatten)]
    other: Other,
}

/// Flags of nccl-tests that have another meaning or none.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted for compatibility with nccl-tests")]
struct Other {
    /// Threads per process; in plumb every one is a process.
    #[arg(short = 't', long = "nthreads", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: u64,
    /// GPUs per thread; in plumb every one has a process.
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
    /// The plan; the error names arguments that contradict each other.
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
            return Err("-i 0 never reaches -e".to_owned());
        }
        let sizes = Sizes { from, to, step };
        if sizes.all().take(100_001).count() > 100_000 {
            return Err("more than 100000 sizes: use a larger -i, or -f 2".to_owned());
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
            repeats: self.repeats(),
            check: self.check,
            average: Average::ALL.get(usize::from(self.average)).copied().unwrap_or(Average::Mean),
            blocking: matches!(self.blocking, 1 | 3),
            per_iteration: self.per_iteration == 1,
            skip: if self.per_iteration == 1 { self.skip } else { 0 },
            ..Plan::new(collective)
        };
        if self.skip > 0 && (self.per_iteration == 0 || plan.iterations.is_some_and(|it| self.skip >= it)) {
            return Err("-K needs -I 1 and must be less than -n".to_owned());
        }
        Ok(plan)
    }

    /// The flags that must be the same on all ranks.
    pub(crate) fn flags(&self, plan: &Plan) -> Vec<String> {
        let engine = self.engine.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned());
        let mut flags = plan.flags();
        flags.push(format!("--engine {engine}"));
        flags.push(if self.private { "--private" } else { "no --private" }.to_owned());
        flags
    }

    /// Makes sure, before anything is measured, that all output files can be created.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        let files = self.output.iter().chain(&self.plot).chain(&self.json).chain(&self.log);
        for path in files {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|it| !it.is_dir()) {
                return Err(format!("{}: folder {} does not exist", path.display(), folder.display()));
            }
        }
        if let Some(path) = &self.plot
            && !path.extension().is_some_and(|it| it.eq_ignore_ascii_case("svg"))
        {
            return Err(format!("--plot writes an SVG file: use the name {}.svg", path.display()));
        }
        Ok(())
    }

    /// `--ranks`, or `-t` times `-g`.
    pub(crate) fn ranks(&self) -> Option<usize> {
        let product = self.other.threads * self.other.gpus;
        let ranks = self.ranks.or((product > 1).then_some(product));
        ranks.and_then(|it| usize::try_from(it).ok())
    }

    /// By default five passes in all; with `-n` as many iterations as the user asked for, as in nccl-tests.
    fn repeats(&self) -> usize {
        match self.repeats {
            Some(it) => usize::try_from(it).unwrap_or(usize::MAX),
            None if self.cycles == 0 || self.iterations.is_some() => 0,
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

    /// Flags of the host-memory engine that are given, which have no effect on NCCL.
    pub(crate) fn idle_on_nccl(&self) -> Vec<&'static str> {
        given(&[
            ("--transport", self.transport.is_some()),
            ("--algo", self.algo.is_some()),
            ("--channels", self.channels.is_some()),
            ("--private", self.private),
            ("--log", self.log.is_some()),
        ])
    }

    /// Flags of the NCCL engine that are given, which have no effect on host memory.
    pub(crate) fn idle_on_host(&self) -> Vec<&'static str> {
        given(&[("--nccl-library", self.nccl_library.is_some())])
    }

    /// Flags of nccl-tests that are given and have no effect.
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

/// The names of the flags that are given.
fn given(flags: &[(&'static str, bool)]) -> Vec<&'static str> {
    flags.iter().filter(|it| it.1).map(|it| it.0).collect()
}

fn operations(text: &str) -> Result<Several<Operation>, String> {
    match text {
        "all" => Ok(Several(Operation::ALL.to_vec())),
        "mulsum" => Err("plumb has no mulsum".to_owned()),
        one => one.parse().map(|it| Several(vec![it])),
    }
}

fn data_types(text: &str) -> Result<Several<DataType>, String> {
    if text == "all" { Ok(Several(DataType::ALL.to_vec())) } else { text.parse().map(|it| Several(vec![it])) }
}

fn root(text: &str) -> Result<Root, String> {
    match text {
        "all" | "-1" => Ok(Root(None)),
        one => one.parse().map(|it| Root(Some(it))).map_err(|_| format!("`{text}` is not a rank")),
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|it| (1..=100_000_000).contains(it))
        .ok_or_else(|| format!("`{text}` is not a count from 1 to 100000000"))
}
