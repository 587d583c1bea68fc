//! A transfer over EFA failed, and its error says on which side.

use evidence::signals::efa::{EFA_PEER_GONE, EFA_REQUEST_FAILED, EFA_UNREACHABLE, SECURITY_GROUP_SAID};
use evidence::signals::limits::LOCKED_MEMORY_REFUSED;
use evidence::{Sighting, Source};
use messages::values::{self, Side, Table, Value};

use crate::cuda::who;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "efa-transfer-failed",
    title: "a transfer over EFA failed",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "The EFA provider gives every failed transfer an error of its own. An error that the peer sent back proves that \
          packets arrive: the security group is not the cause.",
    fix: "Look at the log of the peer and at the lines before; use one EFA installer (plugin, libfabric, driver) on all \
          hosts.",
    references: &["libfabric prov/efa/src/efa_errno.h", "https://github.com/aws/aws-ofi-nccl/issues/927"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&EFA_REQUEST_FAILED], Source::JobOutput)?;
    // Unreachable peers, peers that ended and locked memory have rules of their own; a flushed request follows from another error.
    let elsewhere = [&EFA_UNREACHABLE, &EFA_PEER_GONE, &SECURITY_GROUP_SAID, &LOCKED_MEMORY_REFUSED];
    if log.case.first_of(&elsewhere).is_some() {
        return Ok(Vec::new());
    }
    let counts = |it: &&Sighting| {
        let told = |it: &Value| {
            !matches!(it.side, Side::Path | Side::Consequence)
                && !matches!(&*it.text, "Success" | "Unknown error")
        };
        values::in_text(Table::Efa, &it.quote.text).filter(|it| told(it))
    };
    let known: Vec<(&Sighting, &'static Value)> =
        found.iter().filter_map(|it| Some((*it, counts(it)?))).collect();
    let Some((first, value)) = known.first() else {
        let arrived: Vec<_> = found.into_iter().filter(|it| it.quote.text.contains("Remote write")).collect();
        if arrived.is_empty() {
            return Ok(Vec::new());
        }
        let message = "a write of a peer over EFA failed at this rank";
        return Ok(vec![Finding::new(Confidence::Likely, message).by(log, &arrived)]);
    };
    let side = if value.side == Side::Remote { "the peer refused it" } else { "this side failed" };
    let message = format!("a transfer of {} over EFA failed, {side}: {}", who(log, first), value.text);
    let lines: Vec<_> = known.iter().map(|it| it.0).collect();
    let finding = Finding::new(Confidence::Likely, message).by(log, &lines);
    Ok(vec![finding.why(&*value.meaning).fix(&*value.remedy)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, ids, quiet};

    #[test]
    fn the_error_says_which_side() {
        let line = |error: &str| {
            format!(
                "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 22. Error: {error}. Completed length: 0, Request: x\n"
            )
        };
        let refused = line("7 (Remote key (RKEY) not registered or does not match remote IOVA)");
        assert!(findings(&RULE, &refused)[0].message.contains("the peer refused it"));
        assert_eq!(ids(&refused)[0], "efa-transfer-failed");
        let own = line("5 (Local key (LKEY) invalid or does not match IOVA)");
        assert!(findings(&RULE, &own)[0].message.contains("this side failed"));
        quiet(&RULE, &line("15 (Unreachable remote (never received a response))"));
        quiet(&RULE, &line("9 (Bad queue pair (QP) number (QP does not exist or is in error state))"));
        quiet(&RULE, &line("1 (Flushed during queue pair destroy)"));
    }

    #[test]
    fn the_newest_wording() {
        let line = "a:1:2 [0] x:1 NCCL WARN NET/OFI Request 0x7f (send) completed with error: err: 22, flags: 0, prov_errno: 10, strerror: Destination resource not ready (no work queue entries posted on receive queue), len: 0\n";
        assert!(findings(&RULE, line)[0].message.contains("the peer refused it"));
        let write = "a:1:2 [0] x:1 NCCL WARN NET/OFI Remote write completed with error. RC: 5. Flags: 0. Error: 99 (x). Completed length: 0\n";
        assert_eq!(findings(&RULE, write).len(), 1);
    }
}
