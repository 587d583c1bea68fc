//! A rank's place in its job.

use crate::board::{Pipe, Pmi, Pmix};
use crate::kubernetes::Pod;
use crate::variables::{MAX_RANKS, Variables, port_of};
use crate::{Board, Error, Launcher, Meeting, Point, kubernetes, mpi, slurm, torch};

/// A rank's place in its job.
#[derive(Debug)]
pub struct Place {
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub size: usize,
    /// This rank among those of its machine.
    pub local_rank: Option<usize>,
    /// The ranks of its machine.
    pub local_size: Option<usize>,
    /// Who started it.
    pub launcher: Launcher,
    /// How it meets the others.
    pub meeting: Meeting,
    /// How many ranks this process stands for. Where more than 1, it has to [`start`](crate::start()) them:
    /// `rank` is the first of them.
    pub start_here: usize,
    /// What `PLUMB_TOKEN` says.
    pub token: Option<String>,
}

/// What a launcher's variables say.
pub(crate) struct Found {
    pub(crate) launcher: Launcher,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) local_rank: Option<usize>,
    pub(crate) local_size: Option<usize>,
    pub(crate) start_here: usize,
    /// The job's identity: not secret, but another one for every job.
    pub(crate) identity: String,
    /// Ways to meet, best first.
    pub(crate) ways: Vec<Way>,
    /// What to set if none works.
    pub(crate) advice: &'static str,
}

/// A way to meet.
pub(crate) enum Way {
    /// At an address that no override replaces, as it is one.
    Given(String, u16),
    /// Over the board of PMIx for this namespace, if its library is here.
    Pmix(String),
    /// Over a board that is already open.
    Ready(Box<dyn Board>),
    /// Over the board of PMI at a file descriptor.
    Pmi(i32),
    /// On loopback, if all ranks are on this machine; at a port of this identity.
    Loopback,
    /// At an address.
    At(String, u16),
}

impl Place {
    /// Finds this process's place in the variables that launchers set. None: no launcher started it.
    ///
    /// The order of precedence is that of [the crate](crate). A launcher that is recognised but whose variables
    /// cannot be is an error, and never taken for another.
    pub fn find(env: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, Error> {
        Self::find_in(env, &Pod::here(env))
    }

    fn find_in(env: &dyn Fn(&str) -> Option<String>, pod: &Pod) -> Result<Option<Self>, Error> {
        let variables = Variables(env);
        let found = match plumb(variables)? {
            Some(found) => Some(found),
            None => other(variables, pod)?,
        };
        match found {
            Some(found) => found.settle(variables).map(Some),
            None => torch::half(variables).map_or(Ok(None), Err),
        }
    }

    /// All ranks are on this machine.
    pub fn is_one_host(&self) -> bool {
        self.size == 1 || self.local_size == Some(self.size)
    }
}

/// The launchers of others, innermost first.
fn other(variables: Variables<'_>, pod: &Pod) -> Result<Option<Found>, Error> {
    let sources: [&dyn Fn() -> Result<Option<Found>, Error>; 9] = [
        &|| torch::torchrun(variables),
        &|| mpi::open_mpi(variables),
        &|| mpi::pmi(variables),
        &|| kubernetes::pet_beside_rank(variables),
        &|| torch::by_hand(variables),
        &|| slurm::step(variables),
        &|| mpi::pmix(variables),
        &|| kubernetes::pet(variables),
        &|| kubernetes::indexed_job(variables, pod),
    ];
    for source in sources {
        if let Some(found) = source()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Our own variables.
fn plumb(variables: Variables<'_>) -> Result<Option<Found>, Error> {
    let launcher = Launcher::Plumb;
    let Some(rank) = variables.number("PLUMB_RANK")? else { return Ok(None) };
    let size = variables.needed(launcher, "PLUMB_RANK", "PLUMB_SIZE")?;
    Ok(Some(Found {
        launcher,
        rank,
        size,
        local_rank: variables.number("PLUMB_LOCAL_RANK")?,
        local_size: variables.number("PLUMB_LOCAL_SIZE")?,
        start_here: 1,
        identity: format!("plumb-{}", variables.text("PLUMB_MEETING").unwrap_or_default()),
        ways: Vec::new(),
        advice: "set PLUMB_MEETING=HOST:PORT, an address of rank 0",
    }))
}

impl Found {
    /// Checks the numbers and finds the way to meet.
    fn settle(self, variables: Variables<'_>) -> Result<Place, Error> {
        self.check()?;
        let token = variables.text("PLUMB_TOKEN");
        match overridden(&self, variables)? {
            Some(meeting) => Ok(self.place(meeting, token)),
            None => self.first_way(token),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let Self { rank, size, local_rank, local_size, start_here, .. } = *self;
        let wrong = |what: &str, value: usize, expected: String| {
            Err(Error::variable(
                &format!("the {what} that {} gives", self.launcher),
                &value.to_string(),
                expected,
            ))
        };
        if size == 0 || size > MAX_RANKS {
            return wrong("number of ranks", size, format!("1 to {MAX_RANKS}"));
        }
        if rank >= size || start_here > size - rank {
            return wrong("rank", rank, format!("less than the number of ranks, {size}"));
        }
        match (local_rank, local_size) {
            (_, Some(local)) if local == 0 || local > size => {
                wrong("number of local ranks", local, format!("1 to the number of ranks, {size}"))
            }
            (Some(rank), Some(local)) if rank >= local => {
                wrong("local rank", rank, format!("less than the number of local ranks, {local}"))
            }
            _ => Ok(()),
        }
    }

    /// Takes the first way that works.
    fn first_way(mut self, token: Option<String>) -> Result<Place, Error> {
        let one_host = self.local_size == Some(self.size);
        let mut reason = String::new();
        for way in std::mem::take(&mut self.ways) {
            let meeting = match way {
                Way::Given(host, port) | Way::At(host, port) => self.fixed(host, port, token.clone()),
                Way::Ready(board) => Meeting::Board(board),
                Way::Pmi(fd) => Meeting::Board(Box::new(Pmi::inherited(fd)?)),
                Way::Loopback if one_host => {
                    self.fixed("127.0.0.1".into(), port_of(&self.identity), token.clone())
                }
                Way::Loopback => continue,
                Way::Pmix(job) => match Pmix::open(self.rank, &job) {
                    Ok(board) => Meeting::Board(Box::new(board)),
                    Err(error) => {
                        reason = format!("{error}; ");
                        continue;
                    }
                },
            };
            return Ok(self.place(meeting, token));
        }
        Err(Error::NoMeeting { launcher: self.launcher, advice: format!("{reason}{}", self.advice) })
    }

    fn fixed(&self, host: String, port: u16, token: Option<String>) -> Meeting {
        Meeting::Fixed(Point { host, port, token: token.unwrap_or_else(|| self.identity.clone()) })
    }

    fn place(self, meeting: Meeting, token: Option<String>) -> Place {
        let Self { rank, size, local_rank, local_size, launcher, start_here, .. } = self;
        Place { rank, size, local_rank, local_size, launcher, meeting, start_here, token }
    }
}

/// What the user or our own starter says about the meeting, and the meeting of one rank with itself.
fn overridden(found: &Found, variables: Variables<'_>) -> Result<Option<Meeting>, Error> {
    let token = variables.text("PLUMB_TOKEN");
    if found.size == 1 {
        return Ok(Some(found.fixed("127.0.0.1".to_owned(), 0, token)));
    }
    if let Some(text) = variables.text("PLUMB_MEETING") {
        let wrong = || Error::variable("PLUMB_MEETING", &text, "HOST:PORT");
        if let Some(fd) = text.strip_prefix("fd:") {
            let fd = fd.parse().map_err(|_| wrong())?;
            let readers = found.size - 1;
            return Ok(Some(Meeting::Board(Box::new(Pipe::inherited(fd, readers)?))));
        }
        let token = token.unwrap_or_else(|| found.identity.clone());
        return Point::parse(&text, token).ok_or_else(wrong).map(|it| Some(Meeting::Fixed(it)));
    }
    if matches!(found.ways.first(), Some(Way::Given(..))) {
        return Ok(None);
    }
    match (torch::master_address(variables)?, variables.port("MASTER_PORT")?) {
        (Some(host), Some(port)) => Ok(Some(found.fixed(host, port, token))),
        _ => Ok(None),
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
