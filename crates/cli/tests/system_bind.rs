//! What `plumb topo --bind` prints, pasted: the real launchers start ranks, which say where they run.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::plumb;
use testbed::{Folder, Node, Slurm, free_port, need, output, program, unlaunched};

/// What a rank runs: its number on the machine and its CPUs.
const RANK: &str = "sh -c 'echo rank $SLURM_LOCALID$OMPI_COMM_WORLD_LOCAL_RANK runs on $(taskset -cp $$ | sed \"s/.*: //\")'";

/// Two CPUs that this test may use.
fn cpus() -> [u32; 2] {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|it| it.strip_prefix("Cpus_allowed_list:")).unwrap();
    let all: Vec<u32> = fabric::CpuSet::parse(list).unwrap().iter().take(2).collect();
    all.try_into().expect("this test needs a machine with two CPUs")
}

/// The answer for a machine with two GPUs near these CPUs, the first GPU near the second CPU.
fn pasted(folder: &Folder, launcher: &str) -> String {
    let [a, b] = cpus();
    let matrix = format!(
        "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t{b}\t0\nGPU1\tSYS\t X \t{a}\t1\n"
    );
    let file = folder.file("topo.txt");
    fs::write(&file, matrix).unwrap();
    let answer = plumb(["topo", "--bind", launcher, "--format", "json", file.to_str().unwrap()]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let text = answer.json()["blocks"][0]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("python train.py"), "{text}");
    text.replace("python train.py", RANK)
}

#[track_caller]
fn check(said: &str) {
    let [a, b] = cpus();
    let mut ranks: Vec<&str> = said.lines().filter(|it| it.starts_with("rank ")).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [format!("rank 0 runs on {b}"), format!("rank 1 runs on {a}")], "{said}");
}

#[test]
fn slurm_binds_tasks() {
    let folder = Folder::new("bind-slurm");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let all = fabric::CpuSet::parse(&online).unwrap();
    let count = u32::try_from(all.len()).unwrap();
    let node = Node { name: "n1".to_owned(), host, address: "127.0.0.1".to_owned(), port: free_port() };
    let slurm = Slurm::binding(folder.path(), node, free_port(), count, 2);
    let (script, log) = (folder.file("job.sh"), folder.file("log"));
    fs::write(&script, format!("#!/bin/sh\n{}", pasted(&folder, "slurm"))).unwrap();
    let mut sbatch = slurm.of(unlaunched(need("sbatch")));
    let answer = output(sbatch.arg("--wait").arg("--output").arg(&log).arg(&script));
    let said = fs::read_to_string(&log).unwrap_or_default();
    assert!(answer.status.success(), "{answer:?}\n{said}");
    check(&said);
}

#[test]
fn open_mpi_starts_bound_ranks() {
    let folder = Folder::new("bind-mpirun");
    let mpirun = format!("{} --allow-run-as-root ", need("mpirun.openmpi").display());
    let script = pasted(&folder, "mpirun").replace("mpirun ", &mpirun);
    let mut shell = program("sh");
    let answer = output(shell.arg("-c").arg(&script).current_dir(folder.path()));
    let said = String::from_utf8_lossy(&answer.stdout).into_owned();
    assert!(answer.status.success(), "{answer:?}");
    check(&said);
}
