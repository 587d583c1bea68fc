//! Releases of NCCL, aws-ofi-nccl and libfabric that a container runs with: given on the command line, known from the image, or
//! set in the environment, in this order.

use evidence::submission::{Owner, Submission};
use fabric::{Version, image};

use super::Given;
use super::index::FileIndex;

/// What is known; none where nothing says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubmittedReleases {
    /// NCCL.
    pub nccl: Option<Version>,
    /// aws-ofi-nccl.
    pub plugin: Option<Version>,
    /// libfabric.
    pub libfabric: Option<Version>,
}

impl SubmittedReleases {
    pub(super) fn given(given: &Given) -> Self {
        Self { nccl: given.nccl, plugin: given.plugin, libfabric: given.libfabric }
    }

    /// Those of a container, or of a script.
    pub(super) fn of(given: &Given, file: &Submission, owner: Option<Owner>, index: &FileIndex<'_>) -> Self {
        let container = owner.and_then(|it| file.container(it));
        let image = container.and_then(|it| it.image.as_ref()).and_then(|it| image::find(&it.text));
        let set = |name: &str| {
            let last = index.settings_of(owner, name).last()?;
            Version::parse(file.settings.get(*last)?.value.as_deref()?)
        };
        // Which installer it was is said under either name.
        let installer =
            set("EFA_INSTALLER_VERSION").or_else(|| set("EFA_VERSION")).and_then(image::installer);
        Self {
            nccl: given.nccl.or_else(|| image.and_then(|it| it.nccl)).or_else(|| set("NCCL_VERSION")),
            plugin: given
                .plugin
                .or_else(|| image.and_then(|it| it.plugin))
                .or_else(|| set("AWS_OFI_NCCL_VERSION"))
                .or_else(|| installer.and_then(|it| it.plugin)),
            libfabric: given
                .libfabric
                .or_else(|| image.and_then(|it| it.libfabric))
                .or_else(|| installer.and_then(|it| it.libfabric)),
        }
    }

    /// The release of a component by the name the data gives it.
    pub fn component(&self, name: &str) -> Option<Version> {
        match name {
            "nccl" => self.nccl,
            "aws-ofi-nccl" => self.plugin,
            "libfabric" => self.libfabric,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use evidence::submission::Submission;
    use fabric::Version;

    use super::SubmittedReleases;
    use crate::submitted::{Given, Submitted};

    #[test]
    fn the_command_line_comes_first_then_the_image_then_the_environment() {
        let text = "kind: Pod\nspec:\n  containers:\n  - image: pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\n    env:\n    - {name: NCCL_VERSION, value: 2.10.3-1}\n    - {name: EFA_INSTALLER_VERSION, value: 1.43.1}\n";
        let files = [Submission::read("pod.yaml", text).unwrap()];
        let owner = files[0].settings[0].owner;
        let found = Submitted::new(&files, Given::default()).releases_of(0, owner);
        assert_eq!(
            (found.nccl, found.plugin, found.libfabric),
            (Some(Version::new(2, 27, 3)), Some(Version::new(1, 16, 2)), None)
        );
        let given = Given { nccl: Some(Version::new(2, 30, 7)), ..Given::default() };
        assert_eq!(Submitted::new(&files, given).releases_of(0, owner).component("nccl"), given.nccl);
        assert_eq!(
            Submitted::new(&files, Given::default()).releases_of(0, None),
            SubmittedReleases::default()
        );
    }
}
