//! The loop: warm up, time, verify, and give every rank the results of all.

use std::ops::ControlFlow;
use std::time::{Instant, SystemTime};

use collective::Communicator;

use super::verify::{Found, Verified};
use super::{Call, Engine, sent};
use crate::data::EngineKind;
use crate::failure::{Cause, Exchange, Failure};
use crate::layout::{Layout, works_in_place};
use crate::plan::{LEAST_ITERATIONS, LEAST_SECONDS, LONG_SECONDS, Plan, REPEAT_SECONDS, Series};
use crate::run::{Device, Oversubscribed, Row, Run, Timing, Wrong};
use crate::statistics::{count, mean, median};

/// Progress of a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// The engine is ready.
    Ready(&'a [Device]),
    /// A size begins.
    Size {
        /// The size.
        bytes: u64,
        /// Sizes measured before it.
        done: usize,
        /// Sizes in all.
        total: usize,
    },
    /// A size is measured.
    Row(&'a Row),
    /// A rank on a GPU compares results on its host, which takes longer.
    CheckedOnHost {
        /// The first such rank.
        rank: usize,
        /// Why, in the words of the driver.
        reason: &'a str,
    },
    /// All sizes are measured again.
    Repeat {
        /// Which time, from 0.
        number: usize,
        /// How often in all.
        total: usize,
    },
}

/// Runs it all. Every rank calls this with the same plan.
///
/// Where `observe` breaks on one rank, all end before the next size.
pub fn run(
    plan: &Plan,
    engine: &mut dyn Engine,
    observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Run, Failure> {
    let ranks = engine.control().size();
    if let Some(root) = plan.root.filter(|it| *it >= ranks) {
        return Err(Cause::NoSuchRoot { root }.into());
    }
    let largest = in_memory(plan.sizes.all().last().unwrap_or_default())?;
    // On GPUs nothing waits for a core, and NCCL's own log has the paths.
    let (paths, oversubscribed) = match engine.kind() {
        EngineKind::Host => {
            let control = engine.control();
            let oversubscribed = control.oversubscription().map(|it| Oversubscribed {
                host: it.host.clone(),
                ranks: it.ranks,
                cores: it.cores,
            });
            (Some(control.paths()), oversubscribed)
        }
        EngineKind::Nccl => (None, None),
    };
    let mut run = Run {
        collective: plan.collective,
        engine: engine.kind(),
        version: engine.version(),
        devices: engine.devices().to_vec(),
        rows: Vec::new(),
        paths,
        oversubscribed,
        wrong: None,
        segments: Vec::new(),
    };
    let before = sent::now(engine.kind());
    let mut enough = observe(Event::Ready(&run.devices)).is_break();
    engine.allocate(largest.max(64))?;
    let all = plan.series(ranks);
    let sizes = plan.sizes.all().count();
    let total = all.len().saturating_mul(sizes).saturating_mul(plan.cycles.max(1));
    let mut bench =
        Bench { plan, engine: &mut *engine, ranks, seed: 0, filled: 0, wrong: None, on_host: None };
    let mut told = false;
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
                enough |= observe(Event::Size { bytes, done, total }).is_break();
                stopped = bench.is_enough_for_one(enough)?;
                if stopped {
                    break 'all;
                }
                let row = bench.row(series, bytes, cycle)?;
                if let (false, Some((rank, reason))) = (told, &bench.on_host) {
                    enough |= observe(Event::CheckedOnHost { rank: *rank, reason }).is_break();
                    told = true;
                }
                enough |= observe(Event::Row(&row)).is_break();
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
        bench.repeat(&mut run.rows, enough, observe)?;
    }
    run.wrong = bench.wrong;
    let own = sent::now(run.engine).map(|now| sent::since(now, before.unwrap_or_default()));
    run.segments = sent::of_all(engine.control(), own)?;
    Ok(run)
}

struct Bench<'a> {
    plan: &'a Plan,
    engine: &'a mut dyn Engine,
    ranks: usize,
    seed: u64,
    /// The largest size that was filled without a check.
    filled: usize,
    wrong: Option<Wrong>,
    /// The first rank that compares on its host although it has a GPU, and why.
    on_host: Option<(usize, String)>,
}

impl Bench<'_> {
    /// Whether any rank wants to stop. All ranks call it together.
    fn is_enough_for_one(&mut self, enough: bool) -> Result<bool, Failure> {
        Ok(share(self.engine.control(), &[u8::from(enough)])?.iter().any(|it| it.as_slice() == [1]))
    }

    /// A size of a series, out of place.
    fn call(&self, series: Series, bytes: u64) -> Result<(Call, Layout), Failure> {
        let collective = self.plan.collective;
        let layout = Layout::new(collective, in_memory(bytes)?, series.data_type, self.ranks);
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

    /// Measures all sizes again, to show drift: the samples of a row were all taken within milliseconds.
    fn repeat(
        &mut self,
        rows: &mut [Row],
        mut enough: bool,
        observe: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let mut last = Instant::now();
        for number in 0..self.plan.repeats {
            std::thread::sleep(self.plan.apart.saturating_sub(last.elapsed()));
            last = Instant::now();
            enough |= observe(Event::Repeat { number, total: self.plan.repeats }).is_break();
            for row in rows.iter_mut().filter(|it| it.cycle == 0) {
                if self.is_enough_for_one(enough)? {
                    return Ok(());
                }
                let (call, _) = self.call(row.series, row.bytes)?;
                for (timing, in_place) in [(&mut row.out_of_place, false), (&mut row.in_place, true)] {
                    let Some(timing) = timing else { continue };
                    let one = timing.ranks.iter().copied().fold(0.0, f64::max);
                    if one * count(timing.iterations) < LONG_SECONDS {
                        timing.repeats.push(self.remeasured(&Call { in_place, ..call }, one)?);
                    }
                }
            }
        }
        Ok(())
    }

    /// The median of a few batches. `one` is what a call takes, the same number on all ranks.
    fn remeasured(&mut self, call: &Call, one: f64) -> Result<f64, Failure> {
        let long_enough = whole(REPEAT_SECONDS / one.max(1e-8));
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
        // Real numbers while the clock runs too: some processors write zeros past the caches twice as fast. Without a check once is enough.
        if self.plan.check > 0 || layout.bytes > self.filled {
            self.verified(call, layout).fill(self.engine)?;
            self.filled = layout.bytes;
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
            repeats: Vec::new(),
        })
    }

    /// Warms up, and decides how many batches there are and how many calls in each: the same on all ranks.
    fn batches(&mut self, call: &Call) -> Result<(usize, usize), Failure> {
        let plan = self.plan;
        let alone = plan.blocking || plan.per_iteration;
        self.engine.control().barrier()?;
        let warm_up = plan.warm_up * plan.aggregate;
        // The first call may time several algorithms to choose one, so it says nothing about the others.
        let mut one = f64::INFINITY;
        for calls in [warm_up.min(1), warm_up.saturating_sub(1)] {
            if calls > 0 {
                let own = self.engine.run(call, calls)? / count(calls);
                one = self.longest(own)?;
            }
        }
        // A disturbance must not decide either: measure twice more, and take the shortest.
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

    /// The longest of all ranks' times, so that all ranks decide the same.
    fn longest(&mut self, seconds: f64) -> Result<f64, Failure> {
        Ok(self.exchange(&[seconds])?.into_iter().flatten().fold(0.0, f64::max))
    }

    /// What all ranks measured.
    fn exchange(&mut self, seconds: &[f64]) -> Result<Vec<Vec<f64>>, Failure> {
        let bytes: Vec<u8> = seconds.iter().flat_map(|it| it.to_le_bytes()).collect();
        // A message has its limits, so long lists go in pieces.
        let mut all = vec![Vec::with_capacity(seconds.len()); self.ranks];
        for piece in bytes.chunks(1 << 18) {
            let parts = share(self.engine.control(), piece)?;
            for (rank, (values, part)) in all.iter_mut().zip(&parts).enumerate() {
                if part.len() != piece.len() {
                    return Err(bad(Exchange::Count).of(rank, None));
                }
                values
                    .extend(part.chunks_exact(8).filter_map(|it| it.try_into().ok()).map(f64::from_le_bytes));
            }
        }
        let impossible = |times: &Vec<f64>| times.iter().any(|it| !it.is_finite() || *it < 0.0);
        if let Some(rank) = all.iter().position(impossible) {
            return Err(bad(Exchange::Time).of(rank, None));
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
            let parts = share(self.engine.control(), &encoded(&found))?;
            let all = parts.iter().map(|it| decoded(it)).collect::<Option<Vec<_>>>();
            let all = all.ok_or_else(|| bad(Exchange::Check))?;
            if self.on_host.is_none() {
                self.on_host =
                    all.iter().enumerate().find_map(|(rank, it)| Some((rank, it.on_host.clone()?)));
            }
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
    if all.len() == control.size() { Ok(all) } else { Err(bad(Exchange::RankMissing)) }
}

fn bad(problem: Exchange) -> Failure {
    Cause::BadExchange { problem }.into()
}

fn in_memory(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Cause::SizeTooLarge { bytes }.into())
}

/// Iterations that take long enough to be timed well.
fn needed(iteration: f64) -> usize {
    // A round number, which can be cut into batches.
    whole(LEAST_SECONDS / iteration.max(1e-8)).next_multiple_of(LEAST_ITERATIONS)
}

/// A whole number of calls.
fn whole(calls: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and a million")]
    let whole = calls.clamp(1.0, 1e6).ceil() as usize;
    whole
}

/// In how many batches they are timed: enough to see how times vary, few enough to hide the cost of starting one: the
/// clock, the barrier, and the time until an idle GPU has work queued.
fn batches(iterations: usize, iteration: f64) -> usize {
    let shortest = 1e-3;
    let fitting = (count(iterations) * iteration / shortest).clamp(1.0, 50.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 50")]
    let fitting = fitting as usize;
    // A number that divides them, so that none is left over.
    (1..=fitting.min(iterations.max(1))).rev().find(|it| iterations.is_multiple_of(*it)).unwrap_or(1)
}

fn encoded(found: &Found) -> Vec<u8> {
    // Strings and numbers: it cannot fail, and what another rank cannot read is an error there.
    serde_json::to_vec(found).unwrap_or_default()
}

fn decoded(bytes: &[u8]) -> Option<Found> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::{batches, decoded, encoded, needed};
    use crate::engines::verify::Found;
    use crate::run::Element;

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
    fn what_a_rank_found_survives_the_exchange() {
        let first = Element { index: 7, got: "1".to_owned(), expected: "2".to_owned() };
        let on_host = Some("CUDA_ERROR_JIT_COMPILER_NOT_FOUND".to_owned());
        for found in [Found::default(), Found { wrong: 3, first: Some(first), on_host }] {
            assert_eq!(decoded(&encoded(&found)), Some(found));
        }
        for bytes in [&b""[..], b"12345678 2345678", b"12345678\xff", &[0xff; 40]] {
            assert_eq!(decoded(bytes), None);
        }
    }
}
