//! The tuning table compared with what NCCL prints, cell by cell.
//!
//! Here the model gets the graphs that NCCL's log has, so that it is compared alone.

#[path = "common/decided.rs"]
mod decided;
#[path = "common/recorded.rs"]
mod recorded;

use std::collections::BTreeMap;

use decided::{Decided, PrintedGraph, decided};
use fabric::machine::{Machine, NvEnd};
use nccl::tuning::{GraphInfo, GraphInfos, Protocol, TUNED, Tuned, Tuning, algorithms, function_name};
use nccl::{Decisions, P2pChannels, P2pScope, PathType, Pattern, p2p_channels};
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

#[test]
fn every_cell_is_as_nccl_prints_it() {
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::new());
    for recorded in recorded() {
        let all = decided(&recorded.text);
        let first = all.iter().find(|it| it.rank == Some(0)).expect("rank 0");
        let tuning = tuning(&recorded, first);
        let names: Vec<&str> = algorithms(recorded.settings.version).iter().map(|it| it.name()).collect();
        assert_eq!(first.table.algorithms, names, "{}", recorded.name);
        let (mut equal, mut compared) = (0, 0);
        for (column, &algorithm) in algorithms(recorded.settings.version).iter().enumerate() {
            for protocol in Protocol::ALL {
                let place = Protocol::ALL.iter().position(|it| *it == protocol).expect("a protocol");
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
        seen.insert(recorded.name.clone(), format!("{equal} of {compared}"));
        for rank in &all {
            assert_eq!(rank.thresholds.as_deref(), Some(&*tuning.thresholds()), "{}", recorded.name);
        }
        // The whole table in NCCL's own form.
        let lines: Vec<&str> = recorded.text.lines().collect();
        for line in tuning.lines() {
            assert!(lines.iter().any(|it| it.ends_with(&line)), "{}: no line {line}", recorded.name);
        }
    }
    println!("{seen:#?}");
    assert!(wrong.is_empty(), "{}\n{seen:#?}", wrong.join("\n"));
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
