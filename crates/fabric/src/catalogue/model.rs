//! The main facts about a machine of the catalogue.

use std::fmt;
use std::sync::OnceLock;

use super::{Wiring, suggest, wirings};
use crate::assembly;
use crate::gpu::{self, GpuModel};
use crate::instance::{self, Instance};
use crate::machine::{Machine, Maker, NicKind};
use crate::units::GigabitsPerSecond;

/// A machine of the catalogue: an AWS instance type, or another vendor's machine.
#[derive(Debug, Clone)]
pub struct Model {
    /// The name in output: `p5.48xlarge`, `dgx-h100`.
    pub name: &'static str,
    /// Its usual name, if that differs: `DGX H100`.
    pub title: Option<&'static str>,
    /// The model of its GPUs, all the same.
    pub gpu: &'static GpuModel,
    /// How many GPUs it has.
    pub gpus: u32,
    /// How they reach each other.
    pub inside: Inside,
    /// The network between machines; [`NicKind::Ethernet`] if there is only TCP.
    pub network: NicKind,
    /// NICs of that network, without plain Ethernet: zero if there is only TCP.
    pub nics: u32,
    /// Bandwidth of the network of one machine.
    pub bandwidth: GigabitsPerSecond,
    /// Whether the NICs read and write GPU memory directly; `None` if no source states it.
    pub gpudirect: Option<bool>,
    /// The network plugin that NCCL needs between machines, if it is not built in: `aws-ofi-nccl`, `gIB`.
    pub plugin: Option<&'static str>,
    /// Machines per NVLink domain: 1 unless NVLink reaches beyond a machine.
    pub domain: u32,
    /// Facts that only AWS instance types have.
    pub instance: Option<&'static Instance>,
    /// Its wiring, if that is known.
    pub wiring: Option<&'static Wiring>,
}

/// How the GPUs of a machine reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Inside {
    /// There is one GPU.
    OneGpu,
    /// NVLink to switches that connect all GPUs.
    #[serde(rename = "nvswitch")]
    NvSwitch,
    /// NVLink from GPU to GPU; not every pair has a link.
    #[serde(rename = "nvlink_mesh")]
    NvLinkMesh,
    /// PCI Express or host memory.
    Pcie,
    /// No source states whether NVLink connects them.
    Unknown,
}

/// The error for a name that is not in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMachine {
    /// The given name.
    pub name: String,
    /// Similar names, nearest first.
    pub suggestions: Vec<&'static str>,
}

/// Machines are compared by name.
impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Model {}

impl Model {
    /// Whether it has EFA.
    pub fn efa(&self) -> bool {
        self.network == NicKind::Efa
    }

    /// EFA interfaces; zero without EFA.
    pub fn efa_nics(&self) -> u32 {
        if self.efa() { self.nics } else { 0 }
    }

    /// The most EFA interfaces it can show, where one can be cut in parts; zero without EFA.
    pub fn most_efa_nics(&self) -> u32 {
        self.instance.and_then(|it| it.nics_split).unwrap_or_else(|| self.efa_nics())
    }

    /// Whether its EFA reaches some types only.
    pub fn efa_is_limited(&self) -> bool {
        self.instance.is_some_and(|it| !it.efa_only_with.is_empty())
    }

    /// How many GPUs share one NIC; `None` if there is only TCP.
    pub fn gpus_per_nic(&self) -> Option<f64> {
        (self.nics > 0).then(|| f64::from(self.gpus) / f64::from(self.nics))
    }

    /// Whether aws-ofi-nccl groups NICs on this machine: it does with its RDMA protocol, see [`Machine::grouped`].
    pub fn groups_nics(&self) -> bool {
        self.instance.is_some_and(|it| it.ofi_protocol.as_deref() == Some("RDMA"))
    }

    /// The vendor of its CPU.
    pub fn cpu(&self) -> Maker {
        let wired = self.wiring.and_then(|it| it.cpu.as_ref()).map(|it| it.maker);
        wired.or(self.instance.map(|it| it.cpu)).unwrap_or(Maker::Unknown)
    }

    /// The machine, device by device, with its known wiring.
    pub fn machine(&self) -> Machine {
        match (self.instance, self.wiring) {
            (Some(instance), wiring) => assembly::of_instance(instance, wiring),
            (None, Some(wiring)) => assembly::of_wiring(wiring),
            (None, None) => Machine::default(),
        }
    }

    /// The sources of its facts, each once.
    pub fn sources(&self) -> Vec<&'static str> {
        let instance = self.instance.into_iter().flat_map(|it| &it.source);
        let wiring = self.wiring.into_iter().flat_map(|it| &it.source);
        let mut sources: Vec<&str> = Vec::new();
        for source in instance.chain(wiring) {
            if !sources.contains(&source.as_str()) {
                sources.push(source);
            }
        }
        sources
    }

    fn of_instance(instance: &'static Instance) -> Option<Self> {
        let wiring = wirings().iter().find(|it| it.name == instance.name);
        let gpu = gpu::find(&instance.gpu)?;
        let inside = match instance.nvlink {
            _ if instance.gpus == 1 => Inside::OneGpu,
            _ if gpu.nvlink.is_none() => Inside::Pcie,
            Some(true) => Inside::by(gpu),
            Some(false) => Inside::Pcie,
            None => Inside::Unknown,
        };
        Some(Self {
            name: &instance.name,
            title: None,
            gpu,
            gpus: instance.gpus,
            inside,
            network: if instance.efa() { NicKind::Efa } else { NicKind::Ethernet },
            nics: instance.nics,
            bandwidth: instance.net_gbps_total,
            gpudirect: instance.gpudirect_rdma,
            plugin: instance.efa().then_some("aws-ofi-nccl"),
            domain: wiring.and_then(|it| it.domain).unwrap_or(1),
            instance: Some(instance),
            wiring,
        })
    }

    fn of_wiring(wiring: &'static Wiring) -> Option<Self> {
        let machine = assembly::of_wiring(wiring);
        let gpu = gpu::find(wiring.gpu.as_deref()?)?;
        let gpus = u32::try_from(machine.gpus.len()).ok()?;
        let first = machine.nics.first();
        Some(Self {
            name: &wiring.name,
            title: wiring.title.as_deref(),
            gpu,
            gpus,
            inside: match gpus {
                1 => Inside::OneGpu,
                _ if machine.nvlinks.is_empty() => Inside::Pcie,
                _ => Inside::by(gpu),
            },
            network: first.map_or(NicKind::Ethernet, |it| it.kind),
            nics: u32::try_from(machine.nics.len()).ok()?,
            bandwidth: GigabitsPerSecond(machine.nics.iter().filter_map(|it| it.rate).map(|it| it.0).sum()),
            gpudirect: first.and_then(|it| it.gpudirect),
            plugin: wiring.plugin.as_deref(),
            domain: wiring.domain.unwrap_or(1),
            instance: None,
            wiring: Some(wiring),
        })
    }
}

impl Inside {
    /// `NVSwitch`, `NVLink mesh`, `PCIe`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneGpu => "one GPU",
            Self::NvSwitch => "NVSwitch",
            Self::NvLinkMesh => "NVLink mesh",
            Self::Pcie => "PCIe",
            Self::Unknown => "unknown",
        }
    }

    fn by(gpu: &GpuModel) -> Self {
        match gpu.nvlink.map(|it| it.by) {
            Some(gpu::NvLinkBy::Switch) => Self::NvSwitch,
            Some(gpu::NvLinkBy::Bridge | gpu::NvLinkBy::Wires) => Self::NvLinkMesh,
            None => Self::Pcie,
        }
    }
}

impl fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plumb knows no machine `{}`", self.name)?;
        match self.suggestions.as_slice() {
            [] => f.write_str("; `plumb machines` lists them"),
            near => write!(f, "; did you mean {}?", near.join(" or ")),
        }
    }
}

impl std::error::Error for UnknownMachine {}

/// Every machine: instance types, then the others.
pub fn all() -> &'static [Model] {
    static ALL: OnceLock<Vec<Model>> = OnceLock::new();
    ALL.get_or_init(|| {
        let instances = instance::all().iter().filter_map(Model::of_instance);
        let others = wirings().iter().filter(|it| it.gpu.is_some()).filter_map(Model::of_wiring);
        instances.chain(others).collect()
    })
}

/// The machine of this name, in any usual spelling: `ML.P5.48xlarge` is `p5.48xlarge`, `DGX H100` is `dgx-h100`.
pub fn find(name: &str) -> Option<&'static Model> {
    let name = name.trim();
    let known = instance::find(name).map(|it| &it.name).or_else(|| Some(&super::wiring(name)?.name))?;
    all().iter().find(|it| it.name == known)
}

/// The machine of this name, or an error with suggestions.
pub fn resolve(name: &str) -> Result<&'static Model, UnknownMachine> {
    find(name).ok_or_else(|| UnknownMachine { name: name.to_owned(), suggestions: suggest(name) })
}

#[cfg(test)]
mod tests {
    use super::{Inside, all, find, resolve};
    use crate::catalogue::names;
    use crate::machine::NicKind;

    #[test]
    fn every_machine_has_a_model_that_agrees_with_its_devices() {
        assert_eq!(all().len(), names().count());
        for it in all() {
            let machine = it.machine();
            assert_eq!(it.gpus as usize, machine.gpus.len(), "{}", it.name);
            assert_eq!(machine.gpus[0].model.as_deref(), Some(it.gpu.name.as_str()), "{}", it.name);
            let fast = machine.nics.iter().filter(|nic| nic.kind != NicKind::Ethernet).count();
            assert_eq!(it.nics as usize, fast, "{}", it.name);
            assert_eq!(machine.nics[0].kind, it.network, "{}", it.name);
            assert!(machine.sockets.iter().all(|socket| socket.maker == it.cpu()), "{}", it.name);
            assert_eq!(machine.has_nvswitch(), it.inside == Inside::NvSwitch, "{}", it.name);
            let nvlink = matches!(it.inside, Inside::NvSwitch | Inside::NvLinkMesh);
            assert_eq!(!machine.nvlinks.is_empty(), nvlink, "{}", it.name);
            assert!(!it.sources().is_empty(), "{}", it.name);
            assert_eq!(find(it.name), Some(it));
        }
    }

    #[test]
    fn instance_types_and_others_answer_alike() {
        let p5 = find("ml.p5.48xlarge").unwrap();
        assert_eq!((p5.gpus, p5.nics, p5.efa(), p5.bandwidth.0), (8, 32, true, 3200.0));
        assert!(p5.groups_nics());
        let dgx = find("DGX H100").unwrap();
        assert_eq!((dgx.gpus, dgx.nics, dgx.efa_nics(), dgx.bandwidth.0), (8, 8, 0, 3200.0));
        assert_eq!((dgx.network, dgx.inside, dgx.domain), (NicKind::InfiniBand, Inside::NvSwitch, 1));
        let small = find("g5.xlarge").unwrap();
        assert_eq!(
            (small.network, small.nics, small.gpus_per_nic(), small.inside),
            (NicKind::Ethernet, 0, None, Inside::OneGpu)
        );
        assert_eq!(find("p3dn.24xlarge").unwrap().inside, Inside::NvLinkMesh);
        assert_eq!(find("gb200-nvl72").unwrap().domain, 18);
    }

    #[test]
    fn an_unknown_name_is_answered_with_near_ones() {
        assert_eq!(
            resolve("p4d.42xlarge").unwrap_err().to_string(),
            "plumb knows no machine `p4d.42xlarge`; did you mean p4d.24xlarge or p4de.24xlarge?"
        );
        assert_eq!(
            resolve("moon").unwrap_err().to_string(),
            "plumb knows no machine `moon`; `plumb machines` lists them"
        );
    }
}
