//! Limits of this process and of its control group.

use evidence::node::{Cgroup, Limit, Limits};

use crate::sysfs::Sysfs;

pub(super) fn limits(sysfs: &Sysfs) -> Limits {
    let text = sysfs.read("proc/self/limits").unwrap_or_default();
    let limit = |name: &str| {
        let rest = text.lines().find_map(|it| it.strip_prefix(name))?;
        let mut words = rest.split_whitespace();
        let mut value = || match words.next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        };
        Some(Limit { soft: value()?, hard: value()? })
    };
    let status = sysfs.read("proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|it| it.strip_prefix("CapEff:"));
    let effective = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok());
    Limits {
        memlock: limit("Max locked memory"),
        open_files: limit("Max open files"),
        processes: limit("Max processes"),
        // CAP_IPC_LOCK is 14.
        ipc_lock: effective.map(|it| it >> 14 & 1 == 1),
    }
}

/// Above this a limit of memory means none: cgroup v1 writes the largest multiple of a page.
const NO_LIMIT: u64 = 1 << 60;

pub(super) fn cgroup(sysfs: &Sysfs) -> Cgroup {
    let own = sysfs.read("proc/self/cgroup").unwrap_or_default();
    let group = |name: &str| {
        own.lines().find_map(|it| {
            let mut parts = it.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            controllers.split(',').any(|it| it == name).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    let unified = group("").unwrap_or_default();
    let mut limits = Cgroup::default();
    // A group is bound by those above it too.
    for folder in upwards("sys/fs/cgroup", &unified) {
        let cpus = sysfs.read(&format!("{folder}/cpu.max")).and_then(|it| {
            let (quota, period) = it.split_once(' ')?;
            share(quota.parse().ok()?, period.parse().ok()?)
        });
        lower(&mut limits.cpus, cpus);
        let memory = sysfs.read(&format!("{folder}/memory.max")).and_then(|it| it.parse::<u64>().ok());
        least(&mut limits.memory_bytes, memory);
    }
    for folder in upwards("sys/fs/cgroup/cpu", &group("cpu").unwrap_or_default()) {
        let value =
            |name: &str| sysfs.read(&format!("{folder}/{name}")).and_then(|it| it.parse::<f64>().ok());
        let cpus = value("cpu.cfs_quota_us").zip(value("cpu.cfs_period_us")).and_then(|it| share(it.0, it.1));
        lower(&mut limits.cpus, cpus);
    }
    for folder in upwards("sys/fs/cgroup/memory", &group("memory").unwrap_or_default()) {
        let memory = sysfs.read(&format!("{folder}/memory.limit_in_bytes")).and_then(|it| it.parse().ok());
        least(&mut limits.memory_bytes, memory);
    }
    limits
}

/// A folder and those above it, up to the mount.
fn upwards(mount: &str, path: &str) -> Vec<String> {
    let mut all = vec![mount.to_owned()];
    let mut folder = mount.to_owned();
    // A path may be hostile: nothing leaves the mount.
    for part in path.split('/').filter(|it| !it.is_empty() && *it != ".." && *it != ".").take(64) {
        folder = format!("{folder}/{part}");
        all.push(folder.clone());
    }
    all
}

fn share(quota: f64, period: f64) -> Option<f64> {
    Some(quota / period).filter(|it| quota > 0.0 && period > 0.0 && it.is_finite())
}

fn lower(limit: &mut Option<f64>, other: Option<f64>) {
    *limit = match (*limit, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}

fn least(limit: &mut Option<u64>, other: Option<u64>) {
    let other = other.filter(|it| *it < NO_LIMIT);
    *limit = match (*limit, other) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
}
