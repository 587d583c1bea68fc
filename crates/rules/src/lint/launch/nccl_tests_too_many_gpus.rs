//! nccl-tests needs more GPUs than there are.

use evidence::submission::Launcher;
use job::submitted::{Submitted, SubmittedLaunch};

use crate::{Check, Checked, Confidence, Finding, Role, Rule};

pub(super) static RULE: Rule = Rule {
    id: "nccl-tests-too-many-gpus",
    title: "nccl-tests needs more GPUs than there are",
    severity: crate::Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "`-g` of nccl-tests is GPUs per thread, not GPUs per node: a test uses processes x threads (-t) x GPUs (-g). If that is more \
          than the node has, it fails before it measures anything.",
    fix: "Start one process per GPU: `-np NODES*GPUS -N GPUS ... -g 1`.",
    references: &[
        "https://github.com/NVIDIA/nccl-tests#readme",
        "https://github.com/awslabs/awsome-distributed-ai/blob/main/micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    Ok(submitted.launches().filter_map(|it| one(&it)).collect())
}

fn one(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let tests = command.launch.nccl_tests()?;
    let inner = command.with(&tests);
    let (gpus, threads) = (tests.gpus_per_thread(), tests.threads());
    let count = |option: Option<_>| if option.is_some() { Some(inner.count(option)?.value) } else { Some(1) };
    let each = count(gpus)?.saturating_mul(count(threads)?);
    let place = gpus.or(threads).map_or_else(|| inner.span(), |it| inner.word_span(it.word));
    // `mpirun bash -c "all_reduce_perf ..."` also runs under mpirun.
    let starter =
        if command.launch.launcher == Launcher::NcclTests { command.outer() } else { Some(*command) };
    let direct = starter.is_none();
    let per_node = starter.and_then(|it| it.processes_per_node());
    let ranks = starter.and_then(|it| it.processes());

    // The GPUs of one node: as requested, by instance type, or at most what any type has.
    let asked = command.gpus_per_node();
    let machines = command.pod.map(|it| &it.machines).or_else(|| command.job.map(|it| &it.machines));
    let of_type = machines.and_then(|it| it.known.iter().map(|it| u64::from(it.gpus)).max());
    let most = fabric::catalogue::all().iter().map(|it| u64::from(it.gpus)).max()?;
    let there = asked.as_ref().map(|it| it.value).or(of_type);
    let limit = there.unwrap_or(most);

    let on_a_node = per_node.as_ref().map_or(1, |it| it.value).saturating_mul(each);
    let all = ranks.as_ref().map(|it| it.value.saturating_mul(each));
    let capacity = there.zip(command.job_nodes()).map(|it| it.0.saturating_mul(it.1.value));
    let too_many = all.zip(capacity).filter(|(all, capacity)| all > capacity);
    if on_a_node <= limit && too_many.is_none() {
        return None;
    }
    let total = all.map(|all| {
        format!("; -np {} x {each} is {all} GPUs in total", ranks.as_ref().map_or(0, |it| it.value))
    });
    let message = match (&per_node, too_many) {
        (Some(processes), _) if on_a_node > limit => format!(
            "{} processes per node with {each} GPUs each need {on_a_node} GPUs per node{}{}",
            processes.value,
            match there {
                Some(there) => format!(", which has {there}"),
                None => format!(", more than the {limit} that any known instance type has"),
            },
            total.unwrap_or_default()
        ),
        (_, Some((all, capacity))) => format!(
            "{} processes with {each} GPUs each need {all} GPUs, but the job has {capacity}",
            ranks.as_ref().map_or(1, |it| it.value)
        ),
        _ => format!("one process needs {each} GPUs, but there are {limit}"),
    };
    let mut finding = Finding::at(command.file, &place, message).label("GPUs per thread, not per node");
    for (count, text) in
        [(&per_node, "processes per node"), (&ranks, "processes in total"), (&asked, "GPUs per node")]
    {
        if let Some(count) = count {
            finding = finding.also_at(&count.span, format!("{} {text}", count.value));
        }
    }
    let nodes = command.job_nodes().map(|it| it.value);
    let fix = match (direct, there, nodes) {
        (true, ..) => format!("Write `-g {limit}`."),
        (_, Some(there), Some(nodes)) => {
            format!("Write `-np {} -N {there}` and `-g 1`.", nodes.saturating_mul(there))
        }
        (_, Some(there), None) => format!("Write `-np` nodes x {there}, `-N {there}` and `-g 1`."),
        _ => "Write `-np` nodes x GPUs per node, `-N` GPUs per node, and `-g 1`.".to_owned(),
    };
    finding = finding.fix(fix);
    Some(if there.is_some() { finding } else { finding.confidence(Confidence::Likely) })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Confidence;
    use crate::lint::Given;
    use crate::lint::testing::{findings, findings_given, quiet};

    fn job(command: &str) -> String {
        format!(
            "kind: MPIJob\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n    Launcher:\n      template:\n        spec:\n          containers:\n          - command: [sh, -c, \"{command}\"]\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }

    #[test]
    fn the_commands_of_the_notes_ask_for_too_much() {
        let found = findings(
            &RULE,
            "#!/bin/sh\nmpirun -np 16 \\\n  -N 2 \\\n  --hostfile hostfile \\\n  ./all_reduce_perf -b 1G -e 1G -g 8\n",
        );
        assert_eq!(
            found[0].message,
            "2 processes per node with 8 GPUs each need 16 GPUs per node, more than the 8 that any known instance type has; -np 16 x 8 is 128 GPUs in total"
        );
        assert_eq!((found.len(), found[0].confidence), (1, Confidence::Likely));
        let found =
            findings(&RULE, "#!/bin/sh\nmpirun -np 640 -N 80 ./all_reduce_perf -b 8G -e 8G -f 2 -g 8\n");
        assert!(found[0].message.ends_with("-np 640 x 8 is 5120 GPUs in total"));
    }

    #[test]
    fn a_job_says_how_many_there_are() {
        let found = findings(&RULE, &job("mpirun -np 16 -N 2 /opt/all_reduce_perf -b 8 -e 1G -g 8"));
        assert!(found[0].message.contains("per node, which has 8"), "{}", found[0].message);
        assert_eq!(found[0].fix.as_deref(), Some("Write `-np 16 -N 8` and `-g 1`."));
        let found = findings(&RULE, &job("mpirun -np 16 /opt/all_reduce_perf -g 8"));
        assert_eq!(found[0].message, "16 processes with 8 GPUs each need 128 GPUs, but the job has 16");
        let given = Given { instance: fabric::catalogue::find("g6e.12xlarge"), ..Given::default() };
        let found = findings_given(&RULE, "#!/bin/sh\n./all_reduce_perf -g 8\n", &given);
        assert_eq!(found[0].message, "one process needs 8 GPUs, but there are 4");
    }

    #[test]
    fn a_shell_between_changes_nothing() {
        let text = "#!/bin/sh\nmpirun -np 16 -N 2 bash -c 'all_reduce_perf -b 8 -e 1G -g 8'\n";
        assert!(findings(&RULE, text)[0].message.contains("16 GPUs per node"));
        quiet(&RULE, &text.replace("-g 8", "-g 1"));
    }

    #[test]
    fn right_ones_are_quiet() {
        quiet(
            &RULE,
            &job("mpirun -np 16 -N 8 --bind-to none /opt/all_reduce_perf -b 8 -e 16G -f 2 -g 1 -c 1 -n 100"),
        );
        quiet(&RULE, &job("mpirun -np 2 -N 1 /opt/all_reduce_perf -b 8 -e 16G -f 2 -g 8"));
        quiet(
            &RULE,
            "#!/bin/sh\n./all_reduce_perf -b 8 -e 8G -f 2 -g 8\nmpirun -np $N -N 8 all_reduce_perf -g 1\nmpirun -np 8 all_reduce_perf -g 8\n",
        );
        quiet(&RULE, "#!/bin/sh\nmpirun -np 640 -N 80 ./simulation -g 8\n");
    }
}
