//! NCCL runs over TCP sockets although the machine has something better.

use evidence::signals::efa::{NO_EFA_DEVICE, NO_PROVIDER, PLUGIN_FAILED};
use evidence::{Quote, Source};

use super::{efa_in_use, machine, plugin_logged, sign_of_efa, socket_chosen};
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "socket-fallback",
    title: "NCCL fell back to TCP sockets",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "Between nodes every byte goes through the kernel's TCP. One TCP flow on EC2 carries 5 to 10 Gbps; each EFA device carries 100 \
          Gbps or more. The job runs, but several times slower.",
    fix: "Find out why NCCL does not use EFA: is the plugin loaded (`Successfully loaded external ... libnccl-net`), does it find a \
          provider (`Selected provider is efa`), are the devices in the container (`fi_info -p efa`)? NCCL_NET=\"AWS Libfabric\" (or \
          Libfabric) makes the fallback an error.",
    references: &[
        "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-network-bandwidth.html",
        "https://github.com/aws/sagemaker-hyperpod-cli/issues/306",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let failed = log.find_signals(&[&PLUGIN_FAILED, &NO_EFA_DEVICE, &NO_PROVIDER], Source::JobOutput)?;
    let Some(socket) = socket_chosen(log) else { return Ok(Vec::new()) };
    // Inside one node the network carries nothing; and ranks that differ are another matter.
    if !log.job.may_span_machines() || efa_in_use(log) {
        return Ok(Vec::new());
    }
    let efa = sign_of_efa(log);
    if efa.is_none() && failed.is_empty() && !plugin_logged(log) {
        return Ok(large_machine(log)
            .map(|sign| on_a_large_machine(log, socket, sign))
            .into_iter()
            .collect());
    }
    let message = match (machine(log).filter(|it| it.0.efa()), efa) {
        (Some((machine, _)), _) => {
            format!("NCCL uses TCP sockets on {}, whose EFA has {}", machine.name, machine.net_gbps_total)
        }
        (None, Some(_)) => "NCCL uses TCP sockets although the job should use EFA".to_owned(),
        (None, None) => {
            "NCCL uses TCP sockets although the plugin for a faster network was loaded".to_owned()
        }
    };
    let loss = expected::loss_across(log, expected::over_tcp);
    let finding = Finding::new(Confidence::Certain, message).seen(socket).seen_all(efa).by(log, &failed);
    Ok(vec![finding.with_numbers(&RULE, loss)])
}

/// A line that shows GPUs joined by an NVSwitch: such machines are built with a fast network.
fn large_machine(log: &Log) -> Option<&Quote> {
    log.case.processes.iter().find_map(|it| it.facts.nvls.iter().find(|it| it.value)).map(|it| &it.quote)
}

fn on_a_large_machine(log: &Log, socket: &Quote, sign: &Quote) -> Finding {
    let off = log
        .job
        .settings
        .named("NCCL_IB_DISABLE")
        .find(|it| it.is_logged() && it.text() == "1")
        .and_then(job::Variable::quote);
    let reason = if off.is_some() { ": NCCL_IB_DISABLE=1 turns InfiniBand and RoCE off" } else { "" };
    let message = format!("NCCL uses TCP sockets between nodes whose GPUs are joined by an NVSwitch{reason}");
    Finding::new(Confidence::Likely, message)
        .severity(Severity::Warning)
        .seen(socket)
        .seen_all(off)
        .seen(sign)
        .why("Machines with an NVSwitch are sold with InfiniBand, RoCE or EFA adapters, which carry tens of times more than a TCP \
              connection. If these machines have none, TCP is the best they can use.")
        .fix("Look for adapters on the host and in the container (`ibv_devices`, `ls /dev/infiniband`, `fi_info -p efa`), pass them in, \
              and unset NCCL_IB_DISABLE. `NET/IB : No device found` in the log means that NCCL saw none.")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const SOCKET: &str =
        "a:1:1 [0] NCCL INFO NET/IB : No device found.\na:1:1 [0] NCCL INFO Using network Socket\n";

    #[test]
    fn fires_on_a_machine_with_efa() {
        let found = findings(&RULE, &format!("{SOCKET}INSTANCE_TYPE=p5.48xlarge\n"));
        assert_eq!(found[0].message, "NCCL uses TCP sockets on p5.48xlarge, whose EFA has 3200 Gbps");
    }

    #[test]
    fn the_cause_comes_first() {
        let log = format!("a:1:1 [0] x:1 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n{SOCKET}");
        assert_eq!(ids(&log)[..2], ["efa-provider-not-found", "socket-fallback"]);
    }

    #[test]
    fn warns_where_an_nvswitch_shows_a_large_machine() {
        let log = format!("{SOCKET}a:1:1 [0] NCCL INFO NVLS multicast support is available on dev 0\n");
        assert_eq!(findings(&RULE, &log)[0].severity, Some(crate::Severity::Warning));
        quiet(
            &RULE,
            &format!("{SOCKET}a:1:1 [0] NCCL INFO NVLS multicast support is not available on dev 0\n"),
        );
    }

    #[test]
    fn sockets_are_right_without_efa_and_unused_on_one_node() {
        quiet(&RULE, SOCKET);
        quiet(&RULE, &format!("{SOCKET}INSTANCE_TYPE=g5.xlarge\n"));
        quiet(
            &RULE,
            &format!(
                "{SOCKET}INSTANCE_TYPE=p5.48xlarge\na:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n"
            ),
        );
    }
}
