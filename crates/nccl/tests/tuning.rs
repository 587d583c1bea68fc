//! The tuning table compared with what NCCL prints, cell by cell.
//!
//! First with the graphs that NCCL's log has, so that the model is compared alone; then from the machine's description alone.

#[path = "common/decided.rs"]
mod decided;
#[path = "common/recorded.rs"]
mod recorded;

use std::collections::BTreeMap;

use decided::{Decided, PrintedGraph, decided};
use fabric::machine::{Machine, NvEnd};
use nccl::tuning::{GraphInfo, GraphInfos, Protocol, TUNED, Tuned, Tuning, algorithms, function_name};
use nccl::{Decisions, Job, P2pChannels, P2pScope, PathType, Pattern, Prediction, p2p_channels};
use recorded::{Recorded, recorded};

fn graph(printed: &PrintedGraph, machine: &Machine, nodes: u32) -> GraphInfo {
    let latency = machine.nics.iter().find_map(|it| it.latency).unwrap_or(0.0);
    let kind = |text: &str| PathType::parse(text).expect("a path type");
    GraphInfo {
        pattern: Pattern::ALL.into_iter().find(|it| it.number() == printed.pattern),
        channels: printed.channels,
        bw_intra: printed.bw_intra,
        bw_inter: printed.bw_inter,
        type_intra: kind(&printed.type_intra),
        type_inter: kind(&printed.type_inter),
        same_channels: printed.same_channels,
        #[expect(clippy::cast_possible_truncation, reason = "whole microseconds")]
        latency_inter: if nodes > 1 { latency as f32 } else { 0.0 },
    }
}

fn with(decided: &Decided, pattern: Pattern, machine: &Machine, nodes: u32) -> Option<GraphInfo> {
    let printed = decided.graphs.iter().find(|it| it.pattern == pattern.number())?;
    Some(graph(printed, machine, nodes))
}

fn tuning(recorded: &Recorded, decided: &Decided) -> Tuning {
    let machine = &recorded.machine;
    let nodes = decided.nodes.unwrap_or(recorded.layout.nodes);
    let ranks = decided.ranks.expect("a number of ranks");
    let compute = || machine.gpus.iter().filter_map(|it| it.compute);
    let tuned = Tuned {
        ranks,
        nodes,
        local_ranks: ranks.div_ceil(nodes),
        min_compute: compute().min().expect("a compute capability"),
        max_compute: compute().max().expect("a compute capability"),
        cpu: machine.sockets[0].maker,
        mixed_cpus: false,
        switches: machine.nvlinks.iter().any(|it| it.to == NvEnd::Switch),
        mnnvl: decided.mnnvl,
        channels: decided.counts.expect("channel counts").coll,
        nvls_channels: decided.counts.expect("channel counts").nvls,
        collnet: None,
    };
    let graphs = GraphInfos {
        ring: graph(&decided.graphs[0], machine, nodes),
        tree: graph(&decided.graphs[1], machine, nodes),
        collnet_direct: GraphInfo::NONE,
        collnet_chain: GraphInfo::NONE,
        nvls: with(decided, Pattern::Nvls, machine, nodes).unwrap_or(GraphInfo::NONE),
    };
    Tuning::new(&recorded.settings, &tuned, &graphs).expect("lists that NCCL accepts")
}

/// How many cells are equal, how many were compared, and what differs.
type Compared = (usize, usize, Vec<String>);

fn compare(recorded: &Recorded, first: &Decided, tuning: &Tuning) -> Compared {
    let version = recorded.settings.version;
    let names: Vec<&str> = algorithms(version).iter().map(|it| it.name()).collect();
    assert_eq!(first.table.algorithms, names, "{}", recorded.name);
    let (mut equal, mut compared, mut wrong) = (0, 0, Vec::new());
    for (column, &algorithm) in algorithms(version).iter().enumerate() {
        for (place, protocol) in Protocol::ALL.into_iter().enumerate() {
            let mut check = |what: &str, want: &str, got: String| {
                compared += 1;
                if got.replace(' ', "") == want {
                    equal += 1;
                } else {
                    let of = format!("{} {what} {algorithm} {}", recorded.name, protocol.name());
                    wrong.push(format!("{of}: NCCL {want}, here {got}"));
                }
            };
            let threads = tuning.max_threads(algorithm, protocol).to_string();
            check("threads", &first.table.threads[column][place], threads);
            for collective in TUNED {
                let name = function_name(collective);
                let want = &first.table.cells[name][column][place];
                check(name, want, tuning.cell(collective, algorithm, protocol).to_string());
            }
        }
    }
    (equal, compared, wrong)
}

fn check_all(tuning: impl Fn(&Recorded, &Decided) -> Tuning) {
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::new());
    for recorded in recorded() {
        let all = decided(&recorded.text);
        let first = all.iter().find(|it| it.rank == Some(0)).expect("rank 0");
        let tuning = tuning(&recorded, first);
        let (equal, compared, different) = compare(&recorded, first, &tuning);
        seen.insert(recorded.name.clone(), format!("{equal} of {compared}"));
        wrong.extend(different);
        for rank in &all {
            assert_eq!(rank.thresholds.as_deref(), Some(&*tuning.thresholds()), "{}", recorded.name);
        }
    }
    println!("{seen:#?}");
    assert!(wrong.is_empty(), "{}\n{seen:#?}", wrong.join("\n"));
}

#[test]
fn every_cell_is_as_nccl_prints_it() {
    check_all(tuning);
}

fn predict(recorded: &Recorded) -> Prediction {
    let mut job = Job::new(&recorded.machine, &recorded.layout, &recorded.settings);
    job.abilities.multicast = Some(recorded.multicast);
    Prediction::new(&job).expect("a job that fits")
}

/// From the machine's description alone: the whole table in NCCL's own form, the thresholds and the channel counts of every rank.
#[test]
fn every_line_is_as_nccl_prints_it() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for recorded in recorded() {
        let prediction = predict(&recorded);
        let messages = || recorded.text.lines().filter_map(|it| Some(it.split_once(" NCCL INFO ")?.1));
        let mut told: Vec<&str> = messages().filter(|it| it.contains(" |") && it.ends_with('|')).collect();
        let mut here = prediction.tuning.lines();
        let counts = messages().filter(|it| it.contains(" coll channels, "));
        let thresholds = messages().filter(|it| it.starts_with("threadThresholds"));
        for ((counts, thresholds), rank) in counts.zip(thresholds).zip(decided(&recorded.text)) {
            told.extend([counts, thresholds]);
            here.extend(prediction.channels_line(u64::from(rank.rank.expect("a rank"))));
            here.push(format!("threadThresholds {}", prediction.tuning.thresholds()));
        }
        assert_eq!(told.len(), here.len(), "{}", recorded.name);
        compared += told.len();
        let pairs = told.iter().zip(&here).filter(|(told, here)| told != here);
        wrong.extend(pairs.map(|(told, here)| format!("{}\n  NCCL {told}\n  here {here}", recorded.name)));
    }
    println!("{compared} lines compared");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1000, "{compared}");
}

#[test]
fn send_and_receive_have_as_many_channels() {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for recorded in recorded() {
        let job =
            Decisions::new(&recorded.machine, &recorded.settings, &recorded.layout).expect("a job that fits");
        for one in decided(&recorded.text) {
            let counts = one.counts.expect("channel counts");
            let rank = one.rank.expect("a rank");
            let scope = P2pScope {
                ranks: one.ranks.expect("ranks"),
                nodes: one.nodes.unwrap_or(recorded.layout.nodes),
                channels: counts.coll,
            };
            let nodes = job.nodes_of_machine();
            let all = p2p_channels(&recorded.settings, &recorded.machine, nodes, scope);
            let paths = job.paths(u64::from(rank)).expect("a rank of the job");
            let node = nodes.iter().position(|it| it == paths).expect("a node of the machine");
            let want = P2pChannels { channels: counts.p2p, per_peer: counts.p2p_per_peer };
            compared += 1;
            if all[node] != want {
                wrong.push(format!("{} rank {rank}: NCCL {want:?}, here {:?}", recorded.name, all[node]));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}\n{}", wrong.len(), wrong.join("\n"));
    println!("{compared} lines are equal");
    assert!(compared > 150, "{compared}");
}
