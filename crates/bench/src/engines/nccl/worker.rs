//! The thread that talks to NCCL.
//!
//! NCCL waits for other ranks inside of its functions, and a rank that has died is waited for without end. So a thread of its
//! own calls them, and the rank's thread waits for its answer while it watches the job. NCCL's non-blocking mode does not
//! help: since 2.28 it starts a thread for every collective, which slows small ones.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::driver::{Event, Gpu};
use super::layout::{Layout, Membership};
use super::library::{Library, RawCommunicator, UniqueId};
use crate::engines::Call;
use crate::failure::{Cause, Failure};

/// How often the job is checked while NCCL works. An answer is taken at once.
const POLL: Duration = Duration::from_millis(10);
/// How long NCCL may take to give up what it is doing.
const ABORT: Duration = Duration::from_secs(1);
/// How often a row of collectives is checked while it is queued: seldom, as a check takes about a microsecond.
const ROW: usize = 64;
/// How much slower than those before the collectives of a row may be.
const SLOWER: f64 = 10.0;

/// How long a row of collectives took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seconds {
    /// Between two events on the GPU's stream.
    pub(super) device: f64,
    /// On the host's clock, from before the first was started until the end was seen.
    pub(super) host: f64,
}

/// A row of collectives.
pub(super) struct Row {
    pub(super) call: Call,
    pub(super) layout: Layout,
    /// The number of its first repetition.
    pub(super) first: usize,
    pub(super) repeat: usize,
    /// Whether each is waited for before the next is started.
    pub(super) blocking: bool,
}

/// What both threads see.
struct Shared {
    library: Library,
    gpu: Arc<Gpu>,
    begin: Event,
    first: Event,
    end: Event,
    member: Membership,
    timeout: Duration,
    /// Null before NCCL has joined, and after. Who takes it away ends it.
    communicator: AtomicPtr<std::ffi::c_void>,
    /// The rank has given up: what is still done is of no use.
    over: AtomicBool,
    deadline: Mutex<Instant>,
    /// What was run last, and the seconds that one of it took.
    pace: Mutex<Option<(Call, f64)>>,
}

/// The rank's end of the thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    jobs: Sender<Box<dyn FnOnce() + Send>>,
}

impl Worker {
    /// Starts the thread of this rank.
    pub(super) fn start(
        library: Library,
        gpu: &Arc<Gpu>,
        member: Membership,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            library,
            gpu: Arc::clone(gpu),
            begin: Event::new(gpu)?,
            first: Event::new(gpu)?,
            end: Event::new(gpu)?,
            member,
            timeout,
            communicator: AtomicPtr::new(ptr::null_mut()),
            over: AtomicBool::new(false),
            deadline: Mutex::new(Instant::now()),
            pace: Mutex::new(None),
        });
        let (jobs, todo) = channel::<Box<dyn FnOnce() + Send>>();
        let context = Arc::clone(gpu);
        thread::Builder::new()
            .name("nccl".into())
            .spawn(move || {
                // A context that cannot be entered shows in the first call.
                let _ = context.enter();
                for job in todo {
                    job();
                }
            })
            .map_err(|error| Cause::NcclThread { detail: error.to_string() })?;
        Ok(Self { shared, jobs })
    }

    /// Joins NCCL's communicator; `watch` fails when the job has failed meanwhile.
    pub(super) fn join(
        &self,
        unique_id: UniqueId,
        watch: impl FnMut() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.call("ncclCommInitRank", watch, move |shared| {
            let Membership { rank, size } = shared.member;
            let communicator = shared.library.join(unique_id, rank, size)?;
            shared.communicator.store(communicator, Ordering::Release);
            Ok(())
        })
    }

    /// Runs a row of collectives.
    pub(super) fn run(
        &self,
        row: Row,
        watch: impl FnMut() -> Result<(), Failure>,
    ) -> Result<Seconds, Failure> {
        self.call(row.call.collective.name(), watch, move |shared| shared.run(&row))
    }

    /// Whether the last call took longer than it may.
    pub(super) fn is_late(&self) -> bool {
        self.shared.in_time("").is_err()
    }

    /// Ends the communicator in peace.
    pub(super) fn leave(&self, watch: impl FnMut() -> Result<(), Failure>) -> Result<(), Failure> {
        self.call("ncclCommFinalize", watch, |shared| {
            let communicator = shared.communicator.swap(ptr::null_mut(), Ordering::AcqRel);
            if communicator.is_null() { Ok(()) } else { shared.library.leave(communicator) }
        })
    }

    /// Has the thread do something and waits for it, for the end of the job, or until it is too late.
    fn call<T: Send + 'static>(
        &self,
        stage: &str,
        mut watch: impl FnMut() -> Result<(), Failure>,
        job: impl FnOnce(&Shared) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let (answer, answers) = channel();
        let shared = Arc::clone(&self.shared);
        self.shared.allow(self.shared.timeout);
        let sent = self.jobs.send(Box::new(move || {
            // Nobody waits for it any more if the job has ended.
            let _ = answer.send(job(&shared));
        }));
        if sent.is_err() {
            return Err(thread_ended().during(stage));
        }
        loop {
            match answers.recv_timeout(POLL) {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) => {
                    self.abort();
                    return Err(failure.during(stage));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(thread_ended().during(stage));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let ended = watch().and_then(|()| self.shared.in_time(stage));
            if let Err(failure) = ended {
                self.give_up(&answers);
                return Err(failure);
            }
        }
    }

    /// Makes the thread stop, if it can, then NCCL.
    fn give_up<T>(&self, answers: &Receiver<T>) {
        self.shared.over.store(true, Ordering::Release);
        // The thread notices by itself, unless it is inside of NCCL.
        let _ = answers.recv_timeout(10 * POLL);
        self.abort();
    }

    /// Ends NCCL's communicator, within a second or in the background.
    fn abort(&self) {
        self.shared.over.store(true, Ordering::Release);
        let shared = Arc::clone(&self.shared);
        let (done, end) = channel();
        let started = thread::Builder::new().name("nccl abort".into()).spawn(move || {
            let communicator = shared.communicator.swap(ptr::null_mut(), Ordering::AcqRel);
            if !communicator.is_null() && shared.gpu.enter().is_ok() {
                shared.library.abort(communicator);
            }
            let _ = done.send(());
        });
        if started.is_ok() {
            let _ = end.recv_timeout(ABORT);
        }
    }
}

/// Without [`Worker::leave`] the others would wait for this rank.
impl Drop for Worker {
    fn drop(&mut self) {
        if !self.shared.communicator.load(Ordering::Acquire).is_null() {
            self.abort();
        }
    }
}

impl Shared {
    fn allow(&self, time: Duration) {
        // A day is never reached, and can be added to any clock.
        let time = time.min(Duration::from_secs(86_400));
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + time;
    }

    fn in_time(&self, stage: &str) -> Result<(), Failure> {
        if Instant::now() < *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(());
        }
        Err(Failure::new(Cause::NcclTimeout { seconds: self.timeout.as_secs() }).during(stage))
    }

    fn run(&self, row: &Row) -> Result<Seconds, Failure> {
        let communicator = self.communicator.load(Ordering::Acquire);
        // What was run just before needs no event after its first, which would come between two collectives.
        let mut known = match *self.pace.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((call, pace)) if call == row.call => {
                self.expect(pace, row.repeat);
                true
            }
            _ => row.repeat <= 1,
        };
        // The thread has slept: a first event wakes its core and the driver, the second counts.
        self.begin.record()?;
        self.wait(&self.begin, communicator)?;
        let began = Instant::now();
        self.begin.record()?;
        for repetition in 0..row.repeat {
            if self.over.load(Ordering::Relaxed) {
                return Err(ended());
            }
            let at = row.layout.at(row.first + repetition);
            self.library.start(&row.call, at, self.member, communicator, self.gpu.stream())?;
            if repetition == 0 && !known {
                self.first.record()?;
            }
            if row.blocking {
                self.end.record()?;
                self.wait(&self.end, communicator)?;
            }
            if !known && repetition % ROW == ROW - 1 && self.first.is_past()? {
                known = true;
                self.expect(self.first.since(&self.begin)?, row.repeat);
            }
        }
        self.end.record()?;
        if !known {
            self.wait(&self.first, communicator)?;
            self.expect(self.first.since(&self.begin)?, row.repeat);
        }
        self.wait(&self.end, communicator)?;
        let seconds = Seconds { host: began.elapsed().as_secs_f64(), device: self.end.since(&self.begin)? };
        #[expect(clippy::cast_precision_loss, reason = "a pace")]
        let pace = (row.call, seconds.device / row.repeat.max(1) as f64);
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = Some(pace);
        Ok(seconds)
    }

    /// Sets the deadline of a row by what one of its collectives takes.
    fn expect(&self, pace: f64, repeat: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a deadline")]
        let row = pace * SLOWER * repeat as f64;
        self.allow(self.timeout.saturating_add(Duration::try_from_secs_f64(row).unwrap_or(self.timeout)));
    }

    /// Waits for an event as nccl-tests does: polling the GPU and NCCL, and yielding to NCCL's own threads.
    fn wait(&self, event: &Event, communicator: RawCommunicator) -> Result<(), Failure> {
        while !event.is_past()? {
            if self.over.load(Ordering::Relaxed) {
                return Err(ended());
            }
            self.library.state(communicator)?;
            thread::yield_now();
        }
        Ok(())
    }
}

/// What a call returns that was given up: nobody reads it.
fn ended() -> Failure {
    Cause::Interrupted { detail: "the job has ended".to_owned() }.into()
}

fn thread_ended() -> Failure {
    Cause::NcclThread { detail: "the thread has ended".to_owned() }.into()
}
