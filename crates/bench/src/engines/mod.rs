//! The engines, and the loop that measures a collective on one of them. For Linux.

mod agree;
mod host;
mod measure;
mod memory;
pub mod nccl;
mod pattern;
mod sent;
mod verify;

pub use agree::agree;
pub use host::Host;
pub use measure::{Event, run};
pub use pattern::Pattern;
pub use verify::{Found, Part};

use collective::Communicator;
use fabric::Collective;

use crate::data::{DataType, EngineKind, Operation};
use crate::failure::{Cause, Failure};
use crate::run::Device;

/// One collective, with the arguments NCCL's function would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The collective.
    pub collective: Collective,
    /// The type of its elements.
    pub data_type: DataType,
    /// How they are combined, in collectives that reduce.
    pub operation: Operation,
    /// The rank that sends, or that gets the result, in collectives with a root.
    pub root: usize,
    /// Elements, counted as NCCL's argument does: what a rank sends in `all_gather`, gather and alltoall (to each), what it
    /// receives in `reduce_scatter` and scatter, the whole in the others.
    pub count: usize,
    /// Whether the data is sent from the receive buffer, at the offset NCCL expects.
    pub in_place: bool,
}

/// One of a rank's two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What is sent.
    Send,
    /// What is received, and sent too when in place.
    Receive,
}

impl From<collective::Error> for Failure {
    fn from(error: collective::Error) -> Self {
        let collective::Error { cause, rank, host, stage, detail, .. } = error;
        // A rank that ends the job for all sends its cause to the others.
        let sent = serde_json::from_str(&detail).ok();
        let cause = match (sent, cause) {
            (Some(sent), _) => sent,
            (None, collective::Cause::Died) => Cause::RankDied { detail },
            (None, collective::Cause::Silent) => Cause::RankSilent { detail },
            (None, collective::Cause::DidNotJoin) => Cause::RankDidNotJoin { detail },
            (None, collective::Cause::Reset) => Cause::ConnectionBroken { detail },
            (None, collective::Cause::Mismatch) => Cause::CallsDiffer { detail },
            (None, collective::Cause::Token) => Cause::WrongToken { detail },
            (None, collective::Cause::Version) => Cause::WrongRelease { detail },
            (None, collective::Cause::PortInUse) => Cause::PortInUse { detail },
            (None, collective::Cause::NoMemory) => Cause::NoSharedMemory { detail },
            (None, collective::Cause::Interrupted) => Cause::Interrupted { detail },
            (None, collective::Cause::Usage) => Cause::Usage { detail },
            (None, _) => Cause::System { detail },
        };
        Self { cause, rank, host, stage: Some(stage).filter(|it| !it.is_empty()) }
    }
}

/// Ends the job for all ranks; they get the cause.
pub(crate) fn abort(control: &mut Communicator, cause: &Cause) -> Failure {
    match serde_json::to_string(cause) {
        Ok(reason) => control.abort(&reason).into(),
        Err(error) => control.abort(&error.to_string()).into(),
    }
}

/// Runs collectives: over host memory, or NCCL on GPUs. Every rank has one, and all ranks make the same calls.
pub trait Engine {
    /// Which of the two it is.
    fn kind(&self) -> EngineKind;

    /// Its release, for the head of the table and the JSON: `plumb 0.1.0`, `NCCL 2.28.9`.
    fn version(&self) -> String;

    /// All ranks.
    fn devices(&self) -> &[Device];

    /// The control connection of the ranks, for exchanging results and for ending together.
    fn control(&mut self) -> &mut Communicator;

    /// Makes both buffers this large.
    fn allocate(&mut self, bytes: usize) -> Result<(), Failure>;

    /// Writes into a buffer.
    fn write(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// Reads from a buffer, after all that runs on it has ended.
    fn read(&mut self, side: Side, offset: usize, into: &mut [u8]) -> Result<(), Failure>;

    /// Sets the first bytes of a buffer.
    fn set(&mut self, side: Side, bytes: usize, value: u8) -> Result<(), Failure> {
        verify::set(self, side, bytes, value)
    }

    /// Writes what a rank sends.
    fn fill(&mut self, part: &Part) -> Result<(), Failure> {
        verify::fill(self, part)
    }

    /// Compares with what should have been received, after all that runs has ended. Indices count from the part's first element.
    fn compare(&mut self, part: &Part) -> Result<Found, Failure> {
        verify::compare(self, part)
    }

    /// Runs a collective `repeat` times in a row and returns the seconds they took together.
    fn run(&mut self, call: &Call, repeat: usize) -> Result<f64, Failure>;
}

#[cfg(test)]
mod tests {
    use super::{Cause, Failure};

    #[test]
    fn failures_of_the_job_keep_cause_rank_host_and_stage() {
        let error =
            collective::Error::new(collective::Cause::Died, "rendezvous", "its process ended").of(1, "a");
        let expected = Failure::new(Cause::RankDied { detail: "its process ended".to_owned() });
        assert_eq!(Failure::from(error), expected.of(1, Some("a")).during("rendezvous"));
    }

    #[test]
    fn a_cause_that_another_rank_sent_is_kept() {
        let cause = Cause::NcclTimeout { seconds: 60 };
        let detail = serde_json::to_string(&cause).expect("JSON");
        let error = collective::Error::new(collective::Cause::Interrupted, "", detail).of(3, "b");
        assert_eq!(Failure::from(error), Failure::new(cause).of(3, Some("b")));
    }
}
