//! An NCCL release that does not support the Windows Subsystem for Linux.

use evidence::Source;
use evidence::signals::versions::{NO_PCI_PATH, WSL};
use fabric::Version;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "wsl-unsupported-nccl",
    title: "NCCL before 2.11 does not work in WSL",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "NCCL reads the PCI position of each GPU from /sys. WSL 2 does not show GPUs there, and releases before 2.11 give up.",
    fix: "Use NCCL 2.11 or later (PyTorch 1.11 or later). In a virtual machine or container that is not WSL, mount /sys, or describe the \
          machine with NCCL_TOPO_FILE.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/442",
        "https://docs.nvidia.com/cuda/wsl-user-guide/index.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NO_PCI_PATH], Source::NcclLog)?;
    let version = log.job.releases.nccl.as_ref();
    let wsl = log.case.sightings_of(&WSL).next();
    let old = version.is_some_and(|it| it.value < Version::new(2, 11, 0));
    let failed = log.case.processes.iter().any(|it| !it.facts.propagated.is_empty());
    if (version.is_some() && !old) || (found.is_empty() && !(wsl.is_some() && old && failed)) {
        return Ok(Vec::new());
    }
    let release = version.map_or_else(|| "this release".to_owned(), |it| format!("NCCL {}", it.value));
    let message = format!("the GPU is not in /sys, as in WSL, and {release} needs it there");
    // Newer releases print the line too, for devices that they do not need.
    let (confidence, severity) = match (old || wsl.is_some(), failed) {
        (true, _) => (Confidence::Likely, Severity::Error),
        (false, true) => (Confidence::Possible, Severity::Error),
        (false, false) => (Confidence::Possible, Severity::Warning),
    };
    let finding = Finding::new(confidence, message)
        .severity(severity)
        .by(log, &found)
        .seen_all(version.and_then(job::Known::quote));
    let finding = finding.seen_all(wsl.map(|it| &it.quote));
    Ok(vec![if wsl.is_some() { finding } else { finding.or("vm-no-topology") }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const LINE: &str = "pc:9:9 [0] graph/xml.cc:332 NCCL WARN Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0\n";

    #[test]
    fn fires_on_an_old_release() {
        let log = format!("pc:9:9 [0] NCCL INFO NCCL version 2.8.3+cuda11.1\n{LINE}");
        assert_eq!(
            findings(&RULE, &log)[0].message,
            "the GPU is not in /sys, as in WSL, and NCCL 2.8.3 needs it there"
        );
    }

    #[test]
    fn quiet_on_a_newer_release_and_on_the_harmless_line() {
        quiet(&RULE, &format!("pc:9:9 [0] NCCL INFO NCCL version 2.14.3+cuda11.7\n{LINE}"));
        quiet(&RULE, "pc:9:9 [0] NCCL INFO Could not find real path of /sys/class/net/lo/device\n");
    }
}
