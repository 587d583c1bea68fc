//! The other load of the machine during the benchmark.

use std::time::Duration;

/// Times of all processors since boot, in ticks.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    all: u64,
    idle: u64,
    stolen: u64,
}

/// Shares of the machine's processors over many turns.
#[derive(Default)]
pub(crate) struct Load {
    all: u64,
    idle: u64,
    stolen: u64,
    own: Duration,
}

impl Clock {
    /// Now. The first line of `/proc/stat`: `cpu user nice system idle iowait irq softirq steal ...`.
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // The two after `steal` are parts of `user` and `nice`.
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).map(|it| it.parse().unwrap_or(0)).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        Self { all: ticks.iter().sum(), idle: at(3) + at(4), stolen: at(7) }
    }
}

impl Load {
    /// Adds a turn that began at `start` and ends now, of which `own` went to the ranks measured.
    pub(crate) fn add(&mut self, start: Clock, own: Duration) {
        let now = Clock::now();
        self.all += now.all.saturating_sub(start.all);
        self.idle += now.idle.saturating_sub(start.idle);
        self.stolen += now.stolen.saturating_sub(start.stolen);
        self.own += own;
    }

    /// The share that other processes of this machine used.
    pub(crate) fn others(&self) -> f64 {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let busy = self.all.saturating_sub(self.idle).saturating_sub(self.stolen) as f64;
        ((busy - self.own.as_secs_f64() * ticks) / self.all.max(1) as f64).max(0.0)
    }

    /// The share that the hypervisor gave to other machines.
    pub(crate) fn stolen(&self) -> f64 {
        self.stolen as f64 / self.all.max(1) as f64
    }
}
