//! An adapter has no resources to register GPU memory.

use evidence::Source;
use evidence::signals::p2p::DMABUF_FAILED;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpu-registration-limit",
    title: "GPU memory does not fit into the registrations of an adapter",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "An adapter that reaches GPU memory directly needs an entry for every page of it. Here DMA-BUF is supported, but the \
          registration failed for lack of memory: the buffer is larger than what the GPU shows to PCIe (BAR1), than the limit \
          on locked memory, or than the adapter has entries for.",
    fix: "Use a smaller NCCL_BUFFSIZE (4 MiB is the default), fewer channels and communicators; compare `nvidia-smi -q -d \
          MEMORY` (BAR1); set `ulimit -l unlimited`. NCCL_NET_GDR_LEVEL=LOC runs without GPUDirect.",
    references: &[
        "https://github.com/vllm-project/vllm/issues/19613",
        "NCCL src/misc/ibvwrap.cc (ibv_reg_dmabuf_mr)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&DMABUF_FAILED], Source::JobOutput)?;
    let found: Vec<_> =
        found.into_iter().filter(|it| it.get("why").contains("Cannot allocate memory")).collect();
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let message = "an adapter could not register GPU memory: Cannot allocate memory";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).or("memlock-limit")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_for_lack_of_memory_only() {
        let line = "n:1:2 [0] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Cannot allocate memory\n";
        assert_eq!(findings(&RULE, line).len(), 1);
        quiet(&RULE, &line.replace("Cannot allocate memory", "Operation not supported"));
    }
}
