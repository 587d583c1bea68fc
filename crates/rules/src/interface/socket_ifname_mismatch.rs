//! One interface name is set for hosts whose interfaces have different names.

use std::collections::BTreeSet;

use evidence::Source;
use evidence::signals::interface::NO_SOCKET_INTERFACE;

use super::address::announced;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "socket-ifname-mismatch",
    title: "NCCL_SOCKET_IFNAME matches an interface on some hosts but not on others",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "All hosts have the same value, but their interfaces have different names. The hosts without it fail at once, the others wait for \
          them.",
    fix: "List all names (NCCL_SOCKET_IFNAME=eno1,eth0), use a prefix that matches all (`en`), exclude what must not be used (^lo,docker), \
          or write the name of each host into its /etc/nccl.conf.",
    references: &[
        "https://github.com/NVIDIA/nccl/issues/286",
        "https://github.com/NVIDIA/nccl-tests/issues/219",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let failed = log.find_signals(&[&NO_SOCKET_INTERFACE], Source::NcclLog)?;
    Ok(mismatch(log).map_or_else(Vec::new, |(value, lacking)| {
        let has: BTreeSet<&str> = announced(log).iter().map(|it| &*it.process.host).collect();
        let message = format!(
            "NCCL_SOCKET_IFNAME={value} matches an interface on {} but not on {}",
            has.into_iter().collect::<Vec<_>>().join(", "),
            lacking.into_iter().collect::<Vec<_>>().join(", ")
        );
        let finding = Finding::new(Confidence::Certain, message).by(log, &failed);
        vec![finding.seen_all(announced(log).first().map(|it| it.quote)).about_variable("NCCL_SOCKET_IFNAME")]
    }))
}

/// The value that all hosts have, and the hosts that have no such interface while others do.
pub(crate) fn mismatch(log: &Log) -> Option<(&str, BTreeSet<&str>)> {
    let values: BTreeSet<&str> =
        log.job.settings.named("NCCL_SOCKET_IFNAME").map(job::Variable::text).collect();
    let [value] = values.into_iter().collect::<Vec<_>>()[..] else { return None };
    let lacking = log.case.sightings_of(&NO_SOCKET_INTERFACE).filter_map(|it| it.process.as_ref());
    let has: BTreeSet<&str> =
        announced(log).iter().map(|it| &*it.process.host).filter(|it| !it.is_empty()).collect();
    let lacking: BTreeSet<&str> = lacking.map(|it| &*it.host).filter(|it| !has.contains(it)).collect();
    (!has.is_empty() && !lacking.is_empty()).then_some((value, lacking))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn fires_when_one_host_has_it_and_another_not() {
        let log = "a:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eno1\na:1:1 [0] NCCL INFO Bootstrap : Using eno1:10.0.0.1<0>\n\
                   b:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eno1\nb:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n";
        assert_eq!(
            findings(&RULE, log)[0].message,
            "NCCL_SOCKET_IFNAME=eno1 matches an interface on a but not on b"
        );
        assert_eq!(ids(log)[0], "socket-ifname-mismatch");
    }

    #[test]
    fn quiet_when_no_host_has_it_or_the_values_differ() {
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth9\na:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n",
        );
        quiet(
            &RULE,
            "a:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth0\na:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n\
             b:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ens5\nb:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n",
        );
    }
}
