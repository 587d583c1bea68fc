//! NCCL runs over TCP sockets although the machine has something better.

use evidence::signals::efa::{NO_EFA_DEVICE, NO_PROVIDER, PLUGIN_FAILED};
use evidence::{Quote, Source};
use fabric::GpuClass;
use fabric::machine::NicKind;
use job::Variable;

use super::{adapters_in_matrix, gpus, named, selected_by_hca};
use crate::efa::{efa_in_use, machine, plugin_logged, sign_of_efa, socket_chosen};
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
        "NCCL src/transport/net_ib.cc, src/plugin/net.cc",
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
        return Ok(elsewhere(log, socket).into_iter().collect());
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
    let finding = Finding::new(Confidence::Certain, message)
        .seen(socket)
        .seen_all(efa.and_then(|it| it.quote))
        .by(log, &failed);
    Ok(vec![finding.with_numbers(&RULE, loss)])
}

/// Sockets between machines that are not known to have EFA.
fn elsewhere(log: &Log, socket: &Quote) -> Option<Finding> {
    // NCCL_IB_DISABLE does not concern a plugin that uses TCP.
    let by_plugin = log.job.model().is_some_and(|it| it.network == NicKind::GpuDirectTcp);
    let off = turned_off(log).filter(|it| !by_plugin || &*it.variable.name == "NCCL_NET");
    let reason = off.as_ref().map(|it| format!(": {}", it.text)).unwrap_or_default();
    let finish = |finding: Finding| {
        let finding = finding.seen(socket).seen_all(off.as_ref().and_then(|it| it.variable.quote()));
        match &off {
            Some(it) => finding.fix(it.fix()).about_variable(&it.variable.name),
            None => finding.fix(LOOK),
        }
    };
    if let Some(model) = log.job.model() {
        let network = match model.network {
            NicKind::InfiniBand => "InfiniBand",
            NicKind::Roce => "RoCE",
            NicKind::GpuDirectTcp => model.plugin.unwrap_or("GPUDirect-TCPX"),
            NicKind::Slingshot => "Slingshot",
            NicKind::Efa => "EFA",
            NicKind::Ethernet | NicKind::Unknown => return None,
        };
        let message = format!(
            "NCCL uses TCP sockets between nodes of {}, whose {network} has {}{reason}",
            model.name, model.bandwidth
        );
        let loss = expected::loss_across(log, expected::over_tcp);
        let finding = finish(Finding::new(Confidence::Certain, message).why(SLOW));
        let finding = finding.seen_all(log.job.model.as_ref().and_then(job::Known::quote));
        let plugin = model.plugin.filter(|_| off.is_none()).map(plugin_fix);
        let finding = if let Some(fix) = plugin { finding.fix(fix) } else { finding };
        return Some(finding.with_numbers(&RULE, loss));
    }
    if let Some((adapters, matrix)) = adapters_in_matrix(log) {
        let shown = adapters.iter().take(2).copied().collect::<Vec<_>>().join(", ");
        let more = adapters.len().saturating_sub(2);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message =
            format!("the machine has {shown}{more}, but NCCL uses TCP sockets between nodes{reason}");
        let finding = Finding::new(Confidence::Certain, message).severity(Severity::Warning).why(SLOW);
        return Some(finish(finding).seen(matrix));
    }
    let gpus = gpus(log);
    match gpus.as_ref().map(|it| it.class) {
        Some(GpuClass::DataCentre) => {
            let gpus = gpus?;
            let sure = if off.is_some() { Confidence::Certain } else { Confidence::Likely };
            let message = format!("NCCL uses TCP sockets between nodes with {}{reason}", gpus.name);
            let finding = Finding::new(sure, message).severity(Severity::Warning).why(
                "Machines with such GPUs are sold with InfiniBand, RoCE, EFA or GPUDirect-TCPX, which carry tens of times more than a TCP \
                 connection. If these machines have none of them, TCP is the best they can use.",
            );
            Some(finish(finding).seen_all(gpus.quote))
        }
        Some(GpuClass::Card | GpuClass::Workstation) => None,
        // Another rule says that the machine is not known; a setting is worth naming.
        None if log.job.size.spans_nodes() == Some(true) && off.is_some() => {
            let message =
                format!("NCCL uses TCP sockets between nodes; their machines are not in this input{reason}");
            let finding = Finding::new(Confidence::Possible, message).severity(Severity::Info).why(
                "On machines with plain Ethernet that is the best there is. On machines with InfiniBand, RoCE or EFA it costs most of the \
                 bandwidth.",
            );
            Some(finish(finding).fix(
                "Name the machine (`plumb doctor --instance NAME`, `plumb machines` lists them) or add `nvidia-smi topo -m` of a node: then \
                 plumb can tell.",
            ))
        }
        None => None,
    }
}

const SLOW: &str = "Between nodes every byte goes through the kernel's TCP, at a fraction of what the network of this machine carries.";

const LOOK: &str = "Look for adapters on the host and in the container (`ibv_devices`, `ls /dev/infiniband`, `fi_info -p efa`), and pass \
                    them in. `NET/IB : No device found` in the log means that NCCL saw none.";

/// What to look for where NCCL needs a plugin.
pub(super) fn plugin_fix(plugin: &str) -> String {
    match plugin {
        "GPUDirect-TCPX" | "GPUDirect-TCPXO" => format!(
            "NCCL needs the plugin {plugin} here: mount its folder into the container and put it first in LD_LIBRARY_PATH, run its daemon \
             (the container tcpx-daemon or tcpxo-daemon) beside every worker, and source the script of settings that comes with it."
        ),
        _ => format!(
            "NCCL needs the plugin {plugin} here: mount its folder into the container, put it first in LD_LIBRARY_PATH, and pass the RDMA \
             devices in (`ls /dev/infiniband`)."
        ),
    }
}

/// A setting that keeps NCCL from using RDMA.
struct TurnedOff<'a> {
    variable: &'a Variable,
    text: String,
}

impl TurnedOff<'_> {
    fn fix(&self) -> String {
        match &*self.variable.name {
            "NCCL_IB_HCA" => "Name adapters that exist (`ibv_devices` in the container lists them), or unset NCCL_IB_HCA: NCCL then uses all.".to_owned(),
            name => format!("Unset {name} where it is set, and look whether NCCL then prints `NET/IB : Using` with the adapters."),
        }
    }
}

fn turned_off(log: &Log) -> Option<TurnedOff<'_>> {
    let find = |name| log.job.settings.named(name);
    let value = |it: &Variable| it.text().trim_matches(['"', '\'', '.', ' ']).to_owned();
    if let Some(variable) = find("NCCL_NET").find(|it| value(it).eq_ignore_ascii_case("Socket")) {
        return Some(TurnedOff { variable, text: named(variable) });
    }
    if let Some(variable) = find("NCCL_IB_DISABLE").find(|it| !matches!(&*value(it), "0" | "")) {
        return Some(TurnedOff {
            variable,
            text: format!("{}, turns InfiniBand and RoCE off", named(variable)),
        });
    }
    let (adapters, _) = adapters_in_matrix(log)?;
    let variable = find("NCCL_IB_HCA").find(|it| selected_by_hca(&value(it), &adapters).is_empty())?;
    Some(TurnedOff { variable, text: format!("{}, matches none of them", named(variable)) })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};
    use crate::{Confidence, Severity};

    const SOCKET: &str =
        "a:1:1 [0] NCCL INFO NET/IB : No device found.\na:1:1 [0] NCCL INFO Using network Socket\n";
    const TWO_NODES: &str =
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n";
    const NVLS: &str = "a:1:1 [0] NCCL INFO NVLS multicast support is available on dev 0\n";
    const MATRIX: &str = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tPIX\tPXB\nGPU1\tPIX\t X \tPXB\nNIC0\tPXB\tPXB\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n";

    #[test]
    fn fires_on_a_machine_with_efa() {
        let found = findings(&RULE, &format!("{SOCKET}INSTANCE_TYPE=p5.48xlarge\n"));
        assert_eq!(found[0].message, "NCCL uses TCP sockets on p5.48xlarge, whose EFA has 3200 Gbps");
    }

    #[test]
    fn fires_on_machines_of_other_clouds() {
        let found = findings(&RULE, &format!("{SOCKET}INSTANCE_TYPE=Standard_ND96isr_H100_v5\n"));
        assert_eq!(
            found[0].message,
            "NCCL uses TCP sockets between nodes of Standard_ND96isr_H100_v5, whose InfiniBand has 3200 Gbps"
        );
        let tcpxo = findings(&RULE, &format!("{SOCKET}INSTANCE_TYPE=a3-megagpu-8g\n"));
        assert!(tcpxo[0].fix.as_ref().unwrap().contains("tcpxo-daemon"));
    }

    #[test]
    fn the_cause_comes_first() {
        let log = format!("a:1:1 [0] x:1 NCCL WARN NET/OFI aws-ofi-nccl initialization failed\n{SOCKET}");
        assert_eq!(ids(&log)[..2], ["efa-provider-not-found", "socket-fallback"]);
    }

    #[test]
    fn warns_where_gpus_are_those_of_data_centres() {
        let found = findings(&RULE, &format!("{SOCKET}{NVLS}"));
        assert_eq!((found[0].severity, found[0].confidence), (Some(Severity::Warning), Confidence::Likely));
        let h100 = format!(
            "{SOCKET}# Using devices\n#  Rank  0 Group  0 Pid 1 on a device  0 [0x1b] NVIDIA H100 80GB HBM3\n"
        );
        assert_eq!(findings(&RULE, &h100)[0].severity, Some(Severity::Warning));
        quiet(&RULE, &h100.replace("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090"));
    }

    #[test]
    fn a_setting_makes_it_certain_and_is_named() {
        let log = |setting: &str| {
            format!("a:1:1 [0] NCCL INFO {setting}\na:1:1 [0] NCCL INFO Using network Socket\n{NVLS}")
        };
        let ib = findings(&RULE, &log("NCCL_IB_DISABLE set by environment to 1."));
        assert_eq!(ib[0].confidence, Confidence::Certain);
        assert!(
            ib[0].message.contains("NCCL_IB_DISABLE=1, set in the environment of the job"),
            "{}",
            ib[0].message
        );
        let net = findings(&RULE, &log("NCCL_NET set by environment to Socket."));
        assert!(net[0].message.contains("NCCL_NET=Socket"), "{}", net[0].message);
    }

    #[test]
    fn adapters_in_a_matrix_make_it_certain() {
        let found = findings(&RULE, &format!("{SOCKET}{TWO_NODES}\n{MATRIX}"));
        assert_eq!(found[0].message, "the machine has mlx5_0, but NCCL uses TCP sockets between nodes");
        assert_eq!(found[0].confidence, Confidence::Certain);
        let hca = format!(
            "a:1:1 [0] NCCL INFO NCCL_IB_HCA set by environment to ibp3.\n{SOCKET}{TWO_NODES}\n{MATRIX}"
        );
        let found = findings(&RULE, &hca);
        assert!(
            found[0]
                .message
                .ends_with("NCCL_IB_HCA=ibp3, set in the environment of the job, matches none of them"),
            "{}",
            found[0].message
        );
    }

    #[test]
    fn a_setting_on_unknown_machines_is_a_note() {
        quiet(&RULE, &format!("{SOCKET}{TWO_NODES}"));
        let off = "a:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n";
        let found = findings(&RULE, &format!("{off}{SOCKET}{TWO_NODES}"));
        assert_eq!(found[0].severity, Some(Severity::Info));
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
