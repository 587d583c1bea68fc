//! Whole answers: nothing survives in any field, and the words of plumb stay.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use evidence::read_texts;
use report::{
    Doctor, Entity, Event, Excerpt, FirstFailure, Input, Moment, NodePair, Options, Rank, Setup, Training,
    redact,
};
use rules::EntityKind;

use super::{evidence, finding, read, redacted, written};

/// An answer with something to hide in every field that can hold it.
fn full() -> Doctor {
    let log = include_str!("../../../../cases/healthy-2-nodes/job.log");
    let mut doctor = read(&[("/home/zelda/logs/rank-0.log", log), ("standard input", log)]);
    let line = "hyrule-1:1:2 [0] NCCL INFO Bootstrap : Using eth0:203.0.113.77<0> /home/zelda/job.py hf_abcDEFghiJKLmno1234";
    let quote = || evidence("/home/zelda/logs/rank-0.log", line);
    let mut it = finding(&format!("rank 0 {line}"), &[line, line]);
    it.why = format!("because {line}");
    it.fix = format!("repair {line}; write /tmp/nccl.%h.%p.log, look at 192.0.2.1");
    let entity = |kind: EntityKind, name: &str| Entity { kind, name: name.to_owned() };
    it.entities = vec![
        entity(EntityKind::Host, "hyrule-1"),
        entity(EntityKind::Host, "203.0.113.77"),
        entity(EntityKind::File, "/home/zelda/job.py"),
        entity(EntityKind::Rank, "0"),
        entity(EntityKind::Variable, "NCCL_DEBUG"),
    ];
    doctor.findings.push(it);
    line.clone_into(&mut doctor.verdict.text);
    for check in &mut doctor.checks {
        line.clone_into(&mut check.text);
        check.evidence = Some(quote());
    }
    doctor.inputs.push(Input {
        file: "/home/zelda/logs/rank-1.log".to_owned(),
        kind: evidence::Kind::Unknown,
        lines: 0,
        understood: 0,
        blank: 0,
        cut: 0,
        problem: Some("/home/zelda/logs/rank-1.log: cut".to_owned()),
    });
    doctor.excerpts.push(Excerpt {
        file: "/home/zelda/logs/rank-1.log".to_owned(),
        first: 1,
        lines: vec![line.to_owned()],
    });
    let facts = &mut doctor.facts;
    facts.job.hosts.push("hyrule-1".to_owned());
    facts.job.instance = Some(line.to_owned());
    facts.job.machine = Some(line.to_owned());
    facts.job.networks.push(line.to_owned());
    facts.job.inside.insert(line.to_owned(), 1);
    facts.stack.nccl = Some(line.to_owned());
    facts.stack.cuda_driver = Some(line.to_owned());
    facts.stack.plugin = Some(line.to_owned());
    facts.stack.libfabric = Some(line.to_owned());
    facts.first_failure = Some(FirstFailure {
        rank: Some(0),
        host: Some("hyrule-1".to_owned()),
        time: Some("12:34:56".to_owned()),
        what: line.to_owned(),
        evidence: quote(),
        certain: true,
        kind: job::FailureKind::Own,
    });
    facts.ranks.push(Rank {
        rank: 0,
        host: "hyrule-1.example.org".to_owned(),
        pid: 1,
        cuda_device: None,
        nvml_device: None,
        bus_id: Some("38000".to_owned()),
        complete: true,
        events: vec![Event {
            what: Moment::Fails,
            time: None,
            text: line.to_owned(),
            file: "rank0.log".to_owned(),
            line: 1,
        }],
    });
    facts.protocols = Some(vec![line.to_owned()]);
    facts.training = Some(Training {
        settings: [(line.to_owned(), line.to_owned())].into(),
        runtime_seconds: None,
        loss_lines: 0,
        mean_step_ms: None,
        gpu_memory_max_gb: None,
        host_memory_max_percent: None,
    });
    assert!(!facts.communicators.is_empty());
    for it in &mut facts.communicators {
        line.clone_into(&mut it.name);
        it.parent = Some(line.to_owned());
        it.network = Some(line.to_owned());
        it.paths_by_kind.insert(line.to_owned(), 1);
        it.paths_by_nodes.push(NodePair {
            from: "hyrule-1".to_owned(),
            to: line.to_owned(),
            ways: [(line.to_owned(), 1)].into(),
        });
        for edge in it.paths.iter_mut().flatten() {
            line.clone_into(&mut edge.way);
        }
        it.setups.push(Setup {
            rank: 0,
            world_rank: Some(0),
            host: "hyrule-1.example.org".to_owned(),
            seconds: Some(9.0),
            kernels_seconds: Some(1.0),
            waited_seconds: 8.0,
            file: "rank-0.log".to_owned(),
            line: 1,
        });
    }
    doctor
}

#[test]
fn nothing_survives_in_any_field() {
    let mut doctor = full();
    // A ticket hides names although its page shows them.
    let ticket = report::html::ticket(&doctor);
    redact(&mut doctor);
    let mut page = Vec::new();
    report::html::write(&doctor, &mut page).unwrap();
    for text in [written(&doctor), String::from_utf8(page).unwrap(), ticket] {
        for original in
            ["hyrule", "zelda", "203.0.113.77", "hf_abc", "job.py", "rank-0.log", "rank-1.log", "gpu-0"]
        {
            let place =
                text.find(original).map(|at| text.get(at.saturating_sub(200)..(at + 100).min(text.len())));
            assert_eq!(place, None, "{original} survived");
        }
    }
    assert_eq!(doctor.inputs[0].file, "input-1.log");
    assert_eq!(doctor.inputs[1].file, "standard input");
    assert_eq!(doctor.inputs[2].problem.as_deref(), Some("input-2.log: cut"));
}

#[test]
fn the_words_of_plumb_stay() {
    let mut doctor = full();
    let before = doctor.clone();
    redact(&mut doctor);
    let (old, new) = (before.findings.last().unwrap(), doctor.findings.last().unwrap());
    assert_eq!(
        (&old.id, &old.severity, &old.confidence, &old.title),
        (&new.id, &new.severity, &new.confidence, &new.title)
    );
    assert_eq!(old.references, new.references);
    assert!(new.fix.ends_with("; write /tmp/nccl.%h.%p.log, look at 192.0.2.1"), "{}", new.fix);
    assert_eq!(new.entities[3].name, "0");
    assert_eq!(new.entities[4].name, "NCCL_DEBUG");
    assert_eq!(doctor.not_checked, before.not_checked);
    assert_eq!(doctor.schema, before.schema);
    assert_eq!(doctor.facts.ranks.last().unwrap().bus_id.as_deref(), Some("38000"));
    assert_eq!(doctor.facts.first_failure.unwrap().time.as_deref(), Some("12:34:56"));
}

#[test]
fn the_texts_of_rules_stay() {
    let log = "n-1:1:2 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n";
    let mut doctor = read(&[("job.log", log)]);
    let before = doctor.clone();
    redact(&mut doctor);
    assert_eq!(doctor.findings[0].fix, before.findings[0].fix);
    assert_eq!(doctor.findings[0].message, before.findings[0].message);
    assert_eq!(doctor.findings[0].evidence[0].file, "input-1.log");
    // What was not checked tells what is needed, in plumb's words.
    let needs = |it: &Doctor| {
        it.checks
            .iter()
            .filter(|it| it.state == rules::State::NotChecked)
            .map(|it| it.text.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(needs(&doctor), needs(&before));
}

#[test]
fn the_same_input_gives_the_same_output() {
    let (mut a, mut b) = (full(), full());
    redact(&mut a);
    redact(&mut b);
    assert_eq!(written(&a), written(&b));
}

/// Pieces of everything that is looked for, put together at random.
#[test]
fn any_text_is_survived() {
    let pieces = [
        "password",
        "=",
        ":",
        "\"",
        "'",
        " ",
        "/",
        "//",
        "://",
        "~",
        "é",
        "日本",
        "\u{1b}[36m",
        "m",
        "::",
        "fe80",
        "10.0.0.1",
        ".",
        "-",
        "_",
        "@",
        "host ",
        "<",
        "0",
        ">",
        "[",
        "]",
        "tcp",
        "s3",
        "/home/alice",
        "node-1",
        ":1:2 [0] NCCL INFO ",
        "eyJabc",
        "hf_",
        "AKIA",
        "%",
        "\\",
        "Bearer ",
        "token",
        "--",
        "nodelist",
        "\u{a0}",
        "ffff",
        "0000:31:00.0",
        "x.log",
        ",",
        "(",
        ")",
        "ip-10-0-0-1",
    ];
    let mut state: u64 = 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..40 {
        let mut line = || (0..next() % 14).map(|_| pieces[next() % pieces.len()]).collect::<String>();
        let lines: Vec<String> =
            (0..100).map(|_| line()).chain(["node-1:1:2 [0] NCCL INFO x".to_owned()]).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let after = redacted(&lines);
        for (line, after) in lines.iter().zip(&after) {
            assert!(!after.contains("alice"), "{line:?} -> {after:?}");
        }
        assert_eq!(after, redacted(&lines));
    }
}

fn case_files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut files: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .filter_map(|it| fs::read_dir(it.unwrap().path()).ok())
        .flatten()
        .map(|it| it.unwrap().path())
        .filter(|it| it.is_file() && it.file_name().is_some_and(|it| it != "README.md"))
        .collect();
    files.sort();
    files
}

/// Every recorded case, whole.
#[test]
fn nothing_survives_in_the_recorded_cases() {
    let files = case_files();
    assert!(files.len() > 50, "{} files", files.len());
    for file in files {
        let (name, bytes) = (file.display().to_string(), fs::read(&file).unwrap());
        let log = rules::Log::new(read_texts([(name.as_str(), bytes.as_slice())]));
        let mut doctor = Doctor::new(&log, &rules::diagnose(&log), Options { matrix: true });
        let (before, hosts) = (written(&doctor), doctor.facts.job.hosts.clone());
        redact(&mut doctor);
        let after = written(&doctor);
        assert!(!after.contains(env!("CARGO_MANIFEST_DIR")) && !after.contains("cases/"), "{name}");
        for host in hosts {
            // A machine called `vm` does not survive in `nvmlDev` and `vm-no-topology`.
            let is_word = |at: usize| {
                let ends = [after[..at].chars().next_back(), after[at + host.len()..].chars().next()];
                !ends.into_iter().flatten().any(|it| it.is_alphanumeric() || it == '-')
            };
            let survives = after.match_indices(&host).any(|(at, _)| is_word(at));
            assert!(!survives, "{host} survives in {name}");
        }
        let numbers = before
            .split(|it: char| !it.is_ascii_digit() && it != '.')
            .filter_map(|it| it.parse::<Ipv4Addr>().ok());
        for address in numbers.filter(|it| !it.is_loopback() && !it.is_unspecified()) {
            assert!(!after.contains(&address.to_string()), "{address} survives in {name}");
        }
        for home in ["/tmp/job", "/opt/torch"] {
            assert!(!after.contains(home), "{home} survives in {name}");
        }
    }
}
