//! Every message of every release, printed as that release prints it and read like a log.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use fabric::Version;
use messages::family::Class;
use messages::{Entry, Hint, Level, Product};
use rules::{Confidence, Log, Role, Severity};

/// The line that a release prints for an entry.
fn line(entry: &Entry, release: Version) -> String {
    let text = entry.example();
    let (file, function) = (location(entry), entry.function);
    match (entry.product, entry.level) {
        (Product::LibfabricEfa, level) => {
            let level = if level == Level::Warn { "warn" } else { "info" };
            let subsystem = entry.subsystem.to_ascii_lowercase();
            format!("libfabric:100:1700000000::efa:{subsystem}:{function}():42<{level}> {text}")
        }
        (_, Level::Info) => format!("node-1:100:101 [0] NCCL INFO {text}"),
        (Product::AwsOfiNccl, Level::Warn) => format!("node-1:100:101 [0] {function}:42 NCCL WARN {text}"),
        (Product::Nccl, Level::Warn) if release >= Version::new(2, 30, 7) => {
            format!("node-1:100:101 [0] {file}:42 ({function}) NCCL WARN {text}")
        }
        (Product::Nccl, Level::Warn) => format!("node-1:100:101 [0] {file}:42 NCCL WARN {text}"),
    }
}

/// The file in the prefix; macros are used by many.
fn location(entry: &Entry) -> &str {
    if entry.file.is_empty() { "misc/socket.cc" } else { entry.file }
}

fn is_default(entry: &Entry) -> bool {
    entry.subsystem.split('|').any(|it| matches!(it, "INIT" | "ENV" | "BOOTSTRAP" | "ALL"))
}

/// Reads lines one by one; many are the same in several releases.
#[derive(Default)]
struct Understood(HashMap<String, bool>);

impl Understood {
    fn has(&mut self, line: String) -> bool {
        *self.0.entry(line).or_insert_with_key(|line| {
            evidence::read_texts([("log", line.as_bytes())]).sources.tally().understood() == 1
        })
    }

    /// How many of the entries are understood, and how many there are.
    fn share(&mut self, entries: impl Iterator<Item = &'static Entry>, release: Version) -> (usize, usize) {
        let mut share = (0, 0);
        for entry in entries {
            share.0 += usize::from(self.has(line(entry, release)));
            share.1 += 1;
        }
        share
    }
}

#[test]
fn lines_of_every_release_are_understood() {
    let mut understood = Understood::default();
    let mut table =
        String::from("| product | release | WARN | INFO by default |\n| --- | --- | --- | --- |\n");
    for product in Product::ALL {
        for release in product.releases() {
            let of =
                |level| product.entries().iter().filter(move |it| it.level == level && it.is_in(release));
            let warnings = understood.share(of(Level::Warn), release);
            let ordinary = understood.share(of(Level::Info).filter(|it| is_default(it)), release);
            let name = product.name();
            assert!(warnings.0 * 100 >= warnings.1 * 98, "{name} {release}: {warnings:?} warnings");
            assert!(ordinary.0 * 100 >= ordinary.1 * 95, "{name} {release}: {ordinary:?} ordinary lines");
            let shown =
                |(of, all): (usize, usize)| if all == 0 { String::new() } else { format!("{of} of {all}") };
            writeln!(table, "| {name} | {release} | {} | {} |", shown(warnings), shown(ordinary)).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/messages.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- figures -->\n").expect("the mark of the figures");
    let (_, after) = rest.split_once("<!-- end -->").expect("the end of the figures");
    let new = format!("{before}<!-- figures -->\n{table}<!-- end -->{after}");
    if std::env::var_os("PLUMB_UPDATE_DOCS").is_some_and(|it| !it.is_empty()) {
        std::fs::write(&path, new).unwrap();
    } else {
        assert!(
            new == page,
            "docs/messages.md is old: PLUMB_UPDATE_DOCS=1 cargo test -p rules --test messages"
        );
    }
}

#[test]
fn a_family_has_all_its_wordings() {
    for entry in messages::all() {
        let Some(family) = entry.family() else { continue };
        let text = entry.example();
        let place = if entry.product == Product::Nccl { location(entry) } else { entry.function };
        let place = format!("{place}:42");
        let hint =
            Hint { product: Some(entry.product), level: Some(entry.level), location: place.as_bytes() };
        let known = messages::look_up(text.as_bytes(), hint);
        let found = known.and_then(|it| it.reading).map(|it| &it.family.id);
        assert_eq!(found, Some(&family.id), "{text}");
    }
}

/// Consequences that have one usual cause, which this rule names.
const STAND_FOR_A_CAUSE: &[&str] = &["efa-provider-not-found"];

/// Every warning alone: whether the answer says something, and whether it blames a line that is no cause.
#[test]
fn no_warning_is_silent_and_no_consequence_is_blamed() {
    let (mut silent, mut mild, mut blamed) = (Vec::new(), Vec::new(), Vec::new());
    for entry in messages::all().filter(|it| it.level == Level::Warn) {
        let line = line(entry, entry.last);
        let log = Log::new(evidence::read_texts([("log", line.as_bytes())]));
        let diagnosis = rules::diagnose(&log);
        // The example's value may have a class of its own.
        let class = evidence::catalogue::class_of(&line);
        let accused = diagnosis.findings.iter().find(|it| {
            it.rule.role.of_finding() == Role::Cause
                && !STAND_FOR_A_CAUSE.contains(&it.rule.id)
                && it.severity() == Severity::Error
                && it.finding.confidence > Confidence::Possible
        });
        if let Some(found) = accused
            && matches!(class, Some(Class::Consequence | Class::Harmless))
        {
            blamed.push(format!("{}: {line}", found.rule.id));
        }
        match diagnosis.findings.iter().map(rules::Found::severity).max() {
            _ if class == Some(Class::Harmless) => {}
            None => silent.push(line),
            Some(Severity::Info) => mild.push(line),
            Some(_) => {}
        }
    }
    assert!(silent.is_empty(), "{} without a finding: {silent:#?}", silent.len());
    assert!(mild.is_empty(), "{} with a note only: {mild:#?}", mild.len());
    assert!(blamed.is_empty(), "{} blamed: {blamed:#?}", blamed.len());
}
