//! What the tests of real launchers stand on: our examples, Debian's packages, waiting.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod port;
pub(crate) mod slurm;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// The path of one of our examples, built.
pub(crate) fn example(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "launch", "--examples"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo");
        assert!(status.success(), "the examples do not build");
        let test = std::env::current_exe().expect("a path");
        test.ancestors().nth(2).expect("a target folder").join("examples")
    });
    folder.join(name)
}

/// Installs Debian packages unless `program` is here. One at a time, as apt wants it.
pub(crate) fn need(program: &str, packages: &[&str]) {
    let there = || {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|it| it.join(program).exists())
    };
    let there = || there() || Path::new("/usr/sbin").join(program).exists();
    if there() {
        return;
    }
    let lock = File::create(std::env::temp_dir().join("plumb-apt.lock")).expect("a lock file");
    lock.lock().expect("a lock");
    if there() {
        return;
    }
    let install = || {
        let mut command = Command::new("apt-get");
        command.args(["install", "--yes", "--no-install-recommends"]).args(packages);
        command.env("DEBIAN_FRONTEND", "noninteractive").output().expect("apt-get")
    };
    if !install().status.success() {
        Command::new("apt-get").arg("update").output().expect("apt-get");
        let output = install();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(there(), "{packages:?} have no {program}");
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A folder of this test alone, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plumb-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that ends with the test.
pub(crate) struct Daemon(pub(crate) Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command without the variables of a launcher that this test may run in.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    static OUTER: LazyLock<Vec<String>> = LazyLock::new(|| {
        let prefixes =
            ["PLUMB_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "PET_", "MASTER_", "TORCHELASTIC_", "JOB_"];
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|name| prefixes.iter().any(|it| name.starts_with(it)) || name == "RANK").collect()
    });
    // Whoever started the tests may ignore signals, as nohup does; what is tested does not.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM,TSTP").arg(program);
    OUTER.iter().for_each(|it| {
        command.env_remove(it);
    });
    command
}

/// The lines of all ranks of `whoami` are there, and all have the same token.
#[track_caller]
pub(crate) fn check_lines(output: &[u8], ranks: usize, launcher: &str, meeting: &str) {
    let text = String::from_utf8_lossy(output);
    let mut lines: Vec<_> = text.lines().filter(|it| it.starts_with("rank ")).collect();
    lines.sort_by_key(|it| it.split(' ').nth(1).and_then(|it| it.parse::<usize>().ok()));
    assert_eq!(lines.len(), ranks, "{text}");
    let token = lines[0].rsplit(' ').next().expect("a token");
    for (rank, line) in lines.iter().enumerate() {
        assert!(line.starts_with(&format!("rank {rank} of {ranks}, ")), "{text}");
        assert!(line.ends_with(&format!(", by {launcher}, over {meeting}, token {token}")), "{text}");
    }
}
