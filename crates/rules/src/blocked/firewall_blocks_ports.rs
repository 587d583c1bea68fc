//! A packet filter between the nodes blocks the ports of NCCL.

use evidence::Source;
use evidence::signals::blocked::{CONNECT_FAILED, FIREWALL_RULE};

use super::failures::{Cause, Reason, verdict};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "firewall-blocks-ports",
    title: "a firewall blocks connections between the nodes",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL opens TCP ports of its own choice on every node. A firewall that lets ping and ssh through and drops the rest gives \
          `Connection timed out`; one that rejects, as firewalld does, gives `No route to host`.",
    fix: "Allow all TCP ports between the nodes: in the security group a rule that refers to itself (EC2), on the hosts firewalld, ufw, \
          nftables or a NetworkPolicy. Test with `nc -l 12345` on one node and `nc NODE 12345` on another: a ping proves nothing.",
    references: &[
        "https://github.com/sgl-project/sglang/issues/3820",
        "https://github.com/NVIDIA/nccl/issues/352",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.find_signals(&[&CONNECT_FAILED], Source::JobOutput)?;
    let rules: Vec<_> = log.case.sightings_of(&FIREWALL_RULE).collect();
    let verdict = verdict(log);
    let Some(it) = verdict.iter().find(|it| matches!(it.cause, Cause::Firewall | Cause::Unreachable)) else {
        return Ok(Vec::new());
    };
    let confidence = if it.cause == Cause::Firewall || !rules.is_empty() {
        Confidence::Likely
    } else {
        Confidence::Possible
    };
    // A missing route comes from the rank's own routing table, and a refusal from the host itself.
    if confidence == Confidence::Possible && !matches!(it.reason, Reason::NoRoute | Reason::Unknown) {
        return Ok(Vec::new());
    }
    let peer = if it.peer.is_empty() { "another rank" } else { it.peer };
    let what = match it.reason {
        Reason::TimedOut => "get no answer",
        Reason::NoRoute => "are rejected on the way",
        _ => "fail",
    };
    let finding = Finding::new(confidence, format!("connections to {peer} {what}")).by(log, &it.sightings);
    Ok(vec![finding.seen_all(rules.iter().map(|it| &it.quote)).or("peer-unreachable")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_on_rejections_and_on_silence() {
        for line in [
            "n:2:2 [6] misc/socket.cc:533 NCCL WARN socketPollConnect: Connect to 10.0.0.4<5684> returned 113(No route to host) errno 115(Operation now in progress)\n",
            "n:2:2 [0] misc/socket.cc:583 NCCL WARN socketPollConnect: connect to 10.0.0.4<44303> returned Connection timed out, exceeded error retry count after 35 attempts\n",
            "n:2:2 [0] include/socket.h:409 NCCL WARN Net : Connect to 10.0.0.4<5426> failed : No route to host\n",
            "n:2:2 [0] NCCL INFO socketPollConnect: connect returned No route to host, retrying (26/34) after sleep for 2600 msec\n",
            "n:2:2 [0] include/socket.h:360 WARN Call to connect failed : Connection timed out\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
            assert_eq!(ids(line)[0], "firewall-blocks-ports", "{line}");
        }
    }

    #[test]
    fn quiet_while_ranks_start_and_on_other_errors() {
        quiet(
            &RULE,
            "n:2:2 [0] NCCL INFO socketPollConnect: connect to 10.0.0.4<1> returned Connection refused, retrying (1/34) after sleep for 100 msec\n",
        );
        quiet(
            &RULE,
            "n:2:2 [0] misc/socket.cc:596 NCCL WARN socketStartConnect: connect to 10.0.0.4<34705> failed : Network is unreachable\n",
        );
        quiet(
            &RULE,
            "[W socket.cpp:752] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).\n",
        );
    }
}
