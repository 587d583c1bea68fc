//! Ranks inside real launchers: Open MPI's mpirun, MPICH's mpiexec, Slurm's srun.

mod lines;

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use testbed::{Folder, Node, Slurm, free_port, need, output, unlaunched};

const WHOAMI: &str = env!("CARGO_BIN_EXE_whoami");

const OPEN_MPI: &str = "Open MPI's mpirun";
const PMI: &str = "a PMI process manager";
const PMIX: &str = "a PMIx process manager";

#[track_caller]
fn check(output: &Output, ranks: usize, launcher: &str, rendezvous: &str) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    lines::check(&output.stdout, ranks, launcher, rendezvous);
}

/// Open MPI 4 makes a folder in /tmp that all its jobs of a host share, and removes it at the end: one after the other.
fn alone(mpirun: &mut Command) -> Output {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    output(mpirun)
}

fn mpirun(ranks: usize) -> Command {
    let mut mpirun = unlaunched(need("mpirun.openmpi"));
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    mpirun
}

fn mpiexec(ranks: usize) -> Command {
    let mut mpiexec = unlaunched(need("mpiexec.mpich"));
    mpiexec.args(["-np", &ranks.to_string()]);
    mpiexec
}

#[test]
fn open_mpi() {
    check(&alone(mpirun(3).arg(WHOAMI)), 3, OPEN_MPI, "KeyValueStore");
}

#[test]
fn open_mpi_without_pmix() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "PMIX_RANK"]).arg(WHOAMI);
    check(&alone(&mut mpirun), 3, OPEN_MPI, "Endpoint");
}

#[test]
fn open_mpi_with_an_address() {
    let port = free_port().to_string();
    let mut mpirun = mpirun(3);
    mpirun.args(["-x", "MASTER_ADDR=127.0.0.1", "-x", &format!("MASTER_PORT={port}")]).arg(WHOAMI);
    check(&alone(&mut mpirun), 3, OPEN_MPI, "Endpoint");
}

#[test]
fn pmix_alone() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "OMPI_COMM_WORLD_RANK"]).arg(WHOAMI);
    check(&alone(&mut mpirun), 3, PMIX, "KeyValueStore");
}

#[test]
fn mpich() {
    check(&output(mpiexec(3).arg(WHOAMI)), 3, PMI, "KeyValueStore");
}

#[test]
fn mpich_with_a_port() {
    check(&output(mpiexec(3).arg("-pmi-port").arg(WHOAMI)), 3, PMI, "KeyValueStore");
}

#[test]
fn one_rank() {
    check(&alone(mpirun(1).arg(WHOAMI)), 1, OPEN_MPI, "Endpoint");
    check(&output(mpiexec(1).arg(WHOAMI)), 1, PMI, "Endpoint");
}

/// Slurm with two nodes on loopback.
fn slurm_here(folder: &Folder) -> Slurm {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
    let node = |name: &str| Node {
        name: name.to_owned(),
        host: host.clone(),
        address: "127.0.0.1".to_owned(),
        port: free_port(),
    };
    Slurm::start(folder.path(), &[node("n1"), node("n2")], free_port(), &|_, program| unlaunched(program))
}

#[test]
fn slurm() {
    let folder = Folder::new("slurm");
    let slurm = slurm_here(&folder);
    let srun = |arguments: &[&str]| output(slurm.of(unlaunched(need("srun"))).args(arguments).arg(WHOAMI));
    check(&srun(&["-N1", "-n3"]), 3, "srun", "Endpoint");
    check(&srun(&["-N2", "-n3", "--mpi=pmix"]), 3, "srun", "KeyValueStore");
    check(&srun(&["-N2", "-n3", "--mpi=pmi2"]), 3, PMI, "KeyValueStore");
    let rendezvous = format!("--export=ALL,PLUMB_RENDEZVOUS=127.0.0.1:{}", free_port());
    check(&srun(&["-N2", "-n5", &rendezvous]), 5, "srun", "Endpoint");
    // A shell in an allocation is no rank.
    let shell = output(slurm.of(unlaunched(need("salloc"))).args(["-N2", "-n3", WHOAMI]));
    assert!(String::from_utf8_lossy(&shell.stderr).contains("no launcher"), "{shell:?}");
}
