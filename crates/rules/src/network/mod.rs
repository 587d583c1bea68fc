//! Which network NCCL uses between nodes, whoever made it.

pub mod mnnvl_off;
pub mod net_plugin_unusable;
pub mod network_not_available;
pub mod rccl_setting_missing;
pub mod socket_fallback;

use evidence::Quote;
use fabric::GpuClass;
use job::{Setter, Variable};

use crate::{Log, Rule};

/// The rules of this family.
pub static RULES: &[&Rule] = &[
    &mnnvl_off::RULE,
    &net_plugin_unusable::RULE,
    &network_not_available::RULE,
    &rccl_setting_missing::RULE,
    &socket_fallback::RULE,
];

/// What the GPUs of a job are built for, with their name and the line that shows it.
pub(crate) struct Gpus<'a> {
    pub(crate) class: GpuClass,
    /// `H100-SXM5-80GB`, or what is known instead of a name.
    pub(crate) name: String,
    pub(crate) quote: Option<&'a Quote>,
}

/// The GPUs, by the machine, by nccl-tests, by NVLS or by the matrix. `None`: unknown.
pub(crate) fn gpus(log: &Log) -> Option<Gpus<'_>> {
    if let Some(it) = &log.job.gpu {
        return Some(Gpus { class: it.value.class(), name: it.value.name.clone(), quote: it.quote() });
    }
    let machine = log.job.machines.first();
    let of_machine = machine.and_then(|it| {
        let model = fabric::gpu::find(it.value.gpus.first()?.model.as_deref()?)?;
        Some(Gpus { class: model.class(), name: model.name.clone(), quote: it.quote() })
    });
    let of_test = || {
        let (test, device) = log.case.tests.iter().find_map(|it| Some((it, it.devices.first()?)))?;
        let class = fabric::gpu::class_in_text(&device.name)?;
        Some(Gpus { class, name: device.name.to_string(), quote: Some(&test.quote) })
    };
    let of_log = || {
        let nvls = log.case.processes.iter().find_map(|it| it.facts.nvls.iter().find(|it| it.value))?;
        Some(joined_by_nvswitch(&nvls.quote))
    };
    let of_matrix = || {
        // Bridges join two or four GPUs; more are joined by a switch or the mesh of a DGX-1.
        let joined = |it: &&evidence::plain::TopologyMatrix| {
            it.n_gpus() > 4 && it.gpu_paths().next().is_some() && it.gpu_paths().all(|path| path.is_nvlink())
        };
        Some(joined_by_nvswitch(&log.case.matrices.iter().find(joined)?.quote))
    };
    of_machine.or_else(of_test).or_else(of_log).or_else(of_matrix)
}

fn joined_by_nvswitch(quote: &Quote) -> Gpus<'_> {
    Gpus { class: GpuClass::DataCentre, name: "GPUs joined by an NVSwitch".to_owned(), quote: Some(quote) }
}

/// The names of the RDMA adapters that a matrix beside the log lists, and where it begins.
pub(crate) fn adapters_in_matrix(log: &Log) -> Option<(Vec<&str>, &Quote)> {
    const RDMA: [&str; 9] = ["mlx5_", "mlx4_", "rdmap", "efa_", "ibp", "ibs", "roce", "bnxt_re", "irdma"];
    let rdma = |it: &&str| RDMA.iter().any(|prefix| it.starts_with(prefix));
    log.case.matrices.iter().find_map(|it| {
        let legend = it.legend.iter().map(|it| &*it.device);
        let names: Vec<&str> = legend.chain(it.columns.iter().map(|it| &**it)).filter(rdma).collect();
        (!names.is_empty()).then_some((names, &it.quote))
    })
}

/// The adapters that `NCCL_IB_HCA` selects of these: a prefix, an exact name after `=`, or all but some after `^`.
pub(crate) fn selected_by_hca<'a>(setting: &str, adapters: &[&'a str]) -> Vec<&'a str> {
    let (exclude, rest) = setting.strip_prefix('^').map_or((false, setting), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let wanted = |name: &str| {
        rest.split(',')
            .filter_map(|it| it.split(':').next())
            .filter(|it| !it.is_empty())
            .any(|it| if exact { name == it } else { name.starts_with(it) })
    };
    adapters.iter().copied().filter(|name| wanted(name) != exclude).collect()
}

/// A variable as a sentence names it: `NCCL_IB_DISABLE=1, set in the environment of the job`.
pub(crate) fn named(variable: &Variable) -> String {
    let who = match variable.setter {
        Setter::Job => "set in the environment of the job".to_owned(),
        Setter::Plugin => "set by the network plugin".to_owned(),
        Setter::Submission => "set in the manifest or script".to_owned(),
        Setter::Note => "in the settings beside the log".to_owned(),
        Setter::Flag => format!("set by {}", variable.source),
    };
    format!("{}={}, {who}", variable.name, variable.text().trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::selected_by_hca;

    #[test]
    fn adapters_that_nccl_would_take() {
        let all = ["mlx5_0", "mlx5_1", "mlx5_10"];
        for (setting, want) in [
            ("mlx5_1", &["mlx5_1", "mlx5_10"][..]),
            ("=mlx5_1", &["mlx5_1"]),
            ("=mlx5_1:1", &["mlx5_1"]),
            ("^mlx5_0", &["mlx5_1", "mlx5_10"]),
            ("^=mlx5_1", &["mlx5_0", "mlx5_10"]),
            ("ibp", &[]),
        ] {
            assert_eq!(selected_by_hca(setting, &all), want, "{setting}");
        }
    }
}
