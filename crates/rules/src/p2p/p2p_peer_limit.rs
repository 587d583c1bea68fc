//! A GPU has more peers than the driver allows.

use evidence::Source;
use evidence::signals::p2p::TOO_MANY_PEERS;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-peer-limit",
    title: "a GPU has reached the driver's limit of peers",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Without NVSwitch a GPU can have eight peers, counted over all programs of the machine. A node with nine or more GPUs, a display server \
          on all GPUs, or a second library that enables peer access uses them up.",
    fix: "Stop the display server (X, gdm) on the compute GPUs, run one process per GPU rather than one process for all, or use at most \
          eight GPUs of the node in one communicator (CUDA_VISIBLE_DEVICES). NCCL_P2P_LEVEL=PIX or NCCL_P2P_DISABLE=1 makes NCCL itself \
          use fewer.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/241",
        "https://github.com/NVIDIA/nccl/issues/51",
        "https://github.com/NVIDIA/nccl/issues/1874",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&TOO_MANY_PEERS], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let gpus = log.case.tests.iter().filter_map(|it| it.n_gpus).max().filter(|it| *it > 8);
    let message = match gpus {
        Some(n) => format!("peer mapping resources are exhausted with {n} GPUs in one process"),
        None => "peer mapping resources are exhausted".to_owned(),
    };
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_in_nccl_and_tensorflow() {
        let nccl = "[2025-06-20 02:14:03] n:1:1 [0] allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'\n";
        let tensorflow = "W gpu_device.cc:1597] Unable to enable peer access between device ordinals 0 and 9: CUDA_ERROR_TOO_MANY_PEERS\n";
        for line in [nccl, tensorflow] {
            assert_eq!(findings(&RULE, line).len(), 1);
        }
    }

    #[test]
    fn quiet_on_other_peer_errors() {
        quiet(&RULE, "Cuda failure 217 'peer access is not supported between these two devices'\n");
    }
}
