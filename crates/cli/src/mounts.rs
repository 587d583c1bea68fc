//! File systems whose files are made as they are read: `/proc`, `/sys` and their kind. They have nothing for plumb, and reading some of their files
//! waits for ever.

use std::fs::Metadata;

/// Where the kernel lists what is mounted.
#[cfg(target_os = "linux")]
const MOUNTS: &str = "/proc/self/mountinfo";

/// Types that do not keep files. Not autofs: a folder that is mounted when it is opened.
#[cfg(target_os = "linux")]
const KERNEL: [&str; 19] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
];

/// The devices of such file systems.
#[derive(Debug, Default)]
pub(crate) struct Kernel(
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it is always empty there"))]
    Vec<(u64, String)>,
);

impl Kernel {
    /// Those that are mounted now.
    #[cfg(target_os = "linux")]
    pub(crate) fn mounted() -> Self {
        Self::of(&std::fs::read_to_string(MOUNTS).unwrap_or_default())
    }

    /// Other systems have no such files where logs are looked for.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn mounted() -> Self {
        Self::default()
    }

    /// `22 28 0:20 / /proc rw,nosuid - proc proc rw`
    #[cfg(target_os = "linux")]
    fn of(mounts: &str) -> Self {
        let one = |line: &str| {
            let (mount, source) = line.split_once(" - ")?;
            let kind = source.split_whitespace().next().filter(|it| KERNEL.contains(it))?;
            let (major, minor) = mount.split_whitespace().nth(2)?.split_once(':')?;
            Some((device(major.parse().ok()?, minor.parse().ok()?), kind.to_owned()))
        };
        Self(mounts.lines().filter_map(one).collect())
    }

    /// The type of the file system that something is on, if it is one of these.
    #[cfg(target_os = "linux")]
    pub(crate) fn holds(&self, metadata: &Metadata) -> Option<&str> {
        use std::os::unix::fs::MetadataExt as _;
        self.0.iter().find(|it| it.0 == metadata.dev()).map(|it| it.1.as_str())
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "elsewhere it is used")]
    pub(crate) const fn holds(&self, _: &Metadata) -> Option<&str> {
        None
    }
}

/// The number of a device as `stat` gives it (`makedev` of the C library).
#[cfg(target_os = "linux")]
const fn device(major: u64, minor: u64) -> u64 {
    (major & !0xfff) << 32 | (major & 0xfff) << 8 | (minor & !0xff) << 12 | minor & 0xff
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::metadata;

    use super::Kernel;

    #[test]
    fn what_the_kernel_makes_up_is_known() {
        let kernel = Kernel::mounted();
        assert_eq!(kernel.holds(&metadata("/proc").unwrap()), Some("proc"));
        assert_eq!(kernel.holds(&metadata(env!("CARGO_MANIFEST_DIR")).unwrap()), None);
        let it = Kernel::of(
            "22 28 0:20 / /proc rw - proc proc rw\n23 28 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\nx\n",
        );
        assert_eq!(it.0, [(20, "proc".to_owned())]);
    }
}
