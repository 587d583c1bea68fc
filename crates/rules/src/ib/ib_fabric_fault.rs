//! The `InfiniBand` fabric loses a transfer.

use evidence::Source;
use evidence::signals::ib::{COMPLETION, MODIFY_QP_FAILED, RETRY_EXCEEDED};

use super::blame::{Suspect, blame};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ib-fabric-fault",
    title: "the InfiniBand fabric loses transfers",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "An adapter repeated a packet until it gave up. In an InfiniBand fabric packets are not lost by design: a link, a switch or an \
          adapter on the way is bad, the subnet manager has no route, or the peer's process is gone.",
    fix: "Test the pair of nodes in the message with `ib_write_bw`, then the fabric: `ibdiagnet`, `ibqueryerrors`, `iblinkinfo`. Drain the \
          node that many others report. If the error comes after hours, NCCL_IB_TIMEOUT=22 bridges short breaks.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/2076",
        "https://github.com/NVIDIA/nccl/issues/902",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&COMPLETION, &MODIFY_QP_FAILED, &RETRY_EXCEEDED], Source::JobOutput)?;
    let Some(blame) = blame(log) else { return Ok(Vec::new()) };
    let confidence = if blame.suspect == Suspect::IbFabric {
        Confidence::Likely
    } else if blame.other == Some(Suspect::IbFabric) {
        Confidence::Possible
    } else {
        return Ok(Vec::new());
    };
    let message = if confidence == Confidence::Likely {
        format!("{} over InfiniBand, and no port reported an error", blame.what())
    } else {
        format!("{}; on InfiniBand that means a fault in the fabric", blame.what())
    };
    Ok(vec![
        Finding::new(confidence, message)
            .by(log, &blame.sightings)
            .or("ib-link-flap")
            .or("peer-process-died"),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const IB: &str =
        "n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>\n";

    #[test]
    fn fires_on_infiniband() {
        let log = format!(
            "{IB}n:1:2 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.2<36315> with error 12, opcode 0, len 0, vendor err 129 (Send)\n"
        );
        assert_eq!(ids(&log), ["ib-fabric-fault"]);
        assert_eq!(
            findings(&RULE, &log)[0].message,
            "an adapter gets no answer from 10.0.0.2 (status 12) over InfiniBand, and no port reported an error"
        );
    }

    #[test]
    fn quiet_on_other_errors_and_on_roce() {
        quiet(
            &RULE,
            &format!(
                "{IB}n:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<3> with error 4, opcode 0, len 0, vendor err 81\n"
            ),
        );
        quiet(
            &RULE,
            &format!(
                "{}n:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129\n",
                IB.replace(":1/IB", ":1/RoCE")
            ),
        );
        quiet(&RULE, IB);
    }

    #[test]
    fn ucx_names_the_network() {
        let line = "[n:9 :0:13] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_2:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)\n";
        assert_eq!(ids(line)[0], "ib-fabric-fault");
        assert_eq!(ids(&line.replace("/IB", "/RoCE"))[0], "roce-fabric-unreachable");
    }
}
