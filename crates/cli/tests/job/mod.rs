//! Jobs of `plumb bench` as a user starts them: all ranks at once, or one by one.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What ends, ends within this. The promise is 2 s after a death; machines that test are busy.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// Longer than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Arguments of a run that goes on until it is ended, with a row every few milliseconds.
pub(crate) const ENDLESS: [&str; 10] =
    ["bench", "all_reduce", "-b", "64K", "-e", "64K", "-n", "50", "-N", "0"];

/// What came over a pipe so far, and the thread that reads it.
type Said = (Arc<Mutex<Vec<u8>>>, Option<JoinHandle<()>>);

/// A process that was started, with what it says.
pub(crate) struct Job {
    child: Child,
    /// A variable that all its descendants have.
    mark: String,
    /// Its folder for temporary files.
    folder: PathBuf,
    said: [Said; 2],
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
        let plumb = [OsStr::new("--default-signal=INT,HUP"), OsStr::new(env!("CARGO_BIN_EXE_plumb"))];
        let mut command = Command::new("env");
        // Whoever runs the tests may have told them to ignore Ctrl-C.
        command.args(plumb).args(arguments);
        Self::command(command, variables)
    }

    /// The same through another program, as `unshare`.
    pub(crate) fn command(mut command: Command, variables: &[(&str, &str)]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("PLUMB_TEST={}.{number}", std::process::id());
        command.env_clear().env("PLUMB_TEST", mark.split_once('=').expect("a value").1);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("COLUMNS", "100");
        if let Some(profile) = std::env::var_os("LLVM_PROFILE_FILE") {
            command.env("LLVM_PROFILE_FILE", profile);
        }
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(&mark);
        fs::create_dir_all(&folder).expect("a folder of this job");
        command.env("TMPDIR", &folder).envs(variables.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("plumb can be started");
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        Self { child, mark, folder, said: [stdout, stderr] }
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
        let (rank, size, meeting) = (rank.to_string(), size.to_string(), format!("127.0.0.1:{port}"));
        let mut variables = vec![("PLUMB_RANK", rank.as_str()), ("PLUMB_SIZE", &size)];
        variables.extend([("PLUMB_MEETING", meeting.as_str()), ("PLUMB_TOKEN", "secret")]);
        variables.extend(more);
        Self::start(arguments, &variables)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process of a rank that this one has started.
    pub(crate) fn pid_of(&self, rank: usize) -> u32 {
        let wanted = format!("PLUMB_RANK={rank}");
        let found = || descendants(&self.mark).into_iter().find(|pid| has_variable(*pid, &wanted));
        wait_for(&format!("rank {rank}"), || found().is_some());
        found().expect("just seen")
    }

    pub(crate) fn stdout(&self) -> String {
        text(&self.said[0].0)
    }

    /// Waits until it is in the middle of its work: some rows are there.
    pub(crate) fn wait_for_rows(&self) {
        wait_for("rows of the table", || {
            assert!(!self.has_ended(), "{}{}", self.stdout(), text(&self.said[1].0));
            self.stdout().lines().filter(|it| it.contains("float")).count() >= 2
        });
    }

    pub(crate) fn has_ended(&self) -> bool {
        // A process that was not waited for is a zombie.
        state(self.pid()).is_none_or(|it| it == 'Z')
    }

    pub(crate) fn signal(&self, which: &str) {
        signal(&self.pid().to_string(), which);
    }

    /// To all of its process group, as a terminal does.
    pub(crate) fn signal_group(&self, which: &str) {
        signal(&format!("-{}", self.pid()), which);
    }

    /// Waits for its end. Nothing may be left of it, and a panic is never an answer.
    #[track_caller]
    pub(crate) fn end(mut self, within: Duration) -> End {
        let began = Instant::now();
        while !self.has_ended() && began.elapsed() < within {
            std::thread::sleep(Duration::from_millis(5));
        }
        let after = began.elapsed();
        assert!(self.has_ended(), "still runs after {within:?}: {}", text(&self.said[1].0));
        let code = self.child.wait().expect("its end").code();
        wait_for("the end of all its processes", || descendants(&self.mark).is_empty());
        for (_, thread) in &mut self.said {
            thread.take().expect("once").join().expect("no panic");
        }
        let end = End { code, stdout: text(&self.said[0].0), stderr: text(&self.said[1].0), after };
        assert!(!end.stderr.contains("panicked"), "{end:?}");
        assert_eq!(shared_memory(), Vec::<String>::new(), "{end:?}");
        fs::remove_dir(&self.folder).expect("no temporary file is left");
        end
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Only a test that failed leaves something.
        for pid in descendants(&self.mark) {
            signal(&pid.to_string(), "KILL");
        }
        let _ = self.child.wait();
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

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !ready() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn signal(target: &str, which: &str) {
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-s", which, "--", target]).stderr(Stdio::null()).status();
}

/// Segments with a name that are ours.
fn shared_memory() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|it| it.file_name().to_string_lossy().into_owned())
        .filter(|it| it.contains("plumb"))
        .collect()
}

/// The processes that have this variable and live.
fn descendants(mark: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|it| has_variable(*it, mark) && state(*it).is_some_and(|it| it != 'Z')).collect()
}

fn has_variable(pid: u32, variable: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|it| *it == 0).any(|it| it == variable.as_bytes())
}

/// `R`, `S`, `T`, `Z`; none of a process that is gone.
fn state(pid: u32) -> Option<char> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(Path::new(&path)).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn collect(mut from: impl Read + Send + 'static) -> Said {
    let all = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&all);
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            into.lock().expect("no panic").extend_from_slice(&buffer[..count]);
        }
    });
    (all, Some(thread))
}

fn text(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().expect("no panic")).into_owned()
}
