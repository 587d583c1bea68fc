//! Offload to the host where the GPUs have much memory.

use fabric::catalogue::Model;
use job::submitted::{Submitted, SubmittedSize};

use super::config::{REFERENCE, configs};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "offload-with-room",
    title: "offload to the host although the GPUs may have room",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[],
    why: "With offload, parameters or optimizer states cross PCIe in every step and Adam runs on the CPU, where torchrun gives each \
          process one thread. If the states fit into the memory of all GPUs together, training without offload is faster.",
    fix: "Try without offload_param first, then without offload_optimizer; keep them only if memory runs out.",
    references: &[REFERENCE, "https://arxiv.org/abs/1910.02054"],
    checks: &[Check::Submission(check)],
};

/// Bytes of a parameter in mixed precision with Adam: 2 + 2 for weights and gradients, 12 for the optimizer (`ZeRO`, section 3.1).
const BYTES_PER_PARAMETER: f64 = 16.0;
/// The share of GPU memory for states; the rest is for activations and buffers.
const SHARE: f64 = 0.5;

fn check(submitted: &Submitted<'_>) -> Checked {
    let known = submitted.only_job().and_then(|it| it.size().zip(it.machine()));
    let Some((size, machine)) = known else { return Ok(Vec::new()) };
    let Some(memory) = memory(size, machine) else { return Ok(Vec::new()) };
    let mut findings = Vec::new();
    for config in configs(submitted).iter().filter(|it| it.stage() == Some(3)) {
        let offloaded = ["offload_param", "offload_optimizer"].into_iter().find_map(|name| {
            let path = ["zero_optimization", name, "device"];
            config.span(&path).filter(|_| config.text(&path) == Some("cpu")).map(|it| (name, it))
        });
        let Some((name, span)) = offloaded else { continue };
        let billions = memory * SHARE * 1.073_741_824 / BYTES_PER_PARAMETER;
        let message = format!(
            "{name} offloads to the host, but {} x {} have {memory:.0} GiB of GPU memory: half of it holds the states of {billions:.0} billion parameters",
            size.nodes, machine.name
        );
        findings.push(Finding::at(config.file, &span, message).confidence(Confidence::Possible));
    }
    Ok(findings)
}

/// GiB of all GPUs.
#[expect(clippy::cast_precision_loss, reason = "GPUs of a job are few")]
fn memory(size: SubmittedSize, machine: &Model) -> Option<f64> {
    Some(machine.gpu.memory?.0 * size.ranks() as f64)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::deepspeed::config::testing::{beside, job};
    use crate::lint::testing::quiet;

    #[test]
    fn the_memory_of_the_job_is_named() {
        let text = "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\", \"pin_memory\": true}}}";
        let found = beside(&RULE, text, &job(2, "p5.48xlarge"));
        assert_eq!(
            found[0].message,
            "offload_param offloads to the host, but 2 x p5.48xlarge have 1280 GiB of GPU memory: half of it holds the states of 43 billion parameters"
        );
        assert!(beside(&RULE, &text.replace("cpu", "none"), &job(2, "p5.48xlarge")).is_empty());
        quiet(&RULE, text);
    }
}
