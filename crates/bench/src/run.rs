//! What was measured, as plain data.

use fabric::Collective;
use serde::{Deserialize, Serialize};

use crate::data::EngineKind;
use crate::plan::Series;
use crate::statistics::{median, quantile};

/// Everything that was measured. Every rank has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The collective.
    pub collective: Collective,
    /// What ran it.
    pub engine: EngineKind,
    /// Its release: `plumb 0.1.0`, `NCCL 2.28.9`.
    pub version: String,
    /// The ranks.
    pub devices: Vec<Device>,
    /// The measurements.
    pub rows: Vec<Row>,
    /// The transports between the ranks, where the engine reports them: `shared memory`.
    pub paths: Option<String>,
    /// A host with more ranks than cores.
    pub oversubscribed: Option<Oversubscribed>,
    /// The first wrong element.
    pub wrong: Option<Wrong>,
    /// What each rank sent over the network; empty where that is not known.
    pub segments: Vec<Segments>,
}

/// TCP segments, or packets of EFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Segments {
    /// Sent, each time one was sent.
    pub sent: u64,
    /// Sent again because they were lost.
    pub resent: u64,
}

/// With fewer segments a share says nothing.
const FEW: u64 = 500;

impl Segments {
    /// The share that was sent again; none where few were sent.
    pub fn share(self) -> Option<f64> {
        (self.sent >= FEW).then(|| real(self.resent) / real(self.sent))
    }
}

/// One size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Type, operation and root.
    pub series: Series,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// Elements.
    pub count: u64,
    /// The cycle of `-N`, from 0.
    pub cycle: usize,
    /// From the send to the receive buffer.
    pub out_of_place: Option<Timing>,
    /// Within the receive buffer, where the collective can.
    pub in_place: Option<Timing>,
    /// When it was measured, in seconds since 1970.
    pub time: u64,
}

/// How long one call took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds of a call, over all iterations and by the plan's average over ranks.
    pub seconds: f64,
    /// Calls that were timed.
    pub iterations: usize,
    /// Seconds of a call in each batch of iterations, by the same average.
    pub samples: Vec<f64>,
    /// The same of the slowest rank of each batch.
    pub longest: Vec<f64>,
    /// Seconds of a call on each rank.
    pub ranks: Vec<f64>,
    /// Wrong elements on all ranks; none where the result was not verified.
    pub wrong: Option<u64>,
    /// Seconds of a call in each later pass: the samples are all of the first one.
    pub repeats: Vec<f64>,
}

impl Timing {
    /// The median of the samples, in seconds.
    pub fn median(&self) -> f64 {
        median(&self.samples)
    }

    /// Below it is a tenth of the samples.
    pub fn p10(&self) -> f64 {
        quantile(&self.samples, 0.1)
    }

    /// Above it is a hundredth of the samples.
    pub fn p99(&self) -> f64 {
        quantile(&self.samples, 0.99)
    }

    /// The slowest rank.
    pub fn slowest(&self) -> Option<usize> {
        (0..self.ranks.len()).max_by(|a, b| self.ranks[*a].total_cmp(&self.ranks[*b]))
    }

    /// How much longer the slowest rank took than the middle one, relative to it.
    pub fn lag(&self) -> f64 {
        let middle = median(&self.ranks);
        let longest = self.slowest().map_or(0.0, |it| self.ranks[it]);
        if middle > 0.0 { longest / middle - 1.0 } else { 0.0 }
    }

    /// GB/s of the algorithm.
    pub fn algorithm_bandwidth(&self, bytes: u64) -> f64 {
        if self.seconds > 0.0 { real(bytes) / self.seconds / 1e9 } else { 0.0 }
    }

    /// GB/s of the bus.
    pub fn bus_bandwidth(&self, bytes: u64, collective: Collective) -> f64 {
        let ranks = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        self.algorithm_bandwidth(bytes) * collective.bus_factor(ranks)
    }
}

/// The first wrong element of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The rank that has it.
    pub rank: usize,
    /// The size.
    pub bytes: u64,
    /// Whether in place.
    pub in_place: bool,
    /// Type, operation and root.
    pub series: Series,
    /// Which, and what it is.
    pub element: Element,
}

/// A wrong element of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element {
    /// Its index in the result.
    pub index: usize,
    /// What it is.
    pub got: String,
    /// What it should be.
    pub expected: String,
}

/// A rank, as the head of the table names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its number.
    pub rank: usize,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// The number of the device on that host: a GPU, or the rank's number among those of its host.
    pub device: usize,
    /// The device's bus address, if it has one.
    pub bus: Option<String>,
    /// The device's name: `NVIDIA H200`, `host memory`.
    pub name: String,
}

/// A host with more ranks than cores: times there include waiting for a core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oversubscribed {
    /// Its name.
    pub host: String,
    /// Ranks on it.
    pub ranks: usize,
    /// Cores they may use together.
    pub cores: usize,
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a buffer, exact up to 2^53")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}
