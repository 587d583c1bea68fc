//! What a rule about logs sees: the facts, the job they show, and what NCCL and its bandwidth should be there.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use evidence::recorder::{FlightDump, RasStatus};
use evidence::{Case, Communicator, Kind, Missing, Process, Quote, Sighting, Signal, Source};
use job::{Hardware, Job};
use serde_json::Value;

use crate::decisions::Outcome;
use crate::expected::Expected;
use crate::training::{Logged, Priced};

/// The logs of a job.
#[derive(Debug)]
pub struct Log {
    /// The facts.
    pub case: Case,
    /// The job that they show.
    pub job: Job,
    expected: OnceLock<Option<Expected>>,
    setups: Vec<(String, Vec<u8>)>,
    decisions: OnceLock<Result<Outcome, Missing>>,
    /// A job file of `plumb predict`, as far as one was given.
    training: Value,
    priced: OnceLock<Option<Priced>>,
}

impl Log {
    /// The job of these facts, ready to be judged.
    pub fn new(case: Case) -> Self {
        Self::on(case, &Hardware::default())
    }

    /// The job of these facts on the machine that flags name.
    pub fn on(case: Case, given: &Hardware) -> Self {
        let job = Job::of_case_on(&case, given);
        Self {
            case,
            job,
            expected: OnceLock::new(),
            setups: Vec::new(),
            decisions: OnceLock::new(),
            training: Value::Null,
            priced: OnceLock::new(),
        }
    }

    /// Adds what a job file says about the training job: with it, findings say what they cost in every step.
    #[must_use]
    pub fn with_training(mut self, job_file: Value) -> Self {
        self.training = job_file;
        self
    }

    /// The training job, where log and job file say enough to predict it.
    pub(crate) fn priced(&self) -> Option<&Priced> {
        self.priced.get_or_init(|| Priced::of(&Logged::of(self), &self.training)).as_ref()
    }

    /// Adds the beginning of logs, each with its name, up to the end of a rank's setup: the system that NCCL printed is in no fact.
    /// [`Log::setup`] says which.
    #[must_use]
    pub fn with_setups(mut self, setups: Vec<(String, Vec<u8>)>) -> Self {
        self.setups = setups;
        self
    }

    /// Files and the last line of the setup of one rank of each node of the largest communicator that is in them, the first rank first.
    pub fn setup(&self) -> Vec<(&str, u64)> {
        let mut hosts: BTreeSet<&str> = BTreeSet::new();
        let mut files: Vec<(&str, u64)> = Vec::new();
        let members = self.case.world().into_iter().flat_map(|it| it.members.values());
        for member in members.filter(|it| it.facts.channels.is_some()) {
            let host = self.case.processes.get(member.process).map_or("", |it| &*it.host);
            if !hosts.insert(host) {
                continue;
            }
            let spots = [member.facts.complete.as_ref(), member.facts.channels.as_ref().map(|it| &it.quote)];
            let Some(last) = spots.into_iter().flatten().map(|it| it.spot).max() else { continue };
            files.push(self.case.sources.locate(last));
        }
        files
    }

    pub(crate) fn setups(&self) -> &[(String, Vec<u8>)] {
        &self.setups
    }

    /// What NCCL decided for the largest communicator, and what it would decide otherwise.
    pub(crate) fn decisions(&self) -> Result<&Outcome, Missing> {
        self.decisions.get_or_init(|| Outcome::of(self)).as_ref().map_err(|it| *it)
    }

    /// What the machine and this NCCL should do. `None` where it is not known which machine it is.
    pub(crate) fn expected(&self) -> Option<&Expected> {
        self.expected.get_or_init(|| Expected::of(&self.job)).as_ref()
    }

    /// The processes, if there are NCCL lines.
    pub(crate) fn nccl_log(&self) -> Result<&[Process], Missing> {
        if self.case.processes.is_empty() { Err(Missing(Source::NcclLog)) } else { Ok(&self.case.processes) }
    }

    /// The communicators, if there are lines that show connections.
    pub(crate) fn connections(&self) -> Result<&[Communicator], Missing> {
        self.nccl_log()?;
        if self.case.communicators.iter().any(|it| it.links().next().is_some()) {
            Ok(&self.case.communicators)
        } else {
            Err(Missing(Source::Connections))
        }
    }

    /// The dumps of PyTorch's Flight Recorder.
    pub(crate) fn dumps(&self) -> Result<&[FlightDump], Missing> {
        if self.case.dumps.is_empty() { Err(Missing(Source::FlightRecorder)) } else { Ok(&self.case.dumps) }
    }

    /// The answers of NCCL's RAS service.
    pub(crate) fn ras(&self) -> Result<&[RasStatus], Missing> {
        if self.case.ras.is_empty() { Err(Missing(Source::Ras)) } else { Ok(&self.case.ras) }
    }

    /// The sightings of any of these signals. If there is none, `source` must have been given for the answer to be
    /// "nothing found" rather than "not checked".
    pub(crate) fn find_signals(
        &self,
        signals: &[&Signal],
        source: Source,
    ) -> Result<Vec<&Sighting>, Missing> {
        let found: Vec<&Sighting> =
            self.case.sightings.iter().filter(|it| signals.contains(&it.signal)).collect();
        if found.is_empty() && !self.has(source) { Err(Missing(source)) } else { Ok(found) }
    }

    /// The line with which a process first returned `code`, if it came from `file` and no warning of the process before it says more:
    /// `transport/nvls.cc:324 -> 1`.
    pub(crate) fn returned_from(&self, file: &str, code: u32) -> Option<&Quote> {
        self.case.processes.iter().find_map(|process| {
            let facts = &process.facts;
            let returned = facts.propagated.iter().find(|it| it.value == code)?;
            let quote = &returned.quote;
            let unexplained = facts.warnings.first.iter().all(|it| it.quote.spot > quote.spot);
            let here = crate::cuda::returning_place(&quote.text).is_some_and(|it| it.ends_with(file));
            (unexplained && here).then_some(quote)
        })
    }

    /// Whether a source was given.
    pub(crate) fn has(&self, source: Source) -> bool {
        let case = &self.case;
        let tally = case.sources.tally();
        let lines = |kind: Kind| tally.by_kind.get(kind as usize).copied().unwrap_or_default() > 0;
        match source {
            Source::JobOutput => lines(Kind::NcclLog) || lines(Kind::TrainingLog) || lines(Kind::NcclTests),
            Source::NcclLog => !case.processes.is_empty(),
            Source::Connections => self.connections().is_ok(),
            Source::AllRanks => case.world().is_some_and(|it| it.absent().is_empty()),
            Source::GraphLines => case
                .processes
                .iter()
                .any(|it| !it.facts.gpudirect_by_distance.is_empty() || !it.facts.hca_gpudirect.is_empty()),
            Source::KernelLog => lines(Kind::KernelLog),
            Source::TopologyMatrix => !case.matrices.is_empty(),
            Source::TopologyXml => !case.xml.is_empty(),
            Source::Instance => self.job.instance().is_some(),
            Source::Decisions => self.decisions().is_ok(),
            Source::NcclTests => !case.tests.is_empty(),
            Source::LaunchCommand => !case.manifests.is_empty(),
            Source::TrainingLog => !case.training.is_empty(),
            Source::FlightRecorder => !case.dumps.is_empty(),
            Source::Ras => !case.ras.is_empty(),
            // Of a node, not of a job.
            Source::FabricDiagnostics
            | Source::Limits
            | Source::GpuDriver
            | Source::Devices
            | Source::PciConfiguration
            | Source::HostProcesses
            | Source::SeveralNodes
            | Source::ExpectedGpus => false,
        }
    }
}
