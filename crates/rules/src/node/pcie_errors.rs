//! Errors of the PCI bus in the kernel's log.

use evidence::node::{Aer, AerSeverity, NodeState};
use evidence::{Missing, Source};

use super::facts::list;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

/// See the module documentation.
pub(crate) static RULE: Rule = Rule {
    id: "node-pcie-errors",
    title: "the PCI bus reported errors since the node was started",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::KernelLog],
    why: "The kernel reports errors of PCI Express links (AER). Corrected ones cost time where there are many; others end the program that uses the \
          device, or the device itself.",
    fix: "Find the device with `lspci -s DEVICE`. Reseat the card, riser or cable, update its firmware, and reboot; replace the machine if errors \
          come back.",
    references: &["https://docs.kernel.org/PCI/pcieaer-howto.html"],
    checks: &[Check::Node(check)],
};

/// A link that repeats this many packets since the start is worth a look.
const MANY: u64 = 100;

fn check(state: &NodeState) -> Checked {
    let Some(log) = &state.kernel_log else { return Err(Missing(Source::KernelLog)) };
    let mut found = Vec::new();
    for it in log.aer.iter().filter(|it| it.severity != AerSeverity::Corrected) {
        let kind = if it.severity == AerSeverity::Fatal { "fatal" } else { "uncorrected" };
        let message = format!("the PCI device {} reported {} {kind} errors", it.device, it.count);
        found.push(Finding::new(Confidence::Certain, message));
    }
    let corrected: Vec<&Aer> = log.aer.iter().filter(|it| it.severity == AerSeverity::Corrected).collect();
    if !corrected.is_empty() {
        let names: Vec<String> = corrected.iter().map(|it| format!("{} ({})", it.device, it.count)).collect();
        let message = format!("PCI links repeated packets (corrected errors): {}", list(&names, 3));
        let severity =
            if corrected.iter().any(|it| it.count >= MANY) { Severity::Warning } else { Severity::Info };
        found.push(Finding::new(Confidence::Certain, message).severity(severity));
    }
    if log.oom_kills > 0 {
        let message = format!(
            "the kernel killed {} programs for lack of memory since the node was started",
            log.oom_kills
        );
        let why = "Not a fault of the node: a job used more host memory than there was.";
        found.push(Finding::new(Confidence::Certain, message).severity(Severity::Info).why(why));
    }
    Ok(found)
}
