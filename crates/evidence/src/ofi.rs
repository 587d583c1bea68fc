//! What the aws-ofi-nccl plugin prints: `NET/OFI ...`, releases 1.0 to 1.21.

use crate::facts::Assignment;
use crate::scan::{between, word_after};
use crate::source::{Distinct, Quote};

/// What the plugin of one process printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ofi {
    /// `Initializing aws-ofi-nccl 1.16.2`, `Using aws-ofi-nccl 1.4.0aws`
    pub version: Distinct<Box<str>>,
    /// `Using Libfabric version 2.1`
    pub libfabric: Distinct<Box<str>>,
    /// `Selected provider is efa, fabric is efa (found 1 nics)`
    pub provider: Distinct<Provider>,
    /// `Using transport protocol SENDRECV (platform set)`
    pub protocol: Distinct<Box<str>>,
    /// The instance type, where a line names it.
    pub instance: Distinct<Box<str>>,
    /// `Running on p4d.24xlarge platform, topology file F`
    pub topology_file: Distinct<Box<str>>,
    /// `Could not disable CUDA API usage for HMEM, disabling GDR`
    pub gpudirect_off: Distinct<()>,
    /// `Need to force simple protocol: R not supported`, with the reason.
    pub forced_simple: Distinct<Box<str>>,
    /// `Support for DMA-BUF registrations: false`
    pub dmabuf: Distinct<bool>,
    /// `NCCL_OFI_TUNER is not available for platform ...` and its opposites.
    pub tuner: Distinct<Box<str>>,
    /// `Adding X=Y to environment`
    pub added: Distinct<Assignment>,
    /// `NIC group 0 device #0 0000:31:00.0`
    pub nic_group: Distinct<Box<str>>,
}

/// How far a message was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// Not at all.
    No,
    /// Yes, and signals have nothing to add.
    Routine,
    /// Yes, and signals may say more.
    Telling,
}

/// A libfabric provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// `efa`, `tcp`, ...
    pub name: Box<str>,
    /// `efa` or `efa-direct`, since 1.14.
    pub fabric: Option<Box<str>>,
    /// How many adapters were found, since 1.6.
    pub nics: Option<u32>,
}

impl Ofi {
    /// Takes one message, after `NET/OFI `.
    pub(crate) fn note(&mut self, message: &str, mut quote: impl FnMut() -> Quote) -> Known {
        let is = |prefix: &str| message.starts_with(prefix);
        if let Some(rest) = message
            .strip_prefix("Initializing aws-ofi-nccl ")
            .or_else(|| message.strip_prefix("Using aws-ofi-nccl "))
        {
            self.version.note(rest.trim().into(), quote);
        } else if let Some(rest) = message.strip_prefix("Using Libfabric version ") {
            self.libfabric.note(rest.trim().into(), quote);
        } else if message.get(..21).is_some_and(|it| it.eq_ignore_ascii_case("selected provider is ")) {
            self.provider.note(provider(message.get(21..).unwrap_or_default()), quote);
        } else if let Some(rest) = message.strip_prefix("Using transport protocol ") {
            self.protocol.note(rest.trim().into(), quote);
        } else if let Some(rest) = message.strip_prefix("Running on ") {
            if let Some((platform, rest)) = rest.split_once(" platform") {
                self.instance.note(instance_name(platform), &mut quote);
                let file = word_after(rest, "topology file ")
                    .or_else(|| word_after(rest, "environment variable to "));
                if let Some(file) = file {
                    self.topology_file.note(file.into(), quote);
                }
            }
        } else if is("Could not disable CUDA API usage for HMEM") {
            self.gpudirect_off.note((), quote);
        } else if let Some(rest) = message.strip_prefix("Need to force simple protocol: ") {
            self.forced_simple.note(rest.trim().trim_end_matches(" not supported").into(), quote);
        } else if is("Setting NCCL_PROTO") {
            let reason = between(message, "(reason: ", ")").unwrap_or("byte delivery ordering");
            self.forced_simple.note(reason.into(), quote);
        } else if let Some(rest) = message.strip_prefix("Support for DMA-BUF registrations: ") {
            self.dmabuf.note(rest.starts_with("true"), quote);
        } else if let Some(rest) = message.strip_prefix("Adding ") {
            let Some((name, value)) =
                rest.trim().strip_suffix(" to environment").and_then(|it| it.split_once('='))
            else {
                return Known::No;
            };
            self.added.note(Assignment { name: name.into(), value: value.into() }, quote);
        } else if let Some(platform) = word_after(message, "TUNER is not available for platform : ")
            .or_else(|| word_after(message, "Tuner is chosen for platform: "))
        {
            self.instance.note(instance_name(platform), &mut quote);
            self.tuner.note(message.trim().into(), quote);
        } else if is("NIC group ") {
            self.nic_group.note(message.trim().into(), quote);
        } else if ROUTINE.iter().any(|it| is(it)) {
            return Known::Routine;
        } else {
            return Known::No;
        }
        if is("Running on ") || is("Could not disable") || is("Need to force") {
            Known::Telling
        } else {
            Known::Routine
        }
    }

    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            version,
            libfabric,
            provider,
            protocol,
            instance,
            topology_file,
            gpudirect_off,
            forced_simple,
            dmabuf,
            tuner,
            added,
            nic_group,
        } = later;
        self.version.merge(version);
        self.libfabric.merge(libfabric);
        self.provider.merge(provider);
        self.protocol.merge(protocol);
        self.instance.merge(instance);
        self.topology_file.merge(topology_file);
        self.gpudirect_off.merge(gpudirect_off);
        self.forced_simple.merge(forced_simple);
        self.dmabuf.merge(dmabuf);
        self.tuner.merge(tuner);
        self.added.merge(added);
        self.nic_group.merge(nic_group);
    }
}

/// Known lines without facts that are kept.
static ROUTINE: &[&str] = &[
    "Using CUDA driver version",
    "Using CUDA runtime version",
    "Plugin selected platform",
    "Configuring AWS-specific options",
    "Setting provider_filter to efa",
    "Internode latency set at",
    "Creating one domain per",
    "GUID of ",
    "GUID for dev",
    "Setting FI_OPT_EFA_",
    "Setting FI_EFA_FORK_SAFE",
    "Setting RDMAV_FORK_SAFE",
    "Setting NCCL_",
    "Setting FI_",
    "Skipping adding ",
    "Skipping NCCL_PROTO checks",
    "Support for global registrations",
    "Created device with ",
    "Override link ",
    "Tuner init: comm with",
    "Tuner chooses",
    "NCCL_OFI_TUNER_TYPE",
    "Disabling NVLS support",
    "Could not load libgdrapi.so",
    "Failed to open gdr handle",
    "gin: ",
    "Trying to use",
    "Forcing AWS OFI ndev",
    "Number of domains",
];

/// `efa, fabric is efa (found 1 nics)`, `efa (found 4 nics)`, `efa`, `efa*`
fn provider(rest: &str) -> Provider {
    let name = rest.split([' ', ',']).next().unwrap_or_default().trim_end_matches('*');
    Provider {
        name: name.into(),
        fabric: word_after(rest, "fabric is ").map(Into::into),
        nics: word_after(rest, "(found ").and_then(|it| it.parse().ok()),
    }
}

/// Early plugins print `P4d` for the instance type.
fn instance_name(platform: &str) -> Box<str> {
    match platform.trim() {
        "P4d" => "p4d.24xlarge".into(),
        "P4de" => "p4de.24xlarge".into(),
        "P3dn" => "p3dn.24xlarge".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Ofi};
    use crate::facts::Assignment;
    use crate::source::{Quote, Spot};

    fn read(lines: &[&str]) -> Ofi {
        let mut ofi = Ofi::default();
        for line in lines {
            let quote = || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes());
            assert_ne!(ofi.note(line, quote), Known::No, "{line}");
        }
        ofi
    }

    #[test]
    fn providers_of_every_age() {
        for (line, fabric, nics) in [
            ("Selected provider is efa, fabric is efa-direct (found 32 nics)", Some("efa-direct"), Some(32)),
            ("Selected Provider is efa (found 4 nics)", None, Some(4)),
            ("Selected Provider is efa", None, None),
        ] {
            let ofi = read(&[line]);
            let it = ofi.provider.value().unwrap();
            assert_eq!((&*it.name, it.fabric.as_deref(), it.nics), ("efa", fabric, nics), "{line}");
        }
    }

    #[test]
    fn instances_and_topologies() {
        for (line, instance) in [
            ("Running on p4d.24xlarge platform, topology file /x/p4d.xml", "p4d.24xlarge"),
            (
                "Running on P4d platform, Setting NCCL_TOPO_FILE environment variable to /x/p4d.xml",
                "p4d.24xlarge",
            ),
        ] {
            let ofi = read(&[line]);
            assert_eq!(ofi.instance.value().map(|it| &**it), Some(instance));
            assert_eq!(ofi.topology_file.value().map(|it| &**it), Some("/x/p4d.xml"));
        }
        let ofi =
            read(&["NCCL_OFI_TUNER is not available for platform : g6e.12xlarge, Fall back to NCCL's tuner"]);
        assert_eq!(ofi.instance.value().map(|it| &**it), Some("g6e.12xlarge"));
    }

    #[test]
    fn forced_protocols_of_every_age() {
        for line in [
            "Need to force simple protocol: GDR not supported",
            "Setting NCCL_PROTO='simple' to prevent data corruption (reason: GDR)",
        ] {
            assert_eq!(read(&[line]).forced_simple.value().map(|it| &**it), Some("GDR"), "{line}");
        }
    }

    #[test]
    fn what_the_plugin_adds() {
        let ofi = read(&["Adding NCCL_BUFFSIZE=8388608 to environment"]);
        assert_eq!(
            ofi.added.value(),
            Some(&Assignment { name: "NCCL_BUFFSIZE".into(), value: "8388608".into() })
        );
    }
}
