//! Every path line of real NCCL on described machines.

mod common;

use common::{Recording, oracle_machine, recordings};
use fabric::machine::{BusId, Machine};
use nccl::{Device, Path, PathType, Paths};

/// The ends of a path line and the paths it tells: `GPU/0-201c0 :GPU/0-201d0 (2/240.0/NVL) NVS/0-0 (1/240.0/NVL) `.
fn path_line(line: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (_, line) = line.split_once("NCCL INFO ")?;
    let (from, rest) = line.split_once(" :")?;
    if !from.starts_with("GPU/0-") && !from.starts_with("NET/0-") {
        return None;
    }
    // A line is cut at 1,023 bytes: what has no closing parenthesis is not whole.
    let mut paths = Vec::new();
    let mut words = rest.split(' ');
    while let (Some(to), Some(path)) = (words.next(), words.next()) {
        if let Some(path) = path.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
            paths.push((to, path));
        }
    }
    Some((from, paths))
}

fn device(machine: &Machine, text: &str) -> Device {
    let (kind, id) = text.split_once("/0-").expect("a device of one system");
    let number = u64::from_str_radix(id, 16).expect("a hexadecimal number");
    let small = || usize::try_from(number).expect("a small number");
    match kind {
        "GPU" => {
            let bus = Some(BusId(number));
            Device::Gpu(machine.gpus.iter().position(|it| it.bus == bus).expect("a GPU of the machine"))
        }
        "NVS" => Device::Switch,
        "CPU" => Device::Socket(small()),
        "NET" => Device::Nic(small()),
        _ => panic!("{text}"),
    }
}

fn compare(recording: &Recording) -> (usize, Vec<String>) {
    let machine = oracle_machine(recording.machine);
    let job = recording.job();
    let (mut compared, mut wrong) = (0, Vec::new());
    for (from, tos) in recording.text.lines().filter_map(path_line) {
        // The GPUs in a line from a GPU are those of its node; a line from a NIC is compared in the node it tells of.
        let gpus: Vec<Device> =
            tos.iter().filter(|it| it.0.starts_with("GPU/")).map(|it| device(&machine, it.0)).collect();
        let seats =
            |it: &&Paths| -> Vec<Device> { it.gpus().iter().map(|it| Device::Gpu(it.position)).collect() };
        let Some(paths) = job.nodes_of_machine().iter().find(|it| seats(it) == gpus) else {
            wrong.push(format!("{}: NCCL has a node with {gpus:?}", recording.name));
            continue;
        };
        for (to, want) in tos {
            let got = paths.between(device(&machine, from), device(&machine, to));
            compared += 1;
            if got.to_string() != want {
                wrong.push(format!("{}: {from} -> {to}: NCCL {want}, here {got}", recording.name));
            }
        }
    }
    (compared, wrong)
}

/// `nRanks 16 nNodes 2 localRanks 8` of every rank.
#[test]
fn nccl_counts_as_many_nodes() {
    let number = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).expect("a number with this name");
        rest.trim().split(' ').next().and_then(|it| it.parse().ok()).expect("a number")
    };
    for recording in recordings() {
        let job = recording.job();
        let lines: Vec<&str> = recording.text.lines().filter(|it| it.contains(" nNodes ")).collect();
        assert!(!lines.is_empty(), "{}", recording.name);
        for line in lines {
            assert_eq!(
                job.n_nodes(),
                number(line, "nNodes"),
                "{} {}: {line}",
                recording.machine,
                recording.name
            );
            let paths = job.paths(number(line, " rank ")).expect("a rank of the job");
            let local = u64::try_from(paths.gpus().len()).expect("few");
            assert_eq!(local, number(line, "localRanks"), "{} {}: {line}", recording.machine, recording.name);
        }
    }
}

/// `GPU Direct RDMA Enabled for GPU 0 / HCA 0 (distance 4 <= 5), read 0 mode Default`
#[test]
fn gpudirect_is_used_where_nccl_uses_it() {
    let mut seen = 0;
    for recording in recordings() {
        let job = recording.job();
        for line in recording.text.lines() {
            let Some((_, rest)) = line.split_once("GPU Direct RDMA ") else { continue };
            let Some((state, rest)) = rest.split_once(" for GPU ") else { continue };
            let (rank, rest) = rest.split_once(" / HCA ").expect("a NIC");
            let nic: usize = rest.split(' ').next().and_then(|it| it.parse().ok()).expect("a number");
            let rank = rank.parse().expect("a rank");
            let (paths, gpu) = (job.paths(rank).expect("a rank"), job.gpu(rank).expect("a rank"));
            let on = paths.gpudirect(gpu, nic, rest.contains("read 1")).is_on();
            assert_eq!(on, state == "Enabled", "{} {}: {line}", recording.machine, recording.name);
            seen += 1;
        }
    }
    assert!(seen > 500, "{seen}");
}

#[test]
fn every_path_is_as_nccl_found_it() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for recording in recordings() {
        let (count, different) = compare(&recording);
        assert!(count > 0, "{}: no path line", recording.name);
        compared += count;
        wrong.extend(different);
    }
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn a_path_line_is_read() {
    let line =
        "vm:1:1 [0] NCCL INFO GPU/0-201c0 :GPU/0-201c0 (0/5000.0/LOC) NVS/0-0 (1/240.0/NVL) CPU/0-0 (2/1";
    let (from, paths) = path_line(line).expect("a path line");
    assert_eq!(from, "GPU/0-201c0");
    assert_eq!(paths, [("GPU/0-201c0", "0/5000.0/LOC"), ("NVS/0-0", "1/240.0/NVL")]);
    assert_eq!(Path { kind: PathType::Nvl, bandwidth: 240.0, hops: 1 }.to_string(), paths[1].1);
}
