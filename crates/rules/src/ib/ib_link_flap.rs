//! A port of an adapter lost its link.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::ib::{ASYNC_EVENT, HCA_HEALTH, LINK_DOWN};

use super::blame::{Suspect, blame, is_event};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ib-link-flap",
    title: "a network port lost its link",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The port went down, perhaps only briefly. Transfers over it time out on the other nodes (status 12), whose errors name this \
          node.",
    fix: "Check the node that reports the port, not the nodes that time out: reseat or replace the cable and the module, check the switch \
          port. `ibqueryerrors`, `mlxlink -d DEVICE -c` and `ethtool -S` show link-downed and symbol errors. NCCL_IB_TIMEOUT=22 lets a job \
          survive short breaks.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/905",
        "https://github.com/Lightning-AI/lit-llama/issues/380",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&ASYNC_EVENT, &LINK_DOWN], Source::JobOutput)?;
    let failed = blame(log);
    // A port that fails with its adapter is the adapter's failure.
    let adapter = log.case.first_of(&[&HCA_HEALTH]).is_some()
        || found.iter().any(|it| is_event(it, "local catastrophic error"));
    let events: Vec<_> = found.iter().copied().filter(|it| is_event(it, "port error")).collect();
    let kernel: Vec<_> = found.iter().copied().filter(|it| *it.signal == LINK_DOWN).collect();
    let times: u64 = kernel.iter().map(|it| it.count).sum();
    // Ports without a cable report it once; a link that flaps reports it again and again.
    let again = kernel.iter().any(|it| it.count >= 3);
    // The name of the event is cut off. Most that NCCL reports as a warning are about a port.
    let unnamed: Vec<_> = found
        .iter()
        .copied()
        .filter(|it| it.warning && *it.signal == ASYNC_EVENT && it.get("event").is_empty())
        .collect();
    if !adapter && events.is_empty() && !unnamed.is_empty() {
        let message = "an adapter reported an event whose name is cut off; most often a port lost its link";
        return Ok(vec![Finding::new(Confidence::Possible, message).by(log, &unnamed).or("hca-fatal-error")]);
    }
    if adapter || (events.is_empty() && (times == 0 || (failed.is_none() && !again))) {
        return Ok(Vec::new());
    }
    let hosts: BTreeSet<&str> =
        events.iter().filter_map(|it| it.process.as_ref()).map(|it| &*it.host).collect();
    let message = match (events.is_empty(), hosts.len()) {
        (true, _) => format!("the kernel reports that links went down (lines: {times})"),
        (false, 0) => "a port of an adapter went down".to_owned(),
        (false, _) => format!("a port of {} went down", hosts.into_iter().collect::<Vec<_>>().join(", ")),
    };
    let felt = failed.as_ref().filter(|it| it.suspect == Suspect::LinkFlap);
    let (confidence, severity) = match (felt.is_some(), events.is_empty()) {
        (true, false) => (Confidence::Certain, Severity::Error),
        (true, true) | (false, false) => (Confidence::Likely, Severity::Error),
        (false, true) => (Confidence::Possible, Severity::Warning),
    };
    let finding = Finding::new(confidence, message).severity(severity).by(log, &events).by(log, &kernel);
    Ok(vec![finding.seen_all(felt.iter().flat_map(|it| &it.sightings).map(|it| &it.quote))])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, ids, quiet};

    const PORT: &str =
        "b1:40:41 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : port error\n";

    #[test]
    fn names_the_node_that_lost_its_link() {
        let log = format!(
            "{PORT}b2:50:51 [4] transport/net_ib.cc:1238 NCCL WARN NET/IB : Got completion from peer b1<4001> with error 12\n"
        );
        let found = findings(&RULE, &log);
        assert_eq!(
            (found[0].message.as_str(), found[0].confidence),
            ("a port of b1 went down", Confidence::Certain)
        );
        assert_eq!(ids(&log), ["ib-link-flap"]);
        assert_eq!(findings(&RULE, PORT)[0].confidence, Confidence::Likely);
        let new = "n:1:2 [0] transport/net_ib.cc:190 NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error\n";
        assert_eq!(findings(&RULE, new).len(), 1);
    }

    #[test]
    fn quiet_on_one_link_down_at_boot_and_on_harmless_events() {
        quiet(&RULE, "[ 12.3] mlx5_core 0000:3b:00.0 ens1np0: Link down\n");
        quiet(
            &RULE,
            "n:1:2 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : Got async event : client reregistration\n",
        );
    }

    #[test]
    fn a_link_that_flaps_differs_from_ports_without_a_cable() {
        let down = |device: &str, at: u32| format!("[ {at}.3] mlx5_core {device} ens1np0: Link down\n");
        let flaps: String = (10..14).map(|it| down("0000:3b:00.0", it)).collect();
        assert_eq!(findings(&RULE, &flaps)[0].confidence, Confidence::Possible);
        let boot: String =
            ["0000:3b:00.0", "0000:3b:00.1", "0000:5e:00.0", "0000:5e:00.1"].map(|it| down(it, 12)).concat();
        quiet(&RULE, &boot);
    }
}
