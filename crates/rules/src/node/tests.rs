//! A healthy machine, and one broken in one way.

use std::collections::BTreeSet;

use evidence::node::{
    Aer, AerSeverity, Driver, Ecc, Gpu, Interface, KernelLog, Library, LibraryKind, Limit, LinkWidth, Module,
    NodeState, NvLinks, RdmaPort, RemappedRows, Service, Xid,
};

use super::{Fitness, compare, judge, judge_together};
use crate::{Found, Severity, all};

/// A p5.48xlarge as it should be.
pub(super) fn healthy(host: &str) -> NodeState {
    let gpu = |index: u32| Gpu {
        index,
        bus: Some(format!("0000:{:02x}:00.0", 0x53 + index * 0x11)),
        name: Some("H100 80GB HBM3".to_owned()),
        ecc: Some(Ecc { enabled: Some(true), volatile_uncorrected: Some(0), ..Ecc::default() }),
        remapped_rows: Some(RemappedRows {
            pending: Some(false),
            failed: Some(false),
            ..RemappedRows::default()
        }),
        persistence: Some(true),
        mig: Some(false),
        power_limit_w: Some(700.0),
        power_default_w: Some(700.0),
        sm_max_mhz: Some(1980),
        throttle: Some(vec!["gpu_idle".to_owned()]),
        pcie: Some(LinkWidth {
            generation: Some(1),
            max_generation: Some(5),
            width: Some(16),
            max_width: Some(16),
        }),
        nvlink: Some(NvLinks { up: 18, peers: Some(7), ..NvLinks::default() }),
        ..Gpu::default()
    };
    let port = |number: u32| RdmaPort {
        device: format!("rdmap{number}s0"),
        port: 1,
        kind: "efa".to_owned(),
        state: Some("ACTIVE".to_owned()),
        gbps: Some(100.0),
        peer_memory: Some("NVIDIA".to_owned()),
        ..RdmaPort::default()
    };
    let library = |kind, version: &str| Library {
        kind,
        path: "/opt/lib.so".to_owned(),
        version: Some(version.to_owned()),
        providers: Vec::new(),
    };
    let mut state =
        NodeState { host: host.to_owned(), plumb: Some("0.1.0".to_owned()), ..NodeState::default() };
    state.machine.product = Some("p5.48xlarge".to_owned());
    state.system.kernel = Some("6.1.0".to_owned());
    state.system.virtual_machine = Some(true);
    state.cpu.online = Some(192);
    state.memory.total_bytes = Some(2 << 40);
    state.memory.shm_bytes = Some(1 << 40);
    state.memory.shm_free_bytes = Some(1 << 40);
    state.memory.hugepages = vec![evidence::node::Hugepages { page_bytes: 2 << 20, total: 5128, free: 5128 }];
    let limit = Some(Limit { soft: None, hard: None });
    (state.limits.memlock, state.limits.open_files, state.limits.processes) = (limit, limit, limit);
    state.driver =
        Some(Driver { version: Some("570.133.20".to_owned()), bound_gpus: Some(8), ..Driver::default() });
    state.gpus = Some((0..8).map(gpu).collect());
    state.pci.gpus = Some(8);
    state.pci.bridges = Some(16);
    state.pci.imex_channels = Some(0);
    state.rdma = Some((0..32).map(port).collect());
    state.interfaces = Some(Vec::new());
    state.libraries = vec![library(LibraryKind::Nccl, "2.27.3"), library(LibraryKind::AwsOfiNccl, "1.16.2")];
    state.modules = Some(vec![Module { name: "nvidia".to_owned(), version: None }]);
    state.services = Some(vec![Service { name: "chronyd".to_owned(), pid: 7 }]);
    state.kernel_log = Some(KernelLog::default());
    state
}

fn first(state: &mut NodeState) -> &mut Gpu {
    state.gpus.as_mut().unwrap().first_mut().unwrap()
}

fn said(found: &[Found]) -> Vec<(&'static str, Severity, &str)> {
    found.iter().map(|it| (it.rule.id, it.severity(), &*it.finding.message)).collect()
}

#[test]
fn a_healthy_machine_is_fit() {
    let judged = judge(&healthy("a"));
    assert!(judged.findings.is_empty(), "{:?}", said(&judged.findings));
    assert!(judged.unchecked.is_empty(), "{:?}", judged.unchecked);
    assert_eq!(judged.fitness(), Fitness::Fit);
}

#[test]
fn every_rule_says_when_it_sees_nothing() {
    for rule in all() {
        let nothing = match (rule.node(), rule.nodes()) {
            (Some(check), _) => check(&NodeState::default()),
            (None, Some(check)) => check(&[]),
            (None, None) => continue,
        };
        let missing = nothing.expect_err(rule.id);
        assert!(
            rule.needs.contains(&missing.0),
            "{} asks for {:?}, which `needs` does not list",
            rule.id,
            missing.0
        );
    }
    assert_eq!(judge(&NodeState::default()).fitness(), Fitness::Unknown);
}

/// What is left where NVML does not answer.
fn without_nvml(state: &mut NodeState, problem: &str) {
    state.kernel_gpus = state.gpus.take();
    state.driver = Some(Driver { problem: Some(problem.to_owned()), ..Driver::default() });
}

/// What is broken, the rule that must say so, its severity, and a part of its sentence.
type Case = (fn(&mut NodeState), &'static str, Severity, &'static str);

const CASES: &[Case] = &[
    (
        |it| it.gpus.as_mut().unwrap().pop().map_or((), |_| it.pci.gpus = Some(7)),
        "node-gpu-missing",
        Severity::Error,
        "7 of the 8 GPUs of a p5.48xlarge",
    ),
    (
        |it| it.gpus.as_mut().unwrap().pop().map_or((), |_| it.driver = None),
        "node-gpu-missing",
        Severity::Error,
        "the driver lists 7 GPUs, but 8 are on the PCI bus",
    ),
    (|it| it.machine.expected_gpus = Some(0), "node-gpu-missing", Severity::Error, "should have no GPU"),
    (
        |it| without_nvml(it, "it did not answer within 20 s"),
        "node-driver-not-working",
        Severity::Error,
        "the NVIDIA driver hangs",
    ),
    (
        |it| {
            without_nvml(it, "libnvidia-ml.so.1 is not found");
            let link = &mut it.kernel_gpus.as_mut().unwrap()[0].pcie;
            link.as_mut().unwrap().width = Some(8);
        },
        "node-gpu-pcie-narrow",
        Severity::Warning,
        "GPU0 (0000:53:00.0) has 8 of 16 PCI Express lanes",
    ),
    (|it| it.machine.expected_gpus = Some(4), "node-gpu-missing", Severity::Error, "8 of 4 GPUs"),
    (
        |it| first(it).problem = Some("GPU is lost".to_owned()),
        "node-gpu-missing",
        Severity::Error,
        "GPU0 (0000:53:00.0) does not answer",
    ),
    (
        |it| {
            (it.gpus, it.driver.as_mut().unwrap().problem) =
                (None, Some("driver/library version mismatch".to_owned()));
        },
        "node-driver-not-working",
        Severity::Error,
        "do not match",
    ),
    (
        |it| (it.gpus, it.driver, it.modules) = (None, None, Some(Vec::new())),
        "node-driver-not-working",
        Severity::Error,
        "`nvidia` is not loaded",
    ),
    (
        |it| first(it).ecc.as_mut().unwrap().volatile_uncorrected = Some(3),
        "node-ecc-uncorrected",
        Severity::Error,
        "3 uncorrected memory errors",
    ),
    (
        |it| first(it).remapped_rows.as_mut().unwrap().pending = Some(true),
        "node-ecc-uncorrected",
        Severity::Warning,
        "waits for a reset",
    ),
    (
        |it| first(it).remapped_rows.as_mut().unwrap().failed = Some(true),
        "node-ecc-uncorrected",
        Severity::Error,
        "no spare row",
    ),
    (
        |it| first(it).throttle = Some(vec!["hw_thermal_slowdown".to_owned()]),
        "node-gpu-throttled",
        Severity::Warning,
        "too hot",
    ),
    (
        |it| (first(it).temperature_c, first(it).slowdown_c) = (Some(89), Some(89)),
        "node-gpu-throttled",
        Severity::Warning,
        "GPU0 (0000:53:00.0) (89 °C, slowdown at 89)",
    ),
    (|it| first(it).power_limit_w = Some(500.0), "node-gpu-power-capped", Severity::Warning, "500 of 700 W"),
    (
        |it| first(it).pcie.as_mut().unwrap().width = Some(8),
        "node-gpu-pcie-narrow",
        Severity::Warning,
        "8 of 16",
    ),
    (|it| first(it).nvlink.as_mut().unwrap().up = 17, "node-nvlink-down", Severity::Error, "(17 of 18)"),
    (
        |it| first(it).nvlink.as_mut().unwrap().peers = Some(0),
        "node-nvlink-down",
        Severity::Error,
        "0 of 7 other GPUs",
    ),
    (|it| first(it).mig = Some(true), "node-mig-on", Severity::Warning, "MIG is on"),
    (
        |it| it.machine.named = Some("p6e-gb200.36xlarge".to_owned()),
        "node-imex-off",
        Severity::Error,
        "nvidia-imex does not run",
    ),
    (
        |it| drop(it.rdma.as_mut().unwrap().pop()),
        "node-rdma-device-missing",
        Severity::Error,
        "31 of the 32 EFA devices",
    ),
    (
        |it| it.rdma.as_mut().unwrap()[3].gbps = Some(50.0),
        "node-rdma-rate-low",
        Severity::Warning,
        "rdmap3s0 runs at 50 Gbit/s, the other 31 ports 100",
    ),
    (
        |it| it.rdma.as_mut().unwrap()[3].errors.insert("rx_drops".to_owned(), 5).map_or((), |_| ()),
        "node-port-errors",
        Severity::Info,
        "rx_drops 5",
    ),
    (
        |it| it.rdma.as_mut().unwrap()[0].peer_memory = Some("none".to_owned()),
        "node-gdr-module-missing",
        Severity::Warning,
        "no NVIDIA peer memory",
    ),
    (|it| drop(it.libraries.pop()), "node-plugin-missing", Severity::Warning, "aws-ofi-nccl is in none"),
    (
        |it| it.limits.memlock.as_mut().unwrap().soft = Some(8 << 20),
        "node-memlock-low",
        Severity::Error,
        "memlock is 8 MiB",
    ),
    (|it| it.memory.shm_bytes = Some(64 << 20), "node-shm-small", Severity::Error, "/dev/shm has 64 MiB"),
    (|it| it.memory.shm_free_bytes = Some(0), "node-shm-small", Severity::Warning, "/dev/shm is full"),
    (
        |it| it.limits.open_files.as_mut().unwrap().hard = Some(1024),
        "node-limits-low",
        Severity::Warning,
        "at most 1024 open files",
    ),
    (|it| it.cpu.cgroup.cpus = Some(2.0), "node-limits-low", Severity::Warning, "2.0 of 192 CPUs"),
    (
        |it| (it.system.virtual_machine, it.pci.acs) = (Some(false), Some(vec!["0000:10:00.0".to_owned()])),
        "node-pci-redirected",
        Severity::Warning,
        "1 of 16 bridges",
    ),
    (
        |it| {
            it.kernel_log.as_mut().unwrap().xids.push(Xid {
                code: 79,
                gpu: "0000:53:00".to_owned(),
                count: 2,
                ..Xid::default()
            });
        },
        "node-xid",
        Severity::Error,
        "Xid 79: the GPU has fallen off the bus, 2 times",
    ),
    (
        |it| it.kernel_log.as_mut().unwrap().xids.push(Xid { code: 31, count: 1, ..Xid::default() }),
        "node-xid",
        Severity::Info,
        "Xid 31",
    ),
    (
        |it| {
            it.kernel_log.as_mut().unwrap().aer.push(Aer {
                severity: AerSeverity::Fatal,
                count: 1,
                ..Aer::default()
            });
        },
        "node-pcie-errors",
        Severity::Error,
        "fatal",
    ),
    (
        |it| it.kernel_log.as_mut().unwrap().aer.push(Aer { count: 4000, ..Aer::default() }),
        "node-pcie-errors",
        Severity::Warning,
        "repeated packets",
    ),
    (
        |it| first(it).persistence = Some(false),
        "node-untuned",
        Severity::Info,
        "persistence is off on 1 of 8",
    ),
];

#[test]
fn one_fault_gives_one_finding_of_its_rule() {
    for (fault, id, severity, part) in CASES {
        let mut state = healthy("a");
        fault(&mut state);
        let judged = judge(&state);
        let found = said(&judged.findings);
        assert!(
            found.iter().any(|it| it.0 == *id && it.1 == *severity && it.2.contains(part)),
            "{id}: {found:?}"
        );
        // A machine that is named as another one has many faults.
        if state.machine.named.is_none() {
            assert_eq!(found.len(), 1, "{id}: {found:?}");
        }
    }
    let covered: BTreeSet<&str> = CASES.iter().map(|it| it.1).collect();
    let all: BTreeSet<&str> = all().iter().filter(|it| it.node().is_some()).map(|it| it.id).collect();
    assert_eq!(covered, all, "every rule has a case");
}

#[test]
fn a_gpu_below_its_own_limit_is_not_hot() {
    let mut state = healthy("a");
    for (now, limit) in [(Some(88), Some(89)), (Some(95), None), (None, Some(89)), (Some(95), Some(0))] {
        (first(&mut state).temperature_c, first(&mut state).slowdown_c) = (now, limit);
        assert_eq!(judge(&state).fitness(), Fitness::Fit, "{now:?} {limit:?}");
    }
}

#[test]
fn a_container_with_some_devices_is_not_broken() {
    let mut state = healthy("pod");
    state.system.container = Some("kubernetes".to_owned());
    state.gpus.as_mut().unwrap().truncate(1);
    state.rdma.as_mut().unwrap().truncate(4);
    state.limits.memlock = Some(Limit { soft: Some(8 << 20), hard: Some(8 << 20) });
    state.limits.ipc_lock = Some(true);
    state.cpu.cgroup = evidence::node::Cgroup { cpus: Some(24.0), memory_bytes: Some(256 << 30) };
    let judged = judge(&state);
    assert!(
        !judged.findings.iter().any(|it| it.rule.id == "node-limits-low"),
        "{:?}",
        said(&judged.findings)
    );
    assert!(judged.findings.iter().all(|it| it.severity() < Severity::Error), "{:?}", said(&judged.findings));
}

#[test]
fn a_machine_without_gpus_is_fit_only_where_it_should_have_none() {
    let mut state = healthy("host");
    (state.gpus, state.driver, state.rdma) = (None, None, Some(Vec::new()));
    state.pci.gpus = Some(0);
    // Its firmware names a machine with eight.
    assert_eq!(judge(&state).fitness(), Fitness::NotFit);
    state.machine.product = None;
    let judged = judge(&state);
    assert_eq!(judged.fitness(), Fitness::Unknown, "{:?} {:?}", said(&judged.findings), judged.unchecked);
    assert!(judged.expects_nothing());
    // A driver that lists none changes nothing.
    state.gpus = Some(Vec::new());
    assert!(judge(&state).expects_nothing());
    state.machine.expected_gpus = Some(0);
    for gpus in [None, Some(Vec::new())] {
        state.gpus = gpus;
        let judged = judge(&state);
        assert_eq!(judged.fitness(), Fitness::Fit, "{:?} {:?}", said(&judged.findings), judged.unchecked);
    }
    state.machine.expected_gpus = Some(8);
    assert_eq!(judge(&state).fitness(), Fitness::NotFit);
    (state.gpus, state.machine.expected_gpus) = (None, None);
    // With GPUs on the bus and a driver that cannot be asked, nothing is decided.
    state.pci.gpus = Some(8);
    state.driver =
        Some(Driver { problem: Some("its library is not installed".to_owned()), ..Driver::default() });
    assert_eq!(judge(&state).fitness(), Fitness::Unknown);
}

#[test]
fn the_odd_ones_are_named_with_both_values() {
    let mut fleet: Vec<NodeState> = (0..16).map(|it| healthy(&format!("node{it:02}"))).collect();
    assert!(compare(&fleet).is_empty(), "{:?}", compare(&fleet));
    drop(fleet[3].gpus.as_mut().unwrap().pop());
    fleet[5].driver.as_mut().unwrap().version = Some("560.35.03".to_owned());
    fleet[7].memory.shm_bytes = Some(64 << 20);
    fleet[8].limits.memlock.as_mut().unwrap().soft = Some(64 << 10);
    fleet[9].libraries[0].version = Some("2.21.5".to_owned());
    fleet[10].plumb = Some("0.0.9".to_owned());
    // A little less memory is not another machine, more of it harms nobody.
    fleet[11].memory.total_bytes = Some((2 << 40) - (8 << 30));
    fleet[12].memory.shm_bytes = Some(2 << 40);
    let found = judge_together(&fleet);
    assert_eq!(
        said(&found),
        [
            ("nodes-differ-hardware", Severity::Error, "GPUs: 7 on node03; 8 on the other 15 nodes"),
            (
                "nodes-differ-limits",
                Severity::Error,
                "/dev/shm: 64 MiB on node07; 1 TiB on the other 14 nodes"
            ),
            (
                "nodes-differ-limits",
                Severity::Error,
                "memlock: 64 KiB on node08; unlimited on the other 15 nodes"
            ),
            (
                "nodes-differ-software",
                Severity::Error,
                "NCCL: 2.21.5 on node09; 2.27.3 on the other 15 nodes"
            ),
            (
                "nodes-differ-software",
                Severity::Warning,
                "driver: 560.35.03 on node05; 570.133.20 on the other 15 nodes"
            ),
            (
                "nodes-differ-software",
                Severity::Warning,
                "plumb: 0.0.9 on node10; 0.1.0 on the other 15 nodes"
            ),
        ]
    );
    assert_eq!(found[0].finding.entities[0].name, "node03");
}

/// Nodes of which the last ones lack a GPU.
fn with_short(all: usize, short: usize) -> Vec<NodeState> {
    let mut fleet: Vec<NodeState> = (0..all).map(|it| healthy(&format!("node{it}"))).collect();
    for state in &mut fleet[all - short..] {
        drop(state.gpus.as_mut().unwrap().pop());
        state.pci.gpus = Some(7);
    }
    fleet
}

fn sentences(fleet: &[NodeState]) -> Vec<(Severity, String)> {
    compare(fleet).iter().map(|it| (it.severity, it.sentence())).collect()
}

#[test]
fn a_node_that_is_as_it_should_be_is_not_odd() {
    let wanted = |it: &str| vec![(Severity::Error, it.to_owned())];
    let many = "GPUs: 7 on node3, node4, node5, node6 and node7; 8 on the other 3 nodes";
    let mut fleet = with_short(8, 5);
    assert_eq!(sentences(&fleet), wanted(many));
    // The user says it where the firmware does not.
    for it in &mut fleet {
        it.machine.product = None;
    }
    assert!(sentences(&fleet)[0].1.ends_with("7 on the other 5 nodes"), "by majority");
    for it in &mut fleet {
        it.machine.expected_gpus = Some(8);
    }
    assert_eq!(sentences(&fleet), wanted(many));
    assert_eq!(sentences(&with_short(2, 1)), wanted("GPUs: 7 on node1; 8 on node0"));
    // Where none is as it should be, the majority stays the measure.
    assert_eq!(sentences(&with_short(2, 2)), []);
    // What should be there is known of links and network devices, too.
    let mut fleet = [healthy("a"), healthy("b")];
    first(&mut fleet[1]).nvlink.as_mut().unwrap().up = 17;
    assert_eq!(sentences(&fleet), wanted("NVLinks up per GPU: 17 on b; 18 on a"));
    let mut fleet = [healthy("a"), healthy("b")];
    fleet[1].rdma.as_mut().unwrap()[3].state = Some("DOWN".to_owned());
    assert_eq!(sentences(&fleet), wanted("active RDMA ports: 31 (rdmap3s0 down) on b; 32 on a"));
}

#[test]
fn less_memory_of_gpus_is_named() {
    let fleet = |model: &str, sizes: &[u64]| -> Vec<NodeState> {
        let one = |(at, mib): (usize, &u64)| {
            let mut state = healthy(&format!("node{at}"));
            for gpu in state.gpus.as_mut().unwrap() {
                (gpu.name, gpu.memory_bytes) = (Some(model.to_owned()), Some(mib << 20));
            }
            state
        };
        sizes.iter().enumerate().map(one).collect()
    };
    // Drivers reserve a little more or less.
    assert_eq!(sentences(&fleet("H100 80GB HBM3", &[81_559, 81_559, 80_900])), []);
    for model in ["H100 80GB HBM3", "A100-SXM4-80GB", "H200", "a new one"] {
        let found = sentences(&fleet(model, &[81_920, 81_920, 40_960]));
        let memory = "memory of GPUs: 40 GiB on node2; 80 GiB on the other 2 nodes";
        assert!(found.contains(&(Severity::Error, memory.to_owned())), "{model}: {found:?}");
    }
    // Each as its name says: another model, but nothing is broken.
    let mut mixed = fleet("A100-SXM4-80GB", &[81_920, 81_920, 40_960]);
    for gpu in mixed[2].gpus.as_mut().unwrap() {
        gpu.name = Some("A100-SXM4-40GB".to_owned());
    }
    assert!(sentences(&mixed).iter().all(|it| it.0 == Severity::Warning), "{:?}", sentences(&mixed));
}

/// Nodes with two Ethernet ports, of which the second is up, down or missing.
fn with_ports(second: &[&str]) -> Vec<NodeState> {
    let port = |name: &str, state: &str| Interface {
        name: name.to_owned(),
        physical: true,
        state: Some(state.to_owned()),
        ..Interface::default()
    };
    let one = |(at, second): (usize, &&str)| {
        let mut state = healthy(&format!("node{at}"));
        let mut ports = vec![port("eth0", "up"), port("eth1", second)];
        ports.retain(|it| it.state.as_deref() != Some("missing"));
        state.interfaces = Some(ports);
        state
    };
    second.iter().enumerate().map(one).collect()
}

#[test]
fn ports_that_are_down_on_some_nodes_are_named() {
    let wanted = |it: &str| vec![(Severity::Warning, it.to_owned())];
    assert_eq!(sentences(&with_ports(&["up", "up"])), []);
    assert_eq!(sentences(&with_ports(&["down", "down"])), [], "an unused port");
    let one = "physical interfaces down: 1 (eth1) on node1; 0 on the other 2 nodes";
    assert_eq!(sentences(&with_ports(&["up", "down", "up"])), wanted(one));
    let most = "physical interfaces down: 1 (eth1) on node0 and node1; 0 on node2";
    assert_eq!(sentences(&with_ports(&["down", "down", "up"])), wanted(most));
    let mut fleet = with_ports(&["up", "missing", "up"]);
    let lost = "physical interfaces: 1 on node1; 2 on the other 2 nodes";
    assert_eq!(sentences(&fleet), wanted(lost));
    for state in &mut fleet {
        state.machine.vendor = Some("Amazon EC2".to_owned());
    }
    assert_eq!(sentences(&fleet), [], "interfaces of containers");
}

#[test]
fn machines_of_several_types_are_each_as_they_should_be() {
    let mut fleet = with_short(4, 1);
    fleet[0].machine.product = Some("g5.xlarge".to_owned());
    (fleet[0].pci.gpus, fleet[0].rdma) = (Some(1), None);
    fleet[0].gpus.as_mut().unwrap().truncate(1);
    let gpus: Vec<_> = sentences(&fleet).into_iter().filter(|it| it.1.starts_with("GPUs: ")).collect();
    assert_eq!(
        gpus,
        [
            (Severity::Error, "GPUs: 7 on node3; 8 or 1 on the other 3 nodes".to_owned()),
            (Severity::Warning, "GPUs: 1 on node0; 8 on the other 2 nodes".to_owned()),
        ]
    );
}

#[test]
fn two_nodes_that_differ_have_no_majority() {
    let mut fleet = vec![healthy("a"), healthy("b")];
    fleet[1].system.kernel = Some("5.15.0".to_owned());
    let odd = compare(&fleet);
    assert_eq!(odd[0].sentence(), "kernel: 6.1.0 on a; 5.15.0 on b; no value has a majority");
    assert!(odd[0].usual.is_none());
}

#[test]
fn counters_that_grow_are_named() {
    let (before, mut after) = (healthy("a"), healthy("a"));
    after.rdma.as_mut().unwrap()[2].errors.insert("rx_drops".to_owned(), 40);
    let found = judge_together(&[before, after]);
    assert_eq!(
        said(&found),
        [(
            "node-errors-grew",
            Severity::Warning,
            "counters of errors grew on a: rdmap2s0 rx_drops from 0 to 40"
        )]
    );
}
