//! Machines with wiring that the recordings do not have.

mod common;

use common::oracle_machine;
use fabric::machine::{Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
use fabric::units::GigabitsPerSecond;
use fabric::{P2pKind, Transport, Version};
use nccl::{Decisions, GpuDirect, Layout, PathType, Paths, Reason, Settings};

fn gpu(index: u32, at: Place, generation: u8, compute: u32) -> Gpu {
    Gpu {
        index,
        at,
        bus: None,
        link: PciLink::generation(generation),
        model: None,
        compute: Some(compute),
        gpudirect: Some(true),
        rank: None,
        c2c: None,
    }
}

fn nic(index: u32, at: Place, rate: f64) -> Nic {
    Nic {
        name: format!("mlx5_{index}").into(),
        index,
        at,
        bus: None,
        link: PciLink::generation(5),
        rate: Some(GigabitsPerSecond(rate)),
        gpudirect: Some(true),
        latency: None,
        port: None,
        kind: NicKind::InfiniBand,
    }
}

/// Eight V100 in a hybrid cube mesh: each has NVLink to four others.
fn cube_mesh() -> Machine {
    let pairs = [
        (0, 1, 1),
        (0, 2, 1),
        (0, 3, 2),
        (0, 4, 2),
        (1, 2, 2),
        (1, 3, 1),
        (1, 5, 2),
        (2, 3, 2),
        (2, 6, 1),
        (3, 7, 1),
        (4, 5, 1),
        (4, 6, 1),
        (4, 7, 2),
        (5, 6, 2),
        (5, 7, 1),
        (6, 7, 2),
    ];
    let both = |&(one, other, count): &(usize, usize, u32)| {
        [(one, other), (other, one)].map(|(from, to)| NvLink { from, to: NvEnd::Gpu(to), count })
    };
    Machine {
        sockets: vec![Socket { maker: Maker::Intel, model: Some((6, 0x4f)), ..Socket::default() }; 2],
        gpus: (0..8).map(|it| gpu(it, Place::Socket(usize::from(it > 3)), 3, 70)).collect(),
        nvlinks: pairs.iter().flat_map(both).collect(),
        ..Machine::default()
    }
}

/// One tray of GB200: two Grace, each with two GPUs by chip-to-chip link and two NICs.
fn tray() -> Machine {
    let socket = |it: u32| Place::Socket(usize::from(it > 1));
    Machine {
        sockets: vec![Socket { maker: Maker::Arm, ..Socket::default() }; 2],
        gpus: (0..4).map(|it| Gpu { c2c: Some(300.0), ..gpu(it, socket(it), 5, 100) }).collect(),
        nics: (0..4).map(|it| nic(it, socket(it), 400.0)).collect(),
        nvlinks: (0..4).map(|from| NvLink { from, to: NvEnd::Switch, count: 18 }).collect(),
        ..Machine::default()
    }
}

#[test]
fn nvlink_through_another_gpu() {
    for version in [Version::new(2, 27, 3), Version::new(2, 30, 7)] {
        let settings = Settings::new(version);
        let paths = Paths::new(&cube_mesh(), &settings).expect("a small machine");
        assert_eq!(paths.gpu_to_gpu(0, 4).kind, PathType::Nvl);
        assert_eq!((paths.gpu_to_gpu(0, 5).kind, paths.middle(0, 4)), (PathType::Nvb, None));
        // GPU 0 and 5 have GPU 1 and 4 in common.
        assert!(matches!(paths.middle(0, 5), Some(1 | 4)));
        let job = Decisions::new(&cube_mesh(), &settings, &Layout::new(1, 8)).expect("a job that fits");
        let decision = job.transport(0, 5).expect("two ranks");
        assert_eq!(decision.transport, Some(Transport::P2p { kind: P2pKind::Indirect, read: false }));
        assert!(matches!(decision.reason, Reason::ThroughGpu { .. }));
        let without =
            Paths::new(&cube_mesh(), &settings.with("NCCL_NVB_DISABLE", "1")).expect("a small machine");
        assert_eq!(without.gpu_to_gpu(0, 5).kind, PathType::Sys);
    }
}

#[test]
fn the_chip_to_chip_link_has_had_three_names() {
    for (version, to_cpu, to_nic, direct) in [
        (Version::new(2, 25, 1), PathType::Nvl, PathType::Phb, false),
        (Version::new(2, 26, 2), PathType::C2c, PathType::Phb, false),
        (Version::new(2, 27, 3), PathType::C2c, PathType::P2c, true),
        (Version::new(2, 28, 9), PathType::C2c, PathType::P2c, true),
        (Version::new(2, 30, 7), PathType::C2c, PathType::P2c, true),
    ] {
        let paths = Paths::new(&tray(), &Settings::new(version)).expect("a small machine");
        assert_eq!(paths.gpu_to_socket(0, 0).kind, to_cpu, "{version}");
        assert_eq!(paths.nic_wires(0, 0).kind, to_nic, "{version}");
        assert_eq!(paths.gpudirect(0, 0, true) == GpuDirect::On, direct, "{version}");
    }
    let off = Settings::default().with("NCCL_NET_GDR_C2C", "0");
    let paths = Paths::new(&tray(), &off).expect("a small machine");
    assert!(matches!(paths.gpudirect(0, 0, true), GpuDirect::TooFar { path: PathType::P2c, .. }));
}

/// Since 2.30 a GPU and its board are two nodes: a hop more at each end that is a GPU.
#[test]
fn hops_grow_with_2_30() {
    let machine = oracle_machine("p5");
    let hops = |version| {
        let paths = Paths::new(&machine, &Settings::new(version)).expect("a small machine");
        [paths.gpu_to_gpu(0, 1).hops, paths.nic_wires(0, 0).hops, paths.gpu_to_socket(0, 0).hops]
    };
    assert_eq!(hops(Version::new(2, 28, 9)), [2, 3, 2]);
    assert_eq!(hops(Version::new(2, 30, 7)), [4, 4, 3]);
}

#[test]
fn nics_next_to_gpus() {
    let near = |name, gpu| {
        let machine = oracle_machine(name);
        let settings = Settings::new(Version::new(2, 28, 9)).with("NCCL_NET", "Libfabric");
        Paths::new(&machine, &settings).expect("a small machine").near_nics(gpu).expect("a NIC")
    };
    let p4d = near("p4d", 3);
    assert_eq!((p4d.nics, p4d.shared_by, p4d.path.kind), (vec![1], 2, PathType::Pix));
    assert!((p4d.share - 6.0).abs() < 1e-9 && p4d.sending.is_on());
    let p5 = near("p5", 3);
    assert_eq!((p5.nics, p5.shared_by), (vec![3], 1));
    assert!((p5.share - 48.0).abs() < 1e-9);
    let g6e = near("g6e12", 3);
    assert_eq!((g6e.nics, g6e.shared_by, g6e.path.kind), (vec![0], 4, PathType::Phb));
    assert_eq!(g6e.sending, GpuDirect::NicCannot);
    let dgx = near("dgxh100", 2);
    assert_eq!((dgx.nics, dgx.shared_by), (vec![2, 3], 2));
    assert!((dgx.share - 48.0).abs() < 1e-9);
}

/// Two NICs at one switch with two GPUs: each GPU gets its own.
#[test]
fn neighbours_take_different_nics() {
    let paths = Paths::new(&oracle_machine("dgxh100"), &Settings::default()).expect("a small machine");
    let taken: Vec<_> = (0..8).map(|it| paths.nic_for_channel(it, 0)).collect();
    assert_eq!(taken, (0..8).map(Some).collect::<Vec<_>>());
}
