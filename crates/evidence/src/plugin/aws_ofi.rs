//! aws-ofi-nccl: EFA and other networks through libfabric. Its lines begin with `NET/OFI `; releases 1.0 to 1.21.

use fabric::Network;

use super::{Known, Plugin, PluginFacts, Provider, Release};
use crate::Process;
use crate::facts::Assignment;
use crate::nccl::LineKind;
use crate::scan::{between, word_after};
use crate::source::Quote;

/// `Using network Libfabric`, `AWS Libfabric` before 1.13.
pub static PLUGIN: Plugin = Plugin {
    name: "aws-ofi-nccl",
    networks: &["Libfabric", "AWS Libfabric"],
    network: Some(Network::Libfabric),
    called,
    prefix: "NET/OFI ",
    read: note,
    variables: &[],
    lines: LINES,
    source: "aws-ofi-nccl, tags 1.0 to 1.21.1",
};

fn called(processes: &[Process]) -> String {
    match processes.iter().find_map(|it| it.facts.plugin.provider.value()) {
        Some(it) if &*it.name == "efa" => "EFA".to_owned(),
        Some(it) => format!("libfabric ({})", it.name),
        None => "libfabric".to_owned(),
    }
}

static LINES: &[LineKind] = &[
    LineKind {
        example: "NET/OFI Selected provider is efa, fabric is efa (found 1 nics)",
        since: "aws-ofi-nccl 1.14 and later; `Selected Provider is efa` before",
        meaning: "The plugin uses EFA and sees this many adapters. The number should be the one that the pod requests as vpc.amazonaws.com/efa.",
    },
    LineKind {
        example: "NET/OFI GDR disabled on GDR-supported instance type p5.48xlarge",
        since: "aws-ofi-nccl 1.7.4 and later, a warning",
        meaning: "This instance supports GPUDirect RDMA, but libfabric refuses it: usually because of a second, older libfabric in the image, or an EFA driver without peer-to-peer. The plugin stops.",
    },
    LineKind {
        example: "NET/OFI Could not disable CUDA API usage for HMEM, disabling GDR",
        since: "aws-ofi-nccl 1.7.4 and later",
        meaning: "EFA cannot use GPUDirect RDMA with this GPU. Expected on all G instances but the larger g7e, and on p3dn; a fault on p4d and later P instances.",
    },
    LineKind {
        example: "NET/OFI Support for DMA-BUF registrations: false",
        since: "aws-ofi-nccl 1.13 and later",
        meaning: "Normal with aws-ofi-nccl 1.14.2 to 1.19.1 on EFA of the first three generations. It does not mean that GPUDirect is off.",
    },
    LineKind {
        example: "NET/OFI NCCL_OFI_TUNER is not available for platform : g6e.12xlarge, Fall back to NCCL's tuner",
        since: "aws-ofi-nccl 1.13 and later",
        meaning: "Information, not a fault: the plugin has tuning tables for p5, p5e, p5en and p6 only.",
    },
    LineKind {
        example: "NET/OFI Need to force simple protocol: byte delivery ordering not supported",
        since: "aws-ofi-nccl 1.16 and later",
        meaning: "The plugin turns LL and LL128 off because this path cannot deliver 128 bytes in order; with them data could be corrupted. This is correct; set nothing yourself.",
    },
    LineKind {
        example: "NET/OFI Adding NCCL_PROTO=simple to environment",
        since: "aws-ofi-nccl 1.16 and later",
        meaning: "The plugin set this variable for NCCL because it was not set. A value you set yourself is left alone.",
    },
];

fn note(facts: &mut PluginFacts, message: &str, quote: &mut dyn FnMut() -> Quote) -> Known {
    let is = |prefix: &str| message.starts_with(prefix);
    if let Some(rest) = message
        .strip_prefix("Initializing aws-ofi-nccl ")
        .or_else(|| message.strip_prefix("Using aws-ofi-nccl "))
    {
        facts.release.note(Release { plugin: &PLUGIN, version: rest.trim().into() }, quote);
    } else if let Some(rest) = message.strip_prefix("Using Libfabric version ") {
        facts.libfabric.note(rest.trim().into(), quote);
    } else if message.get(..21).is_some_and(|it| it.eq_ignore_ascii_case("selected provider is ")) {
        facts.provider.note(provider(message.get(21..).unwrap_or_default()), quote);
    } else if let Some(rest) = message.strip_prefix("Using transport protocol ") {
        facts.protocol.note(rest.trim().into(), quote);
    } else if let Some(rest) = message.strip_prefix("Running on ") {
        if let Some((platform, rest)) = rest.split_once(" platform") {
            facts.instance.note(instance_name(platform), &mut *quote);
            let file =
                word_after(rest, "topology file ").or_else(|| word_after(rest, "environment variable to "));
            if let Some(file) = file {
                facts.topology_file.note(file.into(), quote);
            }
        }
    } else if is("Could not disable CUDA API usage for HMEM") {
        facts.gpudirect_off.note((), quote);
    } else if let Some(rest) = message.strip_prefix("Need to force simple protocol: ") {
        facts.forced_simple.note(rest.trim().trim_end_matches(" not supported").into(), quote);
    } else if is("Setting NCCL_PROTO") {
        let reason = between(message, "(reason: ", ")").unwrap_or("byte delivery ordering");
        facts.forced_simple.note(reason.into(), quote);
    } else if let Some(rest) = message.strip_prefix("Adding ") {
        let Some((name, value)) =
            rest.trim().strip_suffix(" to environment").and_then(|it| it.split_once('='))
        else {
            return Known::No;
        };
        facts.added.note(Assignment { name: name.into(), value: value.into() }, quote);
    } else if let Some(platform) = word_after(message, "TUNER is not available for platform : ")
        .or_else(|| word_after(message, "Tuner is chosen for platform: "))
    {
        facts.instance.note(instance_name(platform), &mut *quote);
        facts.tuner.note(message.trim().into(), quote);
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

/// Known lines that tell nothing we keep.
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
    "Support for DMA-BUF registrations: ",
    "Support for global registrations",
    "NIC group ",
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

/// Early plugins say `P4d` for the instance type.
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
    use super::PLUGIN;
    use crate::facts::Assignment;
    use crate::plugin::PluginFacts;

    fn read(lines: &[&str]) -> PluginFacts {
        crate::plugin::read(&PLUGIN, lines)
    }

    #[test]
    fn providers_of_every_age() {
        for (line, fabric, nics) in [
            ("Selected provider is efa, fabric is efa-direct (found 32 nics)", Some("efa-direct"), Some(32)),
            ("Selected Provider is efa (found 4 nics)", None, Some(4)),
            ("Selected Provider is efa", None, None),
        ] {
            let facts = read(&[line]);
            let it = facts.provider.value().unwrap();
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
            let facts = read(&[line]);
            assert_eq!(facts.instance.value().map(|it| &**it), Some(instance));
            assert_eq!(facts.topology_file.value().map(|it| &**it), Some("/x/p4d.xml"));
        }
        let facts =
            read(&["NCCL_OFI_TUNER is not available for platform : g6e.12xlarge, Fall back to NCCL's tuner"]);
        assert_eq!(facts.instance.value().map(|it| &**it), Some("g6e.12xlarge"));
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
        let facts = read(&["Adding NCCL_BUFFSIZE=8388608 to environment"]);
        assert_eq!(
            facts.added.value(),
            Some(&Assignment { name: "NCCL_BUFFSIZE".into(), value: "8388608".into() })
        );
    }
}
