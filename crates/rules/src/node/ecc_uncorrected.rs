//! GPU memory with errors that could not be corrected.

use evidence::Source;
use evidence::node::{Gpu, NodeState};

use super::facts::{gpus, name};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-ecc-uncorrected",
    title: "a GPU of the node has uncorrected memory errors",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::GpuDriver],
    why: "A program that reads such memory is ended, and the job with it. Rows that are replaced by spare ones are well again after a reset; where \
          no spare row is left, the GPU is at its end.",
    fix: "Drain the node. With pending rows or volatile errors, reset the GPU (`nvidia-smi -r -i GPU`) or reboot. After a failed remapping, or if \
          errors come back, replace the GPU. `nvidia-smi -q -d ECC,ROW_REMAPPER` shows the counters.",
    references: &["https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    Ok(gpus(state)?.iter().flat_map(of_gpu).collect())
}

fn of_gpu(gpu: &Gpu) -> Vec<Finding> {
    let name = name(gpu);
    let rows = gpu.remapped_rows.unwrap_or_default();
    let volatile = gpu.ecc.and_then(|it| it.volatile_uncorrected).unwrap_or(0);
    let say = |message: String| Finding::new(Confidence::Certain, message).about_gpu(gpu.index);
    let mut found = Vec::new();
    if rows.failed == Some(true) {
        found.push(say(format!("{name} could not replace a broken row of its memory: no spare row is left")));
    }
    if volatile > 0 {
        let errors = if volatile == 1 {
            "1 uncorrected memory error"
        } else {
            &*format!("{volatile} uncorrected memory errors")
        };
        found.push(say(format!("{name} had {errors} since the driver was loaded")));
    } else if rows.pending == Some(true) {
        found.push(
            say(format!("{name} waits for a reset to replace broken rows of its memory"))
                .severity(Severity::Warning),
        );
    }
    if gpu.ecc.is_some_and(|it| it.enabled == Some(false)) {
        let finding = say(format!("ECC is off on {name}: memory errors are neither corrected nor reported"));
        found.push(finding.severity(Severity::Info).fix("`nvidia-smi -e 1 -i GPU`, then reboot."));
    }
    found
}
