//! Which rank a process is, from the environment variables of its launcher.

use crate::kubernetes::Pod;
use crate::kvs::{Pipe, Pmi, Pmix};
use crate::variables::{MAX_RANKS, Variables, port_from_job_id};
use crate::{Endpoint, Error, KeyValueStore, Launcher, Rendezvous, kubernetes, mpi, slurm, torch};

/// Which rank of its job a process is, and how the ranks find each other.
#[derive(Debug)]
pub struct RankIdentity {
    /// From 0.
    pub rank: usize,
    /// The number of ranks of the job (`WORLD_SIZE`).
    pub size: usize,
    /// The number of this rank among those of its host.
    pub local_rank: Option<usize>,
    /// The number of ranks of its host.
    pub local_size: Option<usize>,
    /// The launcher that started it.
    pub launcher: Launcher,
    /// How it learns the address of rank 0.
    pub rendezvous: Rendezvous,
    /// If more than 1, this process has to [`start`](crate::start()) as many ranks; `rank` is the first of them.
    pub ranks_to_start: usize,
    /// The value of `PLUMB_TOKEN`.
    pub token: Option<String>,
}

/// What the variables of a launcher say.
pub(crate) struct Detected {
    pub(crate) launcher: Launcher,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: Option<usize>,
    pub(crate) local_size: Option<usize>,
    pub(crate) ranks_to_start: usize,
    /// Differs from job to job; not a secret.
    pub(crate) job_id: String,
    /// Where the rendezvous address may come from, best first.
    pub(crate) sources: Vec<RendezvousSource>,
    /// What the user can set if none of the sources works.
    pub(crate) advice: &'static str,
}

/// A source of the rendezvous address.
pub(crate) enum RendezvousSource {
    /// The launcher's `MASTER_ADDR` and `MASTER_PORT`, already adjusted.
    Fixed { host: String, port: u16 },
    /// The key-value store of PMIx for this namespace, if its library can be loaded.
    Pmix(String),
    /// A key-value store that is already open.
    OpenStore(Box<dyn KeyValueStore>),
    /// The key-value store of PMI at this file descriptor.
    Pmi(i32),
    /// Loopback, if all ranks are on this host, at a port derived from the job id.
    Loopback,
    /// The host on which rank 0 runs, as far as the variables tell.
    Derived { host: String, port: u16 },
}

impl RankIdentity {
    /// Reads the variables of launchers. `None`: no launcher started this process.
    ///
    /// The order of precedence is that of [the crate](crate). A launcher that is recognised but has invalid variables is
    /// an error: the variables of another launcher are not tried then.
    pub fn detect(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        Self::detect_in(env, &Pod::here(env))
    }

    fn detect_in(env: &dyn Fn(&str) -> Option<String>, pod: &Pod) -> Result<Option<Self>, Error> {
        let variables = Variables(env);
        let found = match from_plumb(variables)? {
            Some(found) => Some(found),
            None => from_launcher(variables, pod)?,
        };
        match found {
            Some(found) => found.into_identity(variables).map(Some),
            None => torch::rank_without_world_size(variables).map_or(Ok(None), Err),
        }
    }

    /// Whether all ranks are on this host.
    pub fn is_one_host(&self) -> bool {
        self.size == 1 || self.local_size == Some(self.size)
    }
}

/// Other launchers than plumb, innermost first.
fn from_launcher(variables: Variables<'_>, pod: &Pod) -> Result<Option<Detected>, Error> {
    let detectors: [&dyn Fn() -> Result<Option<Detected>, Error>; 9] = [
        &|| torch::torchrun(variables),
        &|| mpi::open_mpi(variables),
        &|| mpi::pmi(variables),
        &|| kubernetes::pet_beside_rank(variables),
        &|| torch::rank_and_world_size(variables),
        &|| slurm::step(variables),
        &|| mpi::pmix(variables),
        &|| kubernetes::pet(variables),
        &|| kubernetes::indexed_job(variables, pod),
    ];
    for detect in detectors {
        if let Some(found) = detect()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// `PLUMB_` variables.
fn from_plumb(variables: Variables<'_>) -> Result<Option<Detected>, Error> {
    let launcher = Launcher::Plumb;
    let Some(rank) = variables.number("PLUMB_RANK")? else { return Ok(None) };
    let size = variables.required(launcher, "PLUMB_RANK", "PLUMB_SIZE")?;
    // Set by `Across`: this process starts the ranks of its host.
    let here = variables.number("PLUMB_RANKS_HERE")?;
    Ok(Some(Detected {
        launcher,
        rank,
        size,
        local_rank: variables.number("PLUMB_LOCAL_RANK")?.or(here.map(|_| 0)),
        local_size: variables.number("PLUMB_LOCAL_SIZE")?.or(here),
        ranks_to_start: here.unwrap_or(1).max(1),
        job_id: format!(
            "plumb-{}",
            RendezvousVariable::read(variables).map_or_else(String::new, |it| it.value)
        ),
        sources: Vec::new(),
        advice: "set PLUMB_RENDEZVOUS=HOST:PORT, an address of rank 0",
    }))
}

impl Detected {
    fn into_identity(self, variables: Variables<'_>) -> Result<RankIdentity, Error> {
        self.check()?;
        let token = variables.text("PLUMB_TOKEN");
        match overridden(&self, variables)? {
            Some(rendezvous) => Ok(self.with(rendezvous, token)),
            None => self.first_source(token),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let Self { rank, size, local_rank, local_size, ranks_to_start, .. } = *self;
        let invalid = |what: &str, value: usize, expected: String| {
            Err(Error::variable(
                &format!("the {what} that {} gives", self.launcher),
                &value.to_string(),
                expected,
            ))
        };
        if size == 0 || size > MAX_RANKS {
            return invalid("number of ranks", size, format!("1 to {MAX_RANKS}"));
        }
        if rank >= size || ranks_to_start > size - rank {
            return invalid("rank", rank, format!("less than the number of ranks, {size}"));
        }
        match (local_rank, local_size) {
            (_, Some(local)) if local == 0 || local > size => {
                invalid("number of local ranks", local, format!("1 to the number of ranks, {size}"))
            }
            (Some(rank), Some(local)) if rank >= local => {
                invalid("local rank", rank, format!("less than the number of local ranks, {local}"))
            }
            _ => Ok(()),
        }
    }

    /// Takes the first source that works.
    fn first_source(mut self, token: Option<String>) -> Result<RankIdentity, Error> {
        let one_host = self.local_size == Some(self.size);
        let mut reason = String::new();
        for source in std::mem::take(&mut self.sources) {
            let rendezvous = match source {
                RendezvousSource::Fixed { host, port } | RendezvousSource::Derived { host, port } => {
                    self.fixed(host, port, token.clone())
                }
                RendezvousSource::OpenStore(store) => Rendezvous::KeyValueStore(store),
                RendezvousSource::Pmi(fd) => Rendezvous::KeyValueStore(Box::new(Pmi::inherited(fd)?)),
                RendezvousSource::Loopback if one_host => {
                    self.fixed("127.0.0.1".into(), port_from_job_id(&self.job_id), token.clone())
                }
                RendezvousSource::Loopback => continue,
                RendezvousSource::Pmix(job) => match Pmix::open(self.rank, &job) {
                    Ok(store) => Rendezvous::KeyValueStore(Box::new(store)),
                    Err(error) => {
                        reason = format!("{error}; ");
                        continue;
                    }
                },
            };
            return Ok(self.with(rendezvous, token));
        }
        Err(Error::NoRendezvous { launcher: self.launcher, advice: format!("{reason}{}", self.advice) })
    }

    fn fixed(&self, host: String, port: u16, token: Option<String>) -> Rendezvous {
        Rendezvous::Fixed(Endpoint { host, port, token: token.unwrap_or_else(|| self.job_id.clone()) })
    }

    fn with(self, rendezvous: Rendezvous, token: Option<String>) -> RankIdentity {
        let Self { rank, size, local_rank, local_size, launcher, ranks_to_start, .. } = self;
        RankIdentity { rank, size, local_rank, local_size, launcher, rendezvous, ranks_to_start, token }
    }
}

/// The address of rank 0 that the user, or plumb itself, has set.
struct RendezvousVariable {
    name: &'static str,
    value: String,
}

impl RendezvousVariable {
    /// The second is the former name.
    const NAMES: [&str; 2] = ["PLUMB_RENDEZVOUS", "PLUMB_MEETING"];

    fn read(variables: Variables<'_>) -> Option<Self> {
        Self::NAMES.iter().find_map(|name| variables.text(name).map(|value| Self { name, value }))
    }
}

/// A rendezvous that takes precedence over the sources: of a single rank, of `PLUMB_RENDEZVOUS`, of `MASTER_ADDR`.
fn overridden(found: &Detected, variables: Variables<'_>) -> Result<Option<Rendezvous>, Error> {
    let token = variables.text("PLUMB_TOKEN");
    if found.size == 1 {
        return Ok(Some(found.fixed("127.0.0.1".to_owned(), 0, token)));
    }
    if let Some(RendezvousVariable { name, value }) = RendezvousVariable::read(variables) {
        let invalid = || Error::variable(name, &value, "HOST:PORT");
        if let Some(fd) = value.strip_prefix("fd:") {
            let fd = fd.parse().map_err(|_| invalid())?;
            let readers = found.size - 1;
            return Ok(Some(Rendezvous::KeyValueStore(Box::new(Pipe::inherited(fd, readers)?))));
        }
        let token = token.unwrap_or_else(|| found.job_id.clone());
        return Endpoint::parse(&value, token).ok_or_else(invalid).map(|it| Some(Rendezvous::Fixed(it)));
    }
    if matches!(found.sources.first(), Some(RendezvousSource::Fixed { .. })) {
        return Ok(None);
    }
    match (torch::master_address(variables)?, variables.port("MASTER_PORT")?) {
        (Some(host), Some(port)) => Ok(Some(found.fixed(host, port, token))),
        _ => Ok(None),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
