//! The recordings that `cases/oracle-*/jobs.json` lists: real NCCL of many releases on described machines.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::Read;
use std::path::{Path, PathBuf};

use evidence::topology;
use fabric::machine::{Machine, NicKind};
use fabric::units::GigabitsPerSecond;
use fabric::{Layout, Settings, Version};
use nccl::Abilities;
use serde_json::Value;

/// A recorded job.
pub(crate) struct Job {
    /// `p5 2.28.9/2x8.log.gz`.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) layout: Layout,
    pub(crate) abilities: Abilities,
    path: PathBuf,
}

impl Job {
    pub(crate) fn text(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_else(|it| panic!("{}: {it}", self.path.display()));
        let mut text = String::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a log in UTF-8");
        text
    }
}

/// All jobs on nodes that are alike, by machine. `PLUMB_JOBS` names one more folder of such folders.
pub(crate) fn jobs() -> Vec<Job> {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let more = std::env::var_os("PLUMB_JOBS").map(PathBuf::from);
    let mut jobs = Vec::new();
    for folder in [Some(cases), more].into_iter().flatten() {
        let mut lists: Vec<PathBuf> = std::fs::read_dir(folder)
            .expect("a folder")
            .map(|it| it.expect("a folder").path().join("jobs.json"))
            .filter(|it| it.exists())
            .collect();
        lists.sort();
        for list in &lists {
            read(list, &mut jobs);
        }
    }
    jobs
}

fn read(list: &Path, jobs: &mut Vec<Job>) {
    let folder = list.parent().expect("a folder");
    let all: Value = serde_json::from_slice(&std::fs::read(list).expect("a list")).expect("JSON");
    let name = all["machine"].as_str().expect("a name");
    let described = std::fs::read(folder.join(format!("{name}.xml"))).expect("a description");
    let mut machine = topology::read(&described).expect("a topology").machine;
    let net = &all["net"];
    for nic in &mut machine.nics {
        // The names are the same for every network.
        nic.kind = NicKind::Unknown;
        // The plugin declares what the description does not have.
        nic.rate = nic.rate.or(net["mbps"].as_f64().map(|it| GigabitsPerSecond(it / 1000.0)));
        nic.gpudirect = nic.gpudirect.or(net["gpudirect"].as_bool());
        nic.latency = nic.latency.or(net["latency_us"].as_f64());
    }
    if all["peer"] == false {
        // A model to which the driver refuses peer access.
        machine.gpus.iter_mut().for_each(|it| it.model = Some("GeForce".into()));
    }
    for job in all["jobs"].as_array().expect("jobs") {
        let file = job["file"].as_str().expect("a file");
        let version = Version::parse(job["nccl"].as_str().expect("a release")).expect("a release");
        let layout = job["layout"].as_str().expect("a layout");
        let Some((nodes, gpus)) = layout.split_once('x') else { continue };
        let network = net["name"].as_str().expect("a network");
        let mut settings = Settings::new(version).with("NCCL_NET", network);
        for (name, value) in job["environment"].as_object().expect("variables") {
            settings = settings.with(name, value.as_str().expect("a text"));
        }
        jobs.push(Job {
            name: format!("{name} {file}"),
            machine: machine.clone(),
            settings,
            layout: Layout::new(1, gpus.parse().expect("a number")).on(nodes.parse().expect("a number")),
            abilities: Abilities {
                multicast: job["nvls"].as_bool(),
                domain: all["fabric"].as_u64().and_then(|it| u32::try_from(it).ok()).expect("a number"),
                // The stand-in for the network gives the NICs of every machine the same.
                repeated_guids: true,
                ..Abilities::default()
            },
            path: folder.join(file),
        });
    }
}
