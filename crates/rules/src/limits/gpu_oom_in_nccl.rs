//! NCCL could not allocate GPU memory.

use evidence::Source;
use evidence::signals::limits::{GPU_ALLOCATION_FAILED, GPU_OOM_IN_NCCL, GPU_OOM_IN_TESTS};

use crate::cuda::failures;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-oom-in-nccl",
    title: "the GPU has no memory left for NCCL",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL allocates its own buffers on the GPU, a few MiB for each channel and peer, in addition to the framework's memory. If the \
          model has taken all of it, the next communicator or the first collective fails, and the other ranks only see closed connections.",
    fix: "Leave a few GB of GPU memory free: a smaller batch or shard, `torch.cuda.set_per_process_memory_fraction(0.95)`, vLLM \
          `--gpu-memory-utilization 0.85`. Check with nvidia-smi that no other process uses the GPU. Create communicators before the \
          memory fills up, and create fewer of them. NCCL itself needs less memory with a smaller NCCL_BUFFSIZE (4 MiB by default) or \
          NCCL_MAX_NCHANNELS.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1235",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-buffsize",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found =
        log.find_signals(&[&GPU_OOM_IN_NCCL, &GPU_OOM_IN_TESTS, &GPU_ALLOCATION_FAILED], Source::JobOutput)?;
    let said = found.iter().any(|it| *it.signal != GPU_ALLOCATION_FAILED);
    // NCCL reports a failed allocation after any CUDA error; only this one means that the GPU is full.
    if !said && failures(log).next().is_some() {
        return Ok(Vec::new());
    }
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let confidence = if said { Confidence::Certain } else { Confidence::Possible };
    let who = log
        .case
        .process_of(first)
        .map(evidence::Process::name)
        .or_else(|| first.rank.map(|it| format!("rank {it}")));
    let who = who.unwrap_or_else(|| "a rank".to_owned());
    let bytes = found.iter().find_map(|it| it.get("bytes").split(' ').next_back()?.parse::<u64>().ok());
    let message = match bytes {
        Some(bytes) => format!("{who} could not allocate {bytes} bytes of GPU memory for NCCL"),
        None if *first.signal == GPU_OOM_IN_TESTS => {
            "the buffers of nccl-tests do not fit into GPU memory".to_owned()
        }
        None => format!("{who} could not allocate GPU memory for NCCL"),
    };
    Ok(vec![Finding::new(confidence, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_every_form() {
        let old = "n:1:2 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n\
                   n:1:2 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes\n";
        assert_eq!(
            findings(&RULE, old)[0].message,
            "process 1 on n could not allocate 6291456 bytes of GPU memory for NCCL"
        );
        let new = "[rank0]: Failed to CUDA calloc async 1216 bytes\n";
        assert_eq!(
            findings(&RULE, new)[0].message,
            "rank 0 could not allocate 1216 bytes of GPU memory for NCCL"
        );
        let tests = " n: Test CUDA failure common.cu:891 'out of memory'\n";
        assert_eq!(findings(&RULE, tests)[0].message, "the buffers of nccl-tests do not fit into GPU memory");
    }

    #[test]
    fn another_error_of_the_allocation_is_not_a_lack_of_memory() {
        for error in ["999 'unknown error'", "802 'system not yet initialized'", "304 'OS call failed'"] {
            quiet(
                &RULE,
                &format!(
                    "n:1:2 [3] include/alloc.h:1 NCCL WARN Cuda failure {error}\n\
                     n:1:2 [3] include/alloc.h:2 NCCL WARN Failed to CUDA calloc 4096 bytes\n"
                ),
            );
        }
        let alone = "n:1:2 [3] include/alloc.h:2 NCCL WARN Failed to CUDA malloc 4096 bytes\n";
        assert_eq!(findings(&RULE, alone)[0].confidence, crate::Confidence::Possible);
    }

    #[test]
    fn the_frameworks_own_lack_is_not_nccls() {
        quiet(&RULE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n");
        quiet(&RULE, " Reducing maxBytes to 15534478677 due to memory limitation\n");
    }
}
