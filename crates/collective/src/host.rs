//! The host of a rank: which ranks share memory, and how many cores they have together.

use std::collections::BTreeMap;
use std::fs;

use rustix::thread::CpuSet;

/// The host of a rank, as published in its peer info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// Equal for ranks that can share memory: host name (or the override of the user), boot id and network namespace.
    pub(crate) identity: String,
    /// Equal for ranks that reach each other over the loopback interface.
    pub(crate) machine: String,
    /// For messages.
    pub(crate) name: String,
    /// The cores this rank may run on.
    pub(crate) cores: Vec<usize>,
    /// The number of cores that a CPU quota allows, at most `cores`.
    pub(crate) quota: usize,
}

impl Host {
    /// This host. `identity` overrides the host name.
    pub(crate) fn here(identity: Option<&str>) -> Self {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = fs::read_link("/proc/self/ns/net").unwrap_or_default();
        let machine = format!("{} {}", boot.trim(), network.display());
        let cores = rustix::thread::sched_getaffinity(None)
            .map_or_else(|_| vec![0], |set| (0..CpuSet::MAX_CPU).filter(|it| set.is_set(*it)).collect());
        let quota = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let identity = identity.map_or_else(|| format!("{name} {machine}"), |it| format!("{it} {machine}"));
        Self { identity, machine, name, cores, quota }
    }

    /// Equal for ranks that share cores, even in different containers.
    pub(crate) fn boot(&self) -> &str {
        self.machine.split(' ').next().unwrap_or_default()
    }

    /// For the peer info.
    pub(crate) fn to_text(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        [&self.identity, &self.machine, &self.name, &cores.join(","), &self.quota.to_string()]
            .map(|it| it.replace('\n', " "))
            .join("\n")
    }

    /// From the peer info of a rank.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut next = || lines.next().map(str::to_owned);
        let (identity, machine, name) = (next()?, next()?, next()?);
        let cores = next()?.split(',').map(|it| it.parse().ok()).collect::<Option<Vec<usize>>>()?;
        let quota = next()?.parse().ok()?;
        Some(Self { identity, machine, name, cores, quota })
    }
}

/// The number of cores that ranks of one machine have together.
pub(crate) fn cores_of<'a>(ranks: impl Iterator<Item = &'a Host>) -> usize {
    let mut cores: Vec<usize> = Vec::new();
    let mut quotas: BTreeMap<&str, usize> = BTreeMap::new();
    for host in ranks {
        cores.extend(&host.cores);
        // A quota below the number of cores is the limit of a container, shared by all ranks in it.
        let quota = if host.quota < host.cores.len() { host.quota } else { usize::MAX };
        let limit = quotas.entry(&host.identity).or_insert(usize::MAX);
        *limit = quota.min(*limit);
    }
    let quota = quotas.values().copied().fold(0, usize::saturating_add);
    cores.sort_unstable();
    cores.dedup();
    cores.len().min(quota).max(1)
}

/// A host with more ranks than cores. Times measured there include waiting for a core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oversubscription {
    /// The host name.
    pub host: String,
    /// The number of ranks.
    pub ranks: usize,
    /// The number of cores that they may use together.
    pub cores: usize,
}

/// Binds the calling thread to a core, unless it is bound already. `index` is its number in `local`.
///
/// The scheduler moves a rank to an idle core only after milliseconds.
pub(crate) fn bind(local: &[&Host], index: usize) {
    if let Some(core) = core_for(local, index) {
        let mut set = CpuSet::new();
        set.set(core);
        // Where this is forbidden, the rank stays unbound.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

/// The core for a rank. `None` if the ranks are bound or limited already, or cannot all get the same share.
fn core_for(local: &[&Host], index: usize) -> Option<usize> {
    let (cores, ranks) = (&local.get(index)?.cores, local.len());
    let free = local.iter().all(|it| it.cores == *cores && it.quota >= cores.len());
    let core = match cores.len() {
        _ if !free => return None,
        // Spread over the cores, so that neighbours share few caches.
        count if ranks <= count => index * (count / ranks),
        0 => return None,
        count if ranks.is_multiple_of(count) => index % count,
        _ => return None,
    };
    cores.get(core).copied()
}

/// Bytes of the L2 cache, which a core has for itself.
pub(crate) fn cache() -> usize {
    cache_of("index2").unwrap_or(1 << 20)
}

/// Bytes of the last-level cache, which cores share.
pub(crate) fn last_cache() -> usize {
    cache_of("index3").unwrap_or_else(cache)
}

fn cache_of(level: &str) -> Option<usize> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/{level}/size")).ok()?;
    Some(text.trim().strip_suffix('K')?.parse::<usize>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_as_written() {
        let host = Host::here(None);
        assert_eq!(Host::from_text(&host.to_text()), Some(host.clone()));
        assert_ne!(Host::here(Some("other")).identity, host.identity);
        for bad in ["", "a\nb\nc", "a\nb\nc\nx\n1", "a\nb\nc\n1,2\n-1"] {
            assert_eq!(Host::from_text(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn ranks_get_equal_shares_of_cores_or_none() {
        let given = |ranks: usize, cores: &[usize], quota| {
            let host = Host { cores: cores.to_vec(), quota, ..Host::here(None) };
            let local = vec![&host; ranks];
            (0..ranks).map(|it| core_for(&local, it)).collect::<Option<Vec<_>>>()
        };
        assert_eq!(given(2, &[0, 1, 4, 5], 4), Some(vec![0, 4]));
        assert_eq!(given(4, &[0, 1, 4, 5], 4), Some(vec![0, 1, 4, 5]));
        assert_eq!(given(3, &[0, 1], 2), None);
        assert_eq!(given(4, &[3, 7], 2), Some(vec![3, 7, 3, 7]));
        assert_eq!(given(4, &[3, 7], 1), None, "a limit in time");
        assert_eq!(given(1, &[], 0), None);
        let apart = [0, 1].map(|it| Host { cores: vec![it], quota: 1, ..Host::here(None) });
        assert_eq!(core_for(&[&apart[0], &apart[1]], 0), None, "bound already");
    }

    #[test]
    fn cores_are_counted_once_and_quotas_kept() {
        let rank = |cores: &[usize], quota| Host { cores: cores.to_vec(), quota, ..Host::here(None) };
        assert_eq!(cores_of([rank(&[0], 1), rank(&[1], 1)].iter()), 2, "bound to one each");
        assert_eq!(cores_of([rank(&[0, 1], 2), rank(&[0, 1], 2)].iter()), 2, "free on two");
        assert_eq!(cores_of([rank(&[0, 1, 2, 3], 2), rank(&[0, 1, 2, 3], 2)].iter()), 2, "a limit in time");
        let pod = |name: &str| Host { identity: name.to_owned(), ..rank(&[0, 1, 2, 3], 1) };
        assert_eq!(
            cores_of([pod("a"), pod("b"), pod("b")].iter()),
            2,
            "two containers with a limit of one each"
        );
    }
}
