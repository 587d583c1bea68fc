//! Secrets are in no answer, whether or not names are replaced.

use evidence::submission::Submission;
use report::lint::Lint;
use report::{Excerpt, Redactor, Style, mask};
use rules::lint::Given;

use crate::{finding, read, written};

/// The lines as an answer without `--redact` shows them.
fn masked(lines: &[&str]) -> Vec<String> {
    let mut doctor = read(&[]);
    doctor.findings.push(finding("message", lines));
    mask(&mut doctor);
    doctor.findings[0].evidence.iter().map(|it| it.text.clone()).collect()
}

#[test]
fn secrets_are_replaced_and_names_stay() {
    for (line, want) in [
        (
            "node-1:7:8 [0] NCCL INFO HF_TOKEN=correct-horse at 10.0.0.7",
            "node-1:7:8 [0] NCCL INFO HF_TOKEN=secret-1 at 10.0.0.7",
        ),
        ("/home/alice/x.py: token hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456", "/home/alice/x.py: token secret-1"),
        ("git clone https://me:hunter2@git.example/x.git", "git clone https://secret-1@git.example/x.git"),
        (
            "env: [{name: DB_PASSWORD, value: abc}, {name: A, value: b}]",
            "env: [{name: DB_PASSWORD, value: secret-1}, {name: A, value: b}]",
        ),
        (
            "{\"name\": \"WANDB_API_KEY\", \"value\": \"ab c\"}",
            "{\"name\": \"WANDB_API_KEY\", \"value\": \"secret-1\"}",
        ),
        ("  AWS_SECRET_ACCESS_KEY: swordfish", "  AWS_SECRET_ACCESS_KEY: secret-1"),
        ("- password: swordfish", "- password: secret-1"),
        ("401 for me, password: swordfish", "401 for me, password: secret-1"),
        ("ENV HF_TOKEN swordfish", "ENV HF_TOKEN secret-1"),
        ("curl -H 'Authorization: Bearer abcDEF123.x-y'", "curl -H 'Authorization: Bearer secret-1'"),
        ("key: -----BEGIN RSA PRIVATE KEY-----\\nMIIE\\n-----END RSA PRIVATE KEY----- x", "key: secret-1 x"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "secret-1"),
    ] {
        assert_eq!(masked(&[line]), [want]);
    }
    // Who and where is kept without --redact.
    for line in [
        "USER=dave someone@example.org 123456789012.dkr.ecr.us-west-2.amazonaws.com/x ssh://git@github.com",
        "http://10.0.0.1:8080/x?token=$HF_TOKEN https://${USER}:${PASSWORD}@git.example",
        "Invalid token: expected a string; tokens per second: 2839; max_tokens=512",
        "login failed, password: incorrect",
        "secretKeyRef: {name: hf, key: token}",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ] {
        assert_eq!(masked(&[line]), [line]);
    }
    // A secret is known everywhere, also where a text was cut inside it.
    assert_eq!(
        masked(&["HF_TOKEN=correct-horse-battery", "value: correct-horse-battery", "value: correct-hor"]),
        ["HF_TOKEN=secret-1", "value: secret-1", "value: secret-1"]
    );
}

#[test]
fn lines_around_evidence_are_masked() {
    let mut doctor = read(&[]);
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let lines = ["export HF_TOKEN=hunter2x", body, "step 1"].map(str::to_owned).to_vec();
    doctor.excerpts.push(Excerpt { file: "job.log".to_owned(), first: 1, lines });
    mask(&mut doctor);
    assert_eq!(doctor.excerpts[0].lines, ["export HF_TOKEN=secret-1", "secret-2", "step 1"]);
    assert!(!written(&doctor).contains("hunter2x"));
}

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  containers:
  - name: a
    image: b
    env: [{name: HF_TOKEN, value: swordfish}, {name: NCCL_DEBUG, value: INFOO}, {name: MASTER_ADDR, value: 10.1.2.3}]
    resources: {limits: {nvidia.com/gpu: 8}}
    command: [torchrun, --nproc_per_node=8, /home/alice/train.py, --key, swordfish]
";

/// All formats of the answer, and the columns of the finding about the level.
fn linted(names: Redactor) -> (String, Vec<(u64, u64)>) {
    let files = [Submission::read("pod.yaml", POD).unwrap()];
    let found = rules::lint::lint(&files, &Given::default());
    let mut lint = Lint::new(&files, &[], &found);
    names.of_files(&files).lint(&mut lint);
    let mut out = Vec::new();
    lint.json(&mut out).unwrap();
    report::lint::sarif(&lint, &mut out).unwrap();
    report::lint::text(&lint, Style::default(), &mut out).unwrap();
    report::html::write(&lint, &mut out).unwrap();
    let level = lint.findings.iter().filter(|it| it.message.contains("NCCL_DEBUG"));
    let marked = level.flat_map(|it| &it.evidence).map(|it| {
        let span = it.span.as_ref().unwrap();
        let at = it.text.find("INFOO").unwrap_or_else(|| panic!("{}", it.text)) as u64 + 1;
        (span.column, at)
    });
    (String::from_utf8(out).unwrap(), marked.collect())
}

#[test]
fn lint_shows_no_secret_and_marks_the_right_columns() {
    let (text, marked) = linted(Redactor::secrets());
    assert!(!text.contains("swordfish") && text.contains("value: secret-1*"), "{text}");
    assert!(text.contains("10.1.2.3"), "{text}");
    assert!(!marked.is_empty() && marked.iter().all(|it| it.0 == it.1), "{marked:?}");
    // The columns of the file itself.
    let line = POD.lines().nth(7).unwrap();
    assert_eq!(marked[0].0, line.find("INFOO").unwrap() as u64 + 1);
}

#[test]
fn lint_redacts_names_and_marks_what_it_shows() {
    let (text, marked) = linted(Redactor::all());
    for name in ["swordfish", "10.1.2.3", "alice", "pod.yaml"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
    assert!(text.contains("input-1.yaml"), "{text}");
    assert!(!marked.is_empty() && marked.iter().all(|it| it.0 == it.1), "{marked:?}");
}
