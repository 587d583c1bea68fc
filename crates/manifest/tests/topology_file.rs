//! The topology file, read back: by the reader of the same format, for machines of every shape.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use evidence::topology;
use fabric::machine::{
    Bridge, BusId, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Port, Socket,
};
use fabric::units::GigabitsPerSecond;
use manifest::topology_file::{Detail, with_bus_ids_of, write};
use proptest::prelude::*;

/// Numbers from a seed, so that a machine is one number.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn link(&mut self) -> Option<PciLink> {
        let width = [16, 8, 4][self.below(3)];
        (self.below(5) > 0)
            .then(|| PciLink { gigatransfers: [8.0, 16.0, 32.0, 64.0, 2.5][self.below(5)], width })
    }
}

/// A machine as a topology XML can describe it: devices in the order of the tree, every bridge in use.
fn machine(seed: u64) -> Machine {
    let mut dice = Dice(seed);
    let mut machine = Machine::default();
    let maker = [Maker::Intel, Maker::Amd, Maker::Arm, Maker::Power][dice.below(4)];
    let model = (maker == Maker::Intel || maker == Maker::Amd).then_some((6, 143));
    let affinity = dice.below(4) > 0;
    let mut bus = 0x10_000_u64;
    let mut next_bus = || {
        bus += 0x1000;
        BusId(bus)
    };
    for numa in 0..=u32::try_from(dice.below(4)).unwrap() {
        let cpus = affinity.then(|| format!("{}-{},{}", numa * 40, numa * 40 + 19, 200 + numa).into());
        machine.sockets.push(Socket { numa: Some(numa * 2), cpus, maker, model });
        let socket = Place::Socket(machine.sockets.len() - 1);
        let mut places = vec![];
        if dice.chance() {
            places.push(socket);
        }
        for _ in 0..dice.below(3) {
            machine.bridges.push(Bridge { at: socket, bus: Some(next_bus()), link: dice.link() });
            let outer = Place::Bridge(machine.bridges.len() - 1);
            places.push(outer);
            if dice.chance() {
                machine.bridges.push(Bridge { at: outer, bus: Some(next_bus()), link: dice.link() });
                places.push(Place::Bridge(machine.bridges.len() - 1));
            }
        }
        for at in places {
            for _ in 0..=dice.below(2) {
                machine.gpus.push(Gpu {
                    index: 0,
                    at,
                    bus: Some(next_bus()),
                    link: dice.link(),
                    model: None,
                    compute: Some([70, 80, 90, 100][dice.below(4)]),
                    gpudirect: dice.chance().then_some(true),
                    rank: None,
                    c2c: dice.chance().then_some(223.56),
                });
            }
            let (card, link) = (next_bus(), dice.link());
            let guid = dice.chance().then_some(card.0 << 20);
            for port in 0..dice.below(3) {
                machine.nics.push(Nic {
                    port: guid.map(|guid| Port { guid, number: u32::try_from(port).unwrap() + 1 }),
                    name: format!("mlx5_{}", card.0 + port as u64).into(),
                    index: 0,
                    at,
                    bus: Some(card),
                    link,
                    rate: dice.chance().then_some(GigabitsPerSecond(400.0)),
                    gpudirect: dice.chance().then_some(false),
                    latency: dice.chance().then_some(2.5),
                    kind: NicKind::Unknown,
                });
            }
        }
    }
    let gpus = machine.gpus.len();
    // Numbers that differ from the order of the tree.
    for (at, gpu) in machine.gpus.iter_mut().enumerate() {
        gpu.index = u32::try_from(gpus - 1 - at).unwrap();
    }
    for (at, nic) in machine.nics.iter_mut().enumerate() {
        nic.index = u32::try_from(at).unwrap();
    }
    if gpus > 1 && dice.chance() {
        let switch = dice.chance();
        for from in 0..gpus {
            let to = if switch { NvEnd::Switch } else { NvEnd::Gpu((from + 1) % gpus) };
            machine.nvlinks.push(NvLink { from, to, count: 4 });
        }
    }
    machine
}

fn read(text: &str) -> Machine {
    let mut machine =
        topology::read(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}")).machine;
    machine.unknown.clear();
    machine
}

/// A machine with what is below each device in the order in which the file has it: GPUs, NICs, then switches.
fn sorted(mut machine: Machine) -> Machine {
    machine.name = None;
    machine.nvlinks.sort();
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_machine_comes_back(seed in any::<u64>()) {
        let machine = machine(seed);
        if machine.gpus.is_empty() {
            return Ok(());
        }
        let file = write(&machine, Detail::Everything).unwrap();
        prop_assert!(file.notes.iter().all(|it| it.contains("tags")), "{:?}", file.notes);
        let again = read(&file.text);
        if machine.sockets.iter().any(|it| it.cpus.is_none()) {
            // NICs are left to NCCL, which finds them by bus id.
            prop_assert!(!file.text.contains("<nic"), "{}", file.text);
            let without = |it: Machine| Machine { nics: Vec::new(), ..sorted(it) };
            prop_assert_eq!(without(again), without(reordered(&machine)), "{}", file.text);
            return Ok(());
        }
        // The reader goes down before it goes on, so the order of devices is that of the tree.
        prop_assert_eq!(sorted(again.clone()), sorted(reordered(&machine)), "{}", file.text);
        // What is read and written again is the same text.
        prop_assert_eq!(write(&again, Detail::Everything).unwrap().text, file.text);
    }
}

/// The devices of a machine in the order of a walk through its tree, GPUs and NICs of a place before the switches there.
fn reordered(machine: &Machine) -> Machine {
    fn walk(machine: &Machine, place: Place, out: &mut Machine, new: Place, gpus: &mut Vec<usize>) {
        for (at, gpu) in machine.gpus.iter().enumerate().filter(|it| it.1.at == place) {
            gpus.push(at);
            out.gpus.push(Gpu { at: new, ..gpu.clone() });
        }
        for nic in machine.nics.iter().filter(|it| it.at == place) {
            out.nics.push(Nic { at: new, ..nic.clone() });
        }
        for (at, bridge) in machine.bridges.iter().enumerate().filter(|it| it.1.at == place) {
            out.bridges.push(Bridge { at: new, ..bridge.clone() });
            let inner = Place::Bridge(out.bridges.len() - 1);
            walk(machine, Place::Bridge(at), out, inner, gpus);
        }
    }
    let mut out = Machine::default();
    let mut gpus = Vec::new();
    for at in 0..machine.sockets.len() {
        let used = machine.gpus.iter().map(|it| it.at).chain(machine.nics.iter().map(|it| it.at));
        if !used.into_iter().any(|it| machine.socket_of(it) == Some(at)) {
            continue;
        }
        out.sockets.push(machine.sockets[at].clone());
        let socket = Place::Socket(out.sockets.len() - 1);
        walk(machine, Place::Socket(at), &mut out, socket, &mut gpus);
    }
    let position = |old: usize| gpus.iter().position(|it| *it == old).unwrap();
    out.nvlinks = machine
        .nvlinks
        .iter()
        .map(|it| NvLink {
            from: position(it.from),
            to: match it.to {
                NvEnd::Gpu(to) => NvEnd::Gpu(position(to)),
                other => other,
            },
            count: it.count,
        })
        .collect();
    out
}

#[test]
fn a_tree_says_only_what_the_system_does_not() {
    let p4d = fabric::catalogue::machine("p4d.24xlarge").unwrap();
    let file = write(&p4d, Detail::Tree).unwrap();
    assert_eq!(file.notes, Vec::<String>::new());
    assert!(file.text.starts_with("<system version=\"1\" name=\"p4d.24xlarge\">\n  <cpu numaid=\"0\">\n    <pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed="), "{}", file.text);
    assert_eq!(file.text.matches("class=\"0x030200\"").count(), 8);
    assert_eq!(file.text.matches("class=\"0x020000\"").count(), 4);
    for absent in ["<gpu", "<nic", "<net", "nvlink", "vendor", "affinity"] {
        assert!(!file.text.contains(absent), "{absent}: {}", file.text);
    }
}

#[test]
fn bus_ids_come_from_the_machine_itself() {
    let p5 = fabric::catalogue::machine("p5.48xlarge").unwrap();
    let error = write(&p5, Detail::Tree).unwrap_err();
    assert!(error.starts_with("the PCI bus ids of the GPUs are not known"), "{error}");
    let mut live = Machine { sockets: vec![Socket::default()], ..Machine::default() };
    for index in 0..8_u32 {
        let mut gpu = p5.gpus[0].clone();
        (gpu.index, gpu.bus, gpu.at) = (index, Some(BusId(u64::from(index + 1) << 12)), Place::Socket(0));
        live.gpus.insert(0, gpu);
    }
    let placed = with_bus_ids_of(&p5, &live).unwrap();
    let ids: Vec<u64> = placed.machine.gpus.iter().map(|it| it.bus.unwrap().0 >> 12).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(placed.notes[0].starts_with("This machine shows 0 NICs"), "{:?}", placed.notes);
    for index in 0..33_u64 {
        let mut nic = p5.nics[0].clone();
        (nic.name, nic.bus) = (format!("rdmap{index}").into(), Some(BusId((100 - index) << 12)));
        nic.kind = if index == 32 { NicKind::Ethernet } else { NicKind::Efa };
        live.nics.push(nic);
    }
    let placed = with_bus_ids_of(&p5, &live).unwrap();
    assert_eq!((placed.notes.len(), &*placed.machine.nics[0].name), (0, "rdmap31"));
    let file = write(&placed.machine, Detail::Tree).unwrap();
    assert_eq!(file.text.matches("class=\"0x020000\"").count(), 32);
    live.gpus.pop();
    let error = with_bus_ids_of(&p5, &live).unwrap_err();
    assert_eq!(error, "this machine shows 7 GPUs with a PCI bus id, p5.48xlarge has 8");
}

#[test]
fn what_nccl_cannot_read_is_not_written() {
    let mut p4d = fabric::catalogue::machine("p4d.24xlarge").unwrap();
    p4d.name = Some("a\"b<c>&'\n\u{1b}d".into());
    p4d.nics[0].bus = None;
    let file = write(&p4d, Detail::Tree).unwrap();
    assert!(file.text.starts_with("<system version=\"1\" name=\"abcd\">\n"), "{}", file.text);
    assert!(file.notes[0].contains("rdmap16s27 is not in the file"), "{:?}", file.notes);
    assert!(!file.text.contains('\t') && file.text.is_ascii());
    p4d.gpus[1].bus = p4d.gpus[0].bus;
    assert!(write(&p4d, Detail::Tree).unwrap_err().starts_with("two GPUs have the PCI bus id 0000:10:1c.0"));
    // More tags than NCCL has room for.
    let many = Machine {
        sockets: vec![Socket { numa: Some(0), maker: Maker::Amd, ..Socket::default() }],
        gpus: (0..100_u32)
            .map(|it| Gpu {
                index: it,
                at: Place::Socket(0),
                bus: Some(BusId(u64::from(it) << 12)),
                ..p4d.gpus[0].clone()
            })
            .collect(),
        nvlinks: (0..100).map(|from| NvLink { from, to: NvEnd::Switch, count: 12 }).collect(),
        ..Machine::default()
    };
    for detail in [Detail::Tree, Detail::Everything] {
        assert!(write(&many, detail).unwrap().notes[0].contains("which has room for 256"));
    }
}
