//! Measures the methods when a collective is called for the first time, and chooses one for each size.

use std::time::Instant;

use super::{Engine, Halt, usual};
use crate::call::Call;
use crate::kernel::Store;
use crate::model::{Measured, Method, SizeRange, Times, UNUSUAL, Weigh, pick, to_f64};
use crate::schedule::Kind;
use crate::session::CallKind;
use crate::shm::{Direct, FINE_PIECE, FINE_STAGE, Manner, SMALL};
use crate::{Algorithm, DataType, Operation};

/// Sizes that are measured at the first call of a collective, until one takes too long.
const SIZES: [usize; 7] = [64, 1 << 10, 8 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Measured at the first call that is larger than these: the last-level cache may hold it.
const LARGE: usize = 16 << 20;
/// Measured at the first call that is larger than twice that: no cache holds it.
const HUGE: usize = 64 << 20;
/// The longest run in seconds; a size that would take longer is not measured.
const LONG: f64 = 0.08;
/// Timed runs of a method at a size.
const RUNS: Runs = Runs { rounds: 3, warmup: 1, measured: 3 };
/// The same for hosts with more ranks than cores and for huge sizes, where a run takes long.
const FEW_RUNS: Runs = Runs { rounds: 2, warmup: 1, measured: 2 };
/// The same for memory larger than a core's own cache. The last-level cache keeps it only after several uses, and methods
/// with streaming stores would evict it in every round.
const WARM_RUNS: Runs = Runs { rounds: 1, warmup: 8, measured: 5 };
/// The same for hosts with more ranks than cores.
const FEW_WARM_RUNS: Runs = Runs { rounds: 1, warmup: 4, measured: 3 };
/// Bytes from which [`WARM_RUNS`] is used.
const CACHED: usize = 1 << 20;
/// Bytes that a run should move, and the most calls for that: a call of a few bytes is too short to time.
const RUN: usize = 16 << 10;
const CALLS: usize = 8;
/// The largest size of a range; the last range holds for larger sizes too.
const LARGEST: usize = 1 << 30;

/// How often to time: each method has warm-up runs and measured runs in every round.
#[derive(Debug, Clone, Copy)]
struct Runs {
    rounds: usize,
    warmup: usize,
    measured: usize,
}

/// The choice for one collective.
#[derive(Debug, Clone, Default)]
struct Choice {
    /// The largest size in bytes for one shot.
    one_shot: usize,
    /// For registered buffers.
    registered: Vec<SizeRange>,
    /// For private buffers that cross-memory attach can reach.
    crossing: Vec<SizeRange>,
    /// For other private buffers.
    private: Vec<SizeRange>,
    /// For jobs without shared memory between all ranks.
    messages: Vec<SizeRange>,
}

/// How far a collective has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Extent {
    #[default]
    Nothing,
    /// Up to the largest of the usual sizes.
    Usual,
    /// And where the last-level cache matters.
    Large,
    /// And where no cache matters.
    Huge,
}

/// What the buffers of a call are: larger sizes are measured for those that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffers {
    Registered,
    /// Also those of jobs without shared memory between all ranks.
    Private,
}

/// The choices for all collectives.
#[derive(Debug, Default)]
pub(super) struct Choices {
    times: [Times; KINDS],
    /// By collective and [`Buffers`].
    extent: [[Extent; 2]; KINDS],
    /// The largest size for one shot, by collective: read in every call.
    one_shot: [usize; KINDS],
    by_kind: [Option<Choice>; KINDS],
}

const KINDS: usize = CallKind::ALL.len();

/// The index of a collective in these tables.
#[inline]
fn index(kind: Kind) -> usize {
    CallKind::from(kind) as usize
}

impl Choices {
    #[inline]
    pub(super) fn one_shot(&self, kind: Kind) -> usize {
        self.one_shot[index(kind)]
    }

    /// The largest size at which one shot is the fastest for private buffers, whether ranks reach each other's memory or not.
    pub(super) fn one_shot_private(&self, kind: Kind) -> usize {
        let small = |ranges: &[SizeRange]| {
            ranges.first().filter(|it| it.method == Method::OneShot).map_or(0, |it| it.up_to)
        };
        self.by_kind[index(kind)].as_ref().map_or(0, |it| small(&it.crossing).min(small(&it.private)))
    }

    /// The extent that a size needs, if it has not been measured.
    pub(super) fn unknown(&self, kind: Kind, bytes: usize, buffers: Buffers) -> Option<Extent> {
        let wanted = match bytes {
            _ if bytes > 2 * LARGE => Extent::Huge,
            _ if bytes > SIZES[SIZES.len() - 1] => Extent::Large,
            _ => Extent::Usual,
        };
        (self.extent[index(kind)][buffers as usize] < wanted).then_some(wanted)
    }

    fn set(&mut self, kind: Kind, choice: Choice) {
        self.one_shot[index(kind)] = choice.one_shot;
        self.by_kind[index(kind)] = Some(choice);
    }

    fn range(&self, kind: Kind, bytes: usize, of: impl Fn(&Choice) -> &Vec<SizeRange>) -> Method {
        self.by_kind[index(kind)]
            .as_ref()
            .and_then(|it| pick(of(it), bytes))
            .unwrap_or(Method::Messages(usual(kind)))
    }

    pub(super) fn registered(&self, kind: Kind, bytes: usize) -> Manner {
        match self.range(kind, bytes, |it| &it.registered) {
            Method::Registered(manner) => manner,
            _ => Manner::PLAIN,
        }
    }

    pub(super) fn crossing(&self, kind: Kind, bytes: usize) -> Method {
        self.range(kind, bytes, |it| &it.crossing)
    }

    pub(super) fn private(&self, kind: Kind, bytes: usize) -> Method {
        self.range(kind, bytes, |it| &it.private)
    }

    pub(super) fn messages(&self, kind: Kind, bytes: usize) -> Method {
        self.range(kind, bytes, |it| &it.messages)
    }
}

impl Engine {
    /// Measures the methods of a collective and chooses. All ranks do this in the same call.
    pub(super) fn calibrate(&mut self, kind: Kind, extent: Extent, buffers: Buffers) -> Result<(), Halt> {
        let by_messages: Vec<Method> =
            Algorithm::ALL.into_iter().filter(|it| it.by_messages(kind)).map(Method::Messages).collect();
        let registered = [Manner::PLAIN, Manner::PAST].map(Method::Registered);
        let (crossing, private) = match kind {
            Kind::AllReduce => (
                [Manner::PLAIN, Manner::FINE].map(Method::Cross).to_vec(),
                [Manner::PAST, Manner::PLAIN, Manner::FINE].map(Method::Staged).to_vec(),
            ),
            _ => (vec![Method::Cross(Manner::PLAIN)], by_messages.clone()),
        };
        let mut methods = Vec::new();
        if let Some(direct) = &self.direct {
            methods.push(Method::OneShot);
            methods.extend(registered);
            if direct.has_cross_memory() {
                methods.extend(&crossing);
            }
            if kind == Kind::AllReduce || !direct.has_cross_memory() {
                methods.extend(&private);
            }
        } else {
            methods.extend(&by_messages);
        }
        // Past the caches before what leaves the buffers in them: it would be timed too fast afterwards.
        methods.sort_by_key(|it| !it.is_past_caches());
        if kind != Kind::Barrier && methods.len() > 1 {
            let known = self.choices.extent[index(kind)][buffers as usize];
            if known < Extent::Usual {
                self.measure(kind, &methods, &SIZES)?;
            }
            methods.retain(|it| match it {
                Method::OneShot => false,
                Method::Registered(_) => buffers == Buffers::Registered,
                _ => buffers == Buffers::Private,
            });
            for (step, bytes) in [(Extent::Large, LARGE), (Extent::Huge, HUGE)] {
                methods.retain(|it| self.choices.times[index(kind)].is_open(*it));
                // About four times as large as the one before.
                let slow = 4.0 * self.choices.times[index(kind)].longest(&methods) > LONG;
                // With one method there is nothing to choose.
                if methods.len() > 1 && known < step && step <= extent && !slow {
                    self.measure(kind, &methods, &[bytes])?;
                }
            }
        }
        let known = &mut self.choices.extent[index(kind)];
        // The usual sizes are measured for both.
        for it in known.iter_mut() {
            *it = (*it).max(Extent::Usual);
        }
        known[buffers as usize] = extent;
        let times = &self.choices.times[index(kind)];
        let mut choice = Choice::default();
        if self.direct.is_some() {
            choice.one_shot = times.one_shot();
            let direct = self.direct.as_ref();
            let weigh: Weigh<'_> = &|method, bytes| match method {
                Method::Registered(manner) | Method::Staged(manner) => match direct {
                    Some(it) if it.unmeasured(bytes) == manner => 1.0,
                    Some(it) if manner.store == Store::Plain && !it.may_be_cached(bytes) => f64::INFINITY,
                    _ => UNUSUAL,
                },
                Method::Cross(manner) if manner != Manner::PLAIN => UNUSUAL,
                Method::Cross(_) | Method::OneShot | Method::Messages(_) => 1.0,
            };
            choice.registered = times.ranges(&registered, LARGEST, weigh);
            let crossing: Vec<Method> = crossing.iter().chain(&private).copied().collect();
            choice.crossing = small_first(times, times.ranges(&crossing, LARGEST, weigh));
            choice.private = small_first(times, times.ranges(&private, LARGEST, weigh));
        } else {
            choice.messages = times.ranges(&by_messages, LARGEST, &|_, _| 1.0);
        }
        if kind != Kind::Barrier {
            self.log.choice(kind, &choice.describe());
        }
        self.choices.set(kind, choice);
        Ok(())
    }

    /// Whether a method can be the fastest for a call. The answer is the same on all ranks.
    fn applies(&self, method: Method, call: &Call) -> bool {
        let (bytes, size) = (call.largest(self.size()), self.size());
        let store = |manner: Manner| match (&self.direct, manner.store) {
            (Some(it), Store::Plain) => it.is_cached(bytes) || it.may_be_cached(bytes),
            (Some(it), Store::Streaming) => !it.is_cached(bytes),
            (None, _) => false,
        };
        match method {
            Method::OneShot => Direct::fits(call, size),
            Method::Registered(manner) => store(manner),
            Method::Cross(manner) => !manner.fine || bytes / size > FINE_PIECE,
            Method::Staged(manner) => store(manner) && (!manner.fine || bytes > FINE_STAGE),
            Method::Messages(_) => true,
        }
    }

    /// How often to time a size. The answer is the same on all ranks.
    fn runs(&self, bytes: usize) -> Runs {
        let warm = self.direct.is_some() && (CACHED..=LARGE).contains(&bytes);
        match (warm, self.oversubscription.is_some()) {
            (true, true) => FEW_WARM_RUNS,
            (true, false) => WARM_RUNS,
            (false, false) if bytes < LARGE => RUNS,
            (false, _) => FEW_RUNS,
        }
    }

    /// Times every method at growing sizes. The time of the slowest rank is used: a root may be done when it has sent.
    fn measure(&mut self, kind: Kind, methods: &[Method], sizes: &[usize]) -> Result<(), Halt> {
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let size = self.size();
        let mut private_send = varied(largest);
        let mut private_receive = private_send.clone();
        let mut methods = methods.to_vec();
        let shared = if methods.iter().any(|it| matches!(it, Method::Registered(_))) {
            let send = self.register_new(largest).map_err(Halt::Error)?;
            // SAFETY: a new segment of that many bytes, which the other ranks do not access before the next barrier.
            unsafe { send.start().copy_from_nonoverlapping(private_send.as_ptr(), largest) };
            Some((send, self.register_new(largest).map_err(Halt::Error)?))
        } else {
            None
        };
        let row = index(kind);
        // Every rank sends to the next one.
        let kind = match kind {
            Kind::SendReceive { .. } => {
                let rank = self.rank();
                Kind::SendReceive { to: (rank + 1) % size, from: (rank + size - 1) % size }
            }
            other => other,
        };
        for &bytes in sizes {
            let divided = matches!(
                kind,
                Kind::ReduceScatter | Kind::AllToAll | Kind::Scatter | Kind::AllGather | Kind::Gather
            );
            let count = if divided { bytes / size } else { bytes };
            if count == 0 {
                continue;
            }
            let plain = Call {
                kind,
                data: DataType::Uint8,
                operation: Operation::Max,
                root: 0,
                count,
                send: std::ptr::null(),
                receive: std::ptr::null_mut(),
            };
            let barrier = Call { kind: Kind::Barrier, count: 0, ..plain };
            let mut tries = Vec::new();
            for method in &methods {
                let (send, receive) = match (&shared, method) {
                    (Some((send, receive)), Method::Registered(_)) => (send.start(), receive.start()),
                    _ => (private_send.as_mut_ptr(), private_receive.as_mut_ptr()),
                };
                let call = Call { send: send.cast_const(), receive, ..plain };
                if self.applies(*method, &call) {
                    tries.push((*method, call, Vec::new()));
                }
            }
            let runs = self.runs(bytes);
            let calls = (RUN / bytes).clamp(1, CALLS);
            // In rounds, so that a disturbance of this machine affects all methods.
            for _ in 0..runs.rounds {
                for (method, call, took) in &mut tries {
                    // No rank starts while another is still in the run before.
                    self.attempt(&barrier)?;
                    // The first run finds cold caches and opens connections.
                    for run in 0..runs.warmup + runs.measured {
                        let begin = Instant::now();
                        for _ in 0..calls {
                            self.run_with(call, *method)?;
                        }
                        if run >= runs.warmup {
                            took.push(begin.elapsed().as_secs_f64() / to_f64(calls));
                        }
                    }
                }
            }
            let mut measured = Vec::new();
            let mut own_seconds = Vec::new();
            for (method, _, mut took) in tries {
                took.sort_by(f64::total_cmp);
                measured.push(Measured { method, seconds: 0.0 });
                // Below the median: other processes make a run longer, never shorter.
                own_seconds.extend(took[took.len() / 3].to_le_bytes());
            }
            let all = self.session.share(&own_seconds, "calibration").map_err(Halt::Error)?;
            for of_rank in &all {
                for (slowest, own) in measured.iter_mut().zip(of_rank.chunks_exact(8)) {
                    let own = own.try_into().map_or(0.0, f64::from_le_bytes);
                    slowest.seconds = slowest.seconds.max(own);
                }
            }
            let times = &mut self.choices.times[row];
            if bytes >= CACHED {
                times.leave_out(&measured);
                methods.retain(|it| times.is_open(*it));
            }
            times.add(plain.largest(size), measured);
            let longest = times.longest(&methods);
            // The next size is about four times as large.
            if 4.0 * longest > LONG {
                break;
            }
        }
        // Algorithms that were measured but not chosen may have needed much memory.
        for channel in &mut self.channels {
            channel.executor.shrink();
        }
        Ok(())
    }
}

/// Bytes that vary. Pages that were never written all map to one zero page, which is read too fast, and some processors write zeros past the
/// caches twice as fast as other values.
fn varied(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut all = vec![0; bytes];
    for word in all.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
    }
    all
}

/// Puts one shot first for the sizes at which it is fastest.
fn small_first(times: &Times, ranges: Vec<SizeRange>) -> Vec<SizeRange> {
    let mut small = 0;
    let mut bytes = 8;
    while bytes <= SMALL {
        let Some(other) = pick(&ranges, bytes) else { break };
        if times.fastest(&[Method::OneShot, other], bytes, &|_, _| 1.0) != Some(Method::OneShot) {
            break;
        }
        small = bytes;
        bytes *= 2;
    }
    let mut all = ranges;
    if small > 0 {
        all.retain(|it| it.up_to > small);
        all.insert(0, SizeRange { up_to: small, method: Method::OneShot });
    }
    all
}

/// A method with what is special about it, for the log.
fn manner_of(name: &str, manner: Manner) -> String {
    let store = if manner.store == Store::Streaming { " past the caches" } else { "" };
    let pieces = if manner.fine { " in small pieces" } else { "" };
    format!("{name}{pieces}{store}")
}

impl Choice {
    /// For the log: `oneshot to 2048 bytes, then on registered buffers: twoshot`.
    fn describe(&self) -> String {
        let ranges = |of: &[SizeRange]| -> String {
            let parts: Vec<String> = of
                .iter()
                .map(|SizeRange { up_to, method }| {
                    let name = match method {
                        Method::Cross(manner) => manner_of("twoshot by cross-memory attach", *manner),
                        Method::Staged(manner) => manner_of("twoshot through staging", *manner),
                        Method::Registered(manner) => manner_of("twoshot", *manner),
                        other => other.algorithm().name().to_owned(),
                    };
                    if *up_to == usize::MAX { name } else { format!("{name} to {up_to} bytes") }
                })
                .collect();
            parts.join(", ")
        };
        if !self.messages.is_empty() {
            return ranges(&self.messages);
        }
        let mut text = format!("oneshot to {} bytes, then on registered buffers: ", self.one_shot);
        text.push_str(&ranges(&self.registered));
        for (name, of) in [("reachable private", &self.crossing), ("private", &self.private)] {
            if !of.is_empty() {
                text.push_str(&format!("; {name} buffers: {}", ranges(of)));
            }
        }
        text
    }
}
