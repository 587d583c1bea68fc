//! The port of the rendezvous belongs to another process.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::blocked::PORT_IN_USE;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "master-port-in-use",
    title: "the master's port is already in use",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Rank 0 opens MASTER_PORT and finds another process there: a job that did not end, a second job on the node with the same default \
          (29500), or several processes of this job that each run as rank 0.",
    fix: "`ss -ltnp 'sport = :29500'` names the process. Use another port for each job (`--master_port 29501`), or let torchrun choose on \
          one node: `--standalone`, `--rdzv_endpoint=localhost:0`. If only this job runs, look for a port or RANK fixed in the code.",
    references: &[
        "https://github.com/pytorch/pytorch/issues/73320",
        "https://pytorch.org/docs/stable/elastic/run.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&PORT_IN_USE], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let ports: BTreeSet<&str> =
        found.iter().filter_map(|it| port(it.get("port")).or_else(|| port(it.get("address")))).collect();
    let message = match ports.into_iter().collect::<Vec<_>>()[..] {
        [] => "a server's port is already in use by another process".to_owned(),
        [port] => format!("port {port} is already in use by another process"),
        ref ports => format!("ports {} are already in use by other processes", ports.join(", ")),
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &found)])
}

/// The digits after the last colon: `29500`, `[::]:29500`, `0.0.0.0:29500`.
fn port(text: &str) -> Option<&str> {
    let digits = text.rsplit(':').next()?.trim();
    (!digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_every_form() {
        for (line, message) in [
            (
                "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use\n",
                "port 29500 is already in use by another process",
            ),
            (
                "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:25641 (errno: 98 - Address already in use).\n",
                "port 25641 is already in use by another process",
            ),
            (
                "RuntimeError: Address already in use\n",
                "a server's port is already in use by another process",
            ),
        ] {
            assert_eq!(findings(&RULE, line)[0].message, message);
        }
    }

    #[test]
    fn quiet_when_only_ipv6_is_missing() {
        quiet(
            &RULE,
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: 97 - Address family not supported by protocol).\n",
        );
    }

    #[test]
    fn fires_on_other_systems_and_programs() {
        for line in [
            "RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, code: -48, name: EADDRINUSE, message: address already in use\n",
            "[W socket.cpp:436] [c10d] The server socket has failed to bind to [PC]:10086 (system error: 10048 - Only one usage of each socket address is normally permitted.).\n",
            "zmq.error.ZMQError: Address already in use (addr='tcp://10.0.0.4:29550')\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
        quiet(&RULE, "WARNING network_utils.py:5] Port 29500 is already in use, trying port 29501\n");
    }
}
