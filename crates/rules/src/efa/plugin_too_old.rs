//! The plugin is older than its support for this machine.

use evidence::{Case, Missing, Source};
use fabric::Version;

use super::machine;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

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

/// The first release that knows a family: from its release notes and `platform-aws` of each tag.
static SUPPORT: &[(&str, Version)] = &[
    ("p5.4xlarge", Version::new(1, 16, 2)),
    ("p5.48xlarge", Version::new(1, 7, 3)),
    ("p5e.48xlarge", Version::new(1, 11, 0)),
    ("p5en.48xlarge", Version::new(1, 13, 0)),
    ("p6-b200.48xlarge", Version::new(1, 15, 0)),
    ("p6-b300.48xlarge", Version::new(1, 18, 0)),
    ("p6e-gb200.36xlarge", Version::new(1, 14, 0)),
    ("g7e.8xlarge", Version::new(1, 18, 0)),
    ("g7e.12xlarge", Version::new(1, 17, 2)),
    ("g7e.24xlarge", Version::new(1, 17, 2)),
    ("g7e.48xlarge", Version::new(1, 17, 2)),
    ("g5.48xlarge", Version::new(1, 8, 0)),
];

fn check(case: &Case) -> Checked {
    case.nccl_log()?;
    let (machine, named) = machine(case).ok_or(Missing(Source::Instance))?;
    let Some((plugin, quote)) = case.plugin_version() else { return Ok(Vec::new()) };
    let first = SUPPORT.iter().find(|it| it.0 == machine.name).map(|it| it.1);
    let Some(first) = first.filter(|it| plugin < *it) else { return Ok(Vec::new()) };
    let message = format!("aws-ofi-nccl {plugin} does not know {}; support began with {first}", machine.name);
    Ok(vec![Finding::new(Confidence::Certain, message).seen(quote).seen(named)])
}

#[cfg(test)]
mod tests {
    use super::{RULE, SUPPORT};
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

    #[test]
    fn every_entry_is_in_the_catalogue() {
        assert!(SUPPORT.iter().all(|it| fabric::instance::find(it.0).is_some()));
    }
}
