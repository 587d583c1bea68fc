//! Calls by messages: runs a schedule over the links of one or several channels.

use std::sync::Arc;

use super::links::ChannelLinks;
use super::{Engine, Halt, cannot, divisible, piece};
use crate::Algorithm;
use crate::call::Call;
use crate::executor::{Executor, Memory, Stopped};
use crate::schedule::{CHUNK, Lengths, Schedule, Shape, Space};
use crate::wait::Waiter;

/// Schedules that are cached.
const MAX_CACHED: usize = 32;
/// Bytes from which a call is divided among the channels.
const DIVIDED: usize = 1 << 20;

/// Used by one thread at a time.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) links: ChannelLinks,
    pub(super) executor: Executor,
}

impl Engine {
    /// Runs a call on one channel, or on all if it is large.
    pub(super) fn messages(&mut self, call: &Call, algorithm: Algorithm) -> Result<(), Halt> {
        let parts = if divisible(call.kind) && call.bytes() >= DIVIDED { self.channels.len() } else { 1 };
        if parts == 1 {
            let schedule = self.schedule(call, algorithm)?;
            self.connect(0, &schedule)?;
            let Some(channel) = self.channels.first_mut() else { return Ok(()) };
            return Ok(channel.run(call, &schedule, &self.waiter)?);
        }
        let each = call.count.div_ceil(parts);
        let mut work = Vec::with_capacity(parts);
        for part in 0..parts {
            let start = (part * each).min(call.count);
            let call = piece(call, start, each.min(call.count - start));
            let schedule = self.schedule(&call, algorithm)?;
            self.connect(part, &schedule)?;
            work.push((call, schedule));
        }
        let waiter = &self.waiter;
        let mut pairs = self.channels.iter_mut().zip(&work);
        let Some((first, (call, schedule))) = pairs.next() else { return Ok(()) };
        let results: Vec<Result<(), Stopped>> = std::thread::scope(|scope| {
            let others: Vec<_> = pairs
                .map(|(channel, (call, schedule))| {
                    let call = Lent(*call);
                    scope.spawn(move || {
                        let call = call;
                        channel.run(&call.0, schedule, waiter)
                    })
                })
                .collect();
            let mut results = vec![first.run(call, schedule, waiter)];
            results.extend(others.into_iter().map(|it| it.join().unwrap_or(Err(Stopped::Aborted))));
            results
        });
        results.into_iter().collect::<Result<(), Stopped>>()?;
        Ok(())
    }

    /// The schedule of a call, from the cache if it is there.
    fn schedule(&mut self, call: &Call, algorithm: Algorithm) -> Result<Arc<Schedule>, Halt> {
        let shape = Shape {
            kind: call.kind,
            algorithm,
            rank: self.rank(),
            root: call.root,
            count: call.count,
            width: call.data.size(),
            chunk: CHUNK,
        };
        if let Some((_, schedule)) = self.schedules.iter().rev().find(|(it, _)| *it == shape) {
            return Ok(Arc::clone(schedule));
        }
        let Some(schedule) = Schedule::new(&shape, &self.layout) else {
            return Err(Halt::Refused(cannot(algorithm, call.kind.name())));
        };
        let schedule = Arc::new(schedule);
        if self.schedules.len() == MAX_CACHED {
            self.schedules.remove(0);
        }
        self.schedules.push((shape, Arc::clone(&schedule)));
        Ok(schedule)
    }

    /// Opens the connections that a schedule still needs.
    fn connect(&mut self, channel: usize, schedule: &Schedule) -> Result<(), Halt> {
        let Some(network) = &mut self.network else { return Ok(()) };
        let Some(channel) = self.channels.get_mut(channel) else { return Ok(()) };
        let missing = channel.links.missing(schedule);
        if missing.is_empty() {
            return Ok(());
        }
        let Some(streams) = channel.links.streams() else { return Ok(()) };
        network.connect(streams, &missing, &self.waiter).map_err(Halt::Error)
    }
}

impl Channel {
    fn run(&mut self, call: &Call, schedule: &Schedule, waiter: &Waiter) -> Result<(), Stopped> {
        let lengths = Lengths { send: schedule.needs(Space::Send), receive: schedule.needs(Space::Receive) };
        // SAFETY: the caller lends both buffers for the call, as long as its schedule needs, which was made from the
        // same call.
        let memory = unsafe { Memory::raw(call.send, call.receive, lengths) };
        self.executor.run(schedule, memory, call.reduce_op(), &mut self.links, waiter)
    }
}

/// A call that is lent to a thread, which ends before the call does.
struct Lent(Call);

// SAFETY: the slices behind the pointers are lent to the call, which waits for its threads; each thread has a part of
// its own.
unsafe impl Send for Lent {}
