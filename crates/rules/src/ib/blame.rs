//! Adapters that cannot reach each other, and the cause that the rest of the input suggests.
//!
//! A timeout (completion status 12) or a connection that cannot be set up says only that two adapters cannot communicate.
//! The rules share this module, so that each failure has one most likely cause.

use evidence::Sighting;
use evidence::nccl::LinkLayer;
use evidence::signals::ib::{
    ASYNC_EVENT, COMPLETION, GID_ENTRY, GID_TABLE_CHANGED, HCA_HEALTH, LINK_DOWN, MODIFY_QP_FAILED,
    RETRY_EXCEEDED,
};
use fabric::Version;
use messages::values::{self, Table};

use crate::Log;

/// A cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspect {
    HcaFatal,
    LinkFlap,
    GidIndex,
    HcaSelection,
    RoceFabric,
    IbFabric,
}

/// The network that the adapters are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    Roce,
    InfiniBand,
    Mixed,
    Unknown,
}

/// Failures and their most likely cause.
#[derive(Debug)]
pub(crate) struct Blame<'a> {
    pub(crate) suspect: Suspect,
    /// The next best, if there is one.
    pub(crate) other: Option<Suspect>,
    /// The evidence for the suspect, as the end of a sentence.
    pub(crate) because: String,
    pub(crate) sightings: Vec<&'a Sighting>,
}

impl Blame<'_> {
    /// What failed, as the beginning of a sentence.
    pub(crate) fn what(&self) -> String {
        let Some(first) = self.sightings.first() else {
            return "adapters cannot reach each other".to_owned();
        };
        let peer = first.get("peer").split('<').next().unwrap_or_default();
        if *first.signal == MODIFY_QP_FAILED {
            format!("a connection between adapters cannot be set up ({})", reason(first))
        } else if peer.is_empty() {
            "an adapter gets no answer from a peer (status 12)".to_owned()
        } else {
            format!("an adapter gets no answer from {peer} (status 12)")
        }
    }
}

/// The number of a completion's status: `12`, `IBV_WC_RETRY_EXC_ERR(12)`.
pub(crate) fn status(sighting: &Sighting) -> Option<u32> {
    let text = sighting.get("status");
    let digits = text.split_once('(').map_or(text, |it| it.1).trim_end_matches([')', '.', ':']);
    digits.parse().ok()
}

/// The number of an adapter's event.
pub(crate) fn event(sighting: &Sighting) -> Option<i64> {
    (*sighting.signal == ASYNC_EVENT)
        .then(|| values::in_text(Table::VerbsEvent, sighting.get("event")))
        .flatten()
        .map(|it| it.code)
}

/// Whether NCCL goes on over another port of an adapter after a failure.
pub(crate) fn failed_over(log: &Log) -> bool {
    job::outcome::failed_over(&log.case)
}

/// The first completion that is not only flushed: a flushed request (5) follows from an earlier error.
pub(crate) fn first_status(log: &Log) -> Option<u32> {
    log.case.sightings_of(&COMPLETION).filter_map(status).find(|it| *it != 5)
}

/// Whether this event of an adapter is of this kind.
pub(crate) fn is_event(sighting: &Sighting, kind: &str) -> bool {
    *sighting.signal == ASYNC_EVENT && sighting.get("event").contains(kind)
}

fn reason(sighting: &Sighting) -> &str {
    let text = sighting.get("reason");
    text.split(" errno ").next().unwrap_or(text).trim_end_matches(['.', ':'])
}

/// The network by the list of adapters, else by the GIDs that a failure shows.
pub(crate) fn layer(log: &Log) -> Layer {
    let adapters = log.case.processes.iter().flat_map(|it| it.facts.hcas.iter()).flat_map(|it| &it.value);
    let (mut ib, mut roce) = (false, false);
    for it in adapters {
        ib |= it.layer == LinkLayer::InfiniBand;
        roce |= it.layer == LinkLayer::RoCE;
    }
    match (ib, roce) {
        (true, true) => Layer::Mixed,
        (true, false) => Layer::InfiniBand,
        (false, true) => Layer::Roce,
        (false, false) => {
            let mut texts = log
                .case
                .sightings
                .iter()
                .filter(|it| [&COMPLETION, &MODIFY_QP_FAILED, &RETRY_EXCEEDED].contains(&it.signal))
                .map(|it| &it.quote.text);
            if texts.clone().any(|it| it.contains("::ffff:") || it.contains("RoCE")) {
                Layer::Roce
            } else if texts.any(|it| it.contains(":1/IB ")) {
                // UCX names the device with its kind: `mlx5_0:1/IB`.
                Layer::InfiniBand
            } else {
                Layer::Unknown
            }
        }
    }
}

/// How many adapters a process sees at most.
fn adapters(log: &Log) -> usize {
    log.case.processes.iter().flat_map(|it| it.facts.hcas.iter()).map(|it| it.value.len()).max().unwrap_or(0)
}

/// The failures and their most likely cause, if adapters failed to reach each other.
pub(crate) fn blame(log: &Log) -> Option<Blame<'_>> {
    if failed_over(log) {
        return None;
    }
    let completions: Vec<&Sighting> = log.case.sightings_of(&COMPLETION).collect();
    // A flushed request (5) follows from an earlier error; the first other status is the cause.
    let first = completions.iter().copied().find(|it| status(it) != Some(5));
    let timed_out = first.is_some_and(|it| status(it) == Some(12));
    let mut sightings: Vec<&Sighting> =
        log.case.sightings_of(&MODIFY_QP_FAILED).filter(|it| !it.quote.text.contains("retrying")).collect();
    if sightings.is_empty() && timed_out {
        sightings = completions.into_iter().filter(|it| status(it) == Some(12)).collect();
    }
    if sightings.is_empty() && first.is_none() {
        sightings = log.case.sightings_of(&RETRY_EXCEEDED).collect();
    }
    let refused = sightings.first().filter(|it| *it.signal == MODIFY_QP_FAILED).map(|it| reason(it));
    let layer = layer(log);
    let (suspect, other, because) = if sightings.is_empty() {
        return None;
    } else if log.case.first_of(&[&HCA_HEALTH]).is_some()
        || log.case.sightings.iter().any(|it| is_event(it, "local catastrophic error"))
    {
        (Suspect::HcaFatal, None, String::new())
    } else if log.case.first_of(&[&LINK_DOWN]).is_some()
        || log.case.sightings.iter().any(|it| is_event(it, "port error"))
    {
        (Suspect::LinkFlap, None, String::new())
    } else if layer == Layer::Mixed {
        (Suspect::HcaSelection, None, "InfiniBand and RoCE adapters are used together".to_owned())
    } else if refused.is_some() && adapters(log) > 16 {
        // More adapters than any node uses: the virtual functions of other containers.
        (
            Suspect::HcaSelection,
            Some(Suspect::GidIndex),
            format!("the process sees {} adapters, including those of other containers", adapters(log)),
        )
    } else if let Some(because) = gid(log, layer, refused, &sightings) {
        (
            Suspect::GidIndex,
            Some(if layer == Layer::InfiniBand { Suspect::IbFabric } else { Suspect::RoceFabric }),
            because,
        )
    } else if refused.is_some_and(|it| it.contains("No such device")) {
        (
            Suspect::HcaSelection,
            Some(Suspect::GidIndex),
            "the network device of the adapter is not in this container".to_owned(),
        )
    } else if layer == Layer::InfiniBand {
        (Suspect::IbFabric, None, String::new())
    } else if layer == Layer::Unknown && is_old_form(log, &sightings) {
        (
            Suspect::GidIndex,
            Some(Suspect::RoceFabric),
            "on RoCE, NCCL releases with this message use GID index 0 by default, usually a link-local address"
                .to_owned(),
        )
    } else {
        let other = (layer == Layer::Unknown).then_some(Suspect::IbFabric);
        (Suspect::RoceFabric, other.or(Some(Suspect::GidIndex)), String::new())
    };
    Some(Blame { suspect, other, because, sightings })
}

/// Whether the wording is that of releases before 2.19, which do not search for the right GID, and none is set.
fn is_old_form(log: &Log, sightings: &[&Sighting]) -> bool {
    let old = sightings.iter().all(|it| it.quote.text.contains(" with error 12, opcode "));
    old && log.job.settings.named("NCCL_IB_GID_INDEX").next().is_none()
}

/// The evidence for a wrong GID, if there is any.
fn gid(log: &Log, layer: Layer, refused: Option<&str>, sightings: &[&Sighting]) -> Option<String> {
    if layer == Layer::InfiniBand {
        return None;
    }
    let link_local =
        |it: &&Sighting| ["localGid fe80:", "local GID fe80:"].iter().any(|gid| it.quote.text.contains(gid));
    if sightings.iter().any(link_local) {
        return Some("the local GID is a link-local address, which is not routed".to_owned());
    }
    if log.case.first_of(&[&GID_TABLE_CHANGED]).is_some()
        || log.case.sightings.iter().any(|it| is_event(it, "GID table change"))
    {
        return Some("the GID table changed while the job ran".to_owned());
    }
    let refused_address =
        refused.is_some_and(|it| it.contains("No such device") || it.contains("Invalid argument"));
    let index = log
        .job
        .settings
        .named("NCCL_IB_GID_INDEX")
        .find_map(|it| it.text().trim_end_matches('.').parse::<i32>().ok());
    match index {
        Some(index) => {
            let entry =
                log.case.sightings_of(&GID_ENTRY).find(|it| it.get("index").trim() == index.to_string());
            if let Some(entry) = entry {
                let gid = entry.get("gid");
                if gid.starts_with("fe80") || gid.contains("v1") {
                    return Some(format!("NCCL_IB_GID_INDEX={index} is {gid}"));
                }
            }
            if refused_address {
                Some(format!("NCCL_IB_GID_INDEX={index} is not valid on every adapter"))
            } else if index == 0 || index == 1 {
                Some(format!(
                    "NCCL_IB_GID_INDEX={index} is usually a link-local address, which is not routed"
                ))
            } else {
                None
            }
        }
        None if refused.is_some_and(|it| it.contains("Invalid argument")) => {
            Some("the adapter rejected the address of the peer".to_owned())
        }
        None => {
            let version = log.job.releases.nccl.as_ref()?.value;
            // These two errors have other causes.
            let unrouted = refused
                .is_some_and(|it| it.contains("Network is unreachable") || it.contains("No such device"));
            let old = version < Version::new(2, 21, 0) && layer == Layer::Roce && !unrouted;
            old.then(|| format!("NCCL {version} uses GID index 0 by default, usually a link-local address"))
        }
    }
}
