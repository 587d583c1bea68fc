//! Ranks wait in a collective that another rank did not call.

use evidence::Source;
use job::recorder::{Recorded, Unpaired, compare, dumps, group_name};

use super::words::{about, at, weighed};
use crate::sentence::list_of_ranks;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "collective-not-entered",
    title: "a rank did not call the collective that others wait in",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::FlightRecorder],
    why: "The dumps of PyTorch's Flight Recorder list what each rank called. A collective ends when all ranks of its process group have \
          called it; the ranks that called it wait for the one that did not, and report the timeout.",
    fix: "Look at what that rank does instead: `py-spy dump --pid PID` while it hangs, or its log after its last collective. Usual causes: \
          fewer batches than the others, a branch that depends on the rank, saving or tokenising for longer than the timeout, or a process \
          that is stopped or dead.",
    references: &[
        "https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html",
        "PyTorch torch/csrc/distributed/c10d/FlightRecorder.hpp",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.dumps()?;
    let (wait, absent, last, others) = match compare(&log.case) {
        Some(Recorded::NotEntered { wait, absent, last, others }) => (wait, absent, last, others),
        Some(Recorded::Unpaired(it)) if it.unlike.is_none() => {
            return Ok(weighed(log, without_partner(log, &it)));
        }
        _ => return Ok(Vec::new()),
    };
    let call = wait.call;
    let who = list_of_ranks(&absent);
    let known = dumps(&log.case);
    let waits = if wait.waiting.len() == 1 { "waits" } else { "wait" };
    let place =
        format!("{} number {} of {}", call.operation, call.sequence, group_name(&log.case, &call.group));
    let waiting = list_of_ranks(&wait.waiting);
    // A rank whose part of a collective is done is in the next one already.
    let others: Vec<String> = others
        .iter()
        .filter(|it| it.call.group == call.group)
        .take(2)
        .map(|it| format!(", {} in number {}", list_of_ranks(&it.waiting), it.call.sequence))
        .collect();
    let others = others.concat();
    let message = if absent.iter().any(|it| known.contains_key(it)) {
        format!("{who} did not call {place}; {waiting} {waits} in it{others}{}", at(call))
    } else {
        format!("{waiting} {waits} in {place}{others}{}, and there is no dump of {who}", at(call))
    };
    let confidence = match last.is_empty() {
        false => Confidence::Certain,
        true if absent.len() < wait.waiting.len() => Confidence::Likely,
        // Most dumps are missing: they may only not have been collected.
        true => Confidence::Possible,
    };
    let finding = about(log, Finding::new(confidence, message), &absent, wait.waiting.iter().copied());
    let finding = match last.iter().next() {
        None => finding.or("peer-process-died"),
        Some((rank, call)) => finding.why(format!(
            "The last call of rank {rank} was {} number {} of {}, {}{}. {}",
            call.operation,
            call.sequence,
            group_name(&log.case, &call.group),
            if call.waiting { "not finished" } else { "finished" },
            at(call),
            RULE.why
        )),
    };
    Ok(weighed(log, finding))
}

/// A send that nobody receives, or a receive that nobody sends.
fn without_partner(log: &Log, it: &Unpaired<'_>) -> Finding {
    let part = if it.call.operation.starts_with("send") { "receive" } else { "send" };
    let instead = match it.elsewhere {
        Some(call) => format!("it waits in {} number {}{}", call.operation, call.sequence, at(call)),
        None => "it waits in no call".to_owned(),
    };
    let message = format!(
        "rank {} waits in {} of {}{}; rank {} has not called the {part} for it: {instead}",
        it.rank,
        it.call.operation,
        group_name(&log.case, &it.call.group),
        at(it.call),
        it.peer
    );
    let finding = Finding::new(Confidence::Certain, message).why(
        "The dumps of PyTorch's Flight Recorder list what each rank called. Between two ranks the nth send belongs to the nth receive; a send \
         without its receive waits until the timeout, and so does a receive without its send.",
    );
    let finding = finding.fix(
        "Make every send have its receive, in the same order on both ranks. Two ranks that both send first wait for each other: use \
         `batch_isend_irecv`, or let one of them receive first. `py-spy dump --pid PID` shows what the other rank does now.",
    );
    about(log, finding, &[it.peer], [it.rank].into_iter())
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::RULE;
    use crate::Log;
    use crate::testing::check;

    fn dump(last: u32) -> String {
        let entry = |it: u32| {
            let state = if it == 2 { "scheduled" } else { "completed" };
            format!(
                "{{\"process_group\": [\"0\", \"default_pg\"], \"collective_seq_id\": {it}, \"profiling_name\": \"nccl:all_reduce\", \"state\": \"{state}\", \"frames\": [{{\"name\": \"step\", \"filename\": \"a.py\", \"line\": 7}}]}}"
            )
        };
        let entries: Vec<String> = (1..=last).map(entry).collect();
        format!(
            "{{\"pg_config\": {{\"0\": {{\"desc\": \"default_pg\", \"ranks\": \"[0, 1]\"}}}}, \"entries\": [{}]}}",
            entries.join(",")
        )
    }

    #[test]
    fn the_rank_and_the_line_are_named() {
        let (zero, one) = (dump(2), dump(1));
        let files = [("nccl_trace_rank_0", zero.as_bytes()), ("nccl_trace_rank_1", one.as_bytes())];
        let found = check(&RULE, &Log::new(read_texts(files))).unwrap();
        assert_eq!(
            found[0].message,
            "rank 1 did not call all_reduce number 2 of process group 0 (default_pg); rank 0 waits in it (a.py:7, step)"
        );
        let why = found[0].why.as_deref().unwrap();
        assert!(why.starts_with("The last call of rank 1 was all_reduce number 1 of process group 0 (default_pg), finished (a.py:7, step). "), "{why}");
        assert_eq!((found[0].entities[0].name.as_str(), found[0].severity), ("1", None));
        // A log that ends well shows that the dumps were written while it worked.
        let done = b"{'train_runtime': 5.6, 'train_samples_per_second': 1.0, 'train_steps_per_second': 1.0, 'train_loss': 0.5, 'epoch': 1.0}\n";
        let log = Log::new(read_texts(files.into_iter().chain([("log", &done[..])])));
        assert!(check(&RULE, &log).unwrap().is_empty());
    }
}
