//! The communicators of a job whose logs say what NCCL decided.

use std::collections::BTreeMap;

use evidence::decided::{Decided, DecidedKind, decided, host};
use job::Job;

use super::Logged;

/// The logs of one job.
#[derive(Debug)]
pub struct Logs<'a> {
    pub(super) texts: &'a [(String, Vec<u8>)],
    pub(super) job: &'a Job,
    /// The communicators, the largest first; of equal size in the order of the logs.
    pub communicators: Vec<LoggedCommunicator>,
}

/// A communicator and the ranks whose lines were read, sorted.
#[derive(Debug, Clone, Default)]
pub struct LoggedCommunicator {
    /// `commId`, where NCCL prints it.
    pub id: Option<u64>,
    /// How many ranks it has.
    pub ranks: Option<u32>,
    pub(super) members: Vec<Member>,
}

/// One rank.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) file: String,
    pub(super) decided: Decided,
}

/// What the lines of one communicator have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Id(u64),
    /// The nth communicator of this size and colour in each process.
    Nth(Option<u32>, Option<i64>, usize),
}

impl<'a> Logs<'a> {
    /// The logs of a job, each with its name.
    pub fn new(texts: &'a [(String, Vec<u8>)], job: &'a Job) -> Self {
        let mut keys: Vec<Key> = Vec::new();
        let mut communicators: Vec<LoggedCommunicator> = Vec::new();
        for (file, text) in texts {
            let mut seen = BTreeMap::new();
            for one in decided(text).into_iter().filter(|it| it.rank.is_some()) {
                let process = (process(&one.thread), one.ranks, one.color);
                let nth: &mut usize = seen.entry(process).or_default();
                let key = one.id.map_or(Key::Nth(one.ranks, one.color, *nth), Key::Id);
                *nth += 1;
                let at = keys.iter().position(|it| *it == key).unwrap_or_else(|| {
                    keys.push(key);
                    let new = LoggedCommunicator { id: one.id, ranks: one.ranks, members: Vec::new() };
                    communicators.push(new);
                    communicators.len() - 1
                });
                let members = &mut communicators[at].members;
                // Of several of a rank the first counts: a log may hold the same job twice.
                if !members.iter().any(|it| it.decided.rank == one.rank) {
                    members.push(Member { file: file.clone(), decided: one });
                }
            }
        }
        for it in &mut communicators {
            it.members.sort_by_key(|it| it.decided.rank);
        }
        communicators.sort_by_key(|it| std::cmp::Reverse(it.ranks));
        Self { texts, job, communicators }
    }

    pub(super) fn text(&self, file: &str) -> Option<&[u8]> {
        self.texts.iter().find(|it| it.0 == file).map(|it| it.1.as_slice())
    }
}

/// `host:pid` of `host:pid:tid [0]`.
fn process(thread: &[u8]) -> Vec<u8> {
    let end = thread.iter().rposition(|it| *it == b':').unwrap_or(thread.len());
    thread.get(..end).unwrap_or_default().to_vec()
}

impl LoggedCommunicator {
    /// The first value that a rank prints.
    pub(super) fn first<T>(&self, of: impl Fn(&Decided) -> Option<T>) -> Option<T> {
        self.members.iter().find_map(|it| of(&it.decided))
    }

    pub(super) fn logged(&self) -> Vec<Logged<'_>> {
        self.members.iter().map(|it| Logged { file: &it.file, decided: &it.decided }).collect()
    }

    /// Whether it spans several machines of an NVLink domain.
    pub(super) fn mnnvl(&self) -> bool {
        self.members.iter().any(|it| it.decided.mnnvl)
    }

    pub(super) fn has(&self, kind: DecidedKind) -> bool {
        self.members.iter().any(|it| it.decided.lines.iter().any(|it| it.kind == kind))
    }

    /// The ranks of one node: `None` if nodes have different numbers of them, or no rank says so.
    pub(super) fn local_ranks(&self) -> Option<u32> {
        let mut all = self.members.iter().filter_map(|it| it.decided.local_ranks);
        let first = all.next()?;
        all.all(|it| it == first).then_some(first)
    }

    /// Whether nodes are known to have different numbers of ranks.
    pub(super) fn is_uneven(&self) -> bool {
        let local: Vec<u32> = self.members.iter().filter_map(|it| it.decided.local_ranks).collect();
        let differ = local.windows(2).any(|it| it[0] != it[1]);
        let nodes = self.first(|it| it.nodes);
        let whole = match (nodes, local.first(), self.ranks) {
            (Some(nodes), Some(local), Some(ranks)) => nodes.checked_mul(*local) == Some(ranks),
            _ => true,
        };
        differ || !whole
    }

    /// The numbers that NVML gives GPUs, by their buses, where all ranks agree.
    pub(super) fn devices(&self) -> BTreeMap<u64, u32> {
        let mut all: BTreeMap<u64, Option<u32>> = BTreeMap::new();
        for (bus, device) in self.members.iter().filter_map(|it| Some((it.decided.bus?, it.decided.device?)))
        {
            let known = all.entry(bus).or_insert(Some(device));
            *known = known.filter(|it| *it == device);
        }
        all.into_iter().filter_map(|(bus, device)| Some((bus, device?))).collect()
    }

    /// Whether ranks count on from node to node.
    pub(super) fn is_in_order(&self) -> bool {
        self.members.iter().map(|it| &it.decided).all(|it| match (it.rank, it.local_ranks, it.local_rank) {
            (Some(rank), Some(local), Some(own)) if local > 0 => rank % local == own,
            _ => true,
        })
    }

    /// The members of the first node of which all are here, sorted.
    pub(super) fn whole_node(&self) -> Option<Vec<&Decided>> {
        let local = self.local_ranks().filter(|it| *it > 0)?;
        let mut nodes: BTreeMap<u32, Vec<&Decided>> = BTreeMap::new();
        for it in &self.members {
            nodes.entry(it.decided.rank? / local).or_default().push(&it.decided);
        }
        let all = usize::try_from(local).ok()?;
        let one_host =
            |it: &Vec<&Decided>| it.windows(2).all(|it| host(&it[0].thread) == host(&it[1].thread));
        nodes.into_values().find(|it| it.len() == all && one_host(it))
    }
}

#[cfg(test)]
mod tests {
    use job::Job;

    use super::Logs;

    fn init(rank: u32, ranks: u32, end: &str) -> String {
        format!(
            "a:{rank}:9 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 1000 {end} - Init START\n\
             a:{rank}:9 [0] NCCL INFO Trees [0] -1/-1/-1->{rank}->-1\n"
        )
    }

    #[test]
    fn communicators_are_told_apart_by_id_or_order() {
        let mut log = String::new();
        for rank in 0..2 {
            log += &init(rank, 2, "commId 0x5");
            log += &init(rank, 2, "commId 0x6");
            log += &init(0, 1, &format!("parent 0x1 splitCount 1 color {rank} key 0"))
                .replace("a:0:", &format!("a:{rank}:"));
        }
        let texts = [("x.log".to_owned(), log.into_bytes())];
        let job = Job::default();
        let logs = Logs::new(&texts, &job);
        let all: Vec<_> = logs.communicators.iter().map(|it| (it.id, it.ranks, it.members.len())).collect();
        assert_eq!(
            all,
            [(Some(5), Some(2), 2), (Some(6), Some(2), 2), (None, Some(1), 1), (None, Some(1), 1)]
        );
    }
}
