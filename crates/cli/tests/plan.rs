//! `plumb plan`, as a person runs it.

#[expect(dead_code, reason = "other tests use the rest")]
mod common;

use std::fs;

use common::{Answer, plumb, root};
use serde_json::Value;

const DEEPSPEED: &str = "crates/cli/tests/predict/g6e-zero3.toml";
const MEGATRON: &str = "crates/cli/tests/plan/gpt-175b-a100.toml";
const BARE: &str = "crates/cli/tests/plan/llama-70b-p5.toml";

fn plan(arguments: &[&str]) -> Answer {
    plumb(["plan"].into_iter().chain(arguments.iter().copied()))
}

/// A job file of a test.
fn write(folder: &testbed::Folder, text: &str) -> String {
    let path = folder.path().join("job.toml");
    fs::write(&path, text).expect("a job file");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
fn the_first_screen_is_the_answer() {
    for (job, parts) in [
        (DEEPSPEED, &["less time than the layout of the job", "optimizer"][..]),
        (MEGATRON, &["runners-up", "one setting changed", "time against memory", "20 % less bandwidth"]),
        (BARE, &["runners-up", "instead of"]),
    ] {
        let answer = plan(&[job]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        let text = &answer.stdout;
        assert!(text.lines().count() <= 50 && text.lines().all(|it| it.chars().count() <= 100), "{text}");
        let mut lines = text.lines();
        assert!(lines.next().unwrap().starts_with("best: tp "), "{text}");
        assert!(lines.next().unwrap().contains(" s per step, between "), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in parts {
            assert!(words.contains(part), "{part}: {text}");
        }
        // The same again, whatever the threads did.
        assert_eq!(plan(&[job]).stdout, *text);
    }
    assert!(!plan(&[BARE]).stdout.contains("layout of the job"));
}

#[test]
fn the_json_is_as_its_schema_says() {
    let text = fs::read_to_string(root().join("docs/plan.schema.json")).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["additionalProperties"] = Value::from(false);
    for it in schema["$defs"].as_object_mut().unwrap().values_mut().filter(|it| it["properties"].is_object())
    {
        it["additionalProperties"] = Value::from(false);
    }
    let validator = jsonschema::validator_for(&schema).unwrap();
    for arguments in
        [&[MEGATRON][..], &[BARE, "--groups"], &[DEEPSPEED, "--fix", "zero=3", "--headroom", "0"]]
    {
        let answer = plan(&[arguments, &["--format", "json"]].concat()).json();
        let errors: Vec<String> = validator.iter_errors(&answer).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        let best = answer["best"]["step_time_s"].as_f64().unwrap();
        for other in answer["runners_up"].as_array().unwrap() {
            assert!(other["step_time_s"].as_f64().unwrap() >= best);
            assert!(!other["why"].as_str().unwrap().is_empty());
        }
        assert_eq!(answer["ranks"].is_null(), !arguments.contains(&"--groups"));
    }
}

#[test]
fn the_job_file_of_the_best_layout_is_predicted_the_same() {
    let folder = testbed::Folder::new("plan-write");
    let path = folder.path().join("best.toml");
    let path = path.to_str().unwrap();
    for job in [DEEPSPEED, MEGATRON, BARE] {
        let best = plan(&[job, "--write", path, "--format", "json"]).json();
        let again = plumb(["predict", path, "--format", "json"]).json();
        for key in ["step_time_s", "interval_s", "mfu", "tokens_per_s_per_gpu"] {
            assert_eq!(best["best"][key], again[key], "{job}: {key}");
        }
        assert_eq!(best["best"]["memory_gib"], again["memory_gib"]["total"], "{job}");
        // Its own layout is then the best one.
        assert!(plan(&[path]).stdout.contains("this is the layout of the job"), "{job}");
    }
    let input = plan(&[path, "--write", path]);
    assert_eq!(input.code, Some(2));
    assert!(input.stderr.contains("is both input and output"), "{}", input.stderr);
}

/// Whatever is written for another program is read by `plumb predict` as the same job.
#[test]
fn what_is_emitted_is_read_again_as_the_same_job() {
    let folder = testbed::Folder::new("emitted");
    let best = plan(&[BARE, "--format", "json"]).json();
    let nodes = ["--instance", "p5.48xlarge", "--nodes", "16"];
    for (kind, more) in [
        ("megatron", &nodes[..]),
        ("sbatch", &nodes[..2]),
        ("trainjob", &[]),
        ("pytorchjob", &[]),
        ("jobset", &[]),
        ("job", &[]),
    ] {
        let emitted = plan(&[BARE, "--emit", kind, "--image", "registry/megatron:1"]);
        assert_eq!(emitted.code, Some(0), "{kind}: {}", emitted.stderr);
        let path = folder.path().join(kind);
        fs::write(&path, &emitted.stdout).expect("a file");
        let path = path.to_str().expect("UTF-8");
        let again = plumb(["predict", path, "--format", "json"].into_iter().chain(more.iter().copied()));
        assert_eq!(again.code, Some(0), "{kind}: {}", again.stderr);
        let (time, wanted) = (&again.json()["step_time_s"], &best["best"]["step_time_s"]);
        let off = time.as_f64().unwrap() / wanted.as_f64().unwrap() - 1.0;
        // Megatron pads the vocabulary.
        assert!(off.abs() < 0.005, "{kind}: {time} for {wanted}");
        if kind != "megatron" {
            assert!(emitted.stdout.contains("CUDA_DEVICE_MAX_CONNECTIONS"), "{kind}");
        }
    }
    // Latent attention, and 61 layers that no number of stages divides.
    let deepseek = write(
        &folder,
        "[model]\nname = 'deepseek-v3'\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = 32\n[run]\nseq = 4096\nglobal_batch = 4096\n",
    );
    let best = plan(&[&deepseek, "--format", "json"]).json();
    let flags = plan(&[&deepseek, "--emit", "megatron"]).stdout;
    assert!(flags.contains("--multi-latent-attention") && !flags.contains("group-query"), "{flags}");
    assert!(flags.contains("--pipeline-model-parallel-layout 'Et*4|(t*4|)*12,(t*3|)*2,t*3L'"), "{flags}");
    let file = folder.path().join("deepseek.sh");
    fs::write(&file, flags).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let again = plumb(["predict", file, "--instance", "p5.48xlarge", "--nodes", "32", "--format", "json"]);
    let off =
        again.json()["step_time_s"].as_f64().unwrap() / best["best"]["step_time_s"].as_f64().unwrap() - 1.0;
    assert!(
        off.abs() < 0.005 && !again.stdout.contains("pipeline-model-parallel-layout"),
        "{}",
        again.stdout
    );
    let mpi = plan(&[BARE, "--emit", "mpijob", "--image", "registry/megatron:1"]);
    assert!(
        mpi.code == Some(2) && mpi.stderr.contains("takes rank and size from torchrun"),
        "{}",
        mpi.stderr
    );
}

#[test]
fn settings_are_those_of_the_best_layout() {
    let best = plan(&[MEGATRON, "--format", "json"]).json();
    let flags = plan(&[MEGATRON, "--emit", "megatron"]).stdout;
    for (flag, key) in [
        ("--tensor-model-parallel-size", "tp"),
        ("--pipeline-model-parallel-size", "pp"),
        ("--micro-batch-size", "micro_batch"),
    ] {
        assert!(flags.contains(&format!("{flag} {}", best["best"][key])), "{flags}");
    }
    let json = plan(&[DEEPSPEED, "--emit", "deepspeed"]).json();
    let best = plan(&[DEEPSPEED, "--format", "json"]).json();
    assert_eq!(json["zero_optimization"]["stage"], best["best"]["zero"]);
    assert_eq!(json["gradient_accumulation_steps"], best["best"]["micro_batches"]);
    let batch = ["train_micro_batch_size_per_gpu", "gradient_accumulation_steps"]
        .map(|it| json[it].as_u64().unwrap());
    assert_eq!(json["train_batch_size"].as_u64().unwrap(), batch[0] * batch[1] * 16);
    let manifest =
        plan(&[BARE, "--emit", "pytorchjob", "--image", "registry/megatron:1", "--", "pretrain_gpt.py"]);
    assert_eq!(manifest.code, Some(0), "{}", manifest.stderr);
    assert!(
        manifest.stdout.contains("kind: PyTorchJob")
            && manifest.stdout.contains("tensor-model-parallel-size")
    );
    for (arguments, reason) in [
        (&[MEGATRON, "--emit", "deepspeed"][..], "the plan is for `framework` = megatron"),
        (&[MEGATRON, "--emit", "manifest", "--image", "a:1"], "a manifest needs `instance` in [cluster]"),
        (&[BARE, "--emit", "trainjob"], "a pod needs an image"),
    ] {
        let answer = plan(arguments);
        assert_eq!(answer.code, Some(2), "{arguments:?}");
        assert!(answer.stderr.contains(reason), "{}", answer.stderr);
    }
    let folder = testbed::Folder::new("plan-fsdp");
    let fsdp = fs::read_to_string(root().join(BARE)).unwrap().replace("megatron", "fsdp");
    let fsdp = write(&folder, &fsdp);
    let plain = plan(&[&fsdp, "--fix", "tp=1", "--fix", "cp=1", "--emit", "fsdp"]);
    assert!(plain.stdout.contains("\"fsdp_config\""), "{plain:?}");
    let titan = plan(&[&fsdp, "--fix", "tp=4", "--emit", "torchtitan"]);
    assert!(titan.stdout.contains("tensor_parallel_degree = 4\n"), "{titan:?}");
}

#[test]
fn what_a_format_cannot_say_is_not_emitted_without_it() {
    let folder = testbed::Folder::new("plan-unsaid");
    let of = |framework: &str, more: &str| {
        format!(
            "[model]\nname = 'qwen3-30b-a3b'\n[cluster]\ninstance = 'p5en.48xlarge'\nnodes = 16\n[run]\nframework = '{framework}'\nglobal_batch = 1024\n{more}\n"
        )
    };
    let experts = write(&folder, &of("fsdp", ""));
    let refused = plan(&[&experts, "--fix", "ep=8", "--fix", "tp=1", "--fix", "cp=1", "--emit", "fsdp"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("has no expert parallelism, which the best layout uses"), "{refused:?}");
    let titan = plan(&[&experts, "--fix", "ep=8", "--emit", "torchtitan"]).stdout;
    assert!(titan.contains("expert_parallel_degree = 8") && !titan.contains("float8"), "{titan}");
    let eight = write(&folder, &of("deepspeed", "precision = 'fp8'"));
    let refused = plan(&[&eight, "--fix", "ep=1", "--emit", "deepspeed"]);
    assert!(refused.stderr.contains("DeepSpeed's JSON has no FP8: set `precision`"), "{refused:?}");
    let eight = write(&folder, &of("fsdp", "precision = 'fp8'"));
    let titan = plan(&[&eight, "--emit", "torchtitan"]).stdout;
    assert!(titan.contains("converters = [\"quantize.linear.float8\"]"), "{titan}");
}

/// Time and memory of the plan are those of what it writes and emits.
#[test]
fn a_plan_is_of_the_job_that_it_emits() {
    let folder = testbed::Folder::new("plan-emits");
    let job = "[model]\nname = 'llama-3-70b'\n[cluster]\ninstance = 'dgx-h100'\nnodes = 2\n[run]\nframework = 'megatron'\nseq = 4096\nglobal_batch = 64\n";
    let job = write(&folder, job);
    let best = plan(&[&job, "--format", "json"]).json()["best"].clone();
    let flags = plan(&[&job, "--emit", "megatron"]).stdout.replace("\\\n", " ");
    let again = plumb([
        "predict",
        "--megatron",
        &flags,
        "--instance",
        "dgx-h100",
        "--nodes",
        "2",
        "--format",
        "json",
    ])
    .json();
    let written = folder.path().join("written.toml");
    let written = written.to_string_lossy();
    plan(&[&job, "--write", &written]);
    let file = plumb(["predict", &written, "--format", "json"]).json();
    for other in [&again, &file] {
        let near = |one: &serde_json::Value, other: &serde_json::Value| {
            (one.as_f64().unwrap() / other.as_f64().unwrap() - 1.0).abs() < 0.01
        };
        assert!(near(&best["step_time_s"], &other["step_time_s"]), "{best} {other}");
        assert!(near(&best["memory_gib"], &other["memory_gib"]["total"]), "{best} {other}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let folder = testbed::Folder::new("plan-wrong");
    let job = fs::read_to_string(root().join(BARE)).unwrap();
    for (text, more, reason) in [
        (job.replace("global_batch", "globalbatch"), &[][..], "[run] has no key `globalbatch`"),
        (job.replace("nodes = 16", "nodes = 0"), &[], "`nodes` is 0: it must be at least 1"),
        (
            job.replace("nodes = 16", "nodes = 1\npods = '1x7'"),
            &[],
            "512 sequences of a step are not a multiple",
        ),
        (job.clone(), &["--fix", "tp=3"], "no layout has tp = 3: 64 heads are not a multiple of tp = 3"),
        (job.clone(), &["--fix", "tpp=2"], "`tpp` cannot be fixed: did you mean `tp`?"),
        (
            job.clone(),
            &["--fix", "tp=8", "--fix", "pp=32"],
            "128 GPUs are not a multiple of tp x pp x cp = 256",
        ),
        (job.clone(), &["--headroom", "120"], "is not a percentage from 0 to 90"),
        (job.clone(), &["--emit", "horovod"], "invalid value 'horovod'"),
    ] {
        let answer = plan(&[&[write(&folder, &text).as_str()], more].concat());
        assert_eq!(answer.code, Some(2), "{reason}: {answer:?}");
        assert!(answer.stderr.contains(reason), "{reason}: {}", answer.stderr);
    }
    let missing = plan(&["no-such-job.toml"]);
    assert_eq!((missing.code, missing.stderr.matches("no-such-job.toml").count()), (Some(2), 1));
    // Too large for the cluster: 1, with how much the smallest layout needs.
    let large = job.replace("llama-3-70b", "llama-3.1-405b").replace("nodes = 16", "nodes = 1");
    let answer = plan(&[&write(&folder, &large)]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stdout.starts_with("no layout fits: the smallest needs "), "{}", answer.stdout);
    let json = plan(&[&write(&folder, &large), "--format", "json"]);
    assert_eq!((json.code, json.json()["best"].is_null()), (Some(1), true));
}

#[test]
fn groups_name_ranks_and_links() {
    let answer = plan(&[MEGATRON, "--groups", "--fix", "tp=8", "--fix", "pp=8", "--fix", "cp=1"]);
    let text = &answer.stdout;
    assert!(text.lines().all(|it| it.chars().count() <= 130), "{text}");
    for part in ["tp          8      64  0-7", "NVLink", "InfiniBand", "0, 64, 128 ... 448"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = plan(&[BARE, "--groups", "--format", "json"]).json();
    let ranks = json["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 128);
    assert_eq!((ranks[127]["node"].as_u64(), ranks[127]["gpu"].as_u64()), (Some(15), Some(7)));
}

#[test]
fn a_log_gives_the_job() {
    let log = "cases/g6e-4x4-efa/rank0.log";
    let asked = plan(&["--from", log]);
    assert_eq!(asked.code, Some(2));
    assert!(asked.stderr.contains("the tokens of a sequence: --set seq=2048"), "{}", asked.stderr);
    let folder = testbed::Folder::new("plan-from");
    let written = folder.path().join("best.toml");
    let written = written.to_str().unwrap();
    let answer = plan(&["--from", log, "--set", "seq=512", "--write", written]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    let text = &answer.stdout;
    assert!(text.contains("less time than the layout of the job: "), "{text}");
    assert!(text.contains("1 x 100 Gbps of EFA"), "{text}");
    // The file cannot say paths, and the answer says so.
    assert!(
        answer.stderr.contains("the written file does not say EFA without GPUDirect"),
        "{}",
        answer.stderr
    );
    assert_eq!(plumb(["predict", written]).code, Some(0));
}

#[test]
fn options_of_megatron_give_the_job() {
    let options = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --micro-batch-size 1 \
                   --global-batch-size 512 --bf16 --tensor-model-parallel-size $TP";
    let answer =
        plan(&["--megatron", options, "--define", "TP=4", "--instance", "p5.48xlarge", "--nodes", "4"]);
    assert_eq!(answer.code, Some(0), "{}", answer.stderr);
    assert!(answer.stdout.contains(" with tp 4 x pp 1 x dp 8"), "{}", answer.stdout);
}
