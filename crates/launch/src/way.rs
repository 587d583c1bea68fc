//! How tasks reach their hosts: the contract of all ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::start::Signals;
use crate::{Ended, Error, Host, Placed, Request, Shown};

/// A way to start tasks on hosts: this machine ([`Here`](crate::Here)), ssh ([`Ssh`](crate::Ssh)), srun
/// inside an allocation ([`Srun`](crate::Srun)), kubectl ([`Kubernetes`](crate::Kubernetes)), or the processes of a launcher that started this one
/// ([`Inside`](crate::Inside)).
///
/// # The contract
/// 1. [`place`](Self::place) comes first, once for all hosts, and again for hosts that were lost or are new. A host that
///    cannot be used is reported as such and does not stop the others.
/// 2. [`run`](Self::run) starts the tasks of a request, waits for all of them, and reports each once, as it ends. A host
///    that is slow, refuses, asks for a password, prints banners or garbage, hangs or dies is the end of its own task
///    only. `run` itself fails only if nothing could be started: an invalid request, no `ssh` on this machine, no memory.
/// 3. A task that runs longer than the limit of its request is ended: SIGTERM to all its processes, SIGKILL two seconds
///    later. `run` returns at most ten seconds after the last limit, whatever a host does.
/// 4. When `stop` is set, or its signal arrives, all tasks that have not ended are ended in the same way and reported as
///    [`How::Cancelled`](crate::How::Cancelled); tasks that were not started are reported as well.
/// 5. When the connection to a host ends, for whatever reason (this process is killed, the network breaks), what was
///    started there ends, and the folder that `place` made there is removed. Nothing waits for a later clean-up. Where a
///    host cannot notice that the connection broke, tasks end at their limit.
/// 6. [`clean`](Self::clean) removes everything that is left, and tells for which hosts that could not be confirmed.
///    Call it at the end, after failures and after an interruption too; dropping the way does the same without telling.
/// 7. The answer of a task is what lies between two marks with a random token, so that what a shell prints before or
///    after it is no part of it. Output of any bytes and any length is accepted, and bounded in memory.
/// 8. No name, argument or variable is interpreted by a shell.
pub trait Way {
    /// For sentences: `ssh`, `srun`, `this machine`.
    fn name(&self) -> &'static str;

    /// Connects to these hosts and makes sure that each has the very file of this program: where the same file is found
    /// at the same path it is used, otherwise it is copied to a new folder of the host. A static program, which can load
    /// neither NCCL nor NVML, gives way to an installed plumb of its version where the NVIDIA driver is. Reports every host
    /// once.
    fn place(&mut self, hosts: &[Host], stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error>;

    /// Every command that [`place`](Self::place) would start where no connection of the user's can be shared.
    fn shown_placing(&mut self, hosts: &[Host]) -> Vec<Shown>;

    /// The script that the shells of [`shown_placing`](Self::shown_placing) read, where they read one: it finds or takes plumb, and removes
    /// it again.
    fn shown_script(&self) -> Option<String> {
        None
    }

    /// Every command that [`run`](Self::run) would start, in the order of the tasks.
    fn shown(&self, request: &Request) -> Vec<Shown>;

    /// Runs a request to its end.
    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error>;

    /// Ends what still runs and removes what was placed. Returns the hosts that did not confirm it. Takes at most ten
    /// seconds.
    fn clean(&mut self) -> Vec<Host>;
}

/// Ends a run early. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    set: AtomicBool,
    /// The number of the signal, or 0.
    signal: AtomicI32,
    signals: Option<Signals>,
}

impl Stop {
    /// Set by [`Self::set`] only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Set by SIGINT, SIGTERM and SIGHUP as well, which no longer end this process as long as a clone of it exists. Call
    /// it in the first thread before any other is started.
    pub fn on_signals() -> Result<Self, Error> {
        let signals = Some(Signals::block_ends()?);
        Ok(Self { shared: Arc::new(Shared { signals, ..Shared::default() }) })
    }

    /// Sets it.
    pub fn set(&self) {
        self.shared.set.store(true, Ordering::Relaxed);
    }

    /// Whether it is set. Reads a signal that has arrived.
    pub fn is_set(&self) -> bool {
        if let Some(signal) = self.shared.signals.as_ref().and_then(Signals::next) {
            self.shared.signal.store(signal.as_raw(), Ordering::Relaxed);
            self.set();
        }
        self.shared.set.load(Ordering::Relaxed)
    }

    /// The signal that set it.
    pub fn signal(&self) -> Option<i32> {
        Some(self.shared.signal.load(Ordering::Relaxed)).filter(|it| *it != 0)
    }
}
