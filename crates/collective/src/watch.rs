//! Waiting: spinning while cores are free, yielding when they are not, and ending when the job has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// Tells every thread of a rank that the job is over.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    raised: AtomicBool,
    verdict: Mutex<Option<Error>>,
}

impl Alarm {
    /// Ends the job for this rank. The first verdict stays.
    pub(crate) fn raise(&self, error: Error) {
        let mut verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        verdict.get_or_insert(error);
        self.raised.store(true, Ordering::Release);
    }

    /// Whether it was raised: one load, cheap enough for a spin.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Why.
    pub(crate) fn verdict(&self) -> Option<Error> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How a rank waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Every rank of this host has a core of its own.
    Spin,
    /// Ranks share cores: whoever waits gives way.
    Yield,
}

/// What a wait came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// What was waited for is there.
    Ready,
    /// The alarm was raised; it has the verdict.
    Alarm,
    /// Nothing happened for the whole timeout.
    Late,
}

/// Waits for others without missing the end of the job.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) patience: Patience,
    pub(crate) timeout: Duration,
}

/// Looks before the first one at the clock: about 50 us.
const SPINS: u32 = 2_000;
/// Pauses before giving way where ranks share cores.
const SHARED_SPINS: u32 = 20;
/// Turns given away before sleeping where ranks share cores.
const YIELDS: u32 = 2_000;

/// One wait: call [`Pause::once`] after every look that found nothing.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    watch: &'a Watch,
    turns: u32,
    began: Option<Instant>,
}

impl Watch {
    /// Begins a wait.
    #[inline]
    pub(crate) fn pause(&self) -> Pause<'_> {
        Pause { watch: self, turns: 0, began: None }
    }

    /// Waits until `ready` says so.
    #[inline]
    pub(crate) fn until(&self, mut ready: impl FnMut() -> bool) -> Outcome {
        let mut pause = self.pause();
        loop {
            if ready() {
                return Outcome::Ready;
            }
            if let Some(end) = pause.once() {
                return end;
            }
        }
    }
}

impl Pause<'_> {
    /// Begins anew after progress.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.turns = 0;
        self.began = None;
    }

    /// Lets a moment pass; `Some` when waiting is over without success.
    #[inline]
    pub(crate) fn once(&mut self) -> Option<Outcome> {
        self.turns = self.turns.saturating_add(1);
        let spins = match self.watch.patience {
            Patience::Spin => SPINS,
            Patience::Yield => SHARED_SPINS,
        };
        if self.turns <= spins {
            std::hint::spin_loop();
            return self.watch.alarm.is_raised().then_some(Outcome::Alarm);
        }
        self.longer(spins)
    }

    #[cold]
    fn longer(&mut self, spins: u32) -> Option<Outcome> {
        if self.watch.alarm.is_raised() {
            return Some(Outcome::Alarm);
        }
        let past = self.turns - spins;
        if past <= YIELDS || self.watch.patience == Patience::Spin {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        // The clock is read seldom: it costs as much as a turn.
        if past.is_multiple_of(64) || past > YIELDS {
            let began = *self.began.get_or_insert_with(Instant::now);
            if began.elapsed() >= self.watch.timeout {
                return Some(Outcome::Late);
            }
        }
        None
    }
}
