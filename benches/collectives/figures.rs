//! The times of one case, and what follows from them.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use crate::case::{Case, Comparison, Effort, Target};
use crate::engine::{Group, Task};
use crate::limits::Limits;
use crate::load::{Clock, Load};

/// From this size on a batch is one call.
const LARGE: usize = 4 << 20;
/// Seconds per batch at smaller sizes: short, so that some batches run undisturbed.
const BATCH: f64 = 0.000_5;

/// Times of one engine at one size, in seconds per call.
#[derive(Default)]
pub(crate) struct Times(Vec<f64>);

/// The measurements of one case.
pub(crate) struct Figures {
    pub(crate) case: Case,
    pub(crate) sizes: Vec<usize>,
    pub(crate) load: Load,
    pub(crate) limits: Limits,
    /// Failures of engines, in order.
    pub(crate) failures: Vec<String>,
    /// By index of the engine and bytes.
    times: BTreeMap<(usize, usize), Times>,
    tasks: BTreeMap<(usize, usize), Task>,
    repetitions: usize,
}

/// Plumb compared with the best peer at one size.
pub(crate) struct Row {
    pub(crate) bytes: usize,
    /// Median and tenth percentile, in seconds.
    pub(crate) own: (f64, f64),
    pub(crate) peer: (f64, f64),
    pub(crate) peer_name: String,
    /// Bytes a second and rank on the wire of an ideal ring, as nccl-tests counts them.
    pub(crate) bus_bandwidth: f64,
    pub(crate) target: Option<Target>,
    /// The share of the memory bound.
    pub(crate) of_bound: Option<f64>,
}

impl Times {
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn extend(&mut self, times: impl IntoIterator<Item = f64>) {
        self.0.extend(times);
    }

    /// The value below which this share lies.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len().checked_sub(1)? as f64 * share).round() as usize;
        sorted.get(place).copied()
    }

    /// Median and tenth percentile.
    pub(crate) fn pair(&self) -> Option<(f64, f64)> {
        Some((self.quantile(0.5)?, self.quantile(0.1)?))
    }
}

impl Figures {
    pub(crate) fn new(case: Case, effort: &Effort) -> Self {
        let sizes = effort.sizes.iter().copied().filter(|it| *it <= case.largest).collect();
        Self {
            case,
            sizes,
            load: Load::default(),
            limits: Limits::default(),
            failures: Vec::new(),
            times: BTreeMap::new(),
            tasks: BTreeMap::new(),
            repetitions: 0,
        }
    }

    /// Starts every engine, gives each its turn at every size, and ends them.
    pub(crate) fn repeat(&mut self, effort: &Effort) -> io::Result<()> {
        let count = self.case.engines.len();
        let mut groups = Vec::new();
        let mut failures = Vec::new();
        for engine in &self.case.engines {
            // One after the other: several of them measure the machine when they start.
            let group = Group::start(engine, self.case.ranks).map_err(|it| it.to_string());
            let group = group.and_then(|mut it| it.meet().map(|()| it));
            groups.push(group.inspect_err(|it| failures.push(it.clone())).ok());
        }
        for failure in failures {
            self.note(&failure)?;
        }
        self.limits.measure(&self.case)?;
        for bytes in self.sizes.clone() {
            if Some(&bytes) == self.sizes.last() {
                self.limits.measure(&self.case)?;
            }
            // A different engine begins each time, so that none always follows the same one.
            let first = self.repetitions;
            for place in (first..first + count).map(|it| it % count) {
                let Some(group) = groups.get_mut(place) else { continue };
                let Some(running) = group else { continue };
                if let Err(failure) = self.turn(running, place, bytes, effort) {
                    *group = None;
                    self.note(&failure)?;
                }
            }
        }
        self.repetitions += 1;
        Ok(())
    }

    fn turn(&mut self, group: &mut Group, place: usize, bytes: usize, effort: &Effort) -> Result<(), String> {
        let task = match self.tasks.get(&(place, bytes)) {
            Some(task) => *task,
            None => plan(group, bytes, effort)?,
        };
        self.tasks.insert((place, bytes), task);
        let clock = Clock::now();
        let turn = group.turn(task)?;
        self.load.add(clock, turn.cpu);
        self.times.entry((place, bytes)).or_default().extend(turn.times);
        Ok(())
    }

    fn note(&mut self, failure: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{failure}")?;
        self.failures.push(failure.lines().next().unwrap_or_default().to_owned());
        Ok(())
    }

    pub(crate) fn times(&self, engine: usize, bytes: usize) -> Option<&Times> {
        self.times.get(&(engine, bytes))
    }

    /// The best peer at a size, by its median.
    pub(crate) fn best_peer(&self, bytes: usize) -> Option<(&str, (f64, f64))> {
        let peers = self.case.engines.iter().enumerate().filter(|(_, it)| !it.own);
        peers
            .filter_map(|(place, it)| Some((it.name.as_str(), self.times(place, bytes)?.pair()?)))
            .min_by(|one, other| one.1.0.total_cmp(&other.1.0))
    }

    /// One mode of plumb at every size.
    pub(crate) fn rows(&self, comparison: &Comparison) -> Vec<Row> {
        let row = |bytes: &usize| {
            let own = self.times(comparison.engine, *bytes)?.pair()?;
            let (name, peer) = self.best_peer(*bytes)?;
            let ranks = self.case.ranks as f64;
            // Every byte sent is read once and every byte received is written once: a copy of `ranks` buffers.
            let bound = self.limits.copy_all.pair().map(|it| ranks * *bytes as f64 * it.0);
            // Smaller buffers fit in the caches, which have other rates.
            let in_memory = *bytes >= 64 << 20;
            Some(Row {
                bytes: *bytes,
                own,
                peer,
                peer_name: name.to_owned(),
                bus_bandwidth: *bytes as f64 / own.0 * 2.0 * (ranks - 1.0) / ranks,
                target: (comparison.target)(*bytes),
                of_bound: bound.filter(|_| in_memory && self.case.memory).map(|it| it / own.0),
            })
        };
        self.sizes.iter().filter_map(row).collect()
    }
}

impl Row {
    /// Whether the target is met, on the figures as printed.
    pub(crate) fn met(&self) -> Option<bool> {
        let rounded = |it: f64| (it * 100.0).round() / 100.0;
        Some(match self.target? {
            Target::Time(most) => rounded(self.own.0 / self.peer.0) <= most,
            Target::Speed(least) => rounded(self.peer.0 / self.own.0) >= least,
            Target::Bound(least) => rounded(self.of_bound?) >= least,
        })
    }
}

/// Determines how many calls and batches fit in a turn.
fn plan(group: &mut Group, bytes: usize, effort: &Effort) -> Result<Task, String> {
    if bytes >= LARGE {
        // Enough calls that most find warm caches: the last-level cache fills slowly.
        let batches = ((1 << 30) / bytes).clamp(5, 40);
        return Ok(Task { bytes, iterations: 1, batches });
    }
    let mut times = Times::default();
    times.extend(group.turn(Task { bytes, iterations: 5, batches: 9 })?.times);
    let call = times.quantile(0.5).unwrap_or(1.0).max(1e-8);
    let iterations = (BATCH / call).clamp(1.0, 4000.0);
    let batches = (effort.turn / (iterations * call)).clamp(5.0, 400.0);
    Ok(Task { bytes, iterations: iterations as usize, batches: batches as usize })
}
