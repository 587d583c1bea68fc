//! The operating system, processors, memory, modules and services.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use evidence::node::{ClockSync, Cpu, Hugepages, Memory, Module, NumaNode, Service, System};

use super::{count_of_list, name_of, number};
use crate::sysfs::{Sysfs, entries, text};

pub(super) fn system(
    sysfs: &Sysfs,
    root: &Path,
    variables: &BTreeMap<String, String>,
    vendor: Option<&str>,
) -> System {
    let release = sysfs.read("etc/os-release").or_else(|| sysfs.read("usr/lib/os-release"));
    let pretty = release.as_deref().and_then(|it| it.lines().find_map(|it| it.strip_prefix("PRETTY_NAME=")));
    let cpuinfo = sysfs.read("proc/cpuinfo").unwrap_or_default();
    let flags = field(&cpuinfo, "flags");
    let clouds = ["QEMU", "Microsoft Corporation", "Google", "VMware", "Xen"];
    // ARM's processors do not say whether they are virtual.
    let virtual_machine = match (flags, vendor) {
        (Some(flags), _) => Some(flags.split_whitespace().any(|it| it == "hypervisor")),
        (None, Some(vendor)) => clouds.iter().any(|it| vendor.contains(it)).then_some(true),
        (None, None) => None,
    };
    System {
        kernel: sysfs.read("proc/sys/kernel/osrelease"),
        distribution: pretty.map(|it| it.trim_matches('"').to_owned()),
        architecture: sysfs.read("proc/sys/kernel/arch").or_else(|| Some(std::env::consts::ARCH.to_owned())),
        container: container(sysfs, root, variables),
        virtual_machine,
        uptime_s: sysfs.read("proc/uptime").and_then(|it| it.split('.').next()?.parse().ok()),
        boot: boot(sysfs, root),
    }
}

fn boot(sysfs: &Sysfs, root: &Path) -> Option<String> {
    let id = sysfs.read("proc/sys/kernel/random/boot_id")?;
    let network = std::fs::read_link(root.join("proc/self/ns/net")).ok()?;
    Some(format!("{id} {}", network.display()))
}

/// What contains this process.
fn container(sysfs: &Sysfs, root: &Path, variables: &BTreeMap<String, String>) -> Option<String> {
    let groups = sysfs.read("proc/self/cgroup").unwrap_or_default();
    let named = variables.get("container").filter(|it| !it.is_empty());
    let kind = if variables.contains_key("KUBERNETES_SERVICE_HOST") || groups.contains("kubepods") {
        "kubernetes"
    } else if root.join("run/.containerenv").exists() {
        "podman"
    } else if root.join(".dockerenv").exists() || groups.contains("docker") {
        "docker"
    } else if root.join(".singularity.d").exists() || variables.contains_key("APPTAINER_NAME") {
        "apptainer"
    } else if groups.contains("containerd") {
        "containerd"
    } else {
        return named.cloned();
    };
    Some(kind.to_owned())
}

pub(super) fn cpu(sysfs: &Sysfs, root: &Path) -> Cpu {
    let cpuinfo = sysfs.read("proc/cpuinfo").unwrap_or_default();
    let status = sysfs.read("proc/self/status").unwrap_or_default();
    let folder = root.join("sys/devices/system/cpu/cpufreq");
    let governors: BTreeSet<String> =
        entries(&folder).iter().filter_map(|it| text(&it.join("scaling_governor"))).collect();
    let mut numa: Vec<NumaNode> =
        entries(&root.join("sys/devices/system/node")).iter().filter_map(|it| numa_node(it)).collect();
    numa.sort_by_key(|it| it.node);
    Cpu {
        model: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "cpu")).map(str::to_owned),
        online: sysfs.read("sys/devices/system/cpu/online").and_then(|it| count_of_list(&it)),
        allowed: field(&status, "Cpus_allowed_list").and_then(count_of_list),
        governors: governors.into_iter().collect(),
        numa,
        numa_balancing: number(sysfs, "proc/sys/kernel/numa_balancing").map(|it| it != 0),
        cgroup: evidence::node::Cgroup::default(),
    }
}

fn numa_node(path: &Path) -> Option<NumaNode> {
    let node = name_of(path)?.strip_prefix("node")?.parse().ok()?;
    let memory = text(&path.join("meminfo")).unwrap_or_default();
    let total = memory.lines().find_map(|it| it.split_once("MemTotal:"));
    Some(NumaNode {
        node,
        cpus: text(&path.join("cpulist")).unwrap_or_default(),
        memory_bytes: total.and_then(|it| kibibytes(it.1)),
    })
}

pub(super) fn memory(sysfs: &Sysfs, root: &Path) -> Memory {
    let text = sysfs.read("proc/meminfo").unwrap_or_default();
    let value = |name| field(&text, name).and_then(kibibytes);
    let pages = |path: &Path| {
        let size: u64 = name_of(path)?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = |name: &str| crate::sysfs::text(&path.join(name)).and_then(|it| it.parse().ok());
        Some(Hugepages {
            page_bytes: size.checked_mul(1024)?,
            total: count("nr_hugepages")?,
            free: count("free_hugepages")?,
        })
    };
    Memory {
        total_bytes: value("MemTotal"),
        available_bytes: value("MemAvailable"),
        hugepages: entries(&root.join("sys/kernel/mm/hugepages")).iter().filter_map(|it| pages(it)).collect(),
        ..Memory::default()
    }
}

/// `  263742 kB` in bytes.
fn kibibytes(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The first value of a field in `name : value` lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|it| it.split_once(':'));
    lines.find(|it| it.0.trim() == name).map(|it| it.1.trim()).filter(|it| !it.is_empty())
}

pub(super) fn clock(sysfs: &Sysfs, root: &Path) -> ClockSync {
    let timesync = root.join("run/systemd/timesync");
    ClockSync {
        source: sysfs.read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
        synchronised: timesync.exists().then(|| timesync.join("synchronized").exists()),
    }
}

/// The modules that matter to GPUs and networks.
const MODULES: &[&str] = &[
    "nvidia",
    "nvidia_uvm",
    "nvidia_peermem",
    "nv_peer_mem",
    "nvidia_fs",
    "gdrdrv",
    "efa",
    "ena",
    "ib_uverbs",
    "mlx5_core",
    "mlx5_ib",
    "bnxt_re",
    "irdma",
    "amdgpu",
];

pub(super) fn modules(root: &Path) -> Option<Vec<Module>> {
    let folder = root.join("sys/module");
    if !folder.exists() {
        return None;
    }
    let loaded = MODULES.iter().filter(|it| folder.join(it).exists());
    let module =
        |name: &&str| Module { name: (*name).to_owned(), version: text(&folder.join(name).join("version")) };
    Some(loaded.map(module).collect())
}

/// Programs of the machine that matter, as the kernel shortens their names to 15 bytes.
const SERVICES: &[&str] = &[
    "nv-fabricmanage",
    "nvidia-imex",
    "nvidia-persiste",
    "nvlsm",
    "dcgm-exporter",
    "nv-hostengine",
    "chronyd",
    "ntpd",
    "openntpd",
    "systemd-timesyn",
    "ptp4l",
    "phc2sys",
    "slurmd",
    "kubelet",
];

pub(super) fn services(root: &Path) -> Option<Vec<Service>> {
    let proc = root.join("proc");
    // Only where the kernel's own threads are visible are all processes of the host.
    if text(&proc.join("2/comm")).as_deref() != Some("kthreadd") {
        return None;
    }
    let mut found = Vec::new();
    for path in entries(&proc) {
        let Some(pid) = name_of(&path).and_then(|it| it.parse().ok()) else { continue };
        if let Some(name) = text(&path.join("comm")).filter(|it| SERVICES.contains(&it.as_str())) {
            found.push(Service { name, pid });
        }
    }
    found.sort_by_key(|it| it.pid);
    Some(found)
}
