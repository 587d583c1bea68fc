//! A small /dev/shm.

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::{bytes, count};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-shm-small",
    title: "/dev/shm of the node is small or full",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Limits],
    why: "NCCL exchanges data between GPUs of a node through /dev/shm where they cannot reach each other directly, about 10 MB for each channel and \
          direction, and DataLoader workers pass their batches through it. A container has 64 MiB of it by default.",
    fix: "`docker run --shm-size=8g` (or `--ipc=host`); in Kubernetes mount `emptyDir: {medium: Memory}` on /dev/shm; on a host `mount -o \
          remount,size=50% /dev/shm`. Where it is full, remove the files of dead jobs (`rm /dev/shm/nccl-* /dev/shm/torch_*`, when no job runs).",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#shared-memory",
    ],
    checks: &[Check::Node(check)],
};

/// The default of container runtimes, which NCCL's documentation asks to raise to 1 GB.
const DEFAULT: u64 = 64 << 20;
const ENOUGH: u64 = 1_000_000_000;

fn check(state: &NodeState) -> Checked {
    let size = state.memory.shm_bytes.ok_or(Missing(Source::Limits))?;
    let severity = match count(state) {
        0 => Severity::Info,
        1 => Severity::Warning,
        _ if size <= DEFAULT => Severity::Error,
        _ => Severity::Warning,
    };
    if size < ENOUGH {
        let message = format!("/dev/shm has {}, where NCCL asks for 1 GB", bytes(size));
        return Ok(vec![Finding::new(Confidence::Certain, message).severity(severity)]);
    }
    if let Some(free) = state.memory.shm_free_bytes.filter(|it| *it < DEFAULT) {
        let message = format!("/dev/shm is full: {} of {} are free", bytes(free), bytes(size));
        return Ok(vec![
            Finding::new(Confidence::Certain, message).severity(severity.max(Severity::Warning)),
        ]);
    }
    Ok(Vec::new())
}
