//! Stage 7: the logs that NCCL wrote during the launches of all machines, through `plumb doctor`.

use std::path::{Path, PathBuf};

use ::validate::Step;
use ::validate::live::{Launch, Logs, Run};

use super::measure::Batch;
use crate::input;

/// Keeps what the tasks of a launch wrote to standard error: `logs/03-all.node1.log`.
pub(super) fn keep(results: &Path, launch: &Launch, batch: &Batch) -> Result<(), String> {
    let folder = results.join("logs");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for (host, text) in batch.logs().filter(|it| !it.1.is_empty()) {
        std::fs::create_dir_all(&folder).map_err(failed)?;
        std::fs::write(folder.join(name(launch, &host.to_string())), text).map_err(failed)?;
    }
    Ok(())
}

fn name(launch: &Launch, host: &str) -> String {
    // A host is letters, digits and a few marks; `:` is not for every file system.
    format!("{:02}-{}.{}.log", launch.number, launch.step.name(), host.replace([':', '%', '\\'], "_"))
}

/// The verdict on the logs of the last launch of all machines.
pub(super) fn judge(results: &Path, run: &Run) -> Option<Logs> {
    let launch = run.launches().iter().rev().find(|it| matches!(it.step, Step::All(_) | Step::Without(_)))?;
    let hosts = launch.items.iter().flat_map(|it| run.names(it));
    let files: Vec<PathBuf> =
        hosts.map(|it| results.join("logs").join(name(launch, &it))).filter(|it| it.is_file()).collect();
    if files.is_empty() {
        return None;
    }
    let log = rules::Log::new(input::read(&files).case);
    let diagnosis = rules::diagnose(&log);
    let worst = diagnosis.findings.iter().filter(|it| it.rule.severity == rules::Severity::Error).count();
    let verdict = diagnosis.verdict;
    Some(Logs {
        ranks: files.len(),
        ok: worst == 0,
        text: format!("{}: {}", verdict.level.name(), verdict.text),
    })
}
