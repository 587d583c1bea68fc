//! The inputs come from more than one job.

use std::collections::BTreeSet;

use evidence::{Communicator, Source};

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
    let processes =
        |it: &Communicator| -> BTreeSet<usize> { it.members.values().map(|it| it.process).collect() };
    let whole = |it: &&Communicator| {
        it.parent.is_none() && it.n_ranks.is_some_and(|n| n as usize == it.members.len())
    };
    // Two communicators of which all ranks were seen and that share no process, each larger than one rank.
    let all: Vec<(&Communicator, BTreeSet<usize>)> =
        log.case.communicators.iter().filter(whole).map(|it| (it, processes(it))).collect();
    let sets: Vec<&(&Communicator, BTreeSet<usize>)> =
        all.iter().filter(|it| it.1.len() > 1).take(64).collect();
    let bridged = |a: &BTreeSet<usize>, b: &BTreeSet<usize>| {
        log.case.communicators.iter().map(processes).any(|it| !it.is_disjoint(a) && !it.is_disjoint(b))
    };
    let kinds: BTreeSet<&str> =
        log.case.processes.iter().filter_map(|it| Some(&**it.facts.plugin.instance.value()?)).collect();
    let apart = sets.iter().enumerate().find_map(|(i, a)| {
        let b = sets.iter().skip(i + 1).find(|b| a.1.is_disjoint(&b.1) && !bridged(&a.1, &b.1))?;
        Some((a.0, b.0))
    });
    let Some((a, b)) = apart else {
        if kinds.len() < 2 {
            return Ok(Vec::new());
        }
        let kinds: Vec<&str> = kinds.into_iter().collect();
        return Ok(vec![Finding::new(
            Confidence::Likely,
            format!("processes run on different machines: {}", kinds.join(", ")),
        )]);
    };
    let quote = |it: &Communicator| {
        it.members.values().find_map(|it| it.facts.complete.clone().or_else(|| it.facts.start.clone()))
    };
    let message = format!(
        "a communicator of {} ranks and one of {} ranks share no process: these look like logs of different jobs",
        a.members.len(),
        b.members.len()
    );
    Ok(vec![Finding::new(Confidence::Likely, message).seen_all(quote(a).iter()).seen_all(quote(b).iter())])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn ranks(hosts: [&str; 2], id: u32) -> String {
        let line = |(rank, host): (usize, &str)| {
            format!(
                "{host}:1:1 [0] NCCL INFO comm 0x{rank}1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x{id} - Init COMPLETE\n"
            )
        };
        hosts.into_iter().enumerate().map(line).collect()
    }

    #[test]
    fn two_jobs_are_noticed() {
        assert_eq!(findings(&RULE, &format!("{}{}", ranks(["a", "b"], 5), ranks(["c", "d"], 6))).len(), 1);
    }

    #[test]
    fn two_groups_of_one_job_are_no_two_jobs() {
        quiet(&RULE, &ranks(["a", "b"], 5));
        let joined = format!("{}{}{}", ranks(["a", "b"], 5), ranks(["c", "d"], 6), ranks(["b", "c"], 7));
        quiet(&RULE, &joined);
    }
}
