//! Every kind on every machine: what is written is read back, and lint has nothing to say.

use std::collections::BTreeMap;

use evidence::submission::{Kind as Read, Launcher, Submission, VolumeSource};
use fabric::catalogue::{self, Model};
use manifest::{Kind, Request, write};
use rules::lint::{Given, lint};

const IMAGE: &str =
    "public.ecr.aws/deep-learning-containers/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-ec2-v1.0";

fn request(kind: Kind, machine: &str, nodes: u32) -> Request {
    let machine = catalogue::find(machine).expect("a machine of the catalogue");
    Request {
        image: Some(IMAGE.to_owned()),
        name: Some("llama".to_owned()),
        command: ["train.py", "--steps", "100"].map(str::to_owned).to_vec(),
        ..Request::new(kind, machine, nodes)
    }
}

#[track_caller]
fn read(request: &Request) -> Submission {
    let text = write(request).unwrap_or_else(|it| panic!("{request:?}: {it}"));
    Submission::read("job.yaml", &text).unwrap_or_else(|it| panic!("{it:?}\n{text}"))
}

/// All kinds, machines and sizes that can be asked for.
fn requests() -> Vec<Request> {
    let mut all = Vec::new();
    for name in catalogue::names() {
        for kind in Kind::ALL {
            for nodes in [1, 4] {
                all.push(request(kind, name, nodes));
                if matches!(kind, Kind::MpiJob | Kind::Sbatch) {
                    all.push(Request { nccl_tests: true, command: Vec::new(), ..request(kind, name, nodes) });
                }
            }
        }
    }
    all
}

#[test]
fn counts_are_right_on_every_machine() {
    for request in requests().iter().filter(|it| it.kind != Kind::Sbatch) {
        let it = read(request);
        assert_eq!(it.kind, Read::Kubernetes);
        let Model { name, gpus, instance, .. } = *request.machine;
        let pods: Vec<_> = it.pods().filter(|it| it.1.limit("nvidia.com/gpu").is_some()).collect();
        let [(_, pod)] = pods.as_slice() else { panic!("{} pods with GPUs: {}", pods.len(), it.text) };
        assert_eq!(pod.limit("nvidia.com/gpu"), Some(f64::from(gpus)));
        if request.kind != Kind::TrainJob {
            assert_eq!(pod.replicas, Some(u64::from(request.nodes)), "{}", it.text);
        }
        let efa = (request.nodes > 1 && request.machine.efa()).then(|| f64::from(request.machine.nics));
        assert_eq!(pod.limit("vpc.amazonaws.com/efa"), efa, "{}", it.text);
        assert_eq!(pod.limit("hugepages-2Mi").is_some(), efa.is_some());
        assert_eq!(pod.instances().first().map(|it| it.name), instance.map(|_| name));
        let container = &pod.containers[0];
        for limit in &container.limits {
            let requested = container.requests.iter().find(|it| it.name == limit.name).unwrap();
            assert_eq!(requested.quantity, limit.quantity);
        }
        assert!(container.privileged.is_none() && pod.flags.is_empty());
        assert_eq!(container.mounts[0].path.as_ref(), "/dev/shm");
        let VolumeSource::EmptyDir { memory: true, limit: Some((size, _)), .. } = &pod.volumes[0].source
        else {
            panic!("{:?}", pod.volumes)
        };
        assert!(pod.limit("memory").is_none_or(|memory| size.0 <= memory / 4.0), "{}", it.text);
        if let (Some(instance), Some(memory)) = (instance, pod.limit("memory")) {
            let all = instance.mem_gib.0 * f64::from(1 << 30);
            assert!(memory <= 0.75 * all && memory >= 0.6 * all, "{}", it.text);
        }
        assert!(it.settings.iter().all(|it| it.name.starts_with("PET_")), "{:?}", it.settings);
    }
}

#[test]
fn ranks_are_one_a_gpu() {
    for request in requests() {
        let it = read(&request);
        let gpus = u64::from(request.machine.gpus);
        let nodes = u64::from(request.nodes);
        let text = &it.text;
        match (request.kind, request.nccl_tests) {
            (Kind::MpiJob, _) => {
                let mpirun = it.launches.iter().find(|it| it.launcher == Launcher::Mpirun).unwrap();
                assert_eq!(
                    (mpirun.number(&["-np"]), mpirun.number(&["-N"])),
                    (Some(nodes * gpus), Some(gpus)),
                    "{text}"
                );
                assert_eq!(mpirun.nccl_tests().is_some(), request.nccl_tests, "{text}");
            }
            (Kind::Sbatch, true) => {
                assert!(text.contains(&format!("#SBATCH --ntasks-per-node={gpus}\n")), "{text}");
                let srun = it.launches.iter().find(|it| it.launcher == Launcher::Srun).unwrap();
                assert_eq!(srun.nccl_tests().unwrap().number(&["-g"]), Some(1));
            }
            // Trainer hands it over: the command stands in the TrainJob, which carries no pod.
            (Kind::TrainJob, _) => assert!(text.contains(&format!("numProcPerNode: {gpus} ")), "{text}"),
            _ => {
                let words = format!("--nproc-per-node={gpus}");
                assert!(text.contains(&words), "{text}");
                assert!(!it.launches.is_empty(), "{text}");
            }
        }
    }
}

/// Lint has nothing to say, not even what is worth knowing.
#[test]
fn what_is_written_lints_clean() {
    let mut bad: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for request in requests() {
        let file = read(&request);
        for it in lint(std::slice::from_ref(&file), &Given::default()) {
            let Request { kind, machine, nodes, .. } = &request;
            let place = format!("{} on {nodes} x {}: {}", kind.name(), machine.name, it.finding.message);
            bad.entry(it.rule.id).or_default().push(place);
        }
    }
    for (id, found) in &bad {
        println!("{id}, {} times, first {}", found.len(), found[0]);
    }
    assert!(bad.is_empty());
}

#[test]
fn a_share_of_a_machine_is_a_share_of_everything() {
    let it = read(&Request { gpus: Some(4), ..request(Kind::Job, "p5.48xlarge", 2) });
    let pod = &it.workloads[0].pods[0];
    let limits = ["nvidia.com/gpu", "vpc.amazonaws.com/efa"].map(|it| pod.limit(it));
    assert_eq!(limits, [Some(4.0), Some(16.0)]);
    assert!(it.text.contains("memory: 768Gi") && it.text.contains("not guaranteed"), "{}", it.text);
    let script = read(&Request { gpus: Some(4), ..request(Kind::Sbatch, "p5.48xlarge", 2) });
    assert!(!script.text.contains("--exclusive") && script.text.contains("--gpus-per-node=4"));
}

#[test]
fn grace_gets_its_domain() {
    let it = read(&request(Kind::Job, "p6e-gb200.36xlarge", 4));
    assert_eq!(&*it.objects[0].kind, "ComputeDomain");
    for part in ["resourceClaimTemplateName: llama-imex", "nvidia.com/gpu.clique", "vpc.amazonaws.com/efa: 4"]
    {
        assert!(it.text.contains(part), "{part}\n{}", it.text);
    }
    let large = read(&request(Kind::Job, "p6e-gb200.36xlarge", 19));
    assert!(!large.text.contains("nvidia.com/gpu.clique"), "more nodes than one domain has");
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let with = |change: fn(&mut Request)| {
        let mut it = request(Kind::Job, "p5.48xlarge", 2);
        change(&mut it);
        write(&it).unwrap_err()
    };
    for (error, part) in [
        (with(|it| it.nodes = 0), "1 to 9999"),
        (with(|it| it.gpus = Some(9)), "p5.48xlarge has 8"),
        (with(|it| it.gpus = Some(0)), "0 GPUs"),
        (with(|it| it.image = None), "needs an image"),
        (with(|it| it.command.clear()), "give the program to run"),
        (with(|it| it.command = vec![String::new()]), "empty program"),
        (with(|it| it.command.push("a\0b".to_owned())), "zero byte"),
        (with(|it| it.nccl_tests = true), "--kind mpijob"),
    ] {
        assert!(error.contains(part), "{error}");
    }
    for name in ["", "A", "-a", "a-", "a_b", "a.b", "1a", "a\nb", "a: b", "\u{e4}", &"a".repeat(51)] {
        let it = Request { name: Some(name.to_owned()), ..request(Kind::Job, "p5.48xlarge", 2) };
        assert!(write(&it).unwrap_err().starts_with("name"), "{name:?}");
    }
    for image in
        ["", " ", "a b", "a\nb: c", "a\"b", "$(id)", "-x", "a:", "{{ image }}", "'a'", "a#b", "\u{202e}x"]
    {
        let it = Request { image: Some(image.to_owned()), ..request(Kind::Job, "p5.48xlarge", 2) };
        assert!(write(&it).unwrap_err().contains("is not an image"), "{image:?}");
        if image != "a#b" {
            let it = Request { image: Some(image.to_owned()), ..request(Kind::Sbatch, "p5.48xlarge", 2) };
            write(&it).unwrap_err();
        }
    }
}

#[test]
fn a_hostile_command_stays_an_argument() {
    let hostile = [
        "train.py",
        "\n---\nkind: Pod\nspec: {containers: [{name: x}]}",
        "a' ; rm -rf / ; '",
        "$(id)",
        "`id`",
        "#",
        ": |",
    ];
    for kind in Kind::ALL {
        let it = read(&Request {
            command: hostile.map(str::to_owned).to_vec(),
            ..request(kind, "p5.48xlarge", 2)
        });
        let plain = read(&request(kind, "p5.48xlarge", 2));
        assert_eq!(it.tree.documents.len(), plain.tree.documents.len(), "{}", it.text);
        assert_eq!(
            (it.kind, it.workloads.len(), it.objects.len()),
            (plain.kind, plain.workloads.len(), plain.objects.len())
        );
    }
}

#[test]
fn a_queue_makes_it_a_gang() {
    for kind in Kind::ALL.into_iter().filter(|it| *it != Kind::Sbatch) {
        let file = read(&Request { queue: Some("research".to_owned()), ..request(kind, "p5.48xlarge", 4) });
        assert!(file.text.contains("    kueue.x-k8s.io/queue-name: research  #"), "{}", file.text);
        let found = lint(std::slice::from_ref(&file), &Given::default());
        assert!(found.is_empty(), "{found:#?}\n{}", file.text);
    }
}

#[test]
fn a_queue_of_slurm_is_a_partition() {
    let slurm =
        |queue: &str| Request { queue: Some(queue.to_owned()), ..request(Kind::Sbatch, "p5.48xlarge", 4) };
    assert!(read(&slurm("gpu_large")).text.contains("\n#SBATCH --partition=gpu_large\n"));
    for queue in ["", "a b", "a\n#SBATCH --nodes=9", "-x"] {
        write(&slurm(queue)).unwrap_err();
    }
    let error = write(&Request { namespace: Some("a".to_owned()), ..slurm("gpu") }).unwrap_err();
    assert!(error.contains("no namespace"), "{error}");
}

#[test]
fn namespace_and_zone_are_written() {
    for kind in Kind::ALL.into_iter().filter(|it| *it != Kind::Sbatch) {
        let it = Request {
            namespace: Some("research".to_owned()),
            zone: Some("us-east-1a".to_owned()),
            ..request(kind, "p4d.24xlarge", 2)
        };
        let text = read(&it).text;
        assert!(
            text.contains("\n  namespace: research\n")
                && text.contains("topology.kubernetes.io/zone: us-east-1a\n"),
            "{text}"
        );
        assert!(!text.contains("topologyKey: topology.kubernetes.io/zone"), "{text}");
    }
}

#[test]
fn pods_that_wait_lint_clean() {
    for nodes in [1, 4] {
        let text =
            manifest::write_waiting(&request(Kind::Job, "p5.48xlarge", nodes), 1800).expect("a manifest");
        assert!(text.contains("completions:") && text.contains("ttlSecondsAfterFinished: 60"), "{text}");
        let submission = Submission::read("job.yaml", &text).unwrap_or_else(|it| panic!("{it:?}\n{text}"));
        assert_eq!(submission.pods().count(), 1, "{text}");
        let found: Vec<_> = lint(&[submission], &Given::default()).iter().map(|it| it.rule.id).collect();
        assert!(found.is_empty(), "{found:?}\n{text}");
    }
}
