//! `--what-if NAME=VALUE`: the difference that a setting makes.

use nccl::Prediction;
use rules::decisions::lines;

use super::text::ranges;
use super::{Change, Decide, WhatIf};
use crate::text::{bytes, counted};

/// The row about rings between nodes.
pub(super) const CROSSINGS: &str = "node 0 to 1";

/// Compares two answers for one job, before and after the settings.
pub fn what_if(
    settings: &[(String, String)],
    before: (&Decide, &Prediction),
    after: (&Decide, &Prediction),
) -> WhatIf {
    let mut changes = Vec::new();
    let mut note = |what: &str, before: String, after: String| {
        if before != after {
            changes.push(Change { what: what.to_owned(), before, after });
        }
    };
    let (one, other) = (before.0, after.0);
    let (old, new) = (&one.channels, &other.channels);
    note("channels", old.collectives.to_string(), new.collectives.to_string());
    note("NVLS channels", old.nvls.to_string(), new.nvls.to_string());
    note("send/recv", p2p(one), p2p(other));
    note("NCCL nodes", one.nccl_nodes.to_string(), other.nccl_nodes.to_string());
    for algorithm in ["ring", "tree", "nvls", "collnet_chain", "collnet_direct"] {
        note(&format!("{algorithm} search"), searched(one, algorithm), searched(other, algorithm));
    }
    let names = one.choices.iter().map(|it| it.collective);
    for name in names {
        let of = |it: &Decide| {
            let found = it.choices.iter().find(|it| it.collective == name);
            found.map_or_else(|| "none".to_owned(), |it| ranges(&it.ranges).replace('\u{a0}', " "))
        };
        note(name, of(one), of(other));
    }
    note(CROSSINGS, crossings(one), crossings(other));
    let (rings, trees) = (rings(before.1, after.1), trees(before.1, after.1));
    if rings > 0 {
        changes.push(Change {
            what: "rings".to_owned(),
            before: first_ring(before.1),
            after: format!("{} ({} differ)", first_ring(after.1), counted(rings, "channel")),
        });
    }
    if trees > 0 {
        changes.push(Change {
            what: "trees".to_owned(),
            before: trees_line(before.1),
            after: format!("{} ({} differ)", trees_line(after.1), counted(trees, "rank")),
        });
    }
    let (old, new) = (lines(before.1, 0), lines(after.1, 0));
    let table =
        |it: &[String]| it.iter().filter(|it| it.trim_end().ends_with('|')).cloned().collect::<Vec<_>>();
    let cells = different_cells(&table(&old), &table(&new));
    if cells > 0 {
        changes.push(Change {
            what: "tuning table".to_owned(),
            before: String::new(),
            after: format!("{} differ", counted(cells, "cell")),
        });
    }
    let unheeded = other.unheeded.iter().filter(|it| settings.iter().any(|set| set.0 == it.name));
    WhatIf {
        settings: settings.iter().map(|it| format!("{}={}", it.0, it.1)).collect(),
        changes,
        unheeded: unheeded.clone().map(|it| it.reason.clone()).collect(),
        not_modelled: unheeded.filter(|it| it.not_modelled).map(|it| it.name.clone()).collect(),
        expected: Vec::new(),
        refused: None,
    }
}

impl WhatIf {
    /// Settings with which NCCL would not run.
    pub fn refused(settings: &[(String, String)], reason: String) -> Self {
        let settings = settings.iter().map(|it| format!("{}={}", it.0, it.1)).collect();
        Self {
            settings,
            changes: Vec::new(),
            unheeded: Vec::new(),
            not_modelled: Vec::new(),
            expected: Vec::new(),
            refused: Some(reason),
        }
    }
}

fn p2p(it: &Decide) -> String {
    let it = &it.channels;
    format!("{} channels, {} per peer, chunks of {}", it.p2p, it.p2p_per_peer, bytes(it.p2p_chunk))
}

fn searched(it: &Decide, algorithm: &str) -> String {
    it.graphs.iter().find(|it| it.algorithm == algorithm).map_or_else(
        || "none".to_owned(),
        |it| {
            let cross = if it.cross_nic > 0 { ", crosses NICs" } else { "" };
            format!(
                "{} x {}/{} GB/s, {}/{}{cross}",
                it.channels.len(),
                it.intra,
                it.inter,
                it.type_intra,
                it.type_inter
            )
        },
    )
}

fn crossings(it: &Decide) -> String {
    let way = |it: &super::Crossing| format!("{}->{} {}", it.from_rank, it.to_rank, it.from_nic);
    it.between_nodes.iter().map(way).collect::<Vec<_>>().join(", ")
}

fn first_ring(it: &Prediction) -> String {
    it.communicator.ring_lists().first().map(|it| it.replace("  ", " ")).unwrap_or_default()
}

fn trees_line(it: &Prediction) -> String {
    let line = it.communicator.trees_line(0);
    let end = line.match_indices(" [").nth(2).map_or(line.len(), |it| it.0);
    line.get(..end).unwrap_or(&line).to_owned()
}

/// Channels whose ring differs.
fn rings(before: &Prediction, after: &Prediction) -> usize {
    let (one, other) = (&before.communicator.connected, &after.communicator.connected);
    let shared = one.channels.len().min(other.channels.len());
    (0..shared)
        .filter(|it| one.rings[one.channels[*it].ring] != other.rings[other.channels[*it].ring])
        .count()
}

/// Ranks whose place in a tree of a channel differs.
fn trees(before: &Prediction, after: &Prediction) -> usize {
    let (one, other) = (&before.communicator.connected, &after.communicator.connected);
    let shared = one.channels.len().min(other.channels.len());
    let differs = |rank: usize| {
        (0..shared).any(|it| {
            one.trees[one.channels[it].tree].ranks.get(rank)
                != other.trees[other.channels[it].tree].ranks.get(rank)
        })
    };
    (0..before.communicator.n_ranks).filter(|it| differs(*it)).count()
}

fn different_cells(one: &[String], other: &[String]) -> usize {
    let cells = |all: &[String]| -> Vec<String> {
        all.iter().flat_map(|it| it.split('|').map(|it| it.trim().to_owned()).collect::<Vec<_>>()).collect()
    };
    cells(one).iter().zip(&cells(other)).filter(|it| it.0 != it.1).count()
}
