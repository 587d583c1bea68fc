//! What `plumb manifest` writes, before those who must accept it: the schemas of Kubernetes and a shell.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use evidence::submission::Submission;
use manifest::{Kind, Request, write};
use proptest::prelude::*;

/// Words that would leave their place if they were pasted.
const HOSTILE: [&str; 9] =
    ["train.py", "a b", "$(id)", "$HOME", "`id`", "it's", "\"", "#SBATCH --nodes=9", "\n---\nkind: Pod\n"];

fn request(kind: Kind, machine: &str, nodes: u32) -> Request {
    let machine = fabric::catalogue::find(machine).expect("a machine of the catalogue");
    Request {
        image: Some("nvcr.io/nvidia/pytorch:25.06-py3".to_owned()),
        command: HOSTILE.map(str::to_owned).to_vec(),
        ..Request::new(kind, machine, nodes)
    }
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder under target");
    folder
}

/// `kubernetes-validate` of `PyPI`, installed once.
fn validator() -> PathBuf {
    let venv = scratch("kubernetes-validate");
    let program = venv.join("bin/kubernetes-validate");
    if !program.exists() {
        let run = |command: &mut Command| {
            let output = command.output().unwrap_or_else(|it| panic!("{command:?}: {it}"));
            assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "kubernetes-validate==1.37.0"]));
    }
    program
}

/// Its answer, and how many objects passed.
fn validate(name: &str, text: &str) -> (bool, usize, String) {
    let path = scratch("manifests").join(name);
    fs::write(&path, text).expect("a file under target");
    let output = Command::new(validator()).arg("--strict").arg(&path).output().expect("the validator runs");
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said.matches(" passed for resource ").count(), said)
}

/// Built-in objects, and the pods of every other kind as templates of their own.
fn built_in(kind: Kind, instance: &str, nodes: u32) -> Vec<String> {
    let request = request(kind, instance, nodes);
    let text = write(&request).unwrap_or_else(|it| panic!("{request:?}: {it}"));
    if kind == Kind::Job {
        let own = |it: &&str| !it.contains("kind: ComputeDomain");
        return text.split("\n---\n").filter(own).map(str::to_owned).collect();
    }
    let it = Submission::read("job.yaml", &text).unwrap_or_else(|it| panic!("{it:?}\n{text}"));
    // What a TrainJob changes of its runtime is no pod of its own.
    let templates = it.pods().filter_map(|it| it.1.template);
    let alone = |template| {
        let range = &it.tree.node(template).span.range;
        let start = text[..range.start].rfind('\n').map_or(0, |it| it + 1);
        let margin = range.start - start;
        let inside = |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() >= margin;
        let lines: Vec<&str> = text[start..].lines().take_while(inside).collect();
        format!("apiVersion: v1\nkind: PodTemplate\nmetadata:\n  name: a\ntemplate:\n{}\n", lines.join("\n"))
    };
    let all: Vec<String> = templates.map(alone).collect();
    assert_eq!(all.len(), if kind == Kind::MpiJob { 2 } else { 1 }, "{text}");
    all
}

#[test]
fn kubernetes_accepts_every_pod_on_every_machine() {
    let mut all = String::new();
    let mut count = 0;
    for instance in fabric::catalogue::names() {
        for kind in Kind::ALL.into_iter().filter(|it| *it != Kind::Sbatch) {
            // One node is the same for every type but for its numbers.
            for nodes in if instance == "p5.48xlarge" { vec![1, 4] } else { vec![4] } {
                for document in built_in(kind, instance, nodes) {
                    count += 1;
                    write!(all, "{document}\n---\n").expect("a text can be written");
                }
            }
        }
    }
    let (good, passed, said) = validate("all.yaml", all.trim_end_matches("---\n"));
    assert!(good && passed == count, "{passed} of {count} passed\n{said}");

    // It would say so: one wrong letter.
    let (good, _, said) = validate(
        "wrong.yaml",
        &built_in(Kind::Job, "p5.48xlarge", 4).join("\n---\n").replace("subdomain:", "subdomian:"),
    );
    assert!(!good && said.contains("subdomian"), "{said}");
}

/// The script under a shell, with stand-ins for Slurm that print what reaches them.
#[test]
fn slurm_starts_exactly_what_was_given() {
    let folder = scratch("sbatch");
    for (name, body) in
        [("srun", "for word; do printf '%s\\0' \"$word\"; done"), ("scontrol", "printf 'node1\\nnode2\\n'")]
    {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("a file under target");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
    for (instance, nodes) in [("p5.48xlarge", 4), ("g5.xlarge", 1), ("dgx-h100", 2)] {
        let text = write(&request(Kind::Sbatch, instance, nodes)).expect("a script");
        let script = folder.join(format!("{instance}.sh"));
        fs::write(&script, &text).expect("a file under target");
        let output = Command::new("bash")
            .arg(&script)
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("SLURM_JOB_NODELIST", "node[1-2]")
            .env("SLURM_JOB_ID", "7")
            .output()
            .expect("bash runs");
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let words: Vec<&str> = said.split_terminator('\0').collect();
        assert_eq!(words[words.len() - HOSTILE.len()..], HOSTILE, "{text}");
        assert!(words.contains(&"--container-image=nvcr.io#nvidia/pytorch:25.06-py3"), "{words:?}");
        assert_eq!(words.contains(&"--rdzv-endpoint=node1:29500"), nodes > 1, "{words:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever is given is refused in words, or stands in the manifest as the last words of one command.
    #[test]
    fn any_words_stay_words(words in proptest::collection::vec("\\PC{0,12}|[\n\t\r \"'$`():#{}\\[\\]&*!|>%@\\\\-]{0,12}", 0..5)) {
        for kind in [Kind::Job, Kind::PyTorchJob, Kind::MpiJob, Kind::JobSet, Kind::TrainJob] {
            let mut command = vec!["train.py".to_owned()];
            command.extend(words.iter().cloned());
            let request = Request { command: command.clone(), ..request(kind, "p4d.24xlarge", 2) };
            let text = write(&request).expect("any arguments will do");
            let it = Submission::read("job.yaml", &text).unwrap_or_else(|it| panic!("{it:?}\n{text}"));
            let lists: Vec<Vec<String>> = it
                .pods()
                .flat_map(|it| &it.1.containers)
                .filter_map(|container| it.tree.get(container.node, "command"))
                .map(|list| it.tree.items(list).iter().filter_map(|word| it.tree.text(*word)).map(str::to_owned).collect())
                .collect();
            let [list] = lists.as_slice() else { panic!("one command: {lists:?}\n{text}") };
            // `$$` and `$(` are written with one more `$`, which Kubernetes takes away.
            let plain: Vec<String> = command.iter().map(|it| it.replace('$', "")).collect();
            let tail: Vec<String> = list[list.len() - command.len()..].iter().map(|it| it.replace('$', "")).collect();
            prop_assert_eq!(tail, plain);
        }
    }
}
