//! Something that is not a rank of this job connected to a port of NCCL.

use evidence::Source;
use evidence::signals::blocked::STRANGER;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "stranger-connected",
    title: "a stranger connected to a port of NCCL",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL listens on ports of its own choice. A port scanner, a monitoring service or a rank of another job connected \
          there and sent what no rank of this job sends. Up to 2.26 this ends the job.",
    fix: "Set NCCL_SOCKET_IFNAME to a private network; keep scanners away from the ephemeral ports \
          (net.ipv4.ip_local_port_range), or use NCCL 2.27 or later, which ignores such connections. Use one NCCL release on \
          all ranks, and a MASTER_PORT of its own for every job.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1871",
        "https://github.com/NVIDIA/nccl/issues/2174",
        "NCCL src/misc/socket.cc (socketFinalizeAccept)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&STRANGER], Source::JobOutput)?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let message = "something that is not a rank of this job connected to a port of NCCL";
    Ok(vec![Finding::new(Confidence::Likely, message).by(log, &found).or("nccl-version-mismatch")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_on_what_no_rank_sends() {
        for line in [
            "n:1:2 [0] misc/socket.cc:1 NCCL WARN socketFinalizeAccept: wrong magic 2f20544547 != 7d9dd2c5e2b1a3c\n",
            "n:1:2 [0] proxy.cc:1 NCCL WARN [Service thread] Unknown command 1195725856 from localRank 3\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
        quiet(&RULE, "n:1:2 [0] misc/socket.cc:441 NCCL WARN socketFinalizeAccept: wrong type 4 != 3\n");
    }
}
