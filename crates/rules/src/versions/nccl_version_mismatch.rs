//! Ranks of one job loaded different NCCL releases.

use std::collections::BTreeMap;

use evidence::signals::versions::{BAD_ADDRESS_FAMILY, MISMATCHED_VERSION};
use evidence::{Case, Missing, Quote, Source};

use crate::{Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-version-mismatch",
    title: "ranks use different NCCL releases",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The ranks exchange structures whose layout changes between releases. Older ones do not check: they read nonsense \
          addresses or hang.",
    fix: "Use one image on all nodes. Compare `python -c 'import torch; print(torch.cuda.nccl.version())'` and look for a second \
          libnccl.so in LD_LIBRARY_PATH or LD_PRELOAD.",
    references: &["https://github.com/NVIDIA/nccl/issues/1267", "NCCL src/init.cc (Mismatched NCCL version detected, 2.23+)"],
    check,
};

fn check(case: &Case) -> Result<Vec<Finding>, Missing> {
    let mut versions: BTreeMap<&str, (u32, &Quote)> = BTreeMap::new();
    for process in &case.processes {
        if let Some(seen) = process.facts.version.first() {
            versions.entry(&seen.value).or_insert((0, &seen.quote)).0 += 1;
        }
    }
    let said = case.look_for(&[&MISMATCHED_VERSION, &BAD_ADDRESS_FAMILY], Source::JobOutput)?;
    if versions.len() > 1 {
        let list: Vec<String> = versions.iter().map(|(version, (n, _))| format!("{version} in {n}")).collect();
        let finding = Finding::new(Confidence::Certain, format!("processes loaded different NCCL releases: {}", list.join(", ")));
        return Ok(vec![finding.seen_all(versions.values().map(|it| it.1))]);
    }
    let stated: Vec<_> = said.iter().copied().filter(|it| *it.signal == MISMATCHED_VERSION).collect();
    if let Some(first) = stated.first() {
        let message = format!("NCCL says so itself: ranks {} and {} differ", first.get("a"), first.get("b"));
        return Ok(vec![Finding::new(Confidence::Certain, message).by(case, &stated)]);
    }
    // A nonsense address family is also what a misnamed interface gives in 2.27.
    let named_interface = case.variable("NCCL_SOCKET_IFNAME").next().is_some();
    if said.is_empty() || named_interface {
        return Ok(Vec::new());
    }
    let finding = Finding::new(Confidence::Likely, "a rank received an address with a nonsense family, as from another NCCL release");
    Ok(vec![finding.by(case, &said).or("socket-ifname-not-found")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_when_processes_differ() {
        let log = "a:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nb:1:1 [0] NCCL INFO NCCL version 2.19.3+cuda12.4\n";
        assert_eq!(findings(&RULE, log).len(), 1);
    }

    #[test]
    fn quiet_when_they_agree() {
        quiet(&RULE, "a:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\nb:1:1 [0] NCCL INFO NCCL version 2.20.5+cuda12.4\n");
    }

    #[test]
    fn a_nonsense_family_beside_a_named_interface_is_something_else() {
        let family = "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)\n";
        assert_eq!(findings(&RULE, family).len(), 1);
        quiet(&RULE, &format!("n:1:1 [3] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth2\n{family}"));
    }
}
