//! The nodes of a Slurm allocation, through `srun`.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use super::supervised::{Client, Opening, Supervised, Words};
use super::{first_of, last_line, shell_words};
use crate::request::one_line;
use crate::supervise::short;
use crate::supervise::tasks::Purpose;
use crate::{Error, Host, Obstacle, ObstacleKind};

/// From this release on, steps of one job share a node only where they say so (`--overlap`).
const OVERLAP_SINCE: (u32, u32) = (20, 11);

/// Tasks on the nodes of the allocation that this process runs in (`salloc`, `sbatch`): every task is a step of one task on
/// one node, with all CPUs and GPUs that the job has there.
///
/// A step of each node stays open until the end and keeps the folder with plumb. Steps overlap.
pub type Srun = Supervised<Steps>;

/// Steps of a Slurm job.
pub struct Steps {
    overlap: bool,
}

impl Srun {
    /// Asks `srun` for its release; starts no step yet.
    pub fn new(client: Client) -> Result<Self, Error> {
        let overlap = version(&ask_version(&client.program)?).is_none_or(|it| it >= OVERLAP_SINCE);
        Self::with(client, Steps { overlap })
    }
}

impl Steps {
    fn step(&self, client: &Client, host: &Host) -> Vec<OsString> {
        let mut words = client.words();
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

impl Opening for Steps {
    const NAME: &'static str = "srun";

    fn prepare(&mut self, _client: &Client, _hosts: &[Host]) {}

    fn words(&self, client: &Client, host: &Host, bootstrap: &str, _purpose: Purpose) -> Words {
        let mut words = self.step(client, host);
        words.extend(shell_words(bootstrap));
        Ok(words)
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        obstacle(printed)
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
    first_of(TEXTS, &printed.lines().rev()).unwrap_or_else(|| last_line(ObstacleKind::Launcher, printed))
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
