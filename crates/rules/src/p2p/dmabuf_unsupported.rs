//! GPU memory cannot be registered as DMA-BUF.

use evidence::Source;
use evidence::signals::p2p::DMABUF_FAILED;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "dmabuf-unsupported",
    title: "the RDMA stack does not accept GPU memory as DMA-BUF",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Since 2.13, NCCL gives GPU memory to the HCA as a DMA-BUF when the GPU driver and the verbs library report support for it. Here \
          the registration itself failed: the kernel, rdma-core or the HCA driver is too old, or the adapter does not support it.",
    fix: "Set NCCL_DMABUF_ENABLE=0 and load nvidia_peermem (`modprobe nvidia_peermem`) to keep GPUDirect. To use DMA-BUF: Linux 5.12 or \
          later, rdma-core 34 or later, CUDA 11.7 or later with the open GPU kernel modules, and a recent NCCL, which falls back by itself.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/778",
        "NCCL src/misc/ibvwrap.cc (ibv_reg_dmabuf_mr)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&DMABUF_FAILED], Source::JobOutput)?;
    // A lack of memory is another matter than a lack of support.
    let found: Vec<_> =
        found.into_iter().filter(|it| !it.get("why").contains("Cannot allocate memory")).collect();
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let why = first.get("why").trim_start().trim_start_matches("with error ").trim_matches([':', ' ', '.']);
    let message = match why {
        "" => "registering GPU memory as DMA-BUF failed".to_owned(),
        why => format!("registering GPU memory as DMA-BUF failed: {why}"),
    };
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_when_the_registration_fails() {
        let log = "n:1:2 [0] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "registering GPU memory as DMA-BUF failed: Operation not supported"
        );
    }

    #[test]
    fn a_lack_of_memory_is_something_else() {
        quiet(
            &RULE,
            "n:1:2 [0] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Cannot allocate memory\n",
        );
    }

    #[test]
    fn fires_in_ucx() {
        let log = "ib_md.c:300 UCX ERROR ibv_reg_dmabuf_mr(address=0x7f00, length=8192, access=0xf) failed: Operation not supported\n";
        assert_eq!(findings(&RULE, log).len(), 1);
    }

    #[test]
    fn lines_of_plugins_and_nccl_about_it_are_not_a_fault() {
        quiet(&RULE, "n:1:2 [0] NCCL INFO NET/OFI Support for DMA-BUF registrations: false\n");
        quiet(&RULE, "n:1:2 [0] NCCL INFO DMA-BUF is available on GPU device 0\n");
        quiet(
            &RULE,
            "n:1:2 [0] misc/ibvwrap.cc:288 NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory\n",
        );
    }
}
