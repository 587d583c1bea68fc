//! The job ended badly, and no other rule says why.

use std::collections::BTreeMap;

use evidence::ending::{Ending, Kind};
use evidence::{Quote, Source, Spot};
use job::State;
use messages::values::{self, Table, Value};

use crate::sentence::shorten;
use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "job-failed",
    title: "the job ended with an error whose cause is not in the input",
    severity: Severity::Error,
    role: Role::Unexplained,
    needs: &[Source::JobOutput],
    why: "The last lines say that a process of the job ended badly. What it printed before that is not in this input, or no rule knows it.",
    fix: "Give plumb the output of all ranks from the start of the job, with NCCL_DEBUG=INFO, and the kernel log of the node \
          (`dmesg -T`): plumb doctor *.log dmesg.txt",
    references: &["https://pytorch.org/docs/stable/elastic/errors.html"],
    checks: &[Check::Log(check)],
};

/// Findings come from [`check_last`], after all other rules.
fn check(log: &Log) -> Checked {
    if log.has(Source::JobOutput) { Ok(Vec::new()) } else { Err(evidence::Missing(Source::JobOutput)) }
}

/// A job that failed or hung, and no finding of severity error.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    let outcome = &log.job.outcome;
    if !outcome.state.is_bad() || findings.iter().any(|it| it.severity() == Severity::Error) {
        return Vec::new();
    }
    let shown = |it: &&Ending| outcome.lines.contains(&it.quote);
    let ending = log.case.endings.iter().filter(shown).find(|it| outcome.lines.first() == Some(&it.quote));
    let Some(first) = outcome.lines.first() else { return Vec::new() };
    let (message, why) = match ending {
        Some(ending) => (message(ending), why(ending)),
        None => (format!("the job {}: `{}`", word(outcome.state), shorten(&first.text)), None),
    };
    let noted = noted(log);
    let message = match noted.first() {
        Some(it) => format!("{message}; before that, NCCL noted `{}`", shorten(after_head(&it.text))),
        None => message,
    };
    let mut finding = Finding::new(Confidence::Possible, message).seen_all(&outcome.lines).seen_all(noted);
    finding.why = why.map(str::to_owned);
    if let Some(ending) = ending {
        finding = ending.rank.map(|it| finding.clone().about_rank(it)).unwrap_or(finding);
        finding = ending.host.as_ref().map(|it| finding.clone().about_host(it)).unwrap_or(finding);
        finding.fix = fix(ending).map(str::to_owned);
    }
    vec![finding]
}

/// Ordinary lines of NCCL that word a trouble. In a job that goes on they mean little, and what a finished setup leaves behind was
/// survived; where nothing else explains an end, the others may.
fn noted(log: &Log) -> Vec<&Quote> {
    let members = log.case.communicators.iter().flat_map(|it| it.members.values());
    let done: BTreeMap<usize, Spot> =
        members.filter_map(|it| Some((it.process, it.facts.complete.as_ref()?.spot))).collect();
    let processes = log.case.processes.iter().enumerate();
    let troubles =
        processes.flat_map(|(at, it)| it.facts.troubles.first.iter().map(move |it| (at, &it.quote)));
    let after_setup = |it: &(usize, &Quote)| done.get(&it.0).is_none_or(|done| it.1.spot > *done);
    troubles.filter(after_setup).map(|it| it.1).take(MOST_NOTED).collect()
}

/// How many of them are shown.
const MOST_NOTED: usize = 3;

fn after_head(text: &str) -> &str {
    text.split_once("NCCL INFO ").map_or(text, |it| it.1)
}

fn word(state: State) -> &'static str {
    if state == State::Hung { "hangs" } else { "failed" }
}

/// Who ended, and how.
fn message(ending: &Ending) -> String {
    let who = match (ending.rank, &ending.host) {
        (Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (Some(rank), None) => format!("rank {rank}"),
        (None, Some(host)) => format!("a process on {host}"),
        (None, None) => "a process of the job".to_owned(),
    };
    match (ending.kind, ending.code) {
        (Kind::Cancelled, _) => format!("the job was ended by its scheduler: `{}`", shorten(&ending.text)),
        (Kind::Hang, _) => {
            format!("{who} waits for something that does not come: `{}`", shorten(&ending.text))
        }
        (Kind::Exception, _) => format!("{who} ended with `{}`", shorten(&ending.text)),
        (_, Some(code)) if code < 0 => {
            let name = value(ending).map(|it| format!(" ({})", it.name)).unwrap_or_default();
            format!("{who} ended with signal {}{name}; the input does not show why", -code)
        }
        (_, Some(code)) => format!("{who} ended with exit code {code}; the input does not show why"),
        _ => format!("{who} failed: `{}`", shorten(&ending.text)),
    }
}

/// The exit code or signal in the table of values.
fn value(ending: &Ending) -> Option<&'static Value> {
    let code = i64::from(ending.code?);
    if code < 0 { values::find(Table::Signal, -code) } else { values::find(Table::Exit, code) }
}

/// What this code or kind of end means.
fn why(ending: &Ending) -> Option<&'static str> {
    match ending.kind {
        Kind::Cancelled => Some(
            "The scheduler or the cluster ended the job from outside: a time limit, a preemption, a failed node or a limit of memory. The \
             job's own log does not say whether it was healthy.",
        ),
        _ => value(ending).map(|it| &*it.meaning),
    }
}

/// What to do about this kind of end.
fn fix(ending: &Ending) -> Option<&'static str> {
    match ending.kind {
        Kind::Cancelled if ending.quote.text.to_ascii_uppercase().contains("TIME LIMIT") => Some(
            "The job reached its time limit: give it more (`sbatch --time`, activeDeadlineSeconds), or save checkpoints and resume.",
        ),
        Kind::Cancelled => Some(
            "Ask the scheduler why: `sacct -j JOB -o JobID,State,Reason,ExitCode`, `kubectl describe pod`, `kubectl get events`.",
        ),
        // That a program failed or did not understand its arguments is no advice: more of its output is needed.
        _ => value(ending).filter(|it| it.table == Table::Signal || it.code > 2).map(|it| &*it.remedy),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_trouble_that_the_setup_survived_is_not_shown() {
        let log = |first: &str, last: &str| {
            let done = "n:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 60 - Init COMPLETE\n";
            let text = format!("{first}{done}{last}Killed by the user\nERROR: process exited with code 3\n");
            crate::diagnose(&crate::testing::read(&text))
                .findings
                .iter()
                .any(|it| it.finding.message.contains("noted"))
        };
        let trouble = "n:1:2 [0] NCCL INFO NET/IB: f: Marking device 1 as permanently failed (x comm=0x1)\n";
        assert!(log("", trouble) && !log(trouble, ""));
    }

    use crate::testing::{ids, read};
    use crate::{Level, diagnose};

    #[test]
    fn no_death_is_passed_over() {
        for line in [
            "command terminated with exit code 1",
            "Segmentation fault (core dumped)",
            "slurmstepd: error: *** STEP 1234.0 ON node-a CANCELLED AT 2025-05-05T10:11:12 DUE TO TIME LIMIT ***",
            "    reason: OOMKilled",
        ] {
            let diagnosis = diagnose(&read(&format!("{line}\n")));
            assert_eq!(diagnosis.verdict.level, Level::Error, "{line}: {:?}", diagnosis.findings);
        }
    }

    #[test]
    fn the_code_is_explained() {
        let diagnosis = diagnose(&read("command terminated with exit code 139\n"));
        let first = &diagnosis.findings[0];
        assert!(first.finding.message.contains("signal 11 (SIGSEGV)"), "{first:?}");
        assert!(first.fix().contains("faulthandler"), "{first:?}");
    }

    #[test]
    fn what_the_job_survived_is_quiet() {
        assert!(ids("Exited with exit code 0\n").is_empty());
        assert!(ids("run.sh: line 3: 4711 Killed\nstep 4 | loss 2.0\n").is_empty());
    }
}
