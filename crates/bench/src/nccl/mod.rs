//! Collectives by NCCL on GPUs.
//!
//! NCCL and the CUDA driver are loaded when the engine is opened: the same binary runs where they are absent, and says so.
//! Every rank is a process with one GPU.

mod card;
mod driver;
mod layout;
mod library;
pub mod log;
pub mod output;
mod symbols;
mod worker;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use collective::Communicator;

pub use self::library::Version;

use self::card::{Card, Told};
use self::driver::{Driver, Gpu, Memory};
use self::layout::Layout;
use self::library::Library;
use self::worker::{Row, Worker};
use crate::engine::{Call, Device, Engine, Failure, Side};

/// What there is on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// NCCL's release.
    pub nccl: Version,
    /// The newest CUDA the driver can run: `13.0`.
    pub driver: String,
    /// GPUs this process may use.
    pub gpus: usize,
}

/// Whether the engine can run here, and with what.
///
/// `library` is NCCL's file, if it is known. Nothing of a GPU is used yet, but the driver is started: a process that will start
/// others by `fork` alone must not ask.
pub fn present(library: Option<&Path>) -> Result<Presence, Failure> {
    let driver = Driver::load()?;
    let nccl = Library::load(library)?.version();
    let gpus = driver.devices()?;
    if gpus == 0 {
        return Err(Failure("NCCL engine: the NVIDIA driver sees no GPU".into()));
    }
    Ok(Presence { nccl, driver: driver::version_text(driver.version()?), gpus })
}

/// What decides how long a collective took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// Events on the GPU's stream, before the first and after the last.
    #[default]
    Device,
    /// The host's clock, from before the first was started until the end of the last was seen, as nccl-tests has it.
    Host,
}

/// How the engine is opened.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The rank's place among those of its host: it takes the GPU of this number, beginning anew after the last.
    pub local_rank: usize,
    /// NCCL's file, where it is not in a usual place.
    pub library: Option<PathBuf>,
    /// How long the others are waited for.
    pub timeout: Duration,
}

/// The engine of one rank.
pub struct Nccl {
    control: Communicator,
    worker: Worker,
    gpu: Arc<Gpu>,
    version: Version,
    devices: Vec<Device>,
    buffers: Option<(Memory, Memory)>,
    bytes: usize,
    blocking: bool,
    clock: Clock,
    /// Repetitions since something was written: the next goes beside the last.
    since: usize,
    over: Option<Failure>,
}

impl Nccl {
    /// Opens this rank's GPU and joins the others. All ranks of `control` call it.
    ///
    /// If one of them cannot, all of them fail, with the same sentence.
    pub fn open(mut control: Communicator, settings: &Settings) -> Result<Self, Failure> {
        let place = (control.rank(), control.size());
        let prepared = prepare(place.0, settings);
        let told: Told = match &prepared {
            Ok((_, _, card)) => Ok(card.clone()),
            Err(failure) => Err(failure.0.clone()),
        };
        let told = serde_json::to_vec(&told).map_err(|error| Failure(error.to_string()))?;
        let parts = control.share(&told)?;
        let members: Vec<(String, u32)> =
            control.members().iter().map(|it| (it.host.clone(), it.pid)).collect();
        let (devices, meeting) = card::read(&parts, &members)?;
        let (library, gpu, _) = prepared?;
        let version = library.version();
        let worker = Worker::start(library, &gpu, place, settings.timeout)?;
        let joined = worker.join(meeting, || look(&control));
        let mut engine = Self {
            control,
            worker,
            gpu,
            version,
            devices,
            buffers: None,
            bytes: 0,
            blocking: false,
            clock: Clock::default(),
            since: 0,
            over: None,
        };
        match joined {
            Ok(()) => Ok(engine),
            Err(failure) => Err(engine.fail(&failure)),
        }
    }

    /// Whether each collective of a row is waited for before the next is started: nccl-tests' `-z`.
    pub fn set_blocking(&mut self, blocking: bool) {
        self.blocking = blocking;
    }

    /// Which clock decides.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// Leaves NCCL in peace and gives the ranks' channel back. All ranks call it.
    pub fn close(self) -> Result<Communicator, Failure> {
        if let Some(failure) = self.over {
            return Err(failure);
        }
        self.gpu.enter()?;
        drop(self.buffers);
        self.worker.leave(|| look(&self.control))?;
        Ok(self.control)
    }

    /// Ends the job for all ranks. Its own verdict, if there is one already, is the better sentence.
    fn fail(&mut self, failure: &Failure) -> Failure {
        let late = self.worker.is_late();
        let verdict = match self.control.failure() {
            Some(verdict) => verdict,
            // The others are asked who it is that does not answer.
            None if late => self.control.late(&failure.0),
            None => self.control.abort(&failure.0),
        };
        let failure = Failure::from(verdict);
        self.over = Some(failure.clone());
        failure
    }

    fn memory(&self, side: Side) -> Result<&Memory, Failure> {
        if let Some(failure) = &self.over {
            return Err(failure.clone());
        }
        self.gpu.enter()?;
        let (send, receive) =
            self.buffers.as_ref().ok_or_else(|| Failure("there are no buffers yet".into()))?;
        Ok(match side {
            Side::Send => send,
            Side::Receive => receive,
        })
    }
}

impl Engine for Nccl {
    fn name(&self) -> &'static str {
        "nccl"
    }

    fn version(&self) -> String {
        format!("NCCL {}", self.version)
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn control(&mut self) -> &mut Communicator {
        &mut self.control
    }

    fn allocate(&mut self, bytes: usize) -> Result<(), Failure> {
        if let Some(failure) = &self.over {
            return Err(failure.clone());
        }
        self.gpu.enter()?;
        self.buffers = None;
        let made =
            Memory::zeroed(&self.gpu, bytes).and_then(|send| Ok((send, Memory::zeroed(&self.gpu, bytes)?)));
        // All have their buffers, or all know who has not.
        let text = made.as_ref().err().map(|it| it.0.clone()).unwrap_or_default();
        let texts = self.control.share(text.as_bytes())?;
        if let Some((rank, why)) = texts.iter().enumerate().find(|it| !it.1.is_empty()) {
            let host = self.devices.get(rank).map(|it| it.host.as_str()).unwrap_or_default();
            return Err(Failure(format!(
                "rank {rank} on {host}: {}",
                card::plain(&String::from_utf8_lossy(why))
            )));
        }
        self.buffers = Some(made?);
        self.bytes = bytes;
        Ok(())
    }

    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.since = 0;
        self.memory(side)?.write(offset, bytes)
    }

    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        self.memory(side)?.read(offset, into)
    }

    /// Repetitions go through the buffers, each beside the one before, as in nccl-tests: of the first after a `write` the data
    /// lies at their beginning. So they go on from one run to the next: otherwise the GPU's cache would hold what runs of a few
    /// repetitions move, and a quarter less time be measured at a few MiB.
    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
        let addresses = (self.memory(Side::Send)?.address(), self.memory(Side::Receive)?.address());
        let place = (self.control.rank(), self.control.size());
        let layout = Layout::of(call, place, addresses, self.bytes)?;
        let row = Row { call: *call, layout, first: self.since, repeat, blocking: self.blocking };
        self.since += repeat;
        let control = &self.control;
        match self.worker.run(row, || look(control)) {
            Ok(seconds) => Ok(match self.clock {
                Clock::Device => seconds.device,
                Clock::Host => seconds.host,
            }),
            Err(failure) => Err(self.fail(&failure)),
        }
    }
}

/// What a rank does before the others must know: its library, its GPU, its card.
fn prepare(rank: usize, settings: &Settings) -> Result<(Library, Arc<Gpu>, Card), Failure> {
    let driver = Driver::load()?;
    let library = Library::load(settings.library.as_deref())?;
    let chosen = env::var("NCCL_TESTS_DEVICE").ok();
    let device = device(settings.local_rank, driver.devices()?, chosen.as_deref())?;
    let gpu = Arc::new(Gpu::open(driver, device)?);
    let Version { major, minor, patch } = library.version();
    let meeting = if rank == 0 { Some(library.unique_id()?.0.to_vec()) } else { None };
    let card = Card {
        device,
        bus: gpu.bus()?,
        name: gpu.name()?,
        nccl: [major, minor, patch],
        host_id: env::var("NCCL_HOSTID").ok(),
        meeting,
    };
    Ok((library, gpu, card))
}

/// The number of a rank's GPU: the user's choice in `NCCL_TESTS_DEVICE`, else its place on the host.
fn device(local_rank: usize, gpus: usize, chosen: Option<&str>) -> Result<usize, Failure> {
    let number = match chosen {
        None => local_rank.checked_rem(gpus),
        Some(text) => {
            let number = text
                .trim()
                .parse::<usize>()
                .map_err(|_| Failure(format!("NCCL_TESTS_DEVICE={text} is no number")))?;
            (number < gpus).then_some(number)
        }
    };
    number.ok_or_else(|| match chosen {
        Some(text) if gpus > 0 => {
            Failure(format!("NCCL_TESTS_DEVICE={text}, and the highest GPU is {}", gpus - 1))
        }
        _ => Failure("NCCL engine: the NVIDIA driver sees no GPU".into()),
    })
}

/// Whether the job still runs.
fn look(control: &Communicator) -> Result<(), Failure> {
    control.failure().map_or(Ok(()), |it| Err(it.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_of_the_driver_is_an_answer() {
        // On a machine with a GPU the engine is present; everywhere else the sentence names what is missing.
        match present(None) {
            Ok(presence) => assert!(presence.gpus > 0 && presence.nccl >= Version::OLDEST),
            Err(Failure(text)) => {
                let known =
                    ["libcuda.so.1 is not on this machine", "sees no GPU", "libnccl.so.2 was not found"];
                assert!(
                    text.starts_with("NCCL engine: ") && known.iter().any(|it| text.contains(it)),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn a_rank_takes_the_gpu_of_its_place() {
        assert_eq!(device(1, 8, None), Ok(1));
        assert_eq!(device(9, 8, None), Ok(1));
        assert_eq!(device(3, 8, Some("5")), Ok(5));
        assert!(device(0, 0, None).is_err_and(|it| it.0.contains("sees no GPU")));
        assert!(
            device(0, 8, Some("8")).is_err_and(|it| it.0 == "NCCL_TESTS_DEVICE=8, and the highest GPU is 7")
        );
        assert!(device(0, 8, Some("x")).is_err_and(|it| it.0 == "NCCL_TESTS_DEVICE=x is no number"));
    }
}
