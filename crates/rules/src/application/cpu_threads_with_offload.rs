//! The optimizer runs on the CPU, perhaps with one thread.

use evidence::Source;
use evidence::signals::application::CPU_OPTIMIZER;
use evidence::signals::launch::ONE_THREAD;

use crate::training::Priced;
use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "cpu-threads-with-offload",
    title: "the CPU optimizer may have only one thread per rank",
    severity: Severity::Info,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "With ZeRO offload the CPU updates the weights, with as many threads as OMP_NUM_THREADS allows. torchrun sets it to 1 when it is \
          unset and there are several processes on a node, and the update then takes many times longer while GPUs and network wait.",
    fix: "Set OMP_NUM_THREADS to the node's physical cores divided by its ranks, in the environment of torchrun. To see what a rank has: \
          `tr '\\0' '\\n' < /proc/PID/environ | grep OMP` or `python -c 'import torch; print(torch.get_num_threads())'` in it.",
    references: &["PyTorch torch/distributed/run.py", "https://www.deepspeed.ai/tutorials/zero-offload/"],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let found = log.find_signals(&[&CPU_OPTIMIZER], Source::JobOutput)?;
    let Some(offload) = found.first() else { return Ok(Vec::new()) };
    let reported = log.case.sightings_of(&ONE_THREAD).next();
    if let Some(reported) = reported.filter(|it| it.get("n") == "1") {
        let message = "the optimizer runs on the CPU and torchrun gave each process one thread";
        let finding = Finding::new(Confidence::Likely, message).seen(&reported.quote).seen(&offload.quote);
        return Ok(vec![finding.priced(log.priced().and_then(Priced::one_thread))]);
    }
    let several = log.job.size.reported_layout().is_some_and(|it| it.ranks_per_node > 1);
    if log.job.settings.named("OMP_NUM_THREADS").next().is_some() || reported.is_some() || !several {
        return Ok(Vec::new());
    }
    let message =
        "the optimizer runs on the CPU; the log does not show whether it has more than one thread per rank";
    Ok(vec![Finding::new(Confidence::Possible, message).seen(&offload.quote)])
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    const OFFLOAD: &str =
        "Detected ZeRO Offload and non-DeepSpeed optimizers: This combination should work as long as\n";
    const RANK: &str =
        "n:1:1 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0 MNNVL 0\n";

    #[test]
    fn torchrun_says_so() {
        let text = format!(
            "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid\n{OFFLOAD}"
        );
        assert_eq!(findings(&RULE, &text)[0].confidence, Confidence::Likely);
    }

    #[test]
    fn several_ranks_of_a_node_may() {
        assert_eq!(findings(&RULE, &format!("{RANK}{OFFLOAD}"))[0].confidence, Confidence::Possible);
        quiet(&RULE, &format!("{RANK}{OFFLOAD}export OMP_NUM_THREADS=12\n"));
        quiet(&RULE, OFFLOAD);
        quiet(
            &RULE,
            "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid\n",
        );
    }
}
