//! RCCL advises a setting of the kernel or of the environment.

use evidence::Source;
use evidence::signals::p2p::IOMMU_ADVICE;
use evidence::signals::rccl::RCCL_ADVICE;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "rccl-setting-missing",
    title: "RCCL advises a setting of the kernel or the environment",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "RCCL looks at the kernel's command line and at the environment when it starts, and warns where a setting is missing with which AMD's \
          GPUs exchange data faster or more reliably. The job goes on.",
    fix: "Kernel settings go to the boot loader's command line, variables to the environment of every rank. If the job is neither slow nor \
          hangs, nothing has to be done.",
    references: &["https://github.com/ROCm/rccl/issues/1026"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&RCCL_ADVICE], Source::JobOutput)?;
    // Another rule has more to say about the IOMMU's passthrough mode.
    let other = |it: &&&evidence::Sighting| {
        !log.case.sightings_of(&IOMMU_ADVICE).any(|advice| advice.quote.spot == it.quote.spot)
    };
    let found: Vec<_> = found.iter().filter(other).copied().collect();
    let mut settings: Vec<&str> = found.iter().map(|it| it.get("setting")).collect();
    settings.sort_unstable();
    settings.dedup();
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    let message = format!("RCCL misses {}", settings.join(", "));
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_advice_and_leaves_the_iommu_to_its_rule() {
        let log = "n:1:1 [3] /x/src/init.cpp:126 NCCL WARN Missing \"HSA_FORCE_FINE_GRAIN_PCIE=1\" from environment which can lead to low RCCL performance, system instablity or hang!\n\
                   n:1:1 [3] /x/src/init.cpp:122 NCCL WARN Missing \"iommu=pt\" from kernel command line which can lead to system instablity or hang!\n";
        assert_eq!(findings(&RULE, log)[0].message, "RCCL misses HSA_FORCE_FINE_GRAIN_PCIE=1");
        quiet(&RULE, "n:1:1 [0] NCCL INFO Kernel version: 5.15.0-163-generic\n");
    }
}
