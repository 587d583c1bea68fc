//! What a validation of real machines writes down: a plan, then one line for everything it has found out.
//!
//! Lines are only added. Whoever reads them back in their order is where the validation was when the last of them was written.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format of a results folder.
pub const SCHEMA: &str = "plumb.validation/1";

/// What was asked for: the first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: String,
    /// The release of plumb that wrote it.
    pub version: String,
    /// How the machines are reached, in words.
    pub way: String,
    /// The machines, as they were named.
    pub hosts: Vec<String>,
    /// How long it may take in all.
    pub budget_s: u64,
    /// After how many seconds a measurement has failed.
    pub timeout_s: u64,
    /// Whether every pair is measured.
    pub links: Links,
    /// What all machines together must reach, in GB/s, where the user says so.
    #[serde(rename = "least_GBps")]
    pub least: Option<f64>,
    /// The order in which machines meet.
    pub seed: u64,
    /// How the machines are asked.
    #[serde(default)]
    pub asked: Asked,
}

/// How machines are asked: what an interrupted validation needs to go on in the same way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// A configuration file for ssh.
    pub ssh_config: Option<PathBuf>,
    /// The network: an interface, an address or a subnet.
    pub net: Option<String>,
    /// What moves the data, where the user says so.
    pub engine: Option<Engine>,
    /// The machine type.
    pub instance: Option<String>,
    /// GPUs that each machine must have.
    pub gpus: Option<u32>,
}

/// Whether every pair of machines is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Links {
    /// If half of the time that is left is enough for it.
    #[default]
    Auto,
    /// In any case.
    All,
    /// Not unless something is slow.
    Few,
}

/// A line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds of work so far, without those between an interruption and its resumption.
    pub elapsed_s: f64,
    /// What was found out.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What was found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub enum Entry {
    /// plumb was started; `at` in seconds since 1970.
    Started {
        /// When.
        at: u64,
    },
    /// A machine was reached, or not.
    Reached(Reached),
    /// What a machine says about itself.
    Node(Node),
    /// With what is measured.
    Chosen(Chosen),
    /// A measurement that ended.
    Measured(Measurement),
    /// What `plumb doctor` says about the NCCL logs of a launch.
    Logs(Logs),
}

/// The answer of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The machine.
    pub host: String,
    /// Why it cannot be used; none if it can.
    pub failed: Option<Failed>,
    /// Where the others reach it.
    #[serde(default)]
    pub address: Option<String>,
    /// The release of plumb that was found there; none if there was none.
    #[serde(default)]
    pub version: Option<String>,
    /// How far its clock is ahead, in seconds.
    #[serde(default)]
    pub clock_s: Option<f64>,
}

/// Why something did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// In a sentence.
    pub text: String,
    /// What to do about it.
    pub action: String,
}

/// The state of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The machine.
    pub host: String,
    /// The JSON of `plumb node`; none if it failed.
    pub facts: Option<Value>,
    /// Why it failed.
    #[serde(default)]
    pub failed: Option<String>,
}

/// What moves the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// NCCL between GPUs.
    Nccl,
    /// plumb's own collectives between host memories.
    Host,
}

/// With what is measured, and on which machines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    /// The machines that take part.
    pub hosts: Vec<String>,
    /// What moves the data.
    pub engine: Engine,
    /// Ranks on each machine in launches of several machines.
    pub ranks: usize,
    /// Ranks on each machine alone.
    pub local_ranks: usize,
    /// NICs that every machine has, where there are several.
    #[serde(default)]
    pub nics: Vec<String>,
    /// What one machine must reach, in GB/s.
    #[serde(default, rename = "local_least_GBps")]
    pub local_least: Option<f64>,
    /// What all together must reach, in GB/s.
    #[serde(default, rename = "all_least_GBps")]
    pub all_least: Option<f64>,
    /// Of which machine that is known.
    #[serde(default)]
    pub machine: Option<String>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The launch it is part of, from 1.
    pub launch: usize,
    /// `local`, `smoke`, `scale`, `all`, `pairs`, `nics`, `without`.
    pub stage: String,
    /// The machines.
    pub hosts: Vec<String>,
    /// The NIC, where one is measured alone.
    #[serde(default)]
    pub nic: Option<String>,
    /// The size of the collective.
    pub bytes: u64,
    /// The bus bandwidth; none if it failed.
    #[serde(rename = "rate_GBps")]
    pub rate: Option<f64>,
    /// The share of segments that each machine sent again, in the order of `hosts`; empty where that is not known.
    #[serde(default)]
    pub resent: Vec<Option<f64>>,
    /// Why it failed.
    #[serde(default)]
    pub failed: Option<String>,
    /// How long it took, with starting the ranks.
    pub seconds: f64,
}

/// The verdict on the logs of NCCL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Logs {
    /// Ranks whose log was read.
    pub ranks: usize,
    /// Whether nothing is wrong.
    pub ok: bool,
    /// The verdict in a sentence.
    pub text: String,
}
