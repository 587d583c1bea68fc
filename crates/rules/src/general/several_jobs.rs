//! The inputs come from more than one job.

use std::collections::{BTreeMap, BTreeSet};

use evidence::{Communicator, Member, Process, Quote, Source};
use job::Invariant;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "several-jobs",
    title: "the input contains the logs of several jobs",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "plumb treats all inputs as one job. Ranks, nodes and paths of several jobs are then mixed, and what is true of one is reported \
          for all.",
    fix: "Give plumb the logs of one job at a time.",
    references: &["plumb docs/doctor.md, what it reads"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let found = apart(log).or_else(|| two_networks(log));
    Ok(found.or_else(|| machines(log)).into_iter().collect())
}

/// Processes that communicators join, with the largest communicator of which every rank was seen.
struct Group<'a> {
    world: &'a Communicator,
    processes: Vec<&'a Process>,
    files: BTreeSet<&'a str>,
}

impl<'a> Group<'a> {
    fn new(log: &'a Log, world: &'a Communicator) -> Self {
        let members = || world.members.values();
        Self {
            world,
            processes: members().filter_map(|it| log.case.processes.get(it.process)).collect(),
            files: members().filter_map(Member::named_by).map(|it| log.case.locate(it).0).collect(),
        }
    }

    /// `4 ranks in a.log, b.log`
    fn name(&self, log: &Log) -> String {
        let shown: Vec<&str> = self.files.iter().take(3).map(|it| short(log, it)).collect();
        let more = self.files.len().saturating_sub(3);
        let more = if more == 0 { String::new() } else { format!(" and {more} more files") };
        format!("{} ranks in {}{more}", self.world.members.len(), shown.join(", "))
    }

    fn quote(&self) -> Option<&'a Quote> {
        self.world.members.values().find_map(|it| it.facts.complete.as_ref().or(it.named_by()))
    }

    fn releases(&self) -> BTreeSet<&'a str> {
        self.processes.iter().filter_map(|it| Some(&**it.facts.version.value()?)).collect()
    }

    fn machines(&self) -> BTreeSet<&'a str> {
        self.processes.iter().filter_map(|it| Some(&**it.facts.plugin.instance.value()?)).collect()
    }

    fn networks(&self) -> BTreeSet<&'a str> {
        self.world.members.values().filter_map(|it| Some(&*it.facts.network.as_ref()?.value)).collect()
    }

    /// The GPUs, by host and PCI address.
    fn gpus(&self, log: &'a Log) -> BTreeSet<(&'a str, u64)> {
        let gpu = |it: &Member| {
            let process = log.case.processes.get(it.process).filter(|it| !it.host.is_empty())?;
            Some((&*process.host, it.line()?.bus_id?))
        };
        self.world.members.values().filter_map(gpu).collect()
    }

    /// What two groups of one job would have in common, or not in common.
    fn differs(&self, other: &Self, log: &'a Log) -> Option<String> {
        let unlike = |a: BTreeSet<&str>, b: BTreeSet<&str>| {
            let list = |it: &BTreeSet<&str>| it.iter().copied().collect::<Vec<_>>().join(", ");
            (!a.is_empty() && !b.is_empty() && a.is_disjoint(&b))
                .then(|| format!("{} and {}", list(&a), list(&b)))
        };
        let shared = || {
            let (host, bus) = self.gpus(log).intersection(&other.gpus(log)).next().copied()?;
            Some(format!("different processes use the GPU at PCI {bus:x} of {host}"))
        };
        let machines = || Some(format!("they run on {}", unlike(self.machines(), other.machines())?));
        let releases = || Some(format!("they have NCCL {}", unlike(self.releases(), other.releases())?));
        let networks = || Some(format!("they use {}", unlike(self.networks(), other.networks())?));
        machines().or_else(releases).or_else(networks).or_else(shared)
    }
}

/// The last part of a file's name, where no other file has the same.
fn short<'a>(log: &'a Log, file: &'a str) -> &'a str {
    let last = |it: &'a str| it.rsplit('/').next().unwrap_or(it);
    let others = log.case.sources.files.iter().filter(|it| &*it.name != file);
    if others.map(|it| last(&it.name)).any(|it| it == last(file)) { file } else { last(file) }
}

/// Groups of processes that no communicator joins, each with a communicator of which all ranks were seen.
fn apart(log: &Log) -> Option<Finding> {
    let groups = groups(log);
    let [first, second, ..] = groups.as_slice() else { return None };
    let names: Vec<String> = groups.iter().take(3).map(|it| it.name(log)).collect();
    let more = groups.len().saturating_sub(3);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    // Groups of one job need not be joined: the replicas of a server are not.
    let differs = first.differs(second, log).filter(|_| first.files.is_disjoint(&second.files));
    let tail = differs.as_ref().map(|it| format!("; {it}")).unwrap_or_default();
    let message = format!(
        "{} groups of processes share no communicator, as in logs of different jobs: {}{more}{tail}",
        groups.len(),
        names.join("; ")
    );
    let severity = if differs.is_some() { Severity::Warning } else { Severity::Info };
    let finding = Finding::new(Confidence::Likely, message).severity(severity);
    let finding = finding.seen_all(first.quote()).seen_all(second.quote());
    Some(first.files.iter().chain(&second.files).fold(finding, Finding::about_file))
}

fn groups(log: &Log) -> Vec<Group<'_>> {
    let mut roots: Vec<usize> = (0..log.case.processes.len()).collect();
    for communicator in &log.case.communicators {
        let mut members = communicator.members.values().map(|it| it.process);
        let Some(first) = members.next() else { continue };
        for process in members {
            let (a, b) = (root(&mut roots, first), root(&mut roots, process));
            if let Some(slot) = roots.get_mut(a.max(b)) {
                *slot = a.min(b);
            }
        }
    }
    let mut worlds: BTreeMap<usize, &Communicator> = BTreeMap::new();
    for it in &log.case.communicators {
        let processes: BTreeSet<usize> = it.members.values().map(|it| it.process).collect();
        let whole = it.parent.is_none() && it.n_ranks.is_some_and(|n| n as usize == it.members.len());
        let Some(first) = processes.first().filter(|_| whole && processes.len() > 1) else { continue };
        let known = worlds.entry(root(&mut roots, *first)).or_insert(it);
        if known.members.len() < it.members.len() {
            *known = it;
        }
    }
    worlds.into_values().map(|it| Group::new(log, it)).collect()
}

/// The smallest process that is joined with this one; shortens the way there.
fn root(roots: &mut [usize], mut at: usize) -> usize {
    while let Some(&next) = roots.get(at).filter(|it| **it != at) {
        let after = roots.get(next).copied().unwrap_or(next);
        if let Some(slot) = roots.get_mut(at) {
            *slot = after;
        }
        at = next;
    }
    at
}

/// One connection that has different networks in different files.
fn two_networks(log: &Log) -> Option<Finding> {
    log.job.violations.iter().find_map(|it| {
        let Invariant::TwoNetworks { ranks: [from, to], networks: [a, b] } = &it.invariant else { return None };
        let files: Vec<&str> = it.quotes.iter().map(|it| log.case.locate(it).0).collect();
        let [first, second] = *files.as_slice() else { return None };
        let message = format!(
            "the connection from rank {from} to rank {to} uses {a} in {} and {b} in {}, as in logs of two jobs",
            short(log, first),
            short(log, second)
        );
        let severity = if first == second { Severity::Info } else { Severity::Warning };
        let finding = Finding::new(Confidence::Likely, message).severity(severity).seen_all(&it.quotes);
        Some(finding.about_file(first).about_file(second))
    })
}

/// Processes that name different machines.
fn machines(log: &Log) -> Option<Finding> {
    let mut machines: BTreeMap<&str, &Quote> = BTreeMap::new();
    for seen in log.case.processes.iter().filter_map(|it| it.facts.plugin.instance.first()) {
        machines.entry(&seen.value).or_insert(&seen.quote);
    }
    let names: Vec<&str> = machines.keys().copied().collect();
    let message = format!("processes run on different machines: {}", names.join(", "));
    (names.len() > 1).then(|| Finding::new(Confidence::Likely, message).seen_all(machines.values().copied()))
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::RULE;
    use crate::testing::{check, findings, quiet};
    use crate::{Log, Severity};

    fn ranks(hosts: [&str; 2], id: u32) -> String {
        let line = |(rank, host): (usize, &str)| {
            format!(
                "{host}:{id}:1 [0] NCCL INFO comm 0x{rank}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x{id} - Init COMPLETE\n"
            )
        };
        hosts.into_iter().enumerate().map(line).collect()
    }

    fn of_files(a: &str, b: &str) -> (Option<Severity>, String) {
        let log = Log::new(read_texts([("a.log", a.as_bytes()), ("b.log", b.as_bytes())]));
        let found = check(&RULE, &log).unwrap().remove(0);
        (found.severity, found.message)
    }

    #[test]
    fn two_jobs_are_noticed() {
        let found = findings(&RULE, &format!("{}{}", ranks(["a", "b"], 5), ranks(["c", "d"], 6)));
        assert_eq!((found.len(), found[0].severity), (1, Some(Severity::Info)));
        let (severity, message) = of_files(&ranks(["a", "b"], 5), &ranks(["a", "b"], 6));
        assert_eq!(severity, Some(Severity::Warning));
        assert_eq!(
            message,
            "2 groups of processes share no communicator, as in logs of different jobs: 2 ranks in a.log; 2 ranks in b.log; \
             different processes use the GPU at PCI 1000 of a"
        );
        assert_eq!(of_files(&ranks(["a", "b"], 5), &ranks(["c", "d"], 6)).0, Some(Severity::Info));
    }

    #[test]
    fn two_groups_of_one_job_are_no_two_jobs() {
        quiet(&RULE, &ranks(["a", "b"], 5));
        let bridge = "a:5:1 [0] NCCL INFO comm 0x9 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init COMPLETE\n\
                      c:6:1 [0] NCCL INFO comm 0x9 rank 1 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x7 - Init COMPLETE\n";
        quiet(&RULE, &format!("{}{}{bridge}", ranks(["a", "b"], 5), ranks(["c", "d"], 6)));
    }

    #[test]
    fn one_connection_over_two_networks() {
        let line = |network: &str| {
            format!("a:1:1 [3] NCCL INFO Channel 00/0 : 3[3] -> 4[0] [send] via NET/{network}/0\n")
        };
        let (severity, message) = of_files(&line("Socket"), &line("Libfabric"));
        assert_eq!(severity, Some(Severity::Warning));
        assert_eq!(
            message,
            "the connection from rank 3 to rank 4 uses Socket in a.log and Libfabric in b.log, as in logs of two jobs"
        );
    }
}
