//! Versions that do not fit each other.

use super::Signal;
use crate::source::Kind;

/// NCCL compared the ranks' releases.
pub static MISMATCHED_VERSION: Signal = Signal {
    name: "mismatched-version",
    templates: &["Mismatched NCCL version detected : rank {a} version {x} rank {b} version {y}"],
    source: "NCCL src/init.cc, 2.23 and later",
    meaning: "Two ranks loaded different NCCL releases.",
    kind: Kind::NcclLog,
};

/// An address that cannot be one.
pub static BAD_ADDRESS_FAMILY: Signal = Signal {
    name: "bad-address-family",
    templates: &["with family {family} is neither AF_INET"],
    source: "NCCL src/misc/socket.cc",
    meaning: "An address received from a peer is nonsense: another NCCL release, or no interface was found.",
    kind: Kind::NcclLog,
};

/// All signals of this family.
pub static ALL: &[&Signal] = &[&MISMATCHED_VERSION, &BAD_ADDRESS_FAMILY];
