//! Every path line of real NCCL on described machines.

mod common;

use std::collections::BTreeMap;

use common::{Recording, oracle_machine, recordings};
use fabric::Version;
use fabric::machine::{BusId, Machine};
use nccl::{Device, Path, PathType, Paths, Seat, Settings};

/// The ends of a path line and the paths it tells: `GPU/0-201c0 :GPU/0-201d0 (2/240.0/NVL) NVS/0-0 (1/240.0/NVL) `.
fn path_line(line: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let (_, line) = line.split_once("NCCL INFO ")?;
    let (from, rest) = line.split_once(" :")?;
    if !from.starts_with("GPU/") && !from.starts_with("NET/") {
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
    let mut settings = Settings::new(Version::new(2, 28, 9)).with("NCCL_NET", "Libfabric");
    for (name, value) in recording.environment {
        settings = settings.with(name, value);
    }
    let lines: BTreeMap<&str, Vec<(&str, &str)>> = recording.text.lines().filter_map(path_line).collect();
    let seats: Vec<Seat> = lines
        .keys()
        .filter(|it| it.starts_with("GPU/"))
        .map(|it| match device(&machine, it) {
            Device::Gpu(gpu) => Seat { gpu, number: machine.gpus[gpu].index },
            _ => unreachable!("filtered"),
        })
        .collect();
    let paths = Paths::with_seats(&machine, &settings, &seats).expect("a machine of usual size");
    let (mut compared, mut wrong) = (0, Vec::new());
    for (from, tos) in &lines {
        for (to, want) in tos {
            let got = paths.between(device(&machine, from), device(&machine, to));
            compared += 1;
            if got.to_string() != *want {
                wrong.push(format!("{}: {from} -> {to}: NCCL {want}, here {got}", recording.name));
            }
        }
    }
    (compared, wrong)
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
    assert!(compared > 2000, "{compared}");
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
