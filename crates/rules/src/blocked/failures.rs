//! Connections that failed, and what the address and the error say about the cause.
//!
//! The same line has several causes; the rules share this module, so that each failure gets one cause.

use std::collections::{BTreeMap, BTreeSet};

use evidence::facts::Warning;
use evidence::nccl::Interface;
use evidence::signals::blocked::{
    CLIENT_FAILED, CLIENT_GAVE_UP, CLIENT_TIMED_OUT, CONNECT_FAILED, CONNECT_RETRIED, CONNECTION_LOST,
    OTHER_CONNECT_FAILED,
};
use evidence::signals::interface::OLD_INTERFACE;
use evidence::{Kind, Process, Quote, Sighting};
use job::Variable;

use crate::interface::address::{
    got_through, is_bridge, is_bridge_address, is_ipoib, is_link_local, is_loopback, is_number,
    is_tunnel_or_service_port, owners, without_port,
};
use crate::interface::loopback_interface_used::listed;

use crate::Log;

/// Why a connection failed, by the operating system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// A router or a firewall refused, or no host has the address.
    NoRoute,
    /// The routing table has no route there.
    Unreachable,
    /// No answer.
    TimedOut,
    /// No process listens there.
    Refused,
    /// An error that NCCL 2.17 to 2.23 reports in place of the real one.
    Unknown,
}

/// The most likely cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Loopback,
    Bridge,
    WrongInterface,
    Firewall,
    Unreachable,
}

/// Failed connections with one cause.
#[derive(Debug)]
pub(crate) struct Verdict<'a> {
    pub(crate) cause: Cause,
    pub(crate) reason: Reason,
    /// The address of the first, empty where no line names it.
    pub(crate) peer: &'a str,
    /// The interface that has it.
    pub(crate) interface: Option<(&'a Interface, &'a Quote)>,
    pub(crate) sightings: Vec<&'a Sighting>,
}

/// What the rest of the input says, looked up once.
struct Context<'a> {
    got_through: bool,
    /// No interface was chosen by name, and not every rank fails to reach the master: only then a firewall is likely.
    blocked: bool,
    /// The loopback interface is listed for a job that needs another.
    loopback: bool,
    /// PyTorch gave up on the master.
    gave_up: Option<&'a Sighting>,
    /// The address in `NCCL_COMM_ID`, where rank 0's host does not have it.
    comm_id: Option<&'a str>,
    owners: BTreeMap<&'a str, (&'a Interface, &'a Quote)>,
}

/// The failed connections, by cause.
pub(crate) fn verdict(log: &Log) -> Vec<Verdict<'_>> {
    let signals =
        [&CONNECT_FAILED, &CONNECT_RETRIED, &CONNECTION_LOST, &OTHER_CONNECT_FAILED, &CLIENT_FAILED];
    let failures: Vec<&Sighting> =
        log.case.sightings.iter().filter(|it| signals.contains(&it.signal)).collect();
    if failures.is_empty() {
        return Vec::new();
    }
    let context = Context {
        got_through: got_through(log),
        blocked: log.job.settings.named("NCCL_SOCKET_IFNAME").next().is_none()
            && !nobody_reached_the_master(log),
        loopback: !listed(log).is_empty(),
        gave_up: log.case.first_of(&[&CLIENT_TIMED_OUT, &CLIENT_GAVE_UP]),
        comm_id: foreign_comm_id(log).map(|it| without_port(it.variable.text())),
        owners: owners(log),
    };
    let mut verdicts: Vec<Verdict<'_>> = Vec::new();
    for sighting in failures {
        let Some(reason) = failure(log, &context, sighting) else { continue };
        // Of a host that does not answer PyTorch prints bytes that are not its address: the name that it was given is right.
        let master = context.gave_up.map(|it| it.get("host")).filter(|it| !it.is_empty());
        let written = without_port(sighting.get("peer"));
        let peer = master.filter(|_| *sighting.signal == CLIENT_FAILED).unwrap_or(written);
        if context.comm_id == Some(peer) || is_number(written) {
            // An address that no host has, or a name that was read as a number: other rules report them.
            continue;
        }
        let interface = context.owners.get(peer).copied();
        let lost = *sighting.signal == CONNECTION_LOST;
        let name = match interface {
            Some((interface, _)) => &interface.name,
            // Where the line does not name the peer, the rank's own interface shows which network it is.
            None if peer.is_empty() => own_interface(log, sighting).unwrap_or_default(),
            None => "",
        };
        let blamed = blame(&context, (reason, lost), peer, name);
        match verdicts.iter_mut().find(|it| it.cause == blamed) {
            Some(known) => {
                known.sightings.push(sighting);
                if known.peer.is_empty() {
                    (known.peer, known.interface) = (peer, interface);
                }
            }
            None => {
                verdicts.push(Verdict { cause: blamed, reason, peer, interface, sightings: vec![sighting] });
            }
        }
    }
    for it in &mut verdicts {
        // The line of the last attempt says more than those of the retries.
        it.sightings.sort_by_key(|it| (!it.warning, it.quote.spot));
    }
    verdicts.sort_by_key(|it| it.cause);
    verdicts
}

/// Whether every log that was given, of at least two, ends without the master. One of them is rank 0's, which connects to itself:
/// no firewall is in between.
fn nobody_reached_the_master(log: &Log) -> bool {
    let failed: BTreeSet<&str> = log
        .case
        .sightings
        .iter()
        .filter(|it| [&CLIENT_TIMED_OUT, &CLIENT_GAVE_UP, &CLIENT_FAILED].contains(&it.signal))
        .map(|it| log.case.locate(&it.quote).0)
        .collect();
    failed.len() > 1
        && log.case.processes.is_empty()
        && log.case.sources.files.iter().filter(|it| it.tally.kind() == Kind::TrainingLog).count()
            == failed.len()
}

/// `NCCL_COMM_ID` with an address that the process which should listen there cannot bind.
pub(crate) struct ForeignCommId<'a> {
    pub(crate) process: &'a Process,
    pub(crate) variable: &'a Variable,
    pub(crate) warning: &'a Quote,
}

/// Only rank 0 listens at `NCCL_COMM_ID`; the system refuses an address that is not one of the host's own.
pub(crate) fn foreign_comm_id(log: &Log) -> Option<ForeignCommId<'_>> {
    let variable = log.job.settings.named("NCCL_COMM_ID").next()?;
    log.case.processes.iter().find_map(|process| {
        let is_refused = |it: &&Warning| {
            it.quote.text.contains("bind failed") && it.quote.text.contains("Cannot assign requested address")
        };
        let warning = process.facts.warnings.first.iter().find(is_refused)?;
        Some(ForeignCommId { process, variable, warning: &warning.quote })
    })
}

/// Why this line says that a connection failed for good, if it does.
fn failure(log: &Log, context: &Context<'_>, sighting: &Sighting) -> Option<Reason> {
    let signal = sighting.signal;
    let reason = reason(sighting);
    if *signal == CONNECT_FAILED || *signal == OTHER_CONNECT_FAILED {
        return reason.or(Some(Reason::Unknown));
    }
    let hard = matches!(reason, Some(Reason::NoRoute | Reason::Unreachable | Reason::TimedOut));
    if *signal == CONNECTION_LOST {
        // A reset or a closed connection is what the other ranks report when a process dies.
        return reason.filter(|_| hard);
    }
    if *signal == CLIENT_FAILED {
        // One attempt of PyTorch to reach the master means nothing; over IPv6 the network may well be unreachable.
        let gave_up = sighting.count >= 3 || context.gave_up.is_some();
        return reason
            .filter(|it| *it != Reason::Unreachable && hard && gave_up && log.case.processes.is_empty());
    }
    let often = sighting.number("attempt").map_or(sighting.count >= 3, |it| it >= 10);
    reason.filter(|_| !context.got_through && (hard || often))
}

/// The name of the interface that the writer of a line uses.
fn own_interface<'a>(log: &'a Log, sighting: &Sighting) -> Option<&'a str> {
    let list = log.case.process_of(sighting).and_then(|it| it.facts.bootstrap.first());
    let old = || {
        log.case
            .sightings_of(&OLD_INTERFACE)
            .find(|it| it.process == sighting.process)
            .map(|it| it.get("name"))
    };
    list.and_then(|it| it.value.first()).map(|it| &*it.name).or_else(old)
}

fn reason(sighting: &Sighting) -> Option<Reason> {
    let text = sighting.get("reason");
    let known = [
        ("No route to host", Reason::NoRoute),
        ("Network is unreachable", Reason::Unreachable),
        ("Connection timed out", Reason::TimedOut),
        ("Connection refused", Reason::Refused),
        ("Software caused connection abort", Reason::Unknown),
    ];
    let said = known.iter().find(|it| text.contains(it.0)).map(|it| it.1);
    said.or_else(|| match sighting.get("limit") {
        "retries" => Some(Reason::Refused),
        "timeouts" => Some(Reason::TimedOut),
        _ => None,
    })
}

fn blame(context: &Context<'_>, (reason, lost): (Reason, bool), peer: &str, name: &str) -> Cause {
    if is_loopback(peer) || (peer.is_empty() && reason == Reason::Refused && context.loopback) {
        return Cause::Loopback;
    }
    if is_bridge(name) || (is_bridge_address(peer) && !is_ipoib(name)) {
        return Cause::Bridge;
    }
    if is_ipoib(name) || is_tunnel_or_service_port(name) || is_link_local(peer) {
        return Cause::WrongInterface;
    }
    match reason {
        // A firewall that rejects says so with the same error as a router without a route. A chosen
        // interface that reaches nothing is more likely than a firewall on it.
        Reason::NoRoute if context.blocked && !lost => Cause::Firewall,
        // A connection that was open has passed the firewall.
        Reason::TimedOut if !lost => Cause::Firewall,
        _ => Cause::Unreachable,
    }
}
