//! The bandwidth that NCCL assumes for a link, by release.
//!
//! These are NCCL's own constants, one way and in GB/s. They are a little below the nominal speed of the hardware, and NCCL chooses
//! rings, trees and channels by them. They are in `data/links.json`, each with the releases it was read from.

use std::sync::OnceLock;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::Version;
use crate::machine::{Maker, PciLink};
use crate::units::GigabitsPerSecond;

/// One NVLink of a GPU of this compute capability, `90` for 9.0.
pub fn nvlink(compute: u32, version: Version) -> f64 {
    let rows = &constants().nvlink;
    let best = |compute| {
        rows.iter()
            .filter(|it| it.since <= Some(version) && it.is_for(compute))
            .max_by_key(|it| (it.compute, it.since))
            .map(|it| it.rate)
    };
    // GPUs older than NVLink count as an A100.
    best(compute).or_else(|| best(80)).unwrap_or_default()
}

/// A PCI Express link. An unknown width counts as 16 lanes, an unknown speed as generation 3.
pub fn pci(link: PciLink) -> f64 {
    let pci = &constants().pci;
    let sixteen = pci
        .lanes
        .iter()
        .find(|it| (it.gigatransfers - link.gigatransfers).abs() < 0.01)
        .map_or(pci.unknown, |it| it.sixteen);
    let width = if link.width == 0 { 16 } else { link.width };
    sixteen * f64::from(width) / 16.0
}

/// The link between two sockets of one machine, by CPU vendor and by CPUID's family and model.
///
/// An Intel CPU of unknown model counts as an unknown CPU: NCCL's value for it would be that of 2016.
pub fn between_sockets(maker: Maker, model: Option<(u32, u32)>, version: Version) -> f64 {
    let maker = if model.is_none() && maker == Maker::Intel { Maker::Unknown } else { maker };
    constants()
        .sockets
        .iter()
        .filter(|it| it.since <= Some(version) && it.is_for(maker, model))
        .max_by_key(|it| (it.model, it.since))
        .map_or_else(local, |it| it.rate)
}

/// What NCCL assumes if nothing limits: a GPU to itself, a NIC to its port.
pub fn local() -> f64 {
    constants().local.rate
}

/// A network device, one way; a device of unknown rate counts as 10 Gbps.
pub fn nic(rate: Option<GigabitsPerSecond>) -> f64 {
    rate.map_or(constants().nic.unknown, |it| it.0) / 8.0
}

/// How much more of a PCI Express link the traffic between two GPUs takes where it crosses an Intel CPU.
pub fn intel_peer_overhead() -> f64 {
    constants().intel_peer_overhead.factor
}

/// The source of the constants: file and releases of NCCL.
pub fn sources() -> Vec<&'static str> {
    let all = constants();
    let single = [&all.local.source, &all.pci.source, &all.nic.source, &all.intel_peer_overhead.source];
    let nvlink = all.nvlink.iter().map(|it| &it.source);
    let sockets = all.sockets.iter().map(|it| &it.source);
    single.into_iter().chain(nvlink).chain(sockets).map(String::as_str).collect()
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Constants {
    local: Local,
    nvlink: Vec<NvLinkRow>,
    pci: Pci,
    sockets: Vec<SocketRow>,
    nic: NicDefault,
    intel_peer_overhead: Overhead,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Local {
    #[serde(rename = "GBps")]
    rate: f64,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NvLinkRow {
    /// This compute capability and newer, or only this one.
    compute: u32,
    #[serde(default)]
    only: bool,
    #[serde(default, deserialize_with = "release")]
    since: Option<Version>,
    #[serde(rename = "GBps")]
    rate: f64,
    source: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pci {
    lanes: Vec<Lane>,
    #[serde(rename = "unknown_GBps_16_lanes")]
    unknown: f64,
    source: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lane {
    gigatransfers: f64,
    #[serde(rename = "GBps_16_lanes")]
    sixteen: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SocketRow {
    #[serde(deserialize_with = "maker")]
    maker: Maker,
    family: Option<u32>,
    /// This model and newer, or only this one.
    model: Option<u32>,
    #[serde(default)]
    only: bool,
    #[serde(default, deserialize_with = "release")]
    since: Option<Version>,
    #[serde(rename = "GBps")]
    rate: f64,
    source: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NicDefault {
    #[serde(rename = "unknown_Gbps")]
    unknown: f64,
    source: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overhead {
    factor: f64,
    source: String,
}

impl NvLinkRow {
    fn is_for(&self, compute: u32) -> bool {
        if self.only { compute == self.compute } else { compute >= self.compute }
    }
}

impl SocketRow {
    fn is_for(&self, maker: Maker, model: Option<(u32, u32)>) -> bool {
        let family_fits = self.family.is_none_or(|it| model.is_some_and(|(family, _)| family == it));
        let model_fits = self.model.is_none_or(|it| {
            model.is_some_and(|(_, model)| if self.only { model == it } else { model >= it })
        });
        maker == self.maker && family_fits && model_fits
    }
}

/// `intel`
pub(crate) fn maker<'de, D: Deserializer<'de>>(from: D) -> Result<Maker, D::Error> {
    Ok(match String::deserialize(from)?.as_str() {
        "intel" => Maker::Intel,
        "amd" => Maker::Amd,
        "zhaoxin" => Maker::Zhaoxin,
        "arm" => Maker::Arm,
        "power" => Maker::Power,
        "unknown" => Maker::Unknown,
        _ => return Err(D::Error::custom("not a CPU vendor")),
    })
}

/// `2.18.1`
fn release<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Version>, D::Error> {
    let text = String::deserialize(from)?;
    Version::parse(&text).map(Some).ok_or_else(|| D::Error::custom("not a release number"))
}

fn constants() -> &'static Constants {
    static ALL: OnceLock<Constants> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

fn read() -> serde_json::Result<Constants> {
    serde_json::from_str(include_str!("../data/links.json"))
}

#[cfg(test)]
mod tests {
    use super::{between_sockets, intel_peer_overhead, local, nic, nvlink, pci, read, sources};
    use crate::Version;
    use crate::machine::{Maker, PciLink};
    use crate::units::GigabitsPerSecond;

    fn same(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn every_row_has_a_source() {
        let all = read().unwrap();
        assert!(all.nvlink.iter().all(|it| it.rate > 0.0));
        assert!(all.sockets.iter().all(|it| it.rate > 0.0));
        for source in sources() {
            assert!(source.starts_with("NVIDIA/nccl v") || source.starts_with("an assumption"), "{source}");
        }
    }

    #[test]
    fn nvlinks_by_gpu_and_release() {
        for (compute, version, want) in [
            (60, (2, 27, 3), 18.0),
            (70, (2, 9, 9), 21.0),
            (70, (2, 17, 1), 22.0),
            (70, (2, 18, 1), 20.0),
            (80, (2, 17, 1), 22.0),
            (80, (2, 30, 7), 20.0),
            (86, (2, 30, 7), 12.0),
            (89, (2, 30, 7), 20.0),
            // Hopper before it had a constant of its own.
            (90, (2, 17, 1), 22.0),
            (90, (2, 19, 4), 20.0),
            (90, (2, 20, 3), 20.6),
            (100, (2, 24, 3), 20.6),
            (100, (2, 27, 3), 40.0),
            (103, (2, 27, 5), 40.1),
            (50, (2, 27, 3), 20.0),
            (0, (0, 0, 0), 21.0),
        ] {
            let (major, minor, patch) = version;
            let got = nvlink(compute, Version::new(major, minor, patch));
            assert!(same(got, want), "sm{compute} in {version:?}: {got}");
        }
    }

    #[test]
    fn pci_by_generation_and_width() {
        let link = |gigatransfers, width| pci(PciLink { gigatransfers, width });
        for (gigatransfers, width, want) in [
            (2.5, 16, 3.0),
            (8.0, 16, 12.0),
            (8.0, 8, 6.0),
            (16.0, 16, 24.0),
            (32.0, 0, 48.0),
            (64.0, 4, 24.0),
            // NCCL's table ends at generation 6.
            (128.0, 16, 12.0),
            (f64::NAN, 16, 12.0),
        ] {
            assert!(same(link(gigatransfers, width), want), "{gigatransfers} GT/s x{width}");
        }
        assert!(link(64.0, u32::MAX).is_finite());
    }

    #[test]
    fn sockets_by_maker_model_and_release() {
        for (maker, model, version, want) in [
            (Maker::Intel, Some((6, 0x4f)), (2, 27, 3), 6.0),
            (Maker::Intel, Some((6, 0x55)), (2, 17, 1), 9.0),
            (Maker::Intel, Some((6, 0x55)), (2, 18, 1), 10.0),
            (Maker::Intel, Some((6, 0x8f)), (2, 25, 1), 10.0),
            (Maker::Intel, Some((6, 0x8f)), (2, 26, 2), 22.0),
            (Maker::Intel, Some((6, 0xcf)), (2, 30, 7), 40.0),
            (Maker::Intel, Some((15, 0xcf)), (2, 30, 7), 6.0),
            (Maker::Intel, None, (2, 30, 7), 10.0),
            (Maker::Amd, None, (2, 18, 6), 5000.0),
            (Maker::Amd, Some((25, 1)), (2, 19, 1), 16.0),
            (Maker::Zhaoxin, Some((7, 0x5b)), (2, 27, 3), 9.0),
            (Maker::Zhaoxin, Some((7, 0x5c)), (2, 27, 3), 6.0),
            (Maker::Power, None, (2, 27, 3), 32.0),
            (Maker::Arm, None, (2, 27, 3), 6.0),
            (Maker::Unknown, None, (2, 27, 3), 10.0),
        ] {
            let (major, minor, patch) = version;
            let got = between_sockets(maker, model, Version::new(major, minor, patch));
            assert!(same(got, want), "{maker:?} {model:?} in {version:?}: {got}");
        }
    }

    #[test]
    fn the_rest() {
        assert!(same(local(), 5000.0));
        assert!(same(nic(None), 1.25));
        assert!(same(nic(Some(GigabitsPerSecond(400.0))), 50.0));
        assert!(same(intel_peer_overhead(), 1.2));
    }
}
