//! Ranks inside real launchers: Open MPI's mpirun, MPICH's mpiexec, Slurm's srun.

mod bed;

use std::process::{Command, Output};

use bed::{Daemon, Folder, check_lines, command, example, need, until};

const OPEN_MPI: &str = "Open MPI's mpirun";
const PMI: &str = "a PMI process manager";
const PMIX: &str = "a PMIx process manager";

#[track_caller]
fn check(output: &Output, ranks: usize, launcher: &str, meeting: &str) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check_lines(&output.stdout, ranks, launcher, meeting);
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
    check(&mpirun(3).arg(example("whoami")).output().expect("mpirun"), 3, OPEN_MPI, "Board");
}

#[test]
fn open_mpi_without_pmix() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "PMIX_RANK"]).arg(example("whoami"));
    check(&mpirun.output().expect("mpirun"), 3, OPEN_MPI, "Point");
}

#[test]
fn open_mpi_with_an_address() {
    let port = bed::free_port().to_string();
    let mut mpirun = mpirun(3);
    mpirun.args(["-x", "MASTER_ADDR=127.0.0.1", "-x", &format!("MASTER_PORT={port}")]).arg(example("whoami"));
    check(&mpirun.output().expect("mpirun"), 3, OPEN_MPI, "Point");
}

#[test]
fn pmix_alone() {
    let mut mpirun = mpirun(3);
    mpirun.args(["env", "-u", "OMPI_COMM_WORLD_RANK"]).arg(example("whoami"));
    check(&mpirun.output().expect("mpirun"), 3, PMIX, "Board");
}

#[test]
fn mpich() {
    check(&mpiexec(3).arg(example("whoami")).output().expect("mpiexec"), 3, PMI, "Board");
}

#[test]
fn mpich_with_a_port() {
    check(&mpiexec(3).arg("-pmi-port").arg(example("whoami")).output().expect("mpiexec"), 3, PMI, "Board");
}

#[test]
fn one_rank() {
    check(&mpirun(1).arg(example("whoami")).output().expect("mpirun"), 1, OPEN_MPI, "Point");
    check(&mpiexec(1).arg(example("whoami")).output().expect("mpiexec"), 1, PMI, "Point");
}

/// Two Slurm nodes on loopback.
struct Slurm {
    folder: Folder,
    _daemons: Vec<Daemon>,
}

impl Slurm {
    fn start() -> Self {
        need("slurmctld", &["slurm-wlm", "slurm-client"]);
        need("munged", &["munge"]);
        let folder = Folder::new("slurm");
        let path = folder.0.to_str().expect("a path").to_owned();
        for name in ["state", "spool/n1", "spool/n2", "tmp/n1", "tmp/n2", "munge"] {
            std::fs::create_dir_all(folder.file(name)).expect("a folder");
        }
        std::fs::write(folder.file("munge/key"), [7; 1024]).expect("a key");
        Command::new("chmod")
            .arg("go=")
            .args([folder.file("munge"), folder.file("munge/key")])
            .status()
            .expect("chmod");
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        let name = name.trim();
        let [controller, one, two] = [(); 3].map(|()| bed::free_port());
        let settings = format!(
            "ClusterName=test\nSlurmctldHost={name}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmUser=root\n\
             SlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={path}/munge/socket\nCredType=cred/munge\n\
             StateSaveLocation={path}/state\nSlurmdSpoolDir={path}/spool/%n\nSlurmctldPidFile={path}/controller.pid\n\
             SlurmdPidFile={path}/%n.pid\nSlurmctldLogFile={path}/controller.log\nSlurmdLogFile={path}/%n.log\n\
             TmpFS={path}/tmp/%n\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             NodeName=n1 NodeHostname={name} NodeAddr=127.0.0.1 Port={one} CPUs=8\n\
             NodeName=n2 NodeHostname={name} NodeAddr=127.0.0.1 Port={two} CPUs=8\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        std::fs::write(folder.file("slurm.conf"), settings).expect("settings");
        let settings = format!("{path}/slurm.conf");
        let daemon = |program: &str, arguments: &[&str]| {
            let mut daemon = command(format!("/usr/sbin/{program}"));
            let output = std::fs::File::create(folder.file(&format!("{program}.out"))).expect("a file");
            daemon.args(arguments).env("SLURM_CONF", &settings).stderr(output);
            Daemon(daemon.spawn().expect(program))
        };
        let file = |option: &str, name: &str| format!("--{option}={path}/munge/{name}");
        let munged = daemon(
            "munged",
            &[
                "--foreground",
                "--force",
                &file("key-file", "key"),
                &file("socket", "socket"),
                &file("pid-file", "pid"),
                &file("log-file", "log"),
                &file("seed-file", "seed"),
            ],
        );
        until("munge is up", || folder.file("munge/socket").exists());
        let daemons = vec![
            daemon("slurmd", &["-D", "-N", "n1", "-f", &settings]),
            daemon("slurmd", &["-D", "-N", "n2", "-f", &settings]),
            daemon("slurmctld", &["-D", "-c", "-f", &settings]),
            munged,
        ];
        let this = Self { folder, _daemons: daemons };
        until("both nodes are idle", || {
            let output = this.command("sinfo").args(["-h", "-N", "-o", "%t"]).output().expect("sinfo");
            String::from_utf8_lossy(&output.stdout).split_whitespace().filter(|it| *it == "idle").count() == 2
        });
        this
    }

    fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        command.env("SLURM_CONF", self.folder.file("slurm.conf"));
        command
    }

    fn srun(&self, arguments: &[&str]) -> Output {
        let mut srun = self.command("srun");
        srun.args(arguments).arg(example("whoami")).output().expect("srun")
    }
}

#[test]
fn slurm() {
    let slurm = Slurm::start();
    check(&slurm.srun(&["-N1", "-n3"]), 3, "srun", "Point");
    check(&slurm.srun(&["-N2", "-n3", "--mpi=pmix"]), 3, "srun", "Board");
    check(&slurm.srun(&["-N2", "-n3", "--mpi=pmi2"]), 3, PMI, "Board");
    let meeting = format!("--export=ALL,PLUMB_MEETING=127.0.0.1:{}", bed::free_port());
    check(&slurm.srun(&["-N2", "-n5", &meeting]), 5, "srun", "Point");
    // A shell in an allocation is no rank.
    let whoami = example("whoami");
    let output = slurm.command("salloc").args(["-N2", "-n3"]).arg(whoami).output().expect("salloc");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no launcher"), "{output:?}");
}
