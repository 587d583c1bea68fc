//! Settings, commands and the output of small tools, as people paste them beside a log.

use super::Signal;
use crate::source::Kind;

/// An EC2 instance type in a setting.
pub static INSTANCE_TYPE: Signal = Signal {
    name: "instance-type",
    templates: &[
        "INSTANCE_TYPE={type}",
        "instance-type: {type}",
        "instance_type: {type}",
        "instance type: {type}",
        "InstanceType: {type}",
        "\"instanceType\": \"{type}",
    ],
    source: "settings and manifests",
    meaning: "Names the machine the job runs on.",
    kind: Kind::Notes,
};

/// A variable given on a command line or in a settings file.
pub static ASSIGNMENT: Signal = Signal {
    name: "assignment",
    templates: &[
        "NCCL_{name}={value}",
        "FI_{name}={value}",
        "OFI_NCCL_{name}={value}",
        "NCCL_{name}: {value}",
        "RDMAV_{name}={value}",
        "OMP_NUM_THREADS={value}",
        "CUDA_VISIBLE_DEVICES={value}",
        "GLOO_SOCKET_IFNAME={value}",
        "MASTER_ADDR={value}",
        "MASTER_PORT={value}",
    ],
    source: "shell, sbatch, mpirun -x, .env, YAML",
    meaning: "Sets a variable that NCCL, libfabric, the plugin, CUDA or PyTorch reads.",
    kind: Kind::Notes,
};

/// The command that starts a job.
pub static COMMAND: Signal = Signal {
    name: "command",
    templates: &[
        "mpirun -{arguments...}",
        "mpiexec -{arguments...}",
        "srun -{arguments...}",
        "torchrun -{arguments...}",
        "torch.distributed.run -{arguments...}",
        "torch.distributed.launch -{arguments...}",
        "deepspeed -{arguments...}",
    ],
    source: "shell, sbatch",
    meaning: "Starts the ranks of a job.",
    kind: Kind::Notes,
};

/// How many processes a command of several lines starts.
pub static PROCESSES: Signal = Signal {
    name: "processes",
    templates: &[
        "-np {n}",
        "--nproc_per_node={n}",
        "--nproc-per-node={n}",
        "--nproc_per_node {n}",
        "--nproc-per-node {n}",
    ],
    source: "shell, sbatch",
    meaning: "How many processes are started.",
    kind: Kind::Notes,
};

/// How mpirun pins its processes.
pub static BINDING: Signal = Signal {
    name: "binding",
    templates: &["-bind-to {what}", "--bind-to={what}"],
    source: "mpirun",
    meaning: "Which processors each process may use.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&INSTANCE_TYPE, &ASSIGNMENT, &COMMAND, &PROCESSES, &BINDING];
