//! What must hold on any machine, however strange.

use fabric::Version;
use fabric::machine::{Bridge, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
use fabric::units::GigabitsPerSecond;
use nccl::{Decisions, Layout, PathType, Paths, Settings};
use proptest::collection::vec;
use proptest::prelude::*;

fn maker() -> impl Strategy<Value = Maker> {
    prop_oneof![Just(Maker::Intel), Just(Maker::Amd), Just(Maker::Arm), Just(Maker::Unknown)]
}

fn link() -> impl Strategy<Value = Option<PciLink>> {
    prop_oneof![
        Just(None),
        (3_u8..7, prop_oneof![Just(8), Just(16)])
            .prop_map(|(it, width)| PciLink::generation(it).map(|it| PciLink { width, ..it }))
    ]
}

/// A place that exists, for what comes after this many bridges.
fn place(sockets: usize, bridges: usize) -> impl Strategy<Value = Place> {
    (0..sockets + bridges)
        .prop_map(move |it| if it < sockets { Place::Socket(it) } else { Place::Bridge(it - sockets) })
}

/// Any place, also one that does not exist.
fn any_place() -> impl Strategy<Value = Place> {
    prop_oneof![(0_usize..9).prop_map(Place::Socket), (0_usize..9).prop_map(Place::Bridge)]
}

fn gpu(at: Place, index: u32, link: Option<PciLink>, compute: Option<u32>) -> Gpu {
    Gpu { index, at, bus: None, link, model: None, compute, gpudirect: None, rank: None, c2c: None }
}

fn nic(at: Place, index: u32, link: Option<PciLink>, rate: f64, gpudirect: Option<bool>) -> Nic {
    Nic {
        name: format!("nic{index}").into(),
        index,
        at,
        bus: None,
        link,
        rate: Some(GigabitsPerSecond(rate)),
        gpudirect,
        latency: None,
        port: None,
        kind: NicKind::InfiniBand,
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let versions = prop_oneof![
        Just((17, 1)),
        Just((19, 3)),
        Just((22, 3)),
        Just((26, 2)),
        Just((27, 3)),
        Just((28, 9)),
        Just((30, 3)),
        Just((30, 7))
    ];
    versions.prop_map(|(minor, patch)| Settings::new(Version::new(2, minor, patch)))
}

/// A machine as it could be: a tree, and a switch or pairs of GPUs with the same link both ways.
fn sound_machine() -> impl Strategy<Value = Machine> {
    let sizes = (1_usize..3, 0_usize..5, 1_usize..7, 0_usize..4);
    sizes.prop_flat_map(|(sockets, bridges, gpus, nics)| {
        let bridges = (0..bridges).map(|it| (place(sockets, it), link())).collect::<Vec<_>>();
        let below = || place(sockets, bridges.len());
        (
            maker(),
            Just(sockets),
            vec((below(), link()), gpus),
            vec((below(), link(), 1_u32..9, proptest::option::of(any::<bool>())), nics),
            any::<bool>(),
            vec((0..gpus, 0..gpus, 1_u32..5), 0..6),
            bridges,
        )
            .prop_map(|(maker, sockets, gpus, nics, switch, pairs, bridges)| {
                let mut machine = Machine {
                    sockets: vec![Socket { maker, ..Socket::default() }; sockets],
                    bridges: bridges.into_iter().map(|(at, link)| Bridge { at, bus: None, link }).collect(),
                    ..Machine::default()
                };
                machine.gpus =
                    (0..).zip(gpus).map(|(index, (at, link))| gpu(at, index, link, Some(80))).collect();
                machine.nics = (0..)
                    .zip(nics)
                    .map(|(index, (at, link, rate, direct))| {
                        nic(at, index, link, f64::from(rate) * 50.0, direct)
                    })
                    .collect();
                if switch {
                    machine.nvlinks = (0..machine.gpus.len())
                        .map(|from| NvLink { from, to: NvEnd::Switch, count: 12 })
                        .collect();
                } else {
                    for (one, other, count) in pairs {
                        machine.join(one, other, count);
                    }
                }
                machine
            })
    })
}

trait Join {
    fn join(&mut self, one: usize, other: usize, count: u32);
}

impl Join for Machine {
    fn join(&mut self, one: usize, other: usize, count: u32) {
        if one != other {
            self.nvlinks.push(NvLink { from: one, to: NvEnd::Gpu(other), count });
            self.nvlinks.push(NvLink { from: other, to: NvEnd::Gpu(one), count });
        }
    }
}

/// A machine that cannot be: circles, places that do not exist, numbers without sense.
fn hostile_machine() -> impl Strategy<Value = Machine> {
    let ends = prop_oneof![
        Just(NvEnd::Switch),
        (0_usize..9).prop_map(NvEnd::Gpu),
        (0_usize..9).prop_map(NvEnd::Socket)
    ];
    let rates = prop_oneof![Just(0.0), Just(-1.0), Just(f64::NAN), Just(f64::INFINITY), Just(100.0)];
    let links = (rates.clone(), any::<u32>())
        .prop_map(|(gigatransfers, width)| Some(PciLink { gigatransfers, width }));
    (
        0_usize..4,
        vec((any_place(), links.clone()), 0..6),
        vec(
            (
                any_place(),
                any::<u32>(),
                links.clone(),
                any::<Option<u32>>(),
                proptest::option::of(rates.clone()),
            ),
            0..8,
        ),
        vec((any_place(), any::<u32>(), links, rates, any::<Option<bool>>()), 0..6),
        vec((0_usize..9, ends, any::<u32>()), 0..12),
    )
        .prop_map(|(sockets, bridges, gpus, nics, nvlinks)| Machine {
            sockets: vec![Socket::default(); sockets],
            bridges: bridges.into_iter().map(|(at, link)| Bridge { at, bus: None, link }).collect(),
            gpus: gpus
                .into_iter()
                .map(|(at, index, link, compute, c2c)| Gpu { c2c, ..gpu(at, index, link, compute) })
                .collect(),
            nics: nics
                .into_iter()
                .map(|(at, index, link, rate, direct)| nic(at, index, link, rate, direct))
                .collect(),
            nvlinks: nvlinks.into_iter().map(|(from, to, count)| NvLink { from, to, count }).collect(),
            ..Machine::default()
        })
}

proptest! {
    #[test]
    fn a_way_and_the_way_back_are_of_one_type(machine in sound_machine(), settings in settings()) {
        let paths = Paths::new(&machine, &settings).expect("a small machine");
        for one in 0..machine.gpus.len() {
            for other in 0..machine.gpus.len() {
                let (there, back) = (paths.gpu_wires(one, other), paths.gpu_wires(other, one));
                prop_assert_eq!(there.kind, back.kind);
                prop_assert!((there.bandwidth - back.bandwidth).abs() < 1e-9);
                prop_assert_eq!(there.kind == PathType::Loc, one == other);
            }
        }
    }

    #[test]
    fn no_way_is_faster_than_its_ends(machine in sound_machine(), settings in settings()) {
        let paths = Paths::new(&machine, &settings).expect("a small machine");
        for gpu in 0..machine.gpus.len() {
            for (place, nic) in machine.nics.iter().enumerate() {
                let limit = fabric::link::nic(nic.rate);
                prop_assert!(paths.gpu_to_nic(gpu, place).bandwidth <= limit + 1e-9);
                prop_assert!(paths.nic_to_gpu(place, gpu).bandwidth <= limit + 1e-9);
            }
            for other in (0..machine.gpus.len()).filter(|it| *it != gpu) {
                let pci = machine.gpus[gpu].link.map_or(12.0, fabric::link::pci);
                let nvlink: u32 = machine.nvlinks.iter().filter(|it| it.from == gpu).map(|it| it.count).sum();
                let nvlink = f64::from(nvlink) * fabric::link::nvlink(80, settings.version);
                prop_assert!(paths.gpu_to_gpu(gpu, other).bandwidth <= pci.max(nvlink) + 1e-9);
            }
        }
    }

    #[test]
    fn one_more_nvlink_takes_nobody_farther_apart(
        machine in sound_machine(), settings in settings(), one in 0_usize..7, other in 0_usize..7,
    ) {
        let (one, other) = (one % machine.gpus.len(), other % machine.gpus.len());
        let before = Paths::new(&machine, &settings).expect("a small machine");
        let mut machine = machine;
        machine.join(one, other, 4);
        let after = Paths::new(&machine, &settings).expect("a small machine");
        let (was, is) = (before.gpu_wires(one, other).kind, after.gpu_wires(one, other).kind);
        prop_assert!(is.within(was, settings.version), "{was} -> {is}");
    }

    #[test]
    fn any_machine_has_an_answer(
        machine in hostile_machine(), settings in settings(),
        pods in 0_u32..4, gpus in 0_u32..5, nics in proptest::option::of(0_u32..3), same in any::<bool>(),
        level in proptest::option::of("[A-Z0-9]{0,3}"),
    ) {
        let settings = match level {
            Some(it) => settings.with("NCCL_P2P_LEVEL", &it).with("NCCL_NET_GDR_LEVEL", &it),
            None => settings,
        };
        let layout = Layout { nics_per_pod: nics, same_host: same, shared_memory: same, ..Layout::new(pods, gpus).on(2) };
        if let Ok(job) = Decisions::new(&machine, &settings, &layout) {
            for one in 0..=job.layout().ranks() {
                for other in 0..=job.layout().ranks() {
                    let decision = job.transport(one, other);
                    prop_assert_eq!(
                        decision.is_some(),
                        one != other && one.max(other) < job.layout().ranks()
                    );
                    if let Some(decision) = decision {
                        prop_assert!(!decision.reason.to_string().is_empty());
                    }
                }
            }
            for loss in job.losses() {
                prop_assert!(!loss.to_string().is_empty() && !loss.factor().is_nan());
            }
        }
        let paths = Paths::new(&machine, &settings).expect("a small machine");
        for gpu in 0..10 {
            let _ = paths.near_nics(gpu);
            let _ = paths.nic_for_channel(gpu, usize::MAX);
            for other in 0..10 {
                prop_assert!(paths.gpu_to_gpu(gpu, other).bandwidth >= 0.0);
                prop_assert!(paths.gpu_to_nic(gpu, other).bandwidth >= 0.0);
            }
        }
    }
}

#[test]
fn a_machine_of_ten_thousand_gpus_is_refused() {
    let one = gpu(Place::Socket(0), 0, None, None);
    let machine = Machine { gpus: vec![one; 10_000], ..Machine::default() };
    let error = Paths::new(&machine, &Settings::default()).expect_err("too large");
    assert_eq!(error.to_string(), "a machine with 10000 GPUs and NICs: at most 384 are possible");
    let layout = Layout::whole(&machine);
    assert!(Decisions::new(&machine, &Settings::default(), &layout).is_err());
}

/// The largest machine there can be, everything at one switch and without GPUDirect.
#[test]
fn the_largest_machine_takes_seconds_at_most() {
    let half = u32::try_from(Paths::DEVICES / 2).expect("few");
    let link = PciLink::generation(5);
    let machine = Machine {
        sockets: vec![Socket::default(); Paths::SOCKETS],
        bridges: vec![Bridge { at: Place::Socket(0), bus: None, link }],
        gpus: (0..half).map(|it| gpu(Place::Bridge(0), it, link, Some(90))).collect(),
        nics: (0..half).map(|it| nic(Place::Bridge(0), it, link, 400.0, Some(false))).collect(),
        ..Machine::default()
    };
    let job = Decisions::new(&machine, &Settings::default(), &Layout::whole(&machine))
        .expect("a machine at the limit");
    assert!(job.losses().len() < 10);
}
