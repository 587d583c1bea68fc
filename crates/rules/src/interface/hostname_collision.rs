//! Two machines have the same host name, so NCCL counts them as one.

use std::collections::BTreeMap;

use evidence::signals::launch::DUPLICATE_GPU;
use evidence::{Quote, Source};
use job::{Invariant, Violation};

use super::address::{announced, got_through, is_bridge, is_link_local, is_loopback};
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "hostname-collision",
    title: "two machines have the same host name",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "NCCL distinguishes machines by host name (up to the first dot) and boot id. If both are equal, it treats ranks of two machines \
          as ranks of one node: it reports a duplicate GPU, or tries shared memory and NVLink where there is only a network.",
    fix: "Give every machine, container or pod its own host name (`hostnamectl set-hostname`, `docker run --hostname`), or set NCCL_HOSTID \
          to a different value on each.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/187",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid",
        "NCCL src/misc/utils.cc (getHostHash)",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    // For each host, the addresses of one and the same interface.
    let mut addresses: BTreeMap<(&str, &str), BTreeMap<&str, &Quote>> = BTreeMap::new();
    for it in announced(log) {
        let (name, address) = (&*it.interface.name, &*it.interface.address);
        if it.process.host.is_empty() || is_loopback(address) || is_bridge(name) || is_link_local(address) {
            continue;
        }
        addresses.entry((&it.process.host, name)).or_default().entry(address).or_insert(it.quote);
    }
    let Some(((host, interface), found)) = addresses.iter().find(|it| it.1.len() > 1) else {
        return Ok(Vec::new());
    };
    let duplicates: Vec<_> = log.case.sightings_of(&DUPLICATE_GPU).collect();
    let failed = log.case.processes.iter().any(|it| !it.facts.propagated.is_empty());
    let confidence = match (duplicates.is_empty(), failed && !got_through(log)) {
        (false, _) => Confidence::Certain,
        // A default name is the same on every machine.
        (true, true) if *host == "localhost" => Confidence::Likely,
        (true, true) => Confidence::Possible,
        (true, false) => return Ok(log.job.violations.iter().find_map(told_apart).into_iter().collect()),
    };
    let list: Vec<&str> = found.keys().copied().collect();
    let message = format!(
        "{} machines have the host name {host}: {interface} has the addresses {}",
        list.len(),
        list.join(" and ")
    );
    let finding = Finding::new(confidence, message).seen_all(found.values().copied());
    Ok(vec![finding.seen_all(duplicates.iter().map(|it| &it.quote)).about_host(host)])
}

/// Machines of one name that NCCL counts separately.
fn told_apart(violation: &Violation) -> Option<Finding> {
    let Invariant::MoreNodesThanHosts { nodes, hosts, host } = &violation.invariant else { return None };
    let message = format!(
        "several machines have the host name {host}: NCCL counts {nodes} nodes and there {} {hosts} host name{}",
        if *hosts == 1 { "is" } else { "are" },
        if *hosts == 1 { "" } else { "s" }
    );
    let finding =
        Finding::new(Confidence::Likely, message).severity(Severity::Info).seen_all(&violation.quotes);
    let finding = finding.why(
        "NCCL tells these machines apart by their boot id, so the job works. plumb and people who read the log tell them apart by host \
         name, and may take ranks of two machines for ranks of one.",
    );
    Some(finding.about_host(host))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    const DUPLICATE: &str =
        "n:2:2 [0] init.cc:904 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60\n";

    #[test]
    fn fires_before_the_duplicate_gpu() {
        let log = format!(
            "n:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.11<0>\nn:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.12<0>\n{DUPLICATE}"
        );
        assert_eq!(
            findings(&RULE, &log)[0].message,
            "2 machines have the host name n: eth0 has the addresses 10.0.0.11 and 10.0.0.12"
        );
        assert_eq!(ids(&log)[0], "hostname-collision");
    }

    #[test]
    fn quiet_for_a_real_duplicate_and_for_pods_that_work() {
        let log = format!(
            "n:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.11<0>\nn:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.11<0>\n{DUPLICATE}"
        );
        quiet(&RULE, &log);
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.11<0>\nn:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.12<0>\n",
        );
    }
}
