//! The release of NCCL and its variables, as NCCL reads them.

use std::collections::BTreeMap;

use crate::machine::{Machine, Maker, Nic, NicKind};
use crate::{PathType, Version};

/// The release of NCCL and the variables in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The release.
    pub version: Version,
    /// The variables that are set, by name.
    pub environment: BTreeMap<String, String>,
}

/// The network that NCCL uses for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Network {
    /// libfabric through the aws-ofi-nccl plugin: EFA.
    Libfabric,
    /// NCCL's own `InfiniBand` and `RoCE`.
    Ib,
    /// TCP.
    Socket,
}

/// What sets a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The default of the release.
    Release,
    /// A variable, by its name.
    Variable(&'static str),
}

/// The farthest path that is allowed, and what sets the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Level {
    /// The farthest type that is allowed.
    pub kind: PathType,
    /// What sets the limit.
    pub origin: Origin,
}

impl Default for Settings {
    /// The newest release that this crate knows, 2.30.7, and no variable.
    fn default() -> Self {
        Self { version: Self::NEWEST, environment: BTreeMap::new() }
    }
}

impl Settings {
    /// The newest release that this crate knows.
    pub const NEWEST: Version = Version::new(2, 30, 7);

    /// A release without variables.
    pub fn new(version: Version) -> Self {
        Self { version, environment: BTreeMap::new() }
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The text of a variable.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// A variable as NCCL reads numbers: like C, with the default for an empty text or a number out of range.
    pub fn number(&self, name: &str, default: i64) -> i64 {
        self.text(name).filter(|it| !it.is_empty()).and_then(|it| c_integer(it).fitting()).unwrap_or(default)
    }

    /// Whether the release is this one or newer.
    pub fn since(&self, major: u16, minor: u16, patch: u16) -> bool {
        self.version >= Version::new(major, minor, patch)
    }

    /// The farthest path for P2P, with this many GPUs in the node. `NCCL_P2P_DISABLE=1` wins over `NCCL_P2P_LEVEL`.
    pub fn p2p_level(&self, cpu: Maker, gpus: usize) -> Level {
        if self.number("NCCL_P2P_DISABLE", 0) == 1 {
            return Level { kind: PathType::Loc, origin: Origin::Variable("NCCL_P2P_DISABLE") };
        }
        if let Some(level) = self.level("NCCL_P2P_LEVEL") {
            return level;
        }
        // Up to 2.22 NCCL allowed every path except on CPUs that are slow at P2P; since 2.23 it allows none through a CPU, except for a
        // pair of GPUs on AMD.
        let far = if self.since(2, 23, 0) {
            cpu == Maker::Amd && gpus <= 2
        } else {
            !matches!(cpu, Maker::Intel | Maker::Zhaoxin | Maker::Arm)
        };
        Level { kind: if far { PathType::Sys } else { PathType::Pxb }, origin: Origin::Release }
    }

    /// The farthest path from a GPU to a NIC for GPUDirect RDMA.
    pub fn gpudirect_level(&self) -> Level {
        self.level("NCCL_NET_GDR_LEVEL").unwrap_or(Level {
            kind: if self.since(2, 29, 0) && self.gpudirect_c2c() { PathType::P2c } else { PathType::Pxb },
            origin: Origin::Release,
        })
    }

    fn level(&self, name: &'static str) -> Option<Level> {
        let kind = PathType::from_level(self.text(name)?, self.version)?;
        Some(Level { kind, origin: Origin::Variable(name) })
    }

    /// Whether GPUDirect may use the chip-to-chip link (`NCCL_NET_GDR_C2C`, 2.26 and newer, on since 2.27).
    pub fn gpudirect_c2c(&self) -> bool {
        self.since(2, 26, 0) && self.number("NCCL_NET_GDR_C2C", i64::from(self.since(2, 27, 0))) != 0
    }

    /// Whether a NIC may read GPU memory to send it (`NCCL_NET_GDR_READ`); `None` if NCCL decides by GPU.
    pub fn gpudirect_read(&self) -> Option<bool> {
        match self.number("NCCL_NET_GDR_READ", -2) {
            0 => Some(false),
            it if it > 0 => Some(true),
            _ => None,
        }
    }

    /// Whether shared memory is forbidden (`NCCL_SHM_DISABLE`).
    pub fn shm_disabled(&self) -> bool {
        self.number("NCCL_SHM_DISABLE", 0) == 1
    }

    /// Whether the network is forbidden inside a node (`NCCL_NET_DISABLE_INTRA`).
    pub fn net_disabled_inside(&self) -> bool {
        self.number("NCCL_NET_DISABLE_INTRA", 0) == 1
    }

    /// Whether NVLink through another GPU is forbidden (`NCCL_NVB_DISABLE`).
    pub fn nvb_disabled(&self) -> bool {
        self.number("NCCL_NVB_DISABLE", 0) != 0
    }

    /// Reading instead of writing by P2P (`NCCL_P2P_READ_ENABLE`); `None` if NCCL decides.
    pub fn p2p_read(&self) -> Option<bool> {
        match self.number("NCCL_P2P_READ_ENABLE", -2) {
            -2 => None,
            it => Some(it != 0),
        }
    }

    /// Whether P2P uses the copy engine (`NCCL_P2P_USE_CUDA_MEMCPY`).
    pub fn p2p_copy_engine(&self) -> bool {
        self.number("NCCL_P2P_USE_CUDA_MEMCPY", 0) != 0
    }

    /// Whether GPUs of one process use memory handles instead of direct pointers (`NCCL_P2P_DIRECT_DISABLE`).
    pub fn p2p_direct_disabled(&self) -> bool {
        self.number("NCCL_P2P_DIRECT_DISABLE", 0) != 0
    }

    /// Whether memory is shared by cuMem handles (`NCCL_CUMEM_ENABLE`): since 2.18, and by default since 2.19 if the driver is 12.0 or
    /// newer, which is assumed here.
    pub fn cumem(&self) -> bool {
        let default = if self.since(2, 19, 0) { -2 } else { 0 };
        self.since(2, 18, 0) && self.number("NCCL_CUMEM_ENABLE", default) != 0
    }

    /// Whether sending through another GPU is allowed (`NCCL_PXN_DISABLE`, 2.12 and newer).
    pub fn pxn(&self) -> bool {
        self.since(2, 12, 0) && self.number("NCCL_PXN_DISABLE", 0) != 1
    }

    /// Whether such a GPU may reach the NIC by its chip-to-chip link (`NCCL_PXN_C2C`, on since 2.28).
    pub fn pxn_c2c(&self) -> bool {
        self.since(2, 27, 0) && self.number("NCCL_PXN_C2C", i64::from(self.since(2, 28, 0))) != 0
    }

    /// How eagerly send and receive use PXN (`NCCL_P2P_PXN_LEVEL`): 0 never, 1 as collectives do, 2 whenever possible.
    pub fn p2p_pxn_level(&self) -> i64 {
        if self.pxn() { self.number("NCCL_P2P_PXN_LEVEL", 2) } else { 0 }
    }

    /// Whether a ring may enter by one NIC and leave by another (`NCCL_CROSS_NIC`): 0 no, 1 yes, 2 if it helps.
    pub fn cross_nic(&self) -> i64 {
        self.number("NCCL_CROSS_NIC", 2)
    }

    /// How many of the nearest NICs a GPU uses (`NCCL_NETDEVS_POLICY`, 2.28 and newer).
    pub fn nics_of_gpu(&self, near: usize, sharing: usize) -> usize {
        let fair = near.div_ceil(sharing.max(1));
        let policy = self.text("NCCL_NETDEVS_POLICY").filter(|_| self.since(2, 28, 0)).unwrap_or("AUTO");
        if policy.eq_ignore_ascii_case("ALL") {
            return near;
        }
        self.most_nics_of_gpu().map_or(fair, |most| most.min(near))
    }

    /// The limit of `NCCL_NETDEVS_POLICY=MAX:n` (2.28 and newer), if there is one.
    pub fn most_nics_of_gpu(&self) -> Option<usize> {
        let policy = self.text("NCCL_NETDEVS_POLICY").filter(|_| self.since(2, 28, 0))?;
        let most =
            policy.get(..4).filter(|it| it.eq_ignore_ascii_case("MAX:")).and_then(|_| policy.get(4..))?;
        usize::try_from(c_integer(most).fitting()?).ok().filter(|it| *it > 0)
    }

    /// The network that NCCL uses on this machine: `NCCL_NET` if set, otherwise the one of its NICs. Assumes that the plugin is installed,
    /// unless `NCCL_NET_PLUGIN=none` says that it is not to be used.
    pub fn network(&self, machine: &Machine) -> Network {
        let ib = self.number("NCCL_IB_DISABLE", 0) == 0;
        match self.text("NCCL_NET") {
            Some(it) if it.eq_ignore_ascii_case("Socket") => return Network::Socket,
            Some(it) if it.eq_ignore_ascii_case("IB") => return Network::Ib,
            Some(it) if it.to_ascii_lowercase().ends_with("libfabric") => return Network::Libfabric,
            _ => {}
        }
        let has = |kinds: &[NicKind]| machine.nics.iter().any(|it| kinds.contains(&it.kind));
        // `nvidia-smi topo` and NCCL's own tree list devices with verbs; names of plain Ethernet are known.
        let is_rdma = |it: &Nic| it.gpudirect != Some(false) || it.is_verbs_device();
        let unknown = machine.nics.iter().any(|it| it.kind == NicKind::Unknown && is_rdma(it));
        let no_plugin = self.text("NCCL_NET_PLUGIN").is_some_and(|it| it.eq_ignore_ascii_case("none"));
        if has(&[NicKind::Efa]) && !no_plugin {
            Network::Libfabric
        } else if ib && (has(&[NicKind::InfiniBand, NicKind::Roce, NicKind::GpuDirectTcp]) || unknown) {
            Network::Ib
        } else {
            Network::Socket
        }
    }
}

impl Settings {
    /// Whether `NCCL_IB_HCA` lets NCCL use a NIC of this name: it begins with one of the list, is one of the list after `=`, or none of
    /// it after `^`. A port in the list counts as that of the NIC if it is 1.
    pub fn selects_hca(&self, name: &str) -> bool {
        self.selects("NCCL_IB_HCA", name, |port| c_integer(port).value == 1)
    }

    /// Whether `NCCL_SOCKET_IFNAME` lets NCCL use an interface of this name, by the same rules without ports.
    pub fn selects_interface(&self, name: &str) -> bool {
        self.selects("NCCL_SOCKET_IFNAME", name, |_| true)
    }

    fn selects(&self, variable: &str, name: &str, has_port: impl Fn(&str) -> bool) -> bool {
        let Some(list) = self.text(variable).filter(|it| !it.is_empty()) else { return true };
        let (not, list) = list.strip_prefix('^').map_or((false, list), |it| (true, it));
        let (exact, list) = list.strip_prefix('=').map_or((false, list), |it| (true, it));
        let mut wanted = list.split(',').map(|it| it.split_once(':').unwrap_or((it, "1")));
        let mut any = wanted.clone().filter(|it| !it.0.is_empty()).peekable();
        if any.peek().is_none() {
            return true;
        }
        let matches = |(device, port): (&str, &str)| {
            let same = if exact { device == name } else { name.starts_with(device) };
            !device.is_empty() && same && has_port(port)
        };
        wanted.any(matches) != not
    }
}

impl Network {
    /// The name in NCCL's log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Libfabric => "Libfabric",
            Self::Ib => "IB",
            Self::Socket => "Socket",
        }
    }

    /// Whether it can use this NIC. A NIC of unknown kind fits any network.
    pub fn drives(self, nic: &Nic) -> bool {
        match nic.kind {
            NicKind::Efa => self == Self::Libfabric,
            NicKind::InfiniBand | NicKind::Roce | NicKind::GpuDirectTcp => self == Self::Ib,
            NicKind::Ethernet => self == Self::Socket,
            NicKind::Unknown => true,
        }
    }
}

/// The result of C's `strtoll` with base 0, which NCCL uses to read numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CInteger {
    /// The number; 0 without any digit, and the largest or smallest value for a number out of range.
    pub value: i64,
    /// Whether it is in range.
    pub fits: bool,
    /// Whether the text has digits followed only by white space.
    pub whole: bool,
}

impl CInteger {
    /// The number, if it is in range.
    pub fn fitting(self) -> Option<i64> {
        self.fits.then_some(self.value)
    }
}

/// Reads a whole number as C does: `0x10`, `010`, `-2`, `7seven`.
pub fn c_integer(text: &str) -> CInteger {
    let text = text.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (radix, digits) = match hexadecimal {
        Some(rest) if rest.starts_with(|it: char| it.is_ascii_hexdigit()) => (16, rest),
        _ if text.starts_with('0') => (8, text),
        _ => (10, text),
    };
    let length = digits.bytes().take_while(|it| char::from(*it).is_digit(radix)).count();
    let whole = length > 0 && length == digits.len();
    let mut value = 0_i64;
    for digit in digits.chars().take(length).filter_map(|it| it.to_digit(radix)) {
        let next = value.checked_mul(i64::from(radix)).and_then(|it| it.checked_add(i64::from(digit)));
        match next {
            Some(next) => value = next,
            None => {
                return CInteger { value: if negative { i64::MIN } else { i64::MAX }, fits: false, whole };
            }
        }
    }
    CInteger { value: if negative { -value } else { value }, fits: true, whole }
}

#[cfg(test)]
mod tests {
    use super::{CInteger, Origin, Settings, c_integer};
    use crate::machine::Maker;
    use crate::{PathType, Version};

    #[test]
    fn numbers_as_c_reads_them() {
        for (text, value, whole) in [
            ("1", 1, true),
            ("0x10", 16, true),
            ("010", 8, true),
            (" -2 ", -2, true),
            ("+3", 3, true),
            ("7seven", 7, false),
            ("8M", 8, false),
            ("yes", 0, false),
            ("-", 0, false),
            ("", 0, false),
            ("0x", 0, false),
        ] {
            assert_eq!(c_integer(text), CInteger { value, fits: true, whole }, "{text}");
        }
        let large = CInteger { value: i64::MAX, fits: false, whole: true };
        assert_eq!(c_integer("99999999999999999999"), large);
        assert_eq!(c_integer("-99999999999999999999").value, i64::MIN);
    }

    #[test]
    fn p2p_level_by_release_and_cpu() {
        let level = |version, cpu, gpus| Settings::new(version).p2p_level(cpu, gpus).kind;
        let (old, new) = (Version::new(2, 22, 3), Version::new(2, 23, 4));
        assert_eq!(level(old, Maker::Amd, 8), PathType::Sys);
        assert_eq!(level(old, Maker::Intel, 8), PathType::Pxb);
        assert_eq!(level(new, Maker::Amd, 8), PathType::Pxb);
        assert_eq!(level(new, Maker::Amd, 2), PathType::Sys);
        assert_eq!(level(new, Maker::Intel, 2), PathType::Pxb);
        let set = Settings::default().with("NCCL_P2P_LEVEL", "NVL").with("NCCL_P2P_DISABLE", "1");
        let level = set.p2p_level(Maker::Amd, 8);
        assert_eq!((level.kind, level.origin), (PathType::Loc, Origin::Variable("NCCL_P2P_DISABLE")));
    }

    #[test]
    fn adapters_that_are_selected() {
        for (list, name, want) in [
            ("mlx5", "mlx5_3", true),
            ("mlx5_1", "mlx5_10", true),
            ("=mlx5_1", "mlx5_10", false),
            ("=mlx5_1:1,mlx5_2:1", "mlx5_2", true),
            ("^mlx5_1", "mlx5_2", true),
            ("^=mlx5_1", "mlx5_1", false),
            ("mlx5_1:2", "mlx5_1", false),
            ("", "mlx5_1", true),
            ("=", "mlx5_1", true),
        ] {
            let settings = Settings::default().with("NCCL_IB_HCA", list);
            assert_eq!(settings.selects_hca(name), want, "{list} {name}");
        }
    }

    #[test]
    fn defaults_change_with_the_release() {
        assert!(!Settings::new(Version::new(2, 18, 3)).cumem());
        assert!(Settings::new(Version::new(2, 19, 3)).cumem());
        assert!(!Settings::default().with("NCCL_CUMEM_ENABLE", "0").cumem());
        assert!(!Settings::new(Version::new(2, 27, 3)).pxn_c2c());
        assert_eq!(Settings::default().with("NCCL_NETDEVS_POLICY", "MAX:1").nics_of_gpu(4, 1), 1);
        assert_eq!(Settings::default().nics_of_gpu(4, 2), 2);
    }
}
