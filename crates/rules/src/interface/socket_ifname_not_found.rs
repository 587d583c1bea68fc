//! No interface has the requested name.

use evidence::Source;
use evidence::signals::interface::{GLOO_NO_INTERFACE, NO_SOCKET_INTERFACE};
use evidence::signals::versions::{BAD_ADDRESS_FAMILY, MISMATCHED_VERSION};

use super::socket_ifname_mismatch::mismatch;
use job::Scope;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "socket-ifname-not-found",
    title: "NCCL_SOCKET_IFNAME leaves no usable interface",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL considers only interfaces that match the variable, are up and have an address. If none is left, it stops; 2.27 may continue \
          with an empty address and fail later with an invalid address family.",
    fix: "Set NCCL_SOCKET_IFNAME to the interface that carries the node's address (`ip -br addr` inside the container), to a prefix of \
          its name, or unset it: NCCL then takes the first interface that is not loopback or docker.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1837",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log
        .find_signals(&[&NO_SOCKET_INTERFACE, &GLOO_NO_INTERFACE, &BAD_ADDRESS_FAMILY], Source::JobOutput)?;
    if found.is_empty() || mismatch(log).is_some() {
        return Ok(Vec::new());
    }
    if let Some(gloo) =
        found.iter().find(|it| *it.signal == GLOO_NO_INTERFACE && is_interface(log, it.get("name")))
    {
        let message = format!("Gloo finds no interface {} with an address", gloo.get("name"));
        let finding =
            Finding::new(Confidence::Certain, message).by(log, &[gloo]).about_variable("GLOO_SOCKET_IFNAME");
        return Ok(vec![finding.fix(
            "Set GLOO_SOCKET_IFNAME (and NCCL_SOCKET_IFNAME) to the interface that carries the node's address; Gloo takes exact names, \
             neither prefixes nor `^`.",
        )]);
    }
    let said: Vec<_> = found.iter().copied().filter(|it| *it.signal == NO_SOCKET_INTERFACE).collect();
    // The value of a process that failed, before values of others.
    let failing = |process: &evidence::Process| {
        said.iter().any(|it| log.case.process_of(it).is_some_and(|it| it == process))
    };
    let mut values: Vec<_> = log.job.settings.named("NCCL_SOCKET_IFNAME").collect();
    values.sort_by_key(|it| match it.scope {
        Scope::Process(at) => !log.case.processes.get(at).is_some_and(failing),
        _ => true,
    });
    let value = values.first();
    if said.is_empty() {
        // An invalid family comes from another NCCL release as well.
        let Some(set) = value.filter(|_| log.case.first_of(&[&MISMATCHED_VERSION]).is_none()) else {
            return Ok(Vec::new());
        };
        let message = format!(
            "NCCL found no address for NCCL_SOCKET_IFNAME={}, and a rank received an invalid one",
            set.text()
        );
        let finding = Finding::new(Confidence::Likely, message)
            .by(log, &found)
            .seen_all(set.quote())
            .about_variable("NCCL_SOCKET_IFNAME");
        return Ok(vec![finding.or("nccl-version-mismatch")]);
    }
    let Some(set) = value else {
        let message = "NCCL found no interface with an address";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &said)]);
    };
    let message = format!("NCCL_SOCKET_IFNAME={} leaves no interface with an address", set.text());
    let finding = Finding::new(Confidence::Certain, message)
        .by(log, &said)
        .seen_all(set.quote())
        .about_variable("NCCL_SOCKET_IFNAME");
    let advice = if set.text().starts_with('^') {
        "The value excludes names; no interface that is left has an address. Name the interface that carries the node's address (`ip -br addr`) instead of excluding the others."
    } else if set.text().starts_with('=') {
        "The `=` requires exactly this name. Leave it out: NCCL_SOCKET_IFNAME is then a prefix. Check the name with `ip -br addr` inside the container."
    } else {
        return Ok(vec![finding]);
    };
    Ok(vec![finding.fix(advice)])
}

/// Whether Gloo searched for an interface; without the variable it resolves the host's own name.
pub(crate) fn is_interface(log: &Log, name: &str) -> bool {
    let asked = log.job.settings.named("GLOO_SOCKET_IFNAME").next().is_some();
    // `bond0.100` is an interface, `node-1.example` a host.
    let (first, rest) = name.trim_end_matches('.').split_once('.').unwrap_or((name, ""));
    let usual = ["eth", "en", "ib", "bond", "br", "net", "team", "vlan", "wl"];
    let like_one =
        usual.iter().any(|it| first.starts_with(it)) && first.ends_with(|it: char| it.is_ascii_digit());
    asked || rest.is_empty() || like_one
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_with_the_name() {
        let log = "n:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9\n\
                   n:1:1 [0] bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "NCCL_SOCKET_IFNAME=eth9 leaves no interface with an address"
        );
        let pasted = "Bootstrap : no socket interface found\nNCCL_SOCKET_IFNAME: =ens1np0\n";
        assert!(findings(&RULE, pasted)[0].fix.as_ref().is_some_and(|it| it.contains("Leave it out")));
        let old = "n:1:1 [0] transport/net_socket.cu:49 NCCL WARN NET/Socket : no interface found\n";
        assert_eq!(findings(&RULE, old).len(), 1);
    }

    #[test]
    fn a_nonsense_family_beside_a_name() {
        let log = "n:1:1 [3] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth2\n\
                   ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)\n";
        assert_eq!(ids(log)[0], "socket-ifname-not-found");
    }

    #[test]
    fn quiet_when_the_interface_is_there() {
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\nn:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n",
        );
        quiet(
            &RULE,
            "ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) nor AF_INET6(10)\n",
        );
    }

    #[test]
    fn the_words_of_the_oldest_releases() {
        let line = "n:3:3 [0] include/socket.h:311 WARN Socket creation failed : Address family not supported by protocol\n";
        assert_eq!(ids(line)[0], "socket-ifname-not-found");
    }

    #[test]
    fn gloo_looks_for_interfaces_and_for_host_names() {
        let line = |name: &str| {
            format!("[enforce fail at device.cc:127] rp != nullptr. Unable to find address for: {name}\n")
        };
        assert_eq!(findings(&RULE, &line("eth7")).len(), 1);
        assert_eq!(findings(&RULE, &line("bond0.100")).len(), 1);
        quiet(&RULE, &line("node-1.example"));
    }
}
