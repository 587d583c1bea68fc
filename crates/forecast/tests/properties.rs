//! What must hold of any cluster, however strange.

use fabric::machine::NicKind;
use fabric::{Collective, Settings, Version, catalogue, gpu};
use forecast::{Allowed, Between, Cluster, Inside, Normal, Origin, Verdict, describe, judge, normal};
use proptest::prelude::*;
use proptest::sample::select;

const COLLECTIVES: [Collective; 9] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
    Collective::AllToAll,
    Collective::Gather,
    Collective::Scatter,
    Collective::SendRecv,
];

/// So long that only bandwidth counts.
const LONG: u64 = 1 << 49;

fn inside() -> impl Strategy<Value = Inside> {
    let switch = (1_u32..=18, 10.0..60.0_f64, 1_u32..=18).prop_map(|(links, each, domain)| Inside::Switch {
        links,
        bandwidth: each * f64::from(links),
        domain: if domain > 9 { 8 * (domain - 8) } else { 1 },
    });
    let wire = (0_usize..10, 0_usize..10, 0_u32..=u32::MAX);
    let mesh = (prop::collection::vec(wire, 0..40), 10.0..60.0_f64)
        .prop_map(|(links, bandwidth)| Inside::Mesh { links, bandwidth });
    let pci = any::<bool>().prop_map(|peer_to_peer| Inside::Pci { peer_to_peer });
    prop_oneof![3 => switch, 1 => mesh, 2 => pci]
}

fn between() -> impl Strategy<Value = Between> {
    let kind =
        select(vec![NicKind::Efa, NicKind::InfiniBand, NicKind::Roce, NicKind::Ethernet, NicKind::Unknown]);
    (kind, 1_u32..=64, 1.0..1600.0_f64, any::<bool>(), prop::option::of(0_u8..6))
        .prop_map(|(kind, nics, gbps, gpudirect, efa)| Between { kind, nics, gbps, gpudirect, efa })
}

/// Any cluster that can be.
fn cluster() -> impl Strategy<Value = Cluster> {
    let job = (1_u32..=5000, 1_u32..=8, 1_u32..=8, 0_u32..=8);
    let compute = prop::option::of(select(vec![70, 80, 86, 89, 90, 100, 103, 120, 121]));
    let pci = prop::option::of(1.0..200.0_f64);
    (job, compute, inside(), pci, between()).prop_filter_map(
        "fits",
        |(job, compute, inside, pci, between)| {
            let (nodes, pods, gpus, more) = job;
            let gpus_there = pods * gpus + more;
            let between = Some(between);
            let machine = "machine".to_owned();
            Cluster {
                machine,
                nodes,
                pods,
                gpus,
                gpus_there,
                at_once: 1,
                compute,
                inside,
                through_cpu: false,
                pci,
                between,
                allowed: Allowed::default(),
                origin: Origin::default(),
            }
            .checked()
            .ok()
        },
    )
}

fn long(cluster: &Cluster, nodes: u32) -> Option<Normal> {
    normal(Collective::AllReduce, &Cluster { nodes, ..cluster.clone() }, LONG)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn numbers_can_be(cluster in cluster(), collective in select(COLLECTIVES.to_vec()), bytes in 0..LONG) {
        let Some(it) = normal(collective, &cluster, bytes) else { return Ok(()) };
        prop_assert!(0.0 < it.low && it.low <= it.expected && it.expected <= it.high, "{it:?}");
        prop_assert!(it.high.is_finite() && it.time.is_finite() && it.asymptote.is_finite(), "{it:?}");
        prop_assert!(0.0 < it.overhead && it.overhead <= it.time && it.expected <= it.asymptote, "{it:?}");
        prop_assert!(!describe(collective, &cluster, &it).contains("NaN"));
    }

    #[test]
    fn a_number_has_one_verdict(cluster in cluster(), bytes in 1..LONG, measured in 0.0..2000.0_f64) {
        let Some(it) = normal(Collective::AllReduce, &cluster, bytes) else { return Ok(()) };
        let verdict = |measured| judge(Collective::AllReduce, &cluster, bytes, measured, &it).verdict;
        let expected = match measured {
            number if number < it.low => Verdict::Low,
            number if number > it.high.max(it.wire.bandwidth) => Verdict::TooGood,
            _ => Verdict::Normal,
        };
        prop_assert_eq!(verdict(measured), expected);
        for (number, expected) in [(it.expected, Verdict::Normal), (0.0, Verdict::Low), (1e300, Verdict::TooGood)] {
            prop_assert_eq!(verdict(number), expected);
        }
    }

    #[test]
    fn more_bytes_take_longer(
        cluster in cluster(),
        collective in select(COLLECTIVES.to_vec()),
        bytes in 1..LONG / 2,
        more in 1..LONG / 2,
    ) {
        let (Some(short), Some(long)) = (normal(collective, &cluster, bytes), normal(collective, &cluster, bytes + more))
        else { return Ok(()) };
        prop_assert!(short.time <= long.time, "{short:?}\n{long:?}");
    }

    /// Two nodes are the best case: a tree of two sends every byte once. Beyond them bytes a second fall, while bus
    /// bandwidth may rise by as much as its factor does.
    #[test]
    fn more_nodes_are_no_faster(cluster in cluster(), nodes in 2_u32..=5000, more in 1_u32..=5000) {
        // In a domain of several machines two of them are not two nodes.
        let domain = matches!(cluster.inside, Inside::Switch { domain, .. } if domain > cluster.gpus_there);
        let (Some(two), Some(few), Some(many)) = (long(&cluster, 2), long(&cluster, nodes), long(&cluster, nodes + more))
        else { return Ok(()) };
        let speed = |it: &Normal, nodes: u32| {
            it.asymptote / Collective::AllReduce.bus_factor(nodes * cluster.pods * cluster.gpus)
        };
        prop_assert!(domain || speed(&many, nodes + more) <= speed(&few, nodes) * 1.0001, "{few:?}\n{many:?}");
        prop_assert!(domain || cluster.pods > 1 || many.asymptote <= two.asymptote * 1.0001, "{two:?}\n{many:?}");
    }

    #[test]
    fn more_nics_are_no_slower(cluster in cluster(), more in 1_u32..64, collective in select(COLLECTIVES.to_vec())) {
        let nics = |it: Between| Between { nics: it.nics + more, ..it };
        let richer = Cluster { between: cluster.between.map(nics), ..cluster.clone() };
        let (Some(few), Some(many)) = (normal(collective, &cluster, LONG), normal(collective, &richer, LONG))
        else { return Ok(()) };
        prop_assert!(few.asymptote <= many.asymptote * 1.0001, "{few:?}\n{many:?}");
    }

    #[test]
    fn faster_nics_are_no_slower(cluster in cluster(), times in 1.0..8.0_f64, collective in select(COLLECTIVES.to_vec())) {
        let faster = |it: Between| Between { gbps: it.gbps * times, ..it };
        let faster = Cluster { between: cluster.between.map(faster), ..cluster.clone() };
        let (Some(slow), Some(fast)) = (normal(collective, &cluster, LONG), normal(collective, &faster, LONG))
        else { return Ok(()) };
        prop_assert!(slow.asymptote <= fast.asymptote * 1.0001, "{slow:?}\n{fast:?}");
    }
}

/// A cluster file and the cluster it describes.
fn read(text: &str) -> Result<Cluster, String> {
    let file = job::cluster_file::read(text, "cluster.toml").map_err(|it| it.to_string())?;
    Cluster::of_layout(&file.machine.machine.value, &file.layout.value, &Settings::default())
        .map_err(|it| it.to_string())
}

/// A value as people and machines write them into a file.
fn value() -> impl Strategy<Value = String> {
    let number = select(vec![
        "0",
        "1",
        "2",
        "8",
        "32",
        "257",
        "4294967295",
        "4294967296",
        "-1",
        "nan",
        "inf",
        "-inf",
        "1e308",
        "1e-308",
        "0.5",
        "400",
        "99999999999999999999",
        "true",
        "[]",
        "{}",
        "1979-05-27",
    ]);
    let word = select(vec![
        "",
        "p5.48xlarge",
        "gb200-nvl72",
        "H100",
        "V100",
        "A100",
        "RTX 4090",
        "B200",
        "TPU",
        "nvlink",
        "nvlink4",
        "nvlink5",
        "pcie",
        "pcie5",
        "shm",
        "1x8",
        "8x1",
        "0x8",
        "4294967295x4294967295",
        "efa",
        "ib",
        "tcp",
        "roce",
        "\\u0000",
    ]);
    let inter = (select(vec!["efa", "ib", "tcp", "roce", "x"]), 0_u32..300, -1.0..1e6_f64)
        .prop_map(|(kind, nics, gbps)| format!("{{ kind = \"{kind}\", nics = {nics}, gbps = {gbps:?} }}"));
    prop_oneof![number.prop_map(str::to_owned), word.prop_map(|it| format!("\"{it}\"")), inter, "[^\n]{0,12}"]
}

/// A `[cluster]` table, right or wrong.
fn description() -> impl Strategy<Value = String> {
    let keys = select(vec!["instance", "gpu", "gpus_per_node", "nodes", "pods", "intra", "inter", "color"]);
    let line = (keys, value()).prop_map(|(key, value)| format!("{key} = {value}\n"));
    let likely = (select(vec!["H100", "V100", "A100", "L40S", "A40", "B200"]), 0_u32..300, 0_u32..5000)
        .prop_map(|(gpu, gpus, nodes)| format!("gpu = \"{gpu}\"\ngpus_per_node = {gpus}\nnodes = {nodes}\n"));
    let start = prop_oneof![Just(String::new()), likely];
    (start, prop::collection::vec(line, 0..4))
        .prop_map(|(start, lines)| format!("[cluster]\n{start}{}", lines.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_text_is_a_cluster_or_an_error(text in prop_oneof![3 => description(), 1 => "\\PC{0,200}"]) {
        match read(&text) {
            Err(error) => prop_assert!(!error.is_empty()),
            Ok(cluster) => {
                for collective in COLLECTIVES {
                    let Some(it) = normal(collective, &cluster, 1 << 30) else { continue };
                    prop_assert!(0.0 < it.low && it.low <= it.expected && it.expected <= it.high, "{it:?}\n{text}");
                    prop_assert!(it.high < 1e5 && it.time.is_finite(), "{it:?}\n{text}");
                }
            }
        }
    }
}

fn every_machine_of(version: Version) {
    for name in catalogue::names() {
        let Some(machine) = catalogue::machine(name) else { continue };
        for nodes in [1, 2, 18, 1000] {
            let Ok(cluster) = Cluster::of_machine(&machine, nodes, &Settings::new(version)) else {
                continue;
            };
            for collective in COLLECTIVES {
                let Some(it) = normal(collective, &cluster, 1 << 30) else { continue };
                assert!(0.0 < it.low && it.low <= it.expected && it.expected <= it.high, "{name}: {it:?}");
                assert!(it.high < 2000.0, "{name} on {nodes}: {it:?}");
            }
        }
    }
}

/// Every machine of the catalogue, alone, in pairs and in thousands, with every kind of GPU and release.
#[test]
fn every_machine_has_an_expectation() {
    std::thread::scope(|scope| {
        for version in [Version::new(2, 3, 0), Version::new(2, 18, 1), Settings::NEWEST] {
            scope.spawn(move || every_machine_of(version));
        }
    });
    // GB10 is joined to its CPU without PCI Express, and a machine has one.
    for model in gpu::all().iter().filter(|it| it.name != "GB10") {
        let text = format!("[cluster]\ngpu = \"{}\"\ngpus_per_node = 8\n", model.name);
        let cluster = read(&text).unwrap_or_else(|error| panic!("{}: {error:?}", model.name));
        assert!(normal(Collective::AllReduce, &cluster, LONG).is_some(), "{}", model.name);
    }
}
