//! Which releases of NCCL, the plugin and libfabric a container image or an EFA installer carries.
//!
//! `data/images.csv` and `data/installers.csv` list the releases with their sources; other images are not known.

use std::sync::OnceLock;

use serde::{Deserialize, Deserializer};

use crate::Version;

/// The releases in an image or an installer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Releases {
    /// The repository of the image without its host, or the release of the installer.
    #[serde(alias = "image", alias = "installer")]
    name: String,
    /// What the tag begins with; empty for an installer.
    #[serde(default)]
    tag: String,
    /// NCCL.
    #[serde(default, deserialize_with = "release")]
    pub nccl: Option<Version>,
    /// aws-ofi-nccl.
    #[serde(deserialize_with = "release")]
    pub plugin: Option<Version>,
    /// libfabric.
    #[serde(deserialize_with = "release")]
    pub libfabric: Option<Version>,
    /// Where that is written.
    pub source: String,
}

/// What an image carries, by its full reference.
pub fn find(reference: &str) -> Option<&'static Releases> {
    let reference = reference.split('@').next().unwrap_or_default();
    let (path, tag) = reference.rsplit_once(':').filter(|it| !it.1.contains('/'))?;
    images().iter().find(|it| repository(path) == it.name && tag.starts_with(&it.tag))
}

/// What an EFA installer of this release carries.
pub fn installer(release: Version) -> Option<&'static Releases> {
    installers().iter().find(|it| Version::parse(&it.name) == Some(release))
}

/// The repository, with the account of AWS deep learning containers under its public name.
fn repository(path: &str) -> String {
    let (host, rest) = match path.split_once('/') {
        Some((host, rest)) if host.contains('.') || host.contains(':') => (host, rest),
        _ => ("", path),
    };
    if host.starts_with("763104351884.dkr.ecr.") {
        return format!("deep-learning-containers/{rest}");
    }
    rest.to_owned()
}

fn images() -> &'static [Releases] {
    static ALL: OnceLock<Vec<Releases>> = OnceLock::new();
    ALL.get_or_init(|| read_images().unwrap_or_default())
}

fn installers() -> &'static [Releases] {
    static ALL: OnceLock<Vec<Releases>> = OnceLock::new();
    ALL.get_or_init(|| read_installers().unwrap_or_default())
}

fn read_images() -> csv::Result<Vec<Releases>> {
    csv::Reader::from_reader(include_bytes!("../data/images.csv").as_slice()).deserialize().collect()
}

fn read_installers() -> csv::Result<Vec<Releases>> {
    csv::Reader::from_reader(include_bytes!("../data/installers.csv").as_slice()).deserialize().collect()
}

/// A release, or nothing where the field is empty.
fn release<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Version>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let wrong = || serde::de::Error::custom(format!("`{text}` is not a release"));
    Version::parse(&text).map(Some).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::{find, installer, read_images, read_installers};
    use crate::Version;

    #[test]
    fn the_data_can_be_read() {
        for it in read_images().unwrap() {
            assert!(it.nccl.is_some() && !it.tag.is_empty() && !it.source.is_empty(), "{it:?}");
        }
        for it in read_installers().unwrap() {
            assert!(Version::parse(&it.name).is_some() && it.plugin.is_some(), "{it:?}");
        }
    }

    #[test]
    fn images_are_found_by_their_reference() {
        for reference in [
            "public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2-v1.0",
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2",
            "docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime@sha256:00",
        ] {
            assert_eq!(find(reference).unwrap().nccl, Some(Version::new(2, 27, 3)), "{reference}");
        }
        for reference in [
            "",
            "pytorch/pytorch",
            "pytorch/pytorch:latest",
            "example.com:5000/pytorch-training",
            "123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu",
        ] {
            assert!(find(reference).is_none(), "{reference}");
        }
    }

    #[test]
    fn installers_carry_a_plugin() {
        assert_eq!(installer(Version::new(1, 43, 1)).unwrap().plugin, Some(Version::new(1, 16, 2)));
        assert!(installer(Version::new(1, 0, 0)).is_none());
    }
}
