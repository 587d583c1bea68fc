//! Ranks inside real launchers: Open MPI's mpirun, MPICH's mpiexec, Slurm's srun.

mod bed;

use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use bed::slurm::{Node, Slurm};
use bed::{Folder, check_lines, command, example, need};

const OPEN_MPI: &str = "Open MPI's mpirun";
const PMI: &str = "a PMI process manager";
const PMIX: &str = "a PMIx process manager";

#[track_caller]
fn check(output: &Output, ranks: usize, launcher: &str, meeting: &str) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_lines(&output.stdout, ranks, launcher, meeting);
}

/// Open MPI 4 makes a folder in /tmp that all its jobs of a host share, and removes it at the end: one after the other.
fn alone(mpirun: &mut Command) -> Output {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    mpirun.output().expect("mpirun")
}

fn mpirun(ranks: usize) -> Command {
    need("mpirun.openmpi", &["openmpi-bin"]);
    let mut mpirun = command("mpirun.openmpi");
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    mpirun
}

fn mpiexec(ranks: usize) -> Command {
    need("mpiexec.mpich", &["mpich"]);
    let mut mpiexec = command("mpiexec.mpich");
    mpiexec.args(["-np", &ranks.to_string()]);
    mpiexec
}

#[test]
fn open_mpi() {
    check(&alone(mpirun(3).arg(example("whoami"))), 3, OPEN_MPI, "KeyValueStore");
}

#[test]
fn open_mpi_without_pmix() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "PMIX_RANK"]).arg(example("whoami"));
    check(&alone(&mut mpirun), 3, OPEN_MPI, "Endpoint");
}

#[test]
fn open_mpi_with_an_address() {
    let port = bed::port::free_port().to_string();
    let mut mpirun = mpirun(3);
    mpirun.args(["-x", "MASTER_ADDR=127.0.0.1", "-x", &format!("MASTER_PORT={port}")]).arg(example("whoami"));
    check(&alone(&mut mpirun), 3, OPEN_MPI, "Endpoint");
}

#[test]
fn pmix_alone() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "OMPI_COMM_WORLD_RANK"]).arg(example("whoami"));
    check(&alone(&mut mpirun), 3, PMIX, "KeyValueStore");
}

#[test]
fn mpich() {
    check(&mpiexec(3).arg(example("whoami")).output().expect("mpiexec"), 3, PMI, "KeyValueStore");
}

#[test]
fn mpich_with_a_port() {
    check(
        &mpiexec(3).arg("-pmi-port").arg(example("whoami")).output().expect("mpiexec"),
        3,
        PMI,
        "KeyValueStore",
    );
}

#[test]
fn one_rank() {
    check(&alone(mpirun(1).arg(example("whoami"))), 1, OPEN_MPI, "Endpoint");
    check(&mpiexec(1).arg(example("whoami")).output().expect("mpiexec"), 1, PMI, "Endpoint");
}

/// Slurm with two nodes on loopback.
fn slurm_here(folder: &Folder) -> Slurm {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned();
    let node = |name: &str| Node {
        name: name.to_owned(),
        host: host.clone(),
        address: "127.0.0.1".to_owned(),
        port: bed::port::free_port(),
    };
    Slurm::start(&folder.0, &[node("n1"), node("n2")], bed::port::free_port(), &|_, program| command(program))
}

#[test]
fn slurm() {
    let folder = Folder::new("slurm");
    let slurm = slurm_here(&folder);
    let srun = |arguments: &[&str]| {
        let mut srun = slurm.of(command("srun"));
        srun.args(arguments).arg(example("whoami")).output().expect("srun")
    };
    check(&srun(&["-N1", "-n3"]), 3, "srun", "Endpoint");
    check(&srun(&["-N2", "-n3", "--mpi=pmix"]), 3, "srun", "KeyValueStore");
    check(&srun(&["-N2", "-n3", "--mpi=pmi2"]), 3, PMI, "KeyValueStore");
    let meeting = format!("--export=ALL,PLUMB_MEETING=127.0.0.1:{}", bed::port::free_port());
    check(&srun(&["-N2", "-n5", &meeting]), 5, "srun", "Endpoint");
    // A shell in an allocation is no rank.
    let whoami = example("whoami");
    let output = slurm.of(command("salloc")).args(["-N2", "-n3"]).arg(whoami).output().expect("salloc");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no launcher"), "{output:?}");
}
