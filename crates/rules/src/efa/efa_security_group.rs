//! The security group drops EFA packets between the nodes.

use evidence::signals::efa::{EFA_PEER_GONE, EFA_REQUEST_FAILED, EFA_UNREACHABLE, SECURITY_GROUP_SAID};
use evidence::{Sighting, Signal, Source};
use messages::values::{self, Side, Table};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-security-group",
    title: "the security group drops EFA packets between the nodes",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "EFA is not IP: a rule that opens 0.0.0.0/0 lets TCP and ping through and still drops EFA. The ranks exchange addresses over TCP, \
          then the first EFA message never arrives.",
    fix: "The security group of the instances needs two rules for all traffic whose source and destination is the group itself, one \
          inbound AND one outbound. All nodes must be in one subnet (one availability zone); p4d and p4de can use EFA only with p4d and \
          p4de. Test with `fi_pingpong -e rdm -p efa` between two nodes.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/663",
        "https://github.com/aws/aws-ofi-nccl/issues/156",
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found =
        log.find_signals(&[&SECURITY_GROUP_SAID, &EFA_UNREACHABLE, &EFA_REQUEST_FAILED], Source::JobOutput)?;
    let of = |signal: &Signal| -> Vec<&Sighting> {
        found.iter().copied().filter(|it| it.signal == signal).collect()
    };
    let (said, unreachable) = (of(&SECURITY_GROUP_SAID), of(&EFA_UNREACHABLE));
    if let Some(first) = said.first() {
        // The plugin says so for one error only; libfabric lists it among other reasons.
        let certain = first.quote.text.contains("This error indicates");
        let confidence = if certain { Confidence::Certain } else { Confidence::Likely };
        let message = "EFA cannot reach a peer, and the library names the security group as the reason";
        let finding = Finding::new(confidence, message).by(log, &said).by(log, &unreachable);
        return Ok(vec![finding]);
    }
    // Once a job has trained, a peer that does not answer has died; the security group is not the cause.
    let worked = log.case.training.loss_lines > 0 || log.case.first_of(&[&EFA_PEER_GONE]).is_some();
    let Some(first) = unreachable.first() else {
        // An error that the peer or this side reports proves that packets arrive, or never left.
        let unknown = |it: &&Sighting| {
            let text = &it.quote.text;
            !text.contains("Remote write")
                && values::in_text(Table::Efa, text)
                    .is_none_or(|it| it.side == Side::Path || &*it.text == "Unknown error")
        };
        let failed: Vec<&Sighting> = of(&EFA_REQUEST_FAILED).into_iter().filter(unknown).collect();
        if failed.is_empty() || worked {
            return Ok(Vec::new());
        }
        let message = "a transfer over EFA failed before the job made progress; if it was the first between the nodes, check the security group";
        return Ok(vec![
            Finding::new(Confidence::Possible, message)
                .by(log, &failed)
                .or("efa-peer-gone")
                .or("peer-process-died"),
        ]);
    };
    let confidence = if worked { Confidence::Possible } else { Confidence::Likely };
    let message = if first.quote.text.contains("address vector") {
        "EFA does not accept the address of a peer, as happens when the security group or the subnet separates the nodes"
    } else {
        "a message over EFA never reached its peer, as happens when the security group drops EFA traffic"
    };
    Ok(vec![
        Finding::new(confidence, message).by(log, &unreachable).or("efa-peer-gone").or("peer-process-died"),
    ])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_texts_of_every_age() {
        for text in [
            "[1,3]<stdout>:w-1:35:89 [5] ofi_process_cq:1039 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 20. Error: \
             unknown error. Completed length: 0, Request: { dev: 1, size: 0, state: CREATED, direction: SEND }\n",
            "ncclInternalError: Internal check failed.\nNET/OFI Unable to insert remote address into address vector for device 1\n",
            "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 113. Error: 15 (Unreachable remote (never received \
             a response)). Completed length: 0\n",
        ] {
            assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Likely, "{text}");
        }
    }

    #[test]
    fn certain_when_the_plugin_says_so() {
        let text = "* This error indicates that the security group on either this instance or the peer instance\n* is not setup correctly.\n";
        assert_eq!(findings(&RULE, text)[0].confidence, Confidence::Certain);
    }

    #[test]
    fn other_errors_of_a_request_are_at_most_possible() {
        let failed = "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 5. Error: unknown error. Completed length: 0\n";
        assert_eq!(findings(&RULE, failed)[0].confidence, Confidence::Possible);
        quiet(&RULE, &format!("{{'loss': 1.2, 'epoch': 0.1}}\n{failed}"));
        for refused in [
            "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 22. Error: 7 (Remote key (RKEY) not registered or does not match remote IOVA). Completed length: 0\n",
            "a:1:2 [0] x:1 NCCL WARN NET/OFI Remote write completed with error. RC: 5. Error: 12 (x). Completed length: 0\n",
        ] {
            quiet(&RULE, refused);
        }
    }
}
