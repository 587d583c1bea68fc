//! The tuning table compared with what NCCL prints, cell by cell.
//!
//! First with the graphs that NCCL's log has, so that the model is compared alone; then from the machine's description alone.

#[path = "common/decided.rs"]
mod decided;
#[path = "common/recorded.rs"]
mod recorded;

use std::collections::BTreeMap;

use decided::{Decided, PrintedGraph, decided};
use fabric::Version;
use fabric::collective::Collective;
use fabric::machine::{Maker, NvEnd};
use nccl::tuning::{GraphInfo, GraphInfos, Protocol, TUNED, Tuned, Tuning, algorithms, function_name};
use nccl::{
    Decisions, Job, Layout, P2pChannels, P2pScope, PathType, Pattern, Prediction, Settings, p2p_channels,
};
use recorded::{Recorded, recorded};

fn graph(printed: &PrintedGraph, latency: f64, nodes: u32) -> GraphInfo {
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

fn graphs(decided: &Decided, latency: f64, nodes: u32) -> GraphInfos {
    let nvls = decided.graphs.iter().find(|it| it.pattern == Pattern::Nvls.number());
    GraphInfos {
        ring: graph(&decided.graphs[0], latency, nodes),
        tree: graph(&decided.graphs[1], latency, nodes),
        collnet_direct: GraphInfo::NONE,
        collnet_chain: GraphInfo::NONE,
        nvls: nvls.map_or(GraphInfo::NONE, |it| graph(it, latency, nodes)),
    }
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
        coll_channels: decided.counts.expect("channel counts").coll,
        nvls_channels: decided.counts.expect("channel counts").nvls,
        collnet: None,
    };
    let latency = machine.nics.iter().find_map(|it| it.latency).unwrap_or(0.0);
    let graphs = graphs(decided, latency, nodes);
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
        let chunks = messages().filter(|it| it.starts_with("P2P Chunksize"));
        let ranks = decided(&recorded.text);
        for (((counts, thresholds), chunk), rank) in counts.zip(thresholds).zip(chunks).zip(ranks) {
            told.extend([counts, chunk, thresholds]);
            let rank = u64::from(rank.rank.expect("a rank"));
            here.extend(prediction.channels_line(rank));
            let p2p = prediction.p2p_of(rank).expect("a rank");
            here.push(format!("P2P Chunksize set to {}", p2p.chunk));
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
            let chunk = all[node].chunk;
            let want = P2pChannels { channels: counts.p2p, per_peer: counts.p2p_per_peer, chunk };
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

/// Jobs that ran: one GPU and one node per rank, over TCP. The table and the choice for every call.
#[test]
fn calls_use_what_is_chosen_here() {
    let mut compared = 0;
    // The second was recorded without GRAPH, on the same hosts.
    let mut searched = None;
    for name in ["graph-tuning", "every-collective"] {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(name).join("job.log");
        let text = std::fs::read_to_string(path).expect("a log");
        let all = decided(&text);
        let first = all.iter().find(|it| it.rank == Some(0) && !it.table.cells.is_empty()).expect("rank 0");
        let (ranks, nodes) = (first.ranks.expect("ranks"), first.nodes.expect("nodes"));
        let counts = first.counts.expect("channel counts");
        // `CPU/0-ffffffffffffff (1/1/4)`: x86, Intel.
        let tuned = Tuned {
            ranks,
            nodes,
            local_ranks: 1,
            min_compute: 90,
            max_compute: 90,
            cpu: Maker::Intel,
            mixed_cpus: false,
            switches: false,
            mnnvl: false,
            channels: counts.coll,
            coll_channels: counts.coll,
            nvls_channels: counts.nvls,
            collnet: None,
        };
        let settings = Settings::new(Version::new(2, 28, 9));
        let searched = searched.get_or_insert_with(|| graphs(first, 0.0, nodes));
        let tuning = Tuning::new(&settings, &tuned, searched).expect("no lists");
        let lines: Vec<&str> = text.lines().filter_map(|it| Some(it.split_once(" NCCL INFO ")?.1)).collect();
        for line in tuning.lines() {
            assert!(lines.contains(&&*line), "{name}: {line}");
        }
        for call in &first.calls {
            let collective: Collective = call.function.parse().expect("a collective");
            let parts = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
            let bytes = if parts { call.bytes * u64::from(ranks) } else { call.bytes };
            let choice = tuning.choose(collective, bytes).expect("a choice");
            assert!(
                choice.algorithm.name().eq_ignore_ascii_case(&call.algorithm),
                "{name} {call:?} {choice:?}"
            );
            assert!(
                choice.protocol.name().eq_ignore_ascii_case(&call.protocol),
                "{name} {call:?} {choice:?}"
            );
            assert_eq!((0, choice.channels - 1), call.channels, "{name} {call:?} {choice:?}");
            compared += 1;
        }
    }
    assert!(compared >= 10, "{compared}");
}

/// Jobs that ran on AWS, predicted from the catalogue and the release of the plugin alone: what their logs say of channels and trees.
#[test]
fn jobs_on_aws_from_the_catalogue() {
    let one_pod_per_node = Layout::new(1, 4).on(4);
    let one_gpu_per_pod = Layout { nics_per_pod: Some(1), ..Layout::new(4, 1) };
    for (case, instance, layout, variables) in [
        ("g6e-4x4-efa", "g6e.12xlarge", one_pod_per_node, vec!["NCCL_PROTO"]),
        (
            "p4d-4-pods",
            "p4d.24xlarge",
            one_gpu_per_pod,
            vec!["NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE"],
        ),
    ] {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(case).join("rank0.log");
        let text = std::fs::read_to_string(path).expect("a log");
        let machine = fabric::catalogue::machine(instance).expect("an instance type");
        let settings = Settings::new(Version::new(2, 27, 3));
        let mut job = Job::new(&machine, &layout, &settings);
        job.plugin = Some(Version::new(1, 16, 2));
        let prediction = Prediction::new(&job).expect("a job that fits");
        let set: Vec<&str> = prediction.set_by_plugin.iter().map(|it| it.0).collect();
        assert_eq!(set, variables, "{case}");
        let communicator = &prediction.communicator;
        let messages: Vec<&str> =
            text.lines().filter_map(|it| Some(it.split_once(" NCCL INFO ")?.1.trim_end())).collect();
        let ranks: Vec<u32> = decided(&text).iter().filter_map(|it| it.rank).collect();
        assert!(!ranks.is_empty(), "{case}");
        for rank in ranks {
            let number = usize::try_from(rank).expect("a rank");
            let mut here = vec![communicator.trees_line(number)];
            here.extend(prediction.channels_line(u64::from(rank)));
            let p2p = prediction.p2p_of(u64::from(rank)).expect("a rank");
            here.push(format!("P2P Chunksize set to {}", p2p.chunk));
            here.push(format!("threadThresholds {}", prediction.tuning.thresholds()));
            if rank == 0 {
                here.extend(communicator.ring_lists());
            }
            for line in here {
                assert!(messages.contains(&&*line), "{case}: rank {rank} did not print {line}");
            }
        }
    }
}
