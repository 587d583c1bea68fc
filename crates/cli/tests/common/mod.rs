//! Runs `plumb` as a person would: from the root of the repository, with nothing in the environment.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// The answer of `plumb doctor --format json`.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON: {error}\n{self:?}"))
    }
}

/// `plumb` with these arguments, not started yet.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = testbed::program(env!("CARGO_BIN_EXE_plumb"));
    command.args(arguments).current_dir(root()).env_clear().env("COLUMNS", "100");
    // Where coverage is measured, the child must know where to write it.
    if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
        command.env("LLVM_PROFILE_FILE", profile);
    }
    command
}

/// Runs `plumb` with these arguments. A panic is never an answer.
#[track_caller]
pub(crate) fn plumb<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Answer {
    finish(command(arguments))
}

#[track_caller]
pub(crate) fn finish(mut command: Command) -> Answer {
    let output = testbed::output(&mut command);
    let answer = Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
    };
    assert!(!answer.stderr.contains("panicked"), "{command:?}: {}", answer.stderr);
    answer
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all recordings of jobs, sorted. A folder `oracle-` holds several jobs on one described machine:
/// what `plumb topo` says of those is compared elsewhere.
pub(crate) fn recordings() -> Vec<String> {
    let job = |it: &Path| {
        it.is_dir() && !it.file_name().is_some_and(|it| it.to_string_lossy().starts_with("oracle-"))
    };
    let names = list(&root().join("cases"), job);
    assert!(names.len() > 60, "the recordings stand under cases/: {}", names.len());
    names
}

/// The files of a recording as relative paths, sorted, but for its description:
/// that one quotes what should be found.
pub(crate) fn files(recording: &str) -> Vec<String> {
    let names = list(&root().join("cases").join(recording), |it| !it.ends_with("README.md"));
    assert!(!names.is_empty(), "cases/{recording} is empty");
    names.into_iter().map(|it| format!("cases/{recording}/{it}")).collect()
}

fn list(folder: &Path, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|it| it.expect("an entry of a folder").path()).filter(|it| wanted(it));
    let mut names: Vec<String> = paths.filter_map(|it| Some(it.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

/// A fresh folder for one test.
pub(crate) fn folder(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder can be made");
    path
}

/// Checks an answer in JSON with a schema of `docs/`: nothing but what is described, and all of it.
#[track_caller]
pub(crate) fn check_schema(name: &str, answer: &serde_json::Value) {
    let text = fs::read_to_string(root().join("docs").join(name)).expect("a schema");
    let mut schema: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    close(&mut schema);
    if let Some(definitions) = schema.get_mut("$defs").and_then(serde_json::Value::as_object_mut) {
        definitions.values_mut().for_each(close);
    }
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors = validator.iter_errors(answer).take(5);
    let errors: Vec<String> = errors.map(|it| format!("{}: {it}", it.instance_path())).collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

fn close(schema: &mut serde_json::Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let names = properties.len();
    assert_eq!(schema["required"].as_array().map(Vec::len), Some(names), "all fields are promised");
    schema["additionalProperties"] = serde_json::Value::from(false);
}

/// A tar archive of one file.
pub(crate) fn tar(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", bytes.len()).as_bytes());
    header[148..156].fill(b' ');
    header[156] = b'0';
    let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header.extend_from_slice(bytes);
    header.resize(header.len().next_multiple_of(512) + 1024, 0);
    header
}
