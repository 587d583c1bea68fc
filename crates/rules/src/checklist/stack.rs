//! What is installed: NCCL, the driver, the plugin, its provider and its tuner.

use evidence::Source;
use evidence::nccl::{PluginEvent, PluginRole};

use super::{ChecklistItem, List, lacks, note, ok};
use crate::summary::driver;

impl List<'_> {
    pub(super) fn nccl(&self) -> ChecklistItem {
        let (values, said) = self.values(|it| it.facts.version.first().map(|it| (&*it.value, &it.quote)));
        match values.first_key_value() {
            Some((version, quote)) if values.len() == 1 && said == 1 => {
                ok("nccl", version.to_string(), Some(quote))
            }
            Some((version, quote)) if values.len() == 1 => {
                ok("nccl", format!("{version}, the same in {}", self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().copied().collect();
                note("nccl", format!("different releases: {}", list.join(", ")), Some(quote))
            }
            None => match &self.log.job.releases.nccl {
                Some(nccl) => ok("nccl", nccl.value.to_string(), nccl.quote()),
                None => lacks("nccl", Source::NcclLog),
            },
        }
    }

    pub(super) fn driver(&self) -> ChecklistItem {
        let (values, said) = self.values(|it| it.facts.cuda_driver.first().map(|it| (it.value, &it.quote)));
        match values.first_key_value() {
            Some((version, quote)) if values.len() == 1 => {
                ok("driver", format!("CUDA {} in {}", driver(*version), self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<String> = values.keys().map(|it| driver(*it)).collect();
                note("driver", format!("different CUDA levels: {}", list.join(", ")), Some(quote))
            }
            None => lacks("driver", Source::NcclLog),
        }
    }

    pub(super) fn plugin(&self) -> ChecklistItem {
        let (values, said) = self.values(|it| {
            let seen = it.facts.plugin.release.first()?;
            Some((format!("{} {}", seen.value.plugin.name, seen.value.version), &seen.quote))
        });
        if let Some((release, quote)) = values.first_key_value() {
            let libfabric =
                self.summary.libfabric.as_ref().map(|it| format!(", libfabric {it}")).unwrap_or_default();
            return ok(
                "plugin",
                format!("{release}{libfabric}, loaded by {}", self.everyone(said)),
                Some(quote),
            );
        }
        let events = self.log.case.processes.iter().flat_map(|it| it.facts.plugins.iter());
        for seen in events {
            match &seen.value {
                PluginEvent::Network { name } => {
                    return ok("plugin", format!("{name} loaded"), Some(&seen.quote));
                }
                PluginEvent::NotFound { role: PluginRole::Net, .. } => {
                    return note(
                        "plugin",
                        "none loaded: NCCL uses its own InfiniBand or socket transport",
                        Some(&seen.quote),
                    );
                }
                PluginEvent::Internal => {
                    return note(
                        "plugin",
                        "none: NCCL uses its own InfiniBand or socket transport",
                        Some(&seen.quote),
                    );
                }
                _ => {}
            }
        }
        lacks("plugin", Source::NcclLog)
    }

    pub(super) fn provider(&self) -> ChecklistItem {
        let (values, said) = self.values(|it| {
            let seen = it.facts.plugin.provider.first()?;
            let fabric = seen.value.fabric.as_deref().map(|it| format!(", fabric {it}")).unwrap_or_default();
            let nics = seen
                .value
                .nics
                .map(|it| format!(", {it} NIC{} found", if it == 1 { "" } else { "s" }))
                .unwrap_or_default();
            Some((format!("{}{fabric}{nics}", seen.value.name), &seen.quote))
        });
        match values.first_key_value() {
            Some((text, quote)) if values.len() == 1 => {
                ok("provider", format!("{text} ({})", self.everyone(said)), Some(quote))
            }
            Some((_, quote)) => {
                let list: Vec<&str> = values.keys().map(String::as_str).collect();
                note("provider", format!("processes differ: {}", list.join("; ")), Some(quote))
            }
            None => {
                let hcas = self
                    .log
                    .case
                    .processes
                    .iter()
                    .find_map(|it| it.facts.hcas.iter().find(|it| !it.value.is_empty()));
                match hcas {
                    Some(seen) => {
                        let names: Vec<String> =
                            seen.value.iter().map(|it| format!("{}/{}", it.name, it.layer)).collect();
                        ok(
                            "provider",
                            format!("{} adapters: {}", names.len(), names.join(" ")),
                            Some(&seen.quote),
                        )
                    }
                    None => match self.log.case.processes.iter().find_map(|it| it.facts.no_ib_device.first())
                    {
                        Some(seen) => {
                            note("provider", "NCCL found no InfiniBand or RoCE adapter", Some(&seen.quote))
                        }
                        None => lacks("provider", Source::NcclLog),
                    },
                }
            }
        }
    }

    pub(super) fn tuner(&self) -> ChecklistItem {
        if let Some(seen) = self.log.case.processes.iter().find_map(|it| it.facts.plugin.tuner.first()) {
            let text = if seen.value.contains("not available") {
                "NCCL's own tuner: the plugin has no tuning tables for this machine, which is normal"
            } else {
                "NCCL uses the plugin's tuning tables"
            };
            return ok("tuner", text, Some(&seen.quote));
        }
        match self.log.case.processes.iter().find_map(|it| it.facts.tuner.first()) {
            Some(seen) => ok("tuner", seen.value.to_string(), Some(&seen.quote)),
            None if self.log.case.processes.is_empty() => lacks("tuner", Source::NcclLog),
            None if !self.set_up() => lacks("tuner", Source::NcclLog),
            None => ok("tuner", "NCCL's own tuner: no tuner plugin is loaded", None),
        }
    }
}
