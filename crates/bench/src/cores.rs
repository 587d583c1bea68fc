//! How many cores the ranks of a host have.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Device;

/// A host with more ranks than cores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crowded {
    /// Its name.
    pub host: String,
    /// Ranks on it.
    pub ranks: usize,
    /// Cores they may use.
    pub cores: usize,
}

/// No machine has more, so no list is longer.
const MOST: usize = 8192;

/// What this process may use, for the others: `4 0-3,8`, the second part where the system tells it.
pub(crate) fn mine() -> String {
    let count = std::thread::available_parallelism().map_or(1, Into::into);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|it| it.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    format!("{count} {}", list.trim())
}

/// The first host on which ranks outnumber cores, from what every rank told.
///
/// Ranks that are bound to a core each see one core: what counts is all they may use together. A limit in processor time,
/// as containers have it, makes the count smaller than the list; then it is taken to be one limit for all of them.
pub(crate) fn crowded(devices: &[Device], told: &[String]) -> Option<Crowded> {
    let mut hosts: BTreeMap<&str, (usize, usize, BTreeSet<usize>)> = BTreeMap::new();
    for (device, told) in devices.iter().zip(told) {
        let (count, list) = told.split_once(' ').unwrap_or((told, ""));
        let count: usize = count.parse().ok().filter(|it| *it > 0)?;
        let mut list = cores(list);
        if list.is_empty() {
            list = (0..count.min(MOST)).collect();
        }
        let limit = if count < list.len() { count } else { usize::MAX };
        let host = hosts.entry(&device.host).or_insert_with(|| (0, usize::MAX, BTreeSet::new()));
        host.0 += 1;
        host.1 = host.1.min(limit);
        host.2.extend(list);
    }
    let mut all = hosts.into_iter().map(|(host, (ranks, limit, list))| Crowded {
        host: host.to_owned(),
        ranks,
        cores: limit.min(list.len()),
    });
    all.find(|it| it.ranks > it.cores)
}

/// `0-3,8`
fn cores(list: &str) -> BTreeSet<usize> {
    let ranges = list.split(',').filter_map(|it| {
        let (from, to) = it.split_once('-').unwrap_or((it, it));
        let (from, to): (usize, usize) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        Some(from.min(MOST)..=to.min(MOST))
    });
    ranges.take(MOST).flatten().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::{crowded, mine};
    use crate::engine::Device;

    fn hosts(names: &[&str]) -> Vec<Device> {
        let device = |(rank, host): (usize, &&str)| Device {
            rank,
            pid: 1,
            host: (*host).to_owned(),
            device: 0,
            bus: None,
            name: String::new(),
        };
        names.iter().enumerate().map(device).collect()
    }

    fn check(names: &[&str], told: &[&str]) -> Option<(usize, usize)> {
        let told: Vec<String> = told.iter().map(|it| (*it).to_owned()).collect();
        crowded(&hosts(names), &told).map(|it| (it.ranks, it.cores))
    }

    #[test]
    fn ranks_are_held_against_the_cores_of_their_host() {
        assert_eq!(check(&["a", "a", "a"], &["2 0-1"; 3]), Some((3, 2)));
        assert_eq!(check(&["a", "a", "b"], &["2 0-1"; 3]), None);
        // Bound to a core each.
        assert_eq!(check(&["a", "a"], &["1 0", "1 1"]), None);
        assert_eq!(check(&["a", "a"], &["1 0", "1 0"]), Some((2, 1)));
        // A limit in time on a large machine.
        assert_eq!(check(&["a", "a", "a"], &["2 0-63"; 3]), Some((3, 2)));
        assert_eq!(check(&["a"], &["1 "]), None);
        assert_eq!(check(&["a", "a"], &["1", "x"]), None);
        assert_eq!(check(&["a", "a"], &["9999999 0-99999999999999999999,7-1"; 2]), None);
    }

    #[test]
    fn this_process_has_a_core() {
        assert_eq!(check(&["a"], &[&mine()]), None);
    }
}
