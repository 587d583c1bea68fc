//! Machines as recorded trees of files: `recordings/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use evidence::node::{Gpu, LibraryKind, Limit, NodeState};
use proptest::prelude::*;

use super::{Surroundings, count_of_list, module_version};
use crate::gpu_state::Report;

const CONTAINER: &str = include_str!("../../recordings/container-without-gpu.txt");
const LAPTOP: &str = include_str!("../../recordings/laptop.txt");
const P5: &str = include_str!("../../recordings/p5-by-hand.txt");
const H200: &str = include_str!("../../recordings/h200.txt");

/// A folder that is removed at the end.
struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    fn new(name: &str, recording: &str) -> Self {
        let root = std::env::temp_dir().join(format!("plumb-state-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("a folder");
        let mut files: BTreeMap<&str, String> = BTreeMap::new();
        let mut open = None;
        for line in recording.lines() {
            if let Some(path) = line.strip_prefix("@ ") {
                open = Some(path);
                files.insert(path, String::new());
            } else if let Some((path, target)) = line.strip_prefix("> ").and_then(|it| it.split_once(' ')) {
                open = None;
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
                let _ = symlink(root.join(target), path);
            } else if let Some(text) = open.and_then(|it| files.get_mut(it)) {
                text.push_str(line);
                text.push('\n');
            }
        }
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        Self(root)
    }

    fn state(&self, nvml: Result<Report, String>) -> NodeState {
        let variables = BTreeMap::from([("LD_LIBRARY_PATH".to_owned(), "/opt/job/lib:relative".to_owned())]);
        Surroundings { root: self.0.clone(), variables, shm: Some((64 << 20, 60 << 20)), nvml }.state()
    }
}

#[test]
fn a_boot_is_told_from_another() {
    let state = |boot: &str, network: &str| {
        let own = format!("@ proc/sys/kernel/random/boot_id\n{boot}\n> proc/self/ns/net net:[{network}]\n");
        Tree::new(&format!("boot-{boot}"), &format!("{LAPTOP}\n{own}")).state(no_nvml()).system.boot
    };
    let one = state("1b4e28ba", "4026531840").expect("a boot");
    assert!(one.starts_with("1b4e28ba ") && one.ends_with("net:[4026531840]"), "{one}");
    assert_ne!(state("1b4e28ba", "4026532000"), Some(one), "containers with networks of their own");
    // A kernel that hides it.
    assert_eq!(Tree::new("no-boot", LAPTOP).state(no_nvml()).system.boot, None);
}

fn no_nvml() -> Result<Report, String> {
    Err("its library is not installed".to_owned())
}

fn unseen(state: &NodeState) -> Vec<&str> {
    state.not_seen.iter().map(|it| it.what.as_str()).collect()
}

#[test]
fn a_container_without_a_gpu() {
    let state = Tree::new("container", CONTAINER).state(no_nvml());
    assert_eq!(state.system.container.as_deref(), Some("docker"));
    assert_eq!((state.pci.gpus, &state.gpus, &state.driver), (Some(0), &None, &None));
    assert_eq!(state.cpu.model.as_deref(), Some("Intel(R) Xeon(R) Processor"));
    assert_eq!((state.cpu.online, state.system.virtual_machine), (Some(2), Some(true)));
    assert_eq!(state.limits.memlock, Some(Limit { soft: Some(8 << 20), hard: Some(8 << 20) }));
    assert_eq!(state.rdma.as_deref(), Some(&[][..]));
    let eth0 = &state.interfaces.as_ref().unwrap()[0];
    assert_eq!((&*eth0.name, eth0.mtu, eth0.physical), ("eth0", Some(1400), true));
    assert_eq!(eth0.bus.as_deref(), Some("0000:00:03.0"));
    assert!(unseen(&state).contains(&"kernel log (Xid, AER)"), "{:?}", state.not_seen);
    assert!(state.not_seen.iter().all(|it| !it.why.is_empty() && !it.how.is_empty()));
}

#[test]
fn a_laptop() {
    let state = Tree::new("laptop", LAPTOP).state(no_nvml());
    assert_eq!((state.system.container.as_deref(), state.system.virtual_machine), (None, Some(false)));
    assert_eq!(state.machine.product.as_deref(), Some("21CB000GGE"));
    assert_eq!((state.cpu.online, &*state.cpu.governors), (Some(8), &["powersave".to_owned()][..]));
    // A GPU for the display is on the bus; its module is not NVIDIA's.
    assert_eq!((state.pci.gpus, state.driver.is_some()), (Some(1), true));
    assert_eq!(state.modules.as_deref(), Some(&[][..]));
    let names: Vec<&str> = state.services.as_ref().unwrap().iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["systemd-timesyn"]);
    assert_eq!(state.clock.synchronised, Some(true));
    let wlan = state.interfaces.as_ref().unwrap().iter().find(|it| it.name == "wlan0").unwrap();
    assert_eq!((wlan.gbps, wlan.errors.get("rx_dropped")), (None, Some(&12)));
}

#[test]
fn a_machine_with_efa_and_its_libraries() {
    let tree = Tree::new("p5", P5);
    // The names of the libraries that it is linked with, as they are in a library.
    let linked = b"ELF\0libefa.so.1\0libibverbs.so.1\0";
    fs::write(tree.0.join("opt/amazon/efa/lib64/libfabric.so.1.29.1"), linked).expect("a file");
    let state = tree.state(no_nvml());
    assert_eq!(state.machine.product.as_deref(), Some("p5.48xlarge"));
    let ports = state.rdma.as_ref().unwrap();
    assert_eq!(ports.len(), 2);
    let port = &ports[1];
    assert_eq!((&*port.device, &*port.kind, port.gbps), ("rdmap80s0", "efa", Some(100.0)));
    assert_eq!((port.state.as_deref(), port.peer_memory.as_deref()), (Some("ACTIVE"), Some("NVIDIA")));
    assert_eq!((port.errors.get("rx_drops"), port.errors.len(), port.counters), (Some(&7), 1, 2));
    let driver = state.driver.as_ref().unwrap();
    assert_eq!(
        (driver.version.as_deref(), driver.open_module, driver.bound_gpus),
        (Some("570.133.20"), Some(true), Some(1))
    );
    assert_eq!(driver.problem.as_deref(), Some("its library is not installed"));
    assert_eq!(state.pci.iommu.as_deref(), Some(&["DMA-FQ".to_owned()][..]));
    let found: Vec<(LibraryKind, Option<&str>)> =
        state.libraries.iter().map(|it| (it.kind, it.version.as_deref())).collect();
    assert_eq!(
        found,
        [
            (LibraryKind::Nccl, Some("2.26.2")),
            (LibraryKind::Nccl, Some("2.27.3")),
            (LibraryKind::AwsOfiNccl, Some("1.16.2")),
            (LibraryKind::NetPlugin, None),
            (LibraryKind::Libfabric, Some("2.1.0amzn3.0")),
            // Its file is libfabric.so.1.20.0; the list of packages has the release.
            (LibraryKind::Libfabric, Some("1.17.0")),
        ]
    );
    assert_eq!(state.libraries[4].providers, ["efa", "tcp", "verbs"]);
    let log = state.kernel_log.as_ref().unwrap();
    assert_eq!((log.messages, log.xids.len(), log.xids[0].code), (3, 1, 79));
    assert_eq!((state.cpu.cgroup.cpus, state.cpu.cgroup.memory_bytes), (Some(4.0), Some(8 << 30)));
    assert_eq!(state.runs("nv-fabricmanager"), Some(true));
    assert_eq!(state.memory.hugepages[0].total, 5128);
    assert_eq!(state.pci.imex_channels, Some(0));
}

#[test]
fn a_machine_with_a_gpu() {
    let gpus = vec![Gpu { index: 0, name: Some("H200".to_owned()), ..Gpu::default() }];
    let report = Report { driver: Some("570.0".to_owned()), cuda: Some("12.8".to_owned()), gpus };
    let state = Tree::new("h200", H200).state(Ok(report));
    assert_eq!((state.pci.gpus, state.gpus.as_ref().map(Vec::len)), (Some(1), Some(1)));
    let driver = state.driver.as_ref().unwrap();
    assert!(driver.version.as_deref().is_some_and(|it| it.split('.').count() >= 2), "{driver:?}");
    assert_eq!(driver.bound_gpus, Some(1));
    assert_eq!(state.has_module("nvidia"), Some(true));
    assert_eq!(state.kernel_gpus, None);
}

#[test]
fn a_gpu_without_nvml() {
    let tree = Tree::new("h200-static", H200);
    let device = tree.0.join("sys/devices/pci0000:00/0000:00:06.0");
    fs::write(device.join("current_link_width"), "8\n").unwrap();
    fs::write(device.join("current_link_speed"), "2.5 GT/s PCIe\n").unwrap();
    let state = tree.state(no_nvml());
    let [gpu] = &state.kernel_gpus.as_ref().unwrap()[..] else { panic!("{:?}", state.kernel_gpus) };
    assert_eq!((gpu.bus.as_deref(), gpu.name.as_deref()), (Some("0000:00:06.0"), Some("H200")));
    let link = gpu.pcie.unwrap();
    assert_eq!((link.generation, link.width), (Some(1), Some(8)));
    assert_eq!((link.max_generation, link.max_width), (Some(5), Some(16)));
    // In a virtual machine the link is often unknown.
    fs::write(device.join("current_link_width"), "0\n").unwrap();
    fs::write(device.join("current_link_speed"), "Unknown\n").unwrap();
    let link = tree.state(no_nvml()).kernel_gpus.unwrap()[0].pcie.unwrap();
    assert_eq!((link.generation, link.width, link.max_width), (None, None, Some(16)));
    // The kernel module has it, and the bus is hidden.
    fs::remove_dir_all(tree.0.join("sys/bus")).unwrap();
    let hidden = tree.state(no_nvml());
    assert_eq!((hidden.pci.gpus, hidden.kernel_gpus.map(|it| it.len())), (None, Some(1)));
}

#[test]
fn nothing_at_all() {
    let state = Tree::new("nothing", "").state(no_nvml());
    assert_eq!((state.pci.gpus, &state.rdma, &state.interfaces), (None, &None, &None));
    assert!(state.driver.is_some_and(|it| it.problem.is_some()));
    for what in ["PCI bus", "network devices", "kernel modules", "state of the GPUs", "limits"] {
        assert!(state.not_seen.iter().any(|it| it.what == what), "{what}: {:?}", state.not_seen);
    }
}

#[test]
fn this_machine_gives_an_answer_that_is_read_back() {
    let state = super::state("1.2.3");
    assert!(!state.host.is_empty() && state.plumb.as_deref() == Some("1.2.3"));
    assert!(state.limits.open_files.is_some() && state.memory.total_bytes.is_some());
    let text = serde_json::to_vec(&state).unwrap();
    assert_eq!(NodeState::read(&text).unwrap(), state);
}

#[test]
fn lists_and_versions() {
    assert_eq!(count_of_list("0-3,8,10-11"), Some(7));
    for bad in ["", "3-1", "a", "0-99999999999", "1-"] {
        assert_eq!(count_of_list(bad), None, "{bad}");
    }
    let line = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 22:55:41 UTC 2024";
    assert_eq!(module_version(line).as_deref(), Some("535.161.08"));
    assert_eq!(module_version("GCC version:  gcc version 12.3.0"), None);
}

/// Every file of a tree, in order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in crate::sysfs::entries(folder) {
        match fs::symlink_metadata(&path) {
            Ok(it) if it.is_dir() => files(&path, found),
            Ok(it) if it.is_file() => found.push(path),
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_tree_panics(number in any::<prop::sample::Index>(), cut in 0usize..4096, garbage in proptest::collection::vec(any::<u8>(), 0..64), whole in any::<bool>()) {
        let tree = Tree::new("hostile", P5);
        let mut all = Vec::new();
        files(&tree.0, &mut all);
        let victim = &all[number.index(all.len())];
        if whole {
            // A folder where a file should be.
            let _ = fs::remove_file(victim);
            let _ = fs::create_dir_all(victim.join("more"));
        } else {
            let mut text = fs::read(victim).unwrap();
            text.truncate(cut);
            text.extend_from_slice(&garbage);
            fs::write(victim, text).unwrap();
        }
        let state = tree.state(no_nvml());
        prop_assert!(serde_json::to_string(&state).is_ok());
    }
}
