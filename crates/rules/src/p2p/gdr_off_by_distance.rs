//! GPUDirect RDMA is refused because adapter and GPU are far apart.

use evidence::signals::p2p::GPUDIRECT_TOO_FAR;
use evidence::{Missing, Quote, Source};

use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gdr-off-by-distance",
    title: "NCCL refuses GPUDirect RDMA: every adapter is too far from the GPU",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::GraphLines],
    why: "NCCL uses GPUDirect only where GPU and adapter are below a common PCIe switch (PXB or nearer, unless NCCL_NET_GDR_LEVEL says \
          otherwise). Here no GPU has such an adapter, so all traffic between nodes is copied through host memory.",
    fix: "Give each process a GPU and an adapter of the same PCIe switch (`nvidia-smi topo -m`: PIX or PXB), expose all adapters to the \
          container, and in a virtual machine pass the PCIe topology through or give NCCL_TOPO_FILE. Where the hardware has no such pair, \
          measure NCCL_NET_GDR_LEVEL=PHB (same socket) or SYS: it may be faster or slower.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net-gdr-level-formerly-nccl-ib-gdr-level",
        "https://github.com/NVIDIA/nccl/issues/1151",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let bare: Vec<&Quote> = log.case.sightings_of(&GPUDIRECT_TOO_FAR).map(|it| &it.quote).collect();
    let by_process = log.case.processes.iter().flat_map(|it| it.facts.gpudirect_by_distance.iter());
    // Up to 2.5 the line begins with the network and is read as one about the adapter.
    let adapters = log.case.processes.iter().flat_map(|it| it.facts.hca_gpudirect.iter());
    let old =
        adapters.filter(|it| it.quote.text.contains("(distance ")).map(|it| (it.value.enabled, &it.quote));
    let decisions: Vec<(bool, &Quote)> = by_process
        .map(|it| (it.value, &it.quote))
        .chain(old)
        .chain(bare.into_iter().map(|it| (false, it)))
        .collect();
    if decisions.is_empty() {
        return if log.has(Source::GraphLines) { Ok(Vec::new()) } else { Err(Missing(Source::GraphLines)) };
    }
    // A distant adapter beside a near one is normal on a machine with several adapters.
    if decisions.iter().any(|it| it.0) {
        return Ok(for_some_gpus(log, &decisions).into_iter().collect());
    }
    let off = log
        .job
        .settings
        .named("NCCL_NET_GDR_LEVEL")
        .find(|it| matches!(it.text().trim_matches(['.', '"', ',']), "LOC" | "0"));
    let message = if off.is_some() {
        "NCCL_NET_GDR_LEVEL turns GPUDirect RDMA off".to_owned()
    } else {
        let distance = decisions
            .first()
            .and_then(|it| it.1.text.split_once("(distance "))
            .and_then(|it| it.1.split_once(')'));
        let distance = distance.map_or("unknown", |it| it.0);
        format!("NCCL refuses GPUDirect RDMA for every pair of GPU and adapter (distance {distance})")
    };
    let finding = Finding::new(Confidence::Likely, message)
        .seen_all(decisions.iter().map(|it| it.1))
        .seen_all(off.and_then(job::Variable::quote));
    let finding =
        if log.job.size.spans_nodes() == Some(false) { finding.severity(Severity::Info) } else { finding };
    let loss = expected::loss_across(log, expected::without_gpudirect);
    Ok(vec![finding.with_numbers(&RULE, loss).or("vm-no-topology")])
}

/// One adapter that is near some GPUs and too far from others, where no second one is known.
fn for_some_gpus(log: &Log, decisions: &[(bool, &Quote)]) -> Option<Finding> {
    let adapters =
        log.case.processes.iter().filter_map(|it| it.facts.hcas.first().map(|it| it.value.len())).max();
    if adapters.is_some_and(|it| it > 1) {
        return None;
    }
    let pairs: Vec<_> = decisions.iter().filter_map(|it| Some((it.0, pair(&it.1.text)?, it.1))).collect();
    let first = pairs.first()?.1.adapter;
    let one = pairs.iter().all(|it| it.1.adapter == first);
    let far: Vec<_> = pairs.iter().filter(|it| !it.0).collect();
    let near = |gpu: &str| pairs.iter().any(|it| it.0 && it.1.gpu == gpu);
    let without = far.iter().find(|it| !near(it.1.gpu)).filter(|_| one)?;
    let message = format!(
        "NCCL uses GPUDirect RDMA for some GPUs, but not for GPU {}: it is too far from the adapter",
        without.1.gpu
    );
    let (confidence, severity) = match adapters {
        Some(_) => (Confidence::Likely, Severity::Warning),
        None => (Confidence::Possible, Severity::Info),
    };
    let severity = if log.job.size.spans_nodes() == Some(false) { Severity::Info } else { severity };
    Some(Finding::new(confidence, message).severity(severity).seen_all(pairs.iter().map(|it| it.2)))
}

struct Pair<'a> {
    gpu: &'a str,
    adapter: &'a str,
}

/// `GPU Direct RDMA Disabled for GPU 18000 / HCA 0 (distance 5 > 4)`
fn pair(text: &str) -> Option<Pair<'_>> {
    let (gpu, rest) = text.split_once(" for GPU ")?.1.split_once(" / HCA ")?;
    Some(Pair { gpu, adapter: rest.split(' ').next()? })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    #[test]
    fn fires_when_all_are_far() {
        for line in [
            "n:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)\n",
            "NCCL INFO GPU Direct RDMA Disabled for GPU ca000 / HCA 0 (distance 7 > 4)\n",
        ] {
            let found = findings(&RULE, line);
            assert_eq!(
                found[0].message,
                "NCCL refuses GPUDirect RDMA for every pair of GPU and adapter (distance 7 > 4)"
            );
        }
    }

    #[test]
    fn fires_in_old_releases() {
        let line =
            "n:1:2 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance 4 >= 2)\n";
        assert_eq!(findings(&RULE, line).len(), 1);
    }

    #[test]
    fn a_near_adapter_is_enough() {
        quiet(
            &RULE,
            "n:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 18000 / HCA 1 (distance 5 > 4)\n\
             n:1:2 [0] NCCL INFO GPU Direct RDMA Enabled for GPU 18000 / HCA 0 (distance 4 <= 4), read 0\n",
        );
    }

    #[test]
    fn the_only_adapter_is_far_from_some_gpus() {
        let log = "n:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 18000 / HCA 0 (distance 5 > 4)\n\
                   n:1:2 [0] NCCL INFO GPU Direct RDMA Enabled for GPU 86000 / HCA 0 (distance 4 <= 4), read 0\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Info));
        let one = "n:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB eth0:10.0.0.1<0>\n";
        assert_eq!(findings(&RULE, &format!("{one}{log}"))[0].severity, Some(Severity::Warning));
        let two = one.replace(" ; OOB", " [1]mlx5_1:1/IB ; OOB");
        quiet(&RULE, &format!("{two}{log}"));
    }

    #[test]
    fn names_a_setting() {
        let log = "n:1:2 [0] NCCL INFO NCCL_NET_GDR_LEVEL set by environment to LOC\n\
                   n:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 1 / HCA 0 (distance 4 > 0)\n";
        assert_eq!(findings(&RULE, log)[0].message, "NCCL_NET_GDR_LEVEL turns GPUDirect RDMA off");
    }
}
