//! Tasks on the hosts of a launcher: rank 0 drives, the others execute.

use std::process::Output;
use std::time::Duration;

use testbed::{Hosts, Running, Signal, need, output, signal, until};

const REMOTE: &str = env!("CARGO_BIN_EXE_remote");

/// Every host once, and no process afterwards.
#[track_caller]
fn check(hosts: &Hosts, output: &Output) {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<&str> = printed.lines().collect();
    lines.sort_unstable();
    let wanted = ["[] on h1", "[] on h2", "[] on h3", "h1 exit code 3", "h2 exit code 3", "h3 exit code 3"];
    assert_eq!(lines, wanted, "{}", String::from_utf8_lossy(&output.stderr));
    nothing_remains(hosts);
}

#[track_caller]
fn nothing_remains(hosts: &Hosts) {
    for (_, it) in hosts.iter() {
        for name in ["remote", "sleep"] {
            until(&format!("no {name} on {}", it.name), || it.processes(name).is_empty());
        }
    }
}

/// A task is no rank of the launcher.
const SCRIPT: &str = "echo \"[$SLURM_PROCID$PMIX_RANK$OMPI_COMM_WORLD_RANK$RANK]\" on $(hostname); exit 3";

#[test]
fn srun() {
    let hosts = Hosts::with_slurm(3);
    check(&hosts, &output(hosts.srun().args(["-N3", "-n3", REMOTE, "inside", SCRIPT])));
    check(&hosts, &output(hosts.srun().args(["-N3", "-n6", "--mpi=pmix", REMOTE, "inside", SCRIPT])));

    // The step is killed in the middle.
    let mut command = hosts.srun();
    command.args(["-N3", "-n3", REMOTE, "inside", "sleep 1000 & sleep 1000"]);
    let running = Running::start(&mut command);
    until("all are busy", || hosts.iter().all(|(_, it)| !it.processes("sleep").is_empty()));
    hosts[1].processes("remote").into_iter().for_each(|it| signal(it, Signal::KILL));
    nothing_remains(&hosts);
    running.finish(Duration::from_secs(60));
}

#[test]
fn open_mpi() {
    let hosts = Hosts::new(3);
    let settings = hosts.ssh();
    let mut mpirun = hosts[1].command(need("mpirun.openmpi"));
    mpirun.args(["--allow-run-as-root", "--oversubscribe", "--mca", "plm", "rsh", "--mca", "plm_rsh_args"]);
    mpirun.arg(format!("-F {settings}"));
    mpirun.args(["--mca", "oob_tcp_if_include", "10.77.0.0/24", "--host", "h1:2,h2:2,h3:2", "-np", "6"]);
    check(&hosts, &output(mpirun.args([REMOTE, "inside", SCRIPT])));
}
