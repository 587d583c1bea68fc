//! The regions of aws-ofi-nccl's tuner: polygons of size and ranks in which it wants one algorithm and protocol.
//!
//! The data are in `data/ofi-tuner.json`, the geometry is that of `is_inside_region` in `src/tuner/nccl_ofi_regions.cpp`.

use std::sync::OnceLock;

use fabric::Version;
use fabric::collective::Collective;
use serde::Deserialize;

use crate::Algorithm;
use crate::tuning::Protocol;

/// A polygon and what is wanted inside it.
#[derive(Debug, Clone)]
pub(super) struct Region {
    pub(super) algorithm: Algorithm,
    pub(super) protocol: Protocol,
    vertices: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    x: f64,
    y: f64,
}

/// Small enough to be on an edge, and to be parallel.
const EPSILON: f64 = 1e-10;

/// Twice what the tuner counts as the most bytes and ranks: `TUNER_MAX_SIZE` and `TUNER_MAX_RANKS`.
const OUTSIDE: Point = Point { x: 2.0 * 100.0 * 1024.0 * 1024.0 * 1024.0, y: 2.0 * 1024.0 * 1024.0 };

/// Since 1.19 regions are drawn on logarithmic scales.
pub(super) fn is_logarithmic(plugin: Version) -> bool {
    plugin >= Version::new(1, 19, 0)
}

impl Point {
    fn scaled(self, logarithmic: bool) -> Self {
        let log = |it: f64| if it > 0.0 { it.log2() } else { 1e-6_f64.log2() };
        if logarithmic { Self { x: log(self.x), y: log(self.y) } } else { self }
    }

    fn to(self, other: Self) -> Self {
        Self { x: other.x - self.x, y: other.y - self.y }
    }

    fn cross(self, other: Self) -> f64 {
        self.x * other.y - self.y * other.x
    }
}

/// How one line meets a segment.
enum Meeting {
    Inside,
    /// At an end of the segment, or the two are parallel.
    End,
    Outside,
}

/// Where the segment from `from` to `to` meets the edge from `start` to `end`; with the point where their lines cross.
fn meet(from: Point, to: Point, start: Point, end: Point) -> (Meeting, Point) {
    let (along, edge) = (from.to(to), start.to(end));
    let area = edge.cross(along);
    if area.abs() < EPSILON {
        return (Meeting::End, Point { x: 0.0, y: 0.0 });
    }
    let part = (from.cross(along) - start.cross(along)) / area;
    let point = Point { x: start.x + part * edge.x, y: start.y + part * edge.y };
    if !(-EPSILON..=1.0 + EPSILON).contains(&part) {
        return (Meeting::Outside, point);
    }
    if !(EPSILON..=1.0 - EPSILON).contains(&part) {
        return (Meeting::End, point);
    }
    let reached = (from.cross(edge) - start.cross(edge)) / area;
    if (0.0..=1.0).contains(&reached) { (Meeting::Inside, point) } else { (Meeting::Outside, point) }
}

impl Region {
    /// Whether a call of this many bytes among so many ranks is in it or on its edge.
    pub(super) fn contains(&self, bytes: u64, ranks: u32, logarithmic: bool) -> bool {
        #[expect(clippy::cast_precision_loss, reason = "as the plugin computes it")]
        let point = Point { x: bytes as f64, y: f64::from(ranks) }.scaled(logarithmic);
        let corners: Vec<Point> = self.vertices.iter().map(|it| it.scaled(logarithmic)).collect();
        let edges = || corners.iter().zip(corners.iter().cycle().skip(1));
        if edges().any(|(start, end)| is_on(point, *start, *end)) {
            return true;
        }
        let within = |of: fn(&Point) -> f64| {
            let all = corners.iter().map(of);
            let low = all.clone().fold(f64::INFINITY, f64::min);
            low <= of(&point) && of(&point) <= all.fold(f64::NEG_INFINITY, f64::max)
        };
        if !within(|it| it.x) || !within(|it| it.y) {
            return false;
        }
        let outside = OUTSIDE.scaled(logarithmic);
        let crossed =
            |edge: &(&Point, &Point)| matches!(meet(point, outside, *edge.0, *edge.1).0, Meeting::Inside);
        edges().filter(crossed).count() % 2 == 1
    }
}

/// Whether a point is on an edge.
fn is_on(point: Point, start: Point, end: Point) -> bool {
    let edge = start.to(end);
    let aside = Point { x: point.x + edge.y, y: point.y - edge.x };
    let foot = match meet(point, aside, start, end) {
        (Meeting::Outside, _) => return false,
        (_, foot) => foot,
    };
    let away = point.to(foot);
    (away.x * away.x + away.y * away.y).sqrt() < EPSILON
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Data {
    #[expect(dead_code, reason = "for the reader of the file")]
    source: String,
    sets: Vec<Set>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Set {
    platform: String,
    per_node: u32,
    collective: Collective,
    since: String,
    until: Option<String>,
    regions: Vec<RawRegion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRegion {
    algorithm: String,
    protocol: String,
    vertices: Vec<(f64, f64)>,
}

impl RawRegion {
    fn region(&self) -> Option<Region> {
        Some(Region {
            algorithm: Algorithm::ALL.into_iter().find(|it| it.name() == self.algorithm)?,
            protocol: Protocol::ALL.into_iter().find(|it| it.name() == self.protocol)?,
            vertices: self.vertices.iter().map(|&(x, y)| Point { x, y }).collect(),
        })
    }
}

fn data() -> &'static [Set] {
    static DATA: OnceLock<Vec<Set>> = OnceLock::new();
    DATA.get_or_init(|| {
        let text = include_str!("../../data/ofi-tuner.json");
        serde_json::from_str::<Data>(text).map_or_else(|_| Vec::new(), |it| it.sets)
    })
}

/// The regions of a release of the plugin, in the order in which they are tried.
pub(super) fn regions(plugin: Version, platform: &str, per_node: u32, collective: Collective) -> Vec<Region> {
    let is_wanted = |set: &&Set| {
        set.platform == platform
            && set.per_node == per_node
            && set.collective == collective
            && Version::parse(&set.since).is_some_and(|it| plugin >= it)
            && set.until.as_ref().is_none_or(|it| Version::parse(it).is_some_and(|it| plugin < it))
    };
    let set = data().iter().find(is_wanted);
    set.map_or_else(Vec::new, |it| it.regions.iter().filter_map(RawRegion::region).collect())
}

#[cfg(test)]
mod tests {
    use fabric::Version;
    use fabric::collective::Collective;

    use super::{data, regions};

    #[test]
    fn every_set_is_read() {
        assert_eq!(data().len(), 70);
        for set in data() {
            let plugin = Version::parse(&set.since).expect("a release");
            let read = regions(plugin, &set.platform, set.per_node, set.collective);
            assert_eq!(read.len(), set.regions.len(), "{} {}", set.platform, set.since);
            assert!(read.iter().all(|it| it.vertices.len() >= 3), "{} {}", set.platform, set.since);
        }
    }

    /// A point in the middle of an edge, next to it and at a corner: `tests/unit/region_based_tuner.cpp` tests the same.
    #[test]
    fn edges_belong_to_a_region() {
        let [first, ..] = &regions(Version::new(1, 16, 0), "p5", 8, Collective::AllReduce)[..] else {
            panic!("no region")
        };
        assert!(first.contains(0, 16, false));
        assert!(first.contains(20_000_000, 16, false));
        assert!(first.contains(1 << 20, 64, false));
        assert!(!first.contains(1 << 20, 15, false));
        assert!(!first.contains(1 << 40, 64, false));
    }
}
