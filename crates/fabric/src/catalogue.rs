//! Machines by name: the instance types of AWS with a GPU, machines of other clouds, and the DGX and HGX families.
//!
//! `data/instances.json` holds the hardware of instance types, `data/machines.json` their wiring and everything about the other machines.
//! If the wiring is not published, the machine has all devices at one socket, and [`Machine::unknown`] says so.

mod model;

use std::sync::OnceLock;

use serde::Deserialize;

use crate::instance;
use crate::machine::{Machine, Maker, NicKind};

pub use model::{Inside, Model, UnknownMachine, all, find, resolve};

/// The wiring of a machine and, if it is not an instance type, its hardware.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wiring {
    /// `p4d.24xlarge`, `dgx-h100`.
    pub name: String,
    /// Its usual name, if that differs: `DGX H100`.
    pub title: Option<String>,
    /// Other names.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The model of its GPUs; an instance type has its own.
    pub(crate) gpu: Option<String>,
    pub(crate) cpu: Option<Cpu>,
    pub(crate) pcie_gen: Option<u8>,
    /// Its NICs; an instance type has its own.
    pub(crate) network: Option<NicPlan>,
    /// The network plugin that NCCL needs to use them, if it is not built in: `gIB`.
    pub plugin: Option<String>,
    pub(crate) sockets: Vec<SocketPlan>,
    /// `NVLink` between pairs of GPUs, if no switch connects all: two indices and the number of links.
    #[serde(default)]
    pub(crate) wires: Vec<(usize, usize, u32)>,
    #[serde(default)]
    pub(crate) gpu_bus: Vec<String>,
    #[serde(default)]
    pub(crate) nic_bus: Vec<String>,
    /// How many such machines form one domain of `NVLink`, if it reaches beyond one.
    pub domain: Option<u32>,
    /// What no source states, in sentences.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// What else is known.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The source of the wiring.
    pub source: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    #[serde(deserialize_with = "crate::link::maker")]
    pub(crate) maker: Maker,
    pub(crate) family: Option<u32>,
    pub(crate) model: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NicPlan {
    pub(crate) kind: NicKind,
    pub(crate) gbps: f64,
    /// The prefix of the NIC names, before the number.
    pub(crate) prefix: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketPlan {
    pub(crate) numa: u32,
    pub(crate) cpus: Option<String>,
    /// GPUs at the root of the socket.
    #[serde(default)]
    pub(crate) gpus: u32,
    /// NICs at the root of the socket.
    #[serde(default)]
    pub(crate) nics: u32,
    #[serde(default)]
    pub(crate) switches: Vec<SwitchPlan>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SwitchPlan {
    pub(crate) gpus: u32,
    pub(crate) nics: u32,
}

/// The names of all machines: instance types, then the others.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().iter().map(|it| it.name)
}

/// How the machine is wired, if that is known.
pub fn wiring(name: &str) -> Option<&'static Wiring> {
    let name = name.trim();
    if let Some(instance) = instance::find(name) {
        return wirings().iter().find(|it| it.name == instance.name);
    }
    let plain = plain(name);
    let called = |it: &&Wiring| {
        let names = std::iter::once(&it.name).chain(&it.title).chain(&it.aliases);
        it.gpu.is_some() && names.map(|it| self::plain(it)).any(|it| it == plain)
    };
    wirings().iter().find(called)
}

/// Similar names of machines, nearest first, six at most.
pub fn suggest(name: &str) -> Vec<&'static str> {
    let name = name.trim().to_ascii_lowercase();
    let name = name.trim_start_matches("ml.");
    let family = |it: &str| it.split(['.', ' ']).next().unwrap_or_default().to_owned();
    let own = family(name);
    let wanted = plain(name);
    // One letter in five may be wrong: a larger distance finds unrelated machines.
    let allowed = wanted.len() / 5;
    let mut found: Vec<(bool, usize, &'static str)> = Vec::new();
    for known in names() {
        let other_family = family(known) != own;
        let letters = plain(known);
        let distance = strsim::osa_distance(&wanted, &letters);
        let begins = wanted.len() >= 3 && letters.starts_with(&wanted);
        if !other_family || begins || distance <= allowed {
            found.push((other_family, distance, known));
        }
    }
    found.sort_by_key(|&(other_family, distance, _)| (other_family, distance));
    found.into_iter().take(6).map(|(_, _, known)| known).collect()
}

/// The machine of this name, with its known wiring.
pub fn machine(name: &str) -> Option<Machine> {
    find(name).map(Model::machine)
}

/// Whether aws-ofi-nccl joins NICs on this machine: see [`Model::groups_nics`].
pub fn groups_nics(name: &str) -> bool {
    find(name).is_some_and(Model::groups_nics)
}

fn wirings() -> &'static [Wiring] {
    static ALL: OnceLock<Vec<Wiring>> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

fn read() -> serde_json::Result<Vec<Wiring>> {
    serde_json::from_str(include_str!("../data/machines.json"))
}

/// A normalised name: `DGX H100` is `dgx-h100`.
fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{find, groups_nics, machine, names, read, suggest, wiring};
    use crate::machine::{Maker, NicKind, NvEnd, Place};
    use crate::{gpu, instance};

    #[test]
    fn the_data_can_be_read_and_is_sourced() {
        let all = read().unwrap();
        let unique: BTreeSet<_> = names().map(str::to_ascii_lowercase).collect();
        assert_eq!(unique.len(), names().count());
        for it in &all {
            assert!(!it.source.is_empty(), "{}", it.name);
            assert_eq!(it.gpu.is_none(), instance::find(&it.name).is_some(), "{}", it.name);
            assert_eq!(wiring(&it.name), Some(it));
            for text in it.unknown.iter().chain(&it.notes) {
                assert!(text.ends_with('.'), "{}: {text}", it.name);
            }
        }
    }

    #[test]
    fn finds_names_as_people_write_them() {
        for (name, want) in [
            ("P5.48xlarge", "p5.48xlarge"),
            ("ml.p4d.24xlarge", "p4d.24xlarge"),
            ("DGX H100", "dgx-h100"),
            ("dgxa100", "dgx-a100"),
            ("DGX-1", "dgx-1v"),
            ("GB200 NVL72", "gb200-nvl72"),
            ("a3-megagpu-8g", "a3-megagpu-8g"),
            ("A4X", "a4x-highgpu-4g"),
            ("ND96isr_H100_v5", "Standard_ND96isr_H100_v5"),
            ("standard_nd96amsr_a100_v4", "Standard_ND96amsr_A100_v4"),
            ("BM.GPU.H100.8", "BM.GPU.H100.8"),
            ("HGX H200", "hgx-h200"),
            ("gd-8xh100ib-i128", "hgx-h100"),
        ] {
            assert_eq!(find(name).map(|it| it.name), Some(want), "{name}");
            assert_eq!(machine(name).unwrap().name.as_deref(), Some(want));
        }
        for name in ["", "p5", "dgx", "p4d.48xlarge", "H100"] {
            assert_eq!(find(name), None, "{name}");
            assert!(machine(name).is_none());
        }
    }

    #[test]
    fn suggests_the_family() {
        assert_eq!(suggest("p4d.48xlarge")[0], "p4d.24xlarge");
        assert_eq!(suggest("ml.p5.24xlarge")[..2], ["p5.4xlarge", "p5.48xlarge"]);
        assert_eq!(suggest("dgx-h10")[0], "dgx-h100");
        assert_eq!(suggest("dgx").len(), 5);
        assert!(suggest("moon").is_empty());
        assert!(suggest("").is_empty());
    }

    /// The wiring agrees with the instance type and with the GPU model.
    #[test]
    fn no_machine_contradicts_what_it_is_made_of() {
        for name in names() {
            let machine = machine(name).unwrap();
            let model = gpu::find(machine.gpus[0].model.as_deref().unwrap()).unwrap();
            let nvlinks = |gpu| machine.nvlinks.iter().filter(move |it| it.from == gpu).map(|it| it.count);
            for (place, gpu) in machine.gpus.iter().enumerate() {
                assert_eq!(gpu.index as usize, place, "{name}");
                assert_eq!(gpu.compute, Some(model.compute), "{name}");
                assert!(machine.socket_of(gpu.at).is_some(), "{name}");
                let links: u32 = nvlinks(place).sum();
                assert!(links == 0 || links == model.nvlink.unwrap().links, "{name}: {links} links");
            }
            assert!(machine.nics.iter().all(|it| machine.socket_of(it.at).is_some()), "{name}");
            let nics: BTreeSet<_> = machine.nics.iter().map(|it| &it.name).collect();
            assert_eq!(nics.len(), machine.nics.len(), "{name}");
            let Some(instance) = instance::find(name) else {
                let stated = machine.sockets.iter().all(|it| it.maker != Maker::Unknown);
                let said = machine.unknown.iter().any(|it| it.contains("CPU"));
                assert!(stated || said, "{name}");
                continue;
            };
            assert_eq!(machine.gpus.len(), instance.gpus as usize, "{name}");
            let efa = machine.nics.iter().filter(|it| it.kind == NicKind::Efa);
            assert_eq!(efa.count(), instance.nics as usize, "{name}");
            let total: f64 = machine.nics.iter().map(|it| it.rate.unwrap().0).sum();
            assert!((total - instance.net_gbps_total.0).abs() < 1e-9, "{name}: {total}");
            assert_eq!(machine.nvlinks.is_empty(), instance.nvlink != Some(true), "{name}");
            if let (Some(generation), Some(port)) = (instance.nvlink_gen, model.nvlink) {
                assert_eq!(generation, port.generation, "{name}");
                assert_eq!(instance.nvlink_per_gpu_bidir, Some(port.bidirectional), "{name}");
            }
            if let (Some(of_instance), Some(of_model)) = (instance.gpu_mem_gib, model.memory) {
                assert!((of_instance.0 - of_model.0).abs() < 0.01, "{name}: {of_instance} and {of_model}");
            }
            assert!(machine.sockets.iter().all(|it| it.maker == instance.cpu), "{name}");
        }
    }

    #[test]
    fn p4d_is_wired_as_its_topology_file_says() {
        let machine = machine("p4d.24xlarge").unwrap();
        let nics: Vec<&str> = machine.nics.iter().map(|it| &*it.name).collect();
        assert_eq!(nics, ["rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27"]);
        assert_eq!(machine.gpus[4].bus.unwrap().to_string(), "0000:90:1c.0");
        assert_eq!(machine.nics[2].at, machine.gpus[4].at);
        assert_eq!(machine.nics[2].at, machine.gpus[5].at);
        assert_eq!(machine.socket_of(machine.gpus[3].at), Some(0));
        assert_eq!(machine.gpus[0].link.unwrap().to_string(), "Gen3 x16");
        assert_eq!((machine.nics[0].gpudirect, machine.nics[0].latency), (Some(true), Some(75.0)));
        assert!(machine.has_nvswitch() && machine.unknown.is_empty());
    }

    #[test]
    fn machines_without_a_switch() {
        let cube = machine("dgx-1v").unwrap();
        assert!(!cube.has_nvswitch());
        let from_first: Vec<_> =
            cube.nvlinks.iter().filter(|it| it.from == 0).map(|it| (it.to, it.count)).collect();
        let want = [(1, 1), (2, 1), (3, 2), (4, 2)].map(|(to, count)| (NvEnd::Gpu(to), count));
        assert_eq!(from_first, want);

        let flat = machine("g6e.12xlarge").unwrap();
        assert!(flat.nvlinks.is_empty() && flat.bridges.is_empty());
        assert!(flat.gpus.iter().all(|it| it.at == Place::Socket(0)));
        assert_eq!(flat.nics[0].gpudirect, Some(false));

        let guessed = machine("g6e.48xlarge").unwrap();
        assert!(guessed.unknown[0].contains("not published"));
        assert_eq!(machine("g5.xlarge").unwrap().nics[0].kind, NicKind::Ethernet);
    }

    #[test]
    fn the_plugin_joins_nics_with_rdma_alone() {
        assert!(groups_nics("p5.48xlarge"));
        assert!(!groups_nics("p4d.24xlarge"));
        assert!(!groups_nics("dgx-h100"));
    }
}
