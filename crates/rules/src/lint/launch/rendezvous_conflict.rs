//! torchrun settings with which the nodes cannot find each other.

use evidence::submission::Launcher;
use evidence::yaml::Span;
use job::submitted::{NodeRange, Submitted, SubmittedLaunch, SubmittedVariable};

use crate::{Check, Checked, Confidence, Finding, Role, Rule, Severity};

pub(super) static RULE: Rule = Rule {
    id: "rendezvous-conflict",
    title: "the nodes cannot find each other at the rendezvous",
    severity: Severity::Error,
    role: Role::Cause,
    needs: &[],
    why: "The nodes of a job meet at one rendezvous address and agree on their ranks there. If each uses its own address, or all have \
          the same node rank, every node waits for the others until it times out.",
    fix: "Give all nodes the same endpoint on one of the nodes: `--rdzv-backend=c10d --rdzv-endpoint=HOST:29500`.",
    references: &[
        "https://docs.pytorch.org/docs/stable/elastic/run.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py",
    ],
    checks: &[Check::Submission(check)],
};

fn check(submitted: &Submitted<'_>) -> Checked {
    let mut findings = Vec::new();
    for command in submitted.launches().filter(|it| it.launch.launcher == Launcher::Torchrun) {
        findings.extend(meeting(&command));
        findings.extend(contradictions(&command));
    }
    findings.extend(submitted.settings().filter_map(|it| local_master(&it)));
    Ok(findings)
}

/// The first setting that keeps the nodes of one launch apart.
fn meeting(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let launch = command.launch;
    let given = command.nodes().and_then(NodeRange::exact);
    let nodes = match given.filter(|it| it.value > 1) {
        Some(nodes) => nodes,
        None if launch.has(&["--standalone"]) && !launch.has(&["--nnodes"]) => return standalone(command),
        None => return None,
    };
    let finding = |span: &Span, message: String| {
        Finding::at(command.file, span, message).also_at(&nodes.span, format!("{} nodes", nodes.value))
    };
    if let Some(word) = launch.own().iter().find(|it| &*it.text == "--standalone") {
        let message = format!("--standalone gives each of {} nodes a rendezvous of its own", nodes.value);
        return Some(
            finding(&command.word_span(word), message)
                .fix("Replace --standalone with a backend and an endpoint that all nodes share."),
        );
    }
    for option in ["--rdzv-endpoint", "--master-addr"] {
        if command.literal(&[option]).is_some_and(is_local) {
            let word = launch.option(&[option])?.word;
            let message =
                format!("{option} is the local machine, but the launch command is for {} nodes", nodes.value);
            return Some(finding(&command.word_span(word), message));
        }
    }
    // Without srun only one node starts it, which another rule reports.
    let alone = !command.in_pod() && command.outer().is_none();
    if alone || command.has_hidden_options() {
        return None;
    }
    let backend = if launch.has(&["--rdzv-backend"]) {
        command.literal(&["--rdzv-backend"])?
    } else {
        command.setting("PET_RDZV_BACKEND").map_or(Some("static"), |it| it.value.as_deref())?
    };
    let endpoint = launch.has(&["--rdzv-endpoint"]) || command.sets("PET_RDZV_ENDPOINT");
    match backend {
        "c10d" if !endpoint => {
            let place = launch
                .option(&["--rdzv-backend"])
                .map_or_else(|| command.span(), |it| command.word_span(it.word));
            let message =
                format!("c10d without an endpoint: each of {} nodes uses its own localhost", nodes.value);
            let finding = finding(&place, message)
                .fix("Add `--rdzv-endpoint=HOST:29500`, where HOST is one of the nodes.");
            let master = launch.option(&["--master-addr"]).map(|it| it.word);
            Some(match master {
                Some(word) => finding.also_at(&command.word_span(word), "only the static backend reads this"),
                None => finding,
            })
        }
        "static"
            if !launch.has(&["--node-rank", "--rdzv-conf"])
                && !command.sets("PET_NODE_RANK")
                && !command.sets("PET_RDZV_CONF") =>
        {
            let message = format!("{} nodes without --node-rank: each one is node 0", nodes.value);
            Some(
                finding(&command.span(), message)
                    .label("the static backend uses --node-rank, which is 0 by default")
                    .fix("Add `--node-rank` with the number of the node, or use `--rdzv-backend=c10d --rdzv-endpoint=HOST:29500`, which assigns it."),
            )
        }
        _ => None,
    }
}

/// `--standalone` in a job of several pods: each trains on its own.
fn standalone(command: &SubmittedLaunch<'_>) -> Option<Finding> {
    let whole = matches!(command.kind(), "PyTorchJob" | "JobSet" | "TrainJob");
    let nodes = command.job_nodes().filter(|it| it.value > 1 && whole)?;
    let word = command.launch.own().iter().find(|it| &*it.text == "--standalone")?;
    let message = format!("--standalone in a job of {} pods: each trains on its own", nodes.value);
    Some(
        Finding::at(command.file, &command.word_span(word), message)
            .also_at(&nodes.span, format!("{} pods", nodes.value))
            .severity(Severity::Warning)
            .confidence(Confidence::Likely)
            .why("--standalone creates a rendezvous inside the pod. The pods do not connect to each other and share no gradients.")
            .fix("Remove --standalone and give all pods one endpoint, or make it a job of one pod."),
    )
}

/// An option and a variable with different values.
fn contradictions(command: &SubmittedLaunch<'_>) -> Vec<Finding> {
    const BOTH: [(&str, &str); 8] = [
        ("--nnodes", "PET_NNODES"),
        ("--nproc-per-node", "PET_NPROC_PER_NODE"),
        ("--rdzv-backend", "PET_RDZV_BACKEND"),
        ("--rdzv-endpoint", "PET_RDZV_ENDPOINT"),
        ("--rdzv-id", "PET_RDZV_ID"),
        ("--node-rank", "PET_NODE_RANK"),
        ("--master-addr", "PET_MASTER_ADDR"),
        ("--master-port", "PET_MASTER_PORT"),
    ];
    let mut findings = Vec::new();
    for (option, variable) in BOTH {
        let setting = command.setting(variable);
        let Some((setting, value)) = setting.and_then(|it| Some((it, it.value.as_deref()?))) else {
            continue;
        };
        let Some((text, word)) =
            command.literal(&[option]).zip(command.launch.option(&[option]).map(|it| it.word))
        else {
            continue;
        };
        if text != value {
            let message = format!("{option} is {text} but {variable} is {value}: torchrun uses the option");
            findings.push(
                Finding::at(command.file, &command.word_span(word), message)
                    .also_at(&setting.span, "has no effect")
                    .severity(Severity::Warning)
                    .why("torchrun reads PET_ variables as defaults of its options. The option wins, so changing the variable has no effect.")
                    .fix(format!("Keep only one of {option} and {variable}.")),
            );
        }
    }
    findings
}

/// `MASTER_ADDR=localhost` in a job of several nodes.
fn local_master(it: &SubmittedVariable<'_>) -> Option<Finding> {
    let setting = it.setting;
    let local = setting.value.as_deref().is_some_and(is_local);
    if !matches!(it.name(), "MASTER_ADDR" | "PET_MASTER_ADDR") || !local {
        return None;
    }
    let nodes = it.job?.nodes.stated.as_ref().filter(|it| it.value > 1)?;
    let message = format!("{} is the local machine, but the job has {} nodes", setting.name, nodes.value);
    let finding = Finding::at(it.file, setting.value_span.as_ref().unwrap_or(&setting.span), message);
    Some(
        finding
            .also_at(&nodes.span, format!("{} nodes", nodes.value))
            .confidence(Confidence::Likely)
            .fix("Set it to the first node: in Slurm `$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)`, in Kubernetes the name of pod 0 in its headless Service."),
    )
}

fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |it| it.0);
    matches!(host, "localhost" | "127.0.0.1") || address == "localhost"
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::Severity;
    use crate::lint::testing::{findings, quiet};

    fn script(command: &str) -> String {
        format!("#!/bin/bash\n#SBATCH --nodes=4\n{command}\n")
    }

    fn message(text: &str) -> String {
        let found = findings(&RULE, text);
        assert_eq!(found.len(), 1, "{found:#?}");
        found.into_iter().map(|it| it.message).collect()
    }

    #[test]
    fn nodes_that_meet_at_themselves_are_found() {
        let it = message(&script("srun torchrun --standalone --nnodes=4 t.py"));
        assert_eq!(it, "--standalone gives each of 4 nodes a rendezvous of its own");
        let it = message(&script(
            "srun torchrun --nnodes=4 --rdzv_backend=c10d --rdzv_endpoint=localhost:29500 t.py",
        ));
        assert_eq!(it, "--rdzv-endpoint is the local machine, but the launch command is for 4 nodes");
        let it = message(&script("srun torchrun --nnodes=4 --rdzv_backend=c10d --master_addr=$HEAD t.py"));
        assert_eq!(it, "c10d without an endpoint: each of 4 nodes uses its own localhost");
        let it = message(&script("srun torchrun --nnodes=4 --master_addr=$HEAD t.py"));
        assert_eq!(it, "4 nodes without --node-rank: each one is node 0");
        let it = message(&script("export MASTER_ADDR=127.0.0.1\nsrun python t.py"));
        assert_eq!(it, "MASTER_ADDR is the local machine, but the job has 4 nodes");
    }

    #[test]
    fn options_and_variables_agree() {
        let pod = "kind: Pod\nspec:\n  containers:\n  - env:\n    - {name: PET_NPROC_PER_NODE, value: \"4\"}\n    command: [torchrun, --nproc_per_node=8, t.py]\n";
        let found = findings(&RULE, pod);
        assert_eq!(
            found[0].message,
            "--nproc-per-node is 8 but PET_NPROC_PER_NODE is 4: torchrun uses the option"
        );
        assert_eq!(found[0].severity, Some(Severity::Warning));
        quiet(&RULE, &pod.replace("=8", "=4"));
        quiet(&RULE, &pod.replace("=8", "=$N"));
    }

    #[test]
    fn a_job_of_pods_is_no_standalone() {
        let job = "kind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 2\n      template:\n        spec:\n          containers:\n          - command: [torchrun, FLAG, --nproc_per_node=8, t.py]\n            resources: {limits: {nvidia.com/gpu: 8}}\n";
        assert_eq!(
            message(&job.replace("FLAG", "--standalone")),
            "--standalone in a job of 2 pods: each trains on its own"
        );
        // The operator gives number and address.
        quiet(&RULE, &job.replace("FLAG", "--nnodes=2"));
        quiet(&RULE, &job.replace("FLAG", "--standalone").replace("replicas: 2", "replicas: 1"));
    }

    #[test]
    fn right_ones_and_unknown_ones_are_quiet() {
        for command in [
            "srun torchrun --nnodes=4 --rdzv_backend=c10d --rdzv_endpoint=$HEAD:29500 t.py",
            "srun torchrun --nnodes=4 --node_rank=$SLURM_NODEID --master_addr=$HEAD t.py",
            "srun torchrun \"${ARGS[@]}\" --nnodes=4 t.py",
            "torchrun --nnodes=4 t.py",
            "torchrun --standalone --nproc_per_node=8 t.py",
            "torchrun --standalone --nnodes=1 t.py",
            "export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n1)\nsrun python t.py",
        ] {
            quiet(&RULE, &script(command));
        }
        quiet(&RULE, "#!/bin/sh\ntorchrun --nnodes=4 --rdzv_backend=c10d t.py\n");
        quiet(&RULE, "#!/bin/sh\nexport MASTER_ADDR=localhost\npython t.py\n");
    }
}
