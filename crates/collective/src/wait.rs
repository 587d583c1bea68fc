//! Waiting for other ranks: spins while every rank has a core, yields otherwise, and stops when the job is aborted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// Tells all threads of a rank that the job has failed.
#[derive(Debug, Default)]
pub(crate) struct AbortFlag {
    raised: AtomicBool,
    verdict: Mutex<Option<Error>>,
}

impl AbortFlag {
    /// Sets the flag. The first error is kept.
    pub(crate) fn raise(&self, error: Error) {
        let mut verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        verdict.get_or_insert(error);
        self.raised.store(true, Ordering::Release);
    }

    /// One load, cheap enough for a spin loop.
    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// The error, if the flag is set.
    pub(crate) fn verdict(&self) -> Option<Error> {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How a rank waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitPolicy {
    /// For hosts with a core per rank.
    Spin,
    /// For hosts with more ranks than cores.
    Yield,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ready,
    /// The abort flag is set; it has the error.
    Aborted,
    TimedOut,
}

/// Waits with a timeout, and stops when the abort flag is set.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) abort_flag: Arc<AbortFlag>,
    pub(crate) policy: WaitPolicy,
    pub(crate) timeout: Duration,
}

/// Spins before the clock is read: about 50 us.
const SPINS: u32 = 2_000;
/// Spins before yielding, if ranks share cores.
const SHARED_SPINS: u32 = 20;
/// Yields before sleeping, if ranks share cores.
const YIELDS: u32 = 2_000;

/// One wait: call [`Pause::once`] after every unsuccessful check.
#[derive(Debug)]
pub(crate) struct Pause<'a> {
    waiter: &'a Waiter,
    turns: u32,
    began: Option<Instant>,
}

impl Waiter {
    #[inline]
    pub(crate) fn pause(&self) -> Pause<'_> {
        Pause { waiter: self, turns: 0, began: None }
    }

    /// Waits until `ready` returns true.
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
    /// Restarts the timeout after progress.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.turns = 0;
        self.began = None;
    }

    /// Spins, yields or sleeps; `Some` on timeout or abort.
    #[inline]
    pub(crate) fn once(&mut self) -> Option<Outcome> {
        self.turns = self.turns.saturating_add(1);
        let spins = match self.waiter.policy {
            WaitPolicy::Spin => SPINS,
            WaitPolicy::Yield => SHARED_SPINS,
        };
        if self.turns <= spins {
            std::hint::spin_loop();
            return self.waiter.abort_flag.is_raised().then_some(Outcome::Aborted);
        }
        self.longer(spins)
    }

    #[cold]
    fn longer(&mut self, spins: u32) -> Option<Outcome> {
        if self.waiter.abort_flag.is_raised() {
            return Some(Outcome::Aborted);
        }
        let past = self.turns - spins;
        if past <= YIELDS || self.waiter.policy == WaitPolicy::Spin {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
        // The clock is read rarely: it costs as much as a spin.
        if past.is_multiple_of(64) || past > YIELDS {
            let began = *self.began.get_or_insert_with(Instant::now);
            if began.elapsed() >= self.waiter.timeout {
                return Some(Outcome::TimedOut);
            }
        }
        None
    }
}
