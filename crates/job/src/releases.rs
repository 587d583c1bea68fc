//! Which releases of which software a job runs.

use evidence::plugin::Plugin;
use evidence::signals::rccl::{RCCL, ROCM};
use evidence::{Case, Distinct, Process, Quote};
use fabric::Version;

use crate::known::{Known, Source};

/// Whose GPUs and libraries a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// NVIDIA: CUDA and NCCL.
    Nvidia,
    /// AMD: `ROCm` and RCCL, which prints most lines of NCCL.
    Amd,
}

/// The releases that are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Releases {
    /// Whose GPUs and libraries they are for.
    pub stack: Option<Known<Stack>>,
    /// RCCL.
    pub rccl: Option<Known<Version>>,
    /// NCCL.
    pub nccl: Option<Known<Version>>,
    /// The network plugin.
    pub plugin: Option<Known<PluginRelease>>,
    /// libfabric, below the plugin.
    pub libfabric: Option<Known<Version>>,
    /// What the NVIDIA driver supports of CUDA.
    pub cuda_driver: Option<Known<Version>>,
}

/// A release of a network plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginRelease {
    /// The plugin.
    pub plugin: &'static Plugin,
    /// Its release.
    pub version: Version,
}

impl Releases {
    /// The release of this plugin, where it is the one that runs.
    pub fn of_plugin(&self, plugin: &Plugin) -> Option<Known<Version>> {
        let known = self.plugin.as_ref().filter(|it| it.value.plugin == plugin)?;
        Some(known.clone().map(|it| it.version))
    }

    /// The releases that a case shows, each by the first process that prints it.
    pub fn of_case(case: &Case) -> Self {
        let stack = stack(case);
        let amd = stack.as_ref().is_some_and(|it| it.value == Stack::Amd);
        Self {
            rccl: case.sightings_of(&RCCL).find(|_| amd).and_then(|it| {
                Some(Known::new(Version::parse(it.get("version"))?, Source::Line(it.quote.clone())))
            }),
            stack,
            nccl: first(case, |it| &it.facts.version, |it| Version::parse(it))
                .or_else(|| banner(case))
                .or_else(|| header(case)),
            plugin: first(
                case,
                |it| &it.facts.plugin.release,
                |it| Some(PluginRelease { plugin: it.plugin, version: Version::parse(&it.version)? }),
            ),
            libfabric: first(case, |it| &it.facts.plugin.libfabric, |it| Version::parse(it)),
            cuda_driver: first(case, |it| &it.facts.cuda_driver, |it| cuda(*it)),
        }
    }
}

/// AMD where a line of RCCL or `ROCm` is among the input and none of CUDA's driver, NVIDIA where NCCL names CUDA.
fn stack(case: &Case) -> Option<Known<Stack>> {
    let line = |stack, quote: &Quote| Some(Known::new(stack, Source::Line(quote.clone())));
    let driver = case.processes.iter().find_map(|it| it.facts.cuda_driver.first());
    if let Some(driver) = driver {
        return line(Stack::Nvidia, &driver.quote);
    }
    if let Some(seen) = case.first_of(&[&RCCL, &ROCM]) {
        return line(Stack::Amd, &seen.quote);
    }
    let mut devices = case.tests.iter().flat_map(|test| test.devices.iter().map(move |it| (test, it)));
    if let Some((test, _)) = devices.find(|(_, it)| it.name.starts_with("AMD ")) {
        return line(Stack::Amd, &test.quote);
    }
    let versions = case.processes.iter().find_map(|it| it.facts.version.first());
    versions.and_then(|it| line(Stack::Nvidia, &it.quote))
}

/// What the first process says that says anything readable.
fn first<T: PartialEq, R>(
    case: &Case,
    facts: impl Fn(&Process) -> &Distinct<T>,
    read: impl Fn(&T) -> Option<R>,
) -> Option<Known<R>> {
    case.processes.iter().find_map(|process| {
        let seen = facts(process).first()?;
        Some(Known::new(read(&seen.value)?, Source::Line(seen.quote.clone())))
    })
}

/// `NCCL version 2.21.5+cuda12.4` without a prefix, as programs print it at their start.
fn banner(case: &Case) -> Option<Known<Version>> {
    case.banners.iter().find_map(|it| {
        let (_, rest) = it.value.split_once("NCCL version ")?;
        Some(Known::new(Version::parse(rest)?, Source::Line(it.quote.clone())))
    })
}

/// `nccl-library=22807` in the first line of nccl-tests.
fn header(case: &Case) -> Option<Known<Version>> {
    case.tests.iter().find_map(|it| Some(Known::new(it.nccl?, Source::Line(it.quote.clone()))))
}

/// CUDA's number for a release: `12090` is 12.9.
fn cuda(number: u32) -> Option<Version> {
    Some(Version::new(u16::try_from(number / 1000).ok()?, u16::try_from(number % 1000 / 10).ok()?, 0))
}

#[cfg(test)]
mod tests {
    use evidence::plugin::aws_ofi::PLUGIN;
    use fabric::Version;

    use super::{Releases, Stack};

    #[test]
    fn rccl_is_a_stack_of_its_own() {
        let read = |log: &str| Releases::of_case(&evidence::read_texts([("a.log", log.as_bytes())]));
        let banner = read("RCCL version : 2.21.5-HEAD:9a0e6a1\nHIP version  : 6.3.42134-a9a80e791\n");
        assert_eq!(banner.stack.map(|it| it.value), Some(Stack::Amd));
        assert_eq!(banner.rccl.map(|it| it.value), Some(Version::new(2, 21, 5)));
        let prefixed = read("n:1:2 [0] NCCL INFO RCCL version 2.17.1+hip5.7 HEAD:cb9ebe3+\n");
        assert_eq!(prefixed.rccl.map(|it| it.value), Some(Version::new(2, 17, 1)));
        let plugin = read(
            "n:1:2 [0] NCCL INFO NET/Plugin : No plugin found (librccl-net.so), using internal implementation\n",
        );
        assert_eq!(plugin.stack.map(|it| it.value), Some(Stack::Amd));
        let nvidia = read("n:1:2 [0] NCCL INFO cudaDriverVersion 12090\n");
        assert_eq!(nvidia.stack.map(|it| it.value), Some(Stack::Nvidia));
        assert_eq!(read("").stack, None);
    }

    #[test]
    fn releases_with_their_lines() {
        let log = "a:1:2 [0] NCCL INFO cudaDriverVersion 12090\n\
                   a:1:2 [0] NCCL INFO NCCL version 2.27.3+cuda12.9\n\
                   a:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n\
                   a:1:2 [0] NCCL INFO NET/OFI Using Libfabric version 2.1\n";
        let found = Releases::of_case(&evidence::read_texts([("a.log", log.as_bytes())]));
        let plugin = found.of_plugin(&PLUGIN);
        let versions = [found.nccl, plugin, found.libfabric, found.cuda_driver].map(|it| it.unwrap());
        assert!(versions.iter().all(|it| it.source.quote().is_some()));
        assert_eq!(
            versions.map(|it| it.value),
            [Version::new(2, 27, 3), Version::new(1, 16, 2), Version::new(2, 1, 0), Version::new(12, 9, 0)]
        );
    }
}
