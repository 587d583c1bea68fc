//! Kubernetes manifests, as far as rules about logs need them.

use crate::facts::Assignment;
use crate::source::{Distinct, Quote};
use crate::submission::{ResourceKind, Vendor};

/// What a manifest says about a job's interconnect. `crate::submission` reads manifests in full.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifest {
    /// `kind: Pod`
    pub kind: Option<Box<str>>,
    /// Environment variables with a literal value.
    pub environment: Distinct<Assignment>,
    /// `nvidia.com/gpu: "4"`
    pub gpus: Distinct<u32>,
    /// `vpc.amazonaws.com/efa: "4"`
    pub efa: Distinct<u32>,
    /// `node.kubernetes.io/instance-type: p4d.24xlarge`
    pub instance: Distinct<Box<str>>,
    /// The name of the last variable, waiting for its value.
    name: Option<Box<str>>,
}

pub(super) fn take(all: &mut Vec<Manifest>, open: &mut bool, quote: &Quote) {
    let line = quote.text.trim();
    if !*open || (line == "---" && all.last().is_some_and(|it| it.kind.is_some())) {
        all.push(Manifest::default());
        *open = true;
    }
    let Some(manifest) = all.last_mut() else { return };
    let line = line.strip_prefix("- ").unwrap_or(line);
    let Some((key, value)) = line.split_once(':') else { return };
    let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    match key.trim().trim_matches(['"', '\'']) {
        "kind" if manifest.kind.is_none() => manifest.kind = Some(value.into()),
        "name" => manifest.name = Some(value.into()),
        "value" => {
            if let Some(name) = manifest.name.take() {
                manifest.environment.note(Assignment { name, value: value.into() }, || quote.clone());
            }
        }
        "node.kubernetes.io/instance-type" | "beta.kubernetes.io/instance-type" if !value.is_empty() => {
            manifest.instance.note(value.into(), || quote.clone());
        }
        name if name.contains('/') => {
            let list = match ResourceKind::of(name) {
                ResourceKind::Gpu { vendor: Vendor::Nvidia, .. } => &mut manifest.gpus,
                ResourceKind::Efa { .. } => &mut manifest.efa,
                _ => return,
            };
            // A quantity of 0 requests nothing.
            if let Some(n) = value.parse().ok().filter(|it| *it > 0) {
                list.note(n, || quote.clone());
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::take;
    use crate::facts::Assignment;
    use crate::source::{Quote, Spot};

    #[test]
    fn a_quantity_of_zero_requests_nothing() {
        let (mut all, mut open) = (Vec::new(), false);
        for line in ["nvidia.com/gpu: 0", "vpc.amazonaws.com/efa: \"0\""] {
            take(&mut all, &mut open, &Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        assert!(all[0].gpus.is_empty() && all[0].efa.is_empty());
    }

    #[test]
    fn reads_what_rules_need() {
        let text = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n    env:\n    - name: NCCL_P2P_LEVEL\n      value: NVL\n\
                    \x20   resources:\n      limits:\n        nvidia.com/gpu: \"4\"\n        vpc.amazonaws.com/efa: 4 # all\n\
                    \x20 nodeSelector:\n    node.kubernetes.io/instance-type: p4d.24xlarge\n";
        let (mut all, mut open) = (Vec::new(), false);
        for line in text.lines() {
            take(&mut all, &mut open, &Quote::new(Spot { region: 0, line: 0 }, line.as_bytes()));
        }
        let it = &all[0];
        assert_eq!(it.kind.as_deref(), Some("Pod"));
        assert_eq!(
            it.environment.value(),
            Some(&Assignment { name: "NCCL_P2P_LEVEL".into(), value: "NVL".into() })
        );
        assert_eq!((it.gpus.value(), it.efa.value()), (Some(&4), Some(&4)));
        assert_eq!(it.instance.value().map(|it| &**it), Some("p4d.24xlarge"));
    }
}
