//! Opinions on measured numbers.

use fabric::{Collective, Settings, catalogue};
use forecast::{Cluster, Verdict, judge, normal};

fn cluster(name: &str, nodes: u32) -> Cluster {
    let machine = catalogue::machine(name).expect("in the catalogue");
    Cluster::of_machine(&machine, nodes, &Settings::default()).expect("a cluster")
}

/// Every number with a unit in a text.
fn rates(text: &str) -> Vec<f64> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|it| it[1].starts_with("GB/s")).filter_map(|it| it[0].parse().ok()).collect()
}

#[test]
fn only_more_than_the_wires_carry_is_too_good() {
    for name in ["p4d.24xlarge", "p5.48xlarge", "a3-megagpu-8g", "hgx-b200", "gb200-nvl72", "g6e.12xlarge"] {
        for nodes in [1, 2, 16] {
            let cluster = cluster(name, nodes);
            for collective in Collective::ALL {
                let Some(usual) = normal(collective, &cluster, 1 << 30) else { continue };
                let most = usual.wire.bandwidth.max(usual.high);
                for over in [1.0 + 1e-9, 1.001, 1.3, 40.0] {
                    let measured = most * over;
                    let opinion = judge(collective, &cluster, 1 << 30, measured, &usual);
                    assert_eq!(opinion.verdict, Verdict::TooGood, "{name} {nodes} {collective}");
                    let (first, _) = opinion.reason.split_once(". ").expect("two sentences");
                    assert!(rates(first).iter().all(|it| *it <= measured), "{measured}: {first}");
                    assert!(!rates(first).is_empty(), "{first}");
                }
                let opinion = judge(collective, &cluster, 1 << 30, most, &usual);
                assert_eq!(opinion.verdict, Verdict::Normal, "{name} {nodes} {collective}");
            }
        }
    }
}

#[test]
fn two_nodes_may_pass_their_nics() {
    // Each byte crosses the network once, and bus bandwidth counts it nearly twice.
    let cluster = cluster("p5.48xlarge", 2);
    let usual = normal(Collective::AllReduce, &cluster, 16 << 30).expect("two nodes");
    let opinion = judge(Collective::AllReduce, &cluster, 16 << 30, 487.0, &usual);
    assert_eq!(opinion.verdict, Verdict::Normal);
    assert!(opinion.reason.contains("more than the 400 GB/s of a node's NICs"), "{}", opinion.reason);
}

#[test]
fn the_interval_is_as_wide_up_as_down() {
    for nodes in [1, 2, 64] {
        let cluster = cluster("p5.48xlarge", nodes);
        for bytes in [1 << 20, 64 << 20, 8 << 30] {
            let it = normal(Collective::AllReduce, &cluster, bytes).expect("eight ranks");
            assert!((it.high / it.expected - it.expected / it.low).abs() < 1e-9, "{it:?}");
        }
    }
}

#[test]
fn explanations_differ_from_normal() {
    let two = cluster("p5.48xlarge", 2);
    let usual = normal(Collective::AllReduce, &two, 1 << 30).expect("two nodes");
    // A quarter of the NICs.
    let low = judge(Collective::AllReduce, &two, 1 << 30, 170.0, &usual);
    assert_eq!(low.verdict, Verdict::Low);
    assert!(low.explanations.iter().any(|it| it.contains("8 of 32 NICs")), "{:?}", low.explanations);
    // Just below normal: what would explain it is itself nearly normal, and says nothing.
    let low = judge(Collective::AllReduce, &two, 1 << 30, usual.low * 0.99, &usual);
    assert!(low.explanations.iter().all(|it| !it.contains("16 of 32 NICs")), "{:?}", low.explanations);
}

#[test]
fn what_nobody_measured_is_not_calibrated() {
    let calibrated = |name: &str, nodes, collective| {
        normal(collective, &cluster(name, nodes), 1 << 30).expect("two ranks").measured
    };
    assert!(calibrated("p5.48xlarge", 1, Collective::AllReduce));
    assert!(calibrated("p5.48xlarge", 2, Collective::AllGather));
    assert!(!calibrated("p5.48xlarge", 2, Collective::SendRecv));
    assert!(!calibrated("p5.48xlarge", 2, Collective::Broadcast));
    assert!(!calibrated("g6e.12xlarge", 16, Collective::AllReduce));
}

#[test]
fn one_channel_bounds_a_pair_of_many_ranks() {
    let rate = |nodes| {
        let machine = catalogue::machine("hgx-h100").expect("in the catalogue");
        let cluster = Cluster::of_machine(&machine, nodes, &Settings::default()).expect("a cluster");
        normal(Collective::SendRecv, &cluster, 1 << 30).expect("two nodes").asymptote
    };
    assert!(rate(2) > 1.5 * rate(16), "{} {}", rate(2), rate(16));
}
