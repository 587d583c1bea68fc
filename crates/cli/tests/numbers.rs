//! Numbers that cannot be: a damaged line, another release, someone's joke. No sum may overflow, no list may
//! become as long as a number says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use proptest::prelude::*;
use proptest::sample::Index;

/// All texts of all recordings, sorted by name, and every line that plumb looks for.
fn texts() -> &'static [String] {
    static ALL: OnceLock<Vec<String>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut paths = Vec::new();
        list(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases"), &mut paths);
        paths.sort();
        assert!(paths.len() > 60, "the recordings stand under cases/: {}", paths.len());
        let read = |it: &PathBuf| String::from_utf8_lossy(&fs::read(it).expect("a recording")).into_owned();
        let mut all: Vec<String> = paths.iter().map(read).collect();
        for family in evidence::signals::FAMILIES {
            let lines = family.iter().flat_map(|it| it.texts()).map(|it| format!("{}\n", filled(it)));
            all.push(lines.collect());
        }
        all
    })
}

fn list(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the recordings are there") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            list(&path, all);
        } else if !path.ends_with("README.md") && path.extension().is_none_or(|it| it != "py" && it != "gz") {
            all.push(path);
        }
    }
}

/// A template with a number in the place of every name.
fn filled(template: &str) -> String {
    let parts = template.split('{').enumerate();
    parts
        .map(
            |(i, it)| {
                if i == 0 { it.to_owned() } else { format!("7{}", it.split_once('}').map_or("", |it| it.1)) }
            },
        )
        .collect()
}

/// Not 4294967295: where a list does become as long as a number says, the machine should survive it as well.
const EXTREMES: [&str; 10] = [
    "0",
    "-1",
    "1",
    "65535",
    "1048575",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999",
    "0.0000000001e999",
];

/// Puts `number` in the place of the `nth` number of a line.
fn replaced(line: &str, nth: usize, number: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    let mut seen = 0;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let length = rest[start..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - start);
        out.push_str(&rest[..start]);
        out.push_str(if seen == nth { number } else { &rest[start..start + length] });
        rest = &rest[start + length..];
        seen += 1;
    }
    out + rest
}

/// Reads, judges and writes.
fn run(text: &str) {
    let log = rules::Log::new(evidence::read_texts([("job.log", text.as_bytes())]));
    let doctor = report::Doctor::new(&log, &rules::diagnose(&log), report::Options { matrix: true });
    let style = report::Style { colour: false, width: 100, verbose: true };
    let mut out = Vec::new();
    report::text(&doctor, style, &mut out).expect("memory takes all");
    report::json(&doctor, &mut out).expect("memory takes all");
    report::sarif(&doctor, &mut out).expect("memory takes all");
    report::junit(&doctor, Some(rules::Severity::Error), &mut out).expect("memory takes all");
    assert!(out.len() < 20_000_000, "an answer of {} bytes", out.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn are_survived(
        text in any::<Index>(),
        // Which number of a line becomes which, for lines in turn.
        changes in prop::collection::vec(prop::option::of((0..16_usize, prop::sample::select(&EXTREMES[..]))), 1..12),
    ) {
        let lines = text.get(texts()).lines().zip(changes.iter().cycle());
        let change = |(line, change): (&str, &Option<(usize, &str)>)| match change {
            Some((nth, number)) => replaced(line, *nth, number),
            None => line.to_owned(),
        };
        run(&lines.map(|it| change(it) + "\n").collect::<String>());
    }
}

/// The same number everywhere at one place: what lines say to each other fits together then.
#[test]
fn are_survived_together() {
    for (number, nth) in EXTREMES.iter().zip((3..9).cycle()) {
        for text in texts().iter().step_by(3) {
            run(&text.lines().map(|it| replaced(it, nth, number) + "\n").collect::<String>());
        }
    }
}
