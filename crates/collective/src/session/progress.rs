//! Which call the user's thread is in, for ping rounds.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A collective call, without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CallKind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    Gather,
    Scatter,
    SendReceive,
    Barrier,
}

impl CallKind {
    pub(crate) const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendReceive,
        Self::Barrier,
    ];

    /// As nccl-tests names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendReceive => "sendrecv",
            Self::Barrier => "barrier",
        }
    }
}

/// The calls of this rank: written by the user's thread, read by the monitor.
///
/// It costs three plain stores per call.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Odd inside a call, even between calls: grows by two per call.
    step: AtomicU64,
    kind: AtomicU8,
    bytes: AtomicU64,
}

impl Progress {
    /// A call begins. `bytes` is the same on every rank that makes the same call.
    #[inline]
    pub(crate) fn begin(&self, kind: CallKind, bytes: usize) {
        self.kind.store(kind as u8, Ordering::Relaxed);
        self.bytes.store(bytes as u64, Ordering::Relaxed);
        let step = self.step.load(Ordering::Relaxed);
        self.step.store((step + 1) | 1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn end(&self) {
        let step = self.step.load(Ordering::Relaxed);
        self.step.store((step + 1) & !1, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> ProgressSnapshot {
        let kind = usize::from(self.kind.load(Ordering::Relaxed));
        let step = self.step.load(Ordering::Relaxed);
        ProgressSnapshot {
            step,
            kind: CallKind::ALL.get(kind).copied(),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// The progress of a rank at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgressSnapshot {
    /// Odd inside a call, even between calls: a rank with a lower step is behind.
    pub(crate) step: u64,
    /// `None` for a call that this release does not know.
    pub(crate) kind: Option<CallKind>,
    pub(crate) bytes: u64,
}

impl ProgressSnapshot {
    /// From the fields of a message.
    pub(crate) fn of(step: u64, kind: u8, bytes: u64) -> Self {
        Self { step, kind: CallKind::ALL.get(usize::from(kind)).copied(), bytes }
    }

    /// Whether the user's thread is inside a call.
    pub(crate) fn inside(self) -> bool {
        self.step % 2 == 1
    }

    /// The number of the call, from 1; 0 before the first.
    pub(crate) fn serial(self) -> u64 {
        self.step / 2 + self.step % 2
    }

    /// A description of the call: `all_reduce of 1048576 bytes`.
    pub(crate) fn call(self) -> String {
        match self.kind {
            _ if self.step == 0 => "no call yet".to_owned(),
            Some(CallKind::Barrier) => CallKind::Barrier.name().to_owned(),
            Some(kind) => format!("{} of {} bytes", kind.name(), self.bytes),
            None => "an unknown call".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_number_and_an_end() {
        let progress = Progress::default();
        assert_eq!((progress.now().serial(), progress.now().inside()), (0, false));
        assert_eq!(progress.now().call(), "no call yet");
        progress.begin(CallKind::AllReduce, 8);
        assert_eq!((progress.now().serial(), progress.now().inside()), (1, true));
        assert_eq!(progress.now().call(), "all_reduce of 8 bytes");
        progress.end();
        progress.end();
        assert_eq!((progress.now().serial(), progress.now().inside()), (1, false));
        progress.begin(CallKind::Barrier, 0);
        progress.begin(CallKind::Broadcast, 4);
        assert_eq!((progress.now().serial(), progress.now().inside()), (3, true));
    }

    #[test]
    fn kinds_are_read_as_sent() {
        for kind in CallKind::ALL {
            assert_eq!(ProgressSnapshot::of(1, kind as u8, 0).kind, Some(kind));
        }
        assert_eq!(ProgressSnapshot::of(1, 200, 0).call(), "an unknown call");
    }
}
