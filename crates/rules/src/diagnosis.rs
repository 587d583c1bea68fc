//! Runs every rule over the logs of a job and puts the findings in order: the first cause first.

use std::cmp::Reverse;

use evidence::Missing;
use job::{FailureKind, Outcome};

use crate::checklist::checklist;
use crate::general::{initialisation_failed, job_failed, nccl_message, unexplained_warning};
use crate::stack;
use crate::verdict::verdict;
use crate::{
    Checked, ChecklistItem, Confidence, Finding, FirstFailure, Found, Log, Role, Rule, Severity, Summary,
    Verdict, all, summary,
};

/// Everything that the rules report about a job.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    /// The first cause first.
    pub findings: Vec<Found>,
    /// Rules that could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// What an engineer looks for in a log by hand.
    pub checklist: Vec<ChecklistItem>,
    /// The answer in one line.
    pub verdict: Verdict,
    /// The job in a few facts.
    pub summary: Summary,
    /// How the job ended.
    pub outcome: Outcome,
    /// The earliest failure, where something failed.
    pub first_failure: Option<FirstFailure>,
}

/// A rule that could not be checked.
#[derive(Debug, Clone, Copy)]
pub struct Unchecked {
    /// The rule.
    pub rule: &'static Rule,
    /// What it lacked.
    pub missing: Missing,
}

impl Diagnosis {
    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        count(&self.findings, severity)
    }

    /// Whether a rule found something.
    pub fn found(&self, id: &str) -> bool {
        self.findings.iter().any(|it| it.rule.id == id)
    }
}

pub(crate) fn count(findings: &[Found], severity: Severity) -> usize {
    findings.iter().filter(|it| it.severity() == severity).count()
}

/// Runs every rule about logs.
pub fn diagnose(log: &Log) -> Diagnosis {
    conclude(log, (0..all().len()).filter_map(|it| check(log, it)).collect())
}

/// What one rule says.
#[derive(Debug)]
pub struct Judged {
    number: usize,
    rule: &'static Rule,
    checked: Checked,
}

/// Checks the rule that has this place in [`all`]; `None` if it does not apply. For those who spread the rules over cores.
pub fn check(log: &Log, number: usize) -> Option<Judged> {
    let rule = *all().get(number)?;
    let check = rule.log().filter(|_| stack::applies(rule, log))?;
    Some(Judged { number, rule, checked: check(log) })
}

/// Puts together what the rules say, in any order.
pub fn conclude(log: &Log, mut judged: Vec<Judged>) -> Diagnosis {
    judged.sort_by_key(|it| it.number);
    let (mut findings, mut unchecked) = (Vec::new(), Vec::new());
    for Judged { rule, checked, .. } in judged {
        match checked {
            Ok(found) => findings.extend(found.into_iter().map(|finding| Found { rule, finding })),
            // Sources that only a job on GPUs has are not missing from a job in host memory.
            Err(_) if log.case.is_in_host_memory() => {}
            Err(missing) => unchecked.push(Unchecked { rule, missing }),
        }
    }
    // These report what the other rules left unexplained, the most exact first: no failure may go unmentioned.
    for (rule, check) in [
        (&nccl_message::RULE, nccl_message::check_last as fn(&Log, &[Found]) -> Vec<Finding>),
        (&unexplained_warning::RULE, unexplained_warning::check_last),
        (&initialisation_failed::RULE, initialisation_failed::check_last),
        (&job_failed::RULE, job_failed::check_last),
    ] {
        let found = check(log, &findings);
        findings.extend(found.into_iter().map(|finding| Found { rule, finding }));
    }
    demote_messengers(log, &mut findings);
    findings.sort_by_key(|it| {
        let first = it.finding.quotes().map(|it| it.spot).min();
        (
            weight(it),
            Reverse(is_sure(it)),
            it.role(),
            distance(log, it),
            Reverse(it.finding.confidence),
            first,
            it.rule.id,
        )
    });
    let summary = summary(log);
    Diagnosis {
        checklist: checklist(log, &summary, &findings),
        verdict: verdict(log, &summary, &findings, &unchecked),
        outcome: log.job.outcome.clone(),
        first_failure: log.job.first_failure.clone(),
        findings,
        unchecked,
        summary,
    }
}

/// Where a rank reports a failure of its own, what the others report of it is a consequence; so is a general cause beside a
/// specific one.
fn demote_messengers(log: &Log, findings: &mut [Found]) {
    let messenger = |it: &Found| it.rule.role.is_messenger();
    let general = |it: &Found| matches!(it.rule.role, Role::General | Role::Unexplained);
    let specific = |it: &Found| {
        it.severity() == Severity::Error
            && it.role() == Role::Cause
            && it.finding.confidence > Confidence::Possible
            && !general(it)
            && !messenger(it)
    };
    if findings.iter().any(specific) {
        for it in findings.iter_mut().filter(|it| general(it)) {
            it.finding.role = Some(Role::Consequence);
        }
    }
    let Some(first) = log.job.first_failure.as_ref().filter(|it| it.kind == FailureKind::Own) else { return };
    let shows = |it: &Found| it.finding.quotes().any(|it| it.spot == first.quote.spot);
    if !findings.iter().any(|it| !messenger(it) && shows(it)) {
        return;
    }
    for it in findings.iter_mut().filter(|it| messenger(it) && !shows(it)) {
        it.finding.role = Some(Role::Consequence);
    }
}

/// How far a consequence is from the first failure: the finding that shows it comes first, then the end of a process, then those that
/// waited for it. Causes are not ordered by this.
fn distance(log: &Log, it: &Found) -> u8 {
    let Some(first) = log.job.first_failure.as_ref().filter(|_| it.role() == Role::Consequence) else {
        return 0;
    };
    let shows = it.finding.quotes().any(|it| it.spot == first.quote.spot);
    match (first.kind, it.rule.role) {
        (FailureKind::Own | FailureKind::Ended, Role::Waiting | Role::Missing) => 3,
        (FailureKind::Ended, Role::CutOff) => 0,
        (FailureKind::Own, Role::CutOff) => 2,
        _ if shows => 0,
        _ => 1,
    }
}

/// By severity; but that something failed without a known cause comes after a warning whose cause is known.
fn weight(it: &Found) -> u8 {
    let named = it.role() == Role::Cause && it.finding.confidence > Confidence::Possible;
    match it.severity() {
        Severity::Error if names_no_cause(it) => 2,
        Severity::Error => 0,
        Severity::Warning if named => 1,
        Severity::Warning => 3,
        Severity::Info => 4,
    }
}

/// Whether it only states that something failed.
fn names_no_cause(it: &Found) -> bool {
    it.rule.role == Role::Unexplained && it.finding.confidence == Confidence::Possible
}

/// Among findings of one severity, a consequence that is only possible comes last.
fn is_sure(it: &Found) -> bool {
    it.finding.confidence > Confidence::Possible || it.role() == Role::Cause
}
