//! A variable that no release reads.

use std::collections::BTreeMap;

use evidence::plugin::PLUGINS;
use evidence::submission::Written;
use fabric::variable::{self, Variable};
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "variable-unknown",
    title: "a variable that no release reads",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "NCCL, the plugin and libfabric do not warn about unknown names: the setting has no effect.",
    fix: "Remove it, or correct the name.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "https://github.com/aws/aws-ofi-nccl/blob/master/include/nccl_ofi_param.h",
    ],
    checks: &[Check::Submission(check)],
};

const FAMILIES: &[&str] = &["NCCL_", "OFI_NCCL_", "FI_EFA_", "TORCH_NCCL_", "NCLL_", "NCL_", "NCCI_"];

/// Prefixes of `NCCL_` names that other programs read: plugins that are not for the network, forks, build scripts.
const OTHERS: &[&str] = &[
    "NCCL_SHIMNET_",
    "NCCL_TELEMETRY_",
    "NCCL_TUNER_CONFIG",
    "NCCL_CTRAN_",
    "NCCL_TEST",
    "NCCL_BENCH",
    "NCCL_PROFILER_",
];

/// Suffixes of variables for paths, releases and switches in build scripts.
const OWN: &[&str] = &[
    "_VERSION", "_VER", "_DIR", "_PATH", "_HOME", "_ROOT", "_TAG", "_URL", "_BRANCH", "_PREFIX", "_SHA",
    "_COMMIT", "_LIB", "_LIBRARY", "_INCLUDE", "_REPO", "_IMAGE", "_NAME", "_INSTALL", "_BUILD", "_SRC",
    "_REF", "_OPTS", "_ARGS", "_ENV",
];

fn check(submitted: &Submitted<'_>) -> Checked {
    // Manifests repeat their variables, and the search for the nearest name is slow.
    let mut nearest = BTreeMap::new();
    let mut suggest = |name: &str| *nearest.entry(name.to_owned()).or_insert_with(|| variable::suggest(name));
    Ok(submitted.variables().filter_map(|it| finding(&it, &mut suggest)).collect())
}

fn finding(
    variable: &SubmittedVariable<'_>,
    suggest: &mut impl FnMut(&str) -> Option<&'static Variable>,
) -> Option<Finding> {
    let name = variable.name();
    let upper = name.to_ascii_uppercase();
    // Lower-case names in scripts are shell variables.
    let foreign = upper != name && variable.setting.written != Written::Env;
    if foreign || !FAMILIES.iter().any(|it| upper.starts_with(it)) {
        return None;
    }
    let known = variable::find(name);
    let of_others =
        OTHERS.iter().any(|it| upper.starts_with(it)) || PLUGINS.iter().any(|it| it.reads(&upper));
    if known.is_some_and(Variable::is_variable) || of_others {
        return None;
    }
    let meant = suggest(name);
    let at = &variable.setting.name_span;
    if let Some(known) = known {
        let finding = Finding::at(variable.file, at, format!("{name} is not a variable: {}", known.effect))
            .label("nothing reads this");
        return Some(match meant {
            Some(meant) => finding.fix(format!("Remove {name}, or set {} if you meant that.", meant.name)),
            None => finding.fix(format!("Remove {name}.")),
        });
    }
    if let Some(meant) = meant {
        let message =
            format!("no release reads {name}; {} is the nearest name: {}", meant.name, meant.effect);
        return Some(
            Finding::at(variable.file, at, message)
                .label("nothing reads this")
                .confidence(Confidence::Likely)
                .fix(format!("Write {}, or remove {name}.", meant.name)),
        );
    }
    // PyTorch adds names faster than the list, and scripts have names of their own.
    let own = OWN.iter().any(|it| upper.ends_with(it)) || variable.setting.written == Written::Command;
    if own || upper.starts_with("TORCH_") {
        return None;
    }
    let message = format!("no release of NCCL, aws-ofi-nccl or libfabric that plumb knows reads {name}");
    Some(
        Finding::at(variable.file, at, message)
            .confidence(Confidence::Possible)
            .severity(Severity::Info)
            .fix(format!("Remove {name}, unless your own program reads it.")),
    )
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, quiet};
    use crate::{Confidence, Severity};

    #[test]
    fn invented_names_are_named() {
        let found = findings(
            &RULE,
            &pod(&[("NCCL_P2P_DIRECT_READ", "0"), ("NCCL_TIMEOUT", "1800"), ("NCCL_DEBUGG", "INFO")]),
        );
        assert_eq!(found.len(), 3);
        assert!(
            found[0].message.starts_with("NCCL_P2P_DIRECT_READ is not a variable: "),
            "{}",
            found[0].message
        );
        assert!(found[0].fix.as_ref().unwrap().contains("NCCL_P2P_READ_ENABLE"));
        assert!(found[1].message.contains("init_process_group"));
        assert!(found[2].message.contains("NCCL_DEBUG is the nearest"));
        assert_eq!(found[2].confidence, Confidence::Likely);
    }

    #[test]
    fn what_is_like_nothing_is_only_worth_knowing() {
        let found = findings(&RULE, &pod(&[("NCCL_WHATEVER_ELSE", "0")]));
        assert_eq!((found.len(), found[0].severity), (1, Some(Severity::Info)));
    }

    #[test]
    fn variables_of_a_script_are_its_own() {
        quiet(&RULE, "#!/bin/bash\nNCCL_TIMEOUT=30\necho $NCCL_TIMEOUT\n");
        for text in [
            "#!/bin/bash\nexport NCCL_TIMEOUT=30\n",
            "#!/bin/bash\nNCCL_TIMEOUT=30 python x.py\n",
            "NCCL_TIMEOUT=30\n",
        ] {
            assert_eq!(findings(&RULE, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn names_of_others_are_left_alone() {
        quiet(
            &RULE,
            &pod(&[
                ("NCCL_DEBUG", "INFO"),
                ("NCCL_VERSION", "2.27.3"),
                ("NCCL_FASTRAK_CTRL_DEV", "eth0"),
                ("NCCL_SHARP_DISABLE", "1"),
                ("NCCL_HOME", "/opt"),
                ("TORCH_NCCL_USE_COMM_NONBLOCKING", "1"),
                ("MY_NCCL", "1"),
                ("PATH", "/bin"),
            ]),
        );
    }
}
