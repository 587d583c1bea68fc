use serde_json::{Value, json};

use super::{Logged, NoJob};
use crate::performance::testing::p4d;
use crate::performance::{fewer_channels, nic_without_ring};
use crate::testing::{findings, read};

/// A trainer on two p4d, over EFA without GPUDirect and with host memory inside the nodes.
const P4D: &str = "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n\
    a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
    a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n\
    a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n\
    a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Libfabric/0\n";

const TRAINER: &str = "Stage 3 initialize beginning\n***** Running training *****\n  Instantaneous batch size per device = 4\n\
    \x20 Total train batch size (w. parallel, distributed & accumulation) = 256\n  Gradient Accumulation steps = 4\n\
    \x20 Total optimization steps = 50\n  Number of trainable parameters = 8,030,261,248\n";

/// What the framework of Megatron prints.
const MEGATRON: &str = "------------------------ arguments ------------------------\n\
    \x20 bf16 ............................................ True\n\
    \x20 ffn_hidden_size ................................. 16384\n\
    \x20 global_batch_size ............................... 128\n\
    \x20 group_query_attention ........................... False\n\
    \x20 hidden_size ..................................... 4096\n\
    \x20 micro_batch_size ................................ 2\n\
    \x20 num_attention_heads ............................. 32\n\
    \x20 num_layers ...................................... 32\n\
    \x20 num_query_groups ................................ 1\n\
    \x20 padded_vocab_size ............................... 51200\n\
    \x20 pipeline_model_parallel_size .................... 2\n\
    \x20 recompute_granularity ........................... selective\n\
    \x20 seq_length ...................................... 2048\n\
    \x20 sequence_parallel ............................... True\n\
    \x20 swiglu .......................................... False\n\
    \x20 tensor_model_parallel_size ...................... 4\n\
    \x20 train_iters ..................................... 500\n\
    \x20 transformer_impl ................................ transformer_engine\n\
    \x20 untie_embeddings_and_output_weights ............. False\n\
    \x20 use_distributed_optimizer ....................... True\n\
    \x20 virtual_pipeline_model_parallel_size ............ None\n\
    \x20 world_size ...................................... 16\n\
    -------------------- end of arguments ---------------------\n";

fn logged(text: &str) -> Logged {
    Logged::of(&read(text))
}

fn values(logged: &Logged, table: &str) -> Value {
    let of =
        logged.said.iter().filter_map(|it| Some((it.key.strip_prefix(table)?.to_owned(), it.value.clone())));
    Value::Object(of.collect())
}

#[test]
fn a_trainer_with_deepspeed() {
    let logged = logged(&format!("{P4D}{TRAINER}"));
    assert_eq!(
        values(&logged, "run."),
        json!({ "micro_batch": 4, "global_batch": 256, "steps": 50, "framework": "deepspeed", "zero": 3 })
    );
    assert_eq!(values(&logged, "cluster."), json!({ "instance": "p4d.24xlarge", "nodes": 2 }));
    assert_eq!(values(&logged, "model."), json!({ "name": "llama-3-8b" }));
    assert_eq!(logged.paths.words(), ["EFA without GPUDirect between nodes", "SHM inside a node"]);
    let NoJob::Lacks(lacks) = logged.job(&Value::Null).unwrap_err() else {
        panic!("sequences are not known")
    };
    assert_eq!(lacks.iter().map(|it| it.key).collect::<Vec<_>>(), ["seq"]);
    let described = logged.job(&json!({ "run": { "seq": 512 } })).unwrap();
    let (here, offered) = (&described.job.cluster, &described.offered.cluster);
    assert!(!here.inter.unwrap().gpudirect && offered.inter.unwrap().gpudirect);
    assert_ne!(here.intra, offered.intra);
}

#[test]
fn megatron_prints_everything() {
    let logged = logged(&format!("{P4D}{MEGATRON}"));
    assert_eq!(
        values(&logged, "model."),
        json!({
            "layers": 32, "hidden": 4096, "heads": 32, "vocab": 51200, "ffn": 16384, "gated_mlp": false,
            "tied_embeddings": true
        })
    );
    let run = values(&logged, "run.");
    assert_eq!(
        (&run["framework"], &run["zero"], &run["flash_attention"]),
        (&json!("megatron"), &json!(1), &json!(true))
    );
    let job = logged.job(&Value::Null).unwrap().job;
    assert_eq!((job.run.tp, job.run.pp, job.run.vpp, job.run.seq, job.model.kv_heads), (4, 2, 1, 2048, 32));
    assert_eq!((job.cluster.nodes, job.run.global_batch, job.steps), (2, 128, Some(500)));
}

#[test]
fn configurations_of_hugging_face_and_deepspeed() {
    let text = "LlamaConfig {\n  \"hidden_size\": 4096,\n  \"intermediate_size\": 14336,\n  \"model_type\": \"llama\",\n\
        \x20 \"num_attention_heads\": 32,\n  \"num_hidden_layers\": 32,\n  \"num_key_value_heads\": 8,\n  \"tie_word_embeddings\": false,\n\
        \x20 \"vocab_size\": 128256\n}\n{\n  \"fp16\": { \"enabled\": false },\n  \"bf16\": {\n    \"enabled\": true\n  },\n\
        \x20 \"zero_optimization\": {\n    \"stage\": 3,\n    \"offload_optimizer\": { \"device\": \"cpu\" },\n    \"offload_param\": {\n      \"device\": \"none\"\n    }\n  }\n}\n\
        per_device_train_batch_size=4,\ngradient_checkpointing=True,\n";
    let logged = logged(text);
    assert_eq!(
        values(&logged, "model."),
        json!({
            "layers": 32, "hidden": 4096, "heads": 32, "vocab": 128_256, "kv_heads": 8, "ffn": 14336, "gated_mlp": true,
            "tied_embeddings": false
        })
    );
    assert_eq!(
        values(&logged, "run."),
        json!({
            "micro_batch": 4, "framework": "deepspeed", "zero": 3, "offload": { "params": false, "optimizer": true },
            "precision": "bf16", "recompute": "full"
        })
    );
}

#[test]
fn the_log_counts_for_nodes_and_paths_and_the_file_for_the_rest() {
    let logged = logged(&format!("{P4D}{TRAINER}"));
    let file = json!({
        "model": { "name": "llama-3-70b" },
        "cluster": { "instance": "p4d.24xlarge", "nodes": 4 },
        "run": { "seq": 512, "zero": 2, "framework": "deepspeed" }
    });
    let job = logged.job(&file).unwrap().job;
    assert_eq!((job.cluster.nodes, job.run.zero, job.model.layers), (2, 2, 80));
    assert!(!job.cluster.inter.unwrap().gpudirect);
    // NCCL counts pods: two of them on one machine.
    let pods = json!({ "cluster": { "pods": "2x4" }, "run": { "seq": 512 } });
    let half =
        P4D.replace("localRanks 8", "localRanks 4").replace("nRanks 16 nNodes 2", "nRanks 16 nNodes 4");
    let job = Logged::of(&read(&format!("{half}{TRAINER}"))).job(&pods).unwrap().job;
    assert_eq!((job.cluster.nodes, job.cluster.pods, job.cluster.gpus), (2, 2, 4));
}

#[test]
fn steps_are_measured_as_printed() {
    let seconds = |more: &str| logged(&format!("{TRAINER}{more}")).measured.map(|it| it.seconds);
    assert_eq!(seconds(""), None);
    assert_eq!(seconds("{'train_runtime': 2441.0, 'train_loss': 1.1}\n"), Some(48.82));
    assert_eq!(seconds("100%|##########| 50/50 [38:30<00:00, 46.17s/it]\n"), Some(46.2));
    // A bar of something else, and the first step, which is longest, do not count.
    assert_eq!(seconds("100%|##########| 4/4 [00:03<00:00,  1.20it/s]\n"), None);
    let iteration =
        |ms: u32| format!(" iteration 1/ 500 | elapsed time per iteration (ms): {ms}.0 | lm loss: 1.0 |\n");
    assert_eq!(seconds(&[20_000, 5000, 5100, 4900].map(iteration).concat()), Some(5.0));
}

#[test]
fn findings_say_what_they_cost_in_a_step() {
    let rule = crate::find("nvlink-unused").unwrap();
    let text = format!("{P4D}{TRAINER}{{'train_runtime': 2441.0, 'train_loss': 1.1}}\n");
    // How long sequences are is not known, so the job is not.
    assert_eq!(findings(rule, &text)[0].price, None);
    let log = read(&text).with_training(json!({ "run": { "seq": 512 } }));
    let found = rule.log().unwrap()(&log).unwrap();
    let price = found[0].price.unwrap();
    assert!(price.measured && (price.step - 48.82).abs() < 1e-9, "{price:?}");
    assert!(price.seconds > 0.0 && price.seconds < price.step && price.share() < 1.0, "{price:?}");
    assert_eq!((price.run.map(|it| it.seconds), price.nodes), (Some(2441.0), 2));
    // Two nodes for 2441 seconds, at 30 an hour.
    let whole = 2441.0 / 3600.0 * 2.0 * 30.0;
    assert!((price.money(30.0) - whole * price.share()).abs() < 1e-9);
    // Host memory inside the nodes is slower than the network: GPUDirect alone would change nothing.
    let gpudirect =
        |log: &crate::Log| crate::find("gpudirect-off").unwrap().log().unwrap()(log).unwrap()[0].price;
    assert_eq!(gpudirect(&log), None);
    let nvlink = text.replace("SHM/direct/direct", "P2P/CUMEM/read");
    let log = read(&nvlink).with_training(json!({ "run": { "seq": 512 } }));
    assert!(gpudirect(&log).is_some_and(|it| it.share() > 0.1 && it.share() < 0.9));
}

#[test]
fn the_start_of_a_run_is_not_what_a_finding_costs() {
    let rule = crate::find("nvlink-unused").unwrap();
    let price = |more: &str, run: Value| {
        let log = read(&format!("{P4D}{TRAINER}{more}")).with_training(json!({ "run": run }));
        rule.log().unwrap()(&log).unwrap()[0].price.expect("the job is known")
    };
    let lost = |it: &super::Price| it.seconds * 50.0 * 2.0 / 3600.0 * 30.0;
    let [none, short, long] = [0, 133, 5000].map(|it| price("", json!({ "seq": 512, "startup_s": it })));
    for (startup, it) in [(0.0, none), (133.0, short), (5000.0, long)] {
        assert!((it.money(30.0) - lost(&none)).abs() < 1e-6, "{it:?}");
        let share = it.seconds * 50.0 / (startup + 50.0 * it.step);
        assert!(it.share_of_run().is_some_and(|it| (it - share).abs() < 1e-9), "{it:?}");
    }
    // So it is where the log has the time of the run, and that of steps beside it.
    let line = |it: u32| format!("iter {it}: loss 2.1, time 40000.00ms\n");
    let steps = (1..=50).map(line).collect::<Vec<_>>().concat();
    let it = price(&format!("{steps}{{'train_runtime': 2500.0}}\n"), json!({ "seq": 512 }));
    assert!((it.step - 40.0).abs() < 1e-9 && (it.money(30.0) - lost(&it)).abs() < 1e-6, "{it:?}");
    assert!(it.share_of_run().is_some_and(|share| (share - 0.8 * it.share()).abs() < 1e-9), "{it:?}");
    // A run that goes on from a checkpoint has no more steps than it took time for.
    let it = price(&format!("{steps}{{'train_runtime': 400.0}}\n"), json!({ "seq": 512 }));
    assert_eq!(it.run.map(|it| it.steps), Some(10.0));
}

#[test]
fn fewer_channels_have_a_price() {
    let slow = p4d(2, "NCCL_MAX_NCHANNELS", "2");
    let found = findings(&fewer_channels::RULE, &format!("{slow}{MEGATRON}"));
    let price = found[0].price.expect("Megatron prints all that a step needs");
    assert!(price.seconds > 0.0 && price.share() < 1.0 && price.nodes == 2, "{price:?}");
    // Without the arguments there is no step to price.
    assert_eq!(findings(&fewer_channels::RULE, &slow)[0].price, None);
    let found =
        findings(&nic_without_ring::RULE, &format!("{}{MEGATRON}", p4d(4, "NCCL_NET_GDR_LEVEL", "LOC")));
    assert!(found[0].price.is_some_and(|it| it.seconds > 0.0), "{found:?}");
}

#[test]
fn a_flag_counts_more_than_log_and_file() {
    let mut logged = logged(&format!("{P4D}{MEGATRON}"));
    let file = json!({ "cluster": { "instance": "p4d.24xlarge" }, "run": { "seq": 1024 } });
    logged.set("cluster.nodes", 4.into());
    logged.set("cluster.inter.gbps", 100.into());
    logged.set("run.seq", 4096.into());
    let tables = logged.job(&file).expect("all is known").tables;
    assert_eq!((&tables["cluster"]["nodes"], &tables["run"]["seq"]), (&json!(4), &json!(4096)));
    assert_eq!(tables["cluster"]["inter"], json!({ "gbps": 100 }));
}

/// A pod of one GPU and one NIC: its connections use GPUDirect, the ring does not.
const POD: &str = "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n\
    a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
    a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0\n\
    a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA\n\
    a:1:2 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 0\n";

#[test]
fn a_ring_has_the_speed_of_the_rank_without_gpudirect() {
    let cases = [(POD.to_owned(), false), (POD.replace("GDR 0", "GDR 1"), true)];
    for (text, gpudirect) in cases {
        let logged = logged(&text);
        assert_eq!(logged.paths.gpudirect.as_ref().map(|it| it.value), Some(gpudirect), "{text}");
        assert_eq!(logged.notes.iter().any(|it| it.contains("GDR 0")), !gpudirect);
    }
}

#[test]
fn pods_of_a_file_or_flag_make_the_ranks_of_the_log() {
    let text = format!("{POD}{TRAINER}");
    let job = |file: &Value, flags: &[(&str, Value)]| {
        let mut logged = logged(&text);
        for (key, value) in flags {
            logged.set(key, value.clone());
        }
        logged.job(file).map(|it| (it.job.cluster.nodes, it.job.cluster.pods, it.job.cluster.gpus))
    };
    let file = |pods: &str| json!({ "cluster": { "pods": pods }, "run": { "seq": 512 } });
    assert_eq!(job(&file("4x1"), &[]), Ok((1, 4, 1)));
    assert_eq!(job(&file("1x1"), &[]), Ok((4, 1, 1)));
    let flags = [("cluster.pods", json!("2x1")), ("run.seq", json!(512))];
    assert_eq!(job(&Value::Null, &flags), Ok((2, 2, 1)));
    // The same four ranks are not sixteen, unless somebody asks for sixteen.
    let wrong = NoJob::Ranks { ranks: 4, job: 16, nodes: 4, pods: (1, 4) };
    assert_eq!(job(&file("1x4"), &[]), Err(wrong));
    assert_eq!(job(&file("1x4"), &[("cluster.nodes", json!(4))]), Ok((4, 1, 4)));
}
