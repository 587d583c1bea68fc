//! What must hold for rings and trees on any machine.

use std::time::{Duration, Instant};

use fabric::Version;
use fabric::machine::{Bridge, Gpu, Machine, Maker, Nic, NicKind, NvEnd, NvLink, PciLink, Place, Socket};
use fabric::units::GigabitsPerSecond;
use nccl::{Abilities, Communicator, Decisions, Layout, Placement, RankPlace, Settings, Undecidable};
use proptest::prelude::*;

/// How the GPUs are joined by NVLink.
#[derive(Debug, Clone, Copy)]
enum Joined {
    No,
    Switch,
    Pairs,
    Mesh,
}

/// A machine with these sockets, each with switches that have so many GPUs and NICs.
fn machine(sockets: usize, switches: &[(usize, usize)], rate: f64, compute: u32, joined: Joined) -> Machine {
    let mut machine = Machine::default();
    let link = PciLink::generation(4);
    for socket in 0..sockets {
        machine.sockets.push(Socket { maker: Maker::Intel, model: Some((6, 0x8f)), ..Socket::default() });
        for &(gpus, nics) in switches {
            machine.bridges.push(Bridge { at: Place::Socket(socket), bus: None, link });
            let at = Place::Bridge(machine.bridges.len() - 1);
            for _ in 0..gpus {
                let index = u32::try_from(machine.gpus.len()).expect("few");
                let (bus, model, rank, c2c) = (None, None, None, None);
                let (compute, gpudirect) = (Some(compute), Some(true));
                machine.gpus.push(Gpu { index, at, bus, link, model, compute, gpudirect, rank, c2c });
            }
            for _ in 0..nics {
                let index = u32::try_from(machine.nics.len()).expect("few");
                machine.nics.push(Nic {
                    name: format!("mlx5_{index}").into(),
                    index,
                    at,
                    bus: None,
                    link,
                    rate: Some(GigabitsPerSecond(rate)),
                    gpudirect: Some(true),
                    latency: None,
                    port: None,
                    kind: NicKind::InfiniBand,
                });
            }
        }
    }
    let gpus = machine.gpus.len();
    for from in 0..gpus {
        let ends: Vec<(NvEnd, u32)> = match joined {
            Joined::No => Vec::new(),
            Joined::Switch => vec![(NvEnd::Switch, 12)],
            Joined::Pairs => {
                Some(from ^ 1).filter(|it| *it < gpus).map(|it| (NvEnd::Gpu(it), 4)).into_iter().collect()
            }
            Joined::Mesh => (0..gpus).filter(|it| *it != from).map(|it| (NvEnd::Gpu(it), 1)).collect(),
        };
        machine.nvlinks.extend(ends.into_iter().map(|(to, count)| NvLink { from, to, count }));
    }
    machine
}

fn machines() -> impl Strategy<Value = Machine> {
    let switches = prop::collection::vec((0_usize..4, 0_usize..3), 1..3);
    let joined = prop_oneof![Just(Joined::No), Just(Joined::Switch), Just(Joined::Pairs), Just(Joined::Mesh)];
    let compute = prop_oneof![Just(70_u32), Just(80), Just(89), Just(90), Just(100)];
    let rate = prop_oneof![Just(25.0), Just(100.0), Just(400.0)];
    (1_usize..3, switches, rate, compute, joined)
        .prop_map(|(sockets, switches, rate, compute, joined)| {
            machine(sockets, &switches, rate, compute, joined)
        })
        .prop_filter("some GPUs", |it| !it.gpus.is_empty())
}

fn settings() -> impl Strategy<Value = Settings> {
    let versions = [(18, 6), (19, 4), (20, 5), (21, 5), (22, 3), (23, 4), (25, 1), (27, 3), (28, 9), (30, 7)];
    let versions = prop::sample::select(versions.to_vec());
    let cross = prop_oneof![3 => Just(None), 1 => Just(Some("0")), 1 => Just(Some("1"))];
    (versions, cross).prop_map(|((minor, patch), cross)| {
        let settings = Settings::new(Version::new(2, minor, patch));
        match cross {
            Some(value) => settings.with("NCCL_CROSS_NIC", value),
            None => settings,
        }
    })
}

fn communicator(machine: &Machine, settings: &Settings, nodes: u32) -> Result<Communicator, Undecidable> {
    let layout = Layout::new(1, u32::try_from(machine.gpus.len()).expect("few")).on(nodes);
    Communicator::new(&Decisions::new(machine, settings, &layout)?, Abilities::default())
}

/// Every channel of a node has each of its GPUs once.
fn channels_are_whole(it: &Communicator) {
    for graphs in &it.nodes {
        for graph in [&graphs.ring, &graphs.tree] {
            let mut want = graph.channels[0].intra.clone();
            want.sort_unstable();
            want.dedup();
            for channel in &graph.channels {
                let mut gpus = channel.intra.clone();
                gpus.sort_unstable();
                assert_eq!(gpus, want);
                assert_eq!(channel.inter.is_some(), it.n_nodes > 1);
            }
        }
        assert!(graphs.tree.channels.len() <= graphs.ring.channels.len().max(1));
    }
}

fn rings_have_every_rank(it: &Communicator) {
    for ring in &it.connected.rings {
        let mut order = ring.order(0);
        assert_eq!(ring.next[*order.last().expect("a rank") as usize], 0);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..u32::try_from(it.n_ranks).expect("few")));
        for (rank, next) in (0_u32..).zip(&ring.next) {
            assert_eq!(ring.prev[*next as usize], rank);
        }
    }
}

fn trees_are_trees(it: &Communicator) {
    for tree in &it.connected.trees {
        assert_eq!(tree.ranks.iter().filter(|it| it.up.is_none()).count(), 1);
        for (rank, links) in (0_u32..).zip(&tree.ranks) {
            for child in links.down.into_iter().flatten() {
                assert_eq!(tree.ranks[child as usize].up, Some(rank));
            }
            let ups = std::iter::successors(Some(rank), |it| tree.ranks[*it as usize].up);
            assert!(ups.take(it.n_ranks + 1).count() <= it.n_ranks, "a circle");
        }
        let children = tree.ranks.iter().map(|it| it.down.iter().flatten().count()).sum::<usize>();
        assert_eq!(children, it.n_ranks - 1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn rings_are_rings_and_trees_are_trees(machine in machines(), settings in settings(), nodes in 1_u32..6) {
        match communicator(&machine, &settings, nodes) {
            Ok(it) => {
                channels_are_whole(&it);
                rings_have_every_rank(&it);
                trees_are_trees(&it);
                prop_assert_eq!(communicator(&machine, &settings, nodes), Ok(it));
            }
            Err(Undecidable::NoNic) => prop_assert!(machine.nics.is_empty()),
            Err(it) => prop_assert!(false, "{}", it),
        }
    }
}

/// Ranks on GPUs of some nodes: how many nodes, and of each rank a GPU counted over all nodes.
fn placements(gpus: usize) -> impl Strategy<Value = Placement> {
    (1_usize..4).prop_flat_map(move |nodes| {
        let all: Vec<usize> = (0..nodes * gpus).collect();
        let some = prop::sample::subsequence(all, 1..=nodes * gpus);
        some.prop_shuffle().prop_map(move |ranks| {
            let number = |it: usize| u32::try_from(it).expect("few");
            let place = |it: usize| RankPlace { node: number(it / gpus), gpu: number(it % gpus) };
            Placement { nodes: vec![0; nodes], ranks: ranks.into_iter().map(place).collect() }
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Nodes with different numbers of ranks, GPUs without ranks, ranks in any order.
    #[test]
    fn ranks_may_be_anywhere(
        (machine, placement) in machines().prop_flat_map(|it| (Just(it.clone()), placements(it.gpus.len()))),
        settings in settings(),
    ) {
        let decisions = Decisions::placed(&[&machine], &settings, &placement).expect("GPUs that exist");
        prop_assert_eq!(decisions.ranks(), placement.ranks.len() as u64);
        match Communicator::new(&decisions, Abilities::default()) {
            Ok(it) => {
                prop_assert_eq!(it.n_ranks, placement.ranks.len());
                rings_have_every_rank(&it);
                trees_are_trees(&it);
            }
            Err(Undecidable::NoNic) => prop_assert!(machine.nics.is_empty()),
            Err(it) => prop_assert!(false, "{}", it),
        }
    }

    /// All ranks one by one are the layout with all ranks.
    #[test]
    fn a_placement_of_all_ranks_is_the_layout(machine in machines(), settings in settings(), nodes in 1_u32..4) {
        let gpus = u32::try_from(machine.gpus.len()).expect("few");
        let layout = Layout::new(1, gpus).on(nodes);
        let placement = Placement::group(&layout, 0..layout.ranks());
        let one_by_one = Decisions::placed(&[&machine], &settings, &placement).expect("GPUs that exist");
        let one_by_one = Communicator::new(&one_by_one, Abilities::default());
        prop_assert_eq!(one_by_one, communicator(&machine, &settings, nodes));
    }
}

/// Limits of a variable hold whatever the search found.
#[test]
fn channels_stay_within_the_limits_of_variables() {
    let machine = machine(2, &[(4, 4)], 400.0, 90, Joined::Switch);
    let channels = |name: &str, value: &str, nodes: u32| {
        let settings = Settings::default().with(name, value);
        communicator(&machine, &settings, nodes).expect("a job that fits").connected.channels.len()
    };
    for (name, value, want) in [
        ("NCCL_MAX_NCHANNELS", "3", 3),
        ("NCCL_MAX_NRINGS", "3", 3),
        ("NCCL_MAX_CTAS", "5", 5),
        ("NCCL_MIN_NCHANNELS", "40", 40),
        ("NCCL_MIN_CTAS", "40", 40),
        ("NCCL_MIN_NCHANNELS", "400", 64),
        ("NCCL_MAX_NCHANNELS", "0", 1),
    ] {
        assert_eq!(channels(name, value, 2), want, "{name}={value}");
    }
}

/// NICs that `NCCL_IB_HCA` leaves out carry nothing, and the others count from 0.
#[test]
fn only_selected_adapters_are_used() {
    let machine = machine(1, &[(2, 2), (2, 2)], 400.0, 90, Joined::Switch);
    let settings = Settings::default().with("NCCL_IB_HCA", "=mlx5_2,mlx5_3");
    let it = communicator(&machine, &settings, 2).expect("a job that fits");
    let used = it.nodes[0].ring.channels.iter().flat_map(|it| it.inter.expect("NICs"));
    assert!(used.into_iter().all(|it| it == 2 || it == 3));
    assert!(it.graph_lines(0)[1].contains("NET/0-0"), "{:?}", it.graph_lines(0));
}

/// What this thread has used of a processor: tests that run at the same time do not count. `None` where the system does not tell.
fn processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Nodes that are equal are searched once.
#[test]
fn a_thousand_nodes_take_less_than_a_second() {
    for (joined, compute) in [(Joined::Switch, 90), (Joined::Switch, 80), (Joined::Switch, 100)] {
        let machine = machine(2, &[(2, 2), (2, 2)], 400.0, compute, joined);
        let start = processor();
        let it = communicator(&machine, &Settings::default(), 1_000).expect("a job that fits");
        let took = start.zip(processor()).map(|(start, end)| end.saturating_sub(start));
        assert_eq!((it.n_ranks, it.nodes.len()), (8_000, 1));
        rings_have_every_rank(&it);
        // A tenth of that as a rule (`examples/decide_speed.rs`).
        assert!(took.is_none_or(|it| it < Duration::from_secs(1)), "{joined:?}: {took:?}");
    }
}

/// NCCL stops the search for a graph after so many steps that it takes about a second, and so does this one: here there are two graphs.
#[test]
fn sixteen_gpus_without_nvlink_end_within_nccls_own_limit() {
    let machine = machine(2, &[(4, 1), (4, 1)], 100.0, 89, Joined::No);
    for nodes in [1, 2] {
        let start = processor();
        let it = communicator(&machine, &Settings::default(), nodes).expect("a job that fits");
        let took = start.zip(processor()).map(|(start, end)| end.saturating_sub(start));
        rings_have_every_rank(&it);
        assert!(took.is_none_or(|it| it < Duration::from_secs(2)), "{nodes} nodes: {took:?}");
    }
}

/// NCCL 2.21 allows one head for each GPU of a domain: more than it has channels.
#[test]
fn a_domain_of_72_gpus_has_no_more_heads_than_there_are_channels() {
    let tray = machine(2, &[(2, 2)], 400.0, 100, Joined::Switch);
    for (minor, patch) in [(21, 5), (23, 4), (24, 3), (28, 9)] {
        let settings = Settings::new(Version::new(2, minor, patch));
        let decisions = Decisions::new(&tray, &settings, &Layout::new(1, 4).on(18)).expect("a job that fits");
        let abilities = Abilities { domain: 18, ..Abilities::default() };
        let it = Communicator::new(&decisions, abilities).expect("a job that fits");
        assert!(it.nodes[0].nvls.channels.len() <= 32, "2.{minor}.{patch}");
    }
}

/// Trays of a domain that differ: one has lost a NIC and a switch, one has two GPUs less.
#[test]
fn unlike_trays_are_one_node() {
    let tray = machine(2, &[(1, 1), (1, 1)], 400.0, 100, Joined::Switch);
    let mut poor = tray.clone();
    poor.nics.truncate(3);
    let small = machine(1, &[(1, 1), (1, 1)], 400.0, 100, Joined::Switch);
    let ranks = [4_u32, 4, 2]
        .into_iter()
        .zip(0..)
        .flat_map(|(gpus, node)| (0..gpus).map(move |gpu| RankPlace { node, gpu }));
    let placement = Placement { nodes: vec![0, 1, 2], ranks: ranks.collect() };
    let machines = [&tray, &poor, &small];
    let decisions = Decisions::placed(&machines, &Settings::default(), &placement).expect("GPUs that exist");
    let abilities = Abilities { domain: 18, ..Abilities::default() };
    let it = Communicator::new(&decisions, abilities).expect("a job that fits");
    assert_eq!((it.n_ranks, it.n_nodes), (10, 1));
    rings_have_every_rank(&it);
    trees_are_trees(&it);
    assert_eq!(it.node_paths[0].nics().len(), 4 + 3 + 2);
}

/// The trays of an NVL72 are one node, two racks are two.
#[test]
fn a_rack_is_one_node() {
    let tray = machine(2, &[(2, 2)], 400.0, 100, Joined::Switch);
    let start = Instant::now();
    for (trays, nodes) in [(18, 1), (36, 2), (20, 2)] {
        let layout = Layout::new(1, 4).on(trays);
        let decisions = Decisions::new(&tray, &Settings::default(), &layout).expect("a job that fits");
        let abilities = Abilities { domain: 18, ..Abilities::default() };
        let it = Communicator::new(&decisions, abilities).expect("a job that fits");
        assert_eq!(it.n_nodes, nodes, "{trays}");
        channels_are_whole(&it);
        rings_have_every_rank(&it);
        trees_are_trees(&it);
    }
    println!("racks: {:?}", start.elapsed());
}
