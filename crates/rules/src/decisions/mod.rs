//! What a log says NCCL decided, and what plumb predicts for the same job: the machine, the release, the variables and the layout are
//! taken from the logs, the prediction is compared with them line by line. `plumb topo --check` and the rules about decisions use it.

mod compare;
mod lines;
mod logs;
mod machine;
mod odd;
mod open;
mod outcome;
mod places;
mod question;
mod unstated;

use evidence::decided::DecidedKind;
use fabric::Version;
use fabric::catalogue::Model;
use fabric::gpu::GpuModel;
use job::{Description, LayoutFlags};

pub use compare::{Compared, Difference, Logged};
pub use lines::lines;
pub use logs::{LoggedCommunicator, Logs};
pub use outcome::slower;
pub(crate) use outcome::{Cause, Outcome, bandwidth, goes_farther};
use question::Question;

/// What flags say; each overrides the logs.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The machine that a file describes.
    pub described: Option<Description>,
    /// `--instance`
    pub instance: Option<&'static Model>,
    /// `--gpu`
    pub gpu: Option<&'static GpuModel>,
    /// `--nccl`
    pub nccl: Option<Version>,
    /// `--plugin`
    pub plugin: Option<Version>,
    /// `--env`
    pub environment: Vec<(String, String)>,
    /// `--nodes`, `--pods` and what goes with them.
    pub layout: LayoutFlags,
}

/// A communicator, compared with what is predicted for it.
#[derive(Debug, Clone, Default)]
pub struct CheckedCommunicator {
    /// `commId`
    pub id: Option<u64>,
    /// How many ranks it has.
    pub ranks: Option<u32>,
    /// Where the machine comes from.
    pub source: Option<String>,
    /// What was compared; `None` if nothing could be.
    pub compared: Option<Compared>,
    /// What there must be for that.
    pub missing: Vec<String>,
    /// Variables that the log does not show and with which every line is as predicted: `NCCL_MAX_NCHANNELS=8`.
    pub settings: Vec<String>,
    /// The release of NCCL that was compared with.
    pub nccl: Option<Version>,
    /// What was assumed.
    pub notes: Vec<String>,
}

impl Logs<'_> {
    /// The release of NCCL.
    pub fn version(&self, given: &Given) -> Option<Version> {
        given.nccl.or(self.job.releases.nccl.as_ref().map(|it| it.value))
    }

    /// Compares every communicator.
    pub fn check(&self, given: &Given) -> Vec<CheckedCommunicator> {
        self.communicators.iter().map(|it| self.check_one(it, given)).collect()
    }

    fn check_one(&self, communicator: &LoggedCommunicator, given: &Given) -> CheckedCommunicator {
        let LoggedCommunicator { id, ranks, .. } = *communicator;
        let mut checked = CheckedCommunicator { id, ranks, ..CheckedCommunicator::default() };
        let asked = match self.version(given) {
            Some(_) => Question::new(self, communicator, given).map(|it| (it, String::new())),
            None => unstated::of_any_release(self, communicator, given),
        };
        let (question, release) = match asked {
            Ok(it) => it,
            Err(missing) => {
                checked.missing = missing;
                return checked;
            }
        };
        checked.source = Some(question.source.clone());
        checked.nccl = Some(question.settings.version);
        checked.notes.extend(Some(release).filter(|it| !it.is_empty()));
        match question.best(&communicator.logged()) {
            Ok(answer) => {
                checked.notes.extend(answer.notes);
                checked.settings = answer.settings;
                checked.compared = Some(answer.compared);
            }
            Err(reason) => checked.missing.push(format!("a job that can be predicted: {reason}")),
        }
        if checked.compared.is_some() {
            let lacks = [
                (
                    DecidedKind::Graph,
                    "The log has no `Pattern` lines (subsystem GRAPH): the search is not compared.",
                ),
                (
                    DecidedKind::Table,
                    "The log has no tuning table (subsystem TUNING, rank 0): it is not compared.",
                ),
            ];
            let absent = lacks.iter().filter(|it| !communicator.has(it.0));
            checked.notes.extend(absent.map(|it| it.1.to_owned()));
        }
        checked
    }
}
