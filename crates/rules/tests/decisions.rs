//! `plumb topo --check` over every recording of what NCCL decided: all communicators of all of them.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use job::Job;
use rules::Log;
use rules::decisions::{Given, Logs};

/// What was found in one recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Equal,
    Different,
    Undecided,
}

/// The recordings: each a file, or a folder with one file for each rank.
fn recordings() -> Vec<Vec<PathBuf>> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut all = Vec::new();
    for folder in sorted(&cases).into_iter().filter(|it| it.is_dir()) {
        let is_oracle = folder.file_name().is_some_and(|it| it.to_string_lossy().starts_with("oracle-"));
        let mut files = Vec::new();
        under(&folder, &mut files);
        files.retain(|it| {
            !it.extension().is_some_and(|it| ["md", "json", "xml", "txt"].iter().any(|ext| it == *ext))
        });
        if is_oracle {
            all.extend(files.into_iter().map(|it| vec![it]));
        } else if !files.is_empty() {
            all.push(files);
        }
    }
    let only = std::env::var("PLUMB_ONLY").unwrap_or_default();
    all.retain(|it| only.split(',').any(|only| name(&it[0]).contains(only)));
    all
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|it| it.expect("a file").path()).collect();
    all.sort();
    all
}

fn under(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in sorted(folder) {
        if path.is_dir() {
            under(&path, files);
        } else {
            files.push(path);
        }
    }
}

fn contents(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("a file");
    if path.extension().is_some_and(|it| it == "gz") {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut text).expect("a packed file");
        return text;
    }
    bytes
}

/// The verdict of every communicator of a recording, and what there is to say about it.
fn check(files: &[PathBuf]) -> Vec<(Verdict, String)> {
    let texts: Vec<(String, Vec<u8>)> =
        files.iter().map(|it| (it.display().to_string(), contents(it))).collect();
    let case = evidence::read_texts(texts.iter().map(|it| (it.0.as_str(), it.1.as_slice())));
    let job = Job::of_case(&case);
    let logs = Logs::new(&texts, &job);
    let checked = logs.check(&Given::default());
    let verdict = |it: &rules::decisions::CheckedCommunicator| match &it.compared {
        Some(compared) if compared.different() > 0 => {
            (Verdict::Different, format!("{:?}", compared.differences.first()))
        }
        Some(compared) if compared.compared() > 0 => (Verdict::Equal, String::new()),
        _ => (Verdict::Undecided, it.missing.join("; ")),
    };
    checked.iter().map(verdict).collect()
}

/// Which of the recordings are looked at: `PLUMB_EVERY=1` for all of them, which takes minutes; `PLUMB_ONLY` has parts of the names to
/// keep.
fn every() -> usize {
    std::env::var("PLUMB_EVERY").ok().and_then(|it| it.parse().ok()).filter(|it| *it > 0).unwrap_or(8)
}

/// Nothing differs, and what cannot be compared says why.
#[test]
fn every_recording_is_as_predicted() {
    let every = every();
    let recordings: Vec<Vec<PathBuf>> = recordings().into_iter().step_by(every).collect();
    let next = AtomicUsize::new(0);
    let found: Mutex<BTreeMap<String, Vec<(Verdict, String)>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(files) = recordings.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdicts = check(files);
                    found.lock().unwrap().insert(name(&files[0]), verdicts);
                }
            });
        }
    });
    let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (name, verdicts) in &found.into_inner().unwrap() {
        for (verdict, said) in verdicts {
            *counts.entry(*verdict).or_default() += 1;
            if *verdict == Verdict::Undecided {
                println!("{name}: not enough in the log: {said}");
            }
            // Logs without the system.
            let known = ["the machine (`=== System`"];
            if *verdict == Verdict::Different
                || (*verdict == Verdict::Undecided && !known.iter().any(|it| said.starts_with(it)))
            {
                wrong.push(format!("{verdict:?} {name}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{counts:?}\n{}", wrong.join("\n"));
    let all = std::env::var_os("PLUMB_ONLY").is_none();
    assert!(!all || counts[&Verdict::Equal] * every >= 440, "{counts:?}");
    println!("{counts:?}");
}

/// `oracle-p5/2x8.log.gz`
fn name(path: &Path) -> String {
    path.to_string_lossy().rsplit("cases/").next().unwrap_or_default().to_owned()
}

/// What rules say about the decisions of a recording.
#[test]
fn rules_name_what_makes_a_decision_worse() {
    let rules = ["fewer-channels", "ll128-unused", "nic-without-ring", "search-degraded"];
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    for (recording, want, said) in [
        ("oracle-hgxnarrow/2.28.9/2x8.log.gz", "nic-without-ring", "GPU 3"),
        ("oracle-hgxunlinked/2.28.9/1x8.log.gz", "search-degraded", "GPU 5 has 6 NVLinks, the others 18"),
        ("oracle-hgxh100/2.28.9/2x8-max-channels-4.log.gz", "fewer-channels", "NCCL_MAX_NCHANNELS=4"),
        ("oracle-hgxh100/2.28.9/2x8-proto-simple.log.gz", "ll128-unused", "NCCL_PROTO=Simple"),
        ("oracle-hgxh100/2.28.9/2x8.log.gz", "", ""),
        ("oracle-hgxh100/2.18.6/2x8-cross-nic-0.log.gz", "", ""),
        ("oracle-p5/2x8.log.gz", "", ""),
        ("oracle-p4d/1x4.log.gz", "", ""),
        ("oracle-uneven/2.28.9/2x7-connected.log.gz", "", ""),
        ("graph-tuning/job.log", "", ""),
    ] {
        let text = contents(&cases.join(recording));
        let case = evidence::read_texts([(recording, text.as_slice())]);
        let log = Log::new(case).with_setups(vec![(recording.to_owned(), text)]);
        let diagnosis = rules::diagnose(&log);
        let found: Vec<_> = diagnosis.findings.iter().filter(|it| rules.contains(&it.rule.id)).collect();
        let ids: Vec<&str> = found.iter().map(|it| it.rule.id).collect();
        assert_eq!(ids.join(" "), want, "{recording}");
        let message = found.first().map_or("", |it| &it.finding.message);
        assert!(message.contains(said), "{recording}: {message}");
        assert!(
            !diagnosis.unchecked.iter().any(|it| rules.contains(&it.rule.id)),
            "{recording} is not checked"
        );
    }
}
