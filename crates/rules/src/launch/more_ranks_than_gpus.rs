//! A host gets more ranks, or more GPUs for each rank, than it has GPUs.

use std::collections::BTreeSet;

use evidence::signals::launch::{INVALID_DEVICE, TOO_FEW_GPUS, TOO_FEW_SLOTS};
use evidence::{Member, Missing, Source};

use job::{PastedLaunch, Variable};

use crate::{Check, Checked, Confidence, Finding, Log, Role, Rule, Severity};

/// See the module documentation.
pub static RULE: Rule = Rule {
    id: "more-ranks-than-gpus",
    title: "more GPUs are requested on a host than it has",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[Source::JobOutput],
    why: "Each rank uses the GPU of its local number. A rank whose number is not below the count of visible GPUs fails at once, and the \
          launcher ends the others.",
    fix: "The number of ranks on a node times the GPUs of each rank must not exceed the GPUs of the node. nccl-tests: `-N 8 -g 1`, or one \
          rank per node with `-g 8`, never both; with `-H a:8,b:8` and a small `-np` all ranks run on the first host, so use `-N`. \
          PyTorch: `--nproc-per-node` no larger than what `nvidia-smi -L` lists inside the container; check CUDA_VISIBLE_DEVICES too.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests/issues/165",
        "https://github.com/NVIDIA/nccl-tests/issues/263",
    ],
    checks: &[Check::Log(check)],
};

fn check(log: &Log) -> Checked {
    let counted: Vec<_> = log.case.sightings_of(&TOO_FEW_GPUS).collect();
    let refused: Vec<_> = log.case.sightings_of(&INVALID_DEVICE).collect();
    let command = log.job.launches.iter().find(|it| it.ranks().or(it.ranks_per_node()).is_some());
    if let Some(first) = counted.first() {
        let (asked, found) = (first.get("asked"), first.get("found"));
        let message = if asked.is_empty() {
            "more GPUs are requested than there are".to_owned()
        } else {
            format!("{asked} GPUs are requested on a host where a process sees {found}")
        };
        let finding = Finding::new(Confidence::Certain, message).by(log, &counted);
        // A process that sees one GPU of many may see only its own.
        return Ok(vec![if found == "1" { finding.or("gpu-isolation-per-process") } else { finding }]);
    }
    if !refused.is_empty() {
        let hosts: BTreeSet<&str> = refused
            .iter()
            .filter_map(|it| it.quote.text.split_once(": Test CUDA failure"))
            .map(|it| it.0.trim())
            .collect();
        let at = if hosts.is_empty() {
            String::new()
        } else {
            format!(" on {}", hosts.iter().copied().collect::<Vec<_>>().join(", "))
        };
        let asked = command.map(asked).unwrap_or_default();
        let message = format!("a rank requested a GPU number that it does not see{at}{asked}");
        let mut finding = Finding::new(Confidence::Likely, message).by(log, &refused);
        if let Some(command) = command {
            finding = finding.seen(&command.quote);
        }
        return Ok(vec![hosts.iter().fold(finding, Finding::about_host)]);
    }
    if let Some(first) = log.case.sightings_of(&TOO_FEW_SLOTS).next() {
        let message = format!(
            "mpirun should start {} processes, but its hosts have fewer slots",
            first.get("n").trim_end_matches(':')
        );
        let finding = Finding::new(Confidence::Likely, message).seen(&first.quote);
        let finding = finding.seen_all(command.map(|it| &it.quote));
        return Ok(vec![finding.fix(
            "Give each host as many slots as it has GPUs (`-H a:8,b:8`, `slots=8` in the hostfile) and start no more processes (`-np`) than there are slots.",
        )]);
    }
    if let Some((command, visible)) = command.zip(visible(log)) {
        let each = command.gpus_each().unwrap_or(1);
        let gpus_visible = visible.text().split(',').filter(|it| !it.trim().is_empty()).count();
        let asked = command.ranks_per_node().map(|it| it.saturating_mul(each));
        if let Some(asked) = asked.filter(|it| *it as usize > gpus_visible && gpus_visible > 1) {
            let message = format!(
                "the command requests {asked} GPUs on each node, and CUDA_VISIBLE_DEVICES={} shows {gpus_visible}",
                visible.text()
            );
            let finding = Finding::new(Confidence::Likely, message).seen(&command.quote);
            let finding = finding.seen_all(visible.quote()).about_variable("CUDA_VISIBLE_DEVICES");
            return Ok(vec![finding]);
        }
    }
    if let (Some(instance), Some(command)) = (log.job.instance(), command) {
        let each = command.gpus_each().unwrap_or(1);
        if let Some(here) = command.ranks_per_node().filter(|it| it.saturating_mul(each) > instance.gpus) {
            let asked = here.saturating_mul(each);
            let message = format!(
                "the command requests {asked} GPUs on each {}, which has {}",
                instance.name, instance.gpus
            );
            return Ok(vec![Finding::new(Confidence::Likely, message).seen(&command.quote)]);
        }
    }
    if log.has(Source::JobOutput) { Ok(Vec::new()) } else { Err(Missing(Source::JobOutput)) }
}

/// The list of GPUs that all ranks see, where no rank finished a setup with others. Ranks with one GPU each have lists of
/// their own.
fn visible(log: &Log) -> Option<&Variable> {
    let mut all = log.job.settings.named("CUDA_VISIBLE_DEVICES").filter(|it| it.value.is_some());
    let first = all.next()?;
    let mut members = log.case.communicators.iter().flat_map(|it| it.members.values());
    (all.all(|it| it.value == first.value) && !members.any(Member::is_complete)).then_some(first)
}

/// What the command requests, as the end of a sentence.
fn asked(command: &PastedLaunch) -> String {
    let each = command.gpus_each();
    match (command.ranks_per_node(), command.ranks(), each) {
        (Some(n), _, Some(g)) => format!("; the command starts {n} ranks per node with {} each", gpus(g)),
        (Some(n), _, None) => format!("; the command starts {n} ranks per node"),
        (None, Some(n), Some(g)) => format!("; the command starts {n} ranks with {} each", gpus(g)),
        (None, Some(n), None) => format!("; the command starts {n} ranks"),
        (None, None, Some(g)) => format!("; the command gives each rank {}", gpus(g)),
        (None, None, None) => String::new(),
    }
}

fn gpus(n: u32) -> String {
    if n == 1 { "1 GPU".to_owned() } else { format!("{n} GPUs") }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::testing::{findings, quiet};

    #[test]
    fn nccl_tests_old_and_new() {
        let old = "# Using devices\nn1: Test CUDA failure common.cu:941 'invalid device ordinal'\n .. n1 pid 8: Test failure common.cu:891\n\
                   mpirun --host n1:8,n2:8 -np 16 all_reduce_perf -b 128M -e 2G -f 2 -g 8\n";
        let want = "a rank requested a GPU number that it does not see on n1; the command starts 16 ranks with 8 GPUs each";
        assert_eq!(findings(&RULE, old)[0].message, want);
        let new = "Invalid number of GPUs: 16 requested but only 8 were found.\n";
        let it = &findings(&RULE, new)[0];
        assert_eq!((it.confidence, it.also.len()), (Confidence::Certain, 0));
        let isolated = "Invalid number of GPUs: 4 requested but only 1 were found.\n";
        assert_eq!(findings(&RULE, isolated)[0].also, ["gpu-isolation-per-process"]);
    }

    #[test]
    fn pytorch_of_every_age() {
        for text in [
            "RuntimeError: cuda runtime error (10) : invalid device ordinal at /pytorch/torch/csrc/cuda/Module.cpp:33\n",
            "RuntimeError: CUDA error: invalid device ordinal\n",
            "torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n",
        ] {
            assert_eq!(findings(&RULE, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_command_that_cannot_work_on_this_machine() {
        let text = "INSTANCE_TYPE=p5.48xlarge\nmpirun -np 16 -N 2 all_reduce_perf -g 8\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "the command requests 16 GPUs on each p5.48xlarge, which has 8"
        );
        quiet(&RULE, "INSTANCE_TYPE=p5.48xlarge\nmpirun -np 16 -N 8 all_reduce_perf -g 1\n");
    }

    #[test]
    fn a_command_for_more_gpus_than_are_visible() {
        let text = "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=8 train.py\n";
        assert_eq!(
            findings(&RULE, text)[0].message,
            "the command requests 8 GPUs on each node, and CUDA_VISIBLE_DEVICES=0,1,2,3 shows 4"
        );
        quiet(&RULE, "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=4 train.py\n");
        quiet(&RULE, "CUDA_VISIBLE_DEVICES=0\ntorchrun --nproc_per_node=8 train.py\n");
    }

    #[test]
    fn quiet_on_a_run_that_works() {
        quiet(
            &RULE,
            "# nThread 1 nGpus 8 minBytes 8\n#  Rank  0 Group  0 Pid 1 on a device  0 [0x8d] NVIDIA H100\n",
        );
    }

    #[test]
    fn fires_on_the_words_of_other_launchers() {
        for line in [
            "There are not enough slots available in the system to satisfy the 16\nslots that were requested by the application:\n",
            "MisconfigurationException: You requested gpu: [0, 1, 2, 3]\n But your machine only has: [0, 1]\n",
            "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at \"CUDAContext.cpp\":50\n",
        ] {
            assert_eq!(findings(&RULE, line).len(), 1, "{line}");
        }
    }
}
