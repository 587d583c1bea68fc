//! An adapter failed.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::ib::{ASYNC_EVENT, ASYNC_EVENT_FAILED, COMPLETION, HCA_HEALTH};

use super::blame::{first_status, is_event, status};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "hca-fatal-error",
    title: "a network adapter failed",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The adapter or its firmware stopped working. All connections through it are lost; other nodes only see timeouts towards this one.",
    fix: "Take the node out of the pool. Look at `dmesg | grep mlx5` for the health report, update the firmware (`mlxfwmanager`), reset \
          the adapter (`mlxfwreset`) or power-cycle the node; replace the adapter if it happens again.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/230",
        "Linux drivers/net/ethernet/mellanox/mlx5/core/health.c",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&ASYNC_EVENT, &HCA_HEALTH], Source::JobOutput)?;
    let fatal: Vec<_> = found
        .into_iter()
        .filter(|it| *it.signal == HCA_HEALTH || is_event(it, "local catastrophic error"))
        .collect();
    if fatal.is_empty() && first_status(log) == Some(19) {
        let failed: Vec<_> = log.case.sightings_of(&COMPLETION).filter(|it| status(it) == Some(19)).collect();
        let message = "an adapter reports a fatal error for a transfer (status 19)";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &failed)]);
    }
    if fatal.is_empty() {
        // The events of an adapter cannot be read any more when its device is gone.
        let gone: Vec<_> = log.case.sightings_of(&ASYNC_EVENT_FAILED).collect();
        if gone.is_empty() || first_status(log).is_some() {
            return Ok(Vec::new());
        }
        let message = "NCCL can no longer read the events of an adapter, as happens when the adapter failed or was reset";
        return Ok(vec![Finding::new(Confidence::Possible, message).by(log, &gone).or("ib-link-flap")]);
    }
    let hosts: BTreeSet<&str> =
        fatal.iter().filter_map(|it| it.process.as_ref()).map(|it| &*it.host).collect();
    let message = if hosts.is_empty() {
        "an adapter reports a catastrophic error".to_owned()
    } else {
        format!(
            "an adapter of {} reports a catastrophic error",
            hosts.into_iter().collect::<Vec<_>>().join(", ")
        )
    };
    Ok(vec![Finding::new(Confidence::Certain, message).by(log, &fatal)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_in_old_and_new_releases_and_in_the_kernel_log() {
        let old = "[1,12]<stdout>:b7:81:86 [0] transport/net_ib.cu:80 NCCL WARN NET/IB : Got async event : local catastrophic error\n";
        assert_eq!(findings(&RULE, old)[0].message, "an adapter of b7 reports a catastrophic error");
        let new = "n:1:2 [0] transport/net_ib.cc:169 NCCL WARN NET/IB : mlx5_0:1 async fatal event: local catastrophic error\n";
        assert_eq!(findings(&RULE, new).len(), 1);
        let kernel = "[ 99.1] mlx5_core 0000:3b:00.0: poll_health:823:(pid 0): device's health compromised - reached miss count\n";
        assert_eq!(findings(&RULE, kernel).len(), 1);
        let peer = "m:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.1<1> with status=12 opcode=0 len=0 vendor err 129 (Send)\n";
        assert_eq!(ids(&format!("{peer}{old}")), ["hca-fatal-error"]);
    }

    #[test]
    fn quiet_on_other_events() {
        quiet(&RULE, "n:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n");
    }
}
