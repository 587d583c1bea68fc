//! A setting that aborts the process.

use fabric::instance::old_family;
use fabric::variable;
use job::submitted::{Submitted, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "setting-aborts",
    title: "a setting that aborts the process",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "libfabric or the plugin does not start with it: every rank fails at init.",
    fix: "Remove it.",
    references: &[
        "https://github.com/ofiwg/libfabric/blob/main/prov/efa/src/efa_env.c",
        "https://github.com/ofiwg/libfabric/blob/main/man/fi_efa.7.md",
        "https://github.com/aws/aws-ofi-nccl/blob/master/doc/efa-env-var.md",
    ],
    checks: &[Check::Submission(check)],
};

/// Names that newer releases reject, whatever the value.
const REFUSED: &[&str] = &[
    "FI_EFA_MTU_SIZE",
    "FI_EFA_RX_IOV_LIMIT",
    "FI_EFA_TX_IOV_LIMIT",
    "OFI_NCCL_RDMA_MAX_POSTED_BOUNCE_BUFFERS",
    "OFI_NCCL_RDMA_MIN_POSTED_BOUNCE_BUFFERS",
];

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.variables().filter_map(|it| finding(&it)).collect())
}

fn finding(variable: &SubmittedVariable<'_>) -> Option<Finding> {
    let (name, value) = (variable.name(), variable.value().map(str::trim));
    let new = |message: String| {
        Finding::at(variable.file, &variable.setting.span, message).fix(format!("Remove {name}."))
    };
    match (name, value) {
        ("FI_EFA_USE_DEVICE_RDMA", Some(value)) if on(value) => {
            let selected = variable.pod.map(|it| it.pod.instances()).unwrap_or_default();
            let old = selected.iter().map(|it| old_family(it.name).filter(|it| !it.rdma_read));
            let old: Option<Vec<_>> = old.collect();
            let old = old.as_ref().and_then(|it| it.first());
            if old.is_none()
                && !variable.everywhere(|it| it.instance.is_some_and(|it| it.rdma_read == Some(false)))
            {
                return None;
            }
            let types = old.map_or_else(|| variable.on(), |it| format!(" on {}", it.name));
            Some(
                new(format!(
                    "{name}={value}{types}: its EFA has no RDMA read, and libfabric aborts the process"
                ))
                .label("the device does not support this"),
            )
        }
        ("OFI_NCCL_PROTOCOL", Some(value)) if value.eq_ignore_ascii_case("RDMA") => {
            variable.everywhere(|it| it.instance.is_some_and(|it| it.rdma_write == Some(false))).then(|| {
                new(format!(
                    "{name}={value}{}: its EFA has no RDMA write, and the plugin fails",
                    variable.on()
                ))
                .label("the device does not support this")
            })
        }
        ("FI_EFA_TX_MIN_CREDITS", Some(_)) if variable.number().is_some_and(|it| it <= 0) => {
            Some(new(format!("{name} must be more than 0: libfabric aborts the process")))
        }
        ("FI_EFA_IFACE", Some("")) => by_release(variable, new),
        _ if REFUSED.contains(&name) => by_release(variable, new),
        _ => None,
    }
}

/// The data says from which release on.
fn by_release(variable: &SubmittedVariable<'_>, new: impl Fn(String) -> Finding) -> Option<Finding> {
    let versions = variable.releases();
    let advice = variable::find(variable.name())?.advice.first()?;
    let name = variable.name();
    let range = advice.versions.first().map(ToString::to_string).unwrap_or_default();
    match advice.applies(|it| versions.component(it)) {
        Some(false) => None,
        Some(true) => Some(new(format!("{name} aborts the process with {range}"))),
        None => Some(
            new(format!("{name} aborts the process with {range}; the release in use is not known"))
                .severity(Severity::Warning)
                .confidence(Confidence::Possible),
        ),
    }
}

/// Whether libfabric reads the value as true.
fn on(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|it| it.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use fabric::Version;

    use super::RULE;
    use crate::Severity;
    use crate::lint::Given;
    use crate::lint::settings::testing::{job, pod};
    use crate::lint::testing::{findings, findings_given, quiet};

    #[test]
    fn rdma_is_not_demanded_where_there_is_none() {
        let env: &[(&str, &str)] = &[("FI_EFA_USE_DEVICE_RDMA", "1")];
        for instance in ["g5.48xlarge", "p3dn.24xlarge", "g4dn.metal"] {
            let found = findings(&RULE, &job(instance, 2, env));
            assert_eq!(found.len(), 1, "{instance}");
            assert!(found[0].message.contains("aborts"), "{}", found[0].message);
        }
        quiet(&RULE, &job("p5.48xlarge", 2, env));
        quiet(&RULE, &job("g5.48xlarge", 2, &[("FI_EFA_USE_DEVICE_RDMA", "0")]));
        quiet(&RULE, &pod(env));
        assert_eq!(findings(&RULE, &job("p4d.24xlarge", 2, &[("OFI_NCCL_PROTOCOL", "RDMA")])).len(), 1);
        quiet(&RULE, &job("p5.48xlarge", 2, &[("OFI_NCCL_PROTOCOL", "RDMA")]));
    }

    #[test]
    fn the_release_decides() {
        let text = pod(&[("FI_EFA_MTU_SIZE", "8900")]);
        let given = |minor| Given { libfabric: Some(Version::new(1, minor, 0)), ..Given::default() };
        let found = findings_given(&RULE, &text, &given(22));
        assert_eq!((found.len(), found[0].severity), (1, None));
        assert!(findings_given(&RULE, &text, &given(18)).is_empty());
        assert_eq!(findings(&RULE, &text)[0].severity, Some(Severity::Warning));
    }
}
