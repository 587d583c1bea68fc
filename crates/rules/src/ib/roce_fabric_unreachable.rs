//! `RoCE` adapters cannot reach each other.

use evidence::Source;
use evidence::signals::ib::{COMPLETION, MODIFY_QP_FAILED, RETRY_EXCEEDED};

use super::blame::{Layer, Suspect, blame, layer};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "roce-fabric-unreachable",
    title: "adapters on RoCE cannot reach each other",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "RDMA packets between two adapters get no answer. The setup works because it uses TCP on another interface; the adapters' own \
          addresses, routes, VLANs or switches do not let RoCE through, or only adapters of the same rail are connected.",
    fix: "Test exactly the adapters in the message: `ib_write_bw -d DEVICE -x GID_INDEX` on both nodes, and `ping -I NIC` between the \
          addresses of their GIDs. Fix the route, VLAN, MTU or switch. If only equal rails are connected, set NCCL_CROSS_NIC=0; exclude \
          adapters of other networks with NCCL_IB_HCA.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1170",
        "https://github.com/NVIDIA/nccl-tests/issues/185",
        "https://github.com/NVIDIA/nccl/issues/2013",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&COMPLETION, &MODIFY_QP_FAILED, &RETRY_EXCEEDED], Source::JobOutput)?;
    let Some(blame) = blame(log) else { return Ok(Vec::new()) };
    let confidence = if blame.suspect == Suspect::RoceFabric {
        Confidence::Likely
    } else if blame.other == Some(Suspect::RoceFabric) {
        Confidence::Possible
    } else {
        return Ok(Vec::new());
    };
    let finding = Finding::new(confidence, blame.what()).by(log, &blame.sightings).or("roce-gid-index");
    Ok(vec![if layer(log) == Layer::Unknown {
        finding.or("ib-fabric-fault")
    } else {
        finding.or("ib-link-flap")
    }])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_timeouts_of_every_age() {
        for line in [
            "NCCL WARN NET/IB Got completion error 12\n",
            "n:1:2 [0] transport/net_ib.cc:2244 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<53908> with status=12 opcode=129 len=1048576 vendor err 129 (Recv) localGid ::ffff:10.0.6.3 remoteGids::ffff:10.0.6.5 hca mlx5_10\n",
            "n:1:2 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv) localGid ::ffff:10.1.0.1 remoteGids::ffff:10.1.0.2\n",
            "n:1:2 [4] NCCL WARN NET/IB: Got completion from peer 10.0.0.2<44206> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 (Send)\n",
            "[1.2] [n:1:0] ib_mlx5_log.c:177 UCX ERROR Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)\n",
        ] {
            assert_eq!(ids(line)[0], "roce-fabric-unreachable", "{line}");
        }
    }

    #[test]
    fn fires_without_a_route() {
        let log = "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\nNCCL version 2.19.3+cuda12.3\n\
                   misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable\n";
        assert_eq!(ids(log)[0], "roce-fabric-unreachable");
        assert_eq!(
            findings(&RULE, log)[0].message,
            "a connection between adapters cannot be set up (Network is unreachable)"
        );
    }

    #[test]
    fn quiet_when_a_flush_or_another_error_came_first() {
        quiet(
            &RULE,
            "n:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with error 5, opcode 0, len 0, vendor err 249\n",
        );
        quiet(
            &RULE,
            "n:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with error 4, opcode 0, len 0, vendor err 81\n\
             m:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<3> with error 12, opcode 0, len 0, vendor err 129\n",
        );
    }
}
