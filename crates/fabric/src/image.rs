//! Which releases of NCCL, the plugin and libfabric a container image or an EFA installer carries.
//!
//! `data/images.csv` and `data/installers.csv` hold what a source states; an image that is not listed is not known.

use std::sync::OnceLock;

use crate::Version;
use crate::variable::{Malformed, table};

/// The releases in an image or an installer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Releases {
    /// The repository of the image without its host, or the release of the installer.
    name: String,
    /// What the tag begins with; empty for an installer.
    tag: String,
    /// NCCL.
    pub nccl: Option<Version>,
    /// aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// libfabric.
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

fn read_images() -> Result<Vec<Releases>, Malformed> {
    let header = ["image", "tag", "nccl", "plugin", "libfabric", "source"];
    let rows = table(include_str!("../data/images.csv"), header)?;
    let release = |(_, [name, tag, nccl, plugin, libfabric, source]): (usize, [String; 6])| Releases {
        name,
        tag,
        nccl: Version::parse(&nccl),
        plugin: Version::parse(&plugin),
        libfabric: Version::parse(&libfabric),
        source,
    };
    Ok(rows.into_iter().map(release).collect())
}

fn read_installers() -> Result<Vec<Releases>, Malformed> {
    let rows = table(include_str!("../data/installers.csv"), ["installer", "plugin", "libfabric", "source"])?;
    let release = |(_, [name, plugin, libfabric, source]): (usize, [String; 4])| Releases {
        name,
        tag: String::new(),
        nccl: None,
        plugin: Version::parse(&plugin),
        libfabric: Version::parse(&libfabric),
        source,
    };
    Ok(rows.into_iter().map(release).collect())
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
