//! Warnings of NCCL, its plugins and libfabric that no rule of their own takes, answered from the catalogue of messages.

use std::collections::BTreeSet;

use evidence::catalogue::look_up_warning;
use evidence::{Kind, Quote, Source, Spot};
use messages::family::{self, Class, Reading};
use messages::{Known, Outcome};

use crate::sentence::shorten;
use crate::{Check, Checked, Confidence, Finding, Found, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "nccl-message",
    title: "NCCL or a library below it reports a failure",
    severity: Severity::Error,
    role: Role::Unexplained,
    needs: &[Source::NcclLog],
    why: "NCCL prints a warning when a call fails; the catalogue of its messages says what this one means.",
    fix: "`plumb explain 'TEXT OF THE LINE'` has more about it. Read the lines of the same process before it.",
    references: &["plumb docs/messages.md"],
    checks: &[Check::Log(check)],
};

/// Findings come from [`check_last`], after all other rules.
fn check(log: &Log) -> Checked {
    log.nccl_log().map(|_| Vec::new())
}

/// How many messages are answered one by one.
const MOST: usize = 3;

/// A warning that no finding explains.
pub(crate) struct Unexplained<'a> {
    pub(crate) who: String,
    pub(crate) host: &'a str,
    pub(crate) rank: Option<u32>,
    pub(crate) quote: &'a Quote,
    pub(crate) known: Option<Known<'a>>,
}

impl Unexplained<'_> {
    pub(crate) fn class(&self) -> Option<Class> {
        self.known.as_ref().and_then(Known::class)
    }

    /// The message without the prefix of its line.
    pub(crate) fn text(&self) -> &str {
        let text = &self.quote.text;
        text.split_once("NCCL WARN ").or_else(|| text.split_once("<warn> ")).map_or(&**text, |it| it.1).trim()
    }
}

/// Warnings that no finding explains: neither as evidence, nor by a signal that the evidence of a finding carries too.
pub(crate) fn unexplained<'a>(log: &'a Log, findings: &[Found]) -> Vec<Unexplained<'a>> {
    let quotes = || findings.iter().filter(|it| it.rule.id != RULE.id).flat_map(|it| it.finding.quotes());
    let shown: BTreeSet<Spot> = quotes().map(|it| it.spot).collect();
    let explained: BTreeSet<&str> = quotes().flat_map(|it| signals_in(&it.text)).collect();
    // With a cause at hand, a rule that knows a line and does not take it has left it to that cause.
    let cause = findings.iter().any(is_cause);
    let of_processes = log.case.processes.iter().flat_map(|process| {
        process.facts.warnings.first.iter().map(move |it| Unexplained {
            who: process.name(),
            host: &process.host,
            rank: process.rank,
            quote: &it.quote,
            known: look_up_warning(&it.quote.text),
        })
    });
    let of_libfabric = log.case.libfabric.iter().map(|it| Unexplained {
        who: format!("process {}", it.pid),
        host: "",
        rank: None,
        quote: &it.quote,
        known: look_up_warning(&it.quote.text),
    });
    of_processes
        .chain(of_libfabric)
        .filter(|it| {
            !shown.contains(&it.quote.spot)
                && it.class() != Some(Class::Harmless)
                && !signals_in(&it.quote.text).any(|it| cause || explained.contains(it))
        })
        .collect()
}

pub(crate) fn is_cause(it: &Found) -> bool {
    it.severity() == Severity::Error
        && it.role() == Role::Cause
        && it.finding.confidence > Confidence::Possible
}

/// The names of the signals in a line that report a problem.
fn signals_in(text: &str) -> impl Iterator<Item = &'static str> {
    let found = evidence::signals::book().find(text.as_bytes());
    found.into_iter().map(|it| it.signal).filter(|it| it.kind != Kind::Notes).map(|it| it.name)
}

/// One finding for each message that the catalogue knows, causes first.
pub(crate) fn check_last(log: &Log, findings: &[Found]) -> Vec<Finding> {
    let mut all: Vec<Unexplained<'_>> =
        unexplained(log, findings).into_iter().filter(|it| it.known.is_some()).collect();
    all.sort_by_key(|it| (it.class() == Some(Class::Consequence), it.quote.spot));
    let explained = findings.iter().any(is_cause);
    let mut kinds: Vec<(String, Finding)> = Vec::new();
    for it in &all {
        let Some(known) = &it.known else { continue };
        let key = match (&known.reading, &known.found) {
            (Some(reading), _) => format!("{} {:?}", reading.family.id, reading.value.map(|it| it.code)),
            (None, Some(found)) => found.entry.text.to_owned(),
            (None, None) => continue,
        };
        if let Some((_, finding)) = kinds.iter_mut().find(|kind| kind.0 == key) {
            *finding = finding.clone().seen(it.quote);
        } else if kinds.len() < MOST {
            kinds.push((key, finding(log, it, known, explained)));
        }
    }
    kinds.into_iter().map(|it| it.1).collect()
}

fn finding(log: &Log, it: &Unexplained<'_>, known: &Known<'_>, explained: bool) -> Finding {
    let class = it.class();
    let part = known.component.map(|it| format!(", {it}")).unwrap_or_default();
    let message = format!("{} printed `{}`{part}", it.who, shorten(it.text()));
    let consequence = class == Some(Class::Consequence);
    let survived = !log.job.outcome.state.is_bad();
    let severity = match (consequence && explained, survived) {
        (true, _) => Severity::Info,
        (_, true) => Severity::Warning,
        _ => Severity::Error,
    };
    let sure = known.reading.is_some_and(|it| {
        it.variant.is_some() || it.family.causes.iter().any(|it| it.confidence == family::Confidence::Certain)
    });
    // What NCCL says of its arguments is so.
    let sure = sure || class == Some(Class::Usage);
    let confidence = if sure { Confidence::Likely } else { Confidence::Possible };
    let mut finding = Finding::new(confidence, message).severity(severity).seen(it.quote);
    finding.role = Some(if consequence || class.is_none() { Role::Consequence } else { Role::Cause });
    if let Some(reading) = &known.reading {
        finding.why = Some(why(reading));
        finding.fix = Some(reading.remedy().to_owned());
    } else if let Some(found) = &known.found {
        let entry = found.entry;
        let result = match entry.outcome {
            Outcome::Returns(code) => {
                messages::values::find(messages::values::Table::NcclResult, i64::from(code))
                    .map(|it| format!(" and returns {}", it.name))
                    .unwrap_or_default()
            }
            Outcome::Fails => " and fails".to_owned(),
            Outcome::Continues => String::new(),
        };
        finding.why = Some(format!(
            "{} prints this in {}, {}{result}. Its meaning is not described further; the text is the fact.",
            entry.product.name(),
            entry.file,
            entry.function
        ));
    }
    if !it.host.is_empty() {
        finding = finding.about_host(it.host);
    }
    it.rank.map(|rank| finding.clone().about_rank(rank)).unwrap_or(finding)
}

/// What the message means, what its value means, and why it happens.
fn why(reading: &Reading) -> String {
    let mut parts = vec![reading.meaning().to_owned()];
    if reading.variant.is_none()
        && let Some(value) = reading.value
    {
        parts.push(format!("{}: {}", value.name, value.meaning));
    }
    let causes: Vec<&str> = reading.family.causes.iter().map(|it| &*it.text).collect();
    if reading.variant.is_none() && !causes.is_empty() {
        parts.push(format!("Usual causes: {}.", causes.join("; ").trim_end_matches('.')));
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use crate::testing::read;
    use crate::{Level, Role, diagnose};

    #[test]
    fn a_message_without_a_rule_is_answered_from_the_catalogue() {
        let log = "n:1:2 [0] proxy.cc:1 NCCL WARN [Service thread] Could not receive type from localRank 3, res=6, closed=1\n";
        let diagnosis = diagnose(&read(log));
        assert_eq!(diagnosis.verdict.level, Level::Error);
        assert_eq!(diagnosis.findings[0].rule.id, "nccl-message");
    }

    #[test]
    fn a_consequence_never_stands_before_its_cause() {
        let log = "n:1:2 [0] proxy.cc:1 NCCL WARN [Service thread] Could not receive type from localRank 3, res=6, closed=1\n\
                   n:1:2 [0] init.cc:1 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
        let diagnosis = diagnose(&read(log));
        assert_eq!(diagnosis.findings[0].rule.id, "duplicate-gpu");
        assert!(diagnosis.findings.iter().skip(1).all(|it| it.role() == Role::Consequence));
    }

    #[test]
    fn a_harmless_warning_is_quiet() {
        let log = "n:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n";
        assert!(diagnose(&read(log)).findings.is_empty());
    }
}
