//! The host has RDMA adapters, but the container cannot open them.

use evidence::nccl::PluginEvent;
use evidence::plugin::ib::RDMA_SHARP;
use evidence::plugin::{is_infiniband, is_socket};
use evidence::signals::efa::NETWORK_REFUSED;
use evidence::signals::ib::{NO_ADAPTERS, NO_USER_DRIVER, UNABLE_TO_OPEN};
use evidence::signals::interface::DOCKER_RUN;
use evidence::{Process, Source};

use crate::interface::address::is_ipoib;
use crate::network::{adapters_in_matrix, selected_by_hca};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ib-device-not-in-container",
    title: "RDMA adapters are not usable in the container",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "/sys shows the adapters of the host in every container, but verbs need the device files. Without them NCCL falls back to TCP, \
          at a fraction of the speed.",
    fix: "Pass the devices and the right to lock memory: `docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1`; in \
          Kubernetes request the device plugin's resource (rdma/..., nvidia.com/...) and add the capability IPC_LOCK. `ibv_devinfo` inside \
          the container must list the ports.",
    references: &["https://github.com/NVIDIA/nccl/issues/451", "https://github.com/NVIDIA/nccl/issues/941"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&UNABLE_TO_OPEN, &NO_USER_DRIVER, &NETWORK_REFUSED], Source::NcclLog)?;
    let closed: Vec<_> = found.iter().copied().filter(|it| *it.signal == UNABLE_TO_OPEN).collect();
    let uses_rdma = log.case.processes.iter().any(|it| it.facts.hcas.iter().any(|it| !it.value.is_empty()))
        || log.case.networks().any(|it| !is_socket(&it.value));
    if uses_rdma {
        // Adapters that cannot be opened beside ones that can are those of other containers.
        return Ok(Vec::new());
    }
    if let Some(first) = closed.iter().find(|it| !it.get("device").is_empty()).or(closed.first()) {
        let device = if first.get("device").is_empty() { "an adapter" } else { first.get("device") };
        let finding = Finding::new(Confidence::Likely, format!("{device} exists but cannot be opened"))
            .by(log, &closed);
        let fallback = log.case.networks().find(|it| is_socket(&it.value)).map(|it| &it.quote);
        return Ok(vec![finding.seen_all(fallback).about_nic(first.get("device"))]);
    }
    if let Some(finding) = without_driver(log).or_else(|| refused(log)) {
        return Ok(vec![finding]);
    }
    let disabled = log.job.settings.named("NCCL_IB_DISABLE").any(|it| it.text() != "0");
    let without = log.case.processes.iter().find(|it| !it.facts.no_ib_device.is_empty());
    let Some(process) = without.filter(|_| !disabled && several_hosts_or_unknown(log)) else {
        return Ok(Vec::new());
    };
    let quote = process.facts.no_ib_device.first().map(|it| &it.quote);
    // Adapters that a matrix shows and that NCCL_IB_HCA does not select are not missing: another rule reports it.
    let unselected = |setting: &str| {
        adapters_in_matrix(log).is_some_and(|(names, _)| selected_by_hca(setting, &names).is_empty())
    };
    let asked = log.job.settings.named("NCCL_IB_HCA").find(|it| !it.text().starts_with('^'));
    if asked.is_some_and(|it| unselected(it.text())) {
        return Ok(Vec::new());
    }
    if let Some(asked) = asked {
        let message =
            format!("NCCL_IB_HCA={} requests adapters, but {} finds none", asked.text(), process.name());
        let finding = Finding::new(Confidence::Likely, message)
            .severity(Severity::Warning)
            .seen_all(quote)
            .seen_all(asked.quote());
        return Ok(vec![finding.or("ib-hca-selection")]);
    }
    if let Some(tool) = log.case.sightings_of(&NO_ADAPTERS).next() {
        let message = format!("{} finds no RDMA device, and neither does ibv_devinfo", process.name());
        return Ok(vec![
            Finding::new(Confidence::Likely, message)
                .severity(Severity::Warning)
                .seen(&tool.quote)
                .seen_all(quote),
        ]);
    }
    if let Some((name, list)) = ipoib(process) {
        let message = format!(
            "{} has {name}, a port of an InfiniBand adapter, but finds no RDMA device",
            process.name()
        );
        return Ok(vec![
            Finding::new(Confidence::Likely, message)
                .severity(Severity::Warning)
                .seen_all(quote)
                .seen(list)
                .about_nic(name),
        ]);
    }
    let settings = ["NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX", "NCCL_IB_TC"];
    let set = || settings.iter().find_map(|name| log.job.settings.named(name).next().map(|it| (name, it)));
    if let Some((name, it)) = log.job.size.has_several_hosts().then(set).flatten() {
        let message =
            format!("{name}={} is a setting for RDMA adapters, but {} finds none", it.text(), process.name());
        return Ok(vec![
            Finding::new(Confidence::Possible, message)
                .severity(doubt(log))
                .seen_all(quote)
                .seen_all(it.quote()),
        ]);
    }
    // The plugin of HPC-X is in many images; together with ports of fast adapters it is a hint.
    if !has_rdma_plugin(process) {
        return Ok(Vec::new());
    }
    let started = log.case.sightings_of(&DOCKER_RUN).find(|it| {
        let arguments = it.get("arguments");
        !arguments.contains("/dev/infiniband") && !arguments.contains("--privileged")
    });
    let message = match (fast_port(process), started) {
        (_, Some(_)) => "a container with a plugin for RDMA was started without /dev/infiniband".to_owned(),
        (Some(port), None) => {
            format!(
                "{} has a plugin for RDMA and a port {port} of a fast adapter, but finds no RDMA device",
                process.name()
            )
        }
        (None, None) => return Ok(Vec::new()),
    };
    let finding = Finding::new(Confidence::Possible, message).severity(doubt(log)).seen_all(quote);
    let finding = finding.seen_all(started.map(|it| &it.quote));
    Ok(vec![finding.seen_all(log.case.networks().next().map(|it| &it.quote))])
}

/// A doubt about a job that runs; the best explanation there is of one that failed.
fn doubt(log: &Log) -> Severity {
    if log.job.outcome.state.is_bad() { Severity::Error } else { Severity::Warning }
}

/// The verbs library finds an adapter and cannot use it, and a tool finds none.
fn without_driver(log: &Log) -> Option<Finding> {
    let missing: Vec<_> = log.case.sightings_of(&NO_USER_DRIVER).collect();
    let tool = log.case.sightings_of(&NO_ADAPTERS).next()?;
    let path = missing.first()?.get("path").trim_end_matches([':', '.']);
    let message = format!("/sys shows {path}, but no adapter can be used");
    let finding = Finding::new(Confidence::Likely, message).by(log, &missing).seen(&tool.quote);
    Some(finding.severity(Severity::Warning).fix(
        "Put the user-space drivers (rdma-core or MLNX_OFED, of a release that knows the adapter) into the image, and pass /dev/infiniband \
         to the container; `ibv_devinfo` inside it must list the ports.",
    ))
}

/// `NCCL_NET=IB`, or adapters named in `NCCL_IB_HCA`, where NCCL then has no network at all.
fn refused(log: &Log) -> Option<Finding> {
    let refused = log.case.sightings_of(&NETWORK_REFUSED).next()?;
    let named = is_infiniband(refused.get("name"));
    let asked = log.job.settings.named("NCCL_NET").find(|it| is_infiniband(it.text()));
    let asked =
        asked.or_else(|| log.job.settings.named("NCCL_IB_HCA").find(|it| !it.text().starts_with('^')));
    if !named && asked.is_none() {
        return None;
    }
    let message = "the InfiniBand network is requested, but no adapter can be used";
    let finding = Finding::new(Confidence::Likely, message).seen(&refused.quote);
    Some(finding.seen_all(asked.and_then(job::Variable::quote)).or("ib-hca-selection"))
}

/// An interface of IP over `InfiniBand`, which exists only where there is an adapter.
fn ipoib(process: &Process) -> Option<(&str, &evidence::Quote)> {
    let lists = process.facts.sockets.iter().chain(process.facts.bootstrap.iter());
    let mut names = lists.flat_map(|seen| seen.value.iter().map(move |it| (&*it.name, &seen.quote)));
    names.find(|it| is_ipoib(it.0))
}

/// On one node no network is needed.
fn several_hosts_or_unknown(log: &Log) -> bool {
    log.job.size.has_several_hosts() || log.job.size.spans_nodes().is_none()
}

fn has_rdma_plugin(process: &Process) -> bool {
    process
        .facts
        .plugins
        .iter()
        .any(|it| matches!(&it.value, PluginEvent::Network { name } if RDMA_SHARP.gives(name)))
}

/// A port named by its number on the adapter (`ens5f0np0`), as drivers of fast adapters do.
fn fast_port(process: &Process) -> Option<&str> {
    let names = process.facts.sockets.iter().flat_map(|it| &it.value).map(|it| &*it.name);
    names.into_iter().find(|it| it.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with("np"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_on_a_device_that_cannot_be_opened() {
        let log = "n:1:1 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed\n\
                   n:1:1 [0] transport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_bond_0\n\
                   n:1:1 [0] NCCL INFO NET/IB : No device found.\nn:1:1 [0] NCCL INFO Using network Socket\n";
        assert_eq!(findings(&RULE, log)[0].message, "mlx5_bond_0 exists but cannot be opened");
    }

    #[test]
    fn a_plugin_that_finds_nothing_is_a_hint() {
        let log = "n:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin NCCL RDMA Plugin (v5)\nn:1:2 [0] NCCL INFO NET/IB : No device found.\n\
                   n:1:2 [0] NCCL INFO NET/Socket : Using [0]ens5f0np0:10.0.0.1<0>\nn:1:2 [0] NCCL INFO Using network Socket\n";
        let found = findings(&RULE, log);
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Possible, Some(Severity::Warning)));
    }

    #[test]
    fn quiet_without_adapters_and_when_others_work() {
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO NET/IB : No device found.\nn:1:1 [0] NCCL INFO NET/Socket : Using [0]ens3:10.0.0.1<0>\n",
        );
        quiet(
            &RULE,
            "n:1:1 [0] transport/net_ib.cc:149 NCCL WARN NET/IB : Unable to open device mlx5_58\n\
             n:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_1:1/RoCE [1]mlx5_18:1/RoCE ; OOB eth0:10.0.0.1<0>\nn:1:1 [0] NCCL INFO Using network IB\n",
        );
    }

    #[test]
    fn fires_on_ports_of_adapters_and_on_a_network_that_is_not_there() {
        let ipoib = "c:9:11 [5] NCCL INFO NET/IB : No device found.\n\
                     c:9:11 [5] NCCL INFO NET/Socket : Using [0]ibp12s0:10.0.0.32<0> [1]ibp18s0:10.0.1.32<0>\n";
        assert_eq!(findings(&RULE, ipoib)[0].confidence, Confidence::Likely);
        let refused = "n:1:1 [0] NCCL WARN Failed to initialize any NET plugin\n";
        assert_eq!(findings(&RULE, &format!("{refused}NCCL_NET=IB\n")).len(), 1);
        quiet(&RULE, refused);
    }

    #[test]
    fn fires_on_an_image_without_drivers() {
        let log = "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0\n0 HCAs found:\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Warning));
    }
}
