//! The plugin is older than its support for this machine.

use evidence::plugin::aws_ofi::PLUGIN;
use evidence::{Missing, Source};
use fabric::support::first_release;

use super::machine;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "plugin-too-old",
    title: "aws-ofi-nccl is older than its support for this machine",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::NcclLog, Source::Instance],
    why: "The plugin chooses protocol, topology, buffer sizes and tuner by the instance type. A release that does not know the type runs \
          on defaults, slower or not at all.",
    fix: "Update the EFA software in the image (the installer brings the plugin since early 2025), or build a newer release.",
    references: &["https://github.com/aws/aws-ofi-nccl/releases"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    log.nccl_log()?;
    let (machine, named) = machine(log).ok_or(Missing(Source::Instance))?;
    let Some(plugin) = log.job.releases.of_plugin(&PLUGIN) else { return Ok(Vec::new()) };
    let Some(first) = first_release(PLUGIN.name, &machine.name).filter(|it| plugin.value < *it) else {
        return Ok(Vec::new());
    };
    let message =
        format!("aws-ofi-nccl {} does not know {}; support began with {first}", plugin.value, machine.name);
    Ok(vec![Finding::new(Confidence::Certain, message).seen_all(plugin.quote()).seen_all(named)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    fn log(plugin: &str, machine: &str) -> String {
        format!(
            "a:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl {plugin}\n\
             a:1:2 [0] NCCL INFO NET/OFI NCCL_OFI_TUNER is not available for platform : {machine}, Fall back to NCCL's tuner\n"
        )
    }

    #[test]
    fn fires_below_the_first_release() {
        let found = findings(&RULE, &log("1.12.1-aws", "p5en.48xlarge"));
        assert_eq!(
            found[0].message,
            "aws-ofi-nccl 1.12.1 does not know p5en.48xlarge; support began with 1.13.0"
        );
    }

    #[test]
    fn quiet_from_it_on_and_for_machines_without_an_entry() {
        quiet(&RULE, &log("1.13.0-aws", "p5en.48xlarge"));
        quiet(&RULE, &log("1.16.2", "g6e.12xlarge"));
        quiet(&RULE, &log("1.4.0aws", "p4d.24xlarge"));
    }
}
