//! Settings, commands and the output of small tools, as people paste them beside a log.

use super::Signal;
use crate::source::Kind;

/// An EC2 instance type in a setting.
pub static INSTANCE_TYPE: Signal = Signal {
    name: "instance-type",
    templates: &["INSTANCE_TYPE={type}", "instance-type: {type}", "instance_type: {type}", "instance type: {type}", "InstanceType: {type}"],
    source: "settings and manifests",
    meaning: "Names the machine the job runs on.",
    kind: Kind::Notes,
};

/// A variable given on a command line or in a settings file.
pub static ASSIGNMENT: Signal = Signal {
    name: "assignment",
    templates: &["NCCL_{name}={value}", "FI_{name}={value}", "OFI_NCCL_{name}={value}", "NCCL_{name}: {value}", "RDMAV_{name}={value}"],
    source: "shell, sbatch, mpirun -x, .env, YAML",
    meaning: "Sets a variable that NCCL, libfabric or the plugin reads.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&INSTANCE_TYPE, &ASSIGNMENT];
