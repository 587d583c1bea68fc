//! Ranks that do not answer NCCL's RAS service.

use std::collections::BTreeMap;

use evidence::Source;
use evidence::recorder::RasRank;

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "ras-rank-missing",
    title: "a rank does not answer NCCL's RAS service",
    severity: Severity::Error,
    role: Role::Consequence,
    needs: &[Source::Ras],
    why: "Every process of the job runs RAS in a thread of NCCL that does not depend on collectives. A process that does not answer is \
          stopped, cut off from the network, or dead; all others wait for it in their next collective.",
    fix: "On its host: `ps -o pid,stat,wchan= -p PID` (T: stopped, D: waits for a disk or a device, no line: dead), then \
          `dmesg -T | grep -iE 'killed process|xid'`. Ask RAS again after a minute: it takes a process for dead that stays silent.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html",
        "NCCL src/ras/client_support.cc",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let mut missing: BTreeMap<u32, &RasRank> = BTreeMap::new();
    let mut quotes = Vec::new();
    let mut failed = 0;
    for status in log.ras()? {
        for communicator in &status.communicators {
            failed = failed.max(communicator.failed.len());
            for it in &communicator.missing {
                let Some(rank) = it.rank else { continue };
                // A later answer may know that it is dead.
                if missing.get(&rank).is_none_or(|known| it.dead && !known.dead) {
                    missing.insert(rank, it);
                    quotes.extend(communicator.quote.as_ref());
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let ranks: Vec<u32> = missing.keys().copied().collect();
    let dead = missing.values().any(|it| it.dead);
    let first = missing.values().next();
    let place = first.map_or_else(String::new, |it| match it.pid {
        Some(pid) if missing.len() == 1 => format!(" (process {pid} on {})", it.host),
        _ => String::new(),
    });
    let does = if ranks.len() == 1 { "does" } else { "do" };
    let taken = if dead { ", and NCCL takes it for dead" } else { "" };
    let lost = match failed {
        0 => String::new(),
        n => format!("; {n} other ranks report an error"),
    };
    let message = format!("{}{place} {does} not answer RAS{taken}{lost}", list_of_ranks(&ranks));
    let confidence = if dead { Confidence::Certain } else { Confidence::Likely };
    let finding = Finding::new(confidence, message).seen_all(quotes);
    let finding = missing
        .iter()
        .take(16)
        .fold(finding, |finding, (rank, it)| finding.about_rank(*rank).about_host(&it.host));
    // One that only is slow to answer comes back.
    let severity = if dead || failed > 0 { Severity::Error } else { Severity::Warning };
    Ok(vec![finding.severity(severity)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::findings;

    #[test]
    fn the_process_is_named() {
        let text = "Job summary\n===========\n\nErrors\n======\n\n#0-0 (ab) INCOMPLETE\n  Missing communicator data from 1 rank\n  Rank 2 -- GPU 0 managed by process 588 on node 10.77.0.13\n";
        let it = &findings(&RULE, text)[0];
        assert_eq!(it.message, "rank 2 (process 588 on 10.77.0.13) does not answer RAS");
        assert_eq!(it.severity, Some(Severity::Warning));
        let json = "{\"communicators_count\": 1, \"communicators\": [{\"hash\": \"0xab\", \"ranks\": [], \"missing_ranks\": [{\"rank\": 2, \"host\": \"a\", \"pid\": 5, \"nvml_dev\": 0\n \"status\": {\"unresponsive\": true, \"considered_dead\": true}}]}]}";
        let it = &findings(&RULE, json)[0];
        assert_eq!(it.message, "rank 2 (process 5 on a) does not answer RAS, and NCCL takes it for dead");
    }
}
