//! Networks of NCCL: plugins and the two it has built in.
//!
//! An entry says how NCCL's log names the network, what people call it, and how to read the lines that the plugin
//! itself prints. To add one, write its file beside this one and list it in [`PLUGINS`].

pub mod aws_ofi;
pub mod gib;
pub mod ib;
pub mod rccl;
pub mod socket;
pub mod tcpx;

use std::fmt;

use fabric::Network;

use crate::Process;
use crate::facts::Assignment;
use crate::nccl::LineKind;
use crate::scan::after;
use crate::source::{Distinct, Quote};

/// Every network that is recognised.
pub static PLUGINS: &[&Plugin] = &[
    &aws_ofi::PLUGIN,
    &ib::BUILT_IN,
    &ib::RDMA_SHARP,
    &ib::UCX,
    &socket::BUILT_IN,
    &tcpx::TCPX,
    &tcpx::TCPXO,
    &gib::PLUGIN,
    &rccl::ANP,
];

/// A network plugin, or a network that NCCL has built in.
pub struct Plugin {
    /// As answers print it: `aws-ofi-nccl`.
    pub name: &'static str,
    /// What NCCL prints after `Using network` and `Loaded net plugin`, without the version of the plugin interface: `IBext`
    /// for `IBext_v8`.
    pub networks: &'static [&'static str],
    /// Which network it is to NCCL's decisions, where these are known.
    pub network: Option<Network>,
    /// What people call the network, by what the processes print: `EFA`, `RoCE`.
    pub called: fn(&[Process]) -> String,
    /// How its own lines begin: `NET/OFI `; empty where they are not recognised.
    pub prefix: &'static str,
    /// Reads one of its lines, without the prefix. Lines that say nothing of interest are [`Known::Routine`].
    pub read: fn(&mut PluginFacts, &str, &mut dyn FnMut() -> Quote) -> Known,
    /// How the names of variables begin that it reads and the list of variables does not have.
    pub variables: &'static [&'static str],
    /// What its lines mean, for `plumb explain`.
    pub lines: &'static [LineKind],
    /// Where the names and the lines come from.
    pub source: &'static str,
}

/// What the plugin of one process printed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PluginFacts {
    /// `Initializing aws-ofi-nccl 1.16.2`, `Initializing gIB v1.0.2`
    pub release: Distinct<Release>,
    /// `Using Libfabric version 2.1`
    pub libfabric: Distinct<Box<str>>,
    /// `Selected provider is efa, fabric is efa (found 1 nics)`
    pub provider: Distinct<Provider>,
    /// `Using transport protocol SENDRECV (platform set)`
    pub protocol: Distinct<Box<str>>,
    /// The instance type, where a line names it.
    pub instance: Distinct<Box<str>>,
    /// The topology file that the plugin gives to NCCL.
    pub topology_file: Distinct<Box<str>>,
    /// The plugin turned GPUDirect RDMA off.
    pub gpudirect_off: Distinct<()>,
    /// The plugin allows the Simple protocol only; with the reason.
    pub forced_simple: Distinct<Box<str>>,
    /// Whether the plugin's tuner knows the machine, as printed.
    pub tuner: Distinct<Box<str>>,
    /// Variables that the plugin put into the environment.
    pub added: Distinct<Assignment>,
}

/// A release of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    /// The plugin.
    pub plugin: &'static Plugin,
    /// As printed: `1.16.2`, `1.4.0aws`.
    pub version: Box<str>,
}

/// What a plugin sends through: a libfabric provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// `efa`, `tcp`, ...
    pub name: Box<str>,
    /// `efa` or `efa-direct`, since aws-ofi-nccl 1.14.
    pub fabric: Option<Box<str>>,
    /// How many adapters were found, since aws-ofi-nccl 1.6.
    pub nics: Option<u32>,
}

/// How far a line was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// Not at all.
    No,
    /// Yes, and signals have nothing to add.
    Routine,
    /// Yes, and signals may say more.
    Telling,
}

impl Plugin {
    /// Whether NCCL's log calls a network of this plugin so: `IBext_v8`, `AWS Libfabric [repeated 3x]`.
    pub fn gives(&self, network: &str) -> bool {
        let network = network.trim_start_matches(|it: char| !it.is_ascii_alphanumeric());
        self.networks.iter().any(|it| {
            let rest = network.strip_prefix(it);
            rest.is_some_and(|it| !it.starts_with(|next: char| next.is_ascii_alphanumeric()))
        })
    }

    /// Whether it reads a variable of this name, beside those in the list of variables.
    pub fn reads(&self, variable: &str) -> bool {
        self.variables.iter().any(|it| variable.starts_with(it))
    }

    /// Whether a line of a log has the name of one of its networks or is its own.
    pub fn is_named_in(&self, line: &str) -> bool {
        (!self.prefix.is_empty() && line.contains(self.prefix))
            || self.networks.iter().any(|it| line.contains(it))
    }
}

impl PartialEq for Plugin {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PluginFacts {
    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            release,
            libfabric,
            provider,
            protocol,
            instance,
            topology_file,
            gpudirect_off,
            forced_simple,
            tuner,
            added,
        } = later;
        self.release.merge(release);
        self.libfabric.merge(libfabric);
        self.provider.merge(provider);
        self.protocol.merge(protocol);
        self.instance.merge(instance);
        self.topology_file.merge(topology_file);
        self.gpudirect_off.merge(gpudirect_off);
        self.forced_simple.merge(forced_simple);
        self.tuner.merge(tuner);
        self.added.merge(added);
    }
}

/// The plugin that gives a network of this name.
pub fn of_network(name: &str) -> Option<&'static Plugin> {
    PLUGINS.iter().copied().find(|it| it.gives(name))
}

/// Which network a name in NCCL's log is to NCCL's decisions.
pub fn network(name: &str) -> Option<Network> {
    of_network(name)?.network
}

/// Whether a network of NCCL's log is TCP.
pub fn is_socket(name: &str) -> bool {
    network(name) == Some(Network::Socket)
}

/// Whether a network of NCCL's log is `InfiniBand` or `RoCE`.
pub fn is_infiniband(name: &str) -> bool {
    network(name) == Some(Network::Ib)
}

/// What people call a network of NCCL's log: `EFA` for `Libfabric`. One that is not recognised keeps its name.
pub fn called(name: &str, processes: &[Process]) -> String {
    of_network(name).map_or_else(|| name.to_owned(), |it| (it.called)(processes))
}

/// The plugin that printed a message, and the rest of the message.
pub fn printed_by(message: &[u8]) -> Option<(&'static Plugin, &[u8])> {
    let mut with_lines = PLUGINS.iter().copied().filter(|it| !it.prefix.is_empty());
    with_lines.find_map(|it| Some((it, after(message, it.prefix)?)))
}

/// For plugins whose lines are recognised, not interpreted.
fn read_nothing(_: &mut PluginFacts, _: &str, _: &mut dyn FnMut() -> Quote) -> Known {
    Known::No
}

#[cfg(test)]
fn read(plugin: &'static Plugin, lines: &[&str]) -> PluginFacts {
    use crate::source::Spot;
    let mut facts = PluginFacts::default();
    for line in lines {
        let mut quote = || Quote::new(Spot { region: 0, line: 0 }, line.as_bytes());
        assert_ne!((plugin.read)(&mut facts, line, &mut quote), Known::No, "{line}");
    }
    facts
}

#[cfg(test)]
mod tests {
    use fabric::Network;

    use super::{PLUGINS, called, network, of_network, printed_by};

    #[test]
    fn every_entry_is_whole_and_no_two_share_a_name() {
        for (at, plugin) in PLUGINS.iter().enumerate() {
            assert!(!plugin.source.is_empty() && !plugin.networks.is_empty(), "{plugin:?}");
            for other in &PLUGINS[at + 1..] {
                assert_ne!(plugin.name, other.name);
                assert!(!plugin.networks.iter().any(|it| other.gives(it)), "{plugin:?} and {other:?}");
            }
            for line in plugin.lines {
                let writer = printed_by(line.example.as_bytes());
                assert_eq!(writer.map(|it| it.0), Some(*plugin), "{}", line.example);
            }
        }
    }

    #[test]
    fn names_of_networks() {
        for (name, plugin, kind, people) in [
            ("Libfabric", "aws-ofi-nccl", Some(Network::Libfabric), "libfabric"),
            ("AWS Libfabric [repeated 3x]", "aws-ofi-nccl", Some(Network::Libfabric), "libfabric"),
            ("IB", "NCCL's InfiniBand transport", Some(Network::Ib), "InfiniBand"),
            ("IBext_v8", "nccl-rdma-sharp-plugins", Some(Network::Ib), "InfiniBand"),
            ("NCCL RDMA Plugin v11", "nccl-rdma-sharp-plugins", Some(Network::Ib), "InfiniBand"),
            ("Socket", "NCCL's socket transport", Some(Network::Socket), "TCP sockets"),
            ("GPUDirectTCPX_v7", "GPUDirect-TCPX", None, "GPUDirect-TCPX"),
            ("FasTrak", "GPUDirect-TCPXO", None, "GPUDirect-TCPXO"),
            ("gIB", "gIB", None, "RoCE"),
            ("RCCL-ANP", "RCCL-ANP", None, "RoCE"),
        ] {
            assert_eq!(of_network(name).map(|it| it.name), Some(plugin), "{name}");
            assert_eq!(network(name), kind, "{name}");
            assert_eq!(called(name, &[]), people, "{name}");
        }
        assert_eq!(of_network("IBM"), None);
        assert_eq!(called("Thunder", &[]), "Thunder");
    }
}
