//! The result of a benchmark, with owned texts: schema `plumb.bench/1`.

use bench::{Fit, Plan, Point, Run, Step, Timing};
use fabric::Collective;
use forecast::Cluster;
use serde::{Deserialize, Serialize};

use crate::expect::rounded;

/// The whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bench {
    /// `plumb.bench/1`.
    pub schema: String,
    /// `all_reduce`.
    pub collective: String,
    /// `host` or `nccl`.
    pub engine: String,
    /// `plumb 0.1.0`, `NCCL 2.28.9`.
    pub version: String,
    /// How many ranks.
    pub ranks: usize,
    /// On how many hosts.
    pub hosts: usize,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: u64,
    /// What was asked for.
    pub config: BenchConfig,
    /// The ranks.
    pub devices: Vec<BenchDevice>,
    /// The measurements.
    pub results: Vec<BenchRow>,
    /// What the times of each series say.
    pub fits: Vec<BenchFit>,
    /// The mean bus bandwidth of all measurements, as nccl-tests has it.
    #[serde(rename = "average_busbw_GBps")]
    pub average: f64,
    /// Wrong elements in all; none where nothing was checked.
    pub wrong: Option<u64>,
    /// The first of them.
    pub first_wrong: Option<BenchWrong>,
    /// What the ranks used between them, where the engine tells: `shared memory`, `TCP over eth0`.
    #[serde(default)]
    pub paths: Option<String>,
    /// A host on which ranks wait for cores.
    pub crowded: Option<BenchCrowded>,
    /// The machines that the expectation is of.
    pub machine: Option<String>,
}

/// What was asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was given or not")]
pub struct BenchConfig {
    /// The smallest size.
    pub minimum_bytes: u64,
    /// The largest.
    pub maximum_bytes: u64,
    /// How many times as large the next size is.
    pub step_factor: Option<u64>,
    /// Or how many bytes more it has.
    pub step_bytes: Option<u64>,
    /// Timed iterations; none where the time decided.
    pub iterations: Option<usize>,
    /// Iterations before them.
    pub warm_up: usize,
    /// Calls that count as one iteration.
    pub aggregate: usize,
    /// How often all sizes were run.
    pub cycles: usize,
    /// How often each was looked at again.
    #[serde(default)]
    pub looks: usize,
    /// Runs that were verified.
    pub check: usize,
    /// Which rank's time counts: `mean`, `rank0`, `min`, `max`.
    pub average: String,
    /// Whether ranks met after every iteration.
    pub blocking: bool,
    /// Whether every iteration was timed alone.
    pub per_iteration: bool,
    /// How many of these are left out of their statistics.
    pub skip: usize,
    /// Whether times of day are shown.
    pub timestamps: bool,
    /// Whether buffers were not registered.
    pub private: bool,
    /// The transport that was forced.
    pub transport: Option<String>,
    /// The algorithm that was forced.
    pub algorithm: Option<String>,
    /// The network that was chosen.
    pub network: Option<String>,
}

/// A rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchDevice {
    /// Its number.
    pub rank: usize,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// Its device on that host.
    pub device: usize,
    /// The device's bus address.
    pub bus: Option<String>,
    /// The device's name.
    pub name: String,
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchRow {
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// Elements.
    pub count: u64,
    /// `float`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// `sum`; none where nothing is combined.
    pub operation: Option<String>,
    /// The root, where there is one.
    pub root: Option<usize>,
    /// Which time all sizes were run, from 0.
    pub cycle: usize,
    /// When it was done, in seconds since 1970.
    pub time: u64,
    /// From the send to the receive buffer.
    pub out_of_place: Option<BenchMeasure>,
    /// Within the receive buffer.
    pub in_place: Option<BenchMeasure>,
    /// What is normal on the machines that were named.
    pub expected: Option<BenchExpected>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchMeasure {
    /// Microseconds of a call: what the table shows.
    pub time_us: f64,
    /// GB/s of the algorithm.
    #[serde(rename = "algbw_GBps")]
    pub algorithm_bandwidth: f64,
    /// GB/s of the bus.
    #[serde(rename = "busbw_GBps")]
    pub bus_bandwidth: f64,
    /// Wrong elements; none where they were not looked for.
    pub wrong: Option<u64>,
    /// Calls that were timed.
    pub iterations: usize,
    /// The median of the samples.
    pub median_us: f64,
    /// Below it is a tenth of them.
    pub p10_us: f64,
    /// Above it is a hundredth of them.
    pub p99_us: f64,
    /// Microseconds of a call in each batch of iterations.
    pub samples_us: Vec<f64>,
    /// The same of the slowest rank of each batch.
    pub longest_us: Vec<f64>,
    /// Microseconds of a call on each rank.
    pub ranks_us: Vec<f64>,
    /// The slowest rank.
    pub slowest_rank: Option<usize>,
    /// How much longer it took than the middle one, in percent.
    pub slowest_lag_percent: f64,
    /// Microseconds of a call when the size was looked at again later.
    #[serde(default)]
    pub looks_us: Vec<f64>,
}

/// A normal interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BenchExpected {
    /// The lowest normal bus bandwidth.
    #[serde(rename = "low_GBps")]
    pub low: f64,
    /// The one to expect.
    #[serde(rename = "expected_GBps")]
    pub expected: f64,
    /// The highest.
    #[serde(rename = "high_GBps")]
    pub high: f64,
}

/// What the times of a series say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchFit {
    /// `float`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// `sum`.
    pub operation: Option<String>,
    /// The root.
    pub root: Option<usize>,
    /// Whether in place.
    pub in_place: bool,
    /// Time of the smallest sizes.
    pub latency_us: Option<f64>,
    /// Bus bandwidth of the largest (that of the algorithm where one rank has no bus).
    #[serde(rename = "bandwidth_GBps")]
    pub bandwidth: Option<f64>,
    /// The size with half of it.
    pub half_bytes: Option<f64>,
    /// Up to this size latency decides.
    pub latency_to_bytes: Option<u64>,
    /// From this size on bandwidth decides.
    pub bandwidth_from_bytes: Option<u64>,
    /// The size with the highest bandwidth, where that is well above the one of the largest sizes.
    pub peak_bytes: Option<u64>,
    /// That bandwidth.
    #[serde(rename = "peak_GBps")]
    pub peak: Option<f64>,
    /// Why nothing could be said.
    pub reason: Option<String>,
}

/// A wrong element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchWrong {
    /// The rank that has it.
    pub rank: usize,
    /// The size.
    pub bytes: u64,
    /// Whether in place.
    pub in_place: bool,
    /// Its place in the result.
    pub index: usize,
    /// What it is.
    pub got: String,
    /// What it should be.
    pub expected: String,
}

/// A host with more ranks than cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchCrowded {
    /// Its name.
    pub host: String,
    /// Ranks on it.
    pub ranks: usize,
    /// Cores they may use.
    pub cores: usize,
}

/// What the run does not know of itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: u64,
    /// The machines it ran on, where they were named.
    pub cluster: Option<&'a Cluster>,
}

impl Bench {
    /// The head alone, before anything is measured.
    pub fn begun(
        collective: Collective,
        config: BenchConfig,
        engine: (&str, &str),
        devices: &[bench::Device],
    ) -> Self {
        let mut hosts: Vec<&str> = devices.iter().map(|it| it.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self {
            schema: "plumb.bench/1".to_owned(),
            collective: collective.name().to_owned(),
            engine: engine.0.to_owned(),
            version: engine.1.to_owned(),
            ranks: devices.len(),
            hosts: hosts.len(),
            started: 0,
            ended: 0,
            config,
            devices: devices.iter().map(device).collect(),
            results: Vec::new(),
            fits: Vec::new(),
            average: 0.0,
            wrong: None,
            first_wrong: None,
            paths: None,
            crowded: None,
            machine: None,
        }
    }

    /// Puts the answer together.
    pub fn new(run: &Run, config: BenchConfig, context: Context<'_>) -> Self {
        let mut it = Self::begun(run.collective, config, (&run.engine, &run.version), &run.devices);
        (it.started, it.ended) = (context.started, context.ended);
        it.results = run.rows.iter().map(|row| BenchRow::new(run.collective, row, context.cluster)).collect();
        it.fits = fits(&it.results, run.collective, run.devices.len());
        let all: Vec<&BenchMeasure> =
            it.results.iter().flat_map(|it| [&it.out_of_place, &it.in_place]).flatten().collect();
        let bandwidths: Vec<f64> = all.iter().map(|it| it.bus_bandwidth).collect();
        it.average = bench::statistics::mean(&bandwidths);
        it.wrong = all.iter().filter_map(|it| it.wrong).reduce(u64::saturating_add);
        it.first_wrong = run.wrong.as_ref().map(|it| BenchWrong {
            rank: it.rank,
            bytes: it.bytes,
            in_place: it.in_place,
            index: it.element.index,
            got: it.element.got.clone(),
            expected: it.element.expected.clone(),
        });
        it.paths.clone_from(&run.paths);
        it.crowded = run.crowded.as_ref().map(|it| BenchCrowded {
            host: it.host.clone(),
            ranks: it.ranks,
            cores: it.cores,
        });
        it.machine = context.cluster.map(|it| it.machine.clone());
        it
    }
}

impl BenchConfig {
    /// What a plan says.
    pub fn new(plan: &Plan) -> Self {
        let (step_factor, step_bytes) = match plan.sizes.step {
            Step::Factor(it) => (Some(it), None),
            Step::Bytes(it) => (None, Some(it)),
        };
        Self {
            minimum_bytes: plan.sizes.from,
            maximum_bytes: plan.sizes.to,
            step_factor,
            step_bytes,
            iterations: plan.iterations,
            warm_up: plan.warm_up,
            aggregate: plan.aggregate,
            cycles: plan.cycles,
            looks: plan.looks,
            check: plan.check,
            average: plan.average.name().to_owned(),
            blocking: plan.blocking,
            per_iteration: plan.per_iteration,
            skip: plan.skip,
            ..Self::default()
        }
    }
}

impl BenchRow {
    /// One size, as it was measured.
    pub fn new(collective: Collective, row: &bench::Row, cluster: Option<&Cluster>) -> Self {
        let measure = |it: &Timing| BenchMeasure {
            time_us: it.seconds * 1e6,
            algorithm_bandwidth: it.algorithm_bandwidth(row.bytes),
            bus_bandwidth: it.bus_bandwidth(row.bytes, collective),
            wrong: it.wrong,
            iterations: it.iterations,
            median_us: rounded(it.median() * 1e6),
            p10_us: rounded(it.p10() * 1e6),
            p99_us: rounded(it.p99() * 1e6),
            samples_us: microseconds(&it.samples),
            longest_us: microseconds(&it.longest),
            ranks_us: microseconds(&it.ranks),
            slowest_rank: it.slowest(),
            slowest_lag_percent: rounded(it.lag() * 100.0),
            looks_us: microseconds(&it.looks),
        };
        let normal = cluster.and_then(|it| forecast::normal(collective, it, row.bytes));
        let operation = bench::shown_operation(collective, row.series.operation);
        Self {
            bytes: row.bytes,
            count: row.count,
            data_type: row.series.data_type.name().to_owned(),
            operation: operation.map(|it| it.name().to_owned()),
            root: bench::has_root(collective).then_some(row.series.root),
            cycle: row.cycle,
            time: row.time,
            out_of_place: row.out_of_place.as_ref().map(measure),
            in_place: row.in_place.as_ref().map(measure),
            expected: normal.filter(|_| row.bytes > 0).map(|it| BenchExpected {
                low: rounded(it.low),
                expected: rounded(it.expected),
                high: rounded(it.high),
            }),
        }
    }

    /// Type, operation and root.
    pub(super) fn series(&self) -> (&str, Option<&str>, Option<usize>) {
        (&self.data_type, self.operation.as_deref(), self.root)
    }

    /// Out of place, or in place.
    pub(super) fn measure(&self, in_place: bool) -> Option<&BenchMeasure> {
        if in_place { self.in_place.as_ref() } else { self.out_of_place.as_ref() }
    }
}

impl BenchMeasure {
    /// Its time at each moment it was measured, in microseconds.
    pub(super) fn moments(&self) -> Vec<f64> {
        std::iter::once(self.median_us)
            .chain(self.looks_us.iter().copied())
            .filter(|it| usable(*it))
            .collect()
    }

    /// GB/s at the median time: of the bus, or of the algorithm where one rank has no bus.
    pub(super) fn median_rate(&self, ranks: usize) -> f64 {
        let rate = if ranks > 1 { self.bus_bandwidth } else { self.algorithm_bandwidth };
        if self.median_us > 0.0 { rate * self.time_us / self.median_us } else { 0.0 }
    }
}

/// Files may hold anything.
pub(super) fn usable(microseconds: f64) -> bool {
    microseconds.is_finite() && microseconds > 0.0
}

fn device(it: &bench::Device) -> BenchDevice {
    BenchDevice {
        rank: it.rank,
        pid: it.pid,
        host: it.host.clone(),
        device: it.device,
        bus: it.bus.clone(),
        name: it.name.clone(),
    }
}

fn microseconds(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|it| rounded(it * 1e6)).collect()
}

/// One fit for each type, operation and root, out of place and in place.
fn fits(rows: &[BenchRow], collective: Collective, ranks: usize) -> Vec<BenchFit> {
    let mut all = Vec::new();
    for series in rows.chunk_by(|a, b| a.series() == b.series()) {
        for in_place in [false, true] {
            let points: Vec<Point> = series
                .iter()
                .filter_map(|row| {
                    let measure = row.measure(in_place)?;
                    Some(Point { bytes: row.bytes, seconds: measure.median_us * 1e-6 })
                })
                .collect();
            if let (Some(first), false) = (series.first(), points.is_empty()) {
                all.push(BenchFit::new(first, in_place, bench::fit(&points), collective, ranks));
            }
        }
    }
    all
}

impl BenchFit {
    fn new(
        row: &BenchRow,
        in_place: bool,
        fit: Result<Fit, String>,
        collective: Collective,
        ranks: usize,
    ) -> Self {
        // One rank has no bus.
        let factor = collective.bus_factor(u32::try_from(ranks).unwrap_or(u32::MAX));
        let factor = if factor > 0.0 { factor } else { 1.0 };
        let (fit, reason) = match fit {
            Ok(it) => (Some(it), None),
            Err(reason) => (None, Some(reason)),
        };
        let rate = |it: f64| rounded(it * factor / 1e9);
        let fit = fit.as_ref();
        let peak = fit.and_then(|it| it.peak);
        Self {
            data_type: row.data_type.clone(),
            operation: row.operation.clone(),
            root: row.root,
            in_place,
            latency_us: fit.and_then(|it| it.latency).map(|it| rounded(it * 1e6)),
            bandwidth: fit.and_then(|it| it.bandwidth).map(rate),
            half_bytes: fit.and_then(|it| it.half).map(rounded),
            latency_to_bytes: fit.and_then(|it| it.regimes.latency),
            bandwidth_from_bytes: fit.and_then(|it| it.regimes.bandwidth),
            peak_bytes: peak.map(|it| it.bytes),
            #[expect(clippy::cast_precision_loss, reason = "bytes of a buffer, exact up to 2^53")]
            peak: peak.map(|it| rate(it.bytes as f64 / it.seconds)),
            reason,
        }
    }
}
