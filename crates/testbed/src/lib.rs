//! For tests that start programs.
//!
//! [`output`] and [`Running`] give every program a time limit: one that hangs fails the test with its command and what it printed. [`need`] finds
//! what comes from a package. [`Hosts`] are machines made of namespaces, with ssh and [`Slurm`]. Only tests depend on this crate.
#![forbid(unsafe_code)]
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

mod folder;
mod hosts;
mod packages;
mod port;
mod running;
mod slurm;

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub use folder::Folder;
pub use hosts::{Host, Hosts, Login};
pub use packages::need;
pub use port::free_port;
pub use running::{Running, output};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};
pub use slurm::{Node, Slurm};

/// How long a program may run, and anything may take, unless the test says otherwise: only what hangs takes as long.
pub const LIMIT: Duration = Duration::from_secs(180);

/// A program whose output is read and that has no input.
pub fn program(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same without the variables of a launcher that this test may run in, and with the usual actions for signals: who started the tests may
/// ignore some, as nohup does.
pub fn unlaunched(name: impl AsRef<OsStr>) -> Command {
    static OUTER: LazyLock<Vec<String>> = LazyLock::new(|| {
        let prefixes =
            ["PLUMB_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "PET_", "MASTER_", "TORCHELASTIC_", "JOB_"];
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        names.filter(|name| prefixes.iter().any(|it| name.starts_with(it)) || name == "RANK").collect()
    });
    let mut command = program("env");
    command.arg("--default-signal=HUP,INT,TERM,TSTP").arg(name);
    for variable in &*OUTER {
        command.env_remove(variable);
    }
    command
}

/// Waits until the condition holds, for at most [`LIMIT`].
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(holds_within(LIMIT, condition), "waited {LIMIT:?} in vain until {what}");
}

fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Sends a signal to a process. It may have ended.
pub fn signal(pid: u32, signal: Signal) {
    let _ = kill_process(raw(pid), signal);
}

/// Sends a signal to a process group, as a terminal does. It may have ended.
pub fn signal_group(leader: u32, signal: Signal) {
    let _ = kill_process_group(raw(leader), signal);
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).expect("the number of a process")
}
