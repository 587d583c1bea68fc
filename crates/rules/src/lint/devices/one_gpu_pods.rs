//! Pods of one job share a machine with NVLink and cannot use it.

use fabric::catalogue::{Inside, Model};
use job::submitted::{PodTemplate, Submitted, SubmittedJob};

use super::cost::{Costs, slower};
use crate::training::How;
use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "one-gpu-pods",
    title: "several pods per machine on machines with NVLink",
    severity: Severity::Warning,
    role: Role::Cause,
    needs: &[],
    why: "NCCL treats every pod as a host of its own. GPUs of one machine in different pods communicate over the network, not over NVLink.",
    fix: "Start one pod per node with all its GPUs and EFA interfaces, and one process per GPU in it (torchrun --nproc-per-node).",
    references: &[
        "NCCL src/misc/utils.cc (host hash)",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
        "https://github.com/gnosia93/training-on-eks appendix (one pod against several on p4d, p5 and g6e)",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut costs = Costs::default();
    Ok(submitted.pods().filter_map(|(job, pod)| finding(submitted, job, pod, &mut costs)).collect())
}

fn finding(
    submitted: &Submitted<'_>,
    job: &SubmittedJob<'_>,
    pod: &PodTemplate<'_>,
    costs: &mut Costs,
) -> Option<Finding> {
    let (gpus, span) = (pod.nvidia_gpus()?.count?, pod.nvidia_gpus()?.span());
    let pods = pod.count.max(job.nodes.at_least());
    if !job.nodes.is_multi() || submitted.setting_of_job(job, "NCCL_HOSTID").is_some() {
        return None;
    }
    let each = if gpus == 1 { "1 GPU".to_owned() } else { format!("{gpus} GPUs") };
    if pod.machines.known.is_empty() {
        // A request for EFA implies large machines, though some of those have one GPU. A test with two pods is not worth a finding.
        if gpus > 1 || pods < 4 || pod.efa.is_none() || pod.claims {
            return None;
        }
        let message = format!(
            "{pods} pods with {each} each: on machines with NVLink their GPUs communicate over the network instead"
        );
        return Some(
            Finding::at(job.file, &span, message).severity(Severity::Info).confidence(Confidence::Possible),
        );
    }
    // Two of them must fit on one machine. Where NVLink connects several machines, pods can use it too.
    let joined = |it: &Model| {
        let linked = matches!(it.inside, Inside::NvSwitch | Inside::NvLinkMesh);
        linked && gpus * 2 <= u64::from(it.gpus) && it.domain < 2
    };
    if !pod.machines.all(joined) {
        return None;
    }
    let instance = pod.machines.most(|it| it.gpus)?;
    let message = format!(
        "{pods} pods with {each} each on {}, whose {} GPUs are connected by NVLink: pods that share a machine do not use it",
        pod.machines.names(),
        instance.gpus
    );
    let nodes = pods.saturating_mul(gpus).div_ceil(u64::from(instance.gpus));
    let whole = pods.saturating_mul(gpus).min(u64::from(instance.gpus));
    let wants_efa = if pod.efa.is_some() && whole == u64::from(instance.gpus) {
        format!(" and `vpc.amazonaws.com/efa: {}`", instance.efa_nics())
    } else {
        String::new()
    };
    let pods_word = if nodes == 1 { "pod" } else { "pods" };
    let fix = format!(
        "Start {nodes} {pods_word} with `nvidia.com/gpu: {whole}`{wants_efa}, and {whole} processes in each (torchrun --nproc-per-node={whole})."
    );
    let confidence = if gpus == 1 { Confidence::Likely } else { Confidence::Possible };
    let mut finding = Finding::at(job.file, &span, message)
        .label(format!("{} has {}", instance.name, instance.gpus))
        .confidence(confidence)
        .fix(fix);
    if let Some(cost) = costs.in_pods(instance, pods, gpus, pod.efa.and_then(|it| it.count)) {
        finding = finding.why(format!("{} {cost}", RULE.why));
        let each = u32::try_from(gpus).ok()?.max(1);
        let here = u32::try_from(pods).unwrap_or(u32::MAX).min(instance.gpus / each);
        finding.slower = slower(instance, nodes, How::Pods { pods: here, gpus: each });
    }
    Some(match &pod.machines.span {
        Some(types) => finding.also_at(types, pod.machines.names()),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::devices::testing::{job, job_with, pod};
    use crate::lint::testing::{findings, quiet};

    #[test]
    fn fires_with_what_it_costs() {
        let found = findings(&RULE, &job(16, "p4d.24xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        assert_eq!(
            found[0].message,
            "16 pods with 1 GPU each on p4d.24xlarge, whose 8 GPUs are connected by NVLink: pods that share a machine do not use it"
        );
        let why = found[0].why.as_ref().expect("a why of its own");
        assert!(why.contains("instead of NVLink at 240.0 GB/s") && why.contains("times less"), "{why}");
        assert_eq!(
            found[0].fix.as_deref(),
            Some(
                "Start 2 pods with `nvidia.com/gpu: 8` and `vpc.amazonaws.com/efa: 4`, and 8 processes in each (torchrun --nproc-per-node=8)."
            )
        );
    }

    #[test]
    fn a_train_job_without_a_machine_is_told_with_care() {
        let text = "trainer:\n  numNodes: 16\n  numProcPerNode: 1\n  resourcesPerNode:\n    limits:\n      nvidia.com: \"1\"\n      vpc.amazonaws.com: \"1\"\n";
        let found = findings(&RULE, text);
        assert_eq!(found[0].severity, Some(Severity::Info));
        assert!(found[0].message.starts_with("16 pods with 1 GPU each"), "{}", found[0].message);
    }

    #[test]
    fn quiet_where_nothing_is_lost() {
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 8"));
        quiet(&RULE, &job(2, "p4d.24xlarge", "nvidia.com/gpu: 6"));
        quiet(&RULE, &job(16, "g6e.12xlarge", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(4, "p5.4xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &job(4, "p6e-gb200.36xlarge", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &job(1, "p4d.24xlarge", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(4, "", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(2, "", "nvidia.com/gpu: 1\nvpc.amazonaws.com/efa: 1"));
        quiet(&RULE, &pod("p4d.24xlarge", "nvidia.com/gpu: 1"));
        quiet(&RULE, &job(8, "p5.48xlarge", "nvidia.com/gpu: 1").replace("PyTorchJob", "Deployment"));
        quiet(&RULE, &job_with(8, "p5.48xlarge", "cpu: 1", ""));
    }
}
