//! EFA does not reach GPU memory on a machine that supports it.

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::signals::efa::GPUDIRECT_REFUSED;
use evidence::{Missing, Source};

use super::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpudirect-off",
    title: "GPUDirect RDMA is off on a machine that supports it",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "Every byte between nodes is copied through host memory on both sides, or the plugin refuses to start. The usual reason is a \
          second libfabric in the image, or a kernel without the EFA driver's peer memory support.",
    fix: "On the host `cat /sys/class/infiniband/*/device/p2p` must name NVIDIA; if not, update the NVIDIA driver and run the \
          EFA installer there. In the container `FI_LOG_LEVEL=info /opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM -c FI_HMEM` must list \
          devices; if not, remove every libfabric but the one in /opt/amazon/efa. Do not set NCCL_NET_GDR_LEVEL=LOC or 0.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/889",
        "https://github.com/aws/aws-ofi-nccl/pull/286",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let refused: Vec<_> = log.case.sightings_of(&GPUDIRECT_REFUSED).collect();
    if let Some(first) = refused.first() {
        let on = first.get("type");
        let on = if on.is_empty() { String::new() } else { format!(" on {on}") };
        // The usual reason is a wrong library, which another rule reports; this is the other one.
        let message =
            format!("the EFA driver may not support GPUDirect RDMA{on}, so the plugin refuses to start");
        return Ok(vec![
            Finding::new(Confidence::Possible, message).by(log, &refused).or("ofi-plugin-lib-mismatch"),
        ]);
    }
    let processes = log.nccl_log()?;
    let (machine, named) = machine(log).ok_or(Missing(Source::Instance))?;
    if machine.gpudirect_rdma != Some(true) {
        return Ok(Vec::new());
    }
    let loss = || expected::loss_across(log, expected::without_gpudirect);
    if let Some((process, seen)) =
        processes.iter().find_map(|it| Some((it, it.facts.plugin.gpudirect_off.first()?)))
    {
        let message = format!(
            "the plugin turned GPUDirect RDMA off for {}, although {} supports it",
            process.name(),
            machine.name
        );
        let finding = Finding::new(Confidence::Certain, message).seen(&seen.quote).seen_all(named);
        return Ok(vec![finding.with_numbers(&RULE, loss()).or("ofi-plugin-lib-mismatch")]);
    }
    // Connections for send and receive may use a distant NIC: that is normal.
    let collective = || log.case.links().filter(|it| !it.link.point_to_point);
    let links = || collective().filter_map(|it| Some((it.rank, it.link, it.link.transport()?.network()?)));
    let over_efa = || links().filter(|it| PLUGIN.gives(it.2.0));
    let (all, without) = (over_efa().count(), over_efa().filter(|it| !it.2.2).count());
    let Some((_, first, _)) = over_efa().find(|it| !it.2.2) else { return Ok(Vec::new()) };
    let message = format!(
        "{without} of {all} EFA connections do not use GPUDirect RDMA, although {} supports it",
        machine.name
    );
    let finding = Finding::new(Confidence::Likely, message)
        .severity(Severity::Warning)
        .seen(&first.quote)
        .seen_all(named);
    let finding = over_efa().filter(|it| !it.2.2).fold(finding, |it, (rank, _, _)| it.about_rank(rank));
    Ok(vec![finding.with_numbers(&RULE, loss()).or("topo-file-missing").or("gdr-off-by-distance")])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    const P4D: &str =
        "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n";
    const OFF: &str =
        "a:1:2 [0] NCCL INFO NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR\n";

    #[test]
    fn fires_where_the_machine_can_do_it() {
        assert_eq!(
            findings(&RULE, &format!("{P4D}{OFF}"))[0].message,
            "the plugin turned GPUDirect RDMA off for process 1 on a, although p4d.24xlarge supports it"
        );
        let refused =
            "a:1:2 [0] x:1 NCCL WARN NET/OFI GDR disabled on GDR-supported instance type p5.48xlarge\n";
        assert_eq!(findings(&RULE, refused).len(), 1);
        let link =
            format!("{P4D}a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0\n");
        assert_eq!(
            findings(&RULE, &link)[0].message,
            "1 of 1 EFA connections do not use GPUDirect RDMA, although p4d.24xlarge supports it"
        );
    }

    #[test]
    fn dma_buf_false_is_not_a_loss_of_gpudirect() {
        let line = "a:1:2 [0] NCCL INFO NET/OFI Support for DMA-BUF registrations: false\n";
        quiet(
            &RULE,
            &format!(
                "{P4D}{line}a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0/GDRDMA\n"
            ),
        );
    }

    #[test]
    fn quiet_where_the_machine_cannot() {
        quiet(&RULE, &format!("{}{OFF}", P4D.replace("p4d.24xlarge", "g6e.12xlarge")));
    }
}
