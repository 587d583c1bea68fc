//! Rings and trees as pictures in text.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Ring, TreePlace};

/// One line per ring; channels with the same order share it.
///
/// ```text
/// ring 0, 1    0 > 1 > 2 > 3 > 0
/// ```
pub(crate) fn rings(rings: &[Ring], room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for ring in rings.iter().take(4) {
        let order: Vec<String> = ring.order.iter().map(ToString::to_string).collect();
        let end = if ring.cut {
            "... (truncated in the log)".to_owned()
        } else {
            order.first().cloned().unwrap_or_default()
        };
        let text = format!("{} > {end}", order.join(" > "));
        let name = format!("ring {}", list(&ring.channels));
        lines.push(format!("{name:<12} {}", shorten(&text, room.saturating_sub(13))));
    }
    if rings.len() > 4 {
        lines.push(format!("and {} more rings", rings.len() - 4));
    }
    lines
}

/// The trees, as far as the logs show them; channels with the same tree share one picture.
///
/// ```text
/// tree 0       0 - 1 - 2 - 3
///              0 - 8
/// ```
pub(crate) fn trees(places: &[TreePlace], room: usize) -> Vec<String> {
    let mut channels: BTreeMap<u32, Children> = BTreeMap::new();
    for place in places {
        let children = channels.entry(place.channel).or_default();
        children.entry(place.rank).or_default().extend(place.down.as_slice());
        if let Some(up) = place.up {
            children.entry(up).or_default().insert(place.rank);
        }
    }
    let mut alike: Vec<(Vec<u32>, Children)> = Vec::new();
    for (channel, children) in channels {
        match alike.iter_mut().find(|it| it.1 == children) {
            Some(known) => known.0.push(channel),
            None => alike.push((vec![channel], children)),
        }
    }
    let mut lines = Vec::new();
    for (numbers, children) in alike.iter().take(2) {
        let below: BTreeSet<u32> = children.values().flatten().copied().collect();
        let roots: Vec<u32> = children.keys().copied().filter(|it| !below.contains(it)).collect();
        let mut drawing = Vec::new();
        let mut drawn = BTreeSet::new();
        for root in roots {
            draw(root, children, &mut drawn, &mut drawing);
        }
        let name = format!("tree {}", list(numbers));
        for (i, line) in drawing.iter().take(24).enumerate() {
            let name = if i == 0 { name.as_str() } else { "" };
            lines.push(format!("{name:<12} {}", shorten(line, room.saturating_sub(13))));
        }
        if drawing.len() > 24 {
            lines.push(format!("{:<12} and {} more branches", "", drawing.len() - 24));
        }
    }
    lines
}

/// The children of each rank.
type Children = BTreeMap<u32, BTreeSet<u32>>;

/// A chain is on one line; a branch is on the next line and begins with the rank where it starts.
fn draw(root: u32, children: &Children, drawn: &mut BTreeSet<u32>, out: &mut Vec<String>) {
    let mut branches = vec![(None, root)];
    while let Some((from, rank)) = branches.pop() {
        let mut line = from.map(|it: u32| it.to_string()).unwrap_or_default();
        let mut later = Vec::new();
        let mut next = Some(rank);
        while let Some(rank) = next {
            // A log of two mixed jobs could contain a cycle.
            if !drawn.insert(rank) {
                break;
            }
            if !line.is_empty() {
                line.push_str(" - ");
            }
            line.push_str(&rank.to_string());
            let mut below = children.get(&rank).into_iter().flatten().copied();
            next = below.next();
            later.extend(below.map(|it| (Some(rank), it)));
        }
        out.push(line);
        branches.extend(later.into_iter().rev());
    }
}

fn list(numbers: &[u32]) -> String {
    match numbers {
        [] => String::new(),
        [one] => one.to_string(),
        [first, .., last] if last.checked_sub(*first).map(|it| it as usize + 1) == Some(numbers.len()) => {
            format!("{first}-{last}")
        }
        many => many.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    // Keep both ends of the ring.
    let room = room.max(20);
    let tail = text.rfind(" > ").map_or(8, |at| text.len() - at).min(room / 3);
    let end: String = text.chars().skip(text.chars().count() - tail).collect();
    text.chars().take(room - tail - 5).chain(" ... ".chars()).chain(end.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::{rings, trees};
    use crate::{Ring, TreePlace};

    #[test]
    fn a_ring_goes_back_to_its_start() {
        let ring = Ring { channels: vec![0, 1], order: vec![0, 1, 2], cut: false };
        assert_eq!(rings(&[ring], 80), ["ring 0-1     0 > 1 > 2 > 0"]);
    }

    #[test]
    fn chains_stand_on_one_line() {
        let place =
            |rank, up, down: &[u32]| TreePlace { channel: 0, rank, up, down: down.iter().copied().collect() };
        let lines = trees(&[place(0, None, &[1, 8]), place(1, Some(0), &[2]), place(2, Some(1), &[])], 80);
        assert_eq!(lines, ["tree 0       0 - 1 - 2", "             0 - 8"]);
    }

    #[test]
    fn a_circle_ends() {
        let place = |rank, up| TreePlace { channel: 0, rank, up: Some(up), down: [].into_iter().collect() };
        // No root: nothing to draw, and no endless loop.
        assert!(trees(&[place(0, 1), place(1, 0)], 80).is_empty());
    }
}
