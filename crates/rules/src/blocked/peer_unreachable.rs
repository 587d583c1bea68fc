//! A node cannot be reached at the address it announced.

use evidence::Source;
use evidence::signals::blocked::{
    CLIENT_FAILED, CLIENT_GAVE_UP, CLIENT_TIMED_OUT, CONNECT_FAILED, HOST_NOT_FOUND, LOOK_UP_FAILED,
    NAME_NOT_RESOLVED, PORT_IN_USE,
};

use super::failures::{Cause, Reason, verdict};
use crate::interface::address::{is_number, without_port};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "peer-unreachable",
    title: "a node cannot be reached at the address it announced",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Each rank announces an address of one of its interfaces to the others. If they cannot reach that address, the job fails during \
          the setup or waits forever.",
    fix: "From the node that reports the error, try exactly the address in the message: `ip route get ADDRESS`, `ping`, then `nc -zv \
          ADDRESS PORT` with a listener on the other side. If it is the wrong network, set NCCL_SOCKET_IFNAME to the interface that all \
          nodes share; if ping works and nc does not, a firewall is in between.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1515",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html#networking-issues",
    ],
    checks: &[Check::Log(check)],
};

/// PyTorch's own rendezvous.
const MASTER_FIX: &str = "Check that MASTER_ADDR is an address of rank 0's host (`ip addr` there) and the same on all nodes, that rank 0 was \
     started and listens there (`ss -ltn`), and that the port is open: `nc -zv MASTER_ADDR MASTER_PORT` from another node.";

fn check(log: &Log) -> Checked {
    let timed_out =
        log.find_signals(&[&CLIENT_TIMED_OUT, &CLIENT_GAVE_UP, &CONNECT_FAILED], Source::JobOutput)?;
    let verdict = verdict(log);
    if let Some(it) = verdict.iter().find(|it| matches!(it.cause, Cause::Firewall | Cause::Unreachable)) {
        let confidence =
            if it.cause == Cause::Unreachable { Confidence::Likely } else { Confidence::Possible };
        let peer = if it.peer.is_empty() { "another rank" } else { it.peer };
        let what = match it.reason {
            Reason::NoRoute => "there is no route to it",
            Reason::Unreachable => "its network is not in the routing table",
            Reason::TimedOut => "it does not answer",
            Reason::Refused => "no process listens there",
            Reason::Unknown => "NCCL does not report the reason",
        };
        let is_master = it.sightings.iter().all(|it| *it.signal == CLIENT_FAILED);
        let master = if is_master { "the master " } else { "" };
        let finding = Finding::new(confidence, format!("{master}{peer} cannot be reached: {what}"))
            .by(log, &it.sightings);
        let finding = finding.seen_all(it.interface.iter().map(|it| it.1));
        let finding = if is_master { finding.fix(MASTER_FIX) } else { finding };
        return Ok(vec![match it.reason {
            Reason::Refused => finding.or("peer-process-died").or("docker-bridge-network"),
            Reason::Unreachable => finding.or("bootstrap-on-wrong-interface"),
            _ => finding.or("firewall-blocks-ports"),
        }]);
    }
    // PyTorch's own rendezvous: other rules report an unknown name and a port in use.
    let explained =
        log.case.first_of(&[&NAME_NOT_RESOLVED, &HOST_NOT_FOUND, &LOOK_UP_FAILED, &PORT_IN_USE]).is_some()
            || log.case.sightings_of(&CLIENT_FAILED).any(|it| is_number(without_port(it.get("peer"))));
    let clients: Vec<_> = timed_out.into_iter().filter(|it| *it.signal != CONNECT_FAILED).collect();
    let named = clients.iter().find(|it| !it.get("host").is_empty());
    let Some(first) = named.or(clients.first()).filter(|_| !explained && verdict.is_empty()) else {
        return Ok(Vec::new());
    };
    let message = match (first.get("host"), first.get("time")) {
        ("", _) => "the master was not reached".to_owned(),
        (host, "") => format!("the master at {host}:{} was not reached", first.get("port")),
        (host, time) => format!("the master at {host}:{} was not reached within {time}", first.get("port")),
    };
    let finding = Finding::new(Confidence::Possible, message).by(log, &clients);
    Ok(vec![finding.or("firewall-blocks-ports").or("rank-never-joined").fix(MASTER_FIX)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_without_a_route() {
        let line = "n:2:2 [0] misc/socket.cc:596 NCCL WARN socketStartConnect: connect to 10.88.0.1<34705> failed : Network is unreachable\n";
        assert_eq!(
            findings(&RULE, line)[0].message,
            "10.88.0.1 cannot be reached: its network is not in the routing table"
        );
        assert_eq!(ids(line)[0], "peer-unreachable");
        let abort = "n:2:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : Software caused connection abort\n";
        assert_eq!(ids(abort), ["peer-unreachable", "firewall-blocks-ports"]);
    }

    #[test]
    fn a_chosen_interface_that_leads_nowhere() {
        let log = "n:2:2 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth1\n\
                   n:2:2 [0] misc/socket.cc:583 NCCL WARN socketPollConnect: connect to 10.88.0.11<52693> returned No route to host, exceeded error retry count after 35 attempts\n";
        assert_eq!(ids(log)[0], "peer-unreachable");
    }

    #[test]
    fn a_master_that_does_not_answer_is_a_possibility() {
        let line = "[E socket.cpp:957] [c10d] The client socket has timed out after 900s while trying to connect to (10.0.0.1, 29500).\n";
        assert_eq!(findings(&RULE, line)[0].confidence, Confidence::Possible);
    }

    #[test]
    fn quiet_on_retries_and_where_another_cause_is_named() {
        quiet(&RULE, "n:2:2 [0] NCCL INFO Call to connect returned Connection refused, retrying\n");
        quiet(
            &RULE,
            "DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n\
             [E socket.cpp:1028] [c10d] The client socket has timed out after 20000ms while trying to connect to (node-0, 29500).\n",
        );
    }

    #[test]
    fn the_other_words_for_a_master_that_does_not_answer() {
        for line in [
            "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 10.0.0.1:1234\n",
            "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n",
            "[E socket.cpp:610] [c10d] The client socket has failed to connect to any network address of (10.0.0.1, 40323).\n",
        ] {
            assert_eq!(ids(line)[0], "peer-unreachable", "{line}");
        }
        assert_eq!(ids("ssh: connect to host node-b port 22: Connection refused\n")[0], "peer-unreachable");
    }
}
