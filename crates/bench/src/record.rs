//! The record of a run, which JSON keeps and a comparison reads: schema `plumb.bench/1`.

use fabric::Collective;
use serde::{Deserialize, Serialize};

use crate::data::EngineKind;
use crate::fit::{self, Point};
use crate::plan::{Plan, Step, has_root, shown_operation};
use crate::run::{Device, Oversubscribed, Run, Segments, Timing};
use crate::statistics::mean;

/// The whole record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `plumb.bench/1`.
    pub schema: String,
    /// `all_reduce`.
    pub collective: String,
    /// What ran it; none where the file of another program does not say.
    pub engine: Option<EngineKind>,
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
    /// The flags of the run.
    pub config: Config,
    /// The ranks.
    pub devices: Vec<Device>,
    /// The measurements.
    pub results: Vec<Row>,
    /// Latency and bandwidth of each series.
    pub fits: Vec<Fit>,
    /// The mean bus bandwidth of all measurements, as nccl-tests has it.
    #[serde(rename = "average_busbw_GBps")]
    pub average: f64,
    /// Wrong elements in all; none where nothing was checked.
    pub wrong: Option<u64>,
    /// The first of them.
    pub first_wrong: Option<Wrong>,
    /// The transports between the ranks, where the engine reports them: `shared memory`, `TCP over eth0`.
    #[serde(default)]
    pub paths: Option<String>,
    /// TCP segments, or packets of EFA, that each rank sent; empty where that is not known.
    #[serde(default)]
    pub segments: Vec<Segments>,
    /// A host with more ranks than cores.
    #[serde(rename = "crowded")]
    pub oversubscribed: Option<Oversubscribed>,
    /// The machines that the expected bandwidth is of.
    pub machine: Option<String>,
}

/// The flags of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was given or not")]
pub struct Config {
    /// The smallest size.
    pub minimum_bytes: u64,
    /// The largest.
    pub maximum_bytes: u64,
    /// How many times as large the next size is.
    pub step_factor: Option<u64>,
    /// Or how many bytes more it has.
    pub step_bytes: Option<u64>,
    /// Timed iterations; none where plumb chose them by time.
    pub iterations: Option<usize>,
    /// Iterations before them.
    pub warm_up: usize,
    /// Calls that count as one iteration.
    pub aggregate: usize,
    /// How often all sizes were run.
    pub cycles: usize,
    /// Later passes over all sizes.
    #[serde(default, rename = "looks")]
    pub repeats: usize,
    /// Runs that were verified.
    pub check: usize,
    /// Which rank's time counts: `mean`, `rank0`, `min`, `max`.
    pub average: String,
    /// Whether there was a barrier after every iteration.
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

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
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
    /// The cycle of `-N`, from 0.
    pub cycle: usize,
    /// When it was measured, in seconds since 1970.
    pub time: u64,
    /// From the send to the receive buffer.
    pub out_of_place: Option<Measure>,
    /// Within the receive buffer.
    pub in_place: Option<Measure>,
    /// The bandwidth to expect on the machines of the run.
    pub expected: Option<Expected>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Microseconds of a call: what the table shows.
    pub time_us: f64,
    /// GB/s of the algorithm.
    #[serde(rename = "algbw_GBps")]
    pub algorithm_bandwidth: f64,
    /// GB/s of the bus.
    #[serde(rename = "busbw_GBps")]
    pub bus_bandwidth: f64,
    /// Wrong elements; none where the result was not verified.
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
    /// How much longer it took than the median rank, in percent.
    pub slowest_lag_percent: f64,
    /// Microseconds of a call in each later pass.
    #[serde(default, rename = "looks_us")]
    pub repeats_us: Vec<f64>,
}

/// The bus bandwidth to expect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The lowest normal one.
    #[serde(rename = "low_GBps")]
    pub low: f64,
    /// The most likely one.
    #[serde(rename = "expected_GBps")]
    pub expected: f64,
    /// The highest normal one.
    #[serde(rename = "high_GBps")]
    pub high: f64,
}

/// Latency and bandwidth of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fit {
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
    /// Up to this size the time is the latency.
    pub latency_to_bytes: Option<u64>,
    /// From this size on the bandwidth is reached.
    pub bandwidth_from_bytes: Option<u64>,
    /// The size with the highest bandwidth, where that is well above the one of the largest sizes.
    pub peak_bytes: Option<u64>,
    /// That bandwidth.
    #[serde(rename = "peak_GBps")]
    pub peak: Option<f64>,
    /// Why there is no fit.
    pub reason: Option<String>,
}

/// A wrong element.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The rank that has it.
    pub rank: usize,
    /// The size.
    pub bytes: u64,
    /// Whether in place.
    pub in_place: bool,
    /// Its index in the result.
    pub index: usize,
    /// What it is.
    pub got: String,
    /// What it should be.
    pub expected: String,
}

/// What the run does not know of itself.
#[derive(Clone, Copy, Default)]
pub struct Context<'a> {
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: u64,
    /// The machines it ran on, where they were named.
    pub machine: Option<&'a str>,
    /// The bandwidth to expect there for a size.
    pub expected: Option<&'a dyn Fn(u64) -> Option<Expected>>,
}

impl Record {
    /// The head alone, before anything is measured.
    pub fn begun(
        collective: Collective,
        config: Config,
        engine: Option<EngineKind>,
        version: &str,
        devices: &[Device],
    ) -> Self {
        let mut hosts: Vec<&str> = devices.iter().map(|it| it.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self {
            schema: "plumb.bench/1".to_owned(),
            collective: collective.name().to_owned(),
            engine,
            version: version.to_owned(),
            ranks: devices.len(),
            hosts: hosts.len(),
            started: 0,
            ended: 0,
            config,
            devices: devices.to_vec(),
            results: Vec::new(),
            fits: Vec::new(),
            average: 0.0,
            wrong: None,
            first_wrong: None,
            paths: None,
            segments: Vec::new(),
            oversubscribed: None,
            machine: None,
        }
    }

    /// `host`, `nccl`, or nothing where it is unknown.
    pub fn engine_name(&self) -> &'static str {
        self.engine.map_or("", EngineKind::name)
    }

    /// The record of a whole run.
    pub fn new(run: &Run, config: Config, context: Context<'_>) -> Self {
        let mut it = Self::begun(run.collective, config, Some(run.engine), &run.version, &run.devices);
        (it.started, it.ended) = (context.started, context.ended);
        let expected = |row: &crate::Row| context.expected.filter(|_| row.bytes > 0)?(row.bytes);
        let rows = run.rows.iter().map(|row| Row::new(run.collective, row, expected(row)));
        it.results = rows.collect();
        it.fits = fits(&it.results, run.collective, run.devices.len());
        let all: Vec<&Measure> =
            it.results.iter().flat_map(|it| [&it.out_of_place, &it.in_place]).flatten().collect();
        let bandwidths: Vec<f64> = all.iter().map(|it| it.bus_bandwidth).collect();
        it.average = mean(&bandwidths);
        it.wrong = all.iter().filter_map(|it| it.wrong).reduce(u64::saturating_add);
        it.first_wrong = run.wrong.as_ref().map(|it| Wrong {
            rank: it.rank,
            bytes: it.bytes,
            in_place: it.in_place,
            index: it.element.index,
            got: it.element.got.clone(),
            expected: it.element.expected.clone(),
        });
        it.paths.clone_from(&run.paths);
        it.segments.clone_from(&run.segments);
        it.oversubscribed.clone_from(&run.oversubscribed);
        it.machine = context.machine.map(str::to_owned);
        it
    }
}

impl Config {
    /// The flags of a plan.
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
            repeats: plan.repeats,
            check: plan.check,
            average: plan.average.name().to_owned(),
            blocking: plan.blocking,
            per_iteration: plan.per_iteration,
            skip: plan.skip,
            ..Self::default()
        }
    }
}

impl Row {
    /// One size, as it was measured.
    pub fn new(collective: Collective, row: &crate::Row, expected: Option<Expected>) -> Self {
        let measure = |it: &Timing| Measure {
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
            repeats_us: microseconds(&it.repeats),
        };
        let operation = shown_operation(collective, row.series.operation);
        Self {
            bytes: row.bytes,
            count: row.count,
            data_type: row.series.data_type.name().to_owned(),
            operation: operation.map(|it| it.name().to_owned()),
            root: has_root(collective).then_some(row.series.root),
            cycle: row.cycle,
            time: row.time,
            out_of_place: row.out_of_place.as_ref().map(measure),
            in_place: row.in_place.as_ref().map(measure),
            expected: expected.map(|it| Expected {
                low: rounded(it.low),
                expected: rounded(it.expected),
                high: rounded(it.high),
            }),
        }
    }

    /// Type, operation and root.
    pub fn series(&self) -> (&str, Option<&str>, Option<usize>) {
        (&self.data_type, self.operation.as_deref(), self.root)
    }

    /// Out of place, or in place.
    pub fn measure(&self, in_place: bool) -> Option<&Measure> {
        if in_place { self.in_place.as_ref() } else { self.out_of_place.as_ref() }
    }
}

impl Measure {
    /// The time of each pass, in microseconds.
    pub fn passes(&self) -> Vec<f64> {
        std::iter::once(self.median_us)
            .chain(self.repeats_us.iter().copied())
            .filter(|it| usable(*it))
            .collect()
    }

    /// GB/s at the mean time, as the table has it: of the bus, or of the algorithm where one rank has no bus.
    pub fn rate(&self, ranks: usize) -> f64 {
        if ranks > 1 { self.bus_bandwidth } else { self.algorithm_bandwidth }
    }
}

/// Files may hold anything.
pub(crate) fn usable(microseconds: f64) -> bool {
    microseconds.is_finite() && microseconds > 0.0
}

fn microseconds(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|it| rounded(it * 1e6)).collect()
}

/// One fit for each type, operation and root, out of place and in place.
fn fits(rows: &[Row], collective: Collective, ranks: usize) -> Vec<Fit> {
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
                all.push(Fit::new(first, in_place, fit::fit(&points), collective, ranks));
            }
        }
    }
    all
}

impl Fit {
    fn new(
        row: &Row,
        in_place: bool,
        fit: Result<fit::Fit, String>,
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

/// Four significant digits: measurements are not better.
fn rounded(number: f64) -> f64 {
    if number == 0.0 || !number.is_finite() {
        return 0.0;
    }
    let scale = 10_f64.powf(3.0 - number.abs().log10().floor());
    (number * scale).round() / scale
}
