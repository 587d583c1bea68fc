//! NCCL did not find the EFA plugin on a machine with EFA.

use evidence::Source;
use evidence::nccl::{PluginEvent, PluginRole};
use evidence::plugin::aws_ofi::PLUGIN;
use evidence::signals::efa::{
    LIBRARY_PATH, LIBRARY_VERSION, NETWORK_REFUSED, NO_PLUGIN, NO_VERBS, PLUGIN_LOAD,
};

use super::{efa_in_use, plugin_logged, sign_of_efa, socket_chosen};
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ofi-plugin-not-loaded",
    title: "the EFA plugin of NCCL is not loaded",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "NCCL reaches EFA only through libnccl-net.so of aws-ofi-nccl. When the dynamic linker does not find it, NCCL says so at level \
          INFO, if at all, and uses TCP sockets: a few Gbps instead of hundreds.",
    fix: "Install the EFA software in the image and add its folders: `LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:\
          /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu:/opt/amazon/efa/lib:$LD_LIBRARY_PATH` (older images: /opt/aws-ofi-nccl/lib, \
          /opt/amazon/aws-ofi-nccl/lib; `find / -name 'libnccl-net*.so'` finds it). Pass the variable on (`mpirun -x LD_LIBRARY_PATH`). \
          NCCL_NET=\"AWS Libfabric\" (or Libfabric) makes a missing plugin an error.",
    references: &[
        "https://github.com/NVIDIA-NeMo/RL/issues/1973",
        "https://github.com/NVIDIA/nccl/issues/959",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&NO_PLUGIN, &PLUGIN_LOAD, &NETWORK_REFUSED], Source::JobOutput)?;
    let absent: Vec<_> =
        found.iter().copied().filter(|it| *it.signal != NETWORK_REFUSED && is_plugin(it)).collect();
    let refused: Vec<_> = found.iter().copied().filter(|it| *it.signal == NETWORK_REFUSED).collect();
    let asked = log.job.settings.named("NCCL_NET").find(|it| PLUGIN.gives(it.text()) || it.text() == "AWS");
    if !refused.is_empty() && (asked.is_some() || refused.iter().any(|it| PLUGIN.gives(it.get("name")))) {
        let message = "NCCL_NET requests the network of aws-ofi-nccl, but no plugin provides it";
        let finding = Finding::new(Confidence::Certain, message).by(log, &refused).by(log, &absent);
        return Ok(vec![finding.seen_all(asked.and_then(job::Variable::quote))]);
    }
    if plugin_logged(log) || efa_in_use(log) || log.case.first_of(&[&LIBRARY_VERSION]).is_some() {
        return Ok(Vec::new());
    }
    // Somebody who names a plugin wants it, on EFA or not.
    let named = log
        .job
        .settings
        .named("NCCL_NET_PLUGIN")
        .find(|it| !it.text().is_empty() && !it.text().eq_ignore_ascii_case("none"));
    let not_found = log
        .case
        .processes
        .iter()
        .flat_map(|it| it.facts.plugins.iter())
        .find(|it| matches!(&it.value, PluginEvent::NotFound { role: PluginRole::Net, .. }));
    // NCCL 2.21 to 2.25 print the name on a separate line.
    let asked =
        log.case.processes.iter().flat_map(|it| it.facts.plugins.iter()).find_map(|it| match &it.value {
            PluginEvent::Asked { role: PluginRole::Net, library }
                if !library.eq_ignore_ascii_case("none") =>
            {
                Some((&**library, &it.quote))
            }
            _ => None,
        });
    if let (Some((name, quote)), Some(seen)) =
        (named.and_then(|it| Some((it.text(), it.quote()?))).or(asked), not_found)
    {
        let message = format!("the network plugin {name}, which NCCL_NET_PLUGIN names, was not found");
        let finding = Finding::new(Confidence::Certain, message)
            .seen(&seen.quote)
            .seen(quote)
            .seen_all(socket_chosen(log));
        let efa = name.contains("ofi") || name == "libnccl-net.so" || sign_of_efa(log).is_some();
        return Ok(vec![if efa {
            finding
        } else {
            finding
                .why("NCCL continues with its own InfiniBand or socket transport, or stops if NCCL_NET requests the plugin's network.")
                .fix("Install the plugin in the image and put its folder on LD_LIBRARY_PATH, give its full path, or unset NCCL_NET_PLUGIN.")
        }]);
    }
    let Some(efa) = sign_of_efa(log).filter(|_| log.job.may_span_machines()) else { return Ok(Vec::new()) };
    let path = log
        .case
        .sightings_of(&LIBRARY_PATH)
        .find(|it| !["ofi", "amazon"].iter().any(|word| it.get("path").contains(word)));
    let finding = if !absent.is_empty() {
        let message = "NCCL found no network plugin, but the machine has EFA or the settings are for EFA";
        Finding::new(Confidence::Likely, message).by(log, &absent)
    } else if let Some(quote) = socket_chosen(log) {
        let message = "NCCL uses TCP sockets on a machine with EFA, and no line comes from the EFA plugin";
        Finding::new(Confidence::Likely, message).seen(quote)
    } else {
        return Ok(Vec::new());
    };
    let verbs = log.case.sightings_of(&NO_VERBS).map(|it| &it.quote);
    let finding = finding.seen_all(efa.quote).seen_all(path.map(|it| &it.quote)).seen_all(verbs);
    Ok(vec![finding.priced(expected::price_of_tcp(log, socket_chosen(log)))])
}

/// Whether the line is about the plugin itself and not about a library it needs.
fn is_plugin(line: &evidence::Sighting) -> bool {
    let library = line.get("library").rsplit([' ', '/']).next().unwrap_or_default();
    *line.signal == NO_PLUGIN || library.starts_with("libnccl-net")
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const ABSENT: &str = "a:1:1 [1] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).\n";

    #[test]
    fn fires_where_efa_was_meant() {
        assert_eq!(
            findings(&RULE, &format!("{ABSENT}env: NCCL_SOCKET_IFNAME=eth0 FI_PROVIDER=efa\n")).len(),
            1
        );
        let quoted = "NET/Socket: Using [eth0:...]\nLD_LIBRARY_PATH=/usr/local/nvidia/lib64\ninstance types: P5, P5en (EFA)\n";
        assert_eq!(findings(&RULE, quoted).len(), 1);
    }

    #[test]
    fn fires_when_a_network_or_a_plugin_was_asked_for_by_name() {
        let net = "a:1:1 [0] NCCL INFO NCCL_NET set by environment to AWS Libfabric\n\
                   a:1:1 [0] plugin/net.cc:379 NCCL WARN Failed to initialize any NET plugin\n";
        assert_eq!(findings(&RULE, net).len(), 1);
        let plugin = "a:1:1 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to libnccl-net-x.so\n\
                      a:1:1 [0] NCCL INFO NET/Plugin: Could not find: libnccl-net-x.so\n";
        assert_eq!(
            findings(&RULE, plugin)[0].message,
            "the network plugin libnccl-net-x.so, which NCCL_NET_PLUGIN names, was not found"
        );
    }

    #[test]
    fn without_efa_a_missing_plugin_is_normal() {
        quiet(&RULE, ABSENT);
        quiet(
            &RULE,
            "Unable to load libnccl-net.so : libnccl-net.so: cannot open shared object file: No such file or directory\n",
        );
        quiet(&RULE, &format!("{ABSENT}a:1:1 [0] NCCL INFO NCCL_NET_PLUGIN set by environment to none\n"));
        let inside = "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 8 cudaDev 0 busId 101c0 - Init COMPLETE\n";
        quiet(&RULE, &format!("{ABSENT}{inside}INSTANCE_TYPE=p4d.24xlarge\n"));
    }
}
