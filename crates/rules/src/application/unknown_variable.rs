//! A variable is set that nothing reads.

use evidence::signals::notes::ASSIGNMENT;
use evidence::{Missing, Source};
use fabric::variable;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "unknown-variable",
    title: "a variable is set that no release reads",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::LaunchCommand],
    why: "NCCL does not report names it does not know: a misspelt or invented variable changes nothing, and whoever set it believes \
          that it does.",
    fix: "Remove it, or write the intended name. `plumb explain NAME` shows what a variable does.",
    references: &["https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"],
    checks: &[Check::Log(check)],
};

/// Names that builds, images and tests use.
static OTHERS: &[&str] = &[
    "NCCL_TESTS_",
    "NCCL_HOME",
    "NCCL_ROOT",
    "NCCL_VERSION",
    "NCCL_VER",
    "NCCL_LIB",
    "NCCL_INCLUDE",
    "NCCL_PATH",
    "NCCL_DIR",
    "NCCL_INSTALL",
    "NCCL_REPO",
    "NCCL_COMMIT",
    "NCCL_BRANCH",
    "NCCL_BUILD",
    "NCCL_SRC",
    "NCCL_LINK",
    "NCCL_MAJOR",
    "NCCL_MINOR",
    "NCCL_PATCH",
    "NCCL_TAG",
];

fn check(log: &Log) -> Checked {
    if log.case.manifests.is_empty() && log.case.first_of(&[&ASSIGNMENT]).is_none() {
        return Err(Missing(Source::LaunchCommand));
    }
    let mut findings: Vec<Finding> = Vec::new();
    for setting in log.job.settings.variables.iter().filter(|it| !it.is_logged()) {
        let name = &*setting.name;
        let nccl = name.to_ascii_uppercase().starts_with("NCCL_") || name.starts_with("NCLL_");
        if !nccl || OTHERS.iter().any(|it| name.starts_with(it)) {
            continue;
        }
        let known = variable::find(name);
        if known.is_some_and(variable::Variable::is_variable) {
            continue;
        }
        let meant = variable::suggest(name);
        let (confidence, message) = match (known, meant) {
            (Some(_), Some(meant)) => {
                (Confidence::Certain, format!("no NCCL release reads {name}; {} may be meant", meant.name))
            }
            (Some(known), None) => (Confidence::Certain, format!("{name}: {}", known.effect)),
            (None, Some(meant)) => {
                (Confidence::Likely, format!("no release knows {name}; {} may be meant", meant.name))
            }
            // Plugins have other variables.
            (None, None) => continue,
        };
        let finding = Finding::new(confidence, message).seen_all(setting.quote()).about_variable(name);
        if !findings.iter().any(|it| it.message == finding.message) {
            findings.push(finding);
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[test]
    fn names_that_no_release_reads() {
        let it = findings(&RULE, "export NCCL_P2P_DIRECT_READ=0\n");
        assert_eq!(
            it[0].message,
            "no NCCL release reads NCCL_P2P_DIRECT_READ; NCCL_P2P_READ_ENABLE may be meant"
        );
        assert!(
            findings(&RULE, "NCCL_TIMEOUT=1800 torchrun train.py\n")[0]
                .message
                .contains("init_process_group")
        );
        let manifest = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    env:\n    - name: NCCL_BUFFSZIE\n      value: \"8388608\"\n";
        assert!(findings(&RULE, manifest)[0].message.ends_with("NCCL_BUFFSIZE may be meant"));
    }

    #[test]
    fn names_of_others_are_quiet() {
        quiet(
            &RULE,
            "NCCL_DEBUG=INFO NCCL_TESTS_SPLIT_MASK=0x7 NCCL_VERSION=2.21.5 NCCL_HOME=/opt/nccl NCCL_FASTRAK_CTRL_DEV=eth0 ./a\n",
        );
        quiet(
            &RULE,
            "-x NCCL_IB_DISABLE=1 -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_NSOCKS_PERTHREAD=8 -x NCCL_ASYNC_ERROR_HANDLING=1\n",
        );
    }
}
