//! The machine has NVLink, and the ranks do not use it.

use evidence::{Case, Missing, Source};

use super::machine::{Nvlink, counted, host_memory_pairs, nvlink, p2p_off};
use crate::{Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nvlink-unused",
    title: "the GPUs have NVLink, but the ranks do not use it",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Connections],
    why: "NVLink is many times as fast as the way the bytes take now. Peer access is turned off by a setting, or the processes are in \
          containers that cannot see each other's GPUs.",
    fix: "Unset NCCL_P2P_DISABLE and NCCL_P2P_LEVEL. Run all ranks of a node in one container that has all its GPUs: ranks in pods of their \
          own cannot map each other's memory.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/issues/228",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level",
        "NCCL src/misc/utils.cc (getHostHash), src/transport/p2p.cc",
    ],
    check,
};

fn check(case: &Case) -> Result<Vec<Finding>, Missing> {
    case.connections()?;
    if nvlink(case) != Some(Nvlink::Full) {
        return Ok(Vec::new());
    }
    let name = case.instance_name().map_or("this machine", |it| it.0);
    let pairs = host_memory_pairs(case);
    let Some((first, _)) = pairs.first() else { return Ok(Vec::new()) };
    let setting = p2p_off(case);
    let (confidence, reason) = match setting {
        Some((setting, _)) => (Confidence::Certain, format!("{setting} turns peer access off")),
        None => (Confidence::Likely, "nothing in the input says why".to_owned()),
    };
    let message = format!(
        "{} of ranks (first {} and {}) exchange through host memory although {name} has NVLink: {reason}",
        counted(pairs.len(), "pair"),
        first.0,
        first.1
    );
    let finding = Finding::new(confidence, message).seen_all(setting.map(|it| it.1));
    Ok(vec![finding.seen_all(pairs.iter().map(|it| it.1)).or("gpu-isolation-per-process")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const P4D: &str =
        "n:1:1 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d-24xl-topo.xml\n";
    const SHM: &str = "n:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n";

    #[test]
    fn fires_on_an_instance_with_nvlink() {
        assert_eq!(findings(&RULE, &format!("{P4D}{SHM}"))[0].confidence, Confidence::Likely);
    }

    #[test]
    fn names_the_setting() {
        let level = "n:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to LOC\n";
        let found = findings(&RULE, &format!("{P4D}{level}{SHM}"));
        assert!(found[0].message.contains("NCCL_P2P_LEVEL=LOC"), "{}", found[0].message);
        assert_eq!(found[0].confidence, Confidence::Certain);
    }

    #[test]
    fn quiet_without_nvlink_and_where_it_is_used() {
        quiet(&RULE, SHM);
        quiet(&RULE, &format!("{P4D}n:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"));
        let pairs = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV4\tSYS\nGPU1\tNV4\t X \tSYS\nGPU2\tSYS\tSYS\t X \n\n";
        quiet(&RULE, &format!("{pairs}{SHM}"));
    }
}
