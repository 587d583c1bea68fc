//! A variable turns a fast path between GPUs or nodes off.

use evidence::{Quote, Source};
use job::inside::NvLink;

use super::machine::{host_memory_pairs, nvlink, p2p_off};
use crate::expected;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "p2p-disabled-by-setting",
    title: "a setting turns a fast path off",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "Such settings are often left over from debugging. Without peer access, GPUs of a node exchange data through host memory; without \
          shared memory, through the network; and without the InfiniBand transport, nodes communicate over TCP.",
    fix: "Unset the variable, also in /etc/nccl.conf and ~/.nccl.conf, and measure again. If the job only runs with it, find the fault \
          that the setting hides (ACS and IOMMU for peer access, the size of /dev/shm for shared memory).",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "https://github.com/NVIDIA/nccl-tests/issues/228",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let one_gpu_per_node = log.job.size.reported_layout().is_some_and(|it| it.ranks_per_node == 1);
    let nvlink = nvlink(log);
    let mut findings = Vec::new();
    if let Some((setting, quote)) = p2p_off(log) {
        // Another rule reports what the log shows of it.
        let reported = nvlink == Some(NvLink::Full) && !host_memory_pairs(log).is_empty();
        if !reported && !one_gpu_per_node {
            let joined = matches!(nvlink, Some(NvLink::Full | NvLink::Partial));
            let message = format!(
                "{setting} turns peer access between GPUs off{}",
                if joined { ", although NVLink joins them" } else { "" }
            );
            let severity = if joined { Severity::Warning } else { Severity::Info };
            let loss = joined.then(|| expected::loss_inside(log, expected::through_host)).flatten();
            let finding =
                said(message, quote, "NCCL_P2P_DISABLE").severity(severity).with_numbers(&RULE, loss);
            findings.push(finding.or("iommu-acs-p2p-hang"));
        }
    }
    if let Some(quote) = set_to_one(log, "NCCL_SHM_DISABLE").filter(|_| !one_gpu_per_node) {
        let message =
            "NCCL_SHM_DISABLE=1: GPUs of a node that cannot reach each other directly use the network"
                .to_owned();
        findings.push(said(message, quote, "NCCL_SHM_DISABLE").or("shm-too-small"));
    }
    if let Some(quote) = set_to_one(log, "NCCL_IB_DISABLE")
        .filter(|_| has_hcas(log) && log.job.size.spans_nodes() != Some(false))
    {
        let message =
            "NCCL_IB_DISABLE=1 although there are InfiniBand or RoCE adapters: nodes communicate over TCP"
                .to_owned();
        findings.push(said(message, quote, "NCCL_IB_DISABLE").severity(Severity::Warning));
    }
    if findings.is_empty() {
        log.nccl_log()?;
    }
    Ok(findings)
}

fn said(message: String, quote: &Quote, variable: &str) -> Finding {
    Finding::new(Confidence::Certain, message).seen(quote).about_variable(variable)
}

fn set_to_one<'a>(log: &'a Log, name: &'a str) -> Option<&'a Quote> {
    log.job
        .settings
        .named(name)
        .find(|it| it.text().trim_matches(['.', '"', '\'', ',']) == "1")
        .and_then(job::Variable::quote)
}

/// Adapters that some process uses, or that the topology shows. EFA is not one of them: NCCL's own transport never uses it.
fn has_hcas(log: &Log) -> bool {
    let used = log.case.processes.iter().any(|it| it.facts.hcas.iter().any(|it| !it.value.is_empty()));
    used || log.case.matrices.iter().any(|it| it.columns.iter().any(|it| it.starts_with("mlx5")))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    const OFF: &str = "n:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1\n";

    #[test]
    fn a_warning_where_there_is_nvlink() {
        let matrix = "\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n\n";
        assert_eq!(findings(&RULE, &format!("{matrix}{OFF}"))[0].severity, Some(Severity::Warning));
        assert_eq!(findings(&RULE, OFF)[0].severity, Some(Severity::Info));
        assert_eq!(
            findings(&RULE, "mpirun -x NCCL_P2P_DISABLE=1 -x NCCL_DEBUG=INFO ./train\n")[0].severity,
            Some(Severity::Info)
        );
    }

    #[test]
    fn infiniband_off_matters_where_it_exists() {
        let off = "n:1:1 [0] NCCL INFO NCCL_IB_DISABLE set by environment to 1.\n";
        quiet(&RULE, off);
        let other = "m:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.2<0>\n";
        assert_eq!(findings(&RULE, &format!("{off}{other}"))[0].severity, Some(Severity::Warning));
    }

    #[test]
    fn other_values_turn_nothing_off() {
        quiet(&RULE, "n:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS\n");
        quiet(&RULE, "n:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to NVL\n");
        quiet(&RULE, "export NCCL_P2P_DISABLE=0\n");
    }
}
