//! Topology files and machines without a topology.

use super::Signal;
use crate::source::Kind;

/// An attribute that NCCL needs is not in the topology.
pub static ATTRIBUTE_MISSING: Signal = Signal {
    name: "topology-attribute-missing",
    templates: &["Attribute {attribute} of node {node} not found"],
    source: "NCCL src/graph/xml.h 2.6 and later",
    meaning: "The topology file describes a part of the machine that NCCL cannot complete.",
    kind: Kind::NcclLog,
};

/// A topology or graph file that cannot be read.
pub static XML_BROKEN: Signal = Signal {
    name: "topology-xml-broken",
    templates: &[
        "XML Parse : {problem...}",
        "XML Parse error : {problem...}",
        "XML Mismatch : {problem...}",
        "XML Topology has wrong version {problem...}",
        "system node not found in XML",
        "graph/xml.cc:{line} NCCL WARN Error : value {value} too long",
        "graph/xml.cc:{line} NCCL WARN Error : name {value} too long",
        "in the provided topology file.",
    ],
    source: "NCCL src/graph/xml.cc 2.6 and later",
    meaning: "The file is not the XML that NCCL reads.",
    kind: Kind::NcclLog,
};

/// Too many attributes are dropped, not refused.
pub static XML_EXTRA: Signal = Signal {
    name: "topology-xml-extra",
    templates: &["XML Parse : Ignoring extra attributes"],
    source: "NCCL src/graph/xml.cc 2.6 and later",
    meaning: "Harmless: attributes beyond the sixteenth are not read.",
    kind: Kind::NcclLog,
};

/// A graph file of another set of GPUs.
pub static GRAPH_BROKEN: Signal = Signal {
    name: "graph-file-broken",
    templates: &[
        "XML Import Channel : dev {device} not found",
        "XML Graph has wrong version {problem...}",
        "Could not open XML graph file {file} : {reason...}",
    ],
    source: "NCCL src/graph/search.cc 2.6 and later",
    meaning: "NCCL_GRAPH_FILE does not match the GPUs of the job.",
    kind: Kind::NcclLog,
};

/// The topology file is missing.
pub static FILE_NOT_OPENED: Signal = Signal {
    name: "topology-file-not-opened",
    templates: &["Could not open XML topology file {file} : {reason...}"],
    source: "NCCL src/graph/xml.cc 2.6 and later, INFO",
    meaning: "NCCL continues with what it detects itself.",
    kind: Kind::NcclLog,
};

/// The plugin found `NCCL_TOPO_FILE` set.
pub static FILE_GIVEN: Signal = Signal {
    name: "topology-file-given",
    templates: &["NCCL_TOPO_FILE environment variable is already set to{file...}"],
    source: "aws-ofi-nccl 1.6 and later",
    meaning: "The plugin does not pass its own topology to NCCL.",
    kind: Kind::NcclLog,
};

/// The search for rings found nothing.
pub static NO_PATH: Signal = Signal {
    name: "topology-no-path",
    templates: &["Could not find a path for pattern {pattern}, falling back to simple order"],
    source: "NCCL src/graph/search.cc 2.5 and later; WARN up to 2.8, INFO of GRAPH later",
    meaning: "NCCL connects the GPUs in the order of their numbers, with one channel.",
    kind: Kind::NcclLog,
};

/// The topology is larger than NCCL's tables.
pub static TOO_MANY: Signal = Signal {
    name: "topology-too-large",
    templates: &[
        "Error : too many XML nodes (max {max})",
        "Error : XML parser is limited to {max} nodes",
        "Error : too many XML subnodes (max {max})",
        "Error : XML parser is limited to {max} subnodes",
        "Error : too many Topo links (max {max})",
        "Error : tried to create too many nodes of type {type}",
    ],
    source: "NCCL src/graph/xml.h, xml.cc, topo.cc, 2.5 and later",
    meaning: "The machine has more PCI devices and NICs than NCCL's tables can hold.",
    kind: Kind::NcclLog,
};

/// The machine is a virtual one.
pub static VIRTUAL_MACHINE: Signal = Signal {
    name: "virtual-machine",
    templates: &[
        "Hypervisor vendor:{vendor...}",
        "Red Hat, Inc. Virtio",
        "QEMU XHCI Host Controller",
        "Hypervisor detected: {vendor...}",
        "DMI: QEMU",
        "Manufacturer: QEMU",
        "Product Name: KVM",
        "Microsoft Corporation Hyper-V",
    ],
    source: "lscpu, lspci, dmidecode, dmesg",
    meaning: "PCI switches of the host need not be visible.",
    kind: Kind::Notes,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[
    &ATTRIBUTE_MISSING,
    &XML_EXTRA,
    &XML_BROKEN,
    &GRAPH_BROKEN,
    &FILE_NOT_OPENED,
    &FILE_GIVEN,
    &NO_PATH,
    &TOO_MANY,
    &VIRTUAL_MACHINE,
];
