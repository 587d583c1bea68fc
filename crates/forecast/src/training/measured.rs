//! Collectives that were measured on the machines of a job, used instead of what the catalogue says of their links.

use fabric::Collective;

/// Times of one collective by size, on one set of ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    collective: Collective,
    ranks: usize,
    nodes: usize,
    /// Bytes as nccl-tests counts them, and seconds, by bytes.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// From sizes in bytes and times in microseconds. None without ranks, nodes or a time.
    pub fn new(
        collective: Collective,
        ranks: usize,
        nodes: usize,
        points: impl IntoIterator<Item = (u64, f64)>,
    ) -> Option<Self> {
        #[allow(clippy::cast_precision_loss, reason = "sizes of messages are far below 2^53")]
        let usable = |(bytes, time): (u64, f64)| {
            (bytes > 0 && time.is_finite() && time > 0.0).then_some((bytes as f64, time * 1e-6))
        };
        let mut points: Vec<(f64, f64)> = points.into_iter().filter_map(usable).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        // Of a size that was measured several times, the fastest.
        points.dedup_by(|later, first| later.0.total_cmp(&first.0).is_eq());
        (ranks > 1 && nodes > 0 && !points.is_empty()).then_some(Self { collective, ranks, nodes, points })
    }

    /// The time of a size: between two measured ones by powers, beyond the largest with its bandwidth.
    fn time(&self, bytes: f64) -> f64 {
        let after = self.points.partition_point(|it| it.0 < bytes);
        match (after.checked_sub(1).and_then(|it| self.points.get(it)), self.points.get(after)) {
            (Some(&(size, time)), None) => time * bytes / size,
            (None, Some(&(_, time))) => time,
            (Some(&(small, fast)), Some(&(large, slow))) => {
                let share = (bytes / small).ln() / (large / small).ln();
                fast * (slow / fast).powf(share)
            }
            (None, None) => 0.0,
        }
    }

    fn largest(&self) -> f64 {
        self.points.last().map_or(0.0, |it| it.0)
    }

    fn describe(&self) -> String {
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        format!("{} of {} GPUs on {nodes}", self.collective, self.ranks)
    }
}

/// Which ranks a group has: only a measurement of the same fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shape {
    pub(crate) ranks: f64,
    pub(crate) nodes: f64,
    /// Whether the group has all GPUs of its nodes, so that no other group shares their NICs.
    pub(crate) alone: bool,
    /// Whether switches add up: then all-reduce says nothing of the others.
    pub(crate) switches: bool,
}

/// All measurements of a job.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// Names of files, and what was measured.
    files: Vec<(String, Vec<Curve>)>,
}

impl Measured {
    /// Adds what a file holds.
    pub fn add(&mut self, file: &str, curves: Vec<Curve>) {
        self.files.push((file.to_owned(), curves));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    fn find(&self, collective: Collective, shape: Shape) -> Option<(&str, &Curve)> {
        #[allow(clippy::cast_precision_loss, reason = "ranks are far below 2^53")]
        let fits = |it: &&Curve| {
            it.collective == collective
                && (it.ranks as f64 - shape.ranks).abs() < 0.5
                && (it.nodes as f64 - shape.nodes).abs() < 0.5
                && shape.alone
        };
        self.files
            .iter()
            .find_map(|(file, curves)| curves.iter().find(fits).map(|curve| (file.as_str(), curve)))
    }

    /// The time of a collective in a group, where it was measured. An all-reduce is a reduce-scatter and an all-gather; these two
    /// stand in for each other.
    pub(crate) fn time(&self, collective: Collective, shape: Shape, bytes: f64) -> Option<f64> {
        let of = |it: Collective| self.find(it, shape).map(|it| it.1.time(bytes));
        let halves = || {
            let (one, other) = (of(Collective::AllGather), of(Collective::ReduceScatter));
            Some(f64::midpoint(one.or(other)?, other.or(one)?))
        };
        match collective {
            Collective::AllReduce => {
                of(collective).or_else(|| halves().filter(|_| !shape.switches).map(|it| 2.0 * it))
            }
            Collective::AllGather | Collective::ReduceScatter => {
                halves().or_else(|| of(Collective::AllReduce).filter(|_| !shape.switches).map(|it| it / 2.0))
            }
            _ => of(collective),
        }
    }

    /// What is used for the groups of a job, in sentences.
    pub(crate) fn notes(&self, groups: &[(&str, Collective, Shape)]) -> Vec<String> {
        let mut notes = Vec::new();
        for (file, curves) in &self.files {
            let mut used: Vec<String> = Vec::new();
            for (name, collective, shape) in groups {
                let parts = [
                    Collective::AllReduce,
                    Collective::AllGather,
                    Collective::ReduceScatter,
                    Collective::AllToAll,
                ];
                let from: Vec<&Curve> = parts
                    .into_iter()
                    .filter_map(|it| self.find(it, *shape).filter(|it| it.0 == file).map(|it| it.1))
                    .filter(|it| {
                        (it.collective == Collective::AllToAll) == (*collective == Collective::AllToAll)
                    })
                    .collect();
                if !from.is_empty() && self.time(*collective, *shape, 1.0).is_some() {
                    let names: Vec<String> = from.iter().map(|it| it.collective.to_string()).collect();
                    used.push(format!(
                        "{name} ({} of {} GPUs on {} {})",
                        names.join(", "),
                        shape.ranks,
                        shape.nodes,
                        if shape.nodes > 1.0 { "nodes" } else { "node" }
                    ));
                    if let Some(short) = from.iter().find(|it| it.largest() < LONG) {
                        notes.push(format!(
                            "{file}: the largest {} was {:.0} KiB: longer messages are taken with its bandwidth",
                            short.collective,
                            short.largest() / 1024.0
                        ));
                    }
                }
            }
            if used.is_empty() {
                let has: Vec<String> = curves.iter().map(Curve::describe).collect();
                let wants: Vec<String> = groups
                    .iter()
                    .map(|(name, collective, shape)| {
                        let place = if shape.alone { "" } else { ", which share NICs with others" };
                        format!(
                            "{name}: {collective} of {} GPUs on {} nodes{place}",
                            shape.ranks, shape.nodes
                        )
                    })
                    .collect();
                notes.push(format!(
                    "{file} is not used: it has {}; this job has {}",
                    has.join(", "),
                    if wants.is_empty() { "no groups".to_owned() } else { wants.join("; ") }
                ));
            } else {
                notes.insert(0, format!("measured times of {file} are used for {}", used.join(" and ")));
            }
        }
        notes.dedup();
        notes
    }
}

/// Messages from here on are taken as long.
const LONG: f64 = 16.0 * 1024.0 * 1024.0;

#[cfg(test)]
mod tests {
    use fabric::Collective;

    use super::{Curve, Measured, Shape};

    fn shape() -> Shape {
        Shape { ranks: 16.0, nodes: 2.0, alone: true, switches: false }
    }

    fn measured(collective: Collective) -> Measured {
        let mut it = Measured::default();
        let curve =
            Curve::new(collective, 16, 2, [(1 << 20, 100.0), (1 << 24, 400.0), (0, 1.0), (8, f64::NAN)]);
        it.add("bench.json", curve.into_iter().collect());
        it
    }

    #[test]
    fn times_lie_on_the_measured_curve() {
        let it = measured(Collective::AllReduce);
        let time = |bytes: u32| it.time(Collective::AllReduce, shape(), f64::from(bytes)).unwrap() * 1e6;
        assert!((time(1 << 20) - 100.0).abs() < 1e-6 && (time(1 << 24) - 400.0).abs() < 1e-6);
        assert!((time(1 << 22) - 200.0).abs() < 1e-6, "{}", time(1 << 22));
        assert!((time(8) - 100.0).abs() < 1e-6 && (time(1 << 25) - 800.0).abs() < 1e-6);
    }

    #[test]
    fn only_the_same_group_fits() {
        let it = measured(Collective::AllReduce);
        let other = |change: fn(&mut Shape)| {
            let mut shape = shape();
            change(&mut shape);
            it.time(Collective::AllReduce, shape, 1e6)
        };
        assert!(other(|_| ()).is_some());
        assert!(other(|it| it.ranks = 8.0).is_none() && other(|it| it.nodes = 1.0).is_none());
        assert!(other(|it| it.alone = false).is_none());
    }

    #[test]
    fn halves_of_an_all_reduce_stand_in() {
        let it = measured(Collective::AllReduce);
        let gather = it.time(Collective::AllGather, shape(), f64::from(1 << 24)).unwrap();
        assert!((gather * 1e6 - 200.0).abs() < 1e-6);
        assert!(it.time(Collective::AllGather, Shape { switches: true, ..shape() }, 1e6).is_none());
        assert!(it.time(Collective::AllToAll, shape(), 1e6).is_none());
        let it = measured(Collective::AllGather);
        let sum = it.time(Collective::AllReduce, shape(), f64::from(1 << 24)).unwrap();
        assert!((sum * 1e6 - 800.0).abs() < 1e-6);
    }

    #[test]
    fn what_is_used_is_said() {
        let it = measured(Collective::AllReduce);
        let notes = it.notes(&[("data parallelism", Collective::AllReduce, shape())]);
        assert_eq!(
            notes,
            ["measured times of bench.json are used for data parallelism (all_reduce of 16 GPUs on 2 nodes)"]
        );
        let notes = it.notes(&[(
            "tensor parallelism",
            Collective::AllReduce,
            Shape { ranks: 8.0, nodes: 1.0, ..shape() },
        )]);
        assert!(
            notes[0].contains("bench.json is not used: it has all_reduce of 16 GPUs on 2 nodes"),
            "{notes:?}"
        );
    }
}
