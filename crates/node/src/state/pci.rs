//! The PCI bus: GPUs, switches, IOMMU, Access Control Services, IMEX channels.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use evidence::node::Pci;
use fabric::machine::BusId;

use super::devices::shown;
use crate::sysfs::{Sysfs, device_of, entries};

pub(super) fn pci(sysfs: &Sysfs, root: &Path) -> Pci {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let channels = root.join("dev/nvidia-caps-imex-channels");
    let mut pci = Pci {
        imex_channels: root.join("dev").exists().then(|| number(entries(&channels).len())),
        ..Pci::default()
    };
    if !sysfs.has_pci() {
        return pci;
    }
    let gpus = sysfs.gpus();
    let nics = sysfs.members("infiniband").into_iter().filter_map(|it| device_of(&it.1.join("device")));
    let endpoints: Vec<BusId> = gpus.iter().copied().chain(nics).collect();
    let bridges: BTreeSet<BusId> = endpoints.iter().flat_map(|it| sysfs.above(*it)).collect();
    let kinds: BTreeSet<String> =
        endpoints.iter().filter_map(|it| sysfs.attribute(*it, "iommu_group/type")).collect();
    pci.gpus = Some(number(gpus.len()));
    pci.nvswitches = Some(number(sysfs.nvswitches().len()));
    pci.iommu = Some(kinds.into_iter().collect());
    pci.bridges = Some(number(bridges.len()));
    pci.acs = redirecting(sysfs, &bridges);
    pci
}

/// The bridges whose Access Control Services redirect traffic between devices; `None` where it cannot be read.
fn redirecting(sysfs: &Sysfs, bridges: &BTreeSet<BusId>) -> Option<Vec<String>> {
    let mut found = Vec::new();
    for bridge in bridges {
        let space = configuration(sysfs.path(*bridge)?)?;
        if redirects(&space) {
            found.push(shown(*bridge));
        }
    }
    Some(found)
}

/// The configuration space with its extended part, which the kernel shows to root only.
fn configuration(device: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(device.join("config")).ok()?.take(4096).read_to_end(&mut bytes).ok()?;
    (bytes.len() > 0x100).then_some(bytes)
}

/// Whether P2P request redirect or completion redirect are on in the capability ACS (id 0x000d, control register at +6: PCI Express base
/// specification, 7.7.11).
fn redirects(space: &[u8]) -> bool {
    let word = |at: usize| Some(u32::from_le_bytes(space.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0x100;
    // The list has at most (4096 - 256) / 8 members; a broken one may be a loop.
    for _ in 0..480 {
        let Some(head) = word(at).filter(|it| *it != 0 && *it != u32::MAX) else { return false };
        if head & 0xffff == 0x000d {
            return word(at + 4).is_some_and(|it| (it >> 16) & 0b1100 != 0);
        }
        at = usize::try_from(head >> 20).unwrap_or(0);
        if at < 0x100 {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::redirects;

    #[test]
    fn access_control_services() {
        let mut space = vec![0u8; 4096];
        // An AER capability first, then ACS with its control register.
        space[0x100..0x104].copy_from_slice(&(0x0001u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        space[0x148..0x14c].copy_from_slice(&(0x000du32 | 1 << 16).to_le_bytes());
        assert!(!redirects(&space));
        space[0x14e] = 0b1_1101;
        assert!(redirects(&space));
        assert!(!redirects(&space[..0x14c]));
        // A list that leads back to itself.
        space[0x148..0x14c].copy_from_slice(&(0x0002u32 | 0x100 << 20).to_le_bytes());
        assert!(!redirects(&space));
    }

    proptest! {
        #[test]
        fn no_configuration_space_panics(space in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = redirects(&space);
        }
    }
}
