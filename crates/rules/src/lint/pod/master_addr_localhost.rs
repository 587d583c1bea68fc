//! The rendezvous address of a multi-node job is localhost.

use evidence::submission::Owner;
use evidence::yaml::Span;
use job::submitted::{PodTemplate, Submitted};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "master-addr-localhost",
    title: "a multi-node job uses localhost as its rendezvous address",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "Every node waits for the others at its own address: each starts its own rendezvous, and the job times out, or runs as separate \
          jobs, one per node.",
    fix: "Use a name of the first pod or node that the others can resolve: for an Indexed Job `JOB-0.SERVICE` with a headless Service, \
          in Slurm `$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)`; operators such as PyTorchJob set MASTER_ADDR themselves.",
    references: &["https://docs.pytorch.org/docs/stable/elastic/run.html"],
    checks: &[Check::Submission(check)],
};

/// Variables with the address of the first rank.
const NAMES: &[&str] = &["MASTER_ADDR", "PET_MASTER_ADDR"];

/// Command-line options with the address of the first rank.
const ADDRESSES: &[&str] = &["--master-addr", "--rdzv-endpoint", "--main-process-ip"];

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    // An option of torchrun wins over the environment.
    for it in submitted.launches() {
        let Some(address) = it.launch.option(ADDRESSES).filter(|it| is_here(it.text)) else { continue };
        let nodes = it.nodes().map(|it| it.most).filter(|it| *it > 1);
        if let Some(nodes) = nodes.filter(|_| alone(submitted, it.file, it.launch.owner, it.pod)) {
            findings.push(finding(it.file, &it.word_span(address.word), address.text, nodes));
        }
    }
    for it in submitted.settings().filter(|it| NAMES.contains(&it.name())) {
        let owner = it.setting.owner;
        let Some(address) = it.setting.value.as_deref().filter(|it| is_here(it)) else { continue };
        let mut launches = submitted.launches_of(it.file, owner).filter(|it| !it.launch.has(ADDRESSES));
        // PET_NNODES is set next to it; an operator starts as many pods as it has replicas.
        let nodes = launches
            .find_map(|it| Some(it.nodes()?.most))
            .or_else(|| environment(submitted, it.file, owner))
            .or_else(|| it.job.filter(|it| it.kind == "PyTorchJob").map(|it| it.nodes.pods));
        if let Some(nodes) = nodes.filter(|nodes| *nodes > 1 && alone(submitted, it.file, owner, it.pod)) {
            findings.push(finding(it.file, &it.setting.span, address, nodes));
        }
    }
    Ok(findings)
}

fn finding(file: usize, span: &Span, address: &str, nodes: u64) -> Finding {
    Finding::at(
        file,
        span,
        format!("the rendezvous address of {nodes} nodes is {address}: each node finds only itself"),
    )
    .confidence(Confidence::Likely)
}

fn is_here(value: &str) -> bool {
    let host = value.rsplit_once(':').map_or(value, |it| it.0);
    matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "[::1]")
}

fn environment(submitted: &Submitted<'_>, file: usize, owner: Option<Owner>) -> Option<u64> {
    let mut set = ["PET_NNODES", "NNODES"].into_iter().flat_map(|it| submitted.settings_of(file, owner, it));
    set.next()?.value.as_deref()?.rsplit(':').next()?.parse().ok()
}

/// Whether all ranks use this address: on the first rank localhost is correct.
fn alone(
    submitted: &Submitted<'_>,
    file: usize,
    owner: Option<Owner>,
    pod: Option<&PodTemplate<'_>>,
) -> bool {
    let role = pod.and_then(|it| it.pod.role.as_deref()).unwrap_or_default().to_ascii_lowercase();
    let first = ["master", "leader", "launcher", "head", "chief"].iter().any(|it| role.contains(it));
    let settings = NAMES.iter().flat_map(|it| submitted.settings_of(file, owner, it)).count();
    let launches = submitted.launches_of(file, owner).filter(|it| it.launch.has(ADDRESSES)).count();
    !first && settings + launches == 1
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::lint::testing::{findings, quiet};

    fn job(command: &str, env: &str) -> String {
        format!(
            "kind: Job\nspec:\n  parallelism: 2\n  template:\n    spec:\n      containers:\n      - name: a\n        command: [{command}]\n        env:\n{env}        resources: {{limits: {{nvidia.com/gpu: 8}}}}\n"
        )
    }
    const HERE: &str = "        - {name: MASTER_ADDR, value: localhost}\n";

    #[test]
    fn each_finds_only_itself() {
        let found =
            findings(&RULE, &job("torchrun, --nnodes=2, --rdzv-endpoint=localhost:29500, train.py", ""));
        assert_eq!(
            found[0].message,
            "the rendezvous address of 2 nodes is localhost:29500: each node finds only itself"
        );
        assert_eq!(found[0].evidence[0].at().line, 8);
        let found = findings(&RULE, &job("torchrun, --nnodes, 2, train.py", HERE));
        assert_eq!((found.len(), found[0].evidence[0].at().line), (1, 10));
        let env = format!("{HERE}        - {{name: PET_NNODES, value: \"4\"}}\n");
        assert!(findings(&RULE, &job("torchrun, train.py", &env))[0].message.contains("of 4 nodes is"));
        let script = "#!/bin/bash\n#SBATCH --nodes=2\nexport MASTER_ADDR=127.0.0.1\nsrun torchrun --nnodes 2 --nproc_per_node 8 train.py\n";
        assert_eq!(findings(&RULE, script).len(), 1);
    }

    #[test]
    fn quiet_where_it_is_one_node() {
        quiet(&RULE, &job("torchrun, --nnodes=1, --master-addr=localhost, train.py", ""));
        quiet(&RULE, &job("torchrun, --standalone, train.py", HERE));
        // Two pods may be two jobs.
        quiet(&RULE, &job("python, train.py", HERE));
    }

    #[test]
    fn quiet_where_only_the_first_is_told() {
        quiet(&RULE, &job("torchrun, --nnodes=2, --rdzv-endpoint=train-0.train:29500, train.py", ""));
        let script = "#!/bin/sh\nif first; then\nMASTER_ADDR=localhost\nelse\nMASTER_ADDR=node0\nfi\ntorchrun --nnodes 2 train.py\n";
        quiet(&RULE, script);
        let master = "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Master:\n      replicas: 1\n      template:\n        spec:\n          containers:\n\
                      \x20         - name: pytorch\n            env: [{name: MASTER_ADDR, value: localhost}]\n            resources: {limits: {nvidia.com/gpu: 8}}\n\
                      \x20   Worker:\n      replicas: 3\n      template:\n        spec:\n          containers:\n          - name: pytorch\n            resources: {limits: {nvidia.com/gpu: 8}}\n";
        quiet(&RULE, master);
    }
}
