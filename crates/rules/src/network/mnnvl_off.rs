//! NVLink joins several nodes, and NCCL does not use it between them.

use evidence::Source;
use evidence::signals::nvswitch::{FABRIC_HANDLE_REFUSED, IMEX_NOT_WORKING};

use super::{gpus, named};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "mnnvl-off",
    title: "NVLink between nodes is not used",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "In an NVL72 rack NVLink joins the GPUs of all 18 nodes at 900 GB/s per GPU and direction. With `MNNVL 0` NCCL treats every node \
          as a machine of its own and sends the traffic between them through the network, at 50 to 100 GB/s per GPU.",
    fix: "Do not set NCCL_MNNVL_ENABLE=0. NCCL needs cuMem (NCCL_CUMEM_ENABLE is not 0), a GPU fabric that is up (`nvidia-smi -q | grep -A4 \
          Fabric` must show Completed and one ClusterUUID and CliqueId on all nodes), and an IMEX channel in every container (a ComputeDomain \
          of the NVIDIA DRA driver). Nodes of different racks have no NVLink between them.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-mnnvl-enable",
        "NCCL src/mnnvl.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let mut members = log.case.communicators.iter().flat_map(|it| it.members.values());
    let layouts = members.by_ref().filter_map(|it| it.facts.layout.as_ref());
    let Some(layout) = layouts.filter(|it| it.value.n_nodes > 1).find(|it| !it.value.mnnvl) else {
        return Ok(Vec::new());
    };
    // NCCL says itself that IMEX does not work: another rule reports it.
    if log.case.first_of(&[&IMEX_NOT_WORKING, &FABRIC_HANDLE_REFUSED]).is_some() {
        return Ok(Vec::new());
    }
    let domain = log.job.model().is_some_and(|it| it.domain > 1);
    let gpus = gpus(log);
    let named_so = gpus.as_ref().filter(|it| ["GB200", "GB300"].iter().any(|name| it.name.contains(name)));
    if !domain && named_so.is_none() {
        return Ok(Vec::new());
    }
    let what = match (log.job.model(), named_so) {
        (Some(model), _) if domain => model.name.to_owned(),
        (_, Some(gpus)) => gpus.name.clone(),
        _ => return Ok(Vec::new()),
    };
    let find = |name| log.job.settings.named(name).find(|it| it.text() == "0");
    let off = find("NCCL_MNNVL_ENABLE").or_else(|| find("NCCL_CUMEM_ENABLE"));
    let (sure, reason) = match off {
        Some(it) => (Confidence::Certain, format!(": {}", named(it))),
        None => (Confidence::Likely, String::new()),
    };
    let message = format!(
        "NVLink of {what} reaches beyond a node, but NCCL uses none between its {} nodes (MNNVL 0){reason}",
        layout.value.n_nodes
    );
    let finding = Finding::new(sure, message)
        .seen(&layout.quote)
        .seen_all(off.and_then(job::Variable::quote))
        .seen_all(named_so.and_then(|it| it.quote));
    Ok(vec![finding])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const OFF: &str = "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0\n\
         a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n";

    #[test]
    fn fires_on_an_nvl72() {
        let log = format!("{OFF}INSTANCE_TYPE=gb200-nvl72\n");
        assert_eq!(findings(&RULE, &log)[0].confidence, Confidence::Likely);
        let set = format!("a:1:1 [0] NCCL INFO NCCL_MNNVL_ENABLE set by environment to 0.\n{log}");
        let found = findings(&RULE, &set);
        assert_eq!(found[0].confidence, Confidence::Certain);
        assert!(found[0].message.contains("NCCL_MNNVL_ENABLE=0"), "{}", found[0].message);
    }

    #[test]
    fn quiet_where_it_is_used_or_cannot_be() {
        let log = format!("{OFF}INSTANCE_TYPE=gb200-nvl72\n");
        quiet(&RULE, &log.replace("MNNVL 0", "MNNVL 1"));
        quiet(&RULE, &log.replace("nNodes 2", "nNodes 1"));
        quiet(&RULE, &format!("{OFF}INSTANCE_TYPE=p5.48xlarge\n"));
    }
}
