//! The recordings of real NCCL on described machines, of all releases: the jobs of `cases/oracle-*/jobs.json`, and the logs in these
//! folders that stand in no `jobs.json`, named after nodes and GPUs (`2x8.log.gz`, `4x1-variation.log.gz`).
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use evidence::topology;
use fabric::machine::{Machine, NicKind};
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, Settings, Version};
use serde::Deserialize;

pub(crate) struct Recorded {
    /// `oracle-p5/2.28.9/2x8.log.gz`.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) layout: Layout,
    /// Whether the GPUs could use multicast.
    pub(crate) multicast: bool,
    /// How many machines one NVLink domain joins.
    pub(crate) domain: u32,
    /// Why its graphs cannot be predicted yet. The layout is that of its first node then.
    pub(crate) left_out: Option<LeftOut>,
    path: PathBuf,
}

/// What is not modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LeftOut {
    /// Nodes have different numbers of GPUs.
    UnequalNodes,
}

#[derive(Deserialize)]
struct Index {
    fabric: u32,
    /// Whether NVML says that GPUs reach each other's memory.
    peer: bool,
    net: Net,
    jobs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Net {
    name: String,
    mbps: f64,
    gpudirect: bool,
    latency_us: f64,
}

#[derive(Deserialize)]
struct Entry {
    file: String,
    nccl: String,
    layout: String,
    environment: BTreeMap<String, String>,
    nvls: bool,
}

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// All recordings.
pub(crate) fn recorded() -> Vec<Recorded> {
    let mut all = Vec::new();
    let folders = std::fs::read_dir(cases()).expect("cases").map(|it| it.expect("a folder").path());
    let mut folders: Vec<PathBuf> = folders.filter(|it| it.join("jobs.json").exists()).collect();
    folders.sort();
    for folder in folders {
        let text = std::fs::read_to_string(folder.join("jobs.json")).expect("jobs.json");
        let index: Index = serde_json::from_str(&text).expect("jobs");
        let mut told = BTreeSet::new();
        for entry in &index.jobs {
            told.insert(entry.file.clone());
            all.push(Recorded::new(&folder, &index, entry));
        }
        let logs = std::fs::read_dir(&folder).expect("a folder").map(|it| name(&it.expect("a file").path()));
        for file in logs.filter(|it| it.ends_with(".log.gz") && !told.contains(it)) {
            let entry = plain(&folder, &file);
            all.push(Recorded::new(&folder, &index, &entry));
        }
    }
    assert!(all.len() >= 300, "{}", all.len());
    all
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A log that stands in no `jobs.json`: it names its release and variables itself.
fn plain(folder: &Path, file: &str) -> Entry {
    let text = unpack(&folder.join(file));
    let version = text.lines().find_map(|it| Version::parse(it.split_once("NCCL version ")?.1));
    let mut environment = BTreeMap::new();
    for line in text.lines() {
        let Some((_, rest)) = line.split_once(" NCCL INFO NCCL_") else { continue };
        let Some((name, value)) = rest.split_once(" set by environment to ") else { continue };
        if !["HOSTID", "TOPO_FILE", "NET_PLUGIN", "SOCKET_IFNAME"].contains(&name) {
            environment.insert(format!("NCCL_{name}"), value.trim().trim_end_matches('.').to_owned());
        }
    }
    Entry {
        file: file.to_owned(),
        nccl: version.expect("the release in the log").to_string(),
        layout: file.split(['-', '.']).next().unwrap_or_default().to_owned(),
        environment,
        nvls: text.contains("NVLS multicast support is available"),
    }
}

fn unpack(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log in UTF-8");
    text
}

impl Recorded {
    fn new(folder: &Path, index: &Index, entry: &Entry) -> Self {
        // `2x8`, or `8+4` for nodes with different numbers of GPUs.
        let (nodes, gpus) =
            entry.layout.split_once('x').unwrap_or(("1", entry.layout.split('+').next().unwrap_or("1")));
        let nodes: u32 = nodes.parse().expect("a number");
        let left_out = entry.layout.contains('+').then_some(LeftOut::UnequalNodes);
        let mut settings = Settings::new(Version::parse(&entry.nccl).expect("a release"));
        settings = settings.with("NCCL_NET", &index.net.name);
        if !index.peer {
            // To NCCL it is the same whether NVML or the user forbids it.
            settings = settings.with("NCCL_P2P_DISABLE", "1");
        }
        for (name, value) in &entry.environment {
            settings = settings.with(name, value);
        }
        Self {
            name: format!("{}/{}", name(folder), entry.file),
            machine: described(folder, &index.net),
            layout: Layout::new(1, gpus.parse().expect("a number")).on(nodes),
            settings,
            multicast: entry.nvls,
            domain: index.fabric,
            left_out,
            path: folder.join(&entry.file),
        }
    }

    /// The log of all ranks; of rank 0 alone, if its job called collectives of all sizes.
    pub(crate) fn text(&self) -> String {
        unpack(&self.path)
    }
}

/// The machine of the XML. The plugin declared rate, GPUDirect and latency of its NICs, which the XML does not have.
fn described(folder: &Path, net: &Net) -> Machine {
    let short = name(folder).trim_start_matches("oracle-").to_owned();
    let bytes = std::fs::read(folder.join(format!("{short}.xml"))).expect("the machine's XML");
    let mut machine = topology::read(&bytes).expect("a topology").machine;
    machine.name = None;
    for nic in &mut machine.nics {
        nic.rate = Some(GigabitsPerSecond(net.mbps / 1000.0));
        nic.gpudirect = Some(net.gpudirect);
        nic.latency = Some(net.latency_us);
        nic.kind = if net.name == "IB" { NicKind::InfiniBand } else { NicKind::Efa };
    }
    machine
}
