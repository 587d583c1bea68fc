//! Collectives by NCCL on GPUs.
//!
//! NCCL and the CUDA driver are loaded when the engine is opened: the same binary runs where they are absent.
//! Every rank is a process with one GPU.

mod driver;
mod kernels;
mod layout;
mod library;
pub mod log;
pub mod output;
mod peer_info;
mod symbols;
mod worker;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use collective::Communicator;

pub use self::library::Version;

use self::driver::{Driver, Gpu, Memory};
use self::kernels::Kernels;
use self::layout::{Layout, Membership, Placed};
use self::library::Library;
use self::peer_info::{PeerInfo, Sent};
use self::worker::{Row, Worker};
use crate::data::EngineKind;
use crate::engines::{Call, Engine, Found, Part, Side, verify};
use crate::failure::{Cause, Exchange, Failure};
use crate::run::Device;

/// A static build (musl) has no dynamic loader, so neither the driver nor NCCL can be loaded.
const IS_STATIC: bool = cfg!(all(target_env = "musl", target_feature = "crt-static"));

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
/// others by `fork` alone must not call this.
pub fn present(library: Option<&Path>) -> Result<Presence, Failure> {
    let driver = Driver::load()?;
    let nccl = Library::load(library)?.version();
    let gpus = driver.devices()?;
    if gpus == 0 {
        return Err(Cause::NoGpu.into());
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
    /// The rank's number among those of its host: it takes the GPU of this number, beginning anew after the last.
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
    kernels: Kernels,
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
    /// If one of them cannot, all of them fail, with the same failure.
    pub fn open(mut control: Communicator, settings: &Settings) -> Result<Self, Failure> {
        let member = membership(&control);
        let prepared = prepare(member.rank, settings);
        let own: Sent = match &prepared {
            Ok((_, _, info)) => Ok(info.clone()),
            Err(failure) => Err(failure.cause.clone()),
        };
        let parts = control.share(&encoded(&own)?)?;
        let members: Vec<(String, u32)> =
            control.members().iter().map(|it| (it.host.clone(), it.pid)).collect();
        let (devices, unique_id) = peer_info::read(&parts, &members)?;
        let (library, gpu, _) = prepared?;
        let version = library.version();
        let worker = Worker::start(library, &gpu, member, settings.timeout)?;
        let joined = worker.join(unique_id, || watch(&control));
        let kernels = Kernels::new(&gpu)?;
        let mut engine = Self {
            control,
            worker,
            gpu,
            version,
            devices,
            kernels,
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
        drop((self.buffers, self.kernels));
        self.worker.leave(|| watch(&self.control))?;
        Ok(self.control)
    }

    /// Ends the job for all ranks. The job's own failure, if it has one already, says more.
    fn fail(&mut self, failure: &Failure) -> Failure {
        let late = self.worker.is_late();
        let failure = match (self.control.failure(), &failure.cause) {
            (Some(earlier), _) => earlier.into(),
            // The control connections find the rank that does not answer.
            (None, Cause::NcclTimeout { seconds }) if late => {
                let stage = failure.stage.as_deref().unwrap_or("NCCL");
                self.control.late(&format!("{stage}, after {seconds} s in NCCL")).into()
            }
            (None, cause) => super::abort(&mut self.control, cause),
        };
        self.over = Some(failure.clone());
        failure
    }

    fn memory(&self, side: Side) -> Result<&Memory, Failure> {
        if let Some(failure) = &self.over {
            return Err(failure.clone());
        }
        self.gpu.enter()?;
        let (send, receive) = self.buffers.as_ref().ok_or(Cause::OutsideBuffer { bytes: 0 })?;
        Ok(match side {
            Side::Send => send,
            Side::Receive => receive,
        })
    }
}

impl Engine for Nccl {
    fn kind(&self) -> EngineKind {
        EngineKind::Nccl
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
        let own: Result<(), Cause> = made.as_ref().map(|_| ()).map_err(|it| it.cause.clone());
        let parts = self.control.share(&encoded(&own)?)?;
        for (rank, part) in parts.iter().enumerate() {
            let cause = match serde_json::from_slice::<Result<(), Cause>>(part) {
                Ok(Ok(())) => continue,
                Ok(Err(cause)) => cause,
                Err(_) => Cause::BadExchange { problem: Exchange::Gpu },
            };
            let host = self.devices.get(rank).map(|it| it.host.as_str());
            return Err(Failure::new(cause).of(rank, host).during("buffers"));
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

    fn set(&mut self, side: Side, bytes: usize, value: u8) -> Result<(), Failure> {
        self.since = 0;
        self.memory(side)?.set(bytes, value)
    }

    fn fill(&mut self, part: &Part) -> Result<(), Failure> {
        self.since = 0;
        match self.kernels.of(&part.pattern)? {
            Ok(kernels) => kernels.fill(part, self.memory(part.side)?),
            Err(_) => verify::fill(self, part),
        }
    }

    fn compare(&mut self, part: &Part) -> Result<Found, Failure> {
        let reason = match self.kernels.of(&part.pattern)? {
            Ok(kernels) => match kernels.compare(part, self.memory(part.side)?)? {
                Some(found) => return Ok(found),
                None => "the GPU found a wrong element that the host finds right".to_owned(),
            },
            Err(reason) => reason,
        };
        Ok(Found { on_host: Some(reason), ..verify::compare(self, part)? })
    }

    /// Repetitions go through the buffers, each beside the one before, as in nccl-tests: of the first after a `write` the data
    /// lies at their beginning. So they go on from one run to the next: otherwise the GPU's cache would hold what runs of a few
    /// repetitions move, and a quarter less time be measured at a few MiB.
    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure> {
        let buffers = Placed {
            send: self.memory(Side::Send)?.address(),
            receive: self.memory(Side::Receive)?.address(),
        };
        let layout = Layout::of(call, membership(&self.control), buffers, self.bytes)?;
        let row = Row { call: *call, layout, first: self.since, repeat, blocking: self.blocking };
        self.since += repeat;
        let control = &self.control;
        match self.worker.run(row, || watch(control)) {
            Ok(seconds) => Ok(match self.clock {
                Clock::Device => seconds.device,
                Clock::Host => seconds.host,
            }),
            Err(failure) => Err(self.fail(&failure)),
        }
    }
}

fn membership(control: &Communicator) -> Membership {
    Membership { rank: control.rank(), size: control.size() }
}

/// Opens a rank's library and GPU, and collects what the other ranks must know of it.
fn prepare(rank: usize, settings: &Settings) -> Result<(Library, Arc<Gpu>, PeerInfo), Failure> {
    let driver = Driver::load()?;
    let library = Library::load(settings.library.as_deref())?;
    let chosen = env::var("NCCL_TESTS_DEVICE").ok();
    let device = device(settings.local_rank, driver.devices()?, chosen.as_deref())?;
    let gpu = Arc::new(Gpu::open(driver, device)?);
    let Version { major, minor, patch } = library.version();
    let unique_id = if rank == 0 { Some(library.unique_id()?.0.to_vec()) } else { None };
    let info = PeerInfo {
        device,
        bus: gpu.bus()?,
        name: gpu.name()?,
        nccl: [major, minor, patch],
        host_id: env::var("NCCL_HOSTID").ok(),
        unique_id,
    };
    Ok((library, gpu, info))
}

fn encoded(value: &impl serde::Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(value).map_err(|error| Cause::System { detail: error.to_string() }.into())
}

/// The number of a rank's GPU: the user's choice in `NCCL_TESTS_DEVICE`, otherwise its local rank.
fn device(local_rank: usize, gpus: usize, chosen: Option<&str>) -> Result<usize, Failure> {
    let by_rank = local_rank.checked_rem(gpus).ok_or(Cause::NoGpu)?;
    let Some(text) = chosen else { return Ok(by_rank) };
    let number = text.trim().parse::<usize>().ok().filter(|it| *it < gpus);
    number.ok_or_else(|| Cause::DeviceVariable { value: peer_info::plain(text), gpus }.into())
}

/// Fails when the job has failed.
fn watch(control: &Communicator) -> Result<(), Failure> {
    control.failure().map_or(Ok(()), |it| Err(it.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absence_of_the_driver_is_an_answer() {
        // On a machine with a GPU the engine is present; everywhere else the cause names what is missing.
        match present(None) {
            Ok(presence) => assert!(presence.gpus > 0 && presence.nccl >= Version::OLDEST),
            Err(failure) => {
                let absent = matches!(
                    failure.cause,
                    Cause::DriverMissing { .. } | Cause::NcclMissing { .. } | Cause::NoGpu
                );
                assert!(absent, "{failure:?}");
            }
        }
    }

    #[test]
    fn a_rank_takes_the_gpu_of_its_local_rank() {
        assert_eq!(device(1, 8, None), Ok(1));
        assert_eq!(device(9, 8, None), Ok(1));
        assert_eq!(device(3, 8, Some("5")), Ok(5));
        assert_eq!(device(0, 0, None), Err(Cause::NoGpu.into()));
        for value in ["8", "x"] {
            let wrong = Cause::DeviceVariable { value: value.to_owned(), gpus: 8 };
            assert_eq!(device(0, 8, Some(value)), Err(wrong.into()));
        }
    }
}
