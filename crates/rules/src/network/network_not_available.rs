//! `NCCL_NET` names a network that nothing provides.

use evidence::Source;
use evidence::plugin::{aws_ofi, is_infiniband, is_socket};
use evidence::signals::efa::NETWORK_REFUSED;

use super::{named, socket_fallback::plugin_fix};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "network-not-available",
    title: "NCCL_NET names a network that nothing provides",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "With NCCL_NET set, NCCL uses the network of that name or stops. IB and Socket are built in; every other name comes from a plugin, \
          which must be found, fit this NCCL and find its devices.",
    fix: "Unset NCCL_NET to let NCCL choose, or install the plugin that provides this network: `NET/Plugin` lines of NCCL_DEBUG=INFO say \
          which library was looked for and what was wrong with it.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net",
        "NCCL src/net.cc, src/plugin/net.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let refused = log.find_signals(&[&NETWORK_REFUSED], Source::JobOutput)?;
    let Some(first) = refused.first() else { return Ok(Vec::new()) };
    let variable = log.job.settings.named("NCCL_NET").next();
    let name = variable.map_or(first.get("name"), |it| it.text()).trim_end_matches('.');
    if name.is_empty()
        && let Some(tried) = nothing_allowed(log)
    {
        let message = format!("NCCL_NET allows no network that works here{tried}, though sockets would work");
        let finding = Finding::new(Confidence::Likely, message).by(log, &refused);
        return Ok(vec![finding.about_variable("NCCL_NET")]);
    }
    // Other rules know more about these.
    let elsewhere = aws_ofi::PLUGIN.gives(name) || name == "AWS" || is_infiniband(name) || is_socket(name);
    if name.is_empty() || elsewhere {
        return Ok(Vec::new());
    }
    let who = variable.map_or_else(|| format!("NCCL_NET={name}"), named);
    let message = format!("{who}: no plugin provides a network of this name, and NCCL stopped");
    let finding = Finding::new(Confidence::Certain, message)
        .by(log, &refused)
        .seen_all(variable.and_then(job::Variable::quote))
        .about_variable("NCCL_NET");
    let plugin = evidence::plugin::of_network(name).map(|it| plugin_fix(it.name));
    Ok(vec![if let Some(fix) = plugin { finding.fix(fix) } else { finding }])
}

/// Sockets are built in and start wherever the setup has an interface: if they were not even tried, `NCCL_NET` or the `netName` of the
/// communicator excludes them (NCCL 2.28.9 `src/plugin/net.cc`, `ncclNetInit`). Says what was tried.
fn nothing_allowed(log: &Log) -> Option<&'static str> {
    // A plugin that was not found is reported by name.
    if log.job.settings.named("NCCL_NET_PLUGIN").next().is_some() {
        return None;
    }
    let facts = || log.case.processes.iter().map(|it| &it.facts);
    if !facts().any(|it| !it.bootstrap.is_empty()) || facts().any(|it| !it.sockets.is_empty()) {
        return None;
    }
    Some(if facts().any(|it| !it.no_ib_device.is_empty()) { " (IB was tried and has no device)" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn sockets_that_were_not_tried_are_excluded() {
        let refused = "a:1:1 [0] plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin\n";
        let log = format!("a:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.77.0.11<0>\n{refused}");
        assert!(findings(&RULE, &log)[0].message.starts_with("NCCL_NET allows no network that works here,"));
        quiet(&RULE, refused);
    }

    #[test]
    fn fires_on_a_name_that_nothing_provides() {
        let old = "a:1:1 [0] net.cc:285 NCCL WARN Error: network FasTrak not found.\n";
        let found = findings(&RULE, old);
        assert_eq!(
            found[0].message,
            "NCCL_NET=FasTrak: no plugin provides a network of this name, and NCCL stopped"
        );
        assert!(found[0].fix.as_ref().unwrap().contains("tcpxo-daemon"));
        let new = "a:1:1 [0] NCCL INFO NCCL_NET set by environment to Mooon\n\
                   a:1:1 [0] plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin\n";
        assert!(findings(&RULE, new)[0].message.starts_with("NCCL_NET=Mooon, set in the environment"));
    }

    #[test]
    fn leaves_efa_and_infiniband_to_their_rules() {
        for name in ["AWS Libfabric", "IB", "Socket"] {
            quiet(&RULE, &format!("a:1:1 [0] net.cc:285 NCCL WARN Error: network {name} not found.\n"));
        }
    }
}
