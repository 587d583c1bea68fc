//! A variable has a value that NCCL reads differently than its author meant it.

use evidence::signals::application::INVALID_VALUE;
use evidence::signals::notes::ASSIGNMENT;
use evidence::{Missing, Source};
use fabric::variable::{self, Reader, ValueKind};

use job::Variable;

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "variable-value-misread",
    title: "a variable's value does not mean what it seems to",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[Source::LaunchCommand, Source::NcclLog],
    why: "NCCL reads values strictly and reports few errors: a level in lower case is ignored, a number above 4 is the loosest level, a \
          word where a number belongs is 0, and `8M` is 8.",
    fix: "Write levels as names in capitals (LOC NVL PIX PXB PHB SYS), switches as 0 or 1, sizes in bytes.",
    references: &[
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "NCCL src/graph/paths.cc, src/misc/param.cc",
    ],
    checks: &[Check::Log(check)],
};

static LEVELS: &[&str] = &["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "P2C", "PHB", "SYS"];

fn check(log: &Log) -> Checked {
    if log.case.manifests.is_empty()
        && log.case.processes.is_empty()
        && log.case.first_of(&[&ASSIGNMENT]).is_none()
    {
        return Err(Missing(Source::LaunchCommand));
    }
    let mut findings = Vec::new();
    for it in log.case.sightings_of(&INVALID_VALUE) {
        let (name, value) = (it.get("name"), it.get("value"));
        let message = format!(
            "NCCL does not understand {name}={value} and uses its default {}",
            it.get("default").trim_end_matches('.')
        );
        add(&mut findings, Finding::new(Confidence::Certain, message).seen(&it.quote).about_variable(name));
    }
    let (read, given): (Vec<_>, Vec<_>) = log.job.settings.variables.iter().partition(|it| it.is_logged());
    for it in given.into_iter().chain(read) {
        if let Some(message) = misread(log, it) {
            let finding = Finding::new(Confidence::Likely, message).seen_all(it.quote());
            add(&mut findings, finding.about_variable(&it.name));
        }
    }
    Ok(findings)
}

fn add(all: &mut Vec<Finding>, finding: Finding) {
    if !all.iter().any(|it| it.message == finding.message) {
        all.push(finding);
    }
}

/// What is wrong with a value, if something is. What NCCL printed is already a number or a level.
fn misread(log: &Log, variable: &Variable) -> Option<String> {
    let (name, value, logged) = (&*variable.name, variable.text(), variable.is_logged());
    let number = value.parse::<i64>().ok();
    if name == "NCCL_P2P_LEVEL" || name == "NCCL_NET_GDR_LEVEL" {
        let off = value == "LOC" || value == "0";
        if off
            && name == "NCCL_NET_GDR_LEVEL"
            && log.job.instance().is_some_and(|it| it.gpudirect_rdma == Some(true))
        {
            return Some(format!("{name}={value} turns GPUDirect off on a machine that supports it"));
        }
        if let Some(number) = number.filter(|it| *it > 4) {
            return Some(format!(
                "{name}={number} is SYS, the loosest level: the numbers are 0 LOC, 1 PIX, 2 PXB, 3 PHB, 4 SYS; NVLink is NVL"
            ));
        }
        if number.is_none() && !LEVELS.contains(&value) && !logged {
            let upper = value.to_ascii_uppercase();
            return Some(if LEVELS.contains(&upper.as_str()) {
                format!("{name}={value} is ignored: the level is written {upper}")
            } else {
                format!("{name}={value} is ignored: it is not a level")
            });
        }
        return None;
    }
    if name == "NCCL_BUFFSIZE" {
        let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
        let read: u64 = digits.parse().unwrap_or(0);
        return (read < 4096
            && !value.starts_with("0x")
            && !value.starts_with('-')
            && !value.starts_with('$'))
        .then(|| format!("{name}={value} is read as {read} bytes"));
    }
    if name == "NCCL_NTHREADS" && number == Some(0) && logged {
        return Some(format!("{name} was read as 0: its value was not a number"));
    }
    // A word for a switch is read as 0.
    let switch =
        variable::find(name).is_some_and(|it| it.read_by == Reader::Nccl && it.kind == ValueKind::Bool);
    let word = ["true", "yes", "on", "enable", "enabled"].contains(&value.to_ascii_lowercase().as_str());
    (switch && word && !logged).then(|| format!("{name}={value} is read as 0: write 1"))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::testing::{findings, quiet};

    #[track_caller]
    fn says(text: &str, part: &str) {
        let it = findings(&RULE, text);
        assert!(it.iter().any(|it| it.message.contains(part)), "{it:#?}");
    }

    #[test]
    fn levels() {
        says("export NCCL_P2P_LEVEL=5\n", "NCCL_P2P_LEVEL=5 is SYS");
        says("NCCL_P2P_LEVEL=nvl ./a\n", "written NVL");
        says("NCCL_P2P_LEVEL=NVLINK ./a\n", "is not a level");
        says("INSTANCE_TYPE=p5.48xlarge\nNCCL_NET_GDR_LEVEL=LOC ./a\n", "turns GPUDirect off");
        quiet(&RULE, "INSTANCE_TYPE=g6e.12xlarge\nNCCL_NET_GDR_LEVEL=LOC NCCL_P2P_LEVEL=NVL ./a\n");
    }

    #[test]
    fn numbers() {
        says("NCCL_BUFFSIZE=8M ./a\n", "read as 8 bytes");
        says("NCCL_IB_DISABLE=true ./a\n", "read as 0");
        says(
            "n:1:1 [0] NCCL INFO Invalid value 99999999999999999999 for NCCL_LL_BUFFSIZE, using default -2.\n",
            "uses its default -2",
        );
        says("n:1:1 [0] NCCL INFO NCCL_NTHREADS set by environment to 0.\n", "was not a number");
        quiet(&RULE, "NCCL_BUFFSIZE=8388608 NCCL_IB_DISABLE=1 ./a\n");
        quiet(
            &RULE,
            "n:1:1 [0] NCCL INFO NCCL_BUFFSIZE set by environment to 8388608.\nn:1:1 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS\n",
        );
    }
}
