//! What is known of the paths between the GPUs of a node.

use evidence::{MemberLink, Quote};
use fabric::{P2pKind, Transport};
use job::inside::NvLink;

use crate::Log;

/// How NVLink joins the GPUs of a node. `None`: unknown.
pub(super) fn nvlink(log: &Log) -> Option<NvLink> {
    NvLink::of(&log.case, &log.job)
}

/// Whether peer access over PCIe or NVLink was turned off by a setting, with its name and the line.
pub(super) fn p2p_off(log: &Log) -> Option<(&'static str, &Quote)> {
    let value = |text: &str| text.trim_matches(|it: char| !it.is_ascii_alphanumeric()).to_owned();
    let disable = log
        .job
        .settings
        .named("NCCL_P2P_DISABLE")
        .find(|it| value(it.text()) == "1")
        .and_then(|it| Some(("NCCL_P2P_DISABLE=1", it.quote()?)));
    // Up to 2.25, NCCL prints NCCL_P2P_DISABLE=1 as this level.
    let level = || {
        let found =
            log.job.settings.named("NCCL_P2P_LEVEL").find(|it| matches!(&*value(it.text()), "LOC" | "0"));
        found.and_then(|it| Some(("NCCL_P2P_LEVEL=LOC (or NCCL_P2P_DISABLE=1)", it.quote()?)))
    };
    disable.or_else(level)
}

/// The pairs of ranks that exchange data through host memory, with the first line of each.
pub(super) fn host_memory_pairs(log: &Log) -> Vec<((u32, u32), &Quote)> {
    let mut pairs: Vec<((u32, u32), &Quote)> = Vec::new();
    for MemberLink { link, .. } in log.case.links().filter(|it| it.link.transport() == Some(&Transport::Shm))
    {
        let pair = (link.from.min(link.to), link.from.max(link.to));
        if !pairs.iter().any(|it| it.0 == pair) {
            pairs.push((pair, &link.quote));
        }
    }
    pairs
}

/// The pairs of ranks that reach each other directly by writing, none by reading, with the first line of each.
pub(super) fn unread_pairs(log: &Log) -> Vec<((u32, u32), &Quote)> {
    let mut pairs: Vec<((u32, u32), &Quote)> = Vec::new();
    for MemberLink { link, .. } in log.case.links() {
        match link.transport() {
            Some(Transport::P2p { read: true, .. }) => return Vec::new(),
            Some(Transport::P2p { kind: P2pKind::Ipc | P2pKind::Cumem | P2pKind::DirectPointer, .. })
                if !pairs.iter().any(|it| it.0 == (link.from, link.to)) =>
            {
                pairs.push(((link.from, link.to), &link.quote));
            }
            _ => {}
        }
    }
    pairs
}

/// `1 pair`, `3 pairs`
pub(super) fn counted(n: usize, word: &str) -> String {
    format!("{n} {word}{}", if n == 1 { "" } else { "s" })
}
