//! What is known about runs, side by side.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Side;

/// Something that runs may have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// `between nodes`, `NCCL`, `NCCL_ALGO`.
    pub name: String,
    /// What each run has; none where its files do not say it.
    pub values: Vec<Option<String>>,
    /// Whether two runs are known to differ.
    pub differs: bool,
    /// Whether it is an environment variable.
    pub variable: bool,
}

/// What a run has.
type Has<'a> = &'a dyn Fn(&Side<'_>) -> Option<String>;

/// Keys of a job file that say what runs, and their names.
const KEYS: [(&str, &str); 17] = [
    ("model.name", "model"),
    ("cluster.instance", "machine"),
    ("cluster.gpu", "GPU"),
    ("cluster.nodes", "nodes"),
    ("cluster.pods", "pods per node x GPUs"),
    ("run.framework", "framework"),
    ("run.zero", "ZeRO"),
    ("run.tp", "tp"),
    ("run.pp", "pp"),
    ("run.cp", "cp"),
    ("run.ep", "ep"),
    ("run.seq", "tokens of a sequence"),
    ("run.micro_batch", "micro-batch"),
    ("run.global_batch", "batch"),
    ("run.precision", "precision"),
    ("run.recompute", "recomputation"),
    ("run.steps", "steps"),
];

pub(super) fn of(sides: &[Side<'_>]) -> Vec<Fact> {
    let each = |name: &str, value: Has<'_>| {
        let one = |it: &Side<'_>| value(it).or_else(|| it.run.recorded.fact(name));
        Fact::new(name, sides.iter().map(one).collect())
    };
    let mut facts = vec![each("ended", &|it| {
        let state = it.run.log.job.outcome.state.name();
        Some(state.to_owned()).filter(|_| !["unknown", "running"].contains(&state))
    })];
    facts.extend(KEYS.map(|(key, name)| each(name, &|it| it.value(key).as_ref().map(text))));
    facts.push(each("tokens of a step", &|it| {
        let printed = it.run.log.case.training.argument("tokens_per_iteration")?;
        Some(printed.value.value.to_string())
    }));
    facts.push(each("ranks", &|it| it.run.log.job.size.ranks.as_ref().map(|it| it.value.to_string())));
    let inside = |it: &Side<'_>| {
        let path = it.logged.paths.host_memory.as_ref()?;
        Some(if path.value { "SHM, through host memory" } else { "P2P" }.to_owned())
    };
    facts.push(each("inside a node", &inside));
    facts.push(each("between nodes", &|it| {
        Some(it.logged.paths.network.as_ref()?.value.network().to_owned())
    }));
    let gpudirect = |it: &Side<'_>| {
        // TCP never has it: the network says so.
        let network = it.logged.paths.network.as_ref()?.value;
        let path =
            it.logged.paths.gpudirect.as_ref().filter(|_| network != fabric::machine::NicKind::Ethernet)?;
        Some(if path.value { "yes" } else { "no" }.to_owned())
    };
    facts.push(each("GPUDirect", &gpudirect));
    let releases: [(&str, Has<'_>); 5] = [
        ("NCCL", &|it| it.run.log.job.releases.nccl.as_ref().map(|it| it.value.to_string())),
        ("RCCL", &|it| it.run.log.job.releases.rccl.as_ref().map(|it| it.value.to_string())),
        ("network plugin", &|it| {
            let release = &it.run.log.job.releases.plugin.as_ref()?.value;
            Some(format!("{} {}", release.plugin.name, release.version))
        }),
        ("libfabric", &|it| it.run.log.job.releases.libfabric.as_ref().map(|it| it.value.to_string())),
        ("CUDA of the driver", &|it| {
            it.run.log.job.releases.cuda_driver.as_ref().map(|it| it.value.to_string())
        }),
    ];
    facts.extend(releases.map(|(name, value)| each(name, value)));
    facts.retain(|it| it.values.iter().any(Option::is_some));
    facts.extend(variables(sides));
    // What differs first, in the order above.
    facts.sort_by_key(|it| !it.differs);
    facts
}

/// Variables that name a process or its log, and change nothing else.
const NAMES: [&str; 3] = ["NCCL_COMM_ID", "NCCL_DEBUG_FILE", "NCCL_HOSTID"];

/// Variables whose values differ between runs of which NCCL printed any. One that only some runs set is not set in the others.
fn variables(sides: &[Side<'_>]) -> Vec<Fact> {
    let mut all: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for (name, value) in set(side).filter(|it| !NAMES.contains(&it.0)) {
            let values = all.entry(name.to_owned()).or_insert_with(|| vec![None; sides.len()]);
            let text = value.unwrap_or("(filled in later)");
            match values.get_mut(at) {
                Some(slot @ None) => *slot = Some(text.to_owned()),
                Some(Some(before)) if before != text && !before.ends_with(", differs by rank") => {
                    before.push_str(", differs by rank");
                }
                _ => {}
            }
        }
    }
    let printed: Vec<bool> = sides.iter().map(|it| set(it).next().is_some()).collect();
    let facts = all.into_iter().map(|(name, mut values)| {
        for (value, printed) in values.iter_mut().zip(&printed) {
            if value.is_none() && *printed {
                *value = Some("not set".to_owned());
            }
        }
        Fact { variable: true, ..Fact::new(&name, values) }
    });
    facts.filter(|it| it.differs).collect()
}

/// The variables of a run, each with its value where that is known.
fn set<'a>(side: &'a Side<'_>) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
    let logged = side.run.log.job.settings.variables.iter().map(|it| (&*it.name, it.value.as_deref()));
    logged.chain(side.run.recorded.variables.iter().map(|(name, value)| (&**name, Some(&**value))))
}

impl Fact {
    fn new(name: &str, values: Vec<Option<String>>) -> Self {
        let mut known = values.iter().flatten();
        let differs = known.next().is_some_and(|first| known.any(|it| it != first));
        Self { name: name.to_owned(), values, differs, variable: false }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
