//! The answer as Markdown for a ticket or a chat, without names, addresses, paths and secrets.

use rules::Severity;

use super::trouble::sentence;
use crate::text::counted;
use crate::{Doctor, Facts, Finding, clean, redact};

/// How many findings are in it.
const FINDINGS: usize = 3;
/// How many lines of the log for each.
const LINES: usize = 2;

/// The verdict, what it is about and the first findings with their fix.
pub fn ticket(doctor: &Doctor) -> String {
    let mut doctor = excerpt(doctor);
    redact(&mut doctor);
    let opening = doctor.opening();
    let mut text = format!("**{}: {}**\n", opening.word, line(&opening.sentence));
    for it in &opening.below {
        text.push_str(&format!("\n{}\n", line(it)));
    }
    if let Some(failure) = &doctor.facts.first_failure {
        text.push_str(&format!("\nfirst: {}\n", line(&sentence(failure))));
    }
    // Notes only where there is nothing worse.
    let worst = doctor.findings.iter().map(|it| it.severity).max();
    let worth = |it: &&Finding| it.severity > Severity::Info || worst == Some(Severity::Info);
    let all: Vec<&Finding> = doctor.findings.iter().filter(worth).collect();
    if !all.is_empty() {
        text.push('\n');
    }
    for it in all.iter().take(FINDINGS) {
        text.push_str(&format!("- {} `{}`: {}\n", it.severity.name(), it.id, line(&it.message)));
        for quote in it.evidence.iter().take(LINES).filter(|it| !it.text.is_empty()) {
            text.push_str(&format!(
                "  - {}:{} `{}`\n",
                line(&quote.file),
                quote.line,
                line(&quote.text).replace('`', "'")
            ));
        }
        text.push_str(&format!("  - fix: {}\n", line(&it.fix)));
    }
    if all.len() > FINDINGS {
        text.push_str(&format!("- and {}\n", counted(all.len() - FINDINGS, "more finding")));
    }
    if let Some(next) = &doctor.verdict.next {
        text.push_str(&format!("\nnext: {}\n", line(next)));
    }
    text
}

/// What the ticket shows and what names are learned from; not the trees of thousands of ranks.
fn excerpt(doctor: &Doctor) -> Doctor {
    let facts = &doctor.facts;
    Doctor {
        schema: String::new(),
        verdict: doctor.verdict.clone(),
        outcome: doctor.outcome.clone(),
        findings: doctor.findings.clone(),
        checks: Vec::new(),
        not_checked: Vec::new(),
        facts: Facts {
            job: facts.job.clone(),
            stack: facts.stack.clone(),
            first_failure: facts.first_failure.clone(),
            ranks: facts.ranks.clone(),
            other_ranks: facts.other_ranks.clone(),
            communicators: Vec::new(),
            environment: facts.environment.clone(),
            protocols: None,
            training: None,
            tests: Vec::new(),
        },
        inputs: doctor.inputs.clone(),
        fleet: None,
        excerpts: Vec::new(),
    }
}

/// A text on one line.
fn line(text: &str) -> String {
    clean(&text.replace('\n', " "))
}
