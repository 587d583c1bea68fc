//! The recordings of real NCCL on described machines, of all releases: the jobs that `cases/oracle-*/jobs.json` lists, and the logs in
//! these folders that it does not list, named after nodes and GPUs (`2x8.log.gz`, `4x1-variation.log.gz`).
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use evidence::topology;
use fabric::machine::{Machine, NicKind};
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, Placement, RankPlace, Settings, Version};
use nccl::{Abilities, Prediction};
use serde::Deserialize;

/// A recorded job.
pub(crate) struct Job {
    /// `oracle-p5/2.28.9/2x8.log.gz`.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    /// Machines of other nodes that differ.
    pub(crate) others: Vec<Machine>,
    pub(crate) settings: Settings,
    pub(crate) layout: Layout,
    /// Where each rank is, if nodes are not alike or not all GPUs have ranks.
    pub(crate) placement: Option<Placement>,
    pub(crate) abilities: Abilities,
    path: PathBuf,
}

/// `jobs.json`
#[derive(Deserialize)]
struct Index {
    machine: String,
    /// How many machines one NVLink domain joins.
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
    /// Whether the network reduces.
    #[serde(default)]
    collnet: bool,
    /// Whether the network makes one device of several NICs, as NCCL's own NET/IB does.
    #[serde(default)]
    merges: bool,
}

#[derive(Deserialize)]
struct Entry {
    file: String,
    nccl: String,
    /// `2x8`, `8+4` for nodes with different numbers of GPUs, `0,2/0,2` for these GPUs of two nodes.
    layout: String,
    /// The machine of all nodes or of each node, if not that of the index.
    #[serde(default)]
    machines: Vec<String>,
    environment: BTreeMap<String, String>,
    nvls: bool,
}

/// All jobs, by machine. `PLUMB_JOBS` names one more folder of such folders; `PLUMB_ONLY` a part of the names to keep.
pub(crate) fn jobs() -> Vec<Job> {
    let more = std::env::var_os("PLUMB_JOBS").map(PathBuf::from);
    let only = std::env::var("PLUMB_ONLY").unwrap_or_default();
    let mut jobs = Vec::new();
    for cases in [Some(super::cases()), more].into_iter().flatten() {
        let folders = std::fs::read_dir(cases).expect("a folder").map(|it| it.expect("a folder").path());
        let mut folders: Vec<PathBuf> = folders.filter(|it| it.join("jobs.json").exists()).collect();
        folders.sort();
        for folder in &folders {
            read(folder, &mut jobs);
        }
    }
    jobs.retain(|it| it.name.contains(&only));
    jobs
}

fn read(folder: &Path, jobs: &mut Vec<Job>) {
    let list = std::fs::read(folder.join("jobs.json")).expect("a list");
    let index: Index =
        serde_json::from_slice(&list).unwrap_or_else(|it| panic!("{}: {it}", folder.display()));
    let mut listed = BTreeSet::new();
    for entry in &index.jobs {
        listed.insert(entry.file.clone());
        jobs.push(Job::new(folder, &index, entry));
    }
    let logs = std::fs::read_dir(folder).expect("a folder").map(|it| name(&it.expect("a file").path()));
    let mut logs: Vec<String> = logs.filter(|it| it.ends_with(".log.gz") && !listed.contains(it)).collect();
    logs.sort();
    jobs.extend(logs.iter().map(|it| Job::new(folder, &index, &plain(folder, it))));
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
        machines: Vec::new(),
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

impl Job {
    fn new(folder: &Path, index: &Index, entry: &Entry) -> Self {
        let mut settings =
            Settings::new(Version::parse(&entry.nccl).expect("a release")).with("NCCL_NET", &index.net.name);
        if !index.net.merges {
            settings = settings.with("NCCL_NET_PLUGIN", "oracle");
        }
        for (name, value) in &entry.environment {
            settings = settings.with(name, value);
        }
        let described = |name: &String| described(folder, name, index);
        let mut kinds: Vec<&String> = Vec::new();
        for it in &entry.machines {
            if !kinds.contains(&it) {
                kinds.push(it);
            }
        }
        let (layout, mut placement) = placed(&entry.layout);
        if let Some(placement) = placement.as_mut().filter(|_| entry.machines.len() > 1) {
            let kind = |it: &String| kinds.iter().position(|kind| *kind == it).expect("a machine");
            placement.nodes = entry.machines.iter().map(kind).collect();
        }
        Self {
            name: format!("{}/{}", name(folder), entry.file),
            machine: described(kinds.first().unwrap_or(&&index.machine)),
            others: kinds.iter().skip(1).map(|it| described(it)).collect(),
            settings,
            layout,
            placement,
            abilities: Abilities {
                multicast: Some(entry.nvls),
                domain: index.fabric,
                // The stand-in for the network gives the NICs of every machine the same.
                repeated_guids: true,
                collnet: index.net.collnet,
            },
            path: folder.join(&entry.file),
        }
    }

    /// The log of all ranks; of rank 0 alone, if its job called collectives of all sizes.
    pub(crate) fn text(&self) -> String {
        unpack(&self.path)
    }

    pub(crate) fn predict(&self) -> Prediction {
        let mut job = nccl::Job::new(&self.machine, &self.layout, &self.settings);
        if let Some(placement) = &self.placement {
            job = job.placed(placement, &self.others);
        }
        (job.abilities, job.settings_are_complete) = (self.abilities, true);
        Prediction::new(&job).unwrap_or_else(|it| panic!("{}: {it}", self.name))
    }
}

fn placed(layout: &str) -> (Layout, Option<Placement>) {
    if let Some((nodes, gpus)) = layout.split_once('x') {
        let number = |it: &str| it.parse().expect("a number");
        return (Layout::new(1, number(gpus)).on(number(nodes)), None);
    }
    if !layout.contains(['/', ',']) {
        return (Layout::default(), Some(Placement::parse(layout).expect("numbers of GPUs")));
    }
    let mut placement = Placement::default();
    for (node, gpus) in (0..).zip(layout.split('/')) {
        placement.nodes.push(0);
        let place = |it: &str| RankPlace { node, gpu: it.parse().expect("a GPU") };
        placement.ranks.extend(gpus.split(',').map(place));
    }
    (Layout::default(), Some(placement))
}

/// The machine of an XML.
fn described(folder: &Path, name: &str, index: &Index) -> Machine {
    let text = std::fs::read(folder.join(format!("{name}.xml"))).expect("a description");
    let mut machine = topology::read(&text).expect("a topology").machine;
    machine.name = None;
    for nic in &mut machine.nics {
        // The names are the same for every network.
        nic.kind = NicKind::Unknown;
        // The plugin declares what the description does not have.
        nic.rate = nic.rate.or(Some(GigabitsPerSecond(index.net.mbps / 1000.0)));
        nic.gpudirect = nic.gpudirect.or(Some(index.net.gpudirect));
        nic.latency = nic.latency.or(Some(index.net.latency_us));
    }
    if !index.peer {
        // A model to which the driver refuses peer access.
        machine.gpus.iter_mut().for_each(|it| it.model = Some("GeForce".into()));
    }
    machine
}
