//! Memory that NCCL makes with cuMem cannot be created or shared here.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cumem-not-working",
    title: "memory made with cuMem does not work here",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Since 2.19 NCCL makes its buffers with the cuMem functions of CUDA and passes them between processes as file \
          descriptors (host memory too since 2.24). Some drivers, virtual machines, WSL and locked-down containers do not \
          support that.",
    fix: "Set NCCL_CUMEM_ENABLE=0 on all ranks, and NCCL_CUMEM_HOST_ENABLE=0 where the failure is in transport/shm.cc; if \
          that cures it, keep it or update the driver. In a container also check `ulimit -n` and the seccomp profile; all \
          ranks of a node need the same driver.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1838",
        "https://github.com/NVIDIA/nccl/issues/1653",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-cumem-enable",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::CuMem);
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let file = first.file.rsplit('/').next().unwrap_or_default();
    let what = match file {
        "shm.cc" => "host memory of another rank could not be mapped with cuMem",
        "p2p.cc" => "GPU memory of another rank could not be mapped",
        "" => "memory could not be passed between processes",
        _ => "GPU memory could not be created with cuMem",
    };
    let confidence = match first.value.code {
        217 | 304 | 801 | 999 => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let message = format!("{what}: {}", first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    let finding = Finding::new(confidence, message).by(log, &lines);
    Ok(vec![if file == "shm.cc" {
        finding.fix(
            "Set NCCL_CUMEM_HOST_ENABLE=0 on all ranks, or update the driver. NCCL_P2P_DISABLE=1 does not help: the ranks already use \
             shared memory.",
        )
    } else {
        finding
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn the_file_decides() {
        let shm = "n:1:2 [0] transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'\n";
        let found = findings(&RULE, shm);
        assert!(found[0].fix.as_ref().is_some_and(|it| it.contains("NCCL_CUMEM_HOST_ENABLE=0")));
        assert_eq!(ids(shm)[0], "cumem-not-working");
        assert!(!ids(shm).contains(&"p2p-not-supported"));
        assert_eq!(ids(&shm.replace("shm.cc", "p2p.cc"))[0], "p2p-not-supported");
        let alloc = "n:1:2 [0] include/alloc.h:112 NCCL WARN Cuda failure 999 'unknown error'\n";
        assert_eq!(
            findings(&RULE, alloc)[0].message,
            "GPU memory could not be created with cuMem: unknown error (CUDA error 999)"
        );
        quiet(&RULE, "n:1:2 [0] proxy.cc:1 NCCL WARN Cuda failure 999 'unknown error'\n");
    }
}
