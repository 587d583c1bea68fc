//! The recordings of real NCCL on described machines, of any release: every `*.log.gz` below `cases/oracle-*`.
//!
//! The folder names the machine (`oracle-p5/p5.xml`), the file nodes and GPUs (`2x8`, `4x1-variation`), the log its release and
//! variables. `PLUMB_RECORDINGS` names one more folder, of files such as `p5-2x8.log.gz`.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::Read;
use std::path::{Path, PathBuf};

use evidence::topology;
use fabric::machine::Machine;
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, Settings, Version};

pub(crate) struct Recorded {
    /// `p5 2x8 2.28.9`.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) layout: Layout,
    /// Whether the GPUs could use multicast.
    pub(crate) multicast: bool,
    pub(crate) text: String,
}

fn cases() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases")
}

/// All recordings, in the order of their paths.
pub(crate) fn recorded() -> Vec<Recorded> {
    let mut files = Vec::new();
    let folders = std::fs::read_dir(cases()).expect("cases").map(|it| it.expect("a folder").path());
    for folder in folders.filter(|it| name(it).starts_with("oracle-")) {
        logs(&folder, &mut files);
    }
    if let Some(more) = std::env::var_os("PLUMB_RECORDINGS") {
        logs(Path::new(&more), &mut files);
    }
    files.sort();
    assert!(files.len() >= 15, "{}", files.len());
    files.iter().map(|it| Recorded::read(it)).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn logs(folder: &Path, files: &mut Vec<PathBuf>) {
    for file in std::fs::read_dir(folder).expect("a folder").map(|it| it.expect("a file").path()) {
        if file.is_dir() {
            logs(&file, files);
        } else if name(&file).ends_with(".log.gz") {
            files.push(file);
        }
    }
}

impl Recorded {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a file");
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log in UTF-8");
        let file = name(path);
        let stem = file.trim_end_matches(".log.gz");
        let folder = path.ancestors().map(name).find_map(|it| it.strip_prefix("oracle-").map(str::to_owned));
        let (machine, size) = match folder.filter(|_| path.starts_with(cases())) {
            Some(folder) => (folder, stem),
            None => stem.split_once('-').map(|it| (it.0.to_owned(), it.1)).expect("machine and size"),
        };
        let (nodes, gpus) = size.split('-').next().and_then(|it| it.split_once('x')).expect("nodes and GPUs");
        let settings =
            listed(path).into_iter().fold(settings(&text), |it, (name, value)| it.with(&name, &value));
        Self {
            name: format!("{machine} {size} {}", settings.version),
            machine: described(&machine),
            layout: Layout::new(1, gpus.parse().expect("a number")).on(nodes.parse().expect("a number")),
            settings,
            multicast: text.contains("NVLS multicast support is available"),
            text,
        }
    }
}

/// The release and the variables that the log names.
fn settings(log: &str) -> Settings {
    let version = log.lines().find_map(|it| Version::parse(it.split_once("NCCL version ")?.1));
    let mut settings = Settings::new(version.expect("the release in the log")).with("NCCL_NET", "Libfabric");
    for line in log.lines() {
        let Some((_, rest)) = line.split_once(" NCCL INFO NCCL_") else { continue };
        if let Some((name, value)) = rest.split_once(" set by environment to ") {
            let value = value.trim().trim_end_matches('.');
            if !["HOSTID", "TOPO_FILE", "NET_PLUGIN", "SOCKET_IFNAME"].contains(&name) {
                settings = settings.with(&format!("NCCL_{name}"), value);
            }
        }
    }
    settings
}

/// The variables that `jobs.json` lists for a recording: NCCL does not print all that it reads.
fn listed(path: &Path) -> Vec<(String, String)> {
    let Some(folder) = path.ancestors().find(|it| it.join("jobs.json").exists()) else { return Vec::new() };
    let list = std::fs::read_to_string(folder.join("jobs.json")).expect("a list");
    let file = path.strip_prefix(folder).expect("a file below the folder").display().to_string();
    let job = list.lines().find(|it| it.contains(&format!("\"file\": \"{file}\"")));
    let Some((_, rest)) = job.and_then(|it| it.split_once("\"environment\": {")) else { return Vec::new() };
    let (variables, _) = rest.split_once('}').expect("the end of an object");
    let words: Vec<&str> = variables.split('"').skip(1).step_by(2).collect();
    words.chunks_exact(2).map(|it| (it[0].to_owned(), it[1].to_owned())).collect()
}

/// A machine as `tools/nccl-oracle` describes it: the plugin declared rate, GPUDirect and latency of its NICs, which older XML does
/// not have.
pub(crate) fn described(name: &str) -> Machine {
    let (rate, gpudirect, latency) = match name {
        "p4d" => (100.0, true, 75.0),
        "p5" => (400.0, true, 75.0),
        "p5en" => (400.0, true, 35.0),
        "g6e12" | "g6e48" => (100.0, false, 75.0),
        "dgxa100" | "nvl4" => (200.0, true, 0.0),
        "pcie8" => (200.0, true, 0.0),
        "pcie4far" => (100.0, true, 0.0),
        _ => (400.0, true, 0.0),
    };
    let path = cases().join(format!("oracle-{name}/{name}.xml"));
    let bytes = std::fs::read(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()));
    let mut machine = topology::read(&bytes).expect("a topology").machine;
    for nic in &mut machine.nics {
        nic.rate = nic.rate.or(Some(GigabitsPerSecond(rate)));
        nic.gpudirect = nic.gpudirect.or(Some(gpudirect));
        nic.latency = nic.latency.or(Some(latency));
    }
    machine
}
