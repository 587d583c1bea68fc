//! The lines of a log beside those of a prediction.

use std::collections::BTreeMap;

use evidence::decided::{Decided, DecidedKind, DecidedLine};
use fabric::Collective;
use nccl::{Algorithm, Prediction};
use serde::Serialize;

use super::lines::lines;

/// A line that is not as predicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is about.
    pub kind: &'static str,
    /// The ranks that have this difference.
    pub ranks: Vec<u32>,
    /// The file of the first of them.
    pub file: String,
    /// The line in it; `None` if NCCL did not print the line.
    pub line: Option<u64>,
    /// What NCCL printed; `None` if it printed no such line.
    pub nccl: Option<String>,
    /// What is predicted; `None` if no such line is.
    pub plumb: Option<String>,
}

/// One rank of a log.
#[derive(Debug, Clone, Copy)]
pub struct Logged<'a> {
    /// The name of the file.
    pub file: &'a str,
    /// What it says.
    pub decided: &'a Decided,
}

/// The result of comparing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compared {
    /// Lines that were compared, and those that differ, by kind.
    pub kinds: BTreeMap<DecidedKind, (usize, usize)>,
    /// What differs, what the rest follows from first; at most [`Compared::MOST`].
    pub differences: Vec<Difference>,
    /// Ranks that were compared.
    pub ranks: usize,
}

impl Compared {
    /// The most differences that are kept.
    pub const MOST: usize = 1000;

    /// Compares all ranks of logs with a prediction.
    pub fn new(logged: &[Logged<'_>], prediction: &Prediction) -> Self {
        let mut all = Self::default();
        for one in logged {
            let Some(rank) = one.decided.rank else { continue };
            all.ranks += 1;
            all.rank(one, rank, prediction);
        }
        all.sort();
        all
    }

    /// Adds the result of another communicator.
    pub fn add(&mut self, other: Self) {
        for (kind, (compared, different)) in other.kinds {
            let count = self.kinds.entry(kind).or_default();
            count.0 += compared;
            count.1 += different;
        }
        self.ranks += other.ranks;
        self.differences.extend(other.differences);
        self.sort();
        self.differences.truncate(Self::MOST);
    }

    fn sort(&mut self) {
        let order = |it: &Difference| DecidedKind::ALL.iter().position(|kind| kind.name() == it.kind);
        self.differences.sort_by_key(order);
    }

    /// How many lines were compared.
    pub fn compared(&self) -> usize {
        self.kinds.values().map(|it| it.0).sum()
    }

    /// How many lines differ.
    pub fn different(&self) -> usize {
        self.kinds.values().map(|it| it.1).sum()
    }

    /// Whether lines of a kind differ.
    pub(super) fn differs(&self, kind: DecidedKind) -> bool {
        self.kinds.get(&kind).is_some_and(|it| it.1 > 0)
    }

    fn rank(&mut self, one: &Logged<'_>, rank: u32, prediction: &Prediction) {
        let mut here: BTreeMap<DecidedKind, Vec<String>> = BTreeMap::new();
        for line in lines(prediction, u64::from(rank)) {
            if let Some(kind) = DecidedKind::of(&line) {
                here.entry(kind).or_default().push(line);
            }
        }
        for kind in DecidedKind::ALL {
            let told: Vec<&DecidedLine> = one.decided.lines.iter().filter(|it| it.kind == kind).collect();
            // The log was cut, or made without the subsystem.
            if told.is_empty() {
                continue;
            }
            if kind == DecidedKind::Call {
                self.calls(one, rank, &told, prediction);
                continue;
            }
            let none = Vec::new();
            let here = here.get(&kind).unwrap_or(&none);
            for row in 0..told.len().max(here.len()) {
                let (told, here) = (told.get(row).copied(), here.get(row).map(String::as_str));
                let equal = matches!((told, here), (Some(told), Some(here)) if same(&told.text, here));
                self.count(one, rank, kind, equal, told, here);
            }
        }
    }

    /// What was chosen for calls. NCCL counts the bytes of one rank.
    fn calls(&mut self, one: &Logged<'_>, rank: u32, told: &[&DecidedLine], prediction: &Prediction) {
        for line in told {
            let Some((collective, bytes)) = call(&line.text, one.decided.ranks.unwrap_or(1)) else {
                continue;
            };
            let Some(choice) = prediction.choose(collective, bytes) else { continue };
            let Some((head, _)) = line.text.split_once(" Algo ") else { continue };
            let (algorithm, protocol) = (printed(choice.algorithm), choice.protocol.name().to_uppercase());
            let last = choice.channels.saturating_sub(1);
            let here = format!("{head} Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{last}}}");
            let equal = here.eq_ignore_ascii_case(line.text.trim_end());
            self.count(one, rank, DecidedKind::Call, equal, Some(line), Some(&here));
        }
    }

    fn count(
        &mut self,
        one: &Logged<'_>,
        rank: u32,
        kind: DecidedKind,
        equal: bool,
        told: Option<&DecidedLine>,
        here: Option<&str>,
    ) {
        let count = self.kinds.entry(kind).or_default();
        count.0 += 1;
        if equal {
            return;
        }
        count.1 += 1;
        let (nccl, plumb) = (told.map(|it| it.text.trim_end()), here.map(str::trim_end));
        let alike = |it: &&mut Difference| {
            it.kind == kind.name() && it.nccl.as_deref() == nccl && it.plumb.as_deref() == plumb
        };
        if let Some(known) = self.differences.iter_mut().find(alike) {
            if known.ranks.last() != Some(&rank) {
                known.ranks.push(rank);
            }
        } else if self.differences.len() < Self::MOST {
            self.differences.push(Difference {
                kind: kind.name(),
                ranks: vec![rank],
                file: one.file.to_owned(),
                line: told.map(|it| it.number),
                nccl: nccl.map(str::to_owned),
                plumb: plumb.map(str::to_owned),
            });
        }
    }
}

/// An algorithm as the line of a call has it: `ncclAlgoToString` in `src/misc/utils.cc` and `src/enqueue.cc`.
fn printed(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Tree => "TREE",
        Algorithm::Ring => "RING",
        Algorithm::CollNetDirect => "COLLNET_DIRECT",
        Algorithm::CollNetChain => "COLLNET_CHAIN",
        Algorithm::Nvls => "NVLS",
        Algorithm::NvlsTree => "NVLS_TREE",
        Algorithm::Pat => "PAT",
    }
}

/// Whether a line of the log is this one. NCCL cuts a line at 1,023 bytes, with what stands before the message.
fn same(told: &str, here: &str) -> bool {
    let told = told.trim();
    told == here.trim() || (told.len() > 900 && here.trim().starts_with(told))
}

/// The collective and the bytes, as nccl-tests counts them, of `AllGather: 1024 Bytes -> Algo ...`.
fn call(text: &str, ranks: u32) -> Option<(Collective, u64)> {
    let (name, rest) = text.split_once(": ")?;
    let collective: Collective = name.trim().parse().ok()?;
    let bytes: u64 = rest.split(' ').next()?.parse().ok()?;
    let parts = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
    Some((collective, if parts { bytes.checked_mul(u64::from(ranks))? } else { bytes }))
}
