//! The state of this machine: everything that [`NodeState`] holds.

mod devices;
mod kernel_gpus;
mod kernel_log;
mod libraries;
mod limits;
mod pci;
mod system;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use evidence::node::{Driver, NodeState, NotSeen};

use crate::driver;
use crate::gpu_state::{self, Report};
use crate::sysfs::{Sysfs, entries};

/// Reads the state of this machine. It takes at most half a minute, even where the driver hangs.
pub fn state(plumb: &str) -> NodeState {
    let shm = rustix::fs::statvfs("/dev/shm").ok();
    let bytes = |blocks: u64, size: u64| blocks.saturating_mul(size);
    let surroundings = Surroundings {
        root: PathBuf::from("/"),
        variables: VARIABLES
            .iter()
            .filter_map(|it| Some(((*it).to_owned(), std::env::var(it).ok()?)))
            .collect(),
        shm: shm.map(|it| (bytes(it.f_blocks, it.f_frsize), bytes(it.f_bavail, it.f_frsize))),
        nvml: gpu_state::read(),
    };
    let mut state = surroundings.state();
    state.plumb = Some(plumb.to_owned());
    state.taken_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|it| it.as_secs());
    state
}

/// The variables that are read.
const VARIABLES: &[&str] = &[
    "LD_LIBRARY_PATH",
    "KUBERNETES_SERVICE_HOST",
    "container",
    "CONDA_PREFIX",
    "VIRTUAL_ENV",
    "APPTAINER_NAME",
];

/// What a machine shows: files below a root, and what is not in files.
#[derive(Debug)]
struct Surroundings {
    root: PathBuf,
    variables: BTreeMap<String, String>,
    /// Size and free space of /dev/shm.
    shm: Option<(u64, u64)>,
    nvml: Result<Report, String>,
}

impl Surroundings {
    fn state(self) -> NodeState {
        let sysfs = Sysfs::new(&self.root);
        let mut state = NodeState { host: host(&sysfs), ..NodeState::default() };
        state.machine.vendor = sysfs.read("sys/class/dmi/id/sys_vendor");
        state.machine.product = sysfs.read("sys/class/dmi/id/product_name");
        state.system = system::system(&sysfs, &self.root, &self.variables, state.machine.vendor.as_deref());
        state.cpu = system::cpu(&sysfs, &self.root);
        state.memory = system::memory(&sysfs, &self.root);
        (state.memory.shm_bytes, state.memory.shm_free_bytes) =
            (self.shm.map(|it| it.0), self.shm.map(|it| it.1));
        state.limits = limits::limits(&sysfs);
        state.cpu.cgroup = limits::cgroup(&sysfs);
        state.clock = system::clock(&sysfs, &self.root);
        state.services = system::services(&self.root);
        state.modules = system::modules(&self.root);
        state.rdma = devices::rdma(&sysfs, &self.root);
        state.interfaces = devices::interfaces(&sysfs, &self.root);
        state.libraries = libraries::find(&self.root, &self.variables);
        state.pci = pci::pci(&sysfs, &self.root);
        let log = kernel_log::read(&self.root.join("dev/kmsg"));
        self.add_driver(&sysfs, &mut state);
        state.not_seen = not_seen(&state, log.as_ref().err());
        state.kernel_log = log.ok();
        state
    }

    fn add_driver(self, sysfs: &Sysfs, state: &mut NodeState) {
        // `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build ...`
        let module = sysfs.read("proc/driver/nvidia/version");
        let bound = entries(&self.root.join("proc/driver/nvidia/gpus")).len();
        let mut driver = Driver {
            version: module.as_deref().and_then(module_version),
            open_module: module.as_deref().map(|it| it.contains("Open Kernel Module")),
            bound_gpus: module.is_some().then(|| u32::try_from(bound).unwrap_or(u32::MAX)),
            ..Driver::default()
        };
        match self.nvml {
            Ok(report) => {
                driver.version = driver.version.or(report.driver);
                driver.cuda = report.cuda;
                state.gpus = Some(report.gpus);
                state.driver = Some(driver);
            }
            // A machine without a GPU has no driver, and nothing is wrong.
            Err(_) if module.is_none() && state.pci.gpus == Some(0) => {}
            Err(problem) => {
                state.kernel_gpus = kernel_gpus::read(sysfs, &self.root);
                driver.problem = Some(problem);
                state.driver = Some(driver);
            }
        }
    }
}

fn host(sysfs: &Sysfs) -> String {
    sysfs.read("proc/sys/kernel/hostname").unwrap_or_else(|| "localhost".to_owned())
}

/// The version of the kernel module.
fn module_version(text: &str) -> Option<String> {
    let line = text.lines().find(|it| it.starts_with("NVRM version"))?;
    let is_version = |it: &&str| {
        it.contains('.') && it.split('.').all(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
    };
    line.split_whitespace().find(is_version).map(str::to_owned)
}

/// What could not be seen, and how to let plumb see it.
fn not_seen(state: &NodeState, kernel_log: Option<&String>) -> Vec<NotSeen> {
    let mut all = Vec::new();
    let mut add = |what: &str, why: &str, how: &str| {
        all.push(NotSeen { what: what.to_owned(), why: why.to_owned(), how: how.to_owned() });
    };
    let has_gpus = state.pci.gpus != Some(0) || state.driver.is_some();
    if let Some(problem) = state.driver.as_ref().and_then(|it| it.problem.as_deref()) {
        add(
            "state of the GPUs",
            &format!("NVML does not answer: {problem}"),
            if driver::IS_STATIC {
                "run the glibc build of plumb on this machine"
            } else if state.in_container() {
                "start the container with the NVIDIA runtime (`docker run --gpus all`, in Kubernetes a limit of nvidia.com/gpu), or run plumb on the host"
            } else {
                "`nvidia-smi` must work: install the driver's libraries (libnvidia-ml.so.1) of the version of the kernel module"
            },
        );
    }
    if state.pci.gpus.is_none() {
        add("PCI bus", "/sys does not show it", "mount /sys, or run plumb on the host");
    }
    if state.rdma.is_none() {
        add("network devices", "/sys/class/net is not there", "mount /sys, or run plumb on the host");
    }
    if let Some(why) = kernel_log {
        let how = if state.in_container() {
            "run it on the host, or start the container with `--device /dev/kmsg --cap-add SYSLOG`"
        } else {
            "run it as root, or set `kernel.dmesg_restrict=0` and let the user read /dev/kmsg"
        };
        add("kernel log (Xid, AER)", why, how);
    }
    if state.services.is_none() {
        add(
            "services of the host (Fabric Manager, IMEX, clock)",
            "processes of the host are not visible here",
            "run it on the host, or start the container with `--pid=host`",
        );
    }
    if has_gpus && state.pci.bridges.is_some_and(|it| it > 0) && state.pci.acs.is_none() {
        add("ACS of PCI bridges", "their configuration space needs root", "run it as root on the host");
    }
    if state.modules.is_none() {
        add("kernel modules", "/sys/module is not there", "mount /sys");
    }
    if state.memory.shm_bytes.is_none() {
        add("/dev/shm", "it is not mounted", "mount a tmpfs on /dev/shm");
    }
    if state.limits.memlock.is_none() {
        add("limits", "/proc/self/limits cannot be read", "mount /proc");
    }
    all
}

/// Numbers of a list such as `0-3,8`: how many there are.
fn count_of_list(text: &str) -> Option<u32> {
    let mut count = 0u32;
    for part in text.trim().split(',').filter(|it| !it.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        count = count.saturating_add(last.checked_sub(first)?.saturating_add(1));
    }
    (count > 0).then_some(count)
}

/// A number that a file below the root holds.
fn number(sysfs: &Sysfs, path: &str) -> Option<u64> {
    sysfs.read(path)?.parse().ok()
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}
