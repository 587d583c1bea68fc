//! What `plumb manifest` writes, before a shell and our own reader. `kubernetes.rs` has the schemas of Kubernetes.

mod request;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use evidence::submission::Submission;
use manifest::{Kind, Request, write};
use proptest::prelude::*;
use request::{HOSTILE, request, scratch};

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
        let mut bash = testbed::program("bash");
        bash.arg(&script).env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
        bash.env("SLURM_JOB_NODELIST", "node[1-2]").env("SLURM_JOB_ID", "7");
        let output = testbed::output(&mut bash);
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
