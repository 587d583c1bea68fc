//! What to run: the meaning of nccl-tests' flags.

use std::time::Duration;

use fabric::Collective;
use serde::{Deserialize, Serialize};

use crate::data::{DataType, Operation};

/// A whole run of the benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The collective.
    pub collective: Collective,
    /// From which size to which (`-b`, `-e`, `-i`, `-f`).
    pub sizes: Sizes,
    /// The types of elements (`-d`).
    pub data_types: Vec<DataType>,
    /// The operations (`-o`); of collectives that reduce nothing only the first counts.
    pub operations: Vec<Operation>,
    /// The roots (`-r`); none means every rank in turn.
    pub root: Option<usize>,
    /// Timed iterations of a size (`-n`); none: as many as fill a time, see [`LEAST_ITERATIONS`] and [`LEAST_SECONDS`].
    pub iterations: Option<usize>,
    /// Iterations before them (`-w`).
    pub warm_up: usize,
    /// Calls that count as one iteration (`-m`).
    pub aggregate: usize,
    /// How often all sizes are run (`-N`); 0 means without end.
    pub cycles: usize,
    /// Later passes that measure every size again (`--repeats`), to see how times drift.
    pub repeats: usize,
    /// The least time from one pass to the next: drift lasts longer than a few sizes take.
    pub apart: Duration,
    /// Runs whose results are verified (`-c`).
    pub check: usize,
    /// Which rank's time counts (`-a`).
    pub average: Average,
    /// Whether ranks meet after every iteration (`-z 1`, `-z 3`).
    pub blocking: bool,
    /// Whether every iteration is timed alone (`-I`).
    pub per_iteration: bool,
    /// How many of these are left out of their statistics (`-K`).
    pub skip: usize,
}

/// Iterations of a size where `-n` is not given.
pub const LEAST_ITERATIONS: usize = 20;
/// And how long they take together.
pub const LEAST_SECONDS: f64 = 0.02;

/// Seconds of a size in a later pass, where a call is shorter.
#[cfg(all(target_os = "linux", feature = "engines"))]
pub(crate) const REPEAT_SECONDS: f64 = 0.004;
/// Sizes that took longer than these seconds in all are not measured again.
#[cfg(all(target_os = "linux", feature = "engines"))]
pub(crate) const LONG_SECONDS: f64 = 1.0;

impl Plan {
    /// The defaults.
    pub fn new(collective: Collective) -> Self {
        Self {
            collective,
            sizes: Sizes { from: 8, to: 64 << 20, step: Step::Factor(2) },
            data_types: vec![DataType::Float],
            operations: vec![Operation::Sum],
            root: Some(0),
            iterations: None,
            warm_up: 5,
            aggregate: 1,
            cycles: 1,
            repeats: 0,
            apart: Duration::from_millis(400),
            check: 1,
            average: Average::Mean,
            blocking: false,
            per_iteration: false,
            skip: 0,
        }
    }

    /// The plan as flags, which must be the same on all ranks.
    pub fn flags(&self) -> Vec<String> {
        fn list<T: ToString>(all: &[T]) -> String {
            all.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let step = match self.sizes.step {
            Step::Factor(it) => format!("-f {it}"),
            Step::Bytes(it) => format!("-i {it}"),
        };
        vec![
            self.collective.to_string(),
            format!("-b {}", self.sizes.from),
            format!("-e {}", self.sizes.to),
            step,
            format!("-d {}", list(&self.data_types)),
            format!("-o {}", list(&self.operations)),
            format!("-r {}", self.root.map_or_else(|| "all".to_owned(), |it| it.to_string())),
            self.iterations.map_or_else(|| "no -n".to_owned(), |it| format!("-n {it}")),
            format!("-w {}", self.warm_up),
            format!("-m {}", self.aggregate),
            format!("-N {}", self.cycles),
            format!("--repeats {}", self.repeats),
            format!("-c {}", self.check),
            format!("-a {}", self.average.name()),
            format!("-z {}", u8::from(self.blocking)),
            format!("-I {}", u8::from(self.per_iteration)),
            format!("-K {}", self.skip),
        ]
    }

    /// Types, operations and roots, one after the other, in the order of nccl-tests.
    pub fn series(&self, ranks: usize) -> Vec<Series> {
        let mut operations = self.operations.clone();
        if operations.iter().all(|it| shown_operation(self.collective, *it).is_none()) {
            operations.truncate(1);
        }
        let roots: Vec<usize> = match self.root {
            _ if !has_root(self.collective) => vec![0],
            Some(root) => vec![root],
            None => (0..ranks).collect(),
        };
        let mut all = Vec::new();
        for data_type in &self.data_types {
            for operation in &operations {
                for root in &roots {
                    all.push(Series { data_type: *data_type, operation: *operation, root: *root });
                }
            }
        }
        all
    }
}

/// What stays the same while the size grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The type of elements.
    pub data_type: DataType,
    /// The operation.
    pub operation: Operation,
    /// The root.
    pub root: usize,
}

/// The sizes of a run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The first.
    pub from: u64,
    /// None is larger.
    pub to: u64,
    /// From one to the next.
    pub step: Step,
}

/// From one size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// So many times as large.
    Factor(u64),
    /// So many bytes more.
    Bytes(u64),
}

impl Sizes {
    /// All of them. A factor makes nothing of 0, so 8 follows it.
    pub fn all(self) -> impl Iterator<Item = u64> {
        let next = move |it: &u64| match self.step {
            Step::Factor(_) if *it == 0 => Some(8),
            Step::Factor(factor) => it.checked_mul(factor.max(2)),
            Step::Bytes(bytes) => it.checked_add(bytes.max(1)),
        };
        std::iter::successors(Some(self.from), next).take_while(move |it| *it <= self.to)
    }
}

/// Which rank's time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Average {
    /// That of rank 0.
    #[serde(rename = "rank0")]
    First,
    /// The mean of all.
    #[serde(rename = "mean")]
    Mean,
    /// The shortest.
    #[serde(rename = "min")]
    Shortest,
    /// The longest.
    #[serde(rename = "max")]
    Longest,
}

impl Average {
    /// All of them, in the order of `-a`.
    pub const ALL: [Self; 4] = [Self::First, Self::Mean, Self::Shortest, Self::Longest];

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "rank0",
            Self::Mean => "mean",
            Self::Shortest => "min",
            Self::Longest => "max",
        }
    }

    /// Of the ranks' times, the one that counts.
    pub fn of(self, times: &[f64]) -> f64 {
        match self {
            Self::First => times.first().copied().unwrap_or(0.0),
            Self::Mean => crate::statistics::mean(times),
            Self::Shortest => times.iter().copied().reduce(f64::min).unwrap_or(0.0),
            Self::Longest => times.iter().copied().reduce(f64::max).unwrap_or(0.0),
        }
    }
}

/// Whether elements are combined.
pub fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce)
}

/// The operation a table shows: none for collectives that do not reduce; for sendrecv that of `-o`, as in nccl-tests.
pub fn shown_operation(collective: Collective, operation: Operation) -> Option<Operation> {
    (reduces(collective) || collective == Collective::SendRecv).then_some(operation)
}

/// Whether one rank is unlike the others.
pub fn has_root(collective: Collective) -> bool {
    matches!(
        collective,
        Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter
    )
}

#[cfg(test)]
mod tests {
    use super::{Average, Plan, Sizes, Step};
    use crate::data::{DataType, Operation};
    use fabric::Collective;

    fn sizes(from: u64, to: u64, step: Step) -> Vec<u64> {
        Sizes { from, to, step }.all().collect()
    }

    #[test]
    fn sizes_grow_and_end() {
        assert_eq!(sizes(8, 64, Step::Factor(2)), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 70, Step::Factor(8)), [8, 64]);
        assert_eq!(sizes(0, 32, Step::Factor(2)), [0, 8, 16, 32]);
        assert_eq!(sizes(0, 2, Step::Bytes(1)), [0, 1, 2]);
        assert_eq!(sizes(5, 5, Step::Bytes(0)), [5]);
        assert_eq!(sizes(u64::MAX - 1, u64::MAX, Step::Factor(2)), [u64::MAX - 1]);
        assert!(sizes(9, 8, Step::Factor(2)).is_empty());
    }

    #[test]
    fn types_come_before_operations_and_roots() {
        let mut plan = Plan::new(Collective::Reduce);
        plan.data_types = vec![DataType::Half, DataType::Float];
        plan.operations = vec![Operation::Sum, Operation::Max];
        plan.root = None;
        let all = plan.series(3);
        assert_eq!(all.len(), 12);
        assert_eq!((all[2].root, all[3].operation, all[6].data_type), (2, Operation::Max, DataType::Float));
        plan.collective = Collective::AllGather;
        assert_eq!(plan.series(3).len(), 2);
    }

    #[test]
    fn averages_are_those_of_nccl_tests() {
        let times = [2.0, 1.0, 6.0];
        let all = Average::ALL.map(|it| it.of(&times));
        assert!(all.iter().zip([2.0, 3.0, 1.0, 6.0]).all(|(a, b)| (a - b).abs() < 1e-12), "{all:?}");
    }
}
