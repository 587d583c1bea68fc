//! NCCL uses the wrong entry of the GID table.

use evidence::Source;
use evidence::signals::ib::{ASYNC_EVENT, COMPLETION, GID_UNREADABLE, MODIFY_QP_FAILED, RETRY_EXCEEDED};

use super::blame::{Layer, Suspect, blame, layer};
use crate::interface::address::got_through;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "roce-gid-index",
    title: "the GID index is not that of a RoCE v2 address of the network",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "A RoCE port has several addresses (GIDs): link-local and IPv4, each for RoCE v1 and v2. Only the one that the network routes \
          reaches the peer, and its index in the table differs between ports and pods.",
    fix: "Find the RoCE v2 entry with the IPv4 address of the port (`show_gids`; often 3) and set NCCL_IB_GID_INDEX to it. Where the index \
          differs between nodes or pods, write it into each /etc/nccl.conf, or leave the variable unset with NCCL 2.21 or later, which \
          finds it (control the choice with NCCL_IB_ADDR_RANGE and NCCL_IB_ROCE_VERSION_NUM).",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/769",
        "https://github.com/NVIDIA/nccl/issues/718",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ib-gid-index",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let signals = [&COMPLETION, &MODIFY_QP_FAILED, &RETRY_EXCEEDED, &ASYNC_EVENT, &GID_UNREADABLE];
    let mut found = log.find_signals(&signals, Source::JobOutput)?;
    found.retain(|it| *it.signal == GID_UNREADABLE);
    if !found.is_empty() && !got_through(log) {
        let message =
            "NCCL cannot read the GID table: it has entries of other containers between this container's own";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).fix(
            "Use NCCL 2.26 or later, which skips such entries, or set NCCL_IB_GID_INDEX in each container to the RoCE v2 entry that \
             `show_gids` lists there.",
        )]);
    }
    let Some(blame) = blame(log) else { return Ok(Vec::new()) };
    let (confidence, message) = if blame.suspect == Suspect::GidIndex {
        (Confidence::Likely, format!("{}: {}", blame.what(), blame.because))
    } else if blame.other == Some(Suspect::GidIndex) {
        (Confidence::Possible, format!("{}; a wrong GID index has the same effect", blame.what()))
    } else {
        return Ok(Vec::new());
    };
    let quotes = log.job.settings.named("NCCL_IB_GID_INDEX").filter_map(job::Variable::quote);
    let finding = Finding::new(confidence, message).by(log, &blame.sightings).seen_all(quotes);
    let finding = finding.or("roce-fabric-unreachable").about_variable("NCCL_IB_GID_INDEX");
    Ok(vec![if layer(log) == Layer::Unknown { finding.or("ib-fabric-fault") } else { finding }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_a_link_local_entry() {
        let log = "n:1:1 [0] ibvwrap.cc:9 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n\
                   NCCL_IB_GID_INDEX=2\nGID[  2]: fe80::2, RoCE v2\nGID[  3]: ::ffff:10.0.0.6, RoCE v2\n";
        assert!(findings(&RULE, log)[0].message.ends_with("NCCL_IB_GID_INDEX=2 is fe80::2, RoCE v2"));
        assert_eq!(ids(log)[0], "roce-gid-index");
        let new = "n:1:1 [0] misc/ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, curr state INIT, next state RTR, local GID index 1, local GID fe80::1, remote GID fe80::2\n";
        assert_eq!(ids(new)[0], "roce-gid-index");
    }

    #[test]
    fn fires_on_an_index_that_does_not_fit() {
        let log = "[0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device\nNCCL_IB_GID_INDEX=5 on all nodes\n";
        assert_eq!(ids(log)[0], "roce-gid-index");
        let refused = "n:1:1 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument\n";
        assert_eq!(ids(refused)[0], "roce-gid-index");
    }

    #[test]
    fn quiet_on_a_good_index_and_on_infiniband() {
        quiet(&RULE, "n:1:1 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.\n");
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\n\
             n:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n",
        );
    }

    #[test]
    fn old_words_mean_index_0_unless_the_network_is_known() {
        let log = "w:946:988 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129\n";
        assert_eq!(ids(log)[0], "roce-gid-index");
        assert_ne!(ids(&format!("{log}NCCL_IB_GID_INDEX=3\n"))[0], "roce-gid-index");
    }

    #[test]
    fn fires_on_a_table_that_cannot_be_read() {
        let log = "p:88:157 [0] transport/net_ib.cc:350 NCCL WARN NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument\n";
        assert_eq!(ids(log)[0], "roce-gid-index");
    }
}
