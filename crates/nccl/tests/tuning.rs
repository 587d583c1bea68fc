//! What is decided here from a machine's description, compared with what real NCCL said: the tuning table cell by cell, thresholds,
//! channel counts, and the choice for every call.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::decided::{Decided, PrintedCall, PrintedGraph, decided};
use common::jobs::{Job, jobs};
use fabric::Version;
use fabric::collective::Collective;
use fabric::machine::NvEnd;
use nccl::tuning::{
    Choice, GraphInfo, GraphInfos, Protocol, TUNED, Tuned, Tuning, algorithms, function_name,
};
use nccl::{Algorithm, Layout, PathType, Pattern, Prediction, Settings};

/// How much is equal, of how much.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    equal: usize,
    compared: usize,
}

#[derive(Debug, Default)]
struct Score {
    /// By what is compared.
    counts: BTreeMap<&'static str, Count>,
    wrong: Vec<String>,
}

impl Score {
    fn check(&mut self, kind: &'static str, of: &str, told: &str, here: &str) {
        let count = self.counts.entry(kind).or_default();
        count.compared += 1;
        if told == here {
            count.equal += 1;
        } else {
            self.wrong.push(format!("{of}: NCCL {told}, here {here}"));
        }
    }

    fn add(&mut self, other: Self) {
        for (kind, count) in other.counts {
            let sum = self.counts.entry(kind).or_default();
            sum.equal += count.equal;
            sum.compared += count.compared;
        }
        self.wrong.extend(other.wrong);
    }
}

/// Every cell of the table, as rank 0 prints it.
fn check_table(score: &mut Score, name: &str, first: &Decided, tuning: &Tuning, version: Version) {
    let algorithms = algorithms(version);
    let names: Vec<&str> = algorithms.iter().map(|it| it.name()).collect();
    assert_eq!(first.table.algorithms, names, "{name}");
    for (column, &algorithm) in algorithms.iter().enumerate() {
        for (place, protocol) in Protocol::ALL.into_iter().enumerate() {
            let of = |what: &str| format!("{name} {what} {algorithm} {}", protocol.name());
            let threads = tuning.max_threads(algorithm, protocol).to_string();
            score.check("threads", &of("threads"), &first.table.threads[column][place], &threads);
            for collective in TUNED {
                let function = function_name(collective);
                let told = &first.table.cells[function][column][place];
                let here = tuning.cell(collective, algorithm, protocol).to_string().replace(' ', "");
                score.check("cells", &of(function), told, &here);
            }
        }
    }
}

/// The text after `Algo ` as a release writes it.
fn told_as(choice: Choice, version: Version) -> String {
    if version < Version::new(2, 24, 0) {
        let algorithm = Algorithm::ALL.iter().position(|it| *it == choice.algorithm).expect("an algorithm");
        let protocol = Protocol::ALL.iter().position(|it| *it == choice.protocol).expect("a protocol");
        return format!("{algorithm} proto {protocol} time {:.6}", choice.time);
    }
    let algorithm = match choice.algorithm {
        Algorithm::NvlsTree => "NVLS_TREE".to_owned(),
        it => it.name().to_uppercase(),
    };
    let protocol = choice.protocol.name().to_uppercase();
    format!("{algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{}}}", choice.channels - 1)
}

/// What a call is made by.
struct Caller<'a> {
    tuning: &'a Tuning,
    version: Version,
    ranks: u32,
}

fn check_call(score: &mut Score, name: &str, number: usize, call: &PrintedCall, caller: &Caller<'_>) {
    // The order in which `tools/nccl-oracle` calls them.
    const ORDER: [Collective; 5] = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::Reduce,
    ];
    let version = caller.version;
    let named = call.function.as_ref().map(|it| it.parse().expect("a collective"));
    let collective = named.unwrap_or(ORDER[number % ORDER.len()]);
    let in_parts = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
    let parts = if in_parts && version >= Version::new(2, 24, 0) { u64::from(caller.ranks) } else { 1 };
    let choice = caller.tuning.choose(collective, call.bytes * parts).expect("a choice");
    score.check("calls", &format!("{name} {call:?}"), &call.choice, &told_as(choice, version));
}

fn check(recorded: &Job) -> Score {
    let (mut score, name) = (Score::default(), &recorded.name);
    let (text, prediction) = (recorded.text(), recorded.predict());
    let messages = |lead: &str| -> Vec<String> {
        let all = text.lines().filter_map(|it| Some(it.split_once(" NCCL INFO ")?.1));
        all.filter(|it| it.contains(lead)).map(str::to_owned).collect()
    };
    let (counts, thresholds, chunks) =
        (messages(" coll channels, "), messages("threadThresholds "), messages("P2P Chunksize "));
    let ranks = decided(&text);
    assert!(!ranks.is_empty() && ranks.len() == counts.len(), "{name}: {} and {}", ranks.len(), counts.len());
    for (place, rank) in ranks.iter().enumerate() {
        let number = u64::from(rank.rank.expect("a rank"));
        let of = format!("{name} rank {number}");
        score.check("counts", &of, &counts[place], &prediction.channels_line(number).expect("a rank"));
        let chunk = prediction.p2p_of(number).expect("a rank").chunk;
        score.check("chunks", &of, &chunks[place], &format!("P2P Chunksize set to {chunk}"));
        // One rank tunes nothing.
        if rank.ranks != Some(1) {
            let here = format!("threadThresholds {}", prediction.tuning.thresholds());
            score.check("thresholds", &of, &thresholds[place], &here);
        }
        if number == 0 && rank.ranks != Some(1) {
            check_table(&mut score, name, rank, &prediction.tuning, recorded.settings.version);
            let told =
                messages(" |").into_iter().filter(|it| it.ends_with('|')).collect::<Vec<_>>().join("\n");
            score.check("tables", name, &told, &prediction.tuning.lines().join("\n"));
        }
        let caller = Caller {
            tuning: &prediction.tuning,
            version: recorded.settings.version,
            ranks: rank.ranks.expect("ranks"),
        };
        for (number, call) in rank.calls.iter().enumerate() {
            check_call(&mut score, name, number, call, &caller);
        }
    }
    score
}

/// The worst of what ranks printed of a graph, which all of them use.
fn join(printed: &[&PrintedGraph], latency: f64, version: Version) -> GraphInfo {
    let kind = |text: &str| PathType::parse(text).expect("a path type");
    let farthest = |of: fn(&PrintedGraph) -> &str| {
        let kinds = printed.iter().map(|it| kind(of(it)));
        kinds.reduce(|one, other| one.farther(other, version)).unwrap_or(PathType::Loc)
    };
    let least = |of: fn(&PrintedGraph) -> f32| printed.iter().map(|it| of(it)).fold(f32::INFINITY, f32::min);
    let mut numbers = printed.iter().map(|it| it.pattern);
    let number = if version >= Version::new(2, 26, 0) { numbers.max() } else { numbers.next() };
    GraphInfo {
        pattern: Pattern::ALL.into_iter().find(|it| Some(it.number()) == number),
        channels: printed.iter().map(|it| it.channels).min().unwrap_or(0),
        bw_intra: least(|it| it.bw_intra),
        bw_inter: least(|it| it.bw_inter),
        type_intra: farthest(|it| &it.type_intra),
        type_inter: farthest(|it| &it.type_inter),
        same_channels: printed.iter().all(|it| it.same_channels),
        #[expect(clippy::cast_possible_truncation, reason = "whole microseconds")]
        latency_inter: latency as f32,
    }
}

/// The model alone, with the graphs that the log has.
fn check_model(recorded: &Job) -> Score {
    let (mut score, name, version) = (Score::default(), &recorded.name, recorded.settings.version);
    if recorded.placement.is_some() {
        // Not every node prints every graph.
        return score;
    }
    let ranks = decided(&recorded.text());
    let first = ranks.iter().find(|it| it.rank == Some(0)).expect("rank 0");
    let (Some(nodes), Some(count @ 2..)) = (first.nodes, first.ranks) else { return score };
    let machine = &recorded.machine;
    let latency = if nodes > 1 { machine.nics.iter().find_map(|it| it.latency).unwrap_or(0.0) } else { 0.0 };
    let graph = |wanted: fn(Pattern) -> bool| {
        let is_wanted =
            |it: &&PrintedGraph| Pattern::ALL.iter().any(|p| p.number() == it.pattern && wanted(*p));
        let printed: Vec<&PrintedGraph> =
            ranks.iter().filter_map(|it| it.graphs.iter().find(is_wanted)).collect();
        let latency = if printed.first().is_some_and(|it| it.lines.iter().any(|it| it.contains("NET/"))) {
            latency
        } else {
            0.0
        };
        if printed.is_empty() { GraphInfo::NONE } else { join(&printed, latency, version) }
    };
    let graphs = GraphInfos {
        ring: graph(|it| it == Pattern::Ring),
        tree: graph(Pattern::is_tree),
        collnet_direct: GraphInfo::NONE,
        collnet_chain: GraphInfo::NONE,
        nvls: graph(|it| it == Pattern::Nvls),
    };
    let counts = first.counts.expect("channel counts");
    let compute = || machine.gpus.iter().filter_map(|it| it.compute);
    let tuned = Tuned {
        ranks: count,
        nodes,
        local_ranks: ranks.iter().filter_map(|it| it.local_ranks).max().expect("local ranks"),
        min_compute: compute().min().expect("a compute capability"),
        max_compute: compute().max().expect("a compute capability"),
        cpu: machine.sockets[0].maker,
        mixed_cpus: false,
        switches: machine.nvlinks.iter().any(|it| it.to == NvEnd::Switch),
        mnnvl: first.mnnvl,
        channels: counts.coll,
        coll_channels: counts.coll,
        nvls_channels: counts.nvls,
        collnet: None,
    };
    let tuning = Tuning::new(&recorded.settings, &tuned, &graphs).expect("lists that NCCL accepts");
    check_table(&mut score, name, first, &tuning, version);
    let caller = Caller { tuning: &tuning, version, ranks: count };
    for (number, call) in first.calls.iter().enumerate() {
        check_call(&mut score, name, number, call, &caller);
    }
    score
}

#[test]
fn the_model_is_that_of_nccl() {
    let mut score = Score::default();
    // The lines of a log do not tell the heads of CollNet; those jobs are compared from the machine on, below.
    for it in jobs().iter().filter(|it| !it.abilities.collnet) {
        score.add(check_model(it));
    }
    println!("{:#?}", score.counts);
    assert!(score.wrong.is_empty(), "{} differ:\n{}", score.wrong.len(), score.wrong.join("\n"));
}

#[test]
fn everything_is_as_nccl_says() {
    let all = jobs();
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let mut by_release: BTreeMap<Version, Score> = BTreeMap::new();
    std::thread::scope(|scope| {
        let part = |first: usize| -> Vec<(Version, Score)> {
            all.iter().skip(first).step_by(threads).map(|it| (it.settings.version, check(it))).collect()
        };
        let running: Vec<_> = (0..threads).map(|it| scope.spawn(move || part(it))).collect();
        for (version, score) in running.into_iter().flat_map(|it| it.join().expect("no panic")) {
            by_release.entry(version).or_default().add(score);
        }
    });
    for (version, score) in &by_release {
        let shown = |(kind, it): (&&str, &Count)| format!("{kind} {}/{}", it.equal, it.compared);
        println!("{version}: {}", score.counts.iter().map(shown).collect::<Vec<_>>().join(", "));
    }
    println!("{} recordings", all.len());
    let wrong: Vec<&str> = by_release.values().flat_map(|it| it.wrong.iter().map(String::as_str)).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Jobs that ran on one GPU, with one node per rank, over TCP.
#[test]
fn calls_of_jobs_that_ran() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let xml = std::fs::read(folder.join("oracle-one-gpu-nodes/one-gpu-nodes.xml")).expect("a topology");
    let mut machine = evidence::topology::read(&xml).expect("a topology").machine;
    machine.name = None;
    let settings = Settings::new(Version::new(2, 28, 9)).with("NCCL_NET", "Socket");
    let mut score = Score::default();
    for name in ["graph-tuning", "every-collective"] {
        let text = std::fs::read_to_string(folder.join(name).join("job.log")).expect("a log");
        let all = decided(&text);
        let first = all.iter().find(|it| it.rank == Some(0) && !it.table.cells.is_empty()).expect("rank 0");
        let layout = Layout::new(1, 1).on(first.ranks.expect("ranks"));
        let prediction =
            Prediction::new(&nccl::Job::new(&machine, &layout, &settings)).expect("a job that fits");
        let lines: Vec<&str> = text.lines().filter_map(|it| Some(it.split_once(" NCCL INFO ")?.1)).collect();
        for line in prediction.tuning.lines() {
            assert!(lines.contains(&&*line), "{name}: {line}");
        }
        let ranks = first.ranks.expect("ranks");
        let caller = Caller { tuning: &prediction.tuning, version: settings.version, ranks };
        for (number, call) in first.calls.iter().enumerate() {
            check_call(&mut score, name, number, call, &caller);
        }
    }
    assert!(score.wrong.is_empty(), "{:#?}", score.wrong);
    assert!(score.counts["calls"].compared >= 10);
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
        let mut job = nccl::Job::new(&machine, &layout, &settings);
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
