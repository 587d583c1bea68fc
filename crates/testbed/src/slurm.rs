//! A private Slurm, with a munge of its own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Running, need, output, program, unlaunched};

/// A node of it.
pub struct Node {
    /// As Slurm calls it.
    pub name: String,
    /// The name of the machine it runs on.
    pub host: String,
    /// Where it is reached.
    pub address: String,
    /// Where its daemon listens.
    pub port: u16,
}

/// Slurm, which ends with the test.
pub struct Slurm {
    settings: PathBuf,
    _daemons: Vec<Running>,
}

/// What the nodes offer.
struct Offer {
    /// The plugin that binds tasks.
    tasks: &'static str,
    cpus: u32,
    gpus: u32,
}

impl Slurm {
    /// Starts it, with its files in this folder. `on` makes the command of a program on the node with this index; the
    /// controller, which listens at this port, is on the first.
    pub fn start(
        folder: &Path,
        nodes: &[Node],
        controller: u16,
        on: &dyn Fn(usize, &Path) -> Command,
    ) -> Self {
        Self::start_with(folder, nodes, controller, on, &Offer { tasks: "task/none", cpus: 8, gpus: 0 })
    }

    /// The same on this machine alone, with its real CPUs, to which tasks are bound, and with devices that Slurm takes for GPUs.
    pub fn binding(folder: &Path, node: Node, controller: u16, cpus: u32, gpus: u32) -> Self {
        let on = |_: usize, program: &Path| unlaunched(program);
        Self::start_with(folder, &[node], controller, &on, &Offer { tasks: "task/affinity", cpus, gpus })
    }

    fn start_with(
        folder: &Path,
        nodes: &[Node],
        controller: u16,
        on: &dyn Fn(usize, &Path) -> Command,
        offer: &Offer,
    ) -> Self {
        // For --mpi=pmix; Slurm does not depend on it.
        need("libpmix.so");
        let folder = folder.join("slurm");
        let path = folder.to_str().expect("a path");
        let create = |name: &str| std::fs::create_dir_all(folder.join(name)).expect("a folder");
        create("state");
        create("munge");
        let settings = folder.join("slurm.conf");
        let mut lines = format!(
            "ClusterName=test\nFirstJobId={}\nSlurmctldHost={}({})\nSlurmctldPort={controller}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={path}/munge/socket\nCredType=cred/munge\n\
             StateSaveLocation={path}/state\nSlurmdSpoolDir={path}/spool/%n\nSlurmctldPidFile={path}/controller.pid\n\
             SlurmdPidFile={path}/%n.pid\nSlurmctldLogFile={path}/controller.log\nSlurmdLogFile={path}/%n.log\n\
             TmpFS={path}/tmp/%n\nProctrackType=proctrack/linuxproc\nTaskPlugin={}\n\
             JobAcctGatherType=jobacct_gather/none\nMpiDefault=none\nReturnToService=2\n\
             SlurmdParameters=config_overrides\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n",
            // Jobs of another Slurm on this machine have other numbers, and so other ports.
            std::process::id(),
            nodes[0].host,
            nodes[0].address,
            offer.tasks
        );
        let (cpus, gpus) = (offer.cpus, offer.gpus);
        let devices = if gpus > 0 { format!(" Gres=gpu:{gpus}") } else { String::new() };
        if gpus > 0 {
            lines += "GresTypes=gpu\n";
            let mut files = Vec::new();
            for it in 0..gpus {
                // Slurm takes any character device: this one is /dev/null.
                let file = format!("{path}/nvidia{it}");
                let made = output(program(need("mknod")).args([&file, "c", "1", "3"]));
                assert!(made.status.success(), "{made:?}");
                files.push(format!("Name=gpu File={file}\n"));
            }
            std::fs::write(folder.join("gres.conf"), files.concat()).expect("settings");
        }
        for Node { name, host, address, port } in nodes {
            create(&format!("spool/{name}"));
            create(&format!("tmp/{name}"));
            lines += &format!(
                "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs={cpus}{devices}\n"
            );
        }
        std::fs::write(&settings, lines).expect("settings");
        std::fs::write(folder.join("munge/key"), [7; 1024]).expect("a key");
        for (private, mode) in [("munge", 0o700), ("munge/key", 0o600)] {
            std::fs::set_permissions(folder.join(private), Permissions::from_mode(mode)).expect("it is ours");
        }

        let daemon = |node: usize, program: &str, arguments: &[&str]| {
            Running::start(on(node, &need(program)).args(arguments).env("SLURM_CONF", &settings))
        };
        let file = |option: &str, name: &str| format!("--{option}={path}/munge/{name}");
        let mut daemons = vec![daemon(
            0,
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
        )];
        daemons[0].until("it listens", || folder.join("munge/socket").exists());
        let conf = settings.to_str().expect("a path");
        for (index, node) in nodes.iter().enumerate() {
            daemons.push(daemon(index, "slurmd", &["-D", "-N", &node.name, "-f", conf]));
        }
        daemons.push(daemon(0, "slurmctld", &["-D", "-c", "-f", conf]));
        // What needs munge ends before it.
        daemons.reverse();
        daemons[0].until("all nodes are idle", || {
            let mut sinfo = on(0, &need("sinfo"));
            let states = output(sinfo.args(["-h", "-N", "-o", "%t"]).env("SLURM_CONF", &settings)).stdout;
            String::from_utf8_lossy(&states).split_whitespace().filter(|it| *it == "idle").count()
                == nodes.len()
        });
        Self { settings, _daemons: daemons }
    }

    /// The path that `SLURM_CONF` has to have.
    pub fn settings(&self) -> &str {
        self.settings.to_str().expect("a path")
    }

    /// Makes a program talk to this Slurm.
    pub fn of(&self, mut command: Command) -> Command {
        command.env("SLURM_CONF", &self.settings);
        command
    }
}
