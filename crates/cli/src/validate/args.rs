//! The arguments of `plumb validate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use fabric::catalogue::Model;

#[cfg(target_os = "linux")]
use ::validate::live::{self, Asked, Plan};

use crate::args::{bandwidth, machine};
use crate::fleet::Format;

/// How long a validation may take.
#[cfg(target_os = "linux")]
const BUDGET: Duration = Duration::from_secs(30 * 60);
/// How long a measurement may take.
#[cfg(target_os = "linux")]
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Exit codes: 0 GO; 1 NO-GO: some machines must be taken out or repaired; 2 INCONCLUSIVE, or plumb could not validate."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was given or not")]
#[command(group(clap::ArgGroup::new("fleet").args(["page", "hosts", "slurm", "kubernetes", "resume", "replay", "simulate"])))]
pub(crate) struct Validate {
    /// A page of an earlier answer, to show it again.
    #[arg(value_name = "PAGE", value_hint = ValueHint::FilePath)]
    pub(crate) page: Option<PathBuf>,

    /// Validate these machines over ssh: `node[01-16]`, `a,b,user@c:2222`, or a file with one per line (a hostfile of MPI, in which `a:8` is 8
    /// processes on a).
    #[arg(long, value_name = "LIST|FILE", help_heading = "Machines")]
    pub(crate) hosts: Option<String>,

    /// Validate the nodes of a Slurm allocation, with srun. Outside of an allocation, print the batch script that does it, for sbatch
    /// (--slurm --dry-run --nodes N). Without --hosts and --slurm, plumb validates the machines of the launcher that started it: mpirun, srun, torchrun or an Indexed Job of Kubernetes,
    /// with one process per machine.
    #[arg(long, help_heading = "Machines")]
    pub(crate) slurm: bool,

    /// Validate nodes of a Kubernetes cluster: an Indexed Job with a waiting pod on each is created with kubectl, and deleted afterwards.
    /// Needs --nodes and --instance, and the right to create jobs and to use `kubectl exec`.
    #[arg(long, requires_all = ["nodes", "instance"], help_heading = "Machines")]
    pub(crate) kubernetes: bool,

    /// The container image of the pods.
    #[arg(long, value_name = "IMAGE", requires = "kubernetes", help_heading = "Machines")]
    pub(crate) image: Option<String>,

    /// The namespace of the pods.
    #[arg(long, value_name = "NAME", requires = "kubernetes", help_heading = "Machines")]
    pub(crate) namespace: Option<String>,

    /// The number of nodes in the batch script, or of pods.
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "replay", "simulate", "resume"], help_heading = "Machines")]
    pub(crate) nodes: Option<usize>,

    /// The partition in the batch script.
    #[arg(long, value_name = "NAME", requires = "slurm", help_heading = "Machines")]
    pub(crate) partition: Option<String>,

    /// Continue the validation in this results folder, in the way it was started: what was measured is not measured again.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = "Machines")]
    pub(crate) resume: Option<PathBuf>,

    /// Judge what exists: a results folder of plumb validate, or files and folders with the output of nccl-tests on pairs, single
    /// machines or all together.
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath, help_heading = "Machines")]
    pub(crate) replay: Vec<PathBuf>,

    /// Validate a model of a fleet: nodes=100,slow=node037:0.8,noise=2%. Further keys: link=node003-node017:0.5, nic=node005:3:0,
    /// flaky=node012:0.6:30%, loss=node037:2%, leaf=16,tier=1:0.6, local=node002:0.5, dead=node009, dips=5%, spread=1%, rate=370, seed=1.
    #[arg(long, value_name = "FLEET", help_heading = "Machines")]
    pub(crate) simulate: Option<String>,

    /// A configuration file for ssh, as with `ssh -F`.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Machines")]
    pub(crate) ssh_config: Option<PathBuf>,

    /// How long it may take in all: 30m, 90s, 1h. When the time is spent, the verdict is about what was measured. [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Measurements")]
    pub(crate) budget: Option<Duration>,

    /// A measurement that takes longer than this has failed. [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Measurements")]
    pub(crate) timeout: Option<Duration>,

    /// Whether every pair of machines is measured, which is the only way to find a single slow link: auto does so if half of the time
    /// that is left is enough.
    #[arg(long, value_enum, default_value_t = Links::Auto, value_name = "WHICH", conflicts_with = "resume", help_heading = "Measurements")]
    pub(crate) links: Links,

    /// What moves the data: NCCL on GPUs, or host memory over TCP; auto uses NCCL where every machine has GPUs.
    #[arg(long, value_enum, default_value_t = Engine::Auto, conflicts_with = "resume", help_heading = "Measurements")]
    pub(crate) engine: Engine,

    /// The network to use: an interface, an address or a subnet.
    #[arg(long, value_name = "NAME", help_heading = "Measurements")]
    pub(crate) net: Option<String>,

    /// What all machines together must reach, in GB/s of bus bandwidth. By default what is normal for --instance, otherwise a
    /// quarter of what pairs of these machines reach.
    #[arg(long, value_name = "GB/s", value_parser = bandwidth, conflicts_with = "resume", help_heading = "Measurements")]
    pub(crate) least: Option<f64>,

    /// The machine type, for the bandwidth that is normal there: p5.48xlarge, dgx-h100.
    #[arg(long, value_name = "NAME", value_parser = machine, conflicts_with = "resume", help_heading = "Measurements")]
    pub(crate) instance: Option<&'static Model>,

    /// Write every measurement to this new folder; by default plumb-validate-DATE-TIME.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = "Answer")]
    pub(crate) results: Option<PathBuf>,

    /// Print every command that would be started, and where; start nothing.
    #[arg(long, conflicts_with_all = ["resume", "replay", "simulate"], help_heading = "Answer")]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) health: crate::node::Health,

    /// Output format; JSON has the schema plumb.validate/1.
    #[arg(long, short, value_enum, default_value_t = Format::Text, help_heading = "Answer")]
    pub(crate) format: Format,

    /// Also write the matrix of machines as an SVG picture.
    #[arg(long, value_name = "FILE.svg", value_hint = ValueHint::FilePath, help_heading = "Answer")]
    pub(crate) svg: Option<PathBuf>,

    /// Everything, not only the first screen.
    #[arg(long, short, help_heading = "Answer")]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Links {
    Auto,
    All,
    Few,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Auto,
    Host,
    Nccl,
}

#[cfg(target_os = "linux")]
impl Validate {
    /// How long it may take in all.
    pub(crate) fn budget(&self) -> Duration {
        self.budget.unwrap_or(BUDGET)
    }

    /// After which time a measurement has failed.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT)
    }

    /// How machines are asked, for whoever continues.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            // Another working folder is another start of a relative path.
            ssh_config: self.ssh_config.as_ref().map(|it| std::path::absolute(it).unwrap_or(it.clone())),
            net: self.net.clone(),
            engine: match self.engine {
                Engine::Auto => None,
                Engine::Host => Some(live::Engine::Host),
                Engine::Nccl => Some(live::Engine::Nccl),
            },
            instance: self.instance.map(|it| it.name.to_owned()),
            gpus: self.health.gpus,
        }
    }

    /// With what an interrupted validation was started with. How machines are reached may be another way now; what they are measured
    /// with may not.
    pub(crate) fn continuing(self, plan: &Plan) -> Self {
        let asked = &plan.asked;
        let spent = self.budget.unwrap_or_else(|| BUDGET.max(Duration::from_secs(plan.budget_s)));
        Self {
            budget: Some(spent),
            timeout: self.timeout.or(Some(Duration::from_secs(plan.timeout_s))),
            ssh_config: self.ssh_config.or_else(|| asked.ssh_config.clone()),
            net: self.net.or_else(|| asked.net.clone()),
            engine: match asked.engine {
                None => Engine::Auto,
                Some(live::Engine::Host) => Engine::Host,
                Some(live::Engine::Nccl) => Engine::Nccl,
            },
            instance: asked.instance.as_deref().and_then(|it| machine(it).ok()),
            health: crate::node::Health { gpus: asked.gpus, ..self.health },
            ..self
        }
    }
}

/// `30m`, `90s`, `1h`, `1h30m`, `45` seconds.
fn time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time; write for example 30m, 90s or 1h30m");
    let mut seconds = 0_u64;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let mut unit = rest[digits..].chars();
        let factor = match unit.next() {
            None | Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3600,
            Some(_) => return Err(wrong()),
        };
        rest = unit.as_str();
        seconds = number.checked_mul(factor).and_then(|it| it.checked_add(seconds)).ok_or_else(wrong)?;
    }
    // A week: longer is a mistake.
    if (1..=604_800).contains(&seconds) { Ok(Duration::from_secs(seconds)) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::time;

    #[test]
    fn times() {
        for (text, seconds) in [("30m", 1800), ("90s", 90), ("1h30m", 5400), ("45", 45), ("2h", 7200)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "m", "3d", "0s", "-1s", "1.5h", "99999999999999999999s", "999h"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
