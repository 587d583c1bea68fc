//! A program maps a peer's memory where the hardware or the isolation does not allow it.

use evidence::Source;
use evidence::signals::p2p::{GPU_BOUND_TO_TASK, PEER_NOT_SUPPORTED};

use crate::cuda::source_file;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-not-supported",
    title: "peer access is not supported between two GPUs",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL (or another library) chose to let one GPU write into another's memory, and CUDA refused (error 217). Either the GPUs cannot \
          do it (GeForce, different models, different sockets), or each process sees only its own GPU, so that NCCL could not check it \
          beforehand.",
    fix: "Make all GPUs of the node visible in every process (do not set CUDA_VISIBLE_DEVICES to one GPU per process) and choose by local rank: \
          NCCL then sees what is possible. Otherwise set NCCL_P2P_DISABLE=1 for all ranks, also in Ray's runtime_env; for vLLM and SGLang add \
          `--disable-custom-all-reduce`.",
    references: &[
        "https://github.com/horovod/horovod/issues/785",
        "https://github.com/ray-project/ray_lightning/issues/24",
        "https://github.com/rapidsai/dask-cuda/issues/639",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&PEER_NOT_SUPPORTED], Source::JobOutput)?;
    // Some programs only print it and continue. In the shared memory transport it is about host memory.
    let counts = |it: &&evidence::Sighting| {
        let text = &it.quote.text;
        !text.to_ascii_lowercase().contains("warning:")
            && !source_file(text).is_some_and(|it| it.ends_with("shm.cc"))
    };
    let found: Vec<_> = found.into_iter().filter(counts).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let bound: Vec<_> = log.case.sightings_of(&GPU_BOUND_TO_TASK).map(|it| &it.quote).collect();
    let message = "CUDA refused to let one GPU reach another's memory (peer access is not supported)";
    Ok(vec![
        Finding::new(Confidence::Likely, message)
            .by(log, &found)
            .seen_all(bound)
            .or("gpu-isolation-per-process"),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        for line in [
            "n:1:2 [0] transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer access is not supported between these two devices\n",
            "n:1:2 [0] transport/p2p.cu:548 NCCL WARN failed to open CUDA IPC handle : 64 peer access is not supported between these two devices\n",
            "(Runner pid=1) Cuda failure 217 'peer access is not supported between these two devices'\n",
            "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:307 'peer access is not supported between these two devices'\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
    }

    #[test]
    fn remarks_are_no_failure() {
        quiet(
            &RULE,
            "warning: failed to enable p2p on gpu #0: peer access is not supported between these two devices\n",
        );
        quiet(
            &RULE,
            "I tensorflow/core/common_runtime/gpu/gpu_device.cc:847] Peer access not supported between device ordinals 0 and 4\n",
        );
    }
}
