//! NCCL's path types: how far apart two devices are.

use std::cmp::Ordering;
use std::fmt;

use crate::Version;
use crate::settings::c_integer;

/// The slowest part of the path between two devices.
///
/// The variants are in the order of [`PathType::order`] for NCCL 2.27.5 and newer. NCCL's numbers for them differ
/// between releases, so they are compared by name and release, never by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathType {
    /// The device itself.
    Loc,
    /// NVLink, directly or through `NVSwitch`es.
    Nvl,
    /// NVLink, through another GPU.
    Nvb,
    /// The chip-to-chip link between a GPU and its CPU. Since 2.26; NVL before.
    C2c,
    /// One PCI Express switch.
    Pix,
    /// Several PCI Express switches, no CPU.
    Pxb,
    /// Chip-to-chip to the CPU, then PCI Express to the NIC. Since 2.27.
    P2c,
    /// NVLink to the GPU next to the NIC. Since 2.12.
    Pxn,
    /// Through a CPU: host bridge.
    Phb,
    /// From one socket or NUMA node to another.
    Sys,
    /// Over the network. Since 2.18.
    Net,
    /// Not connected. Since 2.18.
    Dis,
}

impl PathType {
    /// All types, nearest first.
    pub const ALL: [Self; 12] = [
        Self::Loc,
        Self::Nvl,
        Self::Nvb,
        Self::C2c,
        Self::Pix,
        Self::Pxb,
        Self::P2c,
        Self::Pxn,
        Self::Phb,
        Self::Sys,
        Self::Net,
        Self::Dis,
    ];

    /// The text in logs, in XML and in `NCCL_P2P_LEVEL`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loc => "LOC",
            Self::Nvl => "NVL",
            Self::Nvb => "NVB",
            Self::C2c => "C2C",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::P2c => "P2C",
            Self::Pxn => "PXN",
            Self::Phb => "PHB",
            Self::Sys => "SYS",
            Self::Net => "NET",
            Self::Dis => "DIS",
        }
    }

    /// The name in `nvidia-smi topo -m`, if it has one. NODE and PHB are both PHB in NCCL: `nvidia-smi` distinguishes one host bridge
    /// from two of the same NUMA node, NCCL does not.
    pub fn smi(self) -> Option<&'static str> {
        match self {
            Self::Loc => Some("X"),
            Self::Nvl => Some("NV#"),
            Self::Pix => Some("PIX"),
            Self::Pxb => Some("PXB"),
            Self::Phb => Some("PHB or NODE"),
            Self::Sys => Some("SYS"),
            Self::Nvb | Self::C2c | Self::P2c | Self::Pxn | Self::Net | Self::Dis => None,
        }
    }

    /// Reads a cell of `nvidia-smi topo -m`: `NV12`, `NODE`, `X`.
    pub fn from_smi(cell: &str) -> Option<Self> {
        match cell {
            "X" => Some(Self::Loc),
            "NODE" | "PHB" => Some(Self::Phb),
            "PIX" => Some(Self::Pix),
            "PXB" => Some(Self::Pxb),
            "SYS" => Some(Self::Sys),
            _ => {
                let count = cell.strip_prefix("NV")?;
                (!count.is_empty() && count.bytes().all(|it| it.is_ascii_digit())).then_some(Self::Nvl)
            }
        }
    }

    /// Reads NCCL's text. Case matters, as it does for NCCL.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == text)
    }

    /// Reads `NCCL_P2P_LEVEL` or `NCCL_NET_GDR_LEVEL`: a name that this release knows, up to SYS, or an old number
    /// (0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 and more SYS). `None` for a value that NCCL ignores.
    pub fn from_level(text: &str, version: Version) -> Option<Self> {
        let named =
            Self::parse(text).filter(|it| it.is_in(version) && it.order(version) <= Self::Sys.order(version));
        if named.is_some() || !text.starts_with(|it: char| it.is_ascii_digit()) {
            return named;
        }
        Some(match c_integer(text).fitting() {
            Some(0) => Self::Loc,
            Some(1) => Self::Pix,
            Some(2) => Self::Pxb,
            Some(3) => Self::Phb,
            _ => Self::Sys,
        })
    }

    /// Whether a release has this type.
    pub fn is_in(self, version: Version) -> bool {
        let since = match self {
            Self::Pxn => Version::new(2, 12, 0),
            Self::Net | Self::Dis => Version::new(2, 18, 0),
            Self::C2c => Version::new(2, 26, 0),
            Self::P2c => Version::new(2, 27, 0),
            _ => return true,
        };
        version >= since
    }

    /// Its position in the order of a release, nearest first. PXN came before P2C until 2.27.5 swapped them.
    pub fn order(self, version: Version) -> u8 {
        let swapped = version < Version::new(2, 27, 5);
        match self {
            Self::Loc => 0,
            Self::Nvl => 1,
            Self::Nvb => 2,
            Self::C2c => 3,
            Self::Pix => 4,
            Self::Pxb => 5,
            Self::P2c => 6 + u8::from(swapped),
            Self::Pxn => 7 - u8::from(swapped),
            Self::Phb => 8,
            Self::Sys => 9,
            Self::Net => 10,
            Self::Dis => 11,
        }
    }

    /// Compares two types as a release does.
    pub fn compare(self, other: Self, version: Version) -> Ordering {
        self.order(version).cmp(&other.order(version))
    }

    /// Whether this is as near as `level`, or nearer.
    pub fn within(self, level: Self, version: Version) -> bool {
        self.order(version) <= level.order(version)
    }

    /// The farther of two.
    #[must_use]
    pub fn farther(self, other: Self, version: Version) -> Self {
        if self.order(version) >= other.order(version) { self } else { other }
    }

    /// Its meaning in words: `through the CPU`.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Loc => "the same device",
            Self::Nvl => "NVLink",
            Self::Nvb => "NVLink through another GPU",
            Self::C2c => "the chip-to-chip link to the CPU",
            Self::Pix => "one PCIe switch",
            Self::Pxb => "several PCIe switches",
            Self::P2c => "the chip-to-chip link and PCIe",
            Self::Pxn => "NVLink to the GPU next to the NIC",
            Self::Phb => "the CPU",
            Self::Sys => "the link between two NUMA nodes",
            Self::Net => "the network",
            Self::Dis => "no connection",
        }
    }
}

impl fmt::Display for PathType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::PathType;
    use crate::Version;

    const NEW: Version = Version::new(2, 30, 7);

    #[test]
    fn names_are_read_back() {
        for it in PathType::ALL {
            assert_eq!(PathType::parse(&it.to_string()), Some(it));
        }
        assert_eq!(PathType::parse("nvl"), None);
    }

    #[test]
    fn order_by_release() {
        assert!(PathType::P2c.within(PathType::Pxn, NEW));
        assert!(!PathType::P2c.within(PathType::Pxn, Version::new(2, 27, 3)));
        for pair in PathType::ALL.windows(2) {
            assert!(pair[0].compare(pair[1], NEW).is_lt());
        }
    }

    #[test]
    fn levels_as_nccl_reads_them() {
        for (text, want) in [
            ("NVL", Some(PathType::Nvl)),
            ("nvl", None),
            ("0", Some(PathType::Loc)),
            ("1", Some(PathType::Pix)),
            ("2", Some(PathType::Pxb)),
            ("3", Some(PathType::Phb)),
            ("4", Some(PathType::Sys)),
            ("5", Some(PathType::Sys)),
            ("0x2", Some(PathType::Pxb)),
            ("99999999999999999999", Some(PathType::Sys)),
            ("NET", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(PathType::from_level(text, NEW), want, "{text}");
        }
        assert_eq!(PathType::from_level("P2C", Version::new(2, 20, 5)), None);
    }

    #[test]
    fn cells_of_nvidia_smi() {
        assert_eq!(PathType::from_smi("NV12"), Some(PathType::Nvl));
        assert_eq!(PathType::from_smi("NODE"), Some(PathType::Phb));
        assert_eq!(PathType::from_smi("NVX"), None);
        assert_eq!(PathType::from_smi("NV"), None);
    }
}
