//! The model of training: what must hold for every job, and how far it is from published runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use forecast::training::{Calibration, Job, Kind, Precision, Predictor, Step};
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Just;

#[path = "../examples/training/main.rs"]
mod training;

use training::rows::{self, Row};

fn step(job: &Job) -> Step {
    let calibration = Calibration::published();
    Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap()
}

fn broken(job: &Job) -> String {
    let calibration = Calibration::published();
    Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap_err().to_string()
}

fn job(run: &str) -> Job {
    let text = format!(
        "[model]\nname = 'llama-3-8b'\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 4\nintra = 'nvlink3'\n\
         inter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\nglobal_batch = 256\n{run}\n"
    );
    Job::read(&text).unwrap()
}

fn layout() -> impl Strategy<Value = String> {
    let framework = prop_oneof![Just("megatron"), Just("fsdp"), Just("deepspeed")];
    let parts = (0_u32..4, 0_u32..3, 0_u32..3, framework, 0_u32..3, prop_oneof![Just("none"), Just("full")]);
    parts.prop_map(|(tp, pp, batch, framework, zero, recompute)| {
        let (pp, zero) = if framework == "megatron" { (1 << pp, zero.min(1)) } else { (1, zero + 1) };
        format!(
            "framework = '{framework}'\ntp = {}\npp = {pp}\nzero = {zero}\nmicro_batch = {}\nrecompute = '{recompute}'",
            1 << tp,
            1 << batch
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_bandwidth_is_never_slower(run in layout()) {
        let job = job(&run);
        let mut last = f64::INFINITY;
        for gbps in ["25", "100", "400"] {
            let now = step(&job.with(&format!("gbps={gbps}")).unwrap()).time.0;
            prop_assert!(now <= last, "{gbps} Gbps: {now} s after {last} s");
            last = now;
        }
        let direct = |it| step(&job.with(it).unwrap()).time.0;
        prop_assert!(direct("gpudirect=true") <= direct("gpudirect=false"));
        prop_assert!(direct("network=infiniband") <= direct("network=tcp"));
    }

    #[test]
    fn more_work_is_never_faster(run in layout()) {
        let job = job(&run);
        let base = step(&job);
        for change in ["layers=64", "seq=4096", "global_batch=512"] {
            prop_assert!(step(&job.with(change).unwrap()).time.0 > base.time.0, "{}", change);
        }
        let full = step(&job.with("recompute=full").unwrap());
        let none = step(&job.with("recompute=none").unwrap());
        prop_assert!(full.time.0 > none.time.0);
        prop_assert!(full.memory.activations.0 < none.memory.activations.0);
    }

    #[test]
    fn parts_add_up_and_the_interval_has_the_time(run in layout()) {
        let job = job(&run);
        let step = step(&job);
        let sum: f64 = Kind::ALL.iter().map(|it| step.breakdown[*it].exposed.0).sum();
        prop_assert!((sum - step.time.0).abs() < 1e-9 * step.time.0);
        prop_assert!(step.interval.0.0 < step.time.0 && step.time.0 < step.interval.1.0);
        prop_assert!(step.mfu > 0.0 && step.mfu < 1.0, "{}", step.mfu);
        for kind in Kind::ALL {
            prop_assert!(step.breakdown[kind].exposed.0 >= 0.0 && step.breakdown[kind].hidden.0 >= 0.0);
        }
        // A second prediction is the same.
        prop_assert_eq!(step, self::step(&job));
    }
}

#[test]
fn equal_jobs_take_equal_time() {
    // A pod for each node is what a node without pods is.
    let whole = job("zero = 1");
    assert_eq!(step(&whole), step(&whole.with("pods=1x8").unwrap()));
    // One micro-batch of 2 sequences on each rank, on twice as many nodes with twice the batch: as long, but for the network.
    let small = step(&job("zero = 1\nmicro_batch = 2\ntp = 8"));
    let large = step(
        &job("zero = 1\nmicro_batch = 2\ntp = 8").with("nodes=8").unwrap().with("global_batch=512").unwrap(),
    );
    assert!((large.time.0 / small.time.0 - 1.0).abs() < 0.05);
    assert!(
        (small.breakdown[Kind::Matrices].exposed.0 - large.breakdown[Kind::Matrices].exposed.0).abs() < 1e-12
    );
}

#[test]
fn nonsense_names_the_rule_it_breaks() {
    let many = "[model]\nname = 'mixtral-8x7b'\nexperts_per_token = 9\n[cluster]\ninstance = 'p5.48xlarge'\n";
    assert!(broken(&Job::read(many).unwrap()).contains("experts_per_token"));
    for (run, rule) in [
        ("tp = 3", "32 heads are not a multiple of tp = 3"),
        ("global_batch = 0", "`global_batch` is 0"),
        ("micro_batch = 7", "sequences of a step"),
        ("pp = 64", "pp = 64 is more than layers = 32"),
        ("vpp = 2", "`vpp` needs pipeline stages"),
        ("zero = 4", "zero = 4 is more than the last stage of ZeRO = 3"),
        ("framework = 'deepspeed'\nzero = 3\npp = 2", "ZeRO-2 and ZeRO-3 have no pipeline stages"),
        ("framework = 'deepspeed'\nzero = 2\npp = 2", "ZeRO-2 and ZeRO-3 have no pipeline stages"),
        ("framework = 'ddp'\nzero = 1", "DDP keeps all states on every rank"),
        ("ep = 2", "`ep` needs a mixture of experts"),
        ("cp = 3", "tokens of a sequence"),
        ("cp = 4\nseq = 2052", "2052 tokens of a sequence are not a multiple of 2 x cp = 8"),
        ("offload = { params = true }", "offloading parameters needs `zero` = 3"),
    ] {
        let run = if run.contains("global_batch") { run.to_owned() } else { format!("{run}\n") };
        let text = broken_job(&run);
        assert!(text.contains(rule), "{run}: {text}");
    }
    // 7 GPUs.
    let seven = job("tp = 2").with("pods=1x7").unwrap().with("nodes=1").unwrap();
    assert!(broken(&seven).contains("7 GPUs are not a multiple of tp x pp x cp = 2"), "{}", broken(&seven));
}

fn broken_job(run: &str) -> String {
    let batch = if run.contains("global_batch") { "" } else { "global_batch = 256\n" };
    let text = format!(
        "[model]\nname = 'llama-3-8b'\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 4\n\
         inter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\n{batch}{run}\n"
    );
    broken(&Job::read(&text).unwrap())
}

#[test]
fn unknown_keys_get_a_suggestion() {
    let read = |text: &str| Job::read(text).unwrap_err().to_string();
    let cluster = "[cluster]\ninstance = 'p5.48xlarge'\n";
    for (text, wanted) in [
        (format!("[model]\nlayer = 32\n{cluster}"), "[model] has no key `layer`: did you mean `layers`?"),
        (format!("[modle]\nlayers = 32\n{cluster}"), "the job has no key `modle`: did you mean `model`?"),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\nmicrobatch = 1"),
            "[run] has no key `microbatch`: did you mean `micro_batch`?",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\nprecision = 'int4'"),
            "`precision` in [run] is `int4`: it must be fp16, bf16 or fp8",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\ntp = -1"),
            "`tp` in [run] is -1: it must be a whole number from 0 to 4294967295",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\ntp = 'two'"),
            "`tp` in [run] is \"two\": it must be a whole number from 0 to 4294967295",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}inter = 'efa'"),
            "`inter` in [cluster] is \"efa\": it must be a table, as in { kind = \"efa\", nics = 4, gbps = 100 }",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\noffload = true"),
            "`offload` in [run] is true: it must be a table, as in { params = false, optimizer = true }",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\nstartup_s = nan"),
            "`startup_s` in [run] is not a number: it must be a number from 0 to 1e9",
        ),
        (
            format!("[model]\nname = 'llama-3-8b'\n{cluster}[run]\nsteps = 0"),
            "`steps` in [run] is 0: it must be at least 1",
        ),
        ("[model]\nname = 'llama-3-8b'\n".to_owned(), "the job has no [cluster] table"),
        (
            "[model]\nname = 'llama-3-8b'\n[cluster]\ngpu = 'H1000'\ngpus_per_node = 8".to_owned(),
            "plumb knows no GPU `H1000`",
        ),
    ] {
        assert_eq!(read(&text), wanted);
    }
    // JSON with the same keys.
    let json =
        r#"{"model": {"name": "llama-3-8b"}, "cluster": {"instance": "p5.48xlarge"}, "run": {"tp": 8}}"#;
    assert_eq!(Job::read(json).unwrap().run.tp, 8);
}

/// Of one family: mean absolute error of the time.
fn mean(rows: &[Row], family: &str) -> f64 {
    training::page::errors(&training::page::pairs(rows, family, &Calibration::published())).unwrap().mean
}

#[test]
fn published_runs_are_met() {
    let rows = rows::published();
    for (family, most) in [
        ("sc21_t1", 0.08),
        ("korthikanti", 0.08),
        ("vtrain_multi", 0.08),
        ("vtrain_single", 0.09),
        ("bigscience_a100", 0.08),
        ("llmfoundry", 0.08),
        ("mbridge", 0.09),
        ("mbridge_moe", 0.22),
        ("simumax_moe", 0.08),
    ] {
        let mean = mean(&rows, family);
        assert!(mean < most, "{family}: {mean}");
    }
}

#[test]
fn runs_that_no_fit_saw_are_met() {
    let rows = rows::unseen();
    for (family, most) in [("torchtitan", 0.10), ("fms", 0.08), ("sc21_t2", 0.08), ("bigscience_v100", 0.13)]
    {
        let mean = mean(&rows, family);
        assert!(mean < most, "{family}: {mean}");
    }
    // BF16 alone: compiled losses of FP8 keep less than those of 2024.
    let calibration = Calibration::published();
    for row in rows.iter().filter(|it| it.memory.is_some() && it.job.run.precision == Precision::Bf16) {
        let (measured, predicted) =
            (row.memory.unwrap(), row.predict(&calibration).unwrap().memory.total().0);
        assert!((predicted / measured - 1.0).abs() < 0.05, "{}: {predicted} GiB", row.id);
    }
}

#[test]
fn zero_3_of_2021_gathers_each_tensor_alone() {
    let of = |more: &str| {
        let text = format!(
            "[model]\nlayers = 96\nhidden = 12288\nheads = 96\nvocab = 51200\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 192\n\
             intra = 'nvlink3'\ninter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\nframework = 'deepspeed'\nzero = 3\n\
             seq = 2048\nglobal_batch = 1536\nrecompute = 'full'\n{more}\n"
        );
        Job::read(&text).unwrap()
    };
    let (early, current) = (of("precision = 'fp16'"), of("precision = 'fp16'\nlibraries = 'current'"));
    let gathers = |job: &Job| step(job).breakdown[Kind::Gather].exposed.0;
    assert!(gathers(&early) > 3.0 * gathers(&current), "{} {}", gathers(&early), gathers(&current));
    // With the bandwidth of NVLink between nodes, the parts of 1536 ranks still take their time.
    assert!(gathers(&early.with("gbps=4000").unwrap()) > 5.0);
    assert!(early.notes.iter().any(|it| it.contains("DeepSpeed and CUDA of 2021")), "{:?}", early.notes);
    assert!(current.notes.iter().all(|it| !it.contains("2021")), "{:?}", current.notes);
    assert_eq!(step(&of("precision = 'bf16'")).breakdown, step(&current).breakdown);
}

#[test]
fn fsdp_with_stages_communicates_once_a_step() {
    let of = |pp: u32, batch: u32| {
        let job = job(&format!("framework = 'fsdp'\npp = {pp}\ntp = 2\noverlap = false"));
        step(&job.with(&format!("global_batch={batch}")).unwrap())
    };
    let comm = |it: &Step| it.breakdown[Kind::Gather].exposed.0 + it.breakdown[Kind::Gradients].exposed.0;
    let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
    assert!(same(comm(&of(2, 512)), comm(&of(2, 256))));
    assert!(same(comm(&of(1, 512)), 2.0 * comm(&of(1, 256))));
    // It keeps whole gradients and parameters for that.
    assert!(of(2, 256).memory.gradients.0 > 3.0 * of(1, 256).memory.gradients.0);
}

#[test]
fn measured_memory_is_met_and_none_that_was_exceeded_fits() {
    let rows = rows::published();
    let calibration = Calibration::published();
    let memory = |it: &Row| it.predict(&calibration).unwrap().memory;
    for family in ["bigscience_a100", "simumax_b200", "simumax_moe", "titan-h200"] {
        let of = |it: &Row| Some((it.memory?, memory(it).total().0));
        let pairs: Vec<_> = rows.iter().filter(|it| it.family == family).filter_map(of).collect();
        let mean = training::page::errors(&pairs).unwrap().mean;
        assert!(mean < 0.06, "{family}: {mean}");
    }
    assert!(rows.iter().any(|it| it.out_of_memory));
    for row in rows.iter().filter(|it| it.out_of_memory) {
        assert!(!memory(row).fits(), "{}", row.id);
    }
    // What ran is not refused, but for one run that took 75 of 79 GiB.
    let refused = rows.iter().filter(|it| it.memory.is_some() && !memory(it).fits()).count();
    assert!(refused <= 1, "{refused} runs that fitted are refused");
    let tight = rows.iter().filter(|it| it.memory.is_some() && memory(it).is_tight()).count();
    assert!(tight > 0 && tight < 10, "{tight}");
}

/// Megatron's buffer of gradients has the precision in which they are reduced.
#[test]
fn gradients_that_are_reduced_in_16_bits_take_half_the_memory() {
    let of = |dtype: &str| {
        let text = format!(
            "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = 4\n[run]\ntp = 2\nzero = 1\noverlap = false\nseq = 4096\nglobal_batch = 64\n{dtype}"
        );
        step(&Job::read(&text).unwrap())
    };
    let (half, whole, silent) = (of("reduce_dtype = 'bf16'"), of("reduce_dtype = 'fp32'"), of(""));
    let [a, b, c] = [&half, &whole, &silent].map(|it| it.memory.gradients.0);
    assert!((b / a - 2.0).abs() < 1e-9);
    assert!(half.time.0 < whole.time.0);
    // What is not known takes room for FP32.
    assert!((c - b).abs() < 1e-9 && silent.time.0 < whole.time.0);
}

#[test]
fn models_of_transformers_are_met() {
    let (times, memory) = training::page::predicted_passes(&Calibration::published());
    let (times, memory) = (training::page::errors(&times).unwrap(), training::page::errors(&memory).unwrap());
    assert!(times.count > 30 && times.mean < 0.05, "{} of {}", times.mean, times.count);
    assert!(memory.mean < 0.03, "{}", memory.mean);
}

#[test]
fn the_page_of_accuracy_is_that_of_these_constants() {
    let calibration = Calibration::published();
    let page = include_str!("../../../docs/accuracy-training.md");
    for rows in [rows::published(), rows::unseen(), rows::later()] {
        for family in rows::families(&rows) {
            let Some(it) = training::page::errors(&training::page::pairs(&rows, family, &calibration)) else {
                continue;
            };
            let line = format!(
                "| {family} | {} | {:.1} % | {:+.1} % |",
                it.count,
                100.0 * it.mean,
                100.0 * it.worst
            );
            assert!(page.contains(&line), "make the page again: {line}");
        }
    }
}

#[test]
fn experts_cost_what_their_tokens_do() {
    let moe = |more: &str| {
        let text = format!(
            "[model]\nname = 'qwen3-235b-a22b'\n[cluster]\ngpu = 'H100-80GB'\ngpus_per_node = 8\nnodes = 32\nintra = 'nvlink4'\n\
             inter = {{ kind = 'infiniband', nics = 8, gbps = 400 }}\n[run]\nglobal_batch = 2048\nseq = 4096\npp = 8\ntp = 2\n\
             zero = 1\nsequence_parallel = true\n{more}\n"
        );
        Job::read(&text).unwrap()
    };
    let (inside, across) = (step(&moe("ep = 4")), step(&moe("ep = 32")));
    let expert = |it: &Step| it.breakdown[Kind::Expert].exposed.0;
    assert!(expert(&across) > 1.5 * expert(&inside), "tokens that leave the node take longer");
    assert!(across.memory.weights.0 < inside.memory.weights.0, "more ranks hold fewer experts");
    // NCCL's all-to-all over EFA sends a token once for each expert, and the CPU waits for counts.
    let efa = step(&moe("ep = 32").with("network=efa").unwrap());
    assert!(expert(&efa) > expert(&across) && efa.breakdown[Kind::Launch].exposed.0 > 0.0);
}

#[test]
fn groups_without_a_nic_of_their_own_are_slower() {
    // Two groups of four GPUs on each node, or eight of one: the bytes of gradients through the NICs of a node are the same.
    let gradients = |gpu: &str, intra: &str, nics: u32, tp: u32| {
        let text = format!(
            "[model]\nname = 'llama-3-8b'\n[cluster]\ngpu = '{gpu}'\ngpus_per_node = 8\nnodes = 8\nintra = '{intra}'\n\
             inter = {{ kind = 'infiniband', nics = {nics}, gbps = 200 }}\n[run]\nframework = 'megatron'\nglobal_batch = 512\n\
             seq = 2048\noverlap = false\ntp = {tp}\n"
        );
        step(&Job::read(&text).unwrap()).breakdown[Kind::Gradients].exposed.0
    };
    let share = |gpu, intra, nics| gradients(gpu, intra, nics, 2) / gradients(gpu, intra, nics, 8);
    let (far, near) = (share("A100-80GB", "nvlink3", 4), share("A100-80GB", "nvlink3", 8));
    assert!(far > 2.0 * near, "{far} and {near}: two GPUs share a NIC, and a group has only one of them");
    assert!(share("H100-80GB", "nvlink4", 4) < 1.5 * near, "nothing published shows it on Hopper");
}

#[test]
fn more_nics_are_never_slower() {
    for (gpu, intra) in [("A100-80GB", "nvlink3"), ("H100-80GB", "nvlink4")] {
        for run in [
            "tp = 4\nzero = 1",
            "tp = 2\npp = 2",
            "tp = 2\nframework = 'fsdp'",
            "tp = 1\nframework = 'deepspeed'\nzero = 3",
        ] {
            for gbps in [100, 200, 400] {
                let times: Vec<f64> = (1..=8)
                    .map(|nics| {
                        let text = format!(
                            "[model]\nname = 'llama-3-8b'\n[cluster]\ngpu = '{gpu}'\ngpus_per_node = 8\nnodes = 4\nintra = '{intra}'\n\
                             inter = {{ kind = 'infiniband', nics = {nics}, gbps = {gbps} }}\n[run]\nglobal_batch = 256\n{run}\n"
                        );
                        step(&Job::read(&text).unwrap()).time.0
                    })
                    .collect();
                assert!(times.is_sorted_by(|a, b| a >= b), "{gpu}, {gbps} Gbps, {run}: {times:?}");
            }
        }
    }
}

#[test]
fn only_what_is_divided_over_ranks_is_offloaded_with_the_optimizer() {
    let of = |run: &str| step(&job(&format!("{run}\noffload = {{ optimizer = true }}\nmicro_batch = 1")));
    let bytes = |run: &str| of(run).memory.gradients.0 * 1024_f64.powi(3) / 8.03e9;
    // Megatron adds up in FP32, ZeRO-1 in 16 bits, both whole; ZeRO-2 and ZeRO-3 move their part to the host.
    assert!((bytes("zero = 1") - 4.0).abs() < 0.01, "{}", bytes("zero = 1"));
    assert!((bytes("framework = 'deepspeed'\nzero = 1") - 2.0).abs() < 0.01);
    assert!(
        bytes("framework = 'deepspeed'\nzero = 2") == 0.0
            && bytes("framework = 'deepspeed'\nzero = 3") == 0.0
    );
    // What is copied once a step does not grow with the number of micro-batches.
    let copies = |run: &str, batch: u32| {
        let job = job(&format!("{run}\noffload = {{ optimizer = true }}"));
        step(&job.with(&format!("global_batch={batch}")).unwrap()).breakdown[Kind::Pcie].exposed.0
    };
    assert_eq!(copies("zero = 1", 256).to_bits(), copies("zero = 1", 1024).to_bits());
    assert!(
        copies("framework = 'deepspeed'\nzero = 3", 1024)
            > 2.0 * copies("framework = 'deepspeed'\nzero = 3", 256)
    );
}

#[test]
fn fsdp_keeps_what_it_gathered_once_in_16_bits() {
    let of = |zero: u32| {
        let text = format!(
            "[model]\nname = 'llama-2-7b'\n[cluster]\ninstance = 'p4d.24xlarge'\nnodes = 4\n[run]\nframework = 'fsdp'\nzero = {zero}\nseq = 4096\nmicro_batch = 4\nglobal_batch = 128\nrecompute = 'full'\n"
        );
        step(&Job::read(&text).unwrap()).memory
    };
    let (kept, sharded) = (of(2), of(3));
    // A thirty-second of FP32 on each rank, and with ZeRO-2 all of it in 16 bits from the forward pass on.
    let shard = 6.74e9 * 4.0 / 32.0 / 1024_f64.powi(3);
    assert!((kept.weights.0 / shard - 1.0).abs() < 0.01 && kept.weights == sharded.weights, "{kept:?}");
    let more = kept.total().0 - sharded.total().0;
    assert!((8.0..14.0).contains(&more), "{more} GiB");
    assert!(kept.most.0 < 40.0, "{kept:?}");
}

#[test]
fn experts_may_be_split_as_the_rest_is() {
    let of = |run: &str| {
        let text = format!(
            "[model]\nname = 'mixtral-8x7b'\n[cluster]\ngpu = 'H100-80GB'\ngpus_per_node = 8\nnodes = 4\nintra = 'nvlink4'\n\
             inter = {{ kind = 'infiniband', nics = 8, gbps = 400 }}\n[run]\nglobal_batch = 256\nzero = 1\npp = 2\ntp = 4\nep = 4\nsequence_parallel = true\n{run}\n"
        );
        Job::read(&text).unwrap()
    };
    let (whole, split) = (step(&of("")), step(&of("etp = 4")));
    // Experts are 45.1 of 46.7 billion parameters, and these are divided by four once more.
    let ratio = whole.memory.weights.0 / split.memory.weights.0;
    assert!((3.0..4.0).contains(&ratio), "{ratio}");
    assert!(split.breakdown[Kind::Tensor].exposed.0 > 1.5 * whole.breakdown[Kind::Tensor].exposed.0);
    let half = step(&of("etp = 2")).memory.weights.0;
    assert!(half > split.memory.weights.0 && half < whole.memory.weights.0, "{half}");
    assert!(broken(&of("etp = 3")).contains("etp"));
    let alone =
        "[model]\nname = 'mixtral-8x7b'\n[cluster]\ninstance = 'p5.48xlarge'\n[run]\ntp = 4\netp = 4\n";
    assert!(broken(&Job::read(alone).unwrap()).contains("without `ep`"));
    step(&of("etp = 4").with("ep=1").unwrap());
    // What follows `tp` still does.
    step(&of("etp = 4").with("tp=2").unwrap());
}

#[test]
fn overlapped_exchanges_of_tokens_need_what_megatron_asks_for() {
    let of = |run: &str| {
        let text = format!(
            "[model]\nname = 'mixtral-8x7b'\n[cluster]\ngpu = 'H100-80GB'\ngpus_per_node = 8\nnodes = 4\nintra = 'nvlink4'\n\
             inter = {{ kind = 'infiniband', nics = 8, gbps = 400 }}\n[run]\nglobal_batch = 256\nep = 8\nexpert_overlap = true\n{run}\n"
        );
        Job::read(&text).unwrap()
    };
    step(&of("pp = 2\nvpp = 2"));
    assert!(broken(&of("pp = 2")).contains("interleaved stages"));
    assert!(broken(&of("recompute = 'full'")).contains("full recomputation"));
}

#[test]
fn the_notes_are_met_without_a_fit() {
    let offload =
        "framework = 'deepspeed'\nzero = 3\noffload = { params = true, optimizer = true }\nseq = 512\n";
    let g6e = format!(
        "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'g6e.12xlarge'\nnodes = 4\n[run]\n{offload}micro_batch = 4\nglobal_batch = 256"
    );
    let efa = Job::read(&g6e).unwrap();
    let eni = efa.with("network=eni").unwrap();
    for (job, measured) in [(&efa, 46.16), (&eni, 105.5)] {
        let time = step(job).time.0;
        assert!((time / measured - 1.0).abs() < 0.1, "{time} s, measured {measured} s");
    }
    assert_eq!(step(&eni).breakdown.bottleneck(), Kind::Gather);
    // One pod of four GPUs is slower than four pods of one: torchrun gives each of its processes one CPU thread.
    let p4d = format!(
        "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'p4d.24xlarge'\npods = '1x4'\n[run]\n{offload}global_batch = 16\nrecompute = 'full'"
    );
    let one = Job::read(&p4d).unwrap();
    let four = one.with("pods=4x1").unwrap();
    assert!(step(&one).time.0 > step(&four).time.0);
    assert_eq!(step(&one).breakdown.bottleneck(), Kind::CpuOptimizer);
    // Measured: 33.3 and 31.2 s. The log of the four pods says that their ring had no GPUDirect.
    let four = four.with("gpudirect=false").unwrap();
    for (job, measured) in [(&one, 33.3), (&four, 31.2)] {
        let time = step(job).time.0;
        assert!((time / measured - 1.0).abs() < 0.1, "{time} s, measured {measured} s");
    }
    assert!(step(&one).time.0 > step(&four).time.0);
}

#[test]
fn the_bottleneck_is_not_smaller_than_another_part() {
    // Data parallelism over few samples: reducing gradients takes longer than the optimizer.
    let text = "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'p4d.24xlarge'\nnodes = 2\n[run]\nframework = 'ddp'\nseq = 512\nglobal_batch = 16\n";
    let parts = step(&Job::read(text).unwrap()).breakdown;
    assert_eq!(parts.bottleneck(), Kind::Gradients);
    assert!(parts[Kind::Optimizer].exposed.0 > parts[Kind::Matrices].exposed.0, "{parts:?}");
}

#[test]
fn a_measured_out_of_memory_does_not_fit() {
    // BigScience, chronicles-prequel: 181 B on 384 A100-80GB, TP 2, PP 6, DP 32, micro-batch 2.
    let text = "[model]\nlayers = 72\nhidden = 14336\nheads = 64\nvocab = 250880\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 48\n\
                intra = 'nvlink3'\ninter = { kind = 'infiniband', nics = 4, gbps = 100 }\n[run]\ntp = 2\npp = 6\nzero = 1\nmicro_batch = 2\n\
                global_batch = 2048\nrecompute = 'full'\nflash_attention = false\n";
    assert!(!step(&Job::read(text).unwrap()).memory.fits());
}

#[test]
fn huge_numbers_are_no_crash() {
    let most = u32::MAX;
    for key in ["layers", "hidden", "heads", "ffn", "vocab", "experts", "shared_experts", "experts_per_token"]
    {
        let text = format!(
            "[model]\nname = 'llama-3-8b'\n{key} = {most}\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = {most}\n[run]\nseq = {most}\nglobal_batch = {most}\n"
        );
        if let Ok(job) = Job::read(&text) {
            let calibration = Calibration::published();
            let _ = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run);
        }
    }
    for key in ["tp", "pp", "vpp", "cp", "ep", "micro_batch"] {
        let job = job(&format!("{key} = {most}"));
        let calibration = Calibration::published();
        assert!(Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).is_err(), "{key}");
    }
}
