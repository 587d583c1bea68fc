//! The machine itself limits the bandwidth between its GPUs.

use evidence::plain::{GpuPath, TopologyMatrix};
use evidence::{Missing, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "topology-limited",
    title: "NVLink joins the GPUs only within groups, or not at all",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::TopologyMatrix],
    why: "A ring over GPUs runs at the speed of its slowest link. Where NVLink joins only pairs, or none, that link is PCIe through the CPU: \
          about 20 GB/s for three GPUs and more where a pair alone reaches 200. It is the hardware, not a fault.",
    fix: "No setting changes it. Keep the heaviest traffic inside a group (tensor parallel of the group's size), or use a machine with \
          NVSwitch.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/issues/178",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    if log.case.matrices.is_empty() {
        return Err(Missing(Source::TopologyMatrix));
    }
    // Another rule reports a machine that should have NVLink everywhere and has lost it.
    if log.expected().is_some_and(|it| it.named && it.machine.has_nvswitch()) {
        return Ok(Vec::new());
    }
    Ok(log.case.matrices.iter().filter(|it| !it.hides_nvlink).find_map(limited).into_iter().collect())
}

fn limited(matrix: &TopologyMatrix) -> Option<Finding> {
    let gpus = matrix.columns.iter().filter(|it| it.starts_with("GPU")).count();
    let (nvlink, other): (Vec<_>, Vec<_>) = matrix.gpu_paths().partition(GpuPath::is_nvlink);
    let far = other.iter().find(|it| matches!(it.path, "NODE" | "SYS" | "SOC" | "PHB"))?;
    if gpus < 2 {
        return None;
    }
    let message = match nvlink.first() {
        Some(GpuPath { from, to, path }) => {
            // The number of GPUs that the first one reaches by NVLink is the size of a group.
            let group = 1 + nvlink.iter().filter(|it| it.from == *from).count();
            format!(
                "NVLink joins {gpus} GPUs in groups of {group} only ({from} and {to}: {path}); between groups the path is {}",
                far.path
            )
        }
        None => format!("{gpus} GPUs without NVLink: {} and {} are joined by {}", far.from, far.to, far.path),
    };
    Some(Finding::new(Confidence::Certain, message).seen(&matrix.quote))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::findings;

    #[test]
    fn pairs_of_nvlink() {
        let matrix = "        GPU0    GPU1    GPU2    GPU3    CPU Affinity\n\
                      GPU0     X      NV12    NODE    NODE    0-31\n\
                      GPU1    NV12     X      NODE    NODE    0-31\n";
        let found = findings(&RULE, matrix);
        assert_eq!(
            found[0].message,
            "NVLink joins 4 GPUs in groups of 2 only (GPU0 and GPU1: NV12); between groups the path is NODE"
        );
    }

    #[test]
    fn no_nvlink_at_all() {
        let found = findings(&RULE, "GPU0 GPU1 CPU\nGPU0  X  NODE 0-47\nGPU1 NODE  X  0-47\n");
        assert_eq!(found[0].message, "2 GPUs without NVLink: GPU0 and GPU1 are joined by NODE");
    }

    #[test]
    fn quiet_when_all_are_joined() {
        assert!(findings(&RULE, "GPU0 GPU1 NIC0\nGPU0  X  NV18 SYS\nGPU1 NV18  X  SYS\n").is_empty());
    }
}
