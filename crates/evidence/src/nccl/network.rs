//! Networks, interfaces, adapters and plugins.

use std::fmt;

use super::{Message, owned, timings};
use crate::scan::{after, number};

/// `eth0:10.0.5.28<0>`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: Box<str>,
    /// Its address, without the port.
    pub address: Box<str>,
}

/// `[0]mlx5_0:1/RoCE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hca {
    /// Its name and port.
    pub name: Box<str>,
    /// What carries RDMA.
    pub layer: LinkLayer,
}

/// The link layer of an adapter, as NCCL prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkLayer {
    /// `IB`
    InfiniBand,
    /// `RoCE`
    RoCE,
    /// Another word.
    Other(Box<str>),
}

impl LinkLayer {
    fn new(word: &str) -> Self {
        match word {
            "IB" => Self::InfiniBand,
            "RoCE" => Self::RoCE,
            other => Self::Other(other.into()),
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "IB",
            Self::RoCE => "RoCE",
            Self::Other(word) => word,
        })
    }
}

/// What a plugin is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginRole {
    /// `NET`
    Net,
    /// `TUNER`
    Tuner,
    /// `PROFILER`, `ENV` and later ones.
    Other,
}

impl PluginRole {
    fn new(word: &[u8]) -> Self {
        match word {
            b"NET" => Self::Net,
            b"TUNER" => Self::Tuner,
            _ => Self::Other,
        }
    }
}

/// What became of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PluginEvent {
    /// The library was found and opened.
    Loaded {
        /// The library.
        library: Box<str>,
    },
    /// The library provides a network (`Libfabric`), with the API version.
    Network {
        /// The name the network gives itself.
        name: Box<str>,
    },
    /// The library could not be opened, and why.
    NotFound {
        /// What it is for.
        role: PluginRole,
        /// The library and the reason, as printed.
        detail: Box<str>,
    },
    /// A library was requested by name.
    Asked {
        /// What it is for.
        role: PluginRole,
        /// The library.
        library: Box<str>,
    },
    /// NCCL uses what it has built in.
    Internal,
}

/// `Bootstrap: Using eth0:10.0.5.28<0>` (2.24+), `Bootstrap : Using [0]eth0:10.0.0.1<0>`, and the timings.
pub(super) fn bootstrap(message: &[u8]) -> Option<Message<'_>> {
    let rest = after(message, "Bootstrap")?;
    if let Some(found) = timings::bootstrap(rest) {
        return Some(found);
    }
    let rest = after(rest, ": Using ").or_else(|| after(rest, " : Using "))?;
    Some(Message::Bootstrap(interfaces(rest)))
}

pub(super) fn parse(message: &[u8]) -> Option<Message<'_>> {
    if let Some(rest) = after(message, "NET/Socket : Using ") {
        return Some(Message::Sockets(interfaces(rest)));
    }
    if let Some(rest) = after(message, "NET/IB : ") {
        if let Some(rest) = after(rest, "Using [") {
            return Some(Message::Hcas(hcas(rest)));
        }
        if rest.starts_with(b"No device found") {
            return Some(Message::NoIbDevice);
        }
        if rest.starts_with(b"Made virtual device") {
            return Some(Message::Routine);
        }
    }
    // `NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'`, also `NET/Libfabric : ...`
    let colon = memchr::memchr(b':', message.get(..message.len().min(40))?).unwrap_or_default();
    if let Some(rest) = message.get(colon..).and_then(|it| after(it, ": GPU Direct RDMA ")) {
        let enabled = rest.starts_with(b"Enabled");
        let hca = memchr::memchr(b'\'', rest).and_then(|at| rest.get(at + 1..)).unwrap_or_default();
        return Some(Message::HcaGpuDirect { enabled, hca: hca.strip_suffix(b"'").unwrap_or(hca) });
    }
    plugin(message)
}

/// Everything that shows which plugins were tried.
pub(super) fn plugin(message: &[u8]) -> Option<Message<'_>> {
    if let Some(rest) = after(message, "Successfully loaded external ") {
        // 2.28+ says `network plugin`, `tuner plugin`; before: `plugin`.
        let library = memchr::memrchr(b' ', rest).and_then(|at| rest.get(at + 1..))?;
        return Some(Message::Plugin(PluginEvent::Loaded { library: owned(library) }));
    }
    let slash = memchr::memchr(b'/', message.get(..message.len().min(12))?)?;
    if !message.get(slash..)?.starts_with(b"/Plugin") {
        return None;
    }
    let role = PluginRole::new(message.get(..slash)?);
    let rest = message.get(slash + 7..)?;
    let rest = after(rest, " : ").or_else(|| after(rest, ": "))?;
    let event = if let Some(detail) = after(rest, "Could not find: ") {
        PluginEvent::NotFound { role, detail: owned(detail) }
    } else if let Some(library) = after(rest, "Plugin name set by env to ") {
        PluginEvent::Asked { role, library: owned(library) }
    } else if let Some(name) = after(rest, "Loaded net plugin ") {
        let end = memchr::memrchr(b'(', name).unwrap_or(name.len());
        PluginEvent::Network { name: owned(name.get(..end)?) }
    } else if rest.starts_with(b"Using internal") {
        PluginEvent::Internal
    } else if memchr::memmem::find(rest, b"No plugin found").is_some() || rest.starts_with(b"Plugin load (") {
        // `No plugin found (libnccl-net.so), using internal implementation`; older ones begin with dlerror.
        PluginEvent::NotFound { role, detail: owned(rest) }
    } else if let Some(name) = after(rest, "Using tuner plugin ") {
        return Some(Message::Tuner(name));
    } else if let (PluginRole::Tuner, Some(name)) = (role, after(rest, "Using ")) {
        return Some(Message::Tuner(name));
    } else if rest.starts_with(b"Failed to find ncclCollNet")
        || rest.starts_with(b"Failed to find ncclTuner")
        || rest.starts_with(b"Failed to find ncclProfiler")
        || rest.starts_with(b"Loaded ")
        || rest.starts_with(b"loaded ")
    {
        // A plugin offers some versions of the API and not others: normal.
        return Some(Message::Routine);
    } else {
        return None;
    };
    Some(Message::Plugin(event))
}

/// `[0]eth0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>`, with or without the numbers.
fn interfaces(mut rest: &[u8]) -> Vec<Interface> {
    let mut found = Vec::new();
    while found.len() < 64 {
        rest = rest.trim_ascii_start();
        if let Some(more) = after(rest, "[").and_then(number).and_then(|(_, it)| after(it, "]")) {
            rest = more;
        }
        let Some(end) = memchr::memchr(b'<', rest) else { break };
        let Some((item, more)) = rest.split_at_checked(end) else { break };
        let Some(colon) = memchr::memchr(b':', item) else { break };
        found.push(Interface {
            name: owned(item.get(..colon).unwrap_or_default()),
            address: owned(item.get(colon + 1..).unwrap_or_default()),
        });
        rest = memchr::memchr(b'>', more).and_then(|at| more.get(at + 1..)).unwrap_or_default();
    }
    found
}

/// `0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.10<0>`
fn hcas(rest: &[u8]) -> Vec<Hca> {
    let text = String::from_utf8_lossy(rest);
    let list = text.split(" OOB ").next().unwrap_or_default();
    list.split(']')
        .filter_map(|item| {
            let (name, layer) = item.split_once('/')?;
            let layer = layer.split([' ', ';', '[']).next()?;
            Some(Hca { name: name.trim().into(), layer: LinkLayer::new(layer) })
        })
        .take(256)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Message, parse};
    use super::{Hca, Interface, LinkLayer, PluginEvent};

    fn interface(name: &str, address: &str) -> Interface {
        Interface { name: name.into(), address: address.into() }
    }

    #[test]
    fn interfaces_of_every_age() {
        for line in [
            "Bootstrap: Using eth0:10.0.5.28<0>",
            "Bootstrap : Using eth0:10.0.5.28<0>",
            "Bootstrap : Using [0]eth0:10.0.5.28<0>",
        ] {
            assert_eq!(
                parse(line.as_bytes()),
                Message::Bootstrap(vec![interface("eth0", "10.0.5.28")]),
                "{line}"
            );
        }
        assert_eq!(
            parse(b"NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:fe80::1%eth1<0>"),
            Message::Sockets(vec![interface("eth0", "10.0.0.1"), interface("eth1", "fe80::1%eth1")])
        );
    }

    #[test]
    fn adapters() {
        let hca = |name: &str, layer| Hca { name: name.into(), layer };
        assert_eq!(
            parse(b"NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/IB [RO]; OOB primaryip:10.0.0.10<0>"),
            Message::Hcas(vec![hca("mlx5_0:1", LinkLayer::RoCE), hca("mlx5_1:1", LinkLayer::InfiniBand)])
        );
        assert_eq!(
            parse(b"NET/IB : GPU Direct RDMA Disabled for HCA 1 'mlx5_1'"),
            Message::HcaGpuDirect { enabled: false, hca: b"mlx5_1" }
        );
        // NCCL prints it of every network, also where the plugin has lines that begin so.
        assert_eq!(
            parse(b"NET/gIB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'"),
            Message::HcaGpuDirect { enabled: true, hca: b"mlx5_0" }
        );
        assert_eq!(parse(b"NET/IB : No device found."), Message::NoIbDevice);
    }

    #[test]
    fn plugins_of_every_age() {
        let loaded = Message::Plugin(PluginEvent::Loaded { library: "libnccl-net.so".into() });
        assert_eq!(parse(b"Successfully loaded external plugin libnccl-net.so"), loaded);
        assert_eq!(parse(b"Successfully loaded external network plugin libnccl-net.so"), loaded);
        assert_eq!(
            parse(b"NET/Plugin: Loaded net plugin AWS Libfabric (v8)"),
            Message::Plugin(PluginEvent::Network { name: "AWS Libfabric".into() })
        );
        assert_eq!(parse(b"NET/Plugin: Failed to find ncclCollNetPlugin_v10 symbol."), Message::Routine);
        for line in [
            "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
            "NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file",
            "NET/Plugin : dlerror=libfabric.so.1: version `FABRIC_1.7' not found No plugin found (libnccl-net.so), using internal implementation",
        ] {
            assert!(
                matches!(parse(line.as_bytes()), Message::Plugin(PluginEvent::NotFound { .. })),
                "{line}: {:?}",
                parse(line.as_bytes())
            );
        }
        assert_eq!(
            parse(b"TUNER/Plugin: Using tuner plugin nccl_ofi_tuner"),
            Message::Tuner(b"nccl_ofi_tuner")
        );
    }
}
