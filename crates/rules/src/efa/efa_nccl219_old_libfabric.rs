//! NCCL 2.19 and later allocate with cuMem, which an old libfabric cannot register.

use evidence::Source;
use evidence::signals::efa::{REGISTER_FAILED, SYNC_MEMOPS};
use fabric::Version;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-nccl219-old-libfabric",
    title: "libfabric is too old for the GPU memory of NCCL 2.19 and later",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL allocates its buffers with cuMem since 2.19. The libfabric of EFA installers before 1.29.1 asks CUDA for an attribute \
          that such memory does not have, and refuses to register it.",
    fix: "Install EFA 1.29.1 or later in the image (libfabric 1.19 or later); until then set `FI_EFA_SET_CUDA_SYNC_MEMOPS=0`.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/584",
        "https://github.com/awslabs/awsome-distributed-ai/issues/278",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&SYNC_MEMOPS, &REGISTER_FAILED], Source::JobOutput)?;
    let memops: Vec<_> = found.iter().copied().filter(|it| *it.signal == SYNC_MEMOPS).collect();
    if !memops.is_empty() {
        let message =
            "libfabric cannot set the synchronous attribute on NCCL's GPU memory and refuses to register it";
        return Ok(vec![
            Finding::new(Confidence::Likely, message)
                .by(log, &memops)
                .seen_all(found.iter().map(|it| &it.quote)),
        ]);
    }
    // Type 2 is GPU memory; -22 is an invalid argument. Other codes are about limits or GPUDirect.
    let cut: Vec<_> =
        found.iter().copied().filter(|it| it.get("type") == "2" && it.get("code").is_empty()).collect();
    let refused: Vec<_> =
        found.into_iter().filter(|it| it.get("type") == "2" && it.get("code") == "-22").collect();
    let Some(first) = refused.first() else {
        return Ok(cut
            .first()
            .map(|_| {
                let message = "libfabric refused to register GPU memory; the line is cut before its error";
                Finding::new(Confidence::Possible, message).by(log, &cut).or("memlock-limit")
            })
            .into_iter()
            .collect());
    };
    let libfabric = log.case.processes.iter().find_map(|it| it.facts.plugin.libfabric.first());
    let fixed =
        libfabric.and_then(|it| Version::parse(&it.value)).is_some_and(|it| it >= Version::new(1, 20, 0));
    let older_nccl = log.job.releases.nccl.as_ref().is_some_and(|it| it.value < Version::new(2, 19, 0));
    let confidence = if fixed || older_nccl { Confidence::Possible } else { Confidence::Likely };
    let message = format!(
        "libfabric refused to register GPU memory for EFA device {} (-22, invalid argument)",
        first.get("device")
    );
    let finding = Finding::new(confidence, message).by(log, &refused).seen_all(libfabric.map(|it| &it.quote));
    Ok(vec![finding.about_nic(first.get("device"))])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const REFUSED: &str = "register_mr_buffers:544 NCCL WARN NET/OFI Unable to register memory (type = 2) for device 0. RC: -22, Error: Invalid argument\n";

    #[test]
    fn fires_in_the_words_of_plugin_and_libfabric() {
        assert_eq!(findings(&RULE, REFUSED)[0].confidence, Confidence::Likely);
        let warn = "libfabric:6:17::core:core:cuda_set_sync_memops():207<warn> Failed to perform cuPointerSetAttribute: \
                    CUDA_ERROR_NOT_SUPPORTED:operation not supported\n";
        assert_eq!(findings(&RULE, warn).len(), 1);
    }

    #[test]
    fn a_new_libfabric_makes_it_only_possible() {
        let log = format!("a:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 2.1\na:1:2 [0] {REFUSED}");
        assert_eq!(findings(&RULE, &log)[0].confidence, Confidence::Possible);
    }

    #[test]
    fn host_memory_and_other_codes_are_something_else() {
        quiet(&RULE, &REFUSED.replace("type = 2", "type = 1"));
        quiet(&RULE, &REFUSED.replace("-22, Error: Invalid argument", "-12, Error: Cannot allocate memory"));
    }
}
