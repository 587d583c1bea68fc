//! The loop: warm up, time, verify, and tell every rank what all of them saw.

use std::ops::ControlFlow;
use std::time::{Instant, SystemTime};

use collective::{Communicator, Oversubscription};
use fabric::Collective;

use crate::engine::{Call, Device, Engine, Failure};
use crate::layout::{Layout, works_in_place};
use crate::plan::{LEAST_ITERATIONS, LEAST_SECONDS, LONG_SECONDS, LOOK_SECONDS, Plan, Series};
use crate::statistics::{count, mean, median, quantile};
use crate::verify::{Element, Found, Verified};

/// Everything that was measured. Every rank has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The collective.
    pub collective: Collective,
    /// `host` or `nccl`.
    pub engine: String,
    /// Its release.
    pub version: String,
    /// The ranks.
    pub devices: Vec<Device>,
    /// The measurements.
    pub rows: Vec<Row>,
    /// What the ranks use between them, where the engine tells: `shared memory`.
    pub paths: Option<String>,
    /// A host on which ranks wait for cores.
    pub crowded: Option<Oversubscription>,
    /// The first wrong element.
    pub wrong: Option<Wrong>,
}

/// One size.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Type, operation and root.
    pub series: Series,
    /// Bytes, as nccl-tests counts them.
    pub bytes: u64,
    /// Elements.
    pub count: u64,
    /// Which time all sizes are run, from 0.
    pub cycle: usize,
    /// From the send to the receive buffer.
    pub out_of_place: Option<Timing>,
    /// Within the receive buffer, where the collective can.
    pub in_place: Option<Timing>,
    /// When it was done, in seconds since 1970.
    pub time: u64,
}

/// How long one call took.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Seconds of a call, over all iterations and by the plan's average over ranks.
    pub seconds: f64,
    /// Calls that were timed.
    pub iterations: usize,
    /// Seconds of a call in each batch of iterations, by the same average.
    pub samples: Vec<f64>,
    /// The same of the slowest rank of each batch.
    pub longest: Vec<f64>,
    /// Seconds of a call on each rank.
    pub ranks: Vec<f64>,
    /// Wrong elements on all ranks, if they were looked for.
    pub wrong: Option<u64>,
    /// Seconds of a call when the size was looked at again later: the samples are all of one moment.
    pub looks: Vec<f64>,
}

impl Timing {
    /// The median of the samples, in seconds.
    pub fn median(&self) -> f64 {
        median(&self.samples)
    }

    /// Below it is a tenth of the samples.
    pub fn p10(&self) -> f64 {
        quantile(&self.samples, 0.1)
    }

    /// Above it is a hundredth of the samples.
    pub fn p99(&self) -> f64 {
        quantile(&self.samples, 0.99)
    }

    /// The slowest rank.
    pub fn slowest(&self) -> Option<usize> {
        (0..self.ranks.len()).max_by(|a, b| self.ranks[*a].total_cmp(&self.ranks[*b]))
    }

    /// How much longer the slowest rank took than the middle one, relative to it.
    pub fn lag(&self) -> f64 {
        let middle = median(&self.ranks);
        let longest = self.slowest().map_or(0.0, |it| self.ranks[it]);
        if middle > 0.0 { longest / middle - 1.0 } else { 0.0 }
    }

    /// GB/s of the algorithm.
    pub fn algorithm_bandwidth(&self, bytes: u64) -> f64 {
        if self.seconds > 0.0 { real(bytes) / self.seconds / 1e9 } else { 0.0 }
    }

    /// GB/s of the bus.
    pub fn bus_bandwidth(&self, bytes: u64, collective: Collective) -> f64 {
        let ranks = u32::try_from(self.ranks.len()).unwrap_or(u32::MAX);
        self.algorithm_bandwidth(bytes) * collective.bus_factor(ranks)
    }
}

/// The first wrong element of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The rank that has it.
    pub rank: usize,
    /// The size.
    pub bytes: u64,
    /// Whether in place.
    pub in_place: bool,
    /// Type, operation and root.
    pub series: Series,
    /// Which, and what it is.
    pub element: Element,
}

/// What happens meanwhile.
#[derive(Debug)]
pub enum Event<'a> {
    /// The engine is ready: the ranks.
    Ready(&'a [Device]),
    /// A size begins: bytes, sizes done, sizes in all.
    Size(u64, usize, usize),
    /// A size is measured.
    Row(&'a Row),
    /// All sizes are looked at again: which time, from 0, and how often in all.
    Look(usize, usize),
}

/// Runs it all. Every rank calls this with the same plan.
///
/// Where `tell` breaks on one rank, all end before the next size.
pub fn run(
    plan: &Plan,
    engine: &mut dyn Engine,
    tell: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Run, Failure> {
    let ranks = engine.control().size();
    if plan.root.is_some_and(|it| it >= ranks) {
        return Err(Failure(format!("there is no rank {} to be the root", plan.root.unwrap_or_default())));
    }
    let largest = plan.sizes.all().last().unwrap_or_default();
    let largest =
        usize::try_from(largest).map_err(|_| Failure("the largest size is too large".to_owned()))?;
    // On GPUs nothing waits for a core, and NCCL's own log tells the paths.
    let (paths, crowded) = match engine.name() {
        "host" => (Some(engine.control().paths()), engine.control().oversubscription().cloned()),
        _ => (None, None),
    };
    let mut run = Run {
        collective: plan.collective,
        engine: engine.name().to_owned(),
        version: engine.version(),
        devices: engine.devices().to_vec(),
        rows: Vec::new(),
        paths,
        crowded,
        wrong: None,
    };
    let mut enough = tell(Event::Ready(&run.devices)).is_break();
    engine.allocate(largest.max(64))?;
    let all = plan.series(ranks);
    let sizes = plan.sizes.all().count();
    let total = all.len().saturating_mul(sizes).saturating_mul(plan.cycles.max(1));
    let mut bench = Bench { plan, engine, ranks, seed: 0, wrong: None };
    let mut done = 0;
    let mut stopped = false;
    'all: for series in all {
        let mut cycle = 0;
        loop {
            if plan.cycles == 0 {
                // Without end: only the last time is kept.
                run.rows.clear();
            }
            for bytes in plan.sizes.all() {
                enough |= tell(Event::Size(bytes, done, total)).is_break();
                stopped = bench.is_enough_for_one(enough)?;
                if stopped {
                    break 'all;
                }
                let row = bench.row(series, bytes, cycle)?;
                enough |= tell(Event::Row(&row)).is_break();
                run.rows.push(row);
                done += 1;
            }
            cycle += 1;
            if cycle == plan.cycles {
                break;
            }
        }
    }
    if !stopped && plan.cycles > 0 {
        bench.look_again(&mut run.rows, enough, tell)?;
    }
    run.wrong = bench.wrong;
    Ok(run)
}

struct Bench<'a> {
    plan: &'a Plan,
    engine: &'a mut dyn Engine,
    ranks: usize,
    seed: u64,
    wrong: Option<Wrong>,
}

impl Bench<'_> {
    /// Whether a rank has enough; all of them ask together.
    fn is_enough_for_one(&mut self, enough: bool) -> Result<bool, Failure> {
        Ok(share(self.engine.control(), &[u8::from(enough)])?.iter().any(|it| it.as_slice() == [1]))
    }

    /// A size of a series, out of place.
    fn call(&self, series: Series, bytes: u64) -> Result<(Call, Layout), Failure> {
        let collective = self.plan.collective;
        let size = usize::try_from(bytes).map_err(|_| Failure(format!("{bytes} bytes are too many")))?;
        let layout = Layout::new(collective, size, series.data_type, self.ranks);
        let call = Call {
            collective,
            data_type: series.data_type,
            operation: series.operation,
            root: series.root,
            count: layout.count,
            in_place: false,
        };
        Ok((call, layout))
    }

    /// Comes back to all sizes, so that what drifts shows: the samples of a row are all of one moment.
    fn look_again(
        &mut self,
        rows: &mut [Row],
        mut enough: bool,
        tell: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let mut last = Instant::now();
        for look in 0..self.plan.looks {
            std::thread::sleep(self.plan.apart.saturating_sub(last.elapsed()));
            last = Instant::now();
            enough |= tell(Event::Look(look, self.plan.looks)).is_break();
            for row in rows.iter_mut().filter(|it| it.cycle == 0) {
                if self.is_enough_for_one(enough)? {
                    return Ok(());
                }
                let (call, _) = self.call(row.series, row.bytes)?;
                for (timing, in_place) in [(&mut row.out_of_place, false), (&mut row.in_place, true)] {
                    let Some(timing) = timing else { continue };
                    let one = timing.ranks.iter().copied().fold(0.0, f64::max);
                    if one * count(timing.iterations) < LONG_SECONDS {
                        timing.looks.push(self.look(&Call { in_place, ..call }, one)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The middle of a few batches, where a call takes about `one`, which all ranks must say alike.
    fn look(&mut self, call: &Call, one: f64) -> Result<f64, Failure> {
        let long_enough = whole(LOOK_SECONDS / one.max(1e-8));
        let aggregate = self.plan.aggregate;
        let alone = self.plan.blocking || self.plan.per_iteration;
        let (batches, size) = if alone {
            ((long_enough / aggregate).clamp(3, 50), aggregate)
        } else {
            (3, long_enough.div_ceil(3))
        };
        self.engine.control().barrier()?;
        self.engine.run(call, 1)?;
        let mut seconds = Vec::with_capacity(batches);
        for _ in 0..batches {
            self.engine.control().barrier()?;
            seconds.push(self.engine.run(call, size)? / count(size));
        }
        let all = self.exchange(&seconds)?;
        let column = |i: usize| all.iter().map(|it| it[i]).collect::<Vec<f64>>();
        let batches: Vec<f64> = (0..batches).map(|it| self.plan.average.of(&column(it))).collect();
        Ok(median(&batches))
    }

    fn row(&mut self, series: Series, bytes: u64, cycle: usize) -> Result<Row, Failure> {
        let (call, layout) = self.call(series, bytes)?;
        let out_of_place = self.timing(&call, &layout, series)?;
        let in_place = if works_in_place(self.plan.collective) {
            Some(self.timing(&Call { in_place: true, ..call }, &layout, series)?)
        } else {
            None
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Row {
            series,
            bytes: layout.bytes as u64,
            count: layout.count as u64,
            cycle,
            out_of_place: Some(out_of_place),
            in_place,
            time: now.map_or(0, |it| it.as_secs()),
        })
    }

    fn timing(&mut self, call: &Call, layout: &Layout, series: Series) -> Result<Timing, Failure> {
        // Real numbers while the clock runs too; without a check once is enough.
        if self.plan.check > 0 || self.seed == 0 {
            self.verified(call, layout).fill(self.engine)?;
        }
        let (batches, size) = self.batches(call)?;
        let mut seconds = Vec::with_capacity(batches);
        for _ in 0..batches {
            self.engine.control().barrier()?;
            seconds.push(self.engine.run(call, size)? / count(size));
        }
        if self.plan.blocking {
            self.engine.control().barrier()?;
        }
        let all = self.exchange(&seconds)?;
        let column = |i: usize| all.iter().map(|it| it[i]).collect::<Vec<f64>>();
        let samples: Vec<Vec<f64>> = (0..batches).map(column).collect();
        let ranks: Vec<f64> = all.iter().map(|it| mean(it)).collect();
        let wrong = self.check(call, layout, series)?;
        Ok(Timing {
            seconds: self.plan.average.of(&ranks),
            iterations: batches * size,
            samples: samples.iter().map(|it| self.plan.average.of(it)).collect(),
            longest: samples.iter().map(|it| it.iter().copied().fold(0.0, f64::max)).collect(),
            ranks,
            wrong,
            looks: Vec::new(),
        })
    }

    /// Warms up, and decides how many batches there are and how many calls in each: the same on all ranks.
    fn batches(&mut self, call: &Call) -> Result<(usize, usize), Failure> {
        let plan = self.plan;
        let alone = plan.blocking || plan.per_iteration;
        self.engine.control().barrier()?;
        let warm_up = plan.warm_up * plan.aggregate;
        // The very first call may try out how it is done best, so it says nothing about the others.
        let mut one = f64::INFINITY;
        for calls in [warm_up.min(1), warm_up.saturating_sub(1)] {
            if calls > 0 {
                let own = self.engine.run(call, calls)? / count(calls);
                one = self.longest(own)?;
            }
        }
        // Whatever disturbed the machine meanwhile is not to decide either: look again, and take the shortest.
        for _ in 0..2 {
            if plan.iterations.is_none() && (one < 1e-2 || one == f64::INFINITY) {
                self.engine.control().barrier()?;
                let own = self.engine.run(call, 5)? / 5.0;
                one = self.longest(own)?.min(one);
            }
        }
        let iterations = plan.iterations.unwrap_or_else(|| needed(one * count(plan.aggregate)));
        let iteration = one * count(plan.aggregate);
        let batches = if alone { iterations } else { batches(iterations, iteration) };
        Ok((batches, (iterations / batches.max(1)).max(1) * plan.aggregate))
    }

    /// The longest of all ranks' times: what is decided by it, all decide alike.
    fn longest(&mut self, seconds: f64) -> Result<f64, Failure> {
        Ok(self.exchange(&[seconds])?.into_iter().flatten().fold(0.0, f64::max))
    }

    /// What all ranks measured.
    fn exchange(&mut self, seconds: &[f64]) -> Result<Vec<Vec<f64>>, Failure> {
        let bytes: Vec<u8> = seconds.iter().flat_map(|it| it.to_le_bytes()).collect();
        // A message has its limits, so long lists go in pieces.
        let mut all = vec![Vec::with_capacity(seconds.len()); self.ranks];
        for piece in bytes.chunks(1 << 18) {
            let told = share(self.engine.control(), piece)?;
            for (rank, (values, told)) in all.iter_mut().zip(&told).enumerate() {
                if told.len() != piece.len() {
                    return Err(Failure(format!(
                        "rank {rank} measured another number of times than this one"
                    )));
                }
                values
                    .extend(told.chunks_exact(8).filter_map(|it| it.try_into().ok()).map(f64::from_le_bytes));
            }
        }
        if all.iter().flatten().any(|it| !it.is_finite() || *it < 0.0) {
            return Err(Failure("a rank measured a time that is none".to_owned()));
        }
        Ok(all)
    }

    fn check(&mut self, call: &Call, layout: &Layout, series: Series) -> Result<Option<u64>, Failure> {
        let mut wrong = None;
        for _ in 0..self.plan.check {
            self.seed += 1;
            let verified = self.verified(call, layout);
            verified.fill(self.engine)?;
            self.engine.control().barrier()?;
            self.engine.run(call, 1)?;
            let found = verified.check(self.engine)?;
            let told = share(self.engine.control(), &encoded(&found))?;
            let all = told.iter().map(|it| decoded(it)).collect::<Option<Vec<_>>>();
            let all = all.ok_or_else(|| Failure("a rank told no result of its check".to_owned()))?;
            let total = all.iter().map(|it| it.wrong).fold(0, u64::saturating_add);
            wrong = Some(total);
            if total > 0 {
                let first = all.into_iter().enumerate().find_map(|(rank, it)| Some((rank, it.first?)));
                if let (None, Some((rank, element))) = (&self.wrong, first) {
                    let bytes = layout.bytes as u64;
                    self.wrong = Some(Wrong { rank, bytes, in_place: call.in_place, series, element });
                }
                break;
            }
        }
        self.seed += 1;
        Ok(wrong)
    }

    fn verified<'b>(&mut self, call: &'b Call, layout: &'b Layout) -> Verified<'b> {
        Verified { call, layout, rank: self.engine.control().rank(), ranks: self.ranks, seed: self.seed }
    }
}

fn share(control: &mut Communicator, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let all = control.share(bytes)?;
    if all.len() == control.size() {
        Ok(all)
    } else {
        Err(Failure("a rank is missing in an exchange".to_owned()))
    }
}

/// Iterations that take long enough to be timed well.
fn needed(iteration: f64) -> usize {
    // A round number, which can be cut into batches.
    whole(LEAST_SECONDS / iteration.max(1e-8)).next_multiple_of(LEAST_ITERATIONS)
}

/// So many calls, and no part of one.
fn whole(calls: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and a million")]
    let whole = calls.clamp(1.0, 1e6).ceil() as usize;
    whole
}

/// In how many batches they are timed: enough to see how times vary, few enough that what a batch begins with does not
/// show: the clock, the barrier, and the time until a GPU that was idle has work in store.
fn batches(iterations: usize, iteration: f64) -> usize {
    let shortest = 1e-3;
    let fitting = (count(iterations) * iteration / shortest).clamp(1.0, 50.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 50")]
    let fitting = fitting as usize;
    // A number that divides them, so that none is left over.
    (1..=fitting.min(iterations.max(1))).rev().find(|it| iterations.is_multiple_of(*it)).unwrap_or(1)
}

/// The count, the place, and both values as text.
fn encoded(found: &Found) -> Vec<u8> {
    let mut out = found.wrong.to_le_bytes().to_vec();
    if let Some(first) = &found.first {
        out.extend((first.index as u64).to_le_bytes());
        out.extend(format!("{}\n{}", first.got, first.expected).into_bytes());
    }
    out
}

fn decoded(bytes: &[u8]) -> Option<Found> {
    let (wrong, rest) = bytes.split_first_chunk::<8>()?;
    let wrong = u64::from_le_bytes(*wrong);
    if rest.is_empty() {
        return Some(Found { wrong, first: None });
    }
    let (index, rest) = rest.split_first_chunk::<8>()?;
    let text = std::str::from_utf8(rest.get(..rest.len().min(200))?).ok()?;
    let (got, expected) = text.split_once('\n')?;
    let index = usize::try_from(u64::from_le_bytes(*index)).ok()?;
    let first = Element { index, got: got.to_owned(), expected: expected.to_owned() };
    Some(Found { wrong, first: Some(first) })
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a buffer, exact up to 2^53")]
fn real(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::{batches, decoded, encoded, needed};
    use crate::verify::{Element, Found};

    #[test]
    fn short_calls_are_repeated_more() {
        assert_eq!(needed(1e-6), 20_000);
        assert_eq!(needed(1e-3), 20);
        assert_eq!(needed(9.0), 20);
        assert_eq!(needed(0.0), 1_000_000);
    }

    #[test]
    fn batches_are_long_enough_and_divide_the_iterations() {
        assert_eq!(batches(20_000, 1e-6), 20);
        assert_eq!(batches(100_000, 1e-6), 50);
        assert_eq!(batches(20, 1e-3), 20);
        assert_eq!(batches(20, 1e-6), 1);
        assert_eq!(batches(23, 1e-4), 1);
        assert_eq!(batches(20, f64::INFINITY), 20);
        assert_eq!(batches(1, 0.0), 1);
    }

    #[test]
    fn what_a_rank_found_is_told() {
        let first = Element { index: 7, got: "1".to_owned(), expected: "2".to_owned() };
        for found in [Found::default(), Found { wrong: 3, first: Some(first) }] {
            assert_eq!(decoded(&encoded(&found)), Some(found));
        }
        for bytes in [&b""[..], b"12345678 2345678", b"12345678\xff", &[0xff; 40]] {
            assert_eq!(decoded(bytes), None);
        }
    }
}
