//! Runs every rule and puts the findings in order: the first cause first.

use std::cmp::Reverse;

use evidence::{Case, Missing};

use crate::job::{initialisation_failed, unexplained_warning};
use crate::{Confidence, Finding, Role, Rule, Severity, all};

/// What came of running the rules over a case.
#[derive(Debug, Default)]
pub struct Diagnosis {
    /// Findings with the rule each came from, the first cause first.
    pub findings: Vec<Diagnosed>,
    /// Rules that could not be checked and what each lacked.
    pub unchecked: Vec<(&'static Rule, Missing)>,
}

/// A finding and its rule.
#[derive(Debug, Clone)]
pub struct Diagnosed {
    /// The rule.
    pub rule: &'static Rule,
    /// What it found.
    pub finding: Finding,
}

impl Diagnosed {
    /// The severity of the finding.
    pub fn severity(&self) -> Severity {
        self.finding.severity.unwrap_or(self.rule.severity)
    }

    /// Why it matters.
    pub fn why(&self) -> &str {
        self.finding.why.as_deref().unwrap_or(self.rule.why)
    }

    /// What to do.
    pub fn fix(&self) -> &str {
        self.finding.fix.as_deref().unwrap_or(self.rule.fix)
    }
}

impl Diagnosis {
    /// How many findings have this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|it| it.severity() == severity).count()
    }

    /// The highest severity.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(Diagnosed::severity).max()
    }

    /// Whether a rule found something.
    pub fn found(&self, id: &str) -> bool {
        self.findings.iter().any(|it| it.rule.id == id)
    }
}

/// Runs every rule over `case`.
pub fn diagnose(case: &Case) -> Diagnosis {
    let mut diagnosis = Diagnosis::default();
    for rule in all() {
        match (rule.check)(case) {
            Ok(findings) => {
                diagnosis.findings.extend(findings.into_iter().map(|finding| Diagnosed { rule, finding }));
            }
            // What a GPU's job would have beside says nothing of one without.
            Err(_) if case.is_in_host_memory() => {}
            Err(missing) => diagnosis.unchecked.push((rule, missing)),
        }
    }
    // These two speak only where the others are silent: nothing that failed may pass unmentioned.
    for (rule, check) in [
        (
            &initialisation_failed::RULE,
            initialisation_failed::check_last as fn(&Case, &Diagnosis) -> Vec<Finding>,
        ),
        (&unexplained_warning::RULE, unexplained_warning::check_last),
    ] {
        let findings = check(case, &diagnosis);
        diagnosis.findings.extend(findings.into_iter().map(|finding| Diagnosed { rule, finding }));
    }
    diagnosis.findings.sort_by_key(|it| {
        let first = it.finding.evidence.iter().map(|it| it.spot).min();
        (
            Reverse(it.severity()),
            Reverse(sure(it)),
            it.rule.role,
            Reverse(it.finding.confidence),
            first,
            it.rule.id,
        )
    });
    diagnosis
}

/// Among findings of one severity, a consequence that is only possible comes last.
fn sure(it: &Diagnosed) -> bool {
    it.finding.confidence > Confidence::Possible || it.rule.role == Role::Cause
}
