//! A process sees no GPU that it may use.

use evidence::Source;
use evidence::signals::cuda::CUDA_FAILURE;

use super::{Owner, failures_of, who};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-not-available",
    title: "a process has no GPU that it may use",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "CUDA finds no GPU for this process, or the GPU belongs to another process in exclusive mode.",
    fix: "Give the GPU to the container or job (`docker run --gpus all`, `nvidia.com/gpu`, `--gres=gpu`) and check \
          CUDA_VISIBLE_DEVICES. If the GPU is busy: `nvidia-smi -q -d COMPUTE` shows the mode, `nvidia-smi -c 0` allows \
          several processes; end the process that holds it.",
    references: &[
        "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CUDA_FAILURE], Source::JobOutput)?;
    let found = failures_of(log, Owner::Device);
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let message = format!("{} has no GPU that it may use: {}", who(log, first.sighting), first.error());
    let lines: Vec<_> = found.iter().map(|it| it.sighting).collect();
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &lines)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_without_a_device_and_on_a_busy_one() {
        let none = "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 100 'no CUDA-capable device is detected'\n";
        assert_eq!(
            findings(&RULE, none)[0].message,
            "process 1 on n has no GPU that it may use: no CUDA-capable device is detected (CUDA error 100)"
        );
        let busy =
            "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 'all CUDA-capable devices are busy or unavailable'\n";
        assert_eq!(findings(&RULE, busy).len(), 1);
        quiet(&RULE, "n:1:2 [0] init.cc:1 NCCL WARN Cuda failure 101 'invalid device ordinal'\n");
    }
}
