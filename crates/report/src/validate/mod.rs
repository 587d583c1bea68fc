//! The answer of `plumb validate`: is this fleet fit to train, and which part is not? Schema `plumb.validate/1`.

mod evidence;
mod failures;
mod junit;
mod live;
mod matrix;
mod replay;
mod simulated;
mod svg;
mod text;

use std::io::{self, Write};

use ::validate::{Class, Verdict};
use serde::Serialize;

pub use live::{Beside, Gpus, Unfit, launched, quoted};
pub(crate) use matrix::Matrix;
pub(crate) use svg::class_percent;
pub(crate) use text::errors;

/// A verdict on a fleet, with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validate {
    /// `plumb.validate/1`.
    pub schema: &'static str,
    /// `go`, `no-go` or `inconclusive`.
    pub verdict: &'static str,
    /// The verdict in a sentence.
    pub text: String,
    /// What was read or modelled.
    pub source: String,
    /// The machines.
    pub hosts: Vec<String>,
    /// Parts that are slow, surest first.
    pub findings: Vec<Accused>,
    /// Groups of machines that are normal among themselves and slow against each other.
    pub splits: Vec<Split>,
    /// The verdict of each stage; empty for runs that others made and for models.
    pub stages: Vec<Stage>,
    /// What to do now; none without a verdict to act on.
    pub next: Option<Next>,
    /// What the reader should know and keeps no machine out.
    pub notes: Vec<String>,
    /// Launches, in order; empty for runs that others made.
    pub launches: Vec<Launch>,
    /// Kinds of runs that were compared; empty for launches of a validation.
    pub tests: Vec<Test>,
    /// Pairs of machines, as parts of what is normal.
    pub matrix: Option<Matrix>,
    /// What nothing was said about, and why.
    pub not_known: Vec<String>,
    /// The folder with every measurement; none for runs that others made and for models.
    pub results: Option<String>,
}

/// A stage of a validation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    /// From 0.
    pub number: usize,
    /// `reach`, `node`, `local`, `smoke`, `all`, `localise`, `without`, `logs`.
    pub name: &'static str,
    /// `ok`, `low`, `failed`, `found`, `open`, `not needed`, `not run`, `does not apply`.
    pub verdict: &'static str,
    /// What was seen.
    pub text: String,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Next {
    /// In a sentence.
    pub text: String,
    /// For a shell.
    pub command: String,
}

/// A part that is slow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accused {
    /// `node`, `nic`, `link`, `tier`, `intermittent`.
    pub class: &'static str,
    /// The machine, both ends of a link, or all machines of a switch or of a rail.
    pub hosts: Vec<String>,
    /// The rule that says so, for what machines say about themselves.
    pub rule: Option<String>,
    /// Sources of the rule.
    pub references: Vec<String>,
    /// The NIC, counted from 0.
    pub nic: Option<usize>,
    /// What this NIC is called on the machines that were measured: `mlx5_3`.
    pub device: Option<String>,
    /// What it reached, as a part of what is normal; the median.
    pub share: f64,
    /// How many measurements were slow,
    pub slow: usize,
    /// of how many, against machines that are normal with others.
    pub of: usize,
    /// How many of them failed.
    pub failed: usize,
    /// The probability that chance makes one part of the fleet look so.
    pub chance: f64,
    /// What it loses, where that is what is wrong with it; then `slow` counts the measurements with losses.
    pub loss: Option<Loss>,
    /// In which tests, for runs that others made.
    pub tests: Vec<String>,
    /// What was seen, in a sentence.
    pub text: String,
    /// What the measurements leave open about it.
    pub remark: Option<String>,
    /// What to do.
    pub action: String,
}

/// Shares of segments that are sent again because they were lost: TCP segments, or packets of EFA.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Loss {
    /// Of what is sent to the machine; of a link, in the worse direction.
    pub to: f64,
    /// Of what the machine sends; of a link, in the better direction.
    pub from: f64,
    /// Of what the other machines send.
    pub others: f64,
}

/// Machines that fall into groups.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    /// The test that shows it.
    pub test: String,
    /// The machines of each, the largest first.
    pub groups: Vec<Vec<String>>,
    /// What pairs across reach, as a part of what pairs inside do.
    pub share: f64,
    /// Pairs across that were measured.
    pub across: usize,
}

impl Split {
    /// For a headline.
    fn sentence(&self) -> String {
        let sizes: Vec<String> = self.groups.iter().map(|it| it.len().to_string()).collect();
        format!(
            "the machines fall into groups of {}: pairs across them reach {} of pairs inside",
            sizes.join(" and "),
            percent(self.share)
        )
    }
}

/// One launch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Launch {
    /// `local`, `smoke`, `scale`, `all`, `pairs`, `nics`, `without`.
    pub stage: &'static str,
    /// What ran.
    pub what: String,
    /// What came of it.
    pub result: String,
    /// Whether it was as it should be.
    pub ok: bool,
    /// Measurements of it that failed, each with the reason; empty for models.
    pub failures: Vec<String>,
}

/// Runs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Test {
    /// `alltoall, 8 GPUs each, pairs`.
    pub name: String,
    /// Machines of each run.
    pub hosts: usize,
    /// The GPU, as its driver names it.
    pub gpu: Option<String>,
    /// The release of NCCL.
    pub nccl: Option<String>,
    /// The size that is compared.
    pub bytes: u64,
    /// Runs.
    pub runs: usize,
    /// How many failed.
    pub failed: usize,
    /// What most reach, in GB/s of bus bandwidth.
    #[serde(rename = "normal_GBps")]
    pub normal: Option<f64>,
    /// The lowest.
    #[serde(rename = "lowest_GBps")]
    pub lowest: Option<f64>,
    /// How far those that are not slow lie apart, as a part of what is normal.
    pub spread: Option<f64>,
    /// How many are slow, failed ones included.
    pub slow: usize,
    /// What is normal for such machines, where they are known.
    pub expected: Option<Normal>,
}

/// The bus bandwidth that is normal for a kind of machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Normal {
    /// The machine, by its usual name.
    pub machine: String,
    /// The lowest normal one, in GB/s.
    #[serde(rename = "low_GBps")]
    pub low: f64,
    /// The one to expect.
    #[serde(rename = "expected_GBps")]
    pub expected: f64,
    /// The highest.
    #[serde(rename = "high_GBps")]
    pub high: f64,
}

impl Validate {
    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    /// GO.
    pub fn is_go(&self) -> bool {
        self.verdict == word(Verdict::Go)
    }

    /// NO-GO.
    pub fn is_no_go(&self) -> bool {
        self.verdict == word(Verdict::NoGo)
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Go => "go",
        Verdict::NoGo => "no-go",
        Verdict::Inconclusive => "inconclusive",
    }
}

const fn class(class: Class) -> &'static str {
    match class {
        Class::Node => "node",
        Class::Nic => "nic",
        Class::Link => "link",
        Class::Tier => "tier",
        Class::Intermittent => "intermittent",
        Class::Inconclusive => "inconclusive",
    }
}

const fn action(class: Class, failed: bool, loses: bool) -> &'static str {
    match class {
        Class::Link if loses => {
            "check the cables and switch ports between the two, and their counters (ethtool -S, and `show interface` on the switch)"
        }
        _ if loses => {
            "take it out and check its cable, optics and switch port: error and drop counters of its NIC (ethtool -S) and of the port it is plugged into"
        }
        Class::Node if failed => "take it out, read its log with `plumb doctor`, reboot or replace it",
        Class::Node => {
            "take it out and replace it, or compare its settings, clocks and link rates with those of the others"
        }
        Class::Nic => "check this NIC's cable, rate and error counters; replace the NIC or the machine",
        Class::Link => {
            "check the cables and switch ports between the two; keep them out of one job until then"
        }
        Class::Tier => "check the uplinks of this switch; keep a job inside or outside of it until then",
        Class::Intermittent => {
            "take it out and watch it: counters, temperatures, other jobs on it; measure again later"
        }
        Class::Inconclusive => "measure again",
    }
}

/// `370 GB/s`; below one, in MB/s.
pub(crate) fn bandwidth(rate: f64) -> String {
    if rate < 1.0 {
        format!("{} MB/s", crate::expect::shown(1e3 * rate))
    } else {
        format!("{} GB/s", crate::expect::shown(rate))
    }
}

/// `82 %`.
pub(crate) fn percent(share: f64) -> String {
    if share < 0.1 { format!("{:.1} %", 100.0 * share) } else { format!("{:.0} %", 100.0 * share) }
}

/// `2.1 %`, `0.03 %`: small shares too.
fn fine_percent(share: f64) -> String {
    if (0.000_5..0.001).contains(&share) {
        format!("{:.2} %", 100.0 * share)
    } else {
        format!("{:.1} %", 100.0 * share)
    }
}

/// The first names, and how many more.
fn list(names: &[String], most: usize) -> String {
    match names.len().checked_sub(most) {
        Some(more) if more > 0 => format!("{} and {more} more", names[..most].join(", ")),
        _ => names.join(", "),
    }
}

/// Machines that are slow by the same amount, as a tenth of a fleet or more: rather another kind of machine than so many faults.
fn alike(findings: &mut [Accused], machines: usize) {
    let shares: Vec<f64> = findings
        .iter()
        .filter(|it| it.class == class(Class::Node) && it.failed == 0 && it.loss.is_none())
        .map(|it| it.share)
        .collect();
    let slow = |it: &&mut Accused| it.class == class(Class::Node) && it.failed == 0 && it.loss.is_none();
    for it in findings.iter_mut().filter(slow) {
        let like = shares.iter().filter(|share| (*share / it.share - 1.0).abs() < ALIKE).count();
        if like >= SEVERAL && like * 10 > machines {
            it.remark = Some(format!(
                "{} others reach the same: another kind of machine or another setting, rather than {like} faults",
                like - 1
            ));
        }
    }
}

/// Machines of one kind reach the same within this.
const ALIKE: f64 = 0.05;
const SEVERAL: usize = 3;
