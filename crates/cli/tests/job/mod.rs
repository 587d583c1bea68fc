//! Jobs of `plumb bench` as a user starts them: all ranks at once, or one by one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testbed::{Running, Signal, signal, signal_group, until};

/// What ends, ends within this. The promise is 2 s after a death; machines that test are busy.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Arguments of a run that goes on until it is ended, with a row every few milliseconds.
pub(crate) const ENDLESS: [&str; 10] =
    ["bench", "all_reduce", "-b", "64K", "-e", "64K", "-n", "50", "-N", "0"];

/// A process that was started, and what it starts.
pub(crate) struct Job {
    running: Running,
    mark: Mark,
    /// Its folder for temporary files.
    folder: PathBuf,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) after: Duration,
}

impl Job {
    /// Starts plumb in a process group of its own, with these arguments and variables.
    pub(crate) fn start<S: AsRef<OsStr>>(
        arguments: impl IntoIterator<Item = S>,
        variables: &[(&str, &str)],
    ) -> Self {
        // Who runs the tests may ignore Ctrl-C.
        let mut command = testbed::program("env");
        command.args(["--default-signal=INT,HUP", env!("CARGO_BIN_EXE_plumb")]).args(arguments);
        Self::command(command, variables)
    }

    /// The same through another program, as `unshare`.
    pub(crate) fn command(mut command: Command, variables: &[(&str, &str)]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{number}", std::process::id());
        command.env_clear().env("PLUMB_TEST", &name);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("COLUMNS", "100");
        if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
            command.env("LLVM_PROFILE_FILE", profile);
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("job-{name}"));
        // An earlier test program that was killed may have had the same number.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of this job");
        command.env("TMPDIR", &folder).envs(variables.iter().copied());
        let running = Running::start(command.process_group(0));
        Self { running, mark: Mark(format!("PLUMB_TEST={name}")), folder }
    }

    /// One rank of a job that is started by hand.
    pub(crate) fn rank(rank: usize, size: usize, port: u16, arguments: &[&str]) -> Self {
        Self::rank_with(rank, size, port, arguments, &[])
    }

    pub(crate) fn rank_with(
        rank: usize,
        size: usize,
        port: u16,
        arguments: &[&str],
        more: &[(&str, &str)],
    ) -> Self {
        let (rank, size, rendezvous) = (rank.to_string(), size.to_string(), format!("127.0.0.1:{port}"));
        let mut variables = vec![("PLUMB_RANK", rank.as_str()), ("PLUMB_SIZE", &size)];
        variables.extend([("PLUMB_RENDEZVOUS", rendezvous.as_str()), ("PLUMB_TOKEN", "secret")]);
        variables.extend(more);
        Self::start(arguments, &variables)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// The process of a rank that this one has started.
    pub(crate) fn pid_of(&self, rank: usize) -> u32 {
        let wanted = format!("PLUMB_RANK={rank}");
        let mut found = None;
        self.running.until(&format!("rank {rank} runs"), || {
            found = self.mark.processes().into_iter().find(|pid| has_variable(*pid, &wanted));
            found.is_some()
        });
        found.expect("just seen")
    }

    /// Waits until it is in the middle of its work: some rows are there.
    #[track_caller]
    pub(crate) fn wait_for_rows(&self) {
        self.running.until("there are rows of the table", || {
            let (stdout, stderr) = (self.running.stdout(), self.running.stderr());
            assert!(!self.has_ended(), "{stdout}{stderr}");
            stdout.lines().filter(|it| it.contains("float")).count() >= 2
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// To all of its process group, as a terminal does.
    pub(crate) fn signal_group(&self, which: Signal) {
        signal_group(self.pid(), which);
    }

    /// Waits for its end. Nothing may be left of it, and a panic is never an answer.
    #[track_caller]
    pub(crate) fn end(self, within: Duration) -> End {
        let began = Instant::now();
        let output = self.running.finish(within);
        let after = began.elapsed();
        until("all its processes have ended", || self.mark.processes().is_empty());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let end = End { code: output.status.code(), stdout, stderr, after };
        assert!(!end.stderr.contains("panicked"), "{end:?}");
        assert_eq!(shared_memory(), Vec::<String>::new(), "{end:?}");
        fs::remove_dir(&self.folder).expect("no temporary file is left");
        end
    }
}

/// A variable that a job and all its descendants have, as `NAME=VALUE`.
struct Mark(String);

impl Mark {
    /// Those that live.
    fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|it| has_variable(*it, &self.0) && !is_zombie(*it)).collect()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Only a test that failed leaves something.
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

impl End {
    /// It failed, and said why in one line that holds all of this.
    #[track_caller]
    pub(crate) fn failed_with(&self, parts: &[&str]) {
        let errors: Vec<&str> = self.stderr.lines().filter(|it| it.starts_with("error:")).collect();
        assert_eq!(errors.len(), 1, "one message: {self:?}");
        assert!(parts.iter().all(|it| errors[0].contains(it)), "{parts:?} in {}", errors[0]);
        assert!(self.code != Some(0), "{self:?}");
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) {
        assert_eq!(self.code, Some(0), "{self:?}");
        assert_eq!(self.stderr, "", "{self:?}");
    }
}

/// The name of this machine.
pub(crate) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").expect("a name").trim().to_owned()
}

/// Segments with a name that are ours.
fn shared_memory() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|it| it.contains("plumb"))
        .collect()
}

fn has_variable(pid: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|it| *it == 0).any(|it| it == variable.as_bytes())
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, state)| state.trim_start().starts_with('Z'))
}
