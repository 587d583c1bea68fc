//! RCCL: AMD's library, which prints most lines of NCCL and some of its own.

use super::Signal;
use crate::source::Kind;

/// RCCL names itself.
pub static RCCL: Signal = Signal {
    name: "rccl",
    templates: &["RCCL version : {version}", "RCCL version {version}+hip{hip}"],
    source: "RCCL src/init.cc, showVersion; `RCCL version 2.17.1+hip5.7` up to 2.20",
    meaning: "The library is RCCL, AMD's version of NCCL.",
    kind: Kind::NcclLog,
};

/// Lines that only RCCL and AMD's run time print.
pub static ROCM: Signal = Signal {
    name: "rocm",
    templates: &[
        "HIP version  : {version}",
        "ROCm version : {version}",
        "Librccl path : {path...}",
        "librccl.so{version}",
        "librccl-net.so",
        "NCCL INFO ROCr version {version}",
        "NCCL INFO Hipruntime version: {version...}",
    ],
    source: "RCCL src/init.cc, showVersion and rcclCheckVersions; src/misc/rocmwrap.cc",
    meaning: "The job runs on AMD GPUs: a release of HIP or ROCm, or a library of RCCL.",
    kind: Kind::NcclLog,
};

/// Lines of a normal start of RCCL.
pub static RCCL_ROUTINE: Signal = Signal {
    name: "rccl-routine",
    templates: &[
        "NCCL INFO Kernel version: {version...}",
        "NCCL INFO Dmabuf feature disabled without NCCL_DMABUF_ENABLE=1",
        "NCCL INFO initialized internal alternative rsmi functionality",
        "NCCL INFO [node_id = {node}; gpu_id = {gpu}; unique_id = {id...}",
    ],
    source: "RCCL src/init.cc, src/misc/rocmwrap.cc, src/misc/rocm_smi_wrap.cc, read in ROCm/rccl-tests issue 163",
    meaning: "RCCL describes the machine.",
    kind: Kind::NcclLog,
};

/// A setting that RCCL misses.
pub static RCCL_ADVICE: Signal = Signal {
    name: "rccl-advice",
    templates: &[
        "Missing \"{setting}\" from kernel command line which can lead to {effect...}",
        "Missing \"{setting}\" from environment which can lead to {effect...}",
    ],
    source: "RCCL src/init.cc, read in ROCm/rccl issue 1026",
    meaning: "RCCL advises a setting of the kernel or the environment.",
    kind: Kind::NcclLog,
};

/// All signals of this file.
pub static ALL: &[&Signal] = &[&RCCL, &ROCM, &RCCL_ROUTINE, &RCCL_ADVICE];
