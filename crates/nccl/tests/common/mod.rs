//! Machines and recordings the tests share.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod decided;
pub(crate) mod jobs;

use std::io::Read;
use std::path::PathBuf;

use evidence::topology;
use fabric::Version;
use fabric::machine::Machine;
use fabric::units::GigabitsPerSecond;
use nccl::{Decisions, Layout, Settings};

/// A log of real NCCL on a described machine.
pub(crate) struct Recording {
    pub(crate) name: &'static str,
    pub(crate) machine: &'static str,
    pub(crate) version: Version,
    pub(crate) environment: Variables,
    pub(crate) text: String,
}

type Variables = &'static [(&'static str, &'static str)];

const RECORDINGS: [(&str, &str, Variables); 15] = [
    ("dgxh100", "1x8", &[]),
    ("dgxh100", "2x8", &[]),
    ("g6e12", "1x4", &[]),
    ("g6e12", "2x4-sys", &[("NCCL_P2P_LEVEL", "SYS")]),
    ("g6e12", "2x4", &[]),
    ("g6e12", "4x4", &[]),
    ("p4d", "1x4", &[]),
    ("p4d", "4x1", &[]),
    ("p5", "1x4", &[]),
    ("p5", "1x8", &[]),
    ("p5", "2x8", &[]),
    ("p5", "3x8", &[]),
    ("p5", "4x8", &[]),
    ("pcie8", "1x8", &[]),
    ("pcie8", "2x8", &[]),
];

pub(crate) fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// A file of a case; one that ends in `.gz` is unpacked.
pub(crate) fn case(name: &str) -> String {
    let path = cases().join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|it| it == "gz") {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log in UTF-8");
    } else {
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    text
}

impl Recording {
    /// The job it is of: `2x4-sys` is two nodes with four GPUs each.
    pub(crate) fn job(&self) -> Decisions {
        let mut settings = Settings::new(self.version).with("NCCL_NET", "Libfabric");
        for (name, value) in self.environment {
            settings = settings.with(name, value);
        }
        let size = self.name.split('-').next().unwrap_or(self.name);
        let (nodes, gpus) = size.split_once('x').expect("nodes and GPUs");
        let layout = Layout::new(1, gpus.parse().expect("a number")).on(nodes.parse().expect("a number"));
        Decisions::new(&oracle_machine(self.machine), &settings, &layout).expect("a job that fits")
    }
}

pub(crate) fn recordings() -> Vec<Recording> {
    RECORDINGS
        .iter()
        .map(|&(machine, name, environment)| {
            let text = case(&format!("oracle-{machine}/{name}.log.gz"));
            Recording { name, machine, version: Version::new(2, 28, 9), environment, text }
        })
        .collect()
}

/// The machine of a recording. The network told rate and GPUDirect of its NICs, the XML does not have them.
pub(crate) fn oracle_machine(name: &str) -> Machine {
    let (rate, gpudirect) = match name {
        "p4d" => (100.0, true),
        "g6e12" => (100.0, false),
        "pcie8" => (200.0, true),
        _ => (400.0, true),
    };
    let mut machine =
        topology::read(case(&format!("oracle-{name}/{name}.xml")).as_bytes()).expect("a topology").machine;
    for nic in &mut machine.nics {
        nic.rate = Some(GigabitsPerSecond(rate));
        nic.gpudirect = Some(gpudirect);
    }
    machine
}
