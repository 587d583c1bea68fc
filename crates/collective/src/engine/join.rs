//! Joining: from options to paths between all ranks.

use std::sync::Arc;

use super::Engine;
use super::choose::Choices;
use super::log::Log;
use super::messages::Channel;
use super::wires::{Way, Wires};
use crate::executor::Executor;
use crate::host::{self, Crowd, Host};
use crate::schedule::Layout;
use crate::session::{self, Entry, Session};
use crate::shm::{self, Desk, Direct, Relay, Rings, Segment, Trouble};
use crate::tcp::{Interface, Network, Port, Streams};
use crate::watch::{Alarm, Patience, Watch};
use crate::{Algorithm, Cause, Error, Options, Transport};

/// Channels at most.
const CHANNELS: usize = 64;

impl Engine {
    pub(crate) fn join(options: Options) -> Result<Self, Error> {
        let here = Host::here(options.host.as_deref());
        let alarm = Arc::new(Alarm::default());
        let mut watch =
            Watch { alarm: Arc::clone(&alarm), patience: Patience::Yield, timeout: options.timeout };
        let entry = Entry {
            rank: options.rank,
            size: options.size,
            meeting: options.meeting,
            token: options.token,
            timeout: options.timeout,
            host: here.name.clone(),
        };
        let channels = options.channels.clamp(1, CHANNELS);
        let mut card = settings(options.transport, options.algorithm, channels);
        card.push('\n');
        card.push_str(&here.to_text());
        // Every rank may come to have a connection to every other on every channel.
        session::allow_files(options.size.saturating_mul(1 + channels));
        let session = Session::join(entry, card.into_bytes(), alarm)?;
        let mut engine = Self {
            log: Log::new(options.log, &here.name, options.rank),
            session,
            watch: watch.clone(),
            hosts: vec![here],
            layout: Layout::new(&[0]),
            crowd: None,
            relay: None,
            direct: None,
            network: None,
            interface: String::new(),
            channels: Vec::new(),
            schedules: Vec::new(),
            own: Vec::new(),
            registered: 0,
            choices: Choices::default(),
            transport: options.transport,
            algorithm: options.algorithm,
            folder: options.folder,
            failure: None,
        };
        if engine.size() > 1 {
            let result =
                engine.find_paths(&mut watch, channels, options.network.as_deref(), options.cross_memory);
            result.map_err(|error| engine.broken(error))?;
        }
        engine.describe();
        Ok(engine)
    }

    /// Learns where the others are, and opens a way to each.
    fn find_paths(
        &mut self,
        watch: &mut Watch,
        channels: usize,
        network: Option<&str>,
        cross_memory: bool,
    ) -> Result<(), Error> {
        let own = settings(self.transport, self.algorithm, channels);
        let mut hosts = Vec::with_capacity(self.size());
        for member in self.session.members() {
            let text = String::from_utf8_lossy(&member.card);
            let (theirs, host) = text.split_once('\n').unwrap_or_default();
            let Some(host) = Host::from_text(host) else {
                return Err(Error::new(Cause::System, "rendezvous", "a card that cannot be read")
                    .of(member.rank, &member.host));
            };
            if theirs != own {
                let detail = format!("runs with `{theirs}` where rank {} has `{own}`", self.rank());
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
        let place = local.iter().position(|it| *it == rank).unwrap_or(0);

        // Containers on one machine are hosts of their own, but share its cores. Patience is a matter of the own
        // machine; whether to tell people, of all.
        let neighbours = |of: usize| -> Vec<&Host> {
            self.hosts.iter().filter(|it| it.boot() == self.hosts[of].boot()).collect()
        };
        let crowd = |of: usize| {
            let ranks = neighbours(of);
            let cores = host::cores_of(ranks.iter().copied());
            (cores < ranks.len()).then(|| Crowd {
                host: self.hosts[of].name.clone(),
                ranks: ranks.len(),
                cores,
            })
        };
        let (mine, any) = (crowd(rank).is_some(), (0..self.size()).find_map(crowd));
        self.crowd = any;
        watch.patience = if mine { Patience::Yield } else { Patience::Spin };
        self.watch.patience = watch.patience;

        let apart = groups.iter().any(|it| *it != groups[0]);
        if apart && self.transport == Some(Transport::Shm) {
            let other = groups.iter().position(|it| *it != groups[0]).unwrap_or(0);
            let detail = "is on another host, and only shared memory is allowed";
            return Err(
                Error::new(Cause::Usage, "rendezvous", detail).of(other, self.hosts[other].name.clone())
            );
        }
        let by_tcp = apart || self.transport == Some(Transport::Tcp);
        let shared = self.transport != Some(Transport::Tcp) && local.len() > 1;
        let direct_wanted = matches!(self.algorithm, Some(Algorithm::OneShot | Algorithm::TwoShot));
        if direct_wanted && (apart || by_tcp) {
            let detail = "oneshot and twoshot need all ranks on one host and shared memory";
            return Err(Error::new(Cause::Usage, "rendezvous", detail));
        }

        let mut desks = Vec::new();
        if shared {
            desks = self.lay_desks(&local, place, channels)?;
            if !apart {
                self.open_direct(place, &desks, mine, cross_memory)?;
            }
        }
        if by_tcp {
            self.open_network(network)?;
        }
        for channel in 0..channels {
            let ways = (0..self.size())
                .map(|it| match local.iter().position(|at| *at == it) {
                    Some(place) if shared => Way::Ring(place),
                    _ => Way::Tcp,
                })
                .collect();
            let rings = shared.then(|| Rings::new(place, desks.clone(), channel));
            let streams = if by_tcp {
                Some(Streams::new(u32::try_from(channel).unwrap_or(0), self.size())?)
            } else {
                None
            };
            self.channels
                .push(Channel { wires: Wires::new(ways, rings, streams), executor: Executor::new() });
        }
        Ok(())
    }

    /// Gives this thread a core of its own; see [`host::bind`].
    pub(crate) fn bind(&self) {
        let (rank, channels) = (self.rank(), self.channels.len());
        // Threads inherit the core of the one that starts them.
        if channels > 1 || self.hosts.len() != self.size() {
            return;
        }
        let near = |it: &&Host| it.boot() == self.hosts[rank].boot();
        let ranks: Vec<&Host> = self.hosts.iter().filter(near).collect();
        host::bind(&ranks, self.hosts[..rank].iter().filter(|it| near(it)).count());
    }

    /// Every rank of a host makes a desk and gets those of the others.
    fn lay_desks(&mut self, local: &[usize], place: usize, channels: usize) -> Result<Vec<Desk>, Error> {
        let layout = shm::Layout::new(local.len(), channels);
        let relay = Relay::open(self.session.key(), local[0], place, local.len(), &self.watch)?;
        // Kept even if there is no memory: whoever sees it close before the reason is known would tell another one.
        let relay = self.relay.insert(relay);
        let (_, fd) = Segment::create(layout.bytes(), self.folder.as_deref())?;
        let mut desks = Vec::with_capacity(local.len());
        for fd in relay.exchange(fd, &self.watch)? {
            desks.push(Desk::new(Segment::open(&fd, layout.bytes())?, layout));
        }
        Ok(desks)
    }

    /// All ranks are here: they can work in each other's memory.
    fn open_direct(
        &mut self,
        place: usize,
        desks: &[Desk],
        crowded: bool,
        cross_memory: bool,
    ) -> Result<(), Error> {
        let cores = host::cores_of(self.hosts.iter());
        let cache = host::cache();
        let streaming = if crowded { cache * cores / self.size() } else { cache };
        let mut direct = Direct::new(place, desks.to_vec(), self.watch.clone(), streaming);
        let pids: Vec<u32> = self.session.members().iter().map(|it| it.pid).collect();
        direct.probe(&pids, cross_memory).map_err(|it| match it {
            Trouble::Alarm => self
                .watch
                .alarm
                .verdict()
                .unwrap_or_else(|| Error::new(Cause::Interrupted, "shared memory", "the job was ended")),
            Trouble::Late(peer) | Trouble::Mismatch(peer) | Trouble::Unreachable(peer, _) => {
                Error::new(Cause::Silent, "shared memory", "does not answer")
                    .of(peer, self.hosts[peer].name.clone())
            }
        })?;
        self.direct = Some(direct);
        Ok(())
    }

    /// Opens the port for data, and tells the others where it is.
    fn open_network(&mut self, choice: Option<&str>) -> Result<(), Error> {
        let near = self.hosts.iter().all(|it| it.machine == self.hosts[0].machine);
        let interface = Interface::choose(choice, near)?;
        self.interface = interface.to_string();
        let port = Port::open(interface)?;
        let cards = self.session.share(&port.card(), "network")?;
        let peers = self.hosts.iter().map(|it| it.name.as_str()).zip(cards.iter().map(Vec::as_slice));
        self.network = Some(Network::new(port, self.session.rank(), *self.session.key(), peers)?);
        Ok(())
    }

    /// The log's head.
    fn describe(&mut self) {
        if !self.log.is_wanted() {
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
        let next = self.layout.rank(self.layout.place(rank) + 1);
        if size > 1 {
            for channel in 0..channels {
                let way = match self.hosts.get(next).zip(self.hosts.get(rank)) {
                    Some((one, other)) if one.identity == other.identity && self.relay.is_some() => {
                        "SHM/direct/direct"
                    }
                    _ => "NET/Socket/0",
                };
                let send = if way.starts_with("NET") { " [send]" } else { "" };
                lines.push(format!(
                    "Channel {channel:02}/0 : {rank}[{rank}] -> {next}[{next}]{send} via {way}"
                ));
            }
        }
        lines.push(format!(
            "ncclCommInitRank comm {identity:#x} rank {rank} nranks {size} commId {identity:#x} - Init COMPLETE"
        ));
        if let Some(algorithm) = self.algorithm {
            lines.push(format!("plumb: all by {algorithm}, as asked"));
        }
        for line in lines {
            self.log.line(&line);
        }
    }
}

/// What all ranks must say alike.
fn settings(transport: Option<Transport>, algorithm: Option<Algorithm>, channels: usize) -> String {
    format!(
        "transport={} algorithm={} channels={channels}",
        transport.map_or("any", Transport::name),
        algorithm.map_or("any", Algorithm::name),
    )
}
