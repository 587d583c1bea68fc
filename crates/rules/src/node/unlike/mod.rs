//! What is compared between nodes, by how it can harm a job.

pub(crate) mod hardware;
pub(crate) mod limits;
pub(crate) mod network;
pub(crate) mod settings;
pub(crate) mod software;

use super::odd::Attribute;
use crate::Rule;

/// The rules with what each compares.
pub(super) static FAMILIES: &[(&Rule, &[Attribute])] = &[
    (&hardware::RULE, hardware::ATTRIBUTES),
    (&software::RULE, software::ATTRIBUTES),
    (&network::RULE, network::ATTRIBUTES),
    (&limits::RULE, limits::ATTRIBUTES),
    (&settings::RULE, settings::ATTRIBUTES),
];
