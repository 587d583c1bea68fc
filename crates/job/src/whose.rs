//! Which rank a file, a process or a silent peer is, where its own lines do not say so.
//!
//! Many programs print their rank nowhere. A file that holds one process belongs to the one rank that its lines name; the rank
//! that is left over belongs to the one file that is left over; the kernel names a process by its id.

use std::collections::{BTreeMap, BTreeSet};

use evidence::signals::launch::{CLIENTS_JOINED, STORE_BARRIER_TIMEOUT};
use evidence::{Case, File, Kind, Quote};

/// Larger jobs are not counted rank by rank.
const MOST_RANKS: u32 = 1 << 20;

/// The ranks of files.
#[derive(Debug, Default)]
pub struct Owners {
    files: BTreeMap<String, u32>,
    /// The one rank that no line comes from.
    missing: Option<u32>,
}

impl Owners {
    /// Finds the rank of each file.
    pub fn of_case(case: &Case) -> Self {
        let mut named: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        let mut processes: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (at, process) in case.processes.iter().enumerate() {
            let facts = &process.facts;
            let version = facts.version.iter().map(|it| &it.quote);
            let bootstrap = facts.bootstrap.iter().map(|it| &it.quote);
            for quote in version.chain(bootstrap).chain(facts.warnings.first.iter().map(|it| &it.quote)) {
                let file = case.locate(quote).0;
                processes.entry(file).or_default().insert(at);
                if let Some(rank) = process.rank {
                    named.entry(file).or_default().insert(rank);
                }
            }
        }
        for (rank, member) in case.world().into_iter().flat_map(|it| &it.members) {
            for quote in member.facts.start.iter().chain(&member.facts.complete) {
                named.entry(case.locate(quote).0).or_default().insert(*rank);
            }
        }
        for sighting in &case.sightings {
            // The store, which counts the clients, is rank 0's.
            let rank = sighting.rank.or_else(|| (*sighting.signal == CLIENTS_JOINED).then_some(0));
            if let Some(rank) = rank {
                named.entry(case.locate(&sighting.quote).0).or_default().insert(rank);
            }
        }
        let spoken: BTreeSet<u32> =
            named.values().flatten().copied().chain(case.processes.iter().filter_map(|it| it.rank)).collect();
        let missing = missing(case, &spoken);
        let single = |(file, ranks): (&str, BTreeSet<u32>)| {
            let rank = *ranks.first().filter(|_| ranks.len() == 1)?;
            let alone = processes.get(file).is_none_or(|it| it.len() == 1);
            alone.then(|| (file.to_owned(), rank))
        };
        let mut files: BTreeMap<String, u32> = named.into_iter().filter_map(single).collect();
        if let (Some(rank), Some(file)) = (missing, left_over(case, &files)) {
            files.insert(file.name.to_string(), rank);
        }
        Self { files, missing }
    }

    /// The rank whose file has this line.
    pub fn of_quote(&self, case: &Case, quote: &Quote) -> Option<u32> {
        self.files.get(case.locate(quote).0).copied()
    }

    /// The ranks that have a file of their own.
    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.files.values().copied()
    }

    /// The file of a rank.
    pub fn file_of(&self, rank: u32) -> Option<&str> {
        self.files.iter().find(|it| *it.1 == rank).map(|it| it.0.as_str())
    }

    /// The one rank that no line comes from: all others do speak.
    pub fn missing(&self) -> Option<u32> {
        self.missing
    }
}

/// How many ranks the job has, where something says so.
fn world_size(case: &Case) -> Option<u32> {
    let stated = || {
        let signals = [&CLIENTS_JOINED, &STORE_BARRIER_TIMEOUT];
        signals.iter().find_map(|it| case.sightings_of(it).next())?.get("world").parse().ok()
    };
    case.world().and_then(|it| it.n_ranks).or_else(stated)
}

/// The one rank that is missing; without a known size, the one gap below the highest.
fn missing(case: &Case, spoken: &BTreeSet<u32>) -> Option<u32> {
    let highest = spoken.last()?.checked_add(1)?;
    let size = world_size(case).unwrap_or(highest).max(highest);
    let lacking = (size as usize).checked_sub(spoken.len())?;
    (lacking == 1 && size <= MOST_RANKS).then(|| (0..size).find(|it| !spoken.contains(it))).flatten()
}

/// The one log that belongs to no rank yet, where every other has one.
fn left_over<'a>(case: &'a Case, owned: &BTreeMap<String, u32>) -> Option<&'a File> {
    let is_log = |it: &&File| {
        matches!(it.tally.kind(), Kind::NcclLog | Kind::TrainingLog | Kind::Unknown) && it.problem.is_none()
    };
    let mut left = case.sources.files.iter().filter(is_log).filter(|it| !owned.contains_key(&*it.name));
    let file = left.next()?;
    left.next().is_none().then_some(file)
}

/// The rank of the process with this id, where only one process of the job has it.
pub fn rank_of_pid(case: &Case, pid: &str) -> Option<u32> {
    let pid: u32 = pid.trim().parse().ok()?;
    let mut found = case.processes.iter().filter(|it| it.pid == pid);
    let rank = found.next()?.rank?;
    found.next().is_none().then_some(rank)
}

#[cfg(test)]
mod tests {
    use evidence::read_texts;

    use super::{Owners, rank_of_pid};
    use crate::testing::case;

    fn owner(texts: &[(&str, &str)], file: &str) -> Option<u32> {
        let case = read_texts(texts.iter().map(|it| (it.0, it.1.as_bytes())));
        Owners::of_case(&case).files.get(file).copied()
    }

    const STORE: &str = "torch.distributed.DistStoreError: Timed out after 21 seconds waiting for clients. 1/2 clients joined.\n";

    #[test]
    fn the_rank_that_is_left_owns_the_file_that_is_left() {
        let other = ("b", "RuntimeError: No CUDA GPUs are available\n");
        assert_eq!(owner(&[("a", STORE), other], "b"), Some(1));
        assert_eq!(owner(&[("a", STORE), other, ("c", "x\n")], "b"), None);
    }

    #[test]
    fn a_gap_between_ranks_is_the_missing_one() {
        let closed = |rank: u32| {
            format!(
                "[rank{rank}]:[E1115 23:38:53.3 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=20000) ran for 20045 milliseconds before timing out.\n"
            )
        };
        let (a, b) = (closed(0), closed(2));
        assert_eq!(owner(&[("a", &a), ("b", &b), ("c", "")], "c"), Some(1));
        // Without a gap the file that is left may be anything.
        let b = closed(1);
        assert_eq!(owner(&[("a", &a), ("b", &b), ("c", "")], "c"), None);
    }

    #[test]
    fn a_file_of_several_processes_has_no_rank() {
        let log = "a:1:1 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\na:2:2 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\n[rank0]: ValueError: x\n";
        assert_eq!(owner(&[("a", log)], "a"), None);
    }

    #[test]
    fn process_ids_name_ranks() {
        let line = |host: &str, pid: u32, rank: u32| {
            format!(
                "{host}:{pid}:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n"
            )
        };
        let two = case(&(line("a", 7, 0) + &line("b", 8, 1)));
        assert_eq!(rank_of_pid(&two, "8"), Some(1));
        let same = case(&(line("a", 7, 0) + &line("b", 7, 1)));
        assert_eq!(rank_of_pid(&same, "7"), None);
    }
}
