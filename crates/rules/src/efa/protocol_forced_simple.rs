//! Only NCCL's Simple protocol is allowed: by the plugin, which is correct, or by the user.

use evidence::Source;

use super::machine;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "protocol-forced-simple",
    title: "only the Simple protocol of NCCL is in use",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::NcclLog],
    why: "LL and LL128 save time for small messages. Over EFA they are safe only where 128 bytes arrive in order and GPUDirect works; \
          elsewhere the plugin allows only Simple. That is correct and does not come from your settings.",
    fix: "Nothing to do. Do not set NCCL_PROTO yourself: the plugin knows when Simple is needed.",
    references: &["https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let processes = log.nccl_log()?;
    let forced = processes.iter().find_map(|it| it.facts.plugin.forced_simple.first());
    let by_plugin = forced.is_some() || processes.iter().any(|it| it.added_by_plugin("NCCL_PROTO"));
    let by_user = log.job.settings.named("NCCL_PROTO").find(|it| !it.is_logged() || !by_plugin);
    if let Some(set) = by_user
        && let Some((machine, named)) = machine(log).filter(|it| it.0.ofi_protocol.as_deref() == Some("RDMA"))
    {
        let message = format!(
            "NCCL_PROTO={} is set by hand on {}, where the plugin lets NCCL choose",
            set.text(),
            machine.name
        );
        let finding = Finding::new(Confidence::Certain, message)
            .severity(Severity::Warning)
            .seen_all(set.quote())
            .seen_all(named);
        let why = "Small messages can then not use LL and LL128, and the plugin's tuner does not run.";
        return Ok(vec![finding.why(why).fix("Unset NCCL_PROTO.").about_variable("NCCL_PROTO")]);
    }
    let Some(seen) = forced else { return Ok(Vec::new()) };
    let reasons: Vec<&str> = processes.iter().flat_map(|it| it.facts.plugin.forced_simple.iter()).fold(
        Vec::new(),
        |mut list, it| {
            if !list.contains(&&*it.value) {
                list.push(&it.value);
            }
            list
        },
    );
    let message =
        format!("the plugin allows only the Simple protocol, as it must without {}", reasons.join(" and "));
    Ok(vec![Finding::new(Confidence::Certain, message).seen(&seen.quote)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::testing::{findings, quiet};

    #[test]
    fn the_plugins_choice_is_right() {
        let log = "a:1:2 [0] NCCL INFO NET/OFI Need to force simple protocol: byte delivery ordering not supported\n\
                   a:1:2 [0] NCCL INFO NET/OFI Adding NCCL_PROTO=simple to environment\n\
                   a:1:2 [0] NCCL INFO NCCL_PROTO set by environment to simple\n";
        let found = findings(&RULE, log);
        assert_eq!(
            found[0].message,
            "the plugin allows only the Simple protocol, as it must without byte delivery ordering"
        );
        assert_eq!(found[0].severity, None);
    }

    #[test]
    fn the_users_is_a_warning_where_the_plugin_would_not() {
        let log = "a:1:2 [0] NCCL INFO NET/OFI Region base Tuner is chosen for platform: p5.48xlarge\n\
                   a:1:2 [0] NCCL INFO NCCL_PROTO set by environment to simple\n";
        assert_eq!(findings(&RULE, log)[0].severity, Some(Severity::Warning));
        quiet(&RULE, &log.replace("p5.48xlarge", "p4d.24xlarge"));
    }
}
