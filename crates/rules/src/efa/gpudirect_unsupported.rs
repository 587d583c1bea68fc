//! This machine's EFA cannot reach GPU memory: a limit, not a fault.

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::{Missing, Source};

use super::machine;
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "gpudirect-unsupported",
    title: "this machine does not support GPUDirect RDMA",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "Every message between nodes is copied through host memory: it crosses PCIe once more on each side, and often does not reach the \
          NIC's full rate. Nothing is wrong, and no setting changes it.",
    fix: "There is none on this machine. GPUDirect RDMA over EFA is available on p4d and newer P types and on g7e.12xlarge and larger.",
    references: &[
        "https://github.com/aws/aws-ofi-nccl/issues/547",
        "https://github.com/aws/aws-ofi-nccl/pull/1057",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let processes = log.nccl_log()?;
    let (machine, named) = machine(log).ok_or(Missing(Source::Instance))?;
    if machine.gpudirect_rdma != Some(false) || !machine.efa() {
        return Ok(Vec::new());
    }
    let said = processes.iter().find_map(|it| it.facts.plugin.gpudirect_off.first()).map(|it| &it.quote);
    let link = || {
        log.case.links().find_map(|it| {
            let (network, _, gpudirect) = it.link.transport()?.network()?;
            (PLUGIN.gives(network) && !gpudirect).then_some(&it.link.quote)
        })
    };
    let Some(shown) = said.or_else(link) else { return Ok(Vec::new()) };
    let message = format!("EFA copies through host memory: {} does not support GPUDirect RDMA", machine.name);
    let finding = Finding::new(Confidence::Certain, message).seen(shown).seen_all(named);
    let across = log.expected().and_then(|it| it.across(log));
    Ok(vec![finding.with_numbers(&RULE, across.and_then(|it| expected::is_normal(&it)))])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn log(machine: &str) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR\n\
             a:1:2 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : {machine}, Fall back to NCCL's tuner\n"
        )
    }

    #[test]
    fn fires_where_the_machine_cannot() {
        let found = findings(&RULE, &log("g6e.12xlarge"));
        assert_eq!(
            found[0].message,
            "EFA copies through host memory: g6e.12xlarge does not support GPUDirect RDMA"
        );
    }

    #[test]
    fn quiet_where_it_is_supported_or_unknown() {
        quiet(&RULE, &log("p4d.24xlarge"));
        quiet(&RULE, &log("p5.4xlarge"));
    }
}
