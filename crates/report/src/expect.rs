//! The answer of `plumb expect`: is this number normal? Schema `plumb.expect/1`.

use std::io::{self, Write};

use forecast::{Cluster, Dimension, Expected, Verdict};
use serde::Serialize;

pub(crate) use forecast::{rounded, shown};

use crate::text::{Style, bytes, wrap};

/// What is normal, and whether a measured number is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Expect {
    /// `plumb.expect/1`.
    pub schema: &'static str,
    /// `all_reduce`.
    pub collective: String,
    /// The machines: `p5.48xlarge`.
    pub machine: String,
    /// How many of them.
    pub nodes: u32,
    /// Pods on each, and GPUs in each: `1x8`.
    pub pods: String,
    /// Ranks in all.
    pub ranks: u32,
    /// `dp`, where only the ranks of one group communicate.
    pub group: Option<&'static str>,
    /// Groups like it that communicate at the same time on each machine.
    pub groups_at_once: u32,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// The lowest normal bus bandwidth.
    #[serde(rename = "low_GBps")]
    pub low: f64,
    /// The one to expect.
    #[serde(rename = "expected_GBps")]
    pub expected: f64,
    /// The highest.
    #[serde(rename = "high_GBps")]
    pub high: f64,
    /// How long the call takes at the expected bandwidth.
    pub time_us: f64,
    /// The time at the highest normal bandwidth.
    pub time_low_us: f64,
    /// The time at the lowest normal bandwidth.
    pub time_high_us: f64,
    /// The part of that time which is latency.
    pub latency_us: f64,
    /// `Ring`, `NVLS`, ...; of the newest possible release.
    pub algorithm: String,
    /// Those of all possible releases of NCCL, oldest first.
    pub algorithms: Vec<&'static str>,
    /// The oldest and the newest release of NCCL that these numbers are for; none where they do not depend on it.
    pub nccl: Option<[String; 2]>,
    /// What limits long messages.
    pub ceiling: String,
    /// Bus bandwidth of very long messages.
    #[serde(rename = "ceiling_GBps")]
    pub asymptote: f64,
    /// What the links can carry: a bus bandwidth above it is too good to be true.
    #[serde(rename = "wire_GBps")]
    pub wire: f64,
    /// Whether published measurements of such machines and networks back the numbers.
    pub calibrated: bool,
    /// What was measured.
    #[serde(rename = "measured_GBps")]
    pub measured: Option<f64>,
    /// `normal`, `low`, `too_good`; `None` without a measured number.
    pub verdict: Option<Verdict>,
    /// Why.
    pub reason: String,
    /// Possible explanations of a low number, most likely first.
    pub explanations: Vec<String>,
}

impl Expect {
    /// Puts the answer together.
    pub fn new(cluster: &Cluster, expected: Expected) -> Self {
        let Expected { collective, bytes, normal, measured, verdict, reason, explanations } = expected;
        Self {
            schema: "plumb.expect/1",
            collective: collective.name().to_owned(),
            machine: cluster.machine.clone(),
            nodes: cluster.nodes,
            pods: format!("{}x{}", cluster.pods, cluster.gpus),
            ranks: cluster.nodes * cluster.pods * cluster.gpus,
            group: None,
            groups_at_once: cluster.at_once,
            bytes,
            low: rounded(normal.low),
            expected: rounded(normal.expected),
            high: rounded(normal.high),
            time_us: rounded(normal.time),
            time_low_us: rounded(normal.time * normal.expected / normal.high),
            time_high_us: rounded(normal.time * normal.expected / normal.low),
            latency_us: rounded(normal.overhead),
            algorithm: normal.algorithm.name().to_owned(),
            algorithms: {
                let mut names: Vec<&str> = normal.possible.iter().map(|it| it.algorithm.name()).collect();
                names.dedup();
                names
            },
            nccl: cluster.releases().map(|(oldest, newest)| [oldest.to_string(), newest.to_string()]),
            ceiling: normal.ceiling.describe().to_owned(),
            asymptote: rounded(normal.asymptote),
            wire: rounded(normal.wire.bandwidth),
            calibrated: normal.measured,
            measured,
            verdict,
            reason,
            explanations,
        }
    }

    /// The same for one group of the ranks.
    #[must_use]
    pub fn of_group(self, group: Option<Dimension>) -> Self {
        Self { group: group.map(Dimension::name), ..self }
    }

    /// The answer in a sentence.
    pub(crate) fn headline(&self) -> String {
        match (self.verdict, self.measured) {
            (Some(Verdict::Normal), Some(measured)) if measured > self.high => {
                format!("yes: {measured} GB/s, more than expected")
            }
            (Some(Verdict::Normal), Some(measured)) => format!("yes: {measured} GB/s is normal"),
            (Some(Verdict::Low), Some(measured)) => {
                format!("low: {measured} GB/s is less than this hardware gives")
            }
            (Some(Verdict::TooGood), Some(measured)) => format!("too good to be true: {measured} GB/s"),
            // For short messages the time is more informative.
            _ if self.latency_us > 0.9 * self.time_us => format!(
                "{} per call is normal, {} to {}",
                time(self.time_us),
                time(self.time_low_us),
                time(self.time_high_us)
            ),
            _ => format!(
                "{} GB/s is normal, {} to {}",
                shown(self.expected),
                shown(self.low),
                shown(self.high)
            ),
        }
    }

    /// The releases of NCCL that the numbers are for: `2.18.5 to 2.30.7`.
    pub(crate) fn releases(&self) -> Option<String> {
        let [oldest, newest] = self.nccl.as_ref()?;
        Some(if oldest == newest { newest.clone() } else { format!("any of {oldest} to {newest}") })
    }

    /// What was asked: `all_reduce of 1 GiB, 16 ranks on 2 nodes of p5.48xlarge`.
    pub(crate) fn subject(&self) -> String {
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        format!(
            "{} of {}, {}{} ranks on {nodes} of {}",
            self.collective,
            bytes(self.bytes),
            self.group.map_or_else(String::new, |it| format!("one {it} group: ")),
            self.ranks,
            self.machine
        )
    }

    /// For people.
    pub fn text(&self, style: Style, out: &mut impl Write) -> io::Result<()> {
        let colour = match self.verdict {
            Some(Verdict::Normal) => "\x1b[1;32m",
            Some(_) => "\x1b[1;33m",
            None => "\x1b[1m",
        };
        let bold = |text: &str| if style.colour { format!("{colour}{text}\x1b[0m") } else { text.to_owned() };
        writeln!(out, "{}", bold(&self.headline()))?;
        writeln!(out)?;
        writeln!(out, "  what     {}", self.subject())?;
        if self.groups_at_once > 1 {
            writeln!(out, "           {} such groups on each machine at the same time", self.groups_at_once)?;
        }
        writeln!(
            out,
            "  normal   {} to {} GB/s bus bandwidth, {} expected ({} per call)",
            shown(self.low),
            shown(self.high),
            shown(self.expected),
            time(self.time_us)
        )?;
        if let Some(mut releases) = self.releases() {
            if self.nccl.as_ref().is_some_and(|[oldest, newest]| oldest != newest) {
                releases.push_str("; --nccl VERSION gives the numbers of one");
            }
            let lines = wrap(&releases, style.width.saturating_sub(11).max(30));
            for (i, line) in lines.into_iter().enumerate() {
                writeln!(out, "  {:<8} {line}", if i == 0 { "NCCL" } else { "" })?;
            }
        }
        for (i, line) in wrap(&self.reason, style.width.saturating_sub(11).max(30)).into_iter().enumerate() {
            writeln!(out, "  {:<8} {line}", if i == 0 { "why" } else { "" })?;
        }
        for (i, explanation) in self.explanations.iter().enumerate() {
            for (j, line) in wrap(explanation, style.width.saturating_sub(13).max(30)).into_iter().enumerate()
            {
                let label = if i == 0 && j == 0 { "fits" } else { "" };
                writeln!(out, "  {label:<8} {} {line}", if j == 0 { "-" } else { " " })?;
            }
        }
        if !self.calibrated {
            let text = "no published measurement of such machines and networks backs these numbers, so the interval is wide";
            for (i, line) in wrap(text, style.width.saturating_sub(11).max(30)).into_iter().enumerate() {
                writeln!(out, "  {:<8} {line}", if i == 0 { "note" } else { "" })?;
            }
        }
        Ok(())
    }

    /// For programs.
    pub fn json(&self, out: &mut impl Write) -> io::Result<()> {
        crate::json::write_json(self, out)
    }
}

/// `4.59 ms`
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        it if it >= 1e6 => format!("{} s", shown(it / 1e6)),
        it if it >= 1e3 => format!("{} ms", shown(it / 1e3)),
        it => format!("{} us", shown(it)),
    }
}
