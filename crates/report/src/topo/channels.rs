//! The rings and trees that can be drawn on top of machines: those of a log, of NCCL's search, or of a prediction.

use std::collections::BTreeMap;

use fabric::Machine;
use job::channel::{Channel, Shape};
use nccl::Prediction;

use super::assemble::overlay;
use super::{TopoEdge, TopoFamily, TopoOverlay};
use crate::decide::crossing::{entry, exit};

/// Those of a log or of NCCL's search. Channels that run the same way are one.
pub fn known(channels: &[Channel]) -> Vec<TopoOverlay> {
    let named = channels.iter().map(|it| (it.shape, it.number, overlay(it)));
    joined(named).into_iter().map(|it| it.named("")).collect()
}

/// A job on machines that are alike.
#[derive(Clone, Copy)]
pub struct Ranks<'a> {
    /// One of the machines.
    pub machine: &'a Machine,
    /// How many ranks a machine has.
    pub each: u32,
    /// The transport between two ranks of a machine.
    pub inside: &'a dyn Fn(u32, u32) -> Option<TopoFamily>,
}

/// Those that NCCL is predicted to use.
pub fn predicted(prediction: &Prediction, ranks: &Ranks<'_>) -> Vec<TopoOverlay> {
    found(prediction, ranks).into_iter().map(|it| it.named("")).collect()
}

/// Those without and with settings, each with the connections that the other does not have. Those that change come first.
pub fn compared(before: (&Prediction, &Ranks<'_>), after: (&Prediction, &Ranks<'_>)) -> Vec<TopoOverlay> {
    side_by_side(found(before.0, before.1), found(after.0, after.1))
}

fn side_by_side(mut before: Vec<Found>, mut after: Vec<Found>) -> Vec<TopoOverlay> {
    let other = |all: &[Found], it: &Found| -> Vec<TopoEdge> {
        let shares = |other: &&Found| {
            other.shape == it.shape && other.channels.iter().any(|number| it.channels.contains(number))
        };
        all.iter().filter(shares).flat_map(|it| it.overlay.edges.iter().cloned()).collect()
    };
    let (now, then) = (before.clone(), after.clone());
    for (mine, all) in [(&mut before, &then), (&mut after, &now)] {
        for it in mine.iter_mut() {
            let known = other(all, it);
            let is_new = |edge: &&TopoEdge| !known.is_empty() && !known.contains(edge);
            it.overlay.changed = it.overlay.edges.iter().filter(is_new).cloned().collect();
        }
    }
    let mut all: Vec<(bool, TopoOverlay)> = Vec::new();
    let same = |one: &Found, other: &Found| {
        (one.shape, &one.channels, &one.overlay.edges) == (other.shape, &other.channels, &other.overlay.edges)
    };
    for it in &before {
        if after.iter().any(|other| same(it, other)) {
            all.push((true, it.clone().named("unchanged: ")));
            continue;
        }
        all.push((false, it.clone().named("now: ")));
        // What a channel becomes stands behind what it is.
        let next = after.iter().filter(|other| {
            let first = before
                .iter()
                .find(|now| now.shape == other.shape && now.channels.contains(&other.channels[0]));
            first == Some(it) && !before.iter().any(|now| same(now, other))
        });
        all.extend(next.map(|it| (false, it.clone().named("then: "))));
    }
    let is_listed =
        |it: &Found| before.iter().any(|now| now.shape == it.shape && now.channels.contains(&it.channels[0]));
    all.extend(after.iter().filter(|it| !is_listed(it)).map(|it| (false, it.clone().named("then: "))));
    all.sort_by_key(|it| it.0);
    all.into_iter().map(|it| it.1).collect()
}

fn found(prediction: &Prediction, ranks: &Ranks<'_>) -> Vec<Found> {
    let communicator = &prediction.communicator;
    let connected = &communicator.connected;
    let all = u32::try_from(communicator.n_ranks).unwrap_or(u32::MAX);
    let each = ranks.each.max(1);
    let place = |rank: u32| (rank / each, rank % each);
    let edge = |from: u32, to: u32| {
        let (from, to) = (place(from), place(to));
        let inside = || (ranks.inside)(from.1, to.1).unwrap_or(TopoFamily::Inside);
        let family = if from.0 == to.0 { inside() } else { TopoFamily::Net };
        TopoEdge { from, to, family, nic: None, to_nic: None }
    };
    let name = |nic: Option<usize>| Some(ranks.machine.nics.get(nic?)?.name.to_string());
    let nodes = all.div_ceil(each);
    let mut found = Vec::new();
    for (number, channel) in (0..).zip(&connected.channels) {
        if let Some(ring) = connected.rings.get(channel.ring) {
            let mut edges = Vec::new();
            let mut at = 0_u32;
            while let Some(next) = ring.next.get(at as usize).filter(|_| edges.len() < ring.next.len()) {
                let mut edge = edge(at, *next);
                if edge.family == TopoFamily::Net {
                    edge.nic = name(exit(communicator, at as usize, channel.ring));
                    edge.to_nic = name(entry(communicator, *next as usize, channel.ring));
                }
                edges.push(edge);
                at = *next;
            }
            found.push((Shape::Ring, number, TopoOverlay { nodes, edges, ..TopoOverlay::default() }));
        }
        if let Some(tree) = connected.trees.get(channel.tree) {
            let up = (0..).zip(&tree.ranks).filter_map(|(rank, it)| Some(edge(rank, it.up?)));
            let edges = up.collect();
            found.push((Shape::Tree, number, TopoOverlay { nodes, edges, ..TopoOverlay::default() }));
        }
    }
    joined(found.into_iter())
}

/// A ring or tree with the channels that have it.
#[derive(Clone, PartialEq)]
struct Found {
    shape: Shape,
    channels: Vec<u32>,
    overlay: TopoOverlay,
}

impl Found {
    fn named(self, before: &str) -> TopoOverlay {
        let name = format!("{before}{} of {}", self.shape.name(), listed(&self.channels));
        TopoOverlay { name, ..self.overlay }
    }
}

/// Rings before trees, each once with the channels that have it.
fn joined(all: impl Iterator<Item = (Shape, u32, TopoOverlay)>) -> Vec<Found> {
    let mut kinds: BTreeMap<bool, Vec<Found>> = BTreeMap::new();
    for (shape, number, overlay) in all.filter(|it| !it.2.edges.is_empty()) {
        let known = kinds.entry(shape == Shape::Tree).or_default();
        match known.iter_mut().find(|known| known.overlay.edges == overlay.edges) {
            Some(known) => known.channels.push(number),
            None => known.push(Found { shape, channels: vec![number], overlay }),
        }
    }
    kinds.into_values().flatten().collect()
}

/// `channel 3`, `channels 0, 2, 4`, `channels 0-7`.
fn listed(numbers: &[u32]) -> String {
    match numbers {
        [one] => format!("channel {one}"),
        [first, .., last] if (last - first) as usize + 1 == numbers.len() && numbers.len() > 2 => {
            format!("channels {first}-{last}")
        }
        many => {
            let all: Vec<String> = many.iter().map(u32::to_string).collect();
            format!("channels {}", all.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Shape, TopoEdge, TopoFamily, TopoOverlay, joined, listed, side_by_side};

    fn overlay(to: &[u32]) -> TopoOverlay {
        let edge = |to: &u32| TopoEdge {
            from: (0, 0),
            to: (0, *to),
            family: TopoFamily::P2p,
            nic: None,
            to_nic: None,
        };
        TopoOverlay { nodes: 1, edges: to.iter().map(edge).collect(), ..TopoOverlay::default() }
    }

    #[test]
    fn channels_that_run_the_same_way_are_one() {
        let all = [
            (Shape::Tree, 0, overlay(&[1])),
            (Shape::Ring, 0, overlay(&[1])),
            (Shape::Ring, 1, overlay(&[2])),
            (Shape::Ring, 2, overlay(&[1])),
            (Shape::Ring, 3, TopoOverlay::default()),
        ];
        let names: Vec<String> = joined(all.into_iter()).into_iter().map(|it| it.named("").name).collect();
        assert_eq!(names, ["ring of channels 0, 2", "ring of channel 1", "tree of channel 0"]);
        assert_eq!(listed(&[4, 5, 6]), "channels 4-6");
    }

    #[test]
    fn every_ring_can_be_chosen() {
        let all = (0..40).map(|it| (Shape::Ring, it, overlay(&[it + 1])));
        assert_eq!(joined(all).len(), 40);
    }

    #[test]
    fn both_states_of_a_setting_are_shown_with_what_changes() {
        let before = [
            (Shape::Ring, 0, overlay(&[1, 2])),
            (Shape::Ring, 1, overlay(&[1, 4])),
            (Shape::Ring, 2, overlay(&[5])),
        ];
        let after = [
            (Shape::Ring, 0, overlay(&[1, 2])),
            (Shape::Ring, 1, overlay(&[1, 3])),
            (Shape::Ring, 3, overlay(&[6])),
        ];
        let all = side_by_side(joined(before.into_iter()), joined(after.into_iter()));
        let shown: Vec<(&str, usize)> = all.iter().map(|it| (&*it.name, it.changed.len())).collect();
        assert_eq!(
            shown,
            [
                ("now: ring of channel 1", 1),
                ("then: ring of channel 1", 1),
                ("now: ring of channel 2", 0),
                ("then: ring of channel 3", 0),
                ("unchanged: ring of channel 0", 0),
            ]
        );
        assert_eq!(all[1].changed[0].to, (0, 3));
    }
}
