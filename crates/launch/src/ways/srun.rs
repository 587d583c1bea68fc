//! The nodes of a Slurm allocation, through `srun`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::shown_locally;
use crate::request::one_line;
use crate::supervise::connection::Connection;
use crate::supervise::keeper::{self, Binary, Keepers};
use crate::supervise::short;
use crate::supervise::tasks::{self, Transport};
use crate::{Ended, Error, Host, Obstacle, ObstacleKind, Placed, Request, Shown, Stop, Way, quote};

/// From this release on, steps of one job share a node only where they say so (`--overlap`).
const OVERLAP_SINCE: (u32, u32) = (20, 11);

/// How `srun` is called.
#[derive(Debug, Clone)]
pub struct SrunOptions {
    /// `srun`.
    pub program: OsString,
    /// More arguments, such as `--jobid=7` or `--container-image=...`.
    pub arguments: Vec<OsString>,
    /// How long the start of a step may take.
    pub start: Duration,
    /// How many steps that do not need each other are under way at a time.
    pub parallel: usize,
    /// The program that is placed on nodes. `None`: this one.
    pub plumb: Option<PathBuf>,
}

impl Default for SrunOptions {
    fn default() -> Self {
        Self {
            program: "srun".into(),
            arguments: Vec::new(),
            start: Duration::from_secs(60),
            parallel: 64,
            plumb: None,
        }
    }
}

/// Tasks on the nodes of the allocation that this process runs in (`salloc`, `sbatch`): every task is a step of one task on
/// one node, with all CPUs and GPUs that the job has there.
///
/// A step of each node stays open until the end and keeps the folder with plumb. Steps overlap.
pub struct Srun {
    options: SrunOptions,
    overlap: bool,
    binary: Binary,
    keepers: Keepers,
}

impl Srun {
    /// Asks `srun` for its release; starts no step yet.
    pub fn new(options: SrunOptions) -> Result<Self, Error> {
        let binary = match &options.plumb {
            Some(path) => Binary::read(path.clone().into_os_string())?,
            None => Binary::own()?,
        };
        let overlap = version(&ask_version(&options.program)?).is_none_or(|it| it >= OVERLAP_SINCE);
        Ok(Self { options, overlap, binary, keepers: Keepers::default() })
    }

    fn words(&self, host: &Host) -> Vec<OsString> {
        let mut words = vec![self.options.program.clone()];
        words.extend(self.options.arguments.iter().cloned());
        if self.overlap {
            words.push("--overlap".into());
        }
        let fixed =
            ["--nodes=1", "--ntasks=1", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=0", "--quiet"];
        words.extend(fixed.map(OsString::from));
        words.push(format!("--nodelist={}", host.name()).into());
        words
    }
}

impl Way for Srun {
    fn name(&self) -> &'static str {
        "srun"
    }

    fn place(&mut self, hosts: &[Host], stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        let mut keepers = std::mem::take(&mut self.keepers);
        let result = keeper::place(self, &mut keepers, &self.binary, hosts, stop, each);
        self.keepers = keepers;
        result
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        let shown = |task: &crate::Task| {
            let plumb = self.keepers.path(&task.host).unwrap_or_else(|| self.binary.path.clone());
            let mut words: Vec<String> = self.words(&task.host).iter().map(quote).collect();
            let line = shown_locally(task, &plumb);
            // Variables need a shell or env.
            words.extend(if task.variables.is_empty() { vec![line] } else { vec!["env".to_owned(), line] });
            Shown { host: task.host.clone(), command: words.join(" ") }
        };
        request.tasks.iter().map(shown).collect()
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    fn clean(&mut self) -> Vec<Host> {
        self.keepers.clean()
    }
}

impl Drop for Srun {
    fn drop(&mut self) {
        self.clean();
    }
}

impl Transport for Srun {
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        self.keepers.plumb(host)
    }

    fn open(
        &self,
        host: &Host,
        bootstrap: &str,
        mark: &str,
        script: Vec<u8>,
    ) -> Result<Connection, Obstacle> {
        let words = self.words(host);
        let mut command = Command::new(words.first().unwrap_or(&self.options.program));
        command.args(words.iter().skip(1)).args(["sh", "-c", bootstrap]);
        tasks::process(command, mark, script)
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        obstacle(printed)
    }

    fn last_words(&mut self, host: &Host) -> Option<String> {
        self.keepers.last_words(host)
    }

    fn login(&self) -> Duration {
        self.options.start
    }

    fn parallel(&self) -> usize {
        self.options.parallel
    }

    fn others(&mut self) -> Vec<&mut Connection> {
        self.keepers.connections()
    }
}

/// Why no step started, from the messages of srun (src/srun and src/api of Slurm 22.05 and 24.11).
fn obstacle(printed: &str) -> Obstacle {
    const TEXTS: &[(&str, ObstacleKind)] = &[
        ("Invalid node name", ObstacleKind::NameUnknown),
        ("Requested node configuration is not available", ObstacleKind::NameUnknown),
        ("not in this allocation", ObstacleKind::NameUnknown),
        ("do not belong to job", ObstacleKind::NameUnknown),
        ("Invalid job id", ObstacleKind::Launcher),
        ("Unable to confirm allocation", ObstacleKind::Launcher),
        ("Unable to contact slurm controller", ObstacleKind::Launcher),
        ("execve", ObstacleKind::NoShell),
        ("Communication connection failure", ObstacleKind::NoAnswer),
        ("Unable to contact", ObstacleKind::NoAnswer),
        ("Socket timed out", ObstacleKind::NoAnswer),
        ("Node failure", ObstacleKind::NoAnswer),
        ("down", ObstacleKind::NoAnswer),
    ];
    for (text, kind) in TEXTS {
        if let Some(line) = printed.lines().rev().find(|it| it.contains(text)) {
            return Obstacle::new(*kind, line);
        }
    }
    let last = printed.lines().rev().find(|it| !it.trim().is_empty()).unwrap_or_default();
    Obstacle::new(ObstacleKind::Launcher, last)
}

fn ask_version(program: &OsString) -> Result<String, Error> {
    let mut command = Command::new(program);
    command.arg("--version");
    let answer = short::output(command, "", Duration::from_secs(10))?;
    match answer.code {
        Some(0) => Ok(answer.stdout),
        _ => Err(Error::start(&format!("{} --version", program.display()), one_line(&answer.stderr))),
    }
}

/// `slurm 22.05.8` is 22.05.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers =
        text.trim().strip_prefix("slurm")?.trim_start_matches(['-', ' ', 'w', 'l', 'm']).split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(version("slurm 22.05.8\n"), Some((22, 5)));
        assert_eq!(version("slurm-wlm 24.11.5\n"), Some((24, 11)));
        assert_eq!(version("slurm 20.02.7"), Some((20, 2)));
        assert_eq!(version("something"), None);
    }

    #[test]
    fn what_srun_prints() {
        for (printed, kind) in [
            (
                "srun: error: Unable to create step for job 5: Requested node configuration is not available",
                ObstacleKind::NameUnknown,
            ),
            (
                "srun: error: Unable to confirm allocation for job 99: Invalid job id specified\nsrun: Check SLURM_JOB_ID",
                ObstacleKind::Launcher,
            ),
            (
                "srun: error: Task launch for StepId=5.0 failed on node h2: Communication connection failure",
                ObstacleKind::NoAnswer,
            ),
            ("slurmstepd: error: execve(): sh: No such file or directory", ObstacleKind::NoShell),
            ("", ObstacleKind::Launcher),
        ] {
            assert_eq!(obstacle(printed).kind, kind, "{printed}");
        }
    }
}
