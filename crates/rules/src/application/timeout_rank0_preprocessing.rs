//! Rank 0 prepares data for longer than the timeout of the other ranks.

use evidence::signals::application::{DATA_PROGRESS, MAIN_PROCESS_FIRST, PREPARING_DATA};
use evidence::signals::collectives::{GLOO_TIMEOUT, STORE_TIMEOUT, TIMEOUT_STATUS, WATCHDOG_TIMEOUT};
use evidence::signals::launch::{MONITORED_BARRIER, STORE_BARRIER_TIMEOUT, UNIQUE_ID_WAIT};
use evidence::{Sighting, Source};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};
use job::watchdog::timeouts;

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "timeout-rank0-preprocessing",
    title: "rank 0 prepares data until the others time out",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "One process tokenises or maps the dataset while the others wait at a barrier. The wait counts against the process group's \
          timeout: 10 minutes for NCCL (30 before PyTorch 2.1 and for gloo and the store). Nothing is wrong with the network.",
    fix: "Prepare the data before the job, once, and let the job read the cache (`python preprocess.py`, `axolotl preprocess`, \
          `tokenized_path`), or raise the timeout: `ddp_timeout` in the trainer's arguments, `InitProcessGroupKwargs(timeout=...)` in \
          accelerate, `init_process_group(timeout=timedelta(hours=3))`. A larger `num_proc` shortens it.",
    references: &[
        "https://github.com/hiyouga/LlamaFactory/issues/2424",
        "https://github.com/huggingface/accelerate/issues/314",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let preparing =
        log.find_signals(&[&PREPARING_DATA, &DATA_PROGRESS, &MAIN_PROCESS_FIRST], Source::JobOutput)?;
    let Some(progress) = unfinished(&preparing) else { return Ok(Vec::new()) };
    let waited = log.case.first_of(&[
        &WATCHDOG_TIMEOUT,
        &TIMEOUT_STATUS,
        &STORE_TIMEOUT,
        &UNIQUE_ID_WAIT,
        &STORE_BARRIER_TIMEOUT,
        &MONITORED_BARRIER,
        &GLOO_TIMEOUT,
    ]);
    let barrier = preparing.iter().find(|it| *it.signal == MAIN_PROCESS_FIRST);
    let elapsed = elapsed_seconds(&progress.quote.text);
    let at_the_limit =
        elapsed.is_some_and(|it| [600, 1800, 3600].iter().any(|limit| it.abs_diff(*limit) <= 60));
    let broke = progress.quote.text.contains("Traceback");
    if waited.is_none() && !(barrier.is_some() && (at_the_limit || broke)) {
        return Ok(Vec::new());
    }
    // After thousands of collectives, or once there is a loss, the data was ready.
    let works = timeouts(&log.case);
    let training = log.case.training.loss_lines > 0
        || (!works.is_empty() && works.iter().all(|it| it.sequence.is_some_and(|it| it > 100)));
    if training {
        return Ok(Vec::new());
    }
    let named = *progress.signal == PREPARING_DATA;
    let percent = if named { format!(" at {} %", progress.get("percent")) } else { String::new() };
    let after = elapsed.map(|it| format!(" after {} min", (it + 30) / 60)).unwrap_or_default();
    let message = if *progress.signal == MAIN_PROCESS_FIRST {
        "ranks timed out while they waited for the first process to prepare the data".to_owned()
    } else {
        format!("the data was still being prepared{percent}{after} when the other ranks stopped waiting")
    };
    let confidence =
        if named || barrier.is_some() || at_the_limit { Confidence::Likely } else { Confidence::Possible };
    let finding = Finding::new(confidence, message).seen(&progress.quote);
    let finding = finding.seen_all(waited.map(|it| &it.quote)).seen_all(barrier.map(|it| &it.quote));
    Ok(vec![finding.about_rank(0)])
}

/// The last progress of work that is not known to have ended.
fn unfinished<'a>(all: &[&'a Sighting]) -> Option<&'a Sighting> {
    let bars: Vec<&Sighting> = all.iter().copied().filter(|it| *it.signal == PREPARING_DATA).collect();
    let Some(last) = bars.last() else {
        let first = |signal| all.iter().copied().find(|it| it.signal == signal);
        return first(&DATA_PROGRESS)
            .filter(|it| !it.quote.text.contains("100%|"))
            .or_else(|| first(&MAIN_PROCESS_FIRST));
    };
    // Ranks share a bar's name, so the furthest counts; the bar of a rank that has just started is at 0.
    let same = bars.iter().filter(|it| it.get("what") == last.get("what"));
    let furthest = same.max_by_key(|it| it.number("percent"))?;
    (furthest.number("percent") != Some(100)).then_some(*furthest)
}

/// `[29:55<03:25, 2432.70 examples/s]`, `[1:02:03<...`
fn elapsed_seconds(text: &str) -> Option<u64> {
    let left = text.rfind('<').and_then(|_| text.split('<').rev().nth(1))?;
    let clock = left.rsplit('[').next()?;
    let mut seconds = 0;
    for part in clock.split(':') {
        seconds = seconds * 60 + part.trim().parse::<u64>().ok()?;
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::{RULE, elapsed_seconds};
    use crate::testing::{findings, quiet};

    const TIMEOUT: &str = "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800572 milliseconds before timing out.\n";

    #[test]
    fn a_bar_that_stood_at_the_timeout() {
        let text = format!(
            "Running tokenizer on dataset:   9%|#    | 280000/2969526 [29:55<4:48:08, 155.57 examples/s]{TIMEOUT}"
        );
        assert_eq!(
            findings(&RULE, &text)[0].message,
            "the data was still being prepared at 9 % after 30 min when the other ranks stopped waiting"
        );
        let store = "Tokenizing Prompts (num_proc=64):  92%|####2| 328986/359152 [29:58<12:05, 41.59 examples/s][rank1]:[W516 14:34:56.8 socket.cpp:489] [c10d] waitForInput: socket SocketImpl(fd=79, addr=[localhost]:41170, remote=[localhost]:29500) timed out after 1800000ms\n";
        assert_eq!(findings(&RULE, store).len(), 1);
    }

    #[test]
    fn a_traceback_through_the_barrier() {
        let text = "Running tokenizer on dataset:  88%|########8 | 383700/433643 [29:55<03:25, 2432.70 examples/s]Traceback (most recent call last):\n\
                    \x20   with training_args.main_process_first(desc=\"dataset map pre-processing\"):\n";
        assert_eq!(findings(&RULE, text).len(), 1);
        let words = "    with training_args.main_process_first(desc=\"dataset map pre-processing\"):\n\
                     RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error\n";
        assert_eq!(findings(&RULE, words).len(), 1);
    }

    #[test]
    fn quiet_when_the_data_was_ready() {
        quiet(
            &RULE,
            &format!(
                "Running tokenizer on dataset: 100%|####| 2969526/2969526 [05:55<00:00, 155.57 examples/s]\n{TIMEOUT}"
            ),
        );
        quiet(
            &RULE,
            "Running tokenizer on dataset:  88%|########8 | 383700/433643 [29:55<03:25, 2432.70 examples/s]\n",
        );
        quiet(
            &RULE,
            &format!(
                "Running tokenizer on dataset:  9%|#| 1/9 [00:55<00:00, 1 examples/s]\n{}",
                TIMEOUT.replace("SeqNum=2", "SeqNum=28956")
            ),
        );
        quiet(&RULE, TIMEOUT);
    }

    #[test]
    fn reads_the_clock() {
        assert_eq!(elapsed_seconds("x [29:55<03:25, 1 it/s]"), Some(1795));
        assert_eq!(elapsed_seconds("x [1:00:01<03:25, 1 it/s]"), Some(3601));
        assert_eq!(elapsed_seconds("x"), None);
    }

    #[test]
    fn megatron_builds_its_index_on_one_rank() {
        let text = format!(
            " > WARNING: could not find index map files, building the indices on rank 0 ...\n{TIMEOUT}"
        );
        assert_eq!(findings(&RULE, &text).len(), 1);
    }
}
