//! The state of a machine. Bytes are bytes, rates are Gbit/s, times are seconds, unless the name says otherwise.

#![expect(missing_docs, reason = "most fields are said by their name and unit")]

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::KernelLog;

/// Everything that was seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// The host name.
    pub host: String,
    /// The version of plumb that looked.
    pub plumb: Option<String>,
    /// When it looked, in seconds since 1970.
    pub taken_unix_s: Option<u64>,
    pub machine: Hardware,
    pub system: System,
    pub cpu: Cpu,
    pub memory: Memory,
    pub limits: Limits,
    /// `None` where neither NVML nor the kernel module shows a driver.
    pub driver: Option<Driver>,
    /// The GPUs that the driver lists; `None` where it could not be asked.
    pub gpus: Option<Vec<Gpu>>,
    /// Bus, model and PCI Express link of the GPUs as the kernel shows them, where the driver could not be asked.
    pub kernel_gpus: Option<Vec<Gpu>>,
    /// Ports of RDMA devices (EFA, InfiniBand, RoCE); `None` where /sys is not visible.
    pub rdma: Option<Vec<RdmaPort>>,
    /// Network interfaces without `lo`; `None` where /sys is not visible.
    pub interfaces: Option<Vec<Interface>>,
    /// Libraries found in the usual folders and in `LD_LIBRARY_PATH`.
    pub libraries: Vec<Library>,
    /// The kernel modules that matter to GPUs and networks; `None` where they cannot be listed.
    pub modules: Option<Vec<Module>>,
    /// Services of NVIDIA and of the clock; `None` where processes of the host are not visible.
    pub services: Option<Vec<Service>>,
    pub pci: Pci,
    /// What the kernel reported since it started; `None` where its log cannot be read.
    pub kernel_log: Option<KernelLog>,
    pub clock: ClockSync,
    pub not_seen: Vec<NotSeen>,
}

/// A fact that could not be seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NotSeen {
    /// `kernel log`
    pub what: String,
    /// `/dev/kmsg: permission denied`
    pub why: String,
    /// How to let plumb see it.
    pub how: String,
}

/// Which machine it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hardware {
    /// `Amazon EC2`
    pub vendor: Option<String>,
    /// `p5.48xlarge`, as the firmware says.
    pub product: Option<String>,
    /// The machine that the user named (`--instance`).
    pub named: Option<String>,
    /// How many GPUs the user expects (`--gpus`).
    pub expected_gpus: Option<u32>,
}

/// The operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct System {
    /// `6.1.0-32-amd64`
    pub kernel: Option<String>,
    /// `Ubuntu 24.04.1 LTS`
    pub distribution: Option<String>,
    /// `x86_64`
    pub architecture: Option<String>,
    /// What contains this process: `docker`, `kubernetes`, `podman`; `None` on the host itself.
    pub container: Option<String>,
    /// Whether the CPU runs under a hypervisor.
    pub virtual_machine: Option<bool>,
    pub uptime_s: Option<u64>,
    /// Boot id and network namespace: with the same host name, equal for two states of one machine, whatever it was called.
    pub boot: Option<String>,
}

/// The processors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cpu {
    pub model: Option<String>,
    pub online: Option<u32>,
    /// How many of them this process may run on.
    pub allowed: Option<u32>,
    /// Frequency governors in use, each once.
    pub governors: Vec<String>,
    pub numa: Vec<NumaNode>,
    /// `kernel.numa_balancing`
    pub numa_balancing: Option<bool>,
    pub cgroup: Cgroup,
}

/// Limits of the control group of this process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// How many CPUs' time it may use; `None` without a limit.
    pub cpus: Option<f64>,
    /// `None` without a limit.
    pub memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NumaNode {
    pub node: u32,
    /// `0-23,48-71`
    pub cpus: String,
    pub memory_bytes: Option<u64>,
}

/// Host memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    pub total_bytes: Option<u64>,
    pub available_bytes: Option<u64>,
    pub shm_bytes: Option<u64>,
    pub shm_free_bytes: Option<u64>,
    pub hugepages: Vec<Hugepages>,
}

/// Huge pages of one size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hugepages {
    pub page_bytes: u64,
    pub total: u64,
    pub free: u64,
}

/// Limits of this process, which jobs that are started the same way inherit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes.
    pub memlock: Option<Limit>,
    pub open_files: Option<Limit>,
    pub processes: Option<Limit>,
    /// Whether this process may lock any amount of memory (`CAP_IPC_LOCK`), whatever `memlock` says.
    pub ipc_lock: Option<bool>,
}

/// A limit; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
}

/// The NVIDIA driver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Driver {
    /// The version of the kernel module: `570.133.20`.
    pub version: Option<String>,
    /// The newest CUDA that it supports: `12.8`.
    pub cuda: Option<String>,
    /// Whether the kernel module is the open one.
    pub open_module: Option<bool>,
    /// GPUs that the kernel module has taken, whether or not this process may use them.
    pub bound_gpus: Option<u32>,
    /// Why NVML does not answer, where it does not.
    pub problem: Option<String>,
}

/// A GPU, as the driver reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    pub index: u32,
    /// `0000:18:00.0`
    pub bus: Option<String>,
    /// `H200`
    pub name: Option<String>,
    pub uuid: Option<String>,
    pub serial: Option<String>,
    pub vbios: Option<String>,
    pub memory_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    /// Why the driver does not answer for it, where it does not.
    pub problem: Option<String>,
    pub ecc: Option<Ecc>,
    pub remapped_rows: Option<RemappedRows>,
    pub persistence: Option<bool>,
    pub mig: Option<bool>,
    /// `default`, `exclusive_process`, `prohibited`
    pub compute_mode: Option<String>,
    pub temperature_c: Option<u32>,
    /// Where the GPU slows itself down.
    pub slowdown_c: Option<u32>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    pub power_default_w: Option<f64>,
    pub sm_mhz: Option<u32>,
    pub sm_max_mhz: Option<u32>,
    pub memory_mhz: Option<u32>,
    pub memory_max_mhz: Option<u32>,
    /// Why clocks are below their maximum now: `hw_thermal_slowdown`, `sw_power_cap`.
    pub throttle: Option<Vec<String>>,
    pub pcie: Option<LinkWidth>,
    pub pcie_replays: Option<u64>,
    pub nvlink: Option<NvLinks>,
    /// Programs that use it now.
    pub processes: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ecc {
    pub enabled: Option<bool>,
    /// Since the driver was loaded.
    pub volatile_uncorrected: Option<u64>,
    pub volatile_corrected: Option<u64>,
    /// Since the GPU was made.
    pub aggregate_uncorrected: Option<u64>,
    pub aggregate_corrected: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RemappedRows {
    pub corrected: Option<u64>,
    pub uncorrected: Option<u64>,
    /// A reset is needed to use the spare rows.
    pub pending: Option<bool>,
    /// No spare row was left.
    pub failed: Option<bool>,
}

/// A PCI Express link. Its generation falls while a GPU is idle, its width does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkWidth {
    pub generation: Option<u32>,
    pub max_generation: Option<u32>,
    pub width: Option<u32>,
    pub max_width: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NvLinks {
    pub up: u32,
    /// Links that the driver knows and that are not active, by number.
    pub down: Vec<u32>,
    pub replay_errors: Option<u64>,
    pub recovery_errors: Option<u64>,
    pub crc_errors: Option<u64>,
    /// GPUs of this machine that NVLink reaches, as the driver reports.
    pub peers: Option<u32>,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPort {
    /// `rdmap16s27`, `mlx5_0`
    pub device: String,
    pub port: u32,
    /// `efa`, `infiniband`, `roce`
    pub kind: String,
    pub bus: Option<String>,
    /// `ACTIVE`, `DOWN`
    pub state: Option<String>,
    /// `LinkUp`, `Polling`
    pub physical: Option<String>,
    pub gbps: Option<f64>,
    pub firmware: Option<String>,
    /// The provider of peer-to-peer memory that the device names: `NVIDIA`.
    pub peer_memory: Option<String>,
    /// Counters that count errors, without those that are zero.
    pub errors: BTreeMap<String, u64>,
    /// How many counters of errors could be read.
    pub counters: u32,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// `ens5`
    pub name: String,
    /// Whether a device is behind it; virtual ones (bridges, veth) have none.
    pub physical: bool,
    /// `up`, `down`, `unknown`
    pub state: Option<String>,
    pub mtu: Option<u32>,
    pub gbps: Option<f64>,
    pub bus: Option<String>,
    /// Counters that count errors or drops, without those that are zero.
    pub errors: BTreeMap<String, u64>,
}

/// A library that a job could load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    pub kind: LibraryKind,
    pub path: String,
    /// `2.27.3`
    #[serde(default)]
    pub version: Option<String>,
    /// Of libfabric: its providers, as far as files show them.
    #[serde(default)]
    pub providers: Vec<String>,
}

/// What a library is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryKind {
    /// libnccl.so
    Nccl,
    /// libnccl-net*.so of aws-ofi-nccl
    AwsOfiNccl,
    /// libnccl-net*.so of another or an unknown maker
    NetPlugin,
    /// libfabric.so
    Libfabric,
    /// The provider of EFA as a file of its own
    EfaProvider,
    /// libcudart.so
    CudaRuntime,
    /// libgdrapi.so
    GdrCopy,
}

/// A kernel module that is loaded, or built in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    pub name: String,
    pub version: Option<String>,
}

/// A program of the machine that runs: `nv-fabricmanager`, `nvidia-imex`, `nvidia-persistenced`, `chronyd`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub name: String,
    pub pid: u32,
}

/// The PCI bus.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pci {
    /// NVIDIA GPUs on the bus; `None` where the bus is not visible.
    pub gpus: Option<u32>,
    /// NVIDIA NVSwitches on the bus.
    pub nvswitches: Option<u32>,
    /// The kinds of IOMMU groups in use, each once: `identity`, `DMA`, `DMA-FQ`; empty without an IOMMU.
    pub iommu: Option<Vec<String>>,
    /// Bridges above GPUs and NICs.
    pub bridges: Option<u32>,
    /// Of those, the ones whose Access Control Services redirect traffic between devices; `None` where the configuration space cannot
    /// be read, which needs root.
    pub acs: Option<Vec<String>>,
    /// IMEX channels in /dev: `channel0`.
    pub imex_channels: Option<u32>,
}

/// How the clock is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockSync {
    /// `tsc`, `kvm-clock`
    pub source: Option<String>,
    /// Whether systemd-timesyncd has synchronised the clock since the start.
    pub synchronised: Option<bool>,
}

impl NodeState {
    /// Whether a service runs; `None` where processes of the host are not visible.
    pub fn runs(&self, name: &str) -> Option<bool> {
        // The kernel keeps 15 bytes of a name.
        let name = name.get(..15).unwrap_or(name);
        let services = self.services.as_ref()?;
        Some(services.iter().any(|it| it.name.get(..15).unwrap_or(&it.name) == name))
    }

    /// Whether a kernel module is loaded; `None` where modules cannot be listed.
    pub fn has_module(&self, name: &str) -> Option<bool> {
        Some(self.modules.as_ref()?.iter().any(|it| it.name == name))
    }

    /// The libraries of a kind.
    pub fn libraries_of(&self, kind: LibraryKind) -> impl Iterator<Item = &Library> {
        self.libraries.iter().filter(move |it| it.kind == kind)
    }

    /// Whether the probe ran inside a container.
    pub fn in_container(&self) -> bool {
        self.system.container.is_some()
    }
}
