//! The network adapters cannot reach GPU memory.

use std::collections::BTreeMap;

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::plugin::is_infiniband;
use evidence::signals::p2p::{
    CONNECTION_QUOTED, GPU_REGISTRATION_FAILED, HCA_WITHOUT_GPUDIRECT, PEERMEM_NOT_REGISTERED,
};
use evidence::{MemberLink, Quote, Source};
use fabric::Version;

use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gdr-disabled",
    title: "GPUDirect RDMA is off for the network adapters",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "Every byte between nodes is copied through host memory. On machines whose GPU and HCA share a PCIe switch this costs most of \
          the network's bandwidth.",
    fix: "Load the module (`modprobe nvidia_peermem`; `lsmod | grep peermem`) and check that it registered: \
          /sys/kernel/mm/memory_peers/nv_mem*/version must exist. If not, reinstall the GPU driver after OFED, or use the open GPU kernel \
          modules, whose DMA-BUF needs no peermem.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/1676",
        "https://github.com/NVIDIA/nccl/issues/1939",
        "https://docs.nvidia.com/cuda/gpudirect-rdma/index.html",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let unregistered: Vec<_> = log.case.sightings_of(&GPU_REGISTRATION_FAILED).collect();
    if !unregistered.is_empty() {
        let message =
            "the HCA could not register GPU memory (Bad address): no driver offers this memory to the HCA";
        let finding =
            Finding::new(Confidence::Likely, message).by(log, &unregistered).severity(Severity::Error);
        return Ok(vec![finding.or("dmabuf-unsupported")]);
    }
    let mut hcas: Vec<(&str, &Quote)> = Vec::new();
    for process in &log.case.processes {
        let seen = &process.facts.hca_gpudirect;
        let counts = |quote: &Quote| {
            // Up to 2.5, lines about the distance look the same.
            !quote.text.contains("NET/Socket")
                && !quote.text.contains("(distance ")
                && (!is_libfabric(quote) || libfabric_can(log))
        };
        if !seen.iter().any(|it| it.value.enabled) {
            hcas.extend(seen.iter().filter(|it| counts(&it.quote)).map(|it| (&*it.value.adapter, &it.quote)));
        }
    }
    let quoted = log.case.sightings_of(&HCA_WITHOUT_GPUDIRECT);
    let quoted = quoted.filter(|it| !it.quote.text.contains("NET/Socket") && !is_libfabric(&it.quote));
    hcas.extend(quoted.map(|it| (it.get("hca"), &it.quote)));
    let peermem: Vec<_> = log.case.sightings_of(&PEERMEM_NOT_REGISTERED).collect();
    let loss = || expected::loss_across(log, expected::without_gpudirect);
    if !hcas.is_empty() {
        let finding = of_adapters(log, &hcas).seen_all(peermem.iter().map(|it| &it.quote));
        return Ok(vec![finding.with_numbers(&RULE, loss())]);
    }
    if let Some(finding) = on_other_nodes(log).or_else(|| on_one_side(log)) {
        return Ok(vec![finding.with_numbers(&RULE, loss())]);
    }
    if let Some(first) = peermem.first().filter(|_| !log.has(Source::NcclLog)) {
        let message = "no driver offers GPU memory to the network adapters";
        return Ok(vec![Finding::new(Confidence::Likely, message).seen(&first.quote).by(log, &peermem)]);
    }
    log.nccl_log()?;
    let copied = copied_on_infiniband(log, &peermem.iter().map(|it| &it.quote).collect::<Vec<_>>());
    Ok(copied.into_iter().map(|it| it.with_numbers(&RULE, loss())).collect())
}

fn is_libfabric(quote: &Quote) -> bool {
    PLUGIN.is_named_in(&quote.text)
}

/// On most G instances EFA has no GPUDirect, which is normal.
fn libfabric_can(log: &Log) -> bool {
    log.job.instance().is_some_and(|it| it.gpudirect_rdma == Some(true))
}

fn of_adapters(log: &Log, hcas: &[(&str, &Quote)]) -> Finding {
    let mut names: Vec<&str> = hcas.iter().map(|it| it.0).filter(|it| !it.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let message = format!(
        "GPUDirect RDMA is off for {}",
        if names.is_empty() { "the adapters".into() } else { names.join(", ") }
    );
    let finding = Finding::new(Confidence::Certain, message).seen_all(hcas.iter().map(|it| it.1));
    let finding = names.iter().fold(finding, Finding::about_nic);
    let finding = match &log.job.releases.nccl {
        Some(nccl) if nccl.value < Version::new(2, 23, 0) => finding.seen_all(nccl.quote()).fix(
            "NCCL before 2.23 checks only /sys/kernel/mm/memory_peers/nv_mem and does not see a newer nvidia_peermem: use NCCL 2.23 or \
             later. Otherwise load nvidia_peermem and check that it registered there.",
        ),
        _ => finding,
    };
    match log.job.size.spans_nodes() {
        Some(false) => finding.severity(Severity::Info),
        _ => finding,
    }
}

/// Some nodes use GPUDirect over InfiniBand, others do not.
fn on_other_nodes(log: &Log) -> Option<Finding> {
    let mut by_host: BTreeMap<&str, (bool, &Quote)> = BTreeMap::new();
    for MemberLink { member, link, .. } in log.case.links() {
        let Some((name, _, gpudirect)) = link.transport().and_then(|it| it.network()) else { continue };
        let host = log.case.processes.get(member.process).map_or("", |it| &*it.host);
        if is_infiniband(name) && !host.is_empty() {
            by_host.entry(host).or_insert((false, &link.quote)).0 |= gpudirect;
        }
    }
    let without: Vec<_> = by_host.iter().filter(|it| !it.1.0).collect();
    if without.is_empty() || without.len() == by_host.len() {
        return None;
    }
    let names: Vec<&str> = without.iter().take(4).map(|it| *it.0).collect();
    let message = format!("GPUDirect RDMA is used on other nodes but not on {}", names.join(", "));
    let finding = Finding::new(Confidence::Likely, message).seen_all(without.iter().map(|it| it.1.1));
    Some(names.iter().fold(finding, Finding::about_host))
}

/// Quoted connections of which some use GPUDirect and some do not.
fn on_one_side(log: &Log) -> Option<Finding> {
    let (with, without): (Vec<_>, Vec<_>) =
        log.case.sightings_of(&CONNECTION_QUOTED).partition(|it| it.get("device").contains("GDRDMA"));
    let (with, without) = (with.first()?, without.first()?);
    let message = "some connections over InfiniBand use GPUDirect RDMA and others do not";
    Some(Finding::new(Confidence::Likely, message).seen(&without.quote).seen(&with.quote))
}

/// Connections over InfiniBand that copy through the host, where nothing says why.
fn copied_on_infiniband(log: &Log, peermem: &[&Quote]) -> Vec<Finding> {
    let reported = log
        .case
        .processes
        .iter()
        .any(|it| !it.facts.hca_gpudirect.is_empty() || !it.facts.gpudirect_by_distance.is_empty());
    let mut copied = Vec::new();
    for MemberLink { link, .. } in log.case.links() {
        match link.transport().and_then(|it| it.network()) {
            Some((_, _, true)) => return Vec::new(),
            Some((name, _, false)) if is_infiniband(name) => copied.push(&link.quote),
            _ => {}
        }
    }
    if reported || copied.is_empty() {
        return Vec::new();
    }
    let message = format!("no connection over InfiniBand uses GPUDirect ({} seen)", copied.len());
    // GPUs behind an NVSwitch support it, and so do the adapters of such machines.
    let switch = log.case.processes.iter().any(|it| it.facts.nvls.iter().any(|it| it.value));
    let (confidence, severity) =
        if switch { (Confidence::Likely, Severity::Warning) } else { (Confidence::Possible, Severity::Info) };
    let finding = Finding::new(confidence, message)
        .severity(severity)
        .seen_all(copied)
        .seen_all(peermem.iter().copied());
    let fix = "Run with NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH: NCCL then reports for each adapter whether GPUDirect is on, and how far each GPU is from it. GeForce GPUs have no GPUDirect RDMA.";
    vec![finding.fix(fix).or("gdr-off-by-distance")]
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn fires_for_infiniband() {
        let log = "n:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n\
                   n:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'\n";
        assert_eq!(findings(&RULE, log)[0].message, "GPUDirect RDMA is off for mlx5_0, mlx5_1");
        let bare = "INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n\
                    cat: /sys/kernel/mm/memory_peers/nv_mem/version: No such file or directory\n";
        assert_eq!(findings(&RULE, bare)[0].evidence.len(), 2);
    }

    #[test]
    fn old_releases_do_not_see_the_new_module() {
        let log = "n:1:2 [3] NCCL INFO NCCL version 2.22.3+cuda12.4\nn:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n";
        assert!(findings(&RULE, log)[0].fix.as_ref().unwrap().contains("2.23"));
    }

    #[test]
    fn sockets_and_g_instances_have_none() {
        quiet(&RULE, "n:1:2 [0] NCCL INFO NET/Socket : GPU Direct RDMA Disabled for HCA 0 'eth0'\n");
        let g6e = "n:1:2 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : g6e.12xlarge, Fall back to NCCL's tuner\n\
                   n:1:2 [0] NCCL INFO NET/Libfabric : GPU Direct RDMA Disabled for HCA 0 'rdmap31s0'\n\
                   n:1:2 [0] NCCL INFO NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR\n";
        quiet(&RULE, g6e);
    }

    #[test]
    fn an_adapter_with_gpudirect_is_enough() {
        quiet(
            &RULE,
            "n:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\n\
             n:1:2 [3] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_bond_0'\n",
        );
    }

    #[test]
    fn nodes_without_it_are_named() {
        let mixed = "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n\
                     b:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [receive] via NET/IB/1\n";
        assert_eq!(findings(&RULE, mixed)[0].message, "GPUDirect RDMA is used on other nodes but not on b");
        quiet(&RULE, &mixed.replace("NET/IB/1", "NET/IB/1/GDRDMA"));
    }

    #[test]
    fn quoted_connections_and_modules() {
        let quoted =
            "9[1a000] -> 2[6b000] [send] via NET/IB/0/GDRDMA\n9[1a000] -> 2[6b000] [receive] via NET/IB/1\n";
        assert_eq!(findings(&RULE, quoted).len(), 1);
        quiet(&RULE, "9[1a000] -> 2[6b000] [receive] via NET/IB/1\n");
        let module = "modprobe: FATAL: Module nvidia_peermem not found in directory /lib/modules/5.4.0\n";
        assert_eq!(findings(&RULE, module).len(), 1);
    }

    #[test]
    fn distance_is_another_matter() {
        quiet(
            &RULE,
            "n:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance 4 >= 2)\n",
        );
    }

    #[test]
    fn memory_that_cannot_be_registered() {
        let log = "n:1:2 [0] misc/ibvwrap.cc:1 NCCL WARN Call to ibv_reg_mr failed with error Bad address\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Error));
    }

    #[test]
    fn copies_without_a_reason_are_only_mentioned() {
        let log = "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0\n";
        let found = findings(&RULE, log);
        assert_eq!((found[0].confidence, found[0].severity), (Confidence::Possible, Some(Severity::Info)));
        quiet(&RULE, "n:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n");
        let switch = format!("n:1:2 [0] NCCL INFO NVLS multicast support is available on dev 0\n{log}");
        assert_eq!(findings(&RULE, &switch)[0].severity, Some(Severity::Warning));
    }
}
