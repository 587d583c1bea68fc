//! How much memory is free for buffers. Allocating more would make the kernel kill processes.

use std::fs;

/// Bytes free on this machine and in this container; none where the system does not say.
pub(crate) fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|it| field(&it, "MemAvailable:"));
    [machine, container()].into_iter().flatten().min()
}

/// What the control groups of this process allow.
fn container() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|it| it.strip_prefix("0::"))?;
    let mut path = std::path::PathBuf::from("/sys/fs/cgroup").join(own.trim_start_matches('/'));
    let mut least = None;
    while path.starts_with("/sys/fs/cgroup") {
        let limit = fs::read_to_string(path.join("memory.max")).ok().and_then(|it| it.trim().parse().ok());
        least = [least, limit].into_iter().flatten().min();
        path.pop();
    }
    least
}

/// `MemAvailable:   24030592 kB`
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::{available, field};

    #[test]
    fn free_memory_is_read() {
        let text = "MemTotal:       24630592 kB\nMemFree:        13630592 kB\nMemAvailable:   20 kB\n";
        assert_eq!(field(text, "MemAvailable:"), Some(20_480));
        for broken in ["", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(field(broken, "MemAvailable:"), None);
        }
        assert!(available().is_some_and(|it| it > 1 << 20), "{:?}", available());
    }
}
