use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Files, Finished, Inputs, Kind, Text, recognise};

#[derive(Default)]
struct Folder(BTreeMap<&'static str, &'static str>);

impl Files for Folder {
    fn read(&mut self, _: &str, path: &str) -> Result<Text, String> {
        let text = self.0.get(path.trim_start_matches("./"));
        text.map(|it| Text { name: path.to_owned(), text: (*it).to_owned() })
            .ok_or_else(|| format!("{path}: no such file"))
    }
}

const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
 "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "tie_word_embeddings": false}"#;

fn text(name: &str, text: &str) -> Text {
    Text { name: name.to_owned(), text: text.to_owned() }
}

/// The job of some inputs on one p5.48xlarge with the model of a flag.
fn job_with(
    files: &[(&'static str, &'static str)],
    inputs: &[(&str, &str)],
    flags: &[(&str, Value)],
) -> Result<Finished, String> {
    let mut folder = Folder(files.iter().copied().collect());
    let mut all = Inputs::new(&mut folder, Vec::new());
    for (key, value) in flags {
        all.flag(key, value.clone(), key);
    }
    for (name, body) in inputs {
        all.add(&text(name, body), None)?;
    }
    all.finish()
}

fn job(inputs: &[(&str, &str)]) -> Result<Finished, String> {
    job_with(&[], inputs, &[("cluster.instance", json!("p5.48xlarge")), ("model.name", json!("llama-3-8b"))])
}

fn shape(config: &str) -> Value {
    job_with(&[], &[("config.json", config)], &[("cluster.instance", json!("p5.48xlarge"))]).unwrap().job["model"].clone()
}

#[test]
fn configurations_of_every_family_are_read() {
    let model = shape(LLAMA);
    assert_eq!(model["layers"], 32);
    assert_eq!(
        (&model["kv_heads"], &model["ffn"], &model["gated_mlp"]),
        (&json!(8), &json!(14336), &json!(true))
    );
    assert_eq!(model["tied_embeddings"], false);
    let gpt = shape(
        r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": null, "vocab_size": 50257}"#,
    );
    assert_eq!(
        (&gpt["ffn"], &gpt["gated_mlp"], &gpt["tied_embeddings"]),
        (&json!(3072), &json!(false), &json!(true))
    );
    let opt = shape(
        r#"{"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50272}"#,
    );
    assert_eq!(opt["ffn"], 3072);
    let bloom = shape(
        r#"{"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880}"#,
    );
    assert_eq!((&bloom["heads"], &bloom["ffn"]), (&json!(16), &json!(4096)));
    let falcon = shape(
        r#"{"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "multi_query": true, "vocab_size": 65024}"#,
    );
    assert_eq!((&falcon["kv_heads"], &falcon["ffn"]), (&json!(1), &json!(4 * 4544)));
    let new = shape(
        r#"{"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8, "multi_query": true, "new_decoder_architecture": true, "vocab_size": 65024}"#,
    );
    assert_eq!(new["kv_heads"], 8);
    let gemma = shape(
        r#"{"model_type": "gemma", "hidden_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256, "intermediate_size": 24576, "vocab_size": 256000}"#,
    );
    assert_eq!((&gemma["head_width"], &gemma["tied_embeddings"]), (&json!(256), &json!(true)));
    let phi = shape(
        r#"{"model_type": "phi", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "intermediate_size": 8192, "vocab_size": 51200}"#,
    );
    assert_eq!(phi["gated_mlp"], false);
    let neox = shape(
        r#"{"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64, "intermediate_size": 24576, "vocab_size": 50432}"#,
    );
    assert_eq!((&neox["gated_mlp"], &neox["tied_embeddings"]), (&json!(false), &json!(false)));
}

#[test]
fn mixtures_of_experts_are_read() {
    let mixtral = shape(
        r#"{"model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}"#,
    );
    assert_eq!(
        (&mixtral["experts"], &mixtral["experts_per_token"], &mixtral["moe_ffn"]),
        (&json!(8), &json!(2), &json!(14336))
    );
    let qwen = shape(
        r#"{"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 5632, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "mlp_only_layers": [0], "vocab_size": 151936}"#,
    );
    assert_eq!(
        (&qwen["moe_ffn"], &qwen["shared_experts"], &qwen["moe_layers"]),
        (&json!(1408), &json!(4), &json!(23))
    );
    let deepseek = r#"{"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280}"#;
    let done =
        job_with(&[], &[("config.json", deepseek)], &[("cluster.instance", json!("p5.48xlarge"))]).unwrap();
    let model = &done.job["model"];
    assert_eq!(
        (&model["moe_layers"], &model["shared_experts"], &model["kv_heads"]),
        (&json!(58), &json!(1), &json!(1))
    );
    let note = done.notes.iter().find(|it| it.contains("latent")).unwrap();
    assert!(
        note.contains("128 heads of 128 with 1 key heads: 14.4 billion parameters instead of 11.4"),
        "{note}"
    );
}

#[test]
fn a_configuration_that_is_not_a_decoder_is_refused() {
    let refused = |body: &str| job(&[("config.json", body)]).unwrap_err();
    assert!(
        refused(r#"{"model_type": "t5", "d_model": 512, "num_layers": 6, "vocab_size": 32128}"#)
            .contains("is t5: plumb models decoders")
    );
    let error = refused("{\"model_type\": \"llama\",\n \"hidden_size\": WIDTH, \"num_hidden_layers\": 2}");
    assert!(error.contains("config.json:2: `hidden_size` is WIDTH"), "{error}");
    assert!(refused(r#"{"model_type": "llama"}"#).contains("has no `num_hidden_layers`"));
}

#[test]
fn settings_of_deepspeed_make_a_run() {
    let settings = "{\n \"train_batch_size\": 64,\n \"train_micro_batch_size_per_gpu\": 4,\n \"bf16\": {\"enabled\": true},\n \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": false,\n  \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"none\"}, \"reduce_bucket_size\": 5e8}\n}";
    let done = job(&[("ds.json", settings)]).unwrap();
    let run = &done.job["run"];
    assert_eq!(
        (&run["framework"], &run["zero"], &run["global_batch"]),
        (&json!("deepspeed"), &json!(3), &json!(64))
    );
    assert_eq!((&run["offload"], &run["overlap"]), (&json!({"optimizer": true}), &json!(false)));
    // What no input says is left to the defaults of a job file.
    assert_eq!((&run["seq"], &run["recompute"]), (&Value::Null, &Value::Null));
    assert!(done.notes.iter().any(|it| it.contains("not modelled: bucket sizes of ZeRO")));
    let ignored =
        job(&[("ds.json", r#"{"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}}"#)])
            .unwrap();
    assert_eq!(ignored.job["run"]["offload"], Value::Null);
    assert!(
        ignored.notes.iter().any(|it| it.contains("offload_param (ds.json:1) needs ZeRO-3")),
        "{:?}",
        ignored.notes
    );
    // Two of three numbers give the third, and three must agree.
    let batch = |body: &str| job(&[("ds.json", body)]).map(|it| it.job["run"].clone());
    let two = batch(r#"{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4}"#).unwrap();
    assert_eq!(two["global_batch"], 64);
    assert_eq!(
        batch(r#"{"train_batch_size": 64, "gradient_accumulation_steps": 2}"#).unwrap()["micro_batch"],
        4
    );
    let error = batch("{\"train_batch_size\": 100,\n\"train_micro_batch_size_per_gpu\": 2,\n\"gradient_accumulation_steps\": 4}").unwrap_err();
    assert_eq!(
        error,
        "train_micro_batch_size_per_gpu 2 (ds.json:2) x gradient_accumulation_steps 4 (ds.json:3) x 8 data-parallel ranks are 64 sequences of a step, but train_batch_size 100 (ds.json:1)"
    );
    assert!(batch(r#"{"train_batch_size": 10}"#).unwrap_err().contains("is not a multiple of 8"));
    assert!(
        batch("{\"zero_optimization\": {\"stage\": 7}}")
            .unwrap_err()
            .contains("ds.json:1: `zero_optimization.stage` is 7")
    );
}

#[test]
fn what_the_trainer_fills_in_comes_from_its_arguments() {
    let settings = r#"{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}"#;
    let alone = job(&[("ds.json", settings)]).unwrap();
    assert_eq!(
        (&alone.job["run"]["micro_batch"], &alone.job["run"]["global_batch"]),
        (&json!(8), &json!(64))
    );
    assert!(alone.assumed.iter().any(|it| it.contains("the default of the Trainer")), "{:?}", alone.assumed);
    let arguments = r#"{"output_dir": "x", "per_device_train_batch_size": 2, "gradient_accumulation_steps": 16, "bf16": true, "gradient_checkpointing": true,
        "deepspeed": "ds.json", "model_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct", "max_steps": 100, "optim": "adafactor"}"#;
    let machine = ("cluster.instance", json!("p5.48xlarge"));
    let files =
        [("ds.json", r#"{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}"#)];
    let both = job_with(&files, &[("args.json", arguments)], std::slice::from_ref(&machine)).unwrap();
    let run = &both.job["run"];
    assert_eq!(
        (&run["micro_batch"], &run["global_batch"], &run["zero"]),
        (&json!(2), &json!(256), &json!(2))
    );
    assert_eq!(
        (&run["recompute"], &run["steps"], &run["framework"]),
        (&json!("full"), &json!(100), &json!("deepspeed"))
    );
    assert_eq!(both.job["model"]["name"], "llama-3-8b");
    assert!(both.notes.iter().any(|it| it.contains("adafactor")));
    // The model lies beside the arguments.
    let files = [
        ("ds.json", r#"{"zero_optimization": {"stage": 2}}"#),
        ("meta-llama/Meta-Llama-3-8B-Instruct/config.json", LLAMA),
    ];
    let local = job_with(&files, &[("args.json", arguments)], std::slice::from_ref(&machine)).unwrap();
    assert_eq!((&local.job["model"]["layers"], &local.job["model"]["name"]), (&json!(32), &Value::Null));
    let fsdp = r#"{"per_device_train_batch_size": 1, "fsdp": "full_shard auto_wrap offload", "model_name_or_path": "llama-3-8b"}"#;
    let run = &job_with(&[], &[("args.json", fsdp)], &[machine]).unwrap().job["run"];
    assert_eq!(
        (&run["framework"], &run["zero"], &run["offload"]["params"]),
        (&json!("fsdp"), &json!(3), &json!(true))
    );
}

const MEGATRON: &str = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nTP=8\nGBS=$((4 * 32))\nMODEL=(\n  --num-layers 32\n  --hidden-size 4096\n  --num-attention-heads 32\n  --group-query-attention\n  --num-query-groups 8\n  --ffn-hidden-size 14336\n  --swiglu\n  --untie-embeddings-and-output-weights\n  --vocab-size 128000\n)\n\
    srun torchrun --nnodes $SLURM_NNODES --nproc-per-node 8 pretrain_gpt.py ${MODEL[@]} --tensor-model-parallel-size $TP \\\n  --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --micro-batch-size 1 \\\n  --global-batch-size $GBS --seq-length 8192 --bf16 --use-distributed-optimizer --overlap-grad-reduce --recompute-activations \\\n  --train-samples 12800 --tp-comm-overlap --lr 1e-4\n";

#[test]
fn a_script_of_megatron_is_read_whole() {
    let done =
        job_with(&[], &[("train.sh", MEGATRON)], &[("cluster.instance", json!("p5.48xlarge"))]).unwrap();
    let (model, run) = (&done.job["model"], &done.job["run"]);
    assert_eq!(
        (&model["kv_heads"], &model["vocab"], &model["tied_embeddings"]),
        (&json!(8), &json!(128_000), &json!(false))
    );
    assert_eq!(
        *run,
        json!({"framework": "megatron", "tp": 8, "pp": 2, "vpp": 4, "zero": 1, "seq": 8192, "micro_batch": 1, "global_batch": 128,
            "precision": "bf16", "recompute": "selective", "sequence_parallel": true, "flash_attention": true, "overlap": true, "reduce_dtype": "fp32", "steps": 100})
    );
    assert_eq!(done.job["cluster"], json!({"instance": "p5.48xlarge", "nodes": 4}));
    assert_eq!(done.notes, ["not modelled: --tp-comm-overlap"]);
}

/// With BF16 Megatron-LM reduces gradients in FP32 unless it is told otherwise; with FP16 it does not.
#[test]
fn megatron_reduces_bf16_gradients_in_fp32() {
    let of = |precision: &str| {
        let script = MEGATRON.replace("--bf16", precision);
        let done = job_with(&[], &[("train.sh", &script)], &[("cluster.instance", json!("p5.48xlarge"))]);
        done.unwrap().job["run"]["reduce_dtype"].clone()
    };
    assert_eq!(of("--bf16"), json!("fp32"));
    assert_eq!(of("--bf16 --fp8-format hybrid"), json!("fp32"));
    assert_eq!(of("--bf16 --grad-reduce-in-bf16"), json!("bf16"));
    assert_eq!(of("--bf16 --main-grads-dtype bf16"), json!("bf16"));
    assert_eq!(of("--bf16 --main-grads-dtype fp32"), json!("fp32"));
    assert_eq!(of("--fp16"), Value::Null);
    assert_eq!(of("--fp16 --accumulate-allreduce-grads-in-fp32"), json!("fp32"));
}

#[test]
fn options_alone_and_old_scripts_are_read() {
    let old = "deepspeed --num_nodes 2 --num_gpus 4 pretrain_gpt.py --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 \
        --global-batch-size 64 --fp16 --checkpoint-activations --deepspeed --deepspeed_config ds.json --zero-stage 1 --tensor-model-parallel-size 2 --data-impl mmap --tokenizer-type GPT2BPETokenizer";
    let files = [(
        "ds.json",
        r#"{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true}}"#,
    )];
    let done =
        job_with(&files, &[("the command", old)], &[("cluster.instance", json!("p4d.24xlarge"))]).unwrap();
    let run = &done.job["run"];
    assert_eq!(
        (&run["recompute"], &run["flash_attention"], &run["zero"]),
        (&json!("full"), &json!(false), &json!(1))
    );
    assert_eq!((&done.job["cluster"]["pods"], &done.job["cluster"]["nodes"]), (&json!("1x4"), &json!(2)));
    assert_eq!(done.job["model"]["vocab"], 50432);
    let vocabulary = "a vocabulary of 50432, that of GPT-2 (vocab)";
    assert!(done.assumed.iter().any(|it| it == vocabulary), "{:?}", done.assumed);
    // The same options without a launcher.
    let options = old.split_once("pretrain_gpt.py ").unwrap().1.replace("ds.json", "none.json");
    let done =
        job_with(&[], &[("--megatron", &options)], &[("cluster.instance", json!("p4d.24xlarge"))]).unwrap();
    assert!(done.notes.iter().any(|it| it.contains("none.json is not here")), "{:?}", done.notes);
    // Inputs that disagree are named with both places.
    let files = [("ds.json", "{\"train_batch_size\": 32,\n\"zero_optimization\": {\"stage\": 1}}")];
    let error = job_with(&files, &[("the command", old)], &[("cluster.instance", json!("p4d.24xlarge"))])
        .unwrap_err();
    assert!(
        error.contains("train_batch_size is 32 (ds.json:1), but --global-batch-size is 64 (the command:1)"),
        "{error}"
    );
}

#[test]
fn what_a_script_gets_from_outside_is_asked_for() {
    let script = "#!/bin/bash\nSIZE=$2\nif [ $SIZE = 7B ]; then L=32; fi\ntorchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $L --hidden-size 4096 --num-attention-heads 32 --micro-batch-size $1 --seq-length 2048\n";
    let error = job(&[("train.sh", script)]).unwrap_err();
    assert!(error.starts_with("train.sh: does not set --num-layers $L (line 4), --micro-batch-size $1 (line 4): give its arguments, as in plumb predict 'bash train.sh ARGUMENTS', or add --define 1=... --define 2=... --define L=..."), "{error}");
    let mut folder = Folder::default();
    let mut inputs =
        Inputs::new(&mut folder, vec![("1".to_owned(), "2".to_owned()), ("2".to_owned(), "7B".to_owned())]);
    inputs.flag("cluster.instance", "p5.48xlarge", "--instance");
    inputs.add(&text("train.sh", script), None).unwrap();
    let done = inputs.finish().unwrap();
    assert_eq!((&done.job["model"]["layers"], &done.job["run"]["micro_batch"]), (&json!(32), &json!(2)));
    let call = job_with(
        &[(
            "train.sh",
            "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers $1 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 1 --seq-length 128 --bf16\n",
        )],
        &[("the command.sh", "bash train.sh 12")],
        &[("cluster.instance", json!("p5.48xlarge"))],
    );
    assert_eq!(call.unwrap().job["model"]["layers"], 12);
    for (program, reason) in [
        ("pretrain_t5.py", "does not train a decoder"),
        ("tools/run_text_generation_server.py", "does not train: there is no step"),
    ] {
        let text = script.replace("pretrain_gpt.py", program);
        let error = job(&[("train.sh", &text)]).unwrap_err();
        assert!(error.starts_with("train.sh:4: ") && error.contains(reason), "{error}");
    }
}

#[test]
fn a_manifest_gives_the_machine_and_the_command() {
    let manifest = "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n  pytorchReplicaSpecs:\n    Worker:\n      replicas: 4\n      template:\n        spec:\n          nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}\n          containers:\n          - name: pytorch\n            resources: {limits: {nvidia.com/gpu: 8}}\n            env: [{name: TP, value: \"4\"}]\n            command: [torchrun, --nproc_per_node=8, --nnodes=4, pretrain_gpt.py]\n            args:\n            - --num-layers=32\n            - --hidden-size=4096\n            - --num-attention-heads=32\n            - --seq-length=2048\n            - --micro-batch-size=1\n            - --global-batch-size=$(GBS)\n            - --tensor-model-parallel-size=$(TP)\n            - --bf16\n";
    let error = job_with(&[], &[("job.yaml", manifest)], &[]).unwrap_err();
    assert!(
        error
            .starts_with("job.yaml: does not set --global-batch-size ${GBS} (line 21): add --define GBS=..."),
        "{error}"
    );
    let manifest = manifest.replace("$(GBS)", "64");
    let done = job_with(&[], &[("job.yaml", &manifest)], &[]).unwrap();
    assert_eq!(done.job["cluster"], json!({"instance": "p5.48xlarge", "nodes": 4}));
    assert_eq!((&done.job["run"]["tp"], &done.job["run"]["global_batch"]), (&json!(4), &json!(64)));
    assert_eq!(done.changes, ["network=eni"]);
    let with = manifest.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32");
    assert!(job_with(&[], &[("job.yaml", &with)], &[]).unwrap().changes.is_empty());
    // A shell in the container: lines are those of the manifest.
    let head = manifest.split("            command:").next().unwrap();
    let shell = format!(
        "{head}            command: [bash, -c]\n            args:\n            - |\n              L=24\n              torchrun --nproc_per_node=8 --nnodes=4 pretrain_gpt.py --num-layers $L --hidden-size $H --num-attention-heads 16 --seq-length 2048 --micro-batch-size 1 --bf16\n"
    );
    let error = job_with(&[], &[("job.yaml", &shell)], &[]).unwrap_err();
    assert!(error.starts_with("job.yaml: does not set --hidden-size $H (line 18)"), "{error}");
}

#[test]
fn settings_of_accelerate_are_read() {
    let yaml = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_offload_params: false\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n";
    let done = job(&[("accelerate.yaml", yaml)]).unwrap();
    assert_eq!((&done.job["run"]["framework"], &done.job["run"]["zero"]), (&json!("fsdp"), &json!(2)));
    assert_eq!(done.job["cluster"]["nodes"], 2);
    let yaml = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, offload_param_device: cpu, gradient_accumulation_steps: 4}\nnum_processes: 8\n";
    let run = &job(&[("accelerate.yaml", yaml)]).unwrap().job["run"];
    assert_eq!(
        (&run["zero"], &run["offload"]["params"], &run["global_batch"]),
        (&json!(3), &json!(true), &json!(32))
    );
}

#[test]
fn the_command_line_of_accelerate_counts_before_its_file() {
    let yaml = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\nmixed_precision: fp16\nnum_machines: 4\nnum_processes: 32\n";
    let command = "accelerate launch --config_file acc.yaml --num_machines 2 --num_processes 16 --mixed_precision bf16 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --max_seq_length 2048\n";
    let given = [("cluster.instance", json!("p5.48xlarge"))];
    let named = job_with(&[("acc.yaml", yaml)], &[("run.sh", command)], &given).unwrap();
    // The order in which files are given changes nothing.
    let before = job_with(&[], &[("acc.yaml", yaml), ("run.sh", command)], &given).unwrap();
    let after = job_with(&[], &[("run.sh", command), ("acc.yaml", yaml)], &given).unwrap();
    for done in [&named, &before, &after] {
        let run = &done.job["run"];
        assert_eq!((&done.job["cluster"]["nodes"], &run["zero"]), (&json!(2), &json!(3)));
        assert_eq!((&run["precision"], &run["global_batch"]), (&json!("bf16"), &json!(16)));
        let note = "num_machines is 4 (acc.yaml:5), but nodes of the launcher is 2 (run.sh:1), which counts";
        assert!(done.notes.iter().any(|it| it == note), "{:?}", done.notes);
    }
    // What the command does not say is that of the file.
    let bare = command.replace(" --num_machines 2 --num_processes 16 --mixed_precision bf16", "");
    let done = job_with(&[("acc.yaml", yaml)], &[("run.sh", &bare)], &given).unwrap();
    assert_eq!((&done.job["cluster"]["nodes"], &done.job["run"]["precision"]), (&json!(4), &json!("fp16")));
}

#[test]
fn a_job_file_can_name_others_and_flags_come_first() {
    let file = "[model]\nconfig = \"config.json\"\nlayers = 16\n[cluster]\ninstance = \"p5.48xlarge\"\nnodes = 2\nmeasured = [\"a.json\", \"b.txt\"]\n[run]\nzero = 1\n";
    let files = [("config.json", LLAMA)];
    let done = job_with(&files, &[("job.toml", file)], &[]).unwrap();
    assert_eq!((&done.job["model"]["layers"], &done.job["model"]["hidden"]), (&json!(16), &json!(4096)));
    assert_eq!(done.measured.len(), 2);
    assert!(done.notes.is_empty(), "{:?}", done.notes);
    let flagged =
        job_with(&files, &[("job.toml", file)], &[("cluster.nodes", json!(8)), ("run.zero", json!(3))])
            .unwrap();
    assert_eq!((&flagged.job["cluster"]["nodes"], &flagged.job["run"]["zero"]), (&json!(8), &json!(3)));
    let error = job_with(
        &files,
        &[("job.toml", file), ("ds.json", "{\"zero_optimization\": {\n\"stage\": 3}}")],
        &[],
    )
    .unwrap_err();
    assert!(
        error.contains("zero is 1 (job.toml:9), but zero_optimization.stage is 3 (ds.json:2)"),
        "{error}"
    );
    let missing = job_with(&[], &[("job.toml", file)], &[]).unwrap_err();
    assert_eq!(missing, "job.toml:2: config.json: no such file");
}

#[test]
fn what_cannot_be_assumed_is_asked_for() {
    let ds = [("ds.json", "{\"zero_optimization\": {\"stage\": 3}}")];
    let machine = ("cluster.instance", json!("p5.48xlarge"));
    assert!(job_with(&[], &ds, &[machine]).unwrap_err().contains("add --model NAME"));
    assert!(
        job_with(&[], &ds, &[("model.name", json!("llama-3-8b"))])
            .unwrap_err()
            .contains("add --instance NAME")
    );
}

/// A line of Megatron's options, with more of them.
fn megatron(more: &str) -> Result<Finished, String> {
    let line = format!(
        "torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000 --seq-length 2048 --micro-batch-size 1 --global-batch-size 128 --bf16 {more}\n"
    );
    job_with(&[], &[("train.sh", &line)], &[("cluster.instance", json!("p5.48xlarge"))])
}

#[test]
fn options_say_which_megatron_it_is() {
    let run = |more: &str| megatron(more).unwrap().job["run"].clone();
    for (more, framework, fused) in [
        ("", "megatron", true),
        ("--use-distributed-optimizer --attention-backend unfused", "megatron-lm", false),
        ("--use-distributed-optimizer --transformer-impl local", "megatron-lm", false),
        ("--deepspeed --zero-stage 1", "megatron-deepspeed", false),
        ("--deepspeed --zero-stage 1 --use-flash-attn", "megatron", true),
    ] {
        let run = run(more);
        assert_eq!(
            (&run["framework"], &run["flash_attention"]),
            (&json!(framework), &json!(fused)),
            "{more}"
        );
    }
}

#[test]
fn experts_are_split_as_the_rest_unless_it_is_said() {
    let experts = "--tensor-model-parallel-size 4 --num-experts 8 --expert-model-parallel-size 4";
    let etp = |more: &str| megatron(&format!("{experts} {more}")).unwrap().job["run"]["etp"].clone();
    assert_eq!(etp(""), 4);
    assert_eq!(etp("--expert-tensor-parallel-size 1"), 1);
    assert_eq!(etp("--expert-tensor-parallel-size 2"), 2);
    let deepspeed = "--tensor-model-parallel-size 4 --num-experts 8 --moe-expert-parallel-size 4 --deepspeed";
    assert_eq!(megatron(deepspeed).unwrap().job["run"]["etp"], 1);
    let alone = "--tensor-model-parallel-size 4 --num-experts 8";
    assert_eq!(megatron(alone).unwrap().job["run"]["etp"], Value::Null);
}

#[test]
fn stages_that_megatron_refuses_are_named() {
    let error = megatron("--pipeline-model-parallel-size 5").unwrap_err();
    assert!(error.contains("Megatron refuses 32 layers in 5 stages that are not equal"), "{error}");
    let error =
        megatron("--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3").unwrap_err();
    assert!(
        error.contains("--num-layers-per-virtual-pipeline-stage 3") && error.contains("8 layers"),
        "{error}"
    );
    for fine in [
        "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2",
        "--pipeline-model-parallel-size 5 --decoder-first-pipeline-num-layers 4",
        "--pipeline-model-parallel-size 5 --deepspeed --zero-stage 1",
    ] {
        megatron(fine).unwrap();
    }
}

#[test]
fn fsdp_that_does_not_reshard_is_zero_2() {
    let file = |reshard: bool| {
        let text = format!(
            r#"{{"output_dir": "o", "bf16": true, "fsdp": "full_shard auto_wrap", "fsdp_config": {{"version": 2, "reshard_after_forward": {reshard}}}, "per_device_train_batch_size": 4}}"#
        );
        job(&[("args.json", &text)]).unwrap().job["run"]["zero"].clone()
    };
    assert_eq!((file(false), file(true)), (json!(2), json!(3)));
}

#[test]
fn what_splits_layers_beside_deepspeed_is_read() {
    let tp = r#"{"bf16": {"enabled": true}, "tensor_parallel": {"autotp_size": 4}, "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "train_batch_size": 8}"#;
    let run = job(&[("ds.json", tp)]).unwrap().job["run"].clone();
    assert_eq!(
        (&run["tp"], &run["global_batch"], &run["framework"]),
        (&json!(4), &json!(8), &json!("deepspeed"))
    );
    let neox = r#"{"pipe_parallel_size": 0, "model-parallel-size": 2, "num_layers": 44, "hidden_size": 6144, "num_attention_heads": 64, "seq_length": 2048, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true}}"#;
    let neox =
        job_with(&[], &[("neox.json", neox)], &[("cluster.instance", json!("p4d.24xlarge"))]).unwrap().job;
    assert_eq!(
        (&neox["run"]["tp"], &neox["run"]["seq"], &neox["run"]["framework"]),
        (&json!(2), &json!(2048), &json!("megatron"))
    );
    assert_eq!(neox["model"]["layers"], 44);
}

#[test]
fn widths_and_layers_of_experts_are_those_of_the_family() {
    let maverick = r#"{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "head_dim": 128, "hidden_size": 5120, "interleave_moe_layer_step": 2, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 128, "vocab_size": 202048}}"#;
    let model = shape(maverick);
    assert_eq!(
        (&model["ffn"], &model["moe_ffn"], &model["moe_layers"], &model["shared_experts"]),
        (&json!(16384), &json!(8192), &json!(24), &json!(1))
    );
    let dbrx = r#"{"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}}"#;
    let model = shape(dbrx);
    assert_eq!(
        (&model["kv_heads"], &model["ffn"], &model["experts"], &model["experts_per_token"]),
        (&json!(8), &json!(10752), &json!(16), &json!(4))
    );
    let bloom = r#"{"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880}"#;
    assert_eq!(shape(bloom)["hidden"], 14336);
    for (config, reason) in [
        (LLAMA.replace("14336", "-11008"), "`intermediate_size` is -11008, which is not a number above 0"),
        (LLAMA.replace("\"llama\"", "\"jamba\""), "is jamba, with recurrent layers"),
    ] {
        let error = job(&[("config.json", &config)]).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn circles_and_damaged_files_are_named() {
    let kind = |name: &str, body: &str| recognise(&text(name, body));
    assert_eq!(
        kind("x", "{\"zero_optimization\": {\"stage\": 1"),
        Err("x:1: ends in the middle of a value".to_owned())
    );
    assert_eq!(kind("x", "a\0b"), Err("x: is not a text".to_owned()));
    assert_eq!(kind("x", " \n"), Err("x: is empty".to_owned()));
    assert!(kind("x", "hello: world\n").unwrap_err().starts_with("x: is not a job that plumb reads"));
    let nemo =
        kind("n.yaml", "trainer:\n  devices: 8\nmodel:\n  tensor_model_parallel_size: 4\n").unwrap_err();
    assert!(
        nemo.starts_with("n.yaml: has settings of NeMo") && nemo.contains("_parallel_size is `tp`"),
        "{nemo}"
    );
    let titan =
        kind("t.toml", "[training]\nsteps = 9\n[parallelism]\ntensor_parallel_degree = 2\n").unwrap_err();
    assert!(titan.starts_with("t.toml: has settings of torchtitan") && titan.contains("is `tp`"), "{titan}");
    assert_eq!(kind("x", "torchrun --nproc_per_node 8 t.py"), Ok(Kind::Script));
    assert_eq!(kind("x", "{\"model\": {\"layers\": 1}, \"cluster\": {}}"), Ok(Kind::Job));
    let files = [("b.sh", "source a.sh\n"), ("a.sh", "source b.sh\n")];
    let error = job_with(&files, &[("a.sh", "\nsource b.sh\n")], &[]).unwrap_err();
    assert_eq!(error, "b.sh:1: sources a.sh, which is already being read: a circle");
}

#[test]
fn a_batch_is_divided_as_the_framework_does() {
    // DeepSpeed accumulates nothing unless it is told to.
    let settings = ("ds.json", r#"{"train_batch_size": 64, "zero_optimization": {"stage": 2}}"#);
    let done = job(&[settings]).unwrap();
    assert_eq!(done.job["run"]["micro_batch"], json!(8));
    assert!(done.assumed.iter().any(|it| it.contains("no accumulated steps")), "{:?}", done.assumed);
    // A flag of plumb says nothing of how it is divided: the default of a job file counts.
    let flags = [
        ("cluster.instance", json!("p5.48xlarge")),
        ("run.global_batch", json!(64)),
        ("run.framework", json!("fsdp")),
    ];
    let done = job_with(
        &[],
        &[("--megatron", "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --vocab-size 32000")],
        &flags,
    );
    assert_eq!(done.unwrap().job["run"]["micro_batch"], Value::Null);
}

#[test]
fn accelerate_takes_deepspeed_and_fsdp_as_options() {
    let machine = ("cluster.instance", json!("p5.48xlarge"));
    let of = |more: &str| {
        let command = format!(
            "accelerate launch {more} --num_processes 8 --mixed_precision bf16 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 1"
        );
        job_with(&[], &[("run.sh", &command)], std::slice::from_ref(&machine)).unwrap().job["run"].clone()
    };
    let run = of(
        "--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --offload_param_device none --gradient_accumulation_steps 4",
    );
    assert_eq!((&run["framework"], &run["zero"]), (&json!("deepspeed"), &json!(3)));
    assert_eq!((&run["offload"], &run["global_batch"]), (&json!({"optimizer": true}), &json!(32)));
    assert_eq!(of("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP")["zero"], json!(2));
    let run = of("--use_fsdp --fsdp_offload_params true");
    assert_eq!((&run["framework"], &run["zero"]), (&json!("fsdp"), &json!(3)));
    assert_eq!((&run["reduce_dtype"], &run["offload"]["params"]), (&json!("bf16"), &json!(true)));
    // A file says the same, and the command counts.
    let yaml = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n";
    let command = "accelerate launch --config_file acc.yaml --zero_stage 3 --num_processes 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 1";
    let done =
        job_with(&[("acc.yaml", yaml)], &[("run.sh", command)], std::slice::from_ref(&machine)).unwrap();
    assert_eq!(done.job["run"]["zero"], json!(3));
}

#[test]
fn accelerate_reduces_in_16_bits_and_adapters_are_refused() {
    let machine = ("cluster.instance", json!("p5.48xlarge"));
    let of = |more: &str| {
        let command = format!(
            "accelerate launch --num_processes 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --bf16 --per_device_train_batch_size 1 {more}"
        );
        job_with(&[], &[("the command", &command)], std::slice::from_ref(&machine))
    };
    assert_eq!(of("--fsdp full_shard").unwrap().job["run"]["reduce_dtype"], json!("bf16"));
    assert_eq!(of("").unwrap().job["run"]["reduce_dtype"], Value::Null);
    let refused = of("--fsdp full_shard --use_peft --lora_r 16").unwrap_err();
    assert!(refused.starts_with("--use_peft (the command:1): plumb predict models"), "{refused}");
    assert!(of("--load_in_4bit").is_err() && of("--use_peft false").is_ok());
}
