//! One rank ended with a program error, and the other ranks reported it.

use evidence::ending::Kind;
use evidence::signals::application::{CRASH, EXCEPTION, RANK_EXCEPTION};
use evidence::signals::ended::{CLOSED, REMOTE_ERROR};
use evidence::{Quote, Sighting, Source};

use crate::sentence::shorten;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};
use job::FailureKind;
use job::failure::{Exit, exception, exits, names_nccl};
use job::outcome::survived;

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "fatal-python-error",
    title: "a rank ended with a program error",
    severity: Severity::Error,
    // The interconnect comes first: what it breaks ends in exceptions too.
    role: Role::Consequence,
    needs: &[Source::JobOutput],
    why: "An exception or a crash that nothing caught ended this rank. Closed connections, remote errors and timeouts of the other \
          ranks follow from it.",
    fix: "Fix the error that the exception reports; the traceback above it shows where. Ignore the messages of the other ranks.",
    references: &["https://pytorch.org/docs/stable/elastic/errors.html"],
    checks: &[Check::Log(check)],
};

/// There is no exception to read.
const CRASH_FIX: &str = "Get the stack of the crash: run with `python -X faulthandler` and `ulimit -c unlimited`, and open the core with gdb. Extensions \
     built for another PyTorch or CUDA are the usual cause. Ignore the messages of the other ranks.";

/// The program did not begin: nothing ran that could fail.
const START_WHY: &str = "The program did not start, or ended before its first line of work: the line names what it lacked. The \
     launcher's report and what other ranks print follow from it.";
const START_FIX: &str = "Put what the line names where the program looks for it: `which`, `ls` and `pip list` in the same image, as the \
     same user and in the same folder, show what is there.";

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&RANK_EXCEPTION, &EXCEPTION, &CRASH], Source::JobOutput)?;
    let own: Vec<(&Sighting, String)> = found
        .iter()
        .filter(|it| *it.signal == RANK_EXCEPTION)
        .filter_map(|it| Some((*it, exception(it)?)))
        .collect();
    let crashed = found.iter().copied().find(|it| *it.signal == CRASH && is_crash(it));
    let ended: Vec<Exit> = exits(&log.case).into_iter().filter(Exit::is_own).collect();
    let noticed = !ended.is_empty() || log.case.first_of(&[&CLOSED, &REMOTE_ERROR]).is_some();
    // Without PyTorch's mark an exception counts where something ended, or where nothing shows that the program went on.
    let plain = || {
        let first =
            found.iter().copied().find(|it| *it.signal == EXCEPTION && !names_nccl(&it.quote.text))?;
        noticed.then(|| (log.case.rank_of(first), &first.quote, first.quote.text.trim().to_owned()))
    };
    let uncaught = || {
        let it = log.case.endings.iter().find(|it| {
            it.kind == Kind::Exception && !names_nccl(&it.quote.text) && !survived(&log.case, it.last)
        })?;
        Some((it.rank, &it.quote, it.text.to_string()))
    };
    let not_started = || {
        let mut all = log.case.endings.iter();
        let it = all.find(|it| it.kind == Kind::NotStarted && !survived(&log.case, it.last))?;
        let files = usize::try_from(it.count).unwrap_or(usize::MAX).min(log.case.sources.files.len());
        Some((it.rank, &it.quote, it.text.to_string(), files))
    };
    let own_first = own.first().map(|(it, what)| (log.case.rank_of(it), &it.quote, what.clone()));
    let broke = || {
        let exit = ended.iter().find(|it| it.is_crash())?;
        Some((exit.rank, &exit.quote, exit.describe()))
    };
    let crash = || crashed.map(|it| (log.case.rank_of(it), &it.quote, it.quote.text.trim().to_owned()));
    // What the first failure is decides, where a rank reports it of itself in its own words.
    let of_launcher = |quote: &Quote| ended.iter().any(|it| it.quote == *quote);
    let first = log.job.first_failure.as_ref().filter(|it| {
        it.kind == FailureKind::Own
            && !of_launcher(&it.quote)
            && !it.quote.text.contains("NCCL WARN")
            && is_programs_own(&it.quote.text)
    });
    let first = first.map(|it| (it.rank, &it.quote, it.what.clone()));
    let seen = first.or(own_first).or_else(broke).or_else(crash).or_else(plain).or_else(uncaught);
    let start = not_started().filter(|it| seen.as_ref().is_none_or(|seen| it.1.spot <= seen.1.spot));
    let started = start.is_none();
    let not_started_on = start.as_ref().map_or(0, |it| it.3);
    let start = start.map(|it| (it.0, it.1, it.2));
    let Some((rank, quote, what)) = start.or(seen) else { return Ok(Vec::new()) };
    let rank = rank.or_else(|| ended.first().and_then(|it| it.rank));
    let who = rank.map_or_else(|| "a rank".to_owned(), |it| format!("rank {it}"));
    let same = if started { own.iter().filter(|it| it.1 == what).count() } else { not_started_on };
    let others =
        if same > 1 { format!(", and {} more with the same error", same - 1) } else { String::new() };
    let message = if started {
        let what = if of_launcher(quote) { what.clone() } else { format!("`{}`", shorten(&what)) };
        format!("{who} ended with {what}{others}")
    } else {
        format!("{who} could not start: `{}`{others}", shorten(&what))
    };
    let finding =
        Finding::new(Confidence::Likely, message).seen(quote).seen_all(ended.first().map(|it| &it.quote));
    let crash = ["Segmentation fault", "Fatal Python error", "Caught signal", "signal "]
        .iter()
        .any(|it| what.contains(it));
    let finding = match (started, crash) {
        (false, _) => finding.why(START_WHY).fix(START_FIX),
        (true, true) => finding.fix(CRASH_FIX),
        (true, false) => finding,
    };
    Ok(vec![match rank {
        Some(rank) => finding.about_rank(rank),
        None => finding,
    }])
}

/// Whether an error is the program's, also where CUDA reports it.
fn is_programs_own(text: &str) -> bool {
    let cuda = text.contains("CUDA error") || text.contains("cudaError");
    let rest = text.replace("CUDA error", "").replace("NCCL_", "");
    let device =
        ["out of memory", "ECC", "invalid device ordinal", "NVLink"].iter().any(|it| text.contains(it));
    !device && if cuda { !rest.contains("NCCL") } else { !names_nccl(text) }
}

/// Signals that mean a fault of the program; others end it from outside.
fn is_crash(sighting: &Sighting) -> bool {
    let signal = sighting.get("signal");
    signal.is_empty() || ["4 ", "7 ", "8 ", "11 "].iter().any(|it| signal.starts_with(it)) || signal == "11"
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn an_exception_with_its_rank() {
        let text =
            "[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: loss is nan at step 4\n";
        assert_eq!(findings(&RULE, text)[0].message, "rank 2 ended with `ValueError: loss is nan at step 4`");
    }

    #[test]
    fn an_exception_that_the_program_survived_is_not_its_end() {
        let text = "Traceback (most recent call last):\nKeyError: 'labels'\n";
        assert_eq!(findings(&RULE, text).len(), 1);
        quiet(&RULE, &format!("{text}step 4 | loss 2.0\n"));
        let ended = format!(
            "{text}ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: /usr/bin/python\n"
        );
        assert_eq!(findings(&RULE, &ended).len(), 1);
    }

    #[test]
    fn a_program_that_cannot_start() {
        for line in [
            "ModuleNotFoundError: No module named 'apex'\n",
            "/usr/bin/python3: can't open file '/workspace/finetune.py': [Errno 2] No such file or directory\n",
        ] {
            let it = &findings(&RULE, line)[0];
            assert!(it.message.contains("could not start: `") && it.fix.is_some(), "{it:?}");
        }
        quiet(&RULE, "bash: nvidia-smi: command not found\nstep 4 | loss 2.0\n");
    }

    #[test]
    fn it_explains_the_messengers() {
        let text = "[rank2]: ValueError: loss is nan at step 4\nb:1:2 [0] misc/socket.cc:72 NCCL WARN socketProgress: Connection closed by remote peer a<1>\n";
        assert_eq!(ids(text), ["fatal-python-error", "peer-process-died"]);
    }

    #[test]
    fn nccls_errors_are_not_the_programs() {
        for text in [
            "[rank1]: torch.distributed.DistBackendError: NCCL error in: x, unhandled cuda error\n",
            "[rank1]: RuntimeError: NCCL communicator was aborted on rank 1.\n",
            "[rank1]: torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 3/4 clients joined.\n",
            "[rank1]:     raise RuntimeError(\"Error: x\")\n",
            "W0101 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 1 closing signal SIGTERM\n",
        ] {
            quiet(&RULE, text);
        }
    }
}
