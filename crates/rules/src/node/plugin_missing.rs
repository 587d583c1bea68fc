//! The machine needs a network plugin, and none is installed.

use evidence::Source;
use evidence::node::{LibraryKind, NodeState};
use fabric::machine::NicKind;

use super::facts::{model, ports};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-plugin-missing",
    title: "the network plugin that NCCL needs for EFA is not found",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::Devices],
    why: "NCCL uses EFA through the plugin aws-ofi-nccl only. Without it NCCL falls back to TCP sockets, many times slower.",
    fix: "Install aws-ofi-nccl (it is part of the EFA installer, in /opt/amazon/ofi-nccl or /opt/amazon/aws-ofi-nccl) where the job runs, in the \
          image if it runs in a container, and put its lib folder into LD_LIBRARY_PATH or /etc/ld.so.conf.d.",
    references: &["https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start-nccl.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let efa = ports(state)?.iter().any(|it| it.kind == "efa");
    let here = |kind| state.libraries_of(kind).next().is_some();
    if !efa
        || model(state).is_some_and(|it| it.network != NicKind::Efa)
        || here(LibraryKind::AwsOfiNccl)
        || here(LibraryKind::NetPlugin)
    {
        return Ok(Vec::new());
    }
    let message =
        "the node has EFA, but aws-ofi-nccl is in none of the usual folders and not in LD_LIBRARY_PATH";
    let finding = Finding::new(Confidence::Possible, message);
    // Without NCCL here either, jobs bring both in their image.
    Ok(vec![if here(LibraryKind::Nccl) { finding } else { finding.severity(Severity::Info) }])
}
