//! A value that NCCL ignores or reads differently.

use fabric::Version;
use fabric::settings::{CInteger, c_integer};
use fabric::variable::{self, Reader};
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "value-ignored",
    title: "a value that is ignored or read differently",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "NCCL compares the names of levels exactly and reads numbers up to the first other character. A value that it cannot read \
          becomes 0 or is ignored, at most with a line in the log.",
    fix: "Write a value that NCCL accepts.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "https://github.com/NVIDIA/nccl/blob/v2.27.3-1/src/misc/param.cc",
    ],
    checks: &[Check::Submission(check)],
};

const LEVELS: &[&str] = &["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS"];
const SUBSYSTEMS: &[&str] = &[
    "INIT",
    "COLL",
    "P2P",
    "SHM",
    "NET",
    "GRAPH",
    "TUNING",
    "ENV",
    "ALLOC",
    "CALL",
    "PROXY",
    "NVLS",
    "BOOTSTRAP",
    "REG",
    "PROFILE",
    "RAS",
    "DESTROY",
    "ALL",
];
const ALGORITHMS: &[&str] =
    &["tree", "ring", "collnetdirect", "collnetchain", "collnet", "nvls", "nvlstree", "pat"];
const PROTOCOLS: &[&str] = &["ll", "ll128", "simple"];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables().filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value()?.trim());
    let span = variable.setting.value_span.as_ref().unwrap_or(&variable.setting.span);
    let new = |message: String| Finding::at(variable.file, span, message);
    // An empty value is the same as unset.
    if value.is_empty() {
        return None;
    }
    match name {
        "NCCL_P2P_LEVEL" | "NCCL_NET_GDR_LEVEL" => {
            if LEVELS.contains(&value) || value.starts_with(|it: char| it.is_ascii_digit() || it == '-') {
                return None;
            }
            let upper = value.to_ascii_uppercase();
            let finding = new(format!("{name}={value} is ignored: NCCL accepts {}", LEVELS.join(" ")));
            if !LEVELS.contains(&upper.as_str()) {
                return Some(
                    finding.label("not a level").fix("Write one of these names, or remove the variable."),
                );
            }
            let finding = finding.label("names are case-sensitive").fix(format!("Write {upper}."));
            // Only the value changes, not the quotes around it.
            let text = variable.submission.text.get(span.range.clone()).unwrap_or_default();
            let at = text.find(value).map(|it| span.range.start + it);
            Some(match at {
                Some(at) => finding.edit(at..at + value.len(), upper),
                None => finding,
            })
        }
        "NCCL_DEBUG" => {
            let known = ["VERSION", "WARN", "INFO", "ABORT", "TRACE", "NONE"];
            let other = !known.iter().any(|it| it.eq_ignore_ascii_case(value));
            other.then(|| {
                new(format!("NCCL_DEBUG={value} is not a level, and NCCL logs nothing: it accepts VERSION, WARN, INFO, ABORT and TRACE"))
                    .severity(Severity::Info)
                    .fix("Write WARN, or INFO to see what NCCL chose.")
            })
        }
        "NCCL_DEBUG_SUBSYS" => {
            let list = value.strip_prefix('^').unwrap_or(value);
            let other = list.split(',').map(|it| it.trim().trim_start_matches('^')).find(|word| {
                !word.is_empty() && !SUBSYSTEMS.iter().any(|it| it.eq_ignore_ascii_case(word))
            })?;
            let message =
                format!("`{other}` is not a subsystem of NCCL: it accepts {}", SUBSYSTEMS.join(" "));
            Some(new(message).severity(Severity::Info).fix(format!("Remove {other} from the list.")))
        }
        "NCCL_ALGO" | "NCCL_PROTO" => {
            let known = if name == "NCCL_ALGO" { ALGORITHMS } else { PROTOCOLS };
            let other = value.split(';').find_map(|part| {
                let list = part.rsplit_once(':').map_or(part, |it| it.1);
                let mut words = list.trim_start_matches('^').split(',').map(str::trim);
                words.find(|word| !known.iter().any(|it| it.eq_ignore_ascii_case(word)))
            })?;
            let message = format!("{name}: `{other}` is not one of {}", known.join(" "));
            let strict = variable.releases().nccl.is_some_and(|it| it >= Version::new(2, 24, 0));
            let finding = new(message).fix("Remove the variable: NCCL chooses by size and topology.");
            Some(if strict {
                finding
                    .severity(Severity::Error)
                    .why("NCCL 2.24 and newer reject a list with an unknown word: the job fails.")
            } else {
                finding
            })
        }
        "TORCH_DISTRIBUTED_DEBUG" => {
            let other = !["OFF", "INFO", "DETAIL"].iter().any(|it| it.eq_ignore_ascii_case(value));
            other.then(|| {
                let reason = "PyTorch accepts OFF, INFO or DETAIL and rejects anything else";
                new(format!("{name}={value}: {reason}"))
                    .reason(reason)
                    .severity(Severity::Error)
                    .why("PyTorch raises an error when it reads the value, and the job does not start.")
                    .fix("Write OFF, INFO or DETAIL.")
            })
        }
        _ => as_number(variable, value, new),
    }
}

fn as_number(
    variable: &SubmittedVariable<'_>,
    value: &str,
    new: impl Fn(String) -> Finding,
) -> Option<Finding> {
    let name = variable.name();
    let known = variable::find(name).filter(|it| it.read_by == Reader::Nccl && it.kind.is_integer())?;
    // NCCL reads names of 2.30 and newer with another parser.
    if Version::parse(&known.first_seen).is_none_or(|it| it >= Version::new(2, 30, 0)) {
        return None;
    }
    if value.trim().is_empty() {
        return None;
    }
    let CInteger { value: read, whole, .. } = c_integer(value);
    if whole {
        return None;
    }
    let digits = value.trim_start_matches(['-', '+']).starts_with(|it: char| it.is_ascii_digit());
    let message = if digits {
        format!("{name}={value} is read as {read}: NCCL stops at the first character that is not a digit")
    } else {
        format!("{name}={value} is read as {read}: NCCL expects a number here")
    };
    let meant = match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "enable" | "enabled" => Some(1),
        "false" | "no" | "off" | "disable" | "disabled" => Some(0),
        _ => None,
    };
    let finding = new(message).label(format!("read as {read}"));
    Some(match meant {
        // The value read is the one that was meant.
        Some(0) => finding.severity(Severity::Info).fix("Write 0."),
        Some(one) => finding.fix(format!("Write {one}.")),
        None => finding.fix("Write the number in full."),
    })
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::RULE;
    use crate::Severity;
    use crate::lint::Given;
    use crate::lint::settings::testing::pod;
    use crate::lint::testing::{findings, findings_given, fixed, quiet};

    #[test]
    fn words_for_numbers_are_read_as_nothing() {
        let found = findings(
            &RULE,
            &pod(&[("NCCL_IB_DISABLE", "true"), ("NCCL_BUFFSIZE", "8M"), ("NCCL_P2P_DISABLE", "false")]),
        );
        let messages: Vec<&str> = found.iter().map(|it| it.message.as_str()).collect();
        assert_eq!(messages[0], "NCCL_IB_DISABLE=true is read as 0: NCCL expects a number here");
        assert!(messages[1].starts_with("NCCL_BUFFSIZE=8M is read as 8:"), "{messages:?}");
        assert_eq!(found[2].severity, Some(Severity::Info));
    }

    #[test]
    fn levels_are_compared_letter_by_letter() {
        let text = pod(&[("NCCL_P2P_LEVEL", "nvl")]);
        assert!(findings(&RULE, &text)[0].message.starts_with("NCCL_P2P_LEVEL=nvl is ignored"));
        assert_eq!(fixed(&RULE, &text), text.replace("nvl", "NVL"));
        assert!(findings(&RULE, &pod(&[("NCCL_P2P_LEVEL", "nvlink")]))[0].edits.is_empty());
    }

    #[test]
    fn lists_have_known_words() {
        let text =
            pod(&[("NCCL_ALGO", "Ring,Star"), ("NCCL_DEBUG_SUBSYS", "INIT,FOO"), ("NCCL_DEBUG", "error")]);
        let found = findings(&RULE, &text);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].message.contains("`Star`"));
        let given = Given { nccl: Some(Version::new(2, 27, 3)), ..Given::default() };
        assert_eq!(findings_given(&RULE, &text, &given)[0].severity, Some(Severity::Error));
    }

    #[test]
    fn what_is_read_is_left_alone() {
        quiet(
            &RULE,
            &pod(&[
                ("NCCL_DEBUG", "info"),
                ("NCCL_DEBUG_SUBSYS", "^INIT,ENV"),
                ("NCCL_ALGO", "ring"),
                ("NCCL_PROTO", "^LL128"),
                ("NCCL_IB_DISABLE", "1"),
                ("NCCL_BUFFSIZE", "0x400000"),
                ("NCCL_P2P_LEVEL", "NVL"),
                ("NCCL_NET_GDR_LEVEL", "5"),
                ("NCCL_P2P_DISABLE", ""),
                ("FI_EFA_USE_HUGE_PAGE", "false"),
                ("TORCH_NCCL_BLOCKING_WAIT", "true"),
                ("NCCL_NVLS_ENABLE", "$(NVLS)"),
                ("NCCL_DEBUG", "${NCCL_DEBUG}"),
                ("NCCL_DEBUG_SUBSYS", "$SUBSYSTEMS"),
                ("NCCL_ALGO", "allreduce:tree;broadcast:ring"),
            ]),
        );
    }
}
