//! Adapters are used that are not this job's, or that do not belong together.

use evidence::Source;
use evidence::signals::ib::{COMPLETION, INCOMPATIBLE_DEVICES, MODIFY_QP_FAILED, RETRY_EXCEEDED};

use super::blame::{Suspect, blame};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ib-hca-selection",
    title: "NCCL uses adapters that do not belong to this job",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL uses every adapter it sees. In a container these may be virtual functions of other containers, whose network devices are \
          not in this container; on a host, an Ethernet adapter for storage beside InfiniBand ones. Connections through them fail.",
    fix: "Name the adapters: NCCL_IB_HCA==mlx5_0,mlx5_1 (the second `=` requires exact names, a leading `^` excludes). Inside a container, \
          `show_gids` lists those with an address; better, give the container only its own (RDMA namespaces: `rdma system set netns \
          exclusive`).",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/925",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-hca",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(
        &[&INCOMPATIBLE_DEVICES, &COMPLETION, &MODIFY_QP_FAILED, &RETRY_EXCEEDED],
        Source::JobOutput,
    )?;
    let incompatible: Vec<_> = found.into_iter().filter(|it| *it.signal == INCOMPATIBLE_DEVICES).collect();
    if let Some(first) = incompatible.first() {
        let devices = [first.get("devices"), first.get("device")].join("");
        let message = format!(
            "NCCL was to combine adapters of different kinds: {}",
            devices.split(". Try").next().unwrap_or_default()
        );
        return Ok(vec![Finding::new(Confidence::Certain, message).by(log, &incompatible)]);
    }
    let Some(blame) = blame(log) else { return Ok(Vec::new()) };
    if blame.suspect != Suspect::HcaSelection {
        return Ok(Vec::new());
    }
    let message = format!("{}: {}", blame.what(), blame.because);
    let adapters = log.case.processes.iter().find_map(|it| it.facts.hcas.first());
    let finding = Finding::new(Confidence::Likely, message)
        .by(log, &blame.sightings)
        .seen_all(adapters.map(|it| &it.quote));
    Ok(vec![finding.or("roce-gid-index").about_variable("NCCL_IB_HCA")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_a_device_that_is_elsewhere() {
        let log = "n:1:2 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device\n";
        assert_eq!(ids(log), ["ib-hca-selection", "roce-gid-index"]);
        let old = "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_3:1/RoCE ; OOB eth1:10.0.0.1<0>\nNCCL version 2.7.8+cuda10.2\n";
        assert_eq!(ids(&format!("{old}{log}"))[0], "ib-hca-selection");
    }

    #[test]
    fn fires_on_adapters_of_two_kinds() {
        let log = "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n\
                   n:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with error 12, opcode 0, len 0, vendor err 129\n";
        assert_eq!(ids(log), ["ib-hca-selection"]);
        let said = "n:1:2 [0] NCCL WARN NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA\n";
        assert_eq!(
            findings(&RULE, said)[0].message,
            "NCCL was to combine adapters of different kinds: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE"
        );
    }

    #[test]
    fn quiet_on_a_mixed_list_that_works() {
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n",
        );
    }
}
