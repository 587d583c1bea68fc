//! How the job ended, as far as its logs show: before any question of why.

use evidence::catalogue::look_up;
use evidence::ending::{Ending, Kind};
use evidence::signals::ib::{FAILOVER_EXHAUSTED, PORT_FAILED};
use evidence::{Case, Quote, Spot};
use messages::family::Class;

use crate::culprit::{FailureKind, FirstFailure};
use crate::failure::{is_harmless, is_messenger};

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A process of it died, or a call failed that ends it.
    Failed,
    /// It waited for something that did not come, until a watchdog ended it or the log stops.
    Hung,
    /// It ended as it should.
    Finished,
    /// It was at work when the log stops.
    Running,
    /// The input does not show it.
    Unknown,
}

impl State {
    /// The word used in output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Hung => "hung",
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Unknown => "unknown",
        }
    }

    /// Whether the job is dead or will not go on.
    pub fn is_bad(self) -> bool {
        matches!(self, Self::Failed | Self::Hung)
    }
}

/// How a job ended, with the lines that show it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// How.
    pub state: State,
    /// The lines that show it, the most telling first.
    pub lines: Vec<Quote>,
    /// How far its setup came.
    pub setup: Setup,
    /// A line near the end of a file words a failure, and nothing shows whether the job survived it.
    pub trouble: Option<Quote>,
}

impl Default for Outcome {
    fn default() -> Self {
        Self { state: State::Unknown, lines: Vec::new(), setup: Setup::default(), trouble: None }
    }
}

/// How far the setup of a job's largest communicator came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Setup {
    /// Its ranks.
    pub n_ranks: Option<u32>,
    /// Ranks whose lines were read.
    pub seen: usize,
    /// Ranks that completed their setup.
    pub complete: usize,
    /// Ranks of any communicator that began a setup and did not complete it.
    pub unfinished: usize,
}

/// How many lines show an outcome.
const LINES: usize = 3;

/// A wording of a failure counts if it is this close to the end of its file.
const LAST_LINES: u64 = 20;

impl Outcome {
    /// Reads the outcome from logs.
    pub fn of_case(case: &Case, first: Option<&FirstFailure>) -> Self {
        let setup = Setup::of_case(case);
        let deaths: Vec<&Ending> =
            case.endings.iter().filter(|it| it.kind.is_death() && !survived(case, it.last)).collect();
        let warnings = fatal_warnings(case);
        let trouble = case
            .endings
            .iter()
            .filter(|it| it.kind == Kind::Trouble && !survived(case, it.last) && is_last(case, it.last))
            .map(|it| it.quote.clone())
            .next_back();
        let died = first.is_some_and(|it| matches!(it.kind, FailureKind::Own | FailureKind::Ended));
        let (state, lines) = if let Some(hang) = deaths.iter().find(|it| it.kind == Kind::Hang)
            && !died
        {
            (State::Hung, vec![hang.quote.clone()])
        } else if !deaths.is_empty() || !warnings.is_empty() {
            // What failed is more telling than that something ended.
            let mut order: Vec<&&Ending> = deaths.iter().collect();
            order.sort_by_key(|it| (is_messenger(&it.quote.text), telling(it), it.quote.spot));
            let ends = order.into_iter().map(|it| it.quote.clone());
            (State::Failed, ends.chain(warnings).take(LINES).collect())
        } else if let Some(end) = case.endings.iter().rev().find(|it| it.kind == Kind::Finished) {
            (State::Finished, vec![end.quote.clone()])
        } else if let Some(seen) = &case.training.runtime_seconds {
            (State::Finished, vec![seen.quote.clone()])
        } else if let Some(test) = case.tests.iter().find(|it| it.average_bus_bandwidth.is_some()) {
            (State::Finished, vec![test.quote.clone()])
        } else if !case.progress.is_empty() {
            (State::Running, Vec::new())
        } else {
            (State::Unknown, Vec::new())
        };
        Self { state, lines, setup, trouble }
    }
}

/// Which ending says most about what happened, the most telling lowest.
fn telling(ending: &Ending) -> u8 {
    match (ending.kind, ending.code) {
        (Kind::Exception | Kind::Call | Kind::Hang, _) => 0,
        (Kind::Crash, _) => 1,
        // A launcher ends the ranks that are left in this way.
        (Kind::Killed, Some(-15)) => 5,
        (Kind::Killed | Kind::Cancelled, _) => 2,
        (Kind::Exit | Kind::NotStarted, None) => 3,
        (Kind::Exit | Kind::NotStarted, Some(_)) => 4,
        (Kind::Trouble | Kind::Finished, _) => 6,
    }
}

/// Whether NCCL goes on over another port of an adapter after a transfer failed.
pub fn failed_over(case: &Case) -> bool {
    case.first_of(&[&PORT_FAILED]).is_some() && case.first_of(&[&FAILOVER_EXHAUSTED]).is_none()
}

/// Whether the job was at work again after this line, in the same file.
pub fn survived(case: &Case, at: Spot) -> bool {
    let file = case.sources.locate(at).0;
    case.progress.iter().any(|it| *it > at && case.sources.locate(*it).0 == file)
}

fn is_last(case: &Case, at: Spot) -> bool {
    let (name, line) = case.sources.locate(at);
    let lines = case.sources.files.iter().find(|it| *it.name == *name).map_or(0, |it| it.tally.lines);
    line + LAST_LINES >= lines
}

/// Warnings of NCCL that mean a failure, unless the process went on to complete all its communicators.
fn fatal_warnings(case: &Case) -> Vec<Quote> {
    let mut all = Vec::new();
    let failed_over = failed_over(case);
    for (index, process) in case.processes.iter().enumerate() {
        for warning in &process.facts.warnings.first {
            if failed_over && warning.quote.text.contains("NET/IB") {
                continue;
            }
            let spot = warning.quote.spot;
            let completed_later = || {
                let mut members = case
                    .communicators
                    .iter()
                    .flat_map(|it| it.members.values())
                    .filter(|it| it.process == index)
                    .peekable();
                members.peek().is_some()
                    && members.all(|it| it.facts.complete.as_ref().is_some_and(|it| it.spot > spot))
            };
            if !is_harmless(&warning.quote.text)
                && !goes_on(&warning.quote.text)
                && !survived(case, spot)
                && !completed_later()
            {
                all.push(warning.quote.clone());
            }
        }
    }
    all.sort_by_key(|it| (is_messenger(&it.text), it.spot));
    all
}

/// Whether NCCL goes on after a warning: it is about a setting that NCCL does without, or says so itself.
fn goes_on(line: &str) -> bool {
    let Some(known) = look_up(line) else { return false };
    let returns = known.found.as_ref().is_some_and(|it| it.entry.outcome != messages::Outcome::Continues);
    let says_so = known.found.is_some() && ["falling back to", "ignoring"].iter().any(|it| line.contains(it));
    (known.class() == Some(Class::Setting) || says_so) && !returns
}

impl Setup {
    fn of_case(case: &Case) -> Self {
        let world = case.world();
        let unfinished = case
            .communicators
            .iter()
            .flat_map(|it| it.members.values())
            .filter(|it| it.facts.start.is_some() && !it.is_complete())
            .count();
        Self {
            n_ranks: world.and_then(|it| it.n_ranks),
            seen: world.map_or(0, |it| it.members.len()),
            complete: world.map_or(0, |it| it.members.values().filter(|it| it.is_complete()).count()),
            unfinished,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, State};
    use crate::testing::case;

    const SETUP: &str = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init COMPLETE\n";

    fn outcome(log: &str) -> Outcome {
        let case = case(log);
        Outcome::of_case(&case, crate::culprit::first_failure(&case).as_ref())
    }

    fn state(log: &str) -> State {
        outcome(log).state
    }

    #[test]
    fn endings_decide() {
        for (end, want) in [
            ("", State::Unknown),
            ("step 3 | loss 2.1\n", State::Running),
            ("{'train_runtime': 24.0, 'train_loss': 1.1}\n", State::Finished),
            ("Exited with exit code 0\n", State::Finished),
            ("RuntimeError: NCCL error in: x, unhandled cuda error\n", State::Failed),
            (
                "a:1:2 [0] enqueue.cc:1 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\n",
                State::Failed,
            ),
            (
                "[rank0]:[E1115 02:53:14.26 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4) ran for 15004 milliseconds before timing out.\n",
                State::Hung,
            ),
        ] {
            assert_eq!(state(&format!("{SETUP}{end}")), want, "{end}");
        }
    }

    #[test]
    fn what_the_job_survived_is_not_its_end() {
        assert_eq!(state("ValueError: bad sample\nstep 4 | loss 2.0\n"), State::Running);
        assert_eq!(state("step 4 | loss 2.0\nValueError: bad sample\n"), State::Failed);
    }

    #[test]
    fn a_warning_that_says_nccl_goes_on_is_no_end() {
        let warn = |text: &str| format!("a:1:2 [0] graph/search.cc:1 NCCL WARN {text}\n");
        let fallback = warn("Could not find a path for pattern 4, falling back to simple order");
        assert_ne!(state(&fallback), State::Failed);
        assert_eq!(state(&warn("Could not allocate struct ncclComm")), State::Failed);
    }

    #[test]
    fn a_wording_without_a_form_is_trouble() {
        let outcome = outcome("the launcher lost the node\n");
        assert_eq!(outcome.state, State::Unknown);
        assert!(outcome.trouble.is_some());
    }

    #[test]
    fn a_setup_that_did_not_end_is_counted() {
        let start = "a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n";
        let setup = outcome(start).setup;
        assert_eq!((setup.n_ranks, setup.seen, setup.complete, setup.unfinished), (Some(4), 1, 0, 1));
    }
}
