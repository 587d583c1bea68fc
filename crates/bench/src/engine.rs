//! What a benchmark asks of an engine.

use std::fmt;

use collective::{Communicator, DataType, Operation};
use fabric::Collective;

/// One collective, with the arguments NCCL's function would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub collective: Collective,
    /// The type of its elements.
    pub data_type: DataType,
    /// How they are combined, where they are.
    pub operation: Operation,
    /// Who sends, or has the result, where it is one.
    pub root: usize,
    /// Elements, counted as NCCL's argument does: what a rank sends in `all_gather`, gather and alltoall (to each), what it
    /// receives in `reduce_scatter` and scatter, the whole in the others.
    pub count: usize,
    /// Whether the data is sent from the receive buffer, at the place NCCL asks for.
    pub in_place: bool,
}

/// One of a rank's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is sent.
    Send,
    /// What is received, and sent too when in place.
    Receive,
}

/// A collective that could not be run, as a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<collective::Error> for Failure {
    fn from(error: collective::Error) -> Self {
        Self(error.to_string())
    }
}

/// A rank, as the head of the table names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub rank: usize,
    /// Its process.
    pub pid: u32,
    /// Its host.
    pub host: String,
    /// The number of the device on that host: a GPU, or the rank's place on the host.
    pub device: usize,
    /// The device's bus address, if it has one.
    pub bus: Option<String>,
    /// The device's name: `NVIDIA H200`, `host memory`.
    pub name: String,
}

/// Runs collectives: over host memory, or NCCL on GPUs. Every rank has one, and all ranks make the same calls.
pub trait Engine {
    /// `host` or `nccl`.
    fn name(&self) -> &'static str;

    /// What it is, for the head of the table and the JSON: `plumb 0.1.0`, `NCCL 2.28.9`.
    fn version(&self) -> String;

    /// All ranks.
    fn devices(&self) -> &[Device];

    /// The ranks' own channel, for exchanging results and for ending together.
    fn control(&mut self) -> &mut Communicator;

    /// Makes both buffers this large.
    fn allocate(&mut self, bytes: usize) -> Result<(), Failure>;

    /// Writes into a buffer.
    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// Reads from a buffer, after all that runs on it has ended.
    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure>;

    /// Runs a collective so many times in a row and returns the seconds that all of them took together.
    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure>;
}
