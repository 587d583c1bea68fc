//! A port of a fused adapter failed, and the job goes on over another.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::ib::{COMPLETION, FAILOVER_EXHAUSTED, PORT_FAILED};

use super::blame::failed_over;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ib-port-failover",
    title: "a port of an adapter failed and NCCL goes on over another",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL 2.29 and later can fuse the ports of an adapter and go on when one of them fails. The fabric as a whole works; \
          bandwidth through this adapter is reduced until the port is back.",
    fix: "Look at cable, transceiver and switch port of the device that the completion error names (`hca`), with `ibstat` and \
          `dmesg`. Drain the node after the job if the port stays down.",
    references: &[
        "NCCL src/transport/net_ib/p2p_resiliency.cc",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&PORT_FAILED, &FAILOVER_EXHAUSTED], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let errors: Vec<_> = log.case.sightings_of(&COMPLETION).collect();
    if !failed_over(log) {
        let exhausted: Vec<_> = found.into_iter().filter(|it| *it.signal == FAILOVER_EXHAUSTED).collect();
        let message = "a port of an adapter failed, and no other port could take over";
        let finding = Finding::new(Confidence::Likely, message).severity(Severity::Error);
        return Ok(vec![finding.by(log, &exhausted).by(log, &errors).or("ib-link-flap")]);
    }
    let hosts: BTreeSet<&str> =
        found.iter().filter_map(|it| it.process.as_ref()).map(|it| &*it.host).collect();
    let at = if hosts.is_empty() {
        String::new()
    } else {
        format!(" of {}", hosts.into_iter().collect::<Vec<_>>().join(", "))
    };
    let lasting = found.iter().any(|it| it.quote.text.contains("permanently failed"));
    let tail = if lasting { "; NCCL has given that port up" } else { "" };
    let message = format!("a port of an adapter{at} failed, and NCCL goes on over the other ports{tail}");
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found).by(log, &errors)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const LOG: &str = "n:1:2 [0] transport/net_ib/p2p.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.2<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_0\n\
        n:1:2 [0] NCCL INFO NET/IB: ncclIbResiliencyCheckErrorNotFatal: The error is not fatal. Trying to continue...\n\
        n:1:2 [0] transport/net_ib/p2p_resiliency.cc:1 NCCL WARN NET/IB: Device 1 marked as failed. Initiating recovery? yes (send comm=0x1, outstandingRecovery=1)\n";

    #[test]
    fn a_port_that_failed_is_not_a_dead_fabric() {
        assert_eq!(ids(LOG), ["ib-port-failover"]);
        assert!(
            findings(&RULE, LOG)[0].message.starts_with("a port of an adapter of n failed, and NCCL goes on")
        );
    }

    #[test]
    fn without_a_port_left_it_is_an_error() {
        let fatal = format!(
            "{LOG}n:1:2 [0] x.cc:1 NCCL WARN NET/IB: Maximum number of probing attempts (3) reached for request 0x1 (id=1). Cannot post another probe.\n"
        );
        assert_eq!(findings(&RULE, &fatal)[0].severity, Some(crate::Severity::Error));
        quiet(&RULE, "n:1:2 [0] NCCL INFO NET/IB: Port recovery is enabled for the resiliency context\n");
    }
}
