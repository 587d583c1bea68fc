//! Choosing: what was measured when a collective came for the first time decides how it is done later.

use std::time::Instant;

use super::{Engine, Halt, usual};
use crate::call::Call;
use crate::model::{Method, Times, pick};
use crate::schedule::Kind;
use crate::shm::{Direct, SMALL};
use crate::{Algorithm, DataType, Operation};

/// Sizes that are measured when a collective comes for the first time, until one takes too long.
const SIZES: [usize; 7] = [64, 1 << 10, 8 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The size that is measured when more than the largest of those comes: far beyond every cache.
const HUGE: [usize; 1] = [32 << 20];
/// Seconds that no run may take; a size that would is not measured.
const LONG: f64 = 0.05;
/// Timed runs of a method at a size.
const RUNS: usize = 9;
/// The same where a run takes milliseconds.
const HUGE_RUNS: usize = 3;
/// The largest size that ranges are made for; beyond it the last one holds.
const LARGEST: usize = 1 << 30;

/// What was decided for one collective.
#[derive(Debug, Clone, Default)]
struct Choice {
    /// Up to so many bytes, one shot.
    one_shot: usize,
    /// Private buffers that can be reached.
    crossing: Vec<(usize, Method)>,
    /// Private buffers that cannot.
    private: Vec<(usize, Method)>,
    /// Between hosts.
    messages: Vec<(usize, Method)>,
}

/// How far a collective has been measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Extent {
    #[default]
    Nothing,
    /// Up to the largest of the usual sizes.
    Usual,
    /// As far as it pays.
    All,
}

/// What was decided so far.
#[derive(Debug, Default)]
pub(super) struct Choices {
    times: [Times; KINDS],
    extent: [Extent; KINDS],
    /// One shot up to so many bytes, by collective: looked at in every call.
    one_shot: [usize; KINDS],
    by_kind: [Option<Choice>; KINDS],
}

const KINDS: usize = 10;

/// A collective's place in tables.
#[inline]
fn index(kind: Kind) -> usize {
    match kind {
        Kind::AllReduce => 0,
        Kind::AllGather => 1,
        Kind::ReduceScatter => 2,
        Kind::Broadcast => 3,
        Kind::Reduce => 4,
        Kind::AllToAll => 5,
        Kind::Gather => 6,
        Kind::Scatter => 7,
        Kind::SendReceive { .. } => 8,
        Kind::Barrier => 9,
    }
}

impl Choices {
    #[inline]
    pub(super) fn one_shot(&self, kind: Kind) -> usize {
        self.one_shot[index(kind)]
    }

    /// How far a size needs measuring that has not been done.
    pub(super) fn unknown(&self, kind: Kind, bytes: usize) -> Option<Extent> {
        let wanted = if bytes > SIZES[SIZES.len() - 1] { Extent::All } else { Extent::Usual };
        (self.extent[index(kind)] < wanted).then_some(wanted)
    }

    fn set(&mut self, kind: Kind, choice: Choice) {
        self.one_shot[index(kind)] = choice.one_shot;
        self.by_kind[index(kind)] = Some(choice);
    }

    fn range(&self, kind: Kind, bytes: usize, of: impl Fn(&Choice) -> &Vec<(usize, Method)>) -> Method {
        self.by_kind[index(kind)]
            .as_ref()
            .and_then(|it| pick(of(it), bytes))
            .unwrap_or(Method::Messages(usual(kind)))
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
    /// Measures the ways to do a collective and decides; all ranks come here in the same call.
    pub(super) fn calibrate(&mut self, kind: Kind, extent: Extent) -> Result<(), Halt> {
        let by_messages: Vec<Method> =
            Algorithm::ALL.into_iter().filter(|it| it.by_messages(kind)).map(Method::Messages).collect();
        let mut methods = Vec::new();
        if let Some(direct) = &self.direct {
            methods.push(Method::OneShot);
            methods.push(Method::Registered);
            if direct.crosses() {
                methods.push(Method::Cross);
            }
            if kind == Kind::AllReduce {
                methods.push(Method::Staged);
            } else if !direct.crosses() {
                methods.extend(&by_messages);
            }
        } else {
            methods.extend(&by_messages);
        }
        if kind != Kind::Barrier && methods.len() > 1 {
            if self.choices.extent[index(kind)] == Extent::Nothing {
                // Where ranks wait for cores a run takes long; all ranks know whether they do.
                let runs = if self.crowd.is_some() { HUGE_RUNS } else { RUNS };
                self.measure(kind, &methods, &SIZES, runs)?;
            }
            let slow = 8.0 * self.choices.times[index(kind)].longest() > LONG;
            if extent == Extent::All && !slow {
                // Registered buffers have one way only at these sizes.
                methods.retain(|it| !matches!(it, Method::OneShot | Method::Registered));
                self.measure(kind, &methods, &HUGE, HUGE_RUNS)?;
            }
        }
        self.choices.extent[index(kind)] = extent;
        let times = &self.choices.times[index(kind)];
        let mut choice = Choice::default();
        if self.direct.is_some() {
            choice.one_shot = times.one_shot();
            let all = if kind == Kind::AllReduce { &[Method::Staged][..] } else { &by_messages };
            let crossing: Vec<Method> = [Method::Cross].iter().chain(all).copied().collect();
            choice.crossing = small_first(times, times.ranges(&crossing, LARGEST));
            choice.private = small_first(times, times.ranges(all, LARGEST));
        } else {
            choice.messages = times.ranges(&by_messages, LARGEST);
        }
        if kind != Kind::Barrier {
            self.log.choice(kind, &choice.describe());
        }
        self.choices.set(kind, choice);
        Ok(())
    }

    /// Times every method at growing sizes. What rank 0 sees counts for all.
    fn measure(&mut self, kind: Kind, methods: &[Method], sizes: &[usize], runs: usize) -> Result<(), Halt> {
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let size = self.size();
        // Written to: pages that never were are all the same one, and read too fast.
        let mut private = (vec![1_u8; largest], vec![1_u8; largest]);
        let shared = if methods.contains(&Method::Registered) {
            let send = self.register_new(largest).map_err(Halt::Error)?;
            Some((send, self.register_new(largest).map_err(Halt::Error)?))
        } else {
            None
        };
        let place = index(kind);
        // Everyone sends to the next, as good as any.
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
            let mut row = Vec::new();
            let mut told = Vec::new();
            for method in methods {
                let (send, receive) = match (&shared, method) {
                    (Some((send, receive)), Method::Registered) => (send.start(), receive.start()),
                    _ => (private.0.as_mut_ptr(), private.1.as_mut_ptr()),
                };
                let call = Call {
                    kind,
                    data: DataType::Uint8,
                    operation: Operation::Max,
                    root: 0,
                    count,
                    send: send.cast_const(),
                    receive,
                };
                if *method == Method::OneShot && !Direct::fits(&call, size) {
                    continue;
                }
                let mut took = Vec::with_capacity(runs);
                for run in 0..=runs {
                    let begin = Instant::now();
                    self.by(&call, *method)?;
                    // The first finds cold memory and makes connections.
                    if run > 0 {
                        took.push(begin.elapsed().as_secs_f64());
                    }
                }
                took.sort_by(f64::total_cmp);
                row.push(*method);
                told.extend(took[runs / 2].to_le_bytes());
            }
            let all = self.session.share(&told, "calibration").map_err(Halt::Error)?;
            let seconds: Vec<f64> = all
                .first()
                .map(|it| {
                    it.chunks_exact(8).filter_map(|it| it.try_into().ok().map(f64::from_le_bytes)).collect()
                })
                .unwrap_or_default();
            let longest = seconds.iter().copied().fold(0.0, f64::max);
            self.choices.times[place].add(bytes, row.into_iter().zip(seconds).collect());
            // The next size is about four times as large.
            if 4.0 * longest > LONG {
                break;
            }
        }
        Ok(())
    }
}

/// Puts one shot before other methods where it is faster and fits.
fn small_first(times: &Times, ranges: Vec<(usize, Method)>) -> Vec<(usize, Method)> {
    let mut small = 0;
    let mut bytes = 8;
    while bytes <= SMALL {
        let Some(other) = pick(&ranges, bytes) else { break };
        if times.fastest(&[Method::OneShot, other], bytes) != Some(Method::OneShot) {
            break;
        }
        small = bytes;
        bytes *= 2;
    }
    let mut all = ranges;
    if small > 0 {
        all.retain(|(upto, _)| *upto > small);
        all.insert(0, (small, Method::OneShot));
    }
    all
}

impl Choice {
    /// For the log: `oneshot to 2048, twoshot above`.
    fn describe(&self) -> String {
        let ranges = |of: &[(usize, Method)]| -> String {
            let parts: Vec<String> = of
                .iter()
                .map(|(upto, method)| {
                    let name = match method {
                        Method::Cross => "twoshot by cross-memory attach",
                        Method::Staged => "twoshot through staging",
                        other => other.algorithm().name(),
                    };
                    if *upto == usize::MAX { name.to_owned() } else { format!("{name} to {upto} bytes") }
                })
                .collect();
            parts.join(", ")
        };
        if !self.messages.is_empty() {
            return ranges(&self.messages);
        }
        let mut text = format!("oneshot to {} bytes, twoshot on registered buffers", self.one_shot);
        for (name, of) in [("reachable private", &self.crossing), ("private", &self.private)] {
            if !of.is_empty() {
                text.push_str(&format!("; {name} buffers: {}", ranges(of)));
            }
        }
        text
    }
}
