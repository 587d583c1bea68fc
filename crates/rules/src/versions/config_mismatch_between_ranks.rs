//! Ranks of one job have different settings.

use std::collections::BTreeMap;

use evidence::signals::ib::SIZE_MISMATCH;
use evidence::{Communicator, Process, Quote, Sighting, Source};
use job::Variable;

use crate::ib::nic_relaxed_ordering_forced::is_torn;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "config-mismatch-between-ranks",
    title: "ranks have different NCCL settings",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "Each rank decides by its own settings which algorithm, protocol and buffer sizes to use. If two ranks decide differently, one \
          sends what the other does not expect: truncated messages, a hang, wrong results.",
    fix: "Give all ranks the same NCCL_* variables: pass them through the launcher (`mpirun -x`, `srun --export`, the pod template), and \
          check for /etc/nccl.conf and ~/.nccl.conf on single nodes.",
    references: &["https://github.com/NVIDIA/nccl/issues/969", "https://github.com/NVIDIA/nccl/issues/1328"],
    checks: &[Check::Log(check)],
};

/// Variables that decide how two ranks communicate, and so must be equal.
static SHARED: &[&str] = &[
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NET",
    "NCCL_IB_DISABLE",
    "NCCL_CROSS_NIC",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
    "NCCL_P2P_PCI_CHUNKSIZE",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NRINGS",
    "NCCL_MAX_NRINGS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_MIN_P2P_NCHANNELS",
    "NCCL_MAX_P2P_NCHANNELS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_TREE_THRESHOLD",
    "NCCL_SOCKET_NTHREADS",
    "NCCL_NSOCKS_PERTHREAD",
    "NCCL_IB_SPLIT_DATA_ON_QPS",
    "NCCL_IB_QPS_PER_CONNECTION",
    "NCCL_NVLS_ENABLE",
    "NCCL_NVLS_NCHANNELS",
    "NCCL_COLLNET_ENABLE",
    "NCCL_PXN_DISABLE",
    "NCCL_NET_SHARED_BUFFERS",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_PAT_ENABLE",
];

/// Variables that decide how two ranks of one node communicate: nodes may differ.
static SHARED_INSIDE: &[&str] = &[
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_CUMEM_ENABLE",
];

/// Of the first, the ones that decide the size of a message.
static SIZES: &[&str] = &[
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_P2P_NET_CHUNKSIZE",
];

fn check(log: &Log) -> Checked {
    let refused = log.find_signals(&[&SIZE_MISMATCH], Source::NcclLog)?;
    // `posted incorrect receive info` has no size of the sender: it is not about two sizes.
    let two_sizes = |it: &&Sighting| !is_torn(it) && it.number("local").is_some();
    let refused: Vec<&Sighting> = refused.into_iter().filter(two_sizes).collect();
    let truncated = truncated(log);
    let failed = !refused.is_empty() || truncated.is_some();
    let quotes = || refused.iter().map(|it| &it.quote).chain(truncated);
    let by_process = log.job.settings.by_process();
    let read = |at: usize| by_process.get(&at).map(Vec::as_slice).unwrap_or_default();
    let processes = log.case.processes.iter().enumerate();
    let settings: Vec<Settings<'_>> = processes.map(|(at, it)| Settings::new(it, read(at))).collect();
    for communicator in &log.case.communicators {
        let members: Vec<&Settings<'_>> =
            communicator.members.values().filter_map(|it| settings.get(it.process)).collect();
        let inside = || by_host(&members).into_values().find_map(|it| differing(SHARED_INSIDE, &it, failed));
        let found = differing(SHARED, &members, failed).or_else(inside);
        if let Some(finding) = found.or_else(|| channels(communicator)) {
            return Ok(vec![finding.seen_all(quotes())]);
        }
    }
    let Some(first) = refused.first() else { return Ok(Vec::new()) };
    let message =
        format!("a rank sends {} bytes where its peer expects {}", first.get("local"), first.get("remote"));
    let finding = Finding::new(Confidence::Likely, message).by(log, &refused).or("collective-mismatch");
    Ok(vec![finding.or("nccl-version-mismatch").or("nic-relaxed-ordering-forced")])
}

/// The shared variables that one process printed.
struct Settings<'a> {
    process: &'a Process,
    values: BTreeMap<&'a str, &'a Variable>,
    /// Whether it printed no variable, shared or not.
    silent: bool,
}

impl<'a> Settings<'a> {
    fn new(process: &'a Process, read: &[&'a Variable]) -> Self {
        let shared =
            read.iter().filter(|it| SHARED.contains(&&*it.name) || SHARED_INSIDE.contains(&&*it.name));
        Self { process, values: shared.map(|it| (&*it.name, *it)).collect(), silent: read.is_empty() }
    }
}

fn by_host<'a, 's>(members: &[&'s Settings<'a>]) -> BTreeMap<&'a str, Vec<&'s Settings<'a>>> {
    let mut hosts: BTreeMap<&str, Vec<&Settings<'_>>> = BTreeMap::new();
    for it in members.iter().filter(|it| !it.process.host.is_empty()) {
        hosts.entry(&it.process.host).or_default().push(it);
    }
    hosts
}

/// A variable with two values, or one that decides sizes and is set on some ranks only.
fn differing(names: &[&str], members: &[&Settings<'_>], failed: bool) -> Option<Finding> {
    for name in names {
        // Values are compared without regard to case, as NCCL does.
        let mut values: BTreeMap<String, (&Variable, &Process)> = BTreeMap::new();
        let mut without = None;
        for it in members {
            match it.values.get(name) {
                Some(variable) => {
                    values.entry(variable.text().to_ascii_lowercase()).or_insert((variable, it.process));
                }
                None => without = without.or(Some(it)),
            }
        }
        let quotes = || values.values().filter_map(|(variable, _)| variable.quote());
        let about = |finding: Finding| finding.seen_all(quotes()).about_variable(name);
        if values.len() > 1 {
            let list: Vec<String> = values
                .values()
                .map(|(variable, process)| format!("{} on {}", variable.text(), process.name()))
                .collect();
            let severity = if failed { Severity::Error } else { Severity::Warning };
            let finding = Finding::new(Confidence::Certain, format!("{name} is {}", list.join(", ")))
                .severity(severity);
            return Some(about(finding));
        }
        // The log of a rank that prints nothing may be cut; together with a failed transfer it is a sign.
        if !failed || !SIZES.contains(name) {
            continue;
        }
        if let (Some(other), Some((variable, process))) = (without, values.values().next())
            && !other.silent
        {
            let message = format!(
                "{name}={} is set on {} and not on {}",
                variable.text(),
                process.name(),
                other.process.name()
            );
            return Some(about(Finding::new(Confidence::Certain, message)));
        }
    }
    None
}

/// NCCL agrees on one number of channels; two numbers mean that the ranks did not agree.
fn channels(communicator: &Communicator) -> Option<Finding> {
    let mut counts: BTreeMap<u32, (u32, &Quote)> = BTreeMap::new();
    for (rank, member) in communicator.members.iter().filter(|it| !it.1.guessed) {
        if let Some(seen) = &member.facts.channels {
            counts.entry(seen.value.coll).or_insert((*rank, &seen.quote));
        }
    }
    if counts.len() < 2 {
        return None;
    }
    let list: Vec<String> = counts.iter().map(|(n, (rank, _))| format!("{n} on rank {rank}")).collect();
    let finding = Finding::new(
        Confidence::Likely,
        format!(
            "the ranks of communicator {} use different numbers of channels: {}",
            communicator.name,
            list.join(", ")
        ),
    );
    Some(finding.seen_all(counts.values().map(|it| it.1)))
}

/// A warning of a truncated message on a socket.
fn truncated(log: &Log) -> Option<&Quote> {
    let warnings = log.case.processes.iter().flat_map(|it| &it.facts.warnings.first);
    warnings.map(|it| &it.quote).find(|it| it.text.contains("message truncated : receiving"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    fn rank(host: &str, rank: u32, lines: &[&str]) -> String {
        let start = format!(
            "ncclCommInitRank comm 0x{rank}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 60 commId 0x5 - Init START"
        );
        let lines = [&start[..]].into_iter().chain(lines.iter().copied());
        lines.fold(String::new(), |log, it| log + host + ":1:1 [0] NCCL INFO " + it + "\n")
    }

    #[test]
    fn fires_on_two_values() {
        let log = rank("a", 0, &["NCCL_PROTO set by environment to Simple"])
            + &rank("b", 1, &["NCCL_PROTO set by environment to LL"]);
        let found = findings(&RULE, &log);
        assert_eq!(
            (found[0].message.as_str(), found[0].severity),
            ("NCCL_PROTO is LL on rank 1 on b, Simple on rank 0 on a", Some(Severity::Warning))
        );
    }

    #[test]
    fn fires_on_a_value_that_only_one_rank_has_once_a_transfer_failed() {
        let log = rank("a", 0, &["NCCL_PROTO set by environment to Simple"])
            + &rank(
                "b",
                1,
                &["NCCL_PROTO set by environment to Simple", "NCCL_BUFFSIZE set by environment to 1048576."],
            );
        quiet(&RULE, &log);
        let failed = "b:1:2 [0] transport/net_socket.cc:567 NCCL WARN NET/Socket : peer 10.0.0.1<1> message truncated : receiving 524288 bytes instead of 262144. If you believe\n";
        assert_eq!(
            findings(&RULE, &format!("{log}{failed}"))[0].message,
            "NCCL_BUFFSIZE=1048576 is set on rank 1 on b and not on rank 0 on a"
        );
    }

    #[test]
    fn fires_on_a_refused_transfer() {
        let line = "n:1:2 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.9<5868> collective mismatch error, local size 491520 remote size 65536\n";
        assert_eq!(
            (findings(&RULE, line)[0].message.as_str(), findings(&RULE, line)[0].confidence),
            ("a rank sends 491520 bytes where its peer expects 65536", Confidence::Likely)
        );
    }

    #[test]
    fn settings_of_the_paths_inside_a_node_agree_there() {
        let (on, off) =
            ("NCCL_P2P_DISABLE set by environment to 0", "NCCL_P2P_DISABLE set by environment to 1");
        quiet(&RULE, &(rank("a", 0, &[on]) + &rank("b", 1, &[off])));
        let second = rank("a", 1, &[off]).replace("a:1:1", "a:2:2");
        assert_eq!(
            findings(&RULE, &(rank("a", 0, &[on]) + &second))[0].message,
            "NCCL_P2P_DISABLE is 0 on rank 0 on a, 1 on rank 1 on a"
        );
    }

    #[test]
    fn quiet_on_settings_that_may_differ() {
        let log = rank(
            "a",
            0,
            &["NCCL_HOSTID set by environment to x", "NCCL_SOCKET_IFNAME set by environment to eth0"],
        ) + &rank(
            "b",
            1,
            &[
                "NCCL_HOSTID set by environment to y",
                "NCCL_SOCKET_IFNAME set by environment to ens5",
                "NCCL_ALGO set by environment to ring",
            ],
        );
        quiet(&RULE, &log);
    }
}
