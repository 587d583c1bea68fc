//! Each invariant, broken and not.

use super::{Invariant, LARGEST};
use crate::Job;
use crate::testing::case;

fn broken(log: &str) -> Vec<Invariant> {
    let found = Job::of_case(&case(log)).violations;
    assert!(found.iter().all(|it| !it.quotes.is_empty()), "{found:?}");
    found.into_iter().map(|it| it.invariant).collect()
}

/// A rank that is set up, with its place in the job.
fn rank(host: &str, rank: u32, n: u32, bus: u32, layout: &str) -> String {
    let start = format!(
        "{host}:{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x{rank}1 rank {rank} nranks {n} cudaDev {rank} nvmlDev 0 busId {bus}000 commId 0x9 - Init START\n"
    );
    match layout {
        "" => start,
        _ => format!(
            "{start}{host}:{rank}:9 [0] NCCL INFO comm 0x{rank}1 rank {rank} nRanks {n} {layout} MNNVL 0\n"
        ),
    }
}

fn link(host: &str, rank: u32, to: u32, via: &str) -> String {
    format!("{host}:{rank}:9 [0] NCCL INFO Channel 00/0 : {rank}[0] -> {to}[0] [send] via {via}\n")
}

#[test]
fn a_job_that_agrees_with_itself() {
    let one = "nNodes 1 localRanks 2 localRank";
    let log = rank("a", 0, 2, 1, &format!("{one} 0")) + &rank("a", 1, 2, 2, &format!("{one} 1"));
    assert_eq!(broken(&(log + &link("a", 0, 1, "P2P/IPC"))), []);
    let two = "nNodes 2 localRanks 1 localRank 0";
    let log = rank("a", 0, 2, 1, two) + &rank("b", 1, 2, 1, two);
    assert_eq!(broken(&(log + &link("a", 0, 1, "NET/Socket/0"))), []);
    // NCCL_HOSTID on one machine.
    let log = rank("a", 0, 2, 1, two) + &rank("a", 1, 2, 1, two);
    assert_eq!(broken(&(log + &link("a", 0, 1, "NET/Socket/0"))), []);
}

#[test]
fn a_rank_has_one_process() {
    let second = rank("b", 0, 2, 1, "").replace("0x01", "0x77");
    let found = broken(&(rank("a", 0, 2, 1, "") + &second));
    let processes = vec![0, 1];
    assert_eq!(found, [Invariant::RankOfTwoProcesses { communicator: "0x9".into(), rank: 0, processes }]);
    // The same process, once with another prefix.
    assert_eq!(broken(&(rank("a", 0, 2, 1, "") + &rank("b", 0, 2, 1, ""))), []);
}

#[test]
fn sizes_and_numbers_are_possible() {
    let differ = broken(&(rank("a", 0, 2, 1, "") + &rank("b", 1, 4, 1, "")));
    assert_eq!(differ, [Invariant::SizesDiffer { communicator: "0x9".into(), sizes: vec![2, 4] }]);
    assert_eq!(broken(&rank("a", 9, 8, 1, "")), [Invariant::RankBeyondSize { rank: 9, size: 8 }]);
    let billion = 1_000_000_000;
    assert_eq!(broken(&rank("a", 0, billion, 1, "")), [Invariant::SizeImplausible { size: billion }]);
    assert_eq!(broken(&rank("a", 0, LARGEST, 1, "")), []);
    let impossible = rank("a", 0, 2, 1, "nNodes 3 localRanks 1 localRank 0");
    assert_eq!(broken(&impossible), [Invariant::LayoutImpossible { rank: 0 }]);
    let counts = rank("a", 0, 3, 1, "nNodes 2 localRanks 1 localRank 0")
        + &rank("b", 1, 3, 1, "nNodes 3 localRanks 1 localRank 0");
    assert_eq!(
        broken(&counts),
        [Invariant::NodeCountsDiffer { communicator: "0x9".into(), nodes: vec![2, 3] }]
    );
}

#[test]
fn a_gpu_has_one_rank_of_a_node() {
    let log = rank("a", 0, 2, 1, "") + &rank("a", 1, 2, 1, "");
    assert_eq!(broken(&log), []);
    let refused = format!("{log}a:1:9 [0] NCCL INFO init.cc:1 -> 5\n");
    let want = Invariant::GpuOfTwoRanks { host: "a".into(), bus_id: 0x1000, ranks: [0, 1] };
    assert_eq!(broken(&refused), [want]);
    let failed = format!("{log}a:1:9 [0] NCCL INFO init.cc:1 -> 2\n");
    assert_eq!(broken(&failed), []);
}

#[test]
fn hosts_agree_with_nodes() {
    let one = "nNodes 1 localRanks 2 localRank 0";
    let log = rank("a", 0, 2, 1, one) + &rank("b", 1, 2, 2, one);
    let hosts = vec!["a".into(), "b".into()];
    assert_eq!(broken(&log), [Invariant::MoreHostsThanNodes { communicator: "0x9".into(), nodes: 1, hosts }]);
    assert_eq!(broken(&format!("{log}b:1:9 [0] NCCL INFO NCCL_HOSTID set by environment to x\n")), []);
    let two = "nNodes 2 localRanks 1 localRank 0";
    let address = |rank: u32| format!("n:{rank}:9 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.{rank}<0>\n");
    let log = rank("n", 1, 2, 1, two) + &address(1) + &rank("n", 0, 2, 1, two) + &address(0);
    assert_eq!(broken(&log), [Invariant::MoreNodesThanHosts { nodes: 2, hosts: 1, host: "n".into() }]);
}

#[test]
fn links_stay_where_they_belong() {
    let one = "nNodes 1 localRanks 2 localRank 0";
    let log = rank("a", 0, 2, 1, one) + &rank("a", 1, 2, 2, one) + &link("a", 0, 1, "NET/Socket/0");
    let want = |pairs| Invariant::NetworkInsideNode { ranks: [0, 1], via: "NET/Socket/0".into(), pairs };
    assert_eq!(broken(&log), [want(1)]);
    let log = rank("a", 0, 2, 1, "") + &rank("b", 1, 2, 2, "") + &link("a", 0, 1, "SHM/direct/direct");
    assert_eq!(
        broken(&log),
        [Invariant::InsideAcrossHosts {
            ranks: [0, 1],
            hosts: ["a".into(), "b".into()],
            via: "SHM/direct/direct".into()
        }]
    );
    let log = link("a", 0, 1, "NET/Socket/0") + &link("a", 0, 1, "NET/Libfabric/0");
    assert_eq!(
        broken(&log),
        [Invariant::TwoNetworks { ranks: [0, 1], networks: ["Socket".into(), "Libfabric".into()] }]
    );
}

#[test]
fn devices_are_there() {
    let log = rank("a", 5, 8, 1, "nNodes 1 localRanks 8 localRank 5");
    let matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n";
    let want = Invariant::MoreRanksThanGpus { ranks: 8, gpus: 2, source: "nvidia-smi topo -m".into() };
    assert_eq!(broken(&format!("{log}{matrix}")), [want]);
    let want = Invariant::DeviceNotVisible { rank: 5, device: 5, visible: "0,1".into() };
    assert_eq!(broken(&format!("{log}CUDA_VISIBLE_DEVICES=0,1\n")), [want]);
    assert_eq!(broken(&format!("{log}CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n")), []);
}
