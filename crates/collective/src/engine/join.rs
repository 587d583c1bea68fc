//! Joins a job and opens the paths between all ranks.

use std::sync::Arc;

use super::links::{ChannelLinks, Path};
use super::log::Log;
use super::messages::Channel;
use super::tuning::Choices;
use super::{Engine, number_at};
use crate::executor::Executor;
use crate::host::{self, Host, Oversubscription};
use crate::schedule::Layout;
use crate::session::{self, CallKind, JoinOptions, Session};
use crate::shm::{self, Caches, Direct, DirectError, FdExchange, Mailbox, Rings, Segment};
use crate::tcp::{DataListener, Interface, Network, Streams};
use crate::wait::{AbortFlag, WaitPolicy, Waiter};
use crate::{Algorithm, Cause, Error, Options, Transport};

/// The most channels.
const CHANNELS: usize = 64;

impl Engine {
    pub(crate) fn join(options: Options) -> Result<Self, Error> {
        let here = Host::here(options.host.as_deref());
        let abort_flag = Arc::new(AbortFlag::default());
        let mut waiter = Waiter {
            abort_flag: Arc::clone(&abort_flag),
            policy: WaitPolicy::Yield,
            timeout: options.timeout,
        };
        let join = JoinOptions {
            rank: options.rank,
            size: options.size,
            rendezvous: options.rendezvous,
            token: options.token,
            timeout: options.timeout,
            host: here.name.clone(),
        };
        let channels = options.channels.clamp(1, CHANNELS);
        let mut peer_info = settings(options.transport, options.algorithm, channels);
        peer_info.push('\n');
        peer_info.push_str(&here.to_text());
        // A rank may have a connection to every other rank on every channel.
        session::raise_file_limit(options.size.saturating_mul(1 + channels));
        let session = Session::join(join, peer_info.into_bytes(), abort_flag)?;
        let mut engine = Self {
            log: Log::new(options.log, &here.name, options.rank),
            session,
            waiter: waiter.clone(),
            hosts: vec![here],
            layout: Layout::new(&[0]),
            oversubscription: None,
            fd_exchange: None,
            direct: None,
            network: None,
            interface: String::new(),
            channels: Vec::new(),
            schedules: Vec::new(),
            own: Vec::new(),
            registered: 0,
            choices: Choices::default(),
            unasked: [0; CallKind::ALL.len()],
            transport: options.transport,
            algorithm: options.algorithm,
            folder: options.folder,
            failure: None,
        };
        if engine.size() > 1 {
            let result =
                engine.find_paths(&mut waiter, channels, options.network.as_deref(), options.cross_memory);
            result.map_err(|error| engine.broken(error))?;
        }
        engine.log_setup();
        Ok(engine)
    }

    /// Reads the peer info of all ranks, and opens a path to each.
    fn find_paths(
        &mut self,
        waiter: &mut Waiter,
        channels: usize,
        network: Option<&str>,
        cross_memory: bool,
    ) -> Result<(), Error> {
        let own = settings(self.transport, self.algorithm, channels);
        let mut hosts = Vec::with_capacity(self.size());
        for member in self.session.members() {
            let text = String::from_utf8_lossy(&member.peer_info);
            let (theirs, host) = text.split_once('\n').unwrap_or_default();
            let Some(host) = Host::from_text(host) else {
                return Err(Error::new(Cause::System, "rendezvous", "its peer info is malformed")
                    .of(member.rank, &member.host));
            };
            if theirs != own {
                let detail = format!("has the settings `{theirs}`, but rank {} has `{own}`", self.rank());
                return Err(Error::new(Cause::Mismatch, "rendezvous", detail).of(member.rank, &member.host));
            }
            hosts.push(host);
        }
        self.hosts = hosts;
        let rank = self.rank();
        let groups: Vec<usize> = self
            .hosts
            .iter()
            .map(|it| self.hosts.iter().position(|other| other.identity == it.identity).unwrap_or(0))
            .collect();
        self.layout = Layout::new(&groups);
        let local: Vec<usize> = (0..self.size()).filter(|it| groups[*it] == groups[rank]).collect();
        let local_rank = local.iter().position(|it| *it == rank).unwrap_or(0);

        // Containers on one machine are separate hosts, but share its cores. The wait policy depends on the machine of this
        // rank; the report to the user covers all.
        let neighbours = |of: usize| -> Vec<&Host> {
            self.hosts.iter().filter(|it| it.boot() == self.hosts[of].boot()).collect()
        };
        let oversubscription_of = |of: usize| {
            let ranks = neighbours(of);
            let cores = host::cores_of(ranks.iter().copied());
            (cores < ranks.len()).then(|| Oversubscription {
                host: self.hosts[of].name.clone(),
                ranks: ranks.len(),
                cores,
            })
        };
        let oversubscribed = oversubscription_of(rank).is_some();
        self.oversubscription = (0..self.size()).find_map(oversubscription_of);
        waiter.policy = if oversubscribed { WaitPolicy::Yield } else { WaitPolicy::Spin };
        self.waiter.policy = waiter.policy;

        let several_hosts = groups.iter().any(|it| *it != groups[0]);
        if several_hosts && self.transport == Some(Transport::Shm) {
            let other = groups.iter().position(|it| *it != groups[0]).unwrap_or(0);
            let detail = "is on another host, but the transport is shared memory only";
            return Err(
                Error::new(Cause::Usage, "rendezvous", detail).of(other, self.hosts[other].name.clone())
            );
        }
        let by_tcp = several_hosts || self.transport == Some(Transport::Tcp);
        let shared = self.transport != Some(Transport::Tcp) && local.len() > 1;
        let direct_wanted = matches!(self.algorithm, Some(Algorithm::OneShot | Algorithm::TwoShot));
        if direct_wanted && (several_hosts || by_tcp) {
            let detail = "oneshot and twoshot need all ranks on one host and shared memory";
            return Err(Error::new(Cause::Usage, "rendezvous", detail));
        }

        let mut mailboxes = Vec::new();
        if shared {
            mailboxes = self.create_mailboxes(&local, local_rank, channels)?;
            if !several_hosts {
                self.open_direct(local_rank, &mailboxes, oversubscribed, cross_memory)?;
            }
        }
        if by_tcp {
            self.open_network(network)?;
        }
        for channel in 0..channels {
            let paths = (0..self.size())
                .map(|it| match local.iter().position(|at| *at == it) {
                    Some(local_rank) if shared => Path::Ring { local_rank },
                    _ => Path::Tcp,
                })
                .collect();
            let rings = shared.then(|| Rings::new(local_rank, mailboxes.clone(), channel));
            let streams = if by_tcp {
                Some(Streams::new(u32::try_from(channel).unwrap_or(0), self.size())?)
            } else {
                None
            };
            self.channels.push(Channel {
                links: ChannelLinks::new(paths, rings, streams),
                executor: Executor::new(host::cache()),
            });
        }
        Ok(())
    }

    /// Binds the calling thread to a core; see [`host::bind`].
    pub(crate) fn bind(&self) {
        let (rank, channels) = (self.rank(), self.channels.len());
        // The threads of channels inherit the binding of the thread that starts them.
        if channels > 1 || self.hosts.len() != self.size() {
            return;
        }
        let near = |it: &&Host| it.boot() == self.hosts[rank].boot();
        let ranks: Vec<&Host> = self.hosts.iter().filter(near).collect();
        host::bind(&ranks, self.hosts[..rank].iter().filter(|it| near(it)).count());
    }

    /// Creates the mailbox of this rank and maps those of the other ranks of the host.
    fn create_mailboxes(
        &mut self,
        local: &[usize],
        local_rank: usize,
        channels: usize,
    ) -> Result<Vec<Mailbox>, Error> {
        let layout = shm::Layout::new(local.len(), channels);
        let fd_exchange =
            FdExchange::open(self.session.key(), local[0], local_rank, local.len(), &self.waiter)?;
        // Kept open even if there is no memory: its end would be reported before the reason.
        let fd_exchange = self.fd_exchange.insert(fd_exchange);
        let (_, fd) = Segment::create(layout.bytes(), self.folder.as_deref())?;
        let mut mailboxes = Vec::with_capacity(local.len());
        for fd in fd_exchange.exchange(fd, &self.waiter)? {
            mailboxes.push(Mailbox::new(Segment::open(&fd, layout.bytes())?, layout));
        }
        Ok(mailboxes)
    }

    /// All ranks are on this host: they can read and write each other's memory.
    fn open_direct(
        &mut self,
        local_rank: usize,
        mailboxes: &[Mailbox],
        oversubscribed: bool,
        cross_memory: bool,
    ) -> Result<(), Error> {
        let cores = host::cores_of(self.hosts.iter());
        // The same on all ranks, even if one of them cannot read it: it decides what they measure together.
        let own: Vec<u8> =
            [host::cache(), host::last_cache()].iter().flat_map(|it| (*it as u64).to_le_bytes()).collect();
        let all = self.session.share(&own, "shared memory")?;
        let smallest = |at: usize| all.iter().filter_map(|it| number_at(it, at)).min();
        let [own, last] = [0, 8].map(|it| smallest(it).and_then(|it| usize::try_from(it).ok()).unwrap_or(0));
        let own = if oversubscribed { own * cores / self.size() } else { own };
        let caches = Caches { own, last };
        let mut direct = Direct::new(local_rank, mailboxes.to_vec(), self.waiter.clone(), caches);
        let pids: Vec<u32> = self.session.members().iter().map(|it| it.pid).collect();
        direct.probe(&pids, cross_memory).map_err(|it| match it {
            DirectError::Aborted => self
                .waiter
                .abort_flag
                .verdict()
                .unwrap_or_else(|| Error::new(Cause::Interrupted, "shared memory", "the job has ended")),
            DirectError::TimedOut(peer)
            | DirectError::Mismatch(peer)
            | DirectError::Unreachable { rank: peer, .. } => {
                Error::new(Cause::Silent, "shared memory", "does not answer")
                    .of(peer, self.hosts[peer].name.clone())
            }
        })?;
        self.direct = Some(direct);
        Ok(())
    }

    /// Opens the listener for data connections, and gets the addresses of those of all ranks.
    fn open_network(&mut self, choice: Option<&str>) -> Result<(), Error> {
        let near = self.hosts.iter().all(|it| it.machine == self.hosts[0].machine);
        let interface = Interface::choose(choice, near)?;
        self.interface = interface.to_string();
        let listener = DataListener::open(interface)?;
        let addresses = self.session.share(&listener.address_bytes(), "network")?;
        let peers = self.hosts.iter().map(|it| it.name.as_str()).zip(addresses.iter().map(Vec::as_slice));
        self.network = Some(Network::new(listener, self.session.rank(), *self.session.key(), peers)?);
        Ok(())
    }

    /// Writes the head of the log, in the form of NCCL's.
    fn log_setup(&mut self) {
        if !self.log.is_enabled() {
            return;
        }
        let (rank, size) = (self.rank(), self.size());
        let ranks_of = |host: &Host| self.hosts.iter().filter(|it| it.identity == host.identity).count();
        let nodes = self.layout.hosts().count();
        let local = self.hosts.get(rank).map_or(1, ranks_of);
        let before = (0..rank)
            .filter(|it| {
                self.hosts.get(*it).map(|it| &it.identity) == self.hosts.get(rank).map(|it| &it.identity)
            })
            .count();
        let identity = self.session.key().iter().take(8).fold(0_u64, |all, it| all << 8 | u64::from(*it));
        let mut lines = vec!["plumb: data in host memory, no GPU".to_owned()];
        if self.network.is_some() {
            lines.push(format!("NET/Socket : Using [0]{}", self.interface));
            lines.push("Using network Socket".to_owned());
        }
        lines.push(format!(
            "comm {identity:#x} rank {rank} nRanks {size} nNodes {nodes} localRanks {local} localRank {before} MNNVL 0"
        ));
        let order: Vec<String> = (0..size).map(|it| self.layout.rank(it).to_string()).collect();
        let channels = self.channels.len().max(1);
        for channel in 0..channels {
            if rank == 0 {
                lines.push(format!("Channel {channel:02}/{channels:02} : {}", order.join(" ")));
            }
        }
        let next = self.layout.rank(self.layout.position(rank) + 1);
        if size > 1 {
            for channel in 0..channels {
                let transport = match self.hosts.get(next).zip(self.hosts.get(rank)) {
                    Some((one, other)) if one.identity == other.identity && self.fd_exchange.is_some() => {
                        "SHM/direct/direct"
                    }
                    _ => "NET/Socket/0",
                };
                let send = if transport.starts_with("NET") { " [send]" } else { "" };
                lines.push(format!(
                    "Channel {channel:02}/0 : {rank}[{rank}] -> {next}[{next}]{send} via {transport}"
                ));
            }
        }
        lines.push(format!(
            "ncclCommInitRank comm {identity:#x} rank {rank} nranks {size} commId {identity:#x} - Init COMPLETE"
        ));
        if let Some(algorithm) = self.algorithm {
            lines.push(format!("plumb: all collectives use {algorithm}, as requested"));
        }
        for line in lines {
            self.log.line(&line);
        }
    }
}

/// The settings that must be equal on all ranks.
fn settings(transport: Option<Transport>, algorithm: Option<Algorithm>, channels: usize) -> String {
    format!(
        "transport={} algorithm={} channels={channels}",
        transport.map_or("any", Transport::name),
        algorithm.map_or("any", Algorithm::name),
    )
}
