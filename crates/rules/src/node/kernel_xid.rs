//! Xid errors in the kernel's log.

use evidence::node::{NodeState, Xid};
use evidence::{Missing, Source};

use crate::hardware::xid::{Class, meaning};
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-xid",
    title: "the driver reported errors of a GPU since the node was started",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::KernelLog],
    why: "An Xid is the driver's report of a fault. Some are a program's own error; those about memory, NVLink, the bus or the GPU itself end jobs, \
          and come back until the GPU is reset or replaced.",
    fix: "`plumb explain 'Xid N'` says what a number means. Reboot the node, or reset the GPU (`nvidia-smi -r -i GPU`), and take the node out if \
          it comes back.",
    references: &["https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"],
    checks: &[Check::Node(check)],
};

fn check(state: &NodeState) -> Checked {
    let Some(log) = &state.kernel_log else { return Err(Missing(Source::KernelLog)) };
    Ok(log.xids.iter().map(finding).collect())
}

fn finding(xid: &Xid) -> Finding {
    let known = meaning(xid.code);
    let severity = match known.map(|it| it.class) {
        Some(Class::Program | Class::Note) | None => Severity::Info,
        // A high rate of corrected errors.
        Some(Class::Memory) if xid.code == 92 => Severity::Warning,
        Some(Class::Memory | Class::Link | Class::Lost | Class::Gpu) => Severity::Error,
    };
    let text = known.map_or_else(|| xid.text.clone(), |it| it.text.to_owned());
    let times = if xid.count == 1 { String::new() } else { format!(", {} times", xid.count) };
    let message = format!("the GPU at {} reported Xid {}: {text}{times}", xid.gpu, xid.code);
    Finding::new(Confidence::Certain, message).severity(severity).about_gpu(&xid.gpu)
}
