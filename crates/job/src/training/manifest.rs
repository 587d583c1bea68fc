//! Manifests: machine, nodes and GPUs of a job for Kubernetes, and the command that its containers run.

use evidence::shell;
use evidence::submission::{Owner, Submission, Written};
use evidence::yaml::{Kind, NodeId, Tree};
use fabric::machine::NicKind;

use super::draft::{Place, Weight};
use super::{Inputs, Text, script};
use crate::submitted::{Given, Submitted, SubmittedJob};

pub(super) fn read(inputs: &mut Inputs<'_>, text: &Text) -> Result<(), String> {
    let name = text.name.as_str();
    let submission =
        Submission::read(name, &text.text).map_err(|it| format!("{name}:{}: {}", it.line, it.text))?;
    let files = [submission];
    let submitted = Submitted::new(&files, Given::default());
    let mut jobs: Vec<&SubmittedJob<'_>> = submitted.jobs.iter().filter(|it| it.has_gpus()).collect();
    if jobs.is_empty() {
        jobs = submitted.jobs.iter().filter(|it| it.pods.iter().any(|it| it.works)).collect();
    }
    if jobs.is_empty() {
        // A template may leave the kind of its GPUs open.
        jobs = submitted.jobs.iter().filter(|it| !it.pods.is_empty()).collect();
    }
    let Some(job) = jobs.first() else {
        return Err(format!(
            "{name}: has no job with GPUs: give a TrainJob, PyTorchJob, MPIJob, JobSet or Job"
        ));
    };
    if jobs.len() > 1 {
        inputs.draft.notes.push(format!(
            "{name} has {} jobs with GPUs: the first, a {}, is read",
            jobs.len(),
            job.kind
        ));
    }
    // Ranks run in the containers with GPUs; the launcher of an MPIJob starts them. Beside a runtime that describes the machines, a
    // TrainJob has the command and the number of nodes.
    let mut last = Err(format!("{name}: its containers start no training that plumb knows"));
    let own = |it: &SubmittedJob<'_>| std::ptr::eq(it, *job);
    let all = submitted.jobs.iter().enumerate().filter(|(_, it)| own(it) || it.kind == "TrainJob");
    for (workload, job) in all {
        cluster(inputs, job, name);
        for (pod, template) in job.pods.iter().enumerate() {
            for (container, it) in template.pod.containers.iter().enumerate() {
                let owner = Owner { workload, pod, container };
                match command(inputs, &files[0], it.node, owner, name) {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => last = Err(error),
                }
            }
        }
    }
    // Model and settings may come from other inputs: the machine and its nodes are known.
    match last {
        Err(error) if error.contains("start no training") || error.contains("starts no training") => {
            inputs.draft.notes.push(format!("{name}: what its containers run is not known to plumb"));
            Ok(())
        }
        other => other,
    }
}

fn cluster(inputs: &mut Inputs<'_>, job: &SubmittedJob<'_>, name: &str) {
    let draft = &mut inputs.draft;
    let whole = Place::new(name, 1);
    if let Some(machine) = job.machine() {
        let span = job.pods.iter().find_map(|it| it.machines.span.clone());
        let place = span.map_or(whole.clone(), |it| Place::new(name, it.line));
        draft.state("cluster.instance", machine.name, "instance type", &place);
        let efa = job.has_efa() || job.pods.iter().any(|it| it.pod.partial);
        if machine.network == NicKind::Efa && !efa && job.has_gpus() {
            draft.set("launch.network", "eni", "resources", &place, Weight::Follows);
        }
    }
    match (job.node_count(), job.nodes.several()) {
        (Some(nodes), _) => {
            let place = job.nodes.stated.as_ref().map_or(whole.clone(), |it| Place::new(name, it.span.line));
            draft.set("cluster.nodes", nodes, "replicas", &place, Weight::Follows);
        }
        (None, Some(true)) => draft.set("launch.open_nodes", true, "replicas", &whole, Weight::Follows),
        _ => {}
    }
    if let Some(gpus) = &job.gpus_per_node {
        draft.set(
            "launch.per_node",
            gpus.value,
            "GPUs of a pod",
            &Place::new(name, gpus.span.line),
            Weight::Follows,
        );
    }
}

/// Reads the command of a container; whether it has one that trains.
fn command(
    inputs: &mut Inputs<'_>,
    file: &Submission,
    container: NodeId,
    owner: Owner,
    name: &str,
) -> Result<bool, String> {
    let tree = &file.tree;
    let lists = ["command", "args"].into_iter().filter_map(|it| tree.get(container, it));
    let words: Vec<NodeId> = lists
        .flat_map(|it| match &tree.node(it).kind {
            Kind::Sequence(items) => items.clone(),
            Kind::Scalar { .. } => vec![it],
            Kind::Mapping(_) => Vec::new(),
        })
        .collect();
    if words.is_empty() {
        return Ok(false);
    }
    let own = file.settings.iter().filter(|it| it.owner == Some(owner) && it.written == Written::Env);
    let mut variables: Vec<(String, String)> =
        own.filter_map(|it| Some((it.name.to_string(), it.value.as_deref()?.to_owned()))).collect();
    variables.extend(inputs.variables.iter().cloned());
    let text = as_script(tree, &words);
    let files = &mut *inputs.files;
    let mut sourced = |from: &str, path: &str| files.read(from, path).ok().map(|it| (it.name, it.text));
    let commands = shell::follow(name, &text, &variables, &mut sourced)
        .map_err(|error| format!("{}:{}: {}", error.file, error.trouble.line, error.trouble.text))?;
    let before = inputs.draft.clone();
    match script::take(inputs, &commands, name) {
        Ok(()) => Ok(true),
        Err(error) => {
            inputs.draft = before;
            Err(error)
        }
    }
}

/// The words of a container's command as a script whose lines are those of the file.
fn as_script(tree: &Tree, words: &[NodeId]) -> String {
    let mut script = String::new();
    let mut line = 1;
    for word in words {
        let text = tree.text(*word).unwrap_or_default();
        let wanted = tree.node(*word).span.line;
        while line < wanted {
            script.push_str("\\\n");
            line += 1;
        }
        script.push(' ');
        if text.contains(['\n', ' ']) {
            script.push_str(&format!("'{}'", text.replace('\'', "'\\''")));
            line += text.matches('\n').count();
        } else {
            // `$(NAME)` is how Kubernetes names a variable.
            let text = text.replace('\\', "\\\\").replace('"', "\\\"");
            let text = text.replace("$(", "${").replace(')', if text.contains("$(") { "}" } else { ")" });
            script.push_str(&format!("\"{text}\""));
        }
    }
    script
}
