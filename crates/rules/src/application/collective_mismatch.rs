//! Ranks call different collectives, or the same with different sizes.

use std::collections::{BTreeMap, BTreeSet};

use evidence::signals::collectives::{
    BOOTSTRAP_TRUNCATED, FINGERPRINT, MESSAGE_TRUNCATED, MISMATCHED_COLLECTIVE, RECORDED_MISMATCH,
    SIZE_MISMATCH,
};
use evidence::{Sighting, Source};

use job::watchdog::{Work, timeouts};

use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};
use job::failure::timestamp;

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "collective-mismatch",
    title: "ranks call different collectives",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "All ranks of a communicator must call the same collectives in the same order with the same sizes. NCCL does not check: it \
          hangs, or mixes the data of two operations.",
    fix: "Run once with TORCH_DISTRIBUTED_DEBUG=DETAIL: it names the first call that differs. Usual causes: a branch that depends on the \
          rank or on the data, a last batch of another size, metrics logged under different names, unused parameters. Pad the tensors, or \
          gather their sizes first.",
    references: &[
        "https://pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications",
        "https://github.com/NVIDIA/nccl/issues/296",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    if let Some(finding) = crate::recorder::mismatch(log) {
        return Ok(vec![finding]);
    }
    let signals = [
        &FINGERPRINT,
        &RECORDED_MISMATCH,
        &MISMATCHED_COLLECTIVE,
        &MESSAGE_TRUNCATED,
        &SIZE_MISMATCH,
        &BOOTSTRAP_TRUNCATED,
    ];
    let found = log.find_signals(&signals, Source::JobOutput)?;
    let of = |signal| found.iter().copied().filter(|it| it.signal == signal).collect::<Vec<_>>();
    if let Some(first) = of(&FINGERPRINT).first() {
        return Ok(vec![Finding::new(Confidence::Certain, fingerprints(first)).by(log, &of(&FINGERPRINT))]);
    }
    if let Some(first) = of(&RECORDED_MISMATCH).first() {
        let message = "the flight recorder shows ranks in different collectives";
        return Ok(vec![Finding::new(Confidence::Certain, message).seen(&first.quote)]);
    }
    if let Some(first) = of(&MISMATCHED_COLLECTIVE).first() {
        let message = format!("NCCL saw different collectives at and around rank {}", first.get("rank"));
        let finding = Finding::new(Confidence::Likely, message).by(log, &of(&MISMATCHED_COLLECTIVE));
        return Ok(vec![finding.about_rank(first.get("rank"))]);
    }
    if let Some(finding) = compared(&timeouts(&log.case)) {
        return Ok(vec![finding.seen_all(of(&MESSAGE_TRUNCATED).iter().map(|it| &it.quote))]);
    }
    let differs = settings_differ(log);
    if let Some(first) = of(&MESSAGE_TRUNCATED).first() {
        let (got, want) = (first.get("got"), first.get("want").trim_end_matches('.'));
        let message = format!("a rank received {got} bytes where it expected {want}");
        let confidence = if differs { Confidence::Possible } else { Confidence::Likely };
        let finding = Finding::new(confidence, message).by(log, &of(&MESSAGE_TRUNCATED));
        return Ok(vec![finding.or("config-mismatch-between-ranks")]);
    }
    if let Some(first) = of(&SIZE_MISMATCH).first() {
        let message = format!(
            "a rank's message does not have the size its peer expects ({})",
            first.get("sizes").trim_matches([',', ' '])
        );
        let finding = Finding::new(Confidence::Possible, message).by(log, &of(&SIZE_MISMATCH));
        return Ok(vec![finding.or("config-mismatch-between-ranks").or("nic-relaxed-ordering-forced")]);
    }
    if let Some(first) = of(&BOOTSTRAP_TRUNCATED).first() {
        let (got, want) = (first.get("got"), first.get("want"));
        let message = format!(
            "a setup message had {got} bytes where {want} were expected: ranks create communicators in different orders"
        );
        let finding = Finding::new(Confidence::Possible, message).by(log, &of(&BOOTSTRAP_TRUNCATED));
        return Ok(vec![finding.or("nccl-version-mismatch")]);
    }
    Ok(Vec::new())
}

/// `Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=2, OpType=ALLGATHER, ...), but Rank 0 is running ...`
fn fingerprints(sighting: &Sighting) -> String {
    let text = sighting.get("what");
    let parts: Vec<&str> = text.split("Rank ").skip(1).collect();
    let field = |part: &str, name: &str, end: &[char]| {
        let rest = part.split_once(name).map(|it| it.1)?;
        Some(rest.split(end).next().unwrap_or(rest).to_owned())
    };
    let describe = |part: &str| {
        let rank: String = part.chars().take_while(char::is_ascii_digit).collect();
        let operation =
            field(part, "OpType=", &[',', ')']).unwrap_or_else(|| "another collective".to_owned());
        let shape = field(part, "TensorShape=", &[']']).map(|it| format!(" of {it}]")).unwrap_or_default();
        format!("rank {rank} calls {operation}{shape}")
    };
    match parts.as_slice() {
        [] => "two ranks call different collectives".to_owned(),
        [one] => format!("{}, another rank calls something else", describe(one)),
        [one, other, ..] => format!("{}, {}", describe(one), describe(other)),
    }
}

/// Ranks that time out at the same timestamp in different operations.
fn compared(works: &[Work<'_>]) -> Option<Finding> {
    // Only the first of each rank: later ones follow from it.
    let mut first: BTreeMap<u32, Work<'_>> = BTreeMap::new();
    for work in works {
        first.entry(work.rank?).or_insert(*work);
    }
    let seconds = |it: &Work<'_>| {
        it.sighting.time.as_deref().and_then(timestamp).map(|it| it.nanoseconds / 1_000_000_000)
    };
    for (rank, a) in &first {
        for (other, b) in &first {
            let (Some(x), Some(y)) = (a.sequence, b.sequence) else { continue };
            let together = seconds(a).zip(seconds(b)).is_some_and(|(x, y)| x.abs_diff(y) <= 5);
            let kinds = a.operation != b.operation;
            let sizes = !kinds
                && a.elements.is_some()
                && a.elements != b.elements
                && a.operation != "SEND"
                && a.operation != "RECV";
            let same = x == y && (kinds || sizes);
            let neighbours = x.checked_add(1) == Some(y) && kinds && together;
            if rank == other || !(same || neighbours) {
                continue;
            }
            let describe = |it: &Work<'_>| match it.elements {
                Some(n) if sizes => format!("{} of {n} elements", it.operation),
                _ => format!("{} (number {})", it.operation, it.sequence.unwrap_or_default()),
            };
            let like = |it: &Work<'_>| {
                let ranks = first.iter().filter(|(_, work)| {
                    (work.sequence, work.operation, work.elements) == (it.sequence, it.operation, it.elements)
                });
                ranks.map(|it| *it.0).collect::<Vec<_>>()
            };
            let (ours, theirs) = (like(a), like(b));
            let message = format!(
                "{} timed out in {}, {} in {}",
                list_of_ranks(&ours),
                describe(a),
                list_of_ranks(&theirs),
                describe(b)
            );
            let finding =
                Finding::new(Confidence::Likely, message).seen(&a.sighting.quote).seen(&b.sighting.quote);
            let fewer = if ours.len() < theirs.len() { ours } else { theirs };
            return Some(fewer.iter().take(16).fold(finding, Finding::about_rank));
        }
    }
    None
}

/// Whether processes read different values of one variable, or one of them none.
fn settings_differ(log: &Log) -> bool {
    let by_process = log.job.settings.by_process();
    let compared = |process: usize| -> BTreeSet<(&str, &str)> {
        let read = by_process.get(&process).into_iter().flatten();
        read.map(|it| (&*it.name, it.text()))
            .filter(|(name, _)| !name.contains("HOSTID") && !name.contains("DEBUG"))
            .collect()
    };
    let first = compared(0);
    (1..log.case.processes.len()).any(|process| compared(process) != first)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn pytorch_says_so() {
        let text = "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=_ALLGATHER_BASE, TensorShape=[359, 1435], TensorDtypes=BFloat16, x), but Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=_ALLGATHER_BASE, TensorShape=[359, 1436], y)\n";
        let it = &findings(&RULE, text)[0];
        assert_eq!(
            it.message,
            "rank 1 calls _ALLGATHER_BASE of [359, 1435], rank 2 calls _ALLGATHER_BASE of [359, 1436]"
        );
        let old = "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running inconsistent collective: CollectiveFingerPrint(OpType=BROADCAST, TensorShape=[34112], x\n";
        assert_eq!(
            findings(&RULE, old)[0].message,
            "rank 0 calls BROADCAST of [34112], another rank calls something else"
        );
    }

    #[test]
    fn nccl_says_so() {
        for (text, confidence) in [
            (
                "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective calls at and around rank 39. You can use NCCL_DEBUG=INFO\n",
                Confidence::Likely,
            ),
            (
                "a:1:2 [0] net_socket.cc:200 NCCL WARN NET/Socket : message truncated : receiving 696320 bytes instead of 32768\n",
                Confidence::Likely,
            ),
            (
                "a:1:2 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<58683> collective mismatch error, local size 496640 remote size 65536\n",
                Confidence::Possible,
            ),
        ] {
            assert_eq!(findings(&RULE, text)[0].confidence, confidence, "{text}");
        }
    }

    fn timeout(rank: u32, second: u32, work: &str) -> String {
        format!(
            "[rank{rank}]:[E1115 02:53:{second}.1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL({work}, Timeout(ms)=15000) ran for 15061 milliseconds before timing out.\n"
        )
    }

    #[test]
    fn the_watchdogs_are_compared() {
        let text = timeout(1, 14, "SeqNum=6, OpType=ALLGATHER, NumelIn=256, NumelOut=1024")
            + &timeout(0, 14, "SeqNum=7, OpType=ALLREDUCE, NumelIn=65536, NumelOut=65536");
        assert_eq!(
            findings(&RULE, &text)[0].message,
            "rank 1 timed out in ALLGATHER (number 6), rank 0 in ALLREDUCE (number 7)"
        );
        let sizes = timeout(1, 14, "SeqNum=5, OpType=ALLREDUCE, NumelIn=16, NumelOut=16")
            + &timeout(0, 14, "SeqNum=5, OpType=ALLREDUCE, NumelIn=256, NumelOut=256");
        assert_eq!(
            findings(&RULE, &sizes)[0].message,
            "rank 0 timed out in ALLREDUCE of 256 elements, rank 1 in ALLREDUCE of 16 elements"
        );
    }

    #[test]
    fn a_late_rank_is_not_a_mismatch() {
        let late = timeout(1, 14, "SeqNum=4, OpType=ALLREDUCE, NumelIn=256, NumelOut=256")
            + &timeout(0, 55, "SeqNum=6, OpType=ALLREDUCE, NumelIn=9, NumelOut=9");
        quiet(&RULE, &late);
        let same = timeout(1, 14, "SeqNum=4, OpType=ALLREDUCE, NumelIn=256, NumelOut=256")
            + &timeout(0, 14, "SeqNum=4, OpType=ALLREDUCE, NumelIn=256, NumelOut=256");
        quiet(&RULE, &same);
    }
}
