//! Which release of NCCL or of a network plugin is the first that knows a GPU or a machine.
//!
//! The releases stand in `data/support.csv`, each with its source.

use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use crate::Version;

/// A row of `data/support.csv`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// `nccl`, or the name of a plugin.
    software: String,
    /// A part of the names of GPUs for NCCL, an instance type for a plugin.
    hardware: String,
    #[serde(deserialize_with = "release")]
    since: Version,
    #[cfg_attr(not(test), expect(dead_code, reason = "a test holds that every row has one"))]
    source: String,
}

/// The first release of a plugin that knows a machine; none where all do, or where no source says so.
pub fn first_release(plugin: &str, machine: &str) -> Option<Version> {
    rows().iter().find(|it| it.software == plugin && it.hardware == machine).map(|it| it.since)
}

/// The GPU in a driver's name that is newer than this release of NCCL: `H100` for `NVIDIA H100 80GB HBM3` and 2.14.3.
pub fn gpu_unknown_to_nccl(name: &str, nccl: Version) -> Option<&'static str> {
    let mut gpus = rows().iter().filter(|it| it.software == "nccl");
    gpus.find(|it| name.contains(&it.hardware) && nccl < it.since).map(|it| &*it.hardware)
}

fn rows() -> &'static [Row] {
    static ALL: OnceLock<Vec<Row>> = OnceLock::new();
    // The data is part of the binary and a test reads it: no error can happen here.
    ALL.get_or_init(|| read().unwrap_or_default())
}

fn read() -> csv::Result<Vec<Row>> {
    csv::Reader::from_reader(include_bytes!("../data/support.csv").as_slice()).deserialize().collect()
}

fn release<'de, D: Deserializer<'de>>(from: D) -> Result<Version, D::Error> {
    let text = String::deserialize(from)?;
    Version::parse(&text).ok_or_else(|| D::Error::custom(format!("`{text}` is not a release")))
}

#[cfg(test)]
mod tests {
    use super::{first_release, gpu_unknown_to_nccl, read};
    use crate::{Version, instance};

    #[test]
    fn the_data_can_be_read_and_is_sourced() {
        for it in read().unwrap() {
            assert!(!it.source.is_empty(), "{it:?}");
            assert!(it.software == "nccl" || instance::find(&it.hardware).is_some(), "{it:?}");
        }
    }

    #[test]
    fn first_releases() {
        assert_eq!(first_release("aws-ofi-nccl", "p5en.48xlarge"), Some(Version::new(1, 13, 0)));
        assert_eq!(first_release("aws-ofi-nccl", "p4d.24xlarge"), None);
        let h100 = |minor| gpu_unknown_to_nccl("NVIDIA H100 80GB HBM3", Version::new(2, minor, 1));
        assert_eq!((h100(14), h100(15)), (Some("H100"), None));
        assert_eq!(gpu_unknown_to_nccl("Tesla V100", Version::new(2, 4, 8)), None);
    }
}
