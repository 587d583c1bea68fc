//! The search for the best layout: what must hold for every job.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use forecast::plan::{AS_FAST, Choice, Fixed, Found, JobFile, Plan, Search, Space};
use forecast::training::{Calibration, Job, Predictor, Run};
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Just;

fn fixed(all: &[&str]) -> Fixed {
    let mut fixed = Fixed::default();
    for it in all {
        fixed.add(it).unwrap();
    }
    fixed
}

fn text(model: &str, gpu: &str, nodes: u32, run: &str) -> String {
    format!(
        "[model]\nname = '{model}'\n[cluster]\ngpu = '{gpu}'\ngpus_per_node = 8\nnodes = {nodes}\nintra = 'nvlink3'\n\
         inter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\n{run}\n"
    )
}

fn job(model: &str, gpu: &str, nodes: u32, run: &str) -> Job {
    Job::read(&text(model, gpu, nodes, run)).unwrap()
}

fn search(job: &Job, pins: &Fixed) -> Option<Plan> {
    let space = Space::new(job, pins, None).ok()?;
    let calibration = Calibration::published();
    let search = Search::new(&calibration, &space, 0.0);
    Some(Plan::new(&search, &search.all(), None))
}

fn plan(job: &Job, pins: &Fixed) -> Plan {
    search(job, pins).unwrap()
}

/// The run as a file that says nothing of software is read: the search says what it takes.
fn said_by_files(run: &Run) -> Run {
    Run { libraries: None, launch_blocking: None, with_deepspeed: None, ..*run }
}

fn best(job: &Job) -> Option<Choice> {
    plan(job, &Fixed::default()).best
}

fn some_job() -> impl Strategy<Value = (String, u32, String)> {
    let model =
        prop_oneof![Just("llama-3-8b"), Just("llama-2-13b"), Just("mixtral-8x7b"), Just("qwen2.5-7b")];
    let framework = prop_oneof![Just("megatron"), Just("deepspeed"), Just("fsdp")];
    (
        model,
        prop_oneof![Just(1_u32), Just(2), Just(3)],
        framework,
        prop_oneof![Just(48_u32), Just(96), Just(192)],
    )
        .prop_map(|(model, nodes, framework, batch)| {
            (model.to_owned(), nodes, format!("framework = '{framework}'\nglobal_batch = {batch}"))
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_fits_is_faster_than_the_best((model, nodes, run) in some_job()) {
        let job = job(&model, "A100-80GB", nodes, &run);
        let Some(best) = best(&job) else { return Ok(()) };
        let space = Space::new(&job, &Fixed::default(), None).unwrap();
        let calibration = Calibration::published();
        let predictor = Predictor::new(&calibration, &job.model, &job.cluster);
        let (mut count, mut fastest, mut smaller) = (0, f64::INFINITY, None);
        for cell in space.cells() {
            space.each(cell, |run| {
                let step = predictor.step(run).unwrap();
                if step.memory.fits() {
                    count += 1;
                    fastest = fastest.min(step.time.0);
                    let same = Run { micro_batch: best.run.micro_batch, ..*run } == best.run;
                    if same && run.micro_batch < best.run.micro_batch && step.time.0 <= best.step.time.0 {
                        smaller = Some(*run);
                    }
                }
            });
        }
        let plan = plan(&job, &Fixed::default());
        let most = fastest * (1.0 + AS_FAST);
        prop_assert!(fastest <= best.step.time.0 && best.step.time.0 <= most, "{fastest} {}", best.step.time.0);
        prop_assert!(smaller.is_none(), "{:?} is smaller than {:?}", smaller, best.run);
        prop_assert_eq!(count, plan.fitting);
        for other in &plan.runners_up {
            prop_assert!(other.ratio >= 1.0 && other.choice.fits);
            prop_assert!(other.ratio < 1.02 || !other.reasons.is_empty(), "{:?}", other.choice.run);
        }
        // Each of the front needs less memory and more time than the one before.
        for pair in plan.front.windows(2) {
            prop_assert!(pair[1].step.memory.total().0 < pair[0].step.memory.total().0);
            prop_assert!(pair[1].step.time.0 > pair[0].step.time.0);
        }
        prop_assert_eq!(plan.front.first().map(|it| it.step.time.0), Some(best.step.time.0));
    }

    #[test]
    fn more_memory_is_never_worse((model, nodes, run) in some_job()) {
        let small = job(&model, "A100-40GB", nodes, &run);
        // The same GPU with twice the memory, and nothing else.
        let mut large = small.clone();
        large.cluster.gpu.memory.0 *= 2.0;
        let (small, large) = (best(&small), best(&large));
        if let Some(small) = small {
            prop_assert!(large.unwrap().step.time.0 <= (1.0 + AS_FAST) * small.step.time.0);
        }
    }

    #[test]
    fn less_to_choose_from_is_never_better((model, nodes, run) in some_job(), micro_batch in 1_u32..3) {
        let job = job(&model, "A100-80GB", nodes, &run);
        // A batch of 48 cannot be split over 16 GPUs in twos.
        let Some(pinned) = search(&job, &fixed(&[&format!("micro_batch={micro_batch}")])) else { return Ok(()) };
        if let Some(pinned) = pinned.best {
            prop_assert_eq!(pinned.run.micro_batch, micro_batch);
            prop_assert!(best(&job).unwrap().step.time.0 <= (1.0 + AS_FAST) * pinned.step.time.0);
        }
    }
}

#[test]
fn a_layout_that_is_fixed_whole_is_what_predict_says() {
    let own = "tp = 4\npp = 2\nvpp = 2\nzero = 1\nmicro_batch = 2\nglobal_batch = 128\nrecompute = 'full'\nsequence_parallel = true";
    let job = job("llama-3-8b", "A100-80GB", 4, own);
    let pins = [
        "tp=4",
        "pp=2",
        "vpp=2",
        "cp=1",
        "zero=1",
        "micro_batch=2",
        "recompute=full",
        "offload_optimizer=false",
    ];
    let plan = plan(&job, &fixed(&pins));
    assert_eq!(plan.searched, 1);
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap();
    let best = plan.best.unwrap();
    assert_eq!((said_by_files(&best.run), best.step), (job.run, step));
    assert!(plan.runners_up.is_empty() && plan.changes.is_empty());
}

#[test]
fn cells_can_be_merged_in_any_order() {
    let job = job("llama-3-8b", "A100-40GB", 4, "global_batch = 256");
    let space = Space::new(&job, &Fixed::default(), None).unwrap();
    let calibration = Calibration::published();
    let search = Search::new(&calibration, &space, 0.05);
    let forward = search.all();
    let backward = space.cells().iter().rev().map(|it| search.cell(it)).fold(Found::default(), Found::merge);
    assert_eq!(forward, backward);
    assert_eq!(forward.searched, space.layouts());
    // Memory that is kept free is not used.
    let limit = 0.95 * job.cluster.gpu.memory.0;
    assert!(forward.best().unwrap().memory.0 <= limit);
    assert!(forward.over().unwrap().memory.0 > limit);
}

#[test]
fn less_bandwidth_is_never_faster() {
    let job = job("llama-3-8b", "A100-80GB", 4, "global_batch = 256");
    let space = Space::new(&job, &Fixed::default(), None).unwrap();
    let calibration = Calibration::published();
    let search = Search::new(&calibration, &space, 0.0);
    let slow = search.with_bandwidth(0.8);
    for cell in space.cells() {
        space.each(cell, |run| {
            assert!(slow.step(run).unwrap().time.0 >= search.step(run).unwrap().time.0, "{run:?}");
        });
    }
    let plan = Plan::new(&search, &search.all(), Some((0.8, &slow, &slow.all())));
    let slower = plan.slower.unwrap();
    assert!(slower.time.0 >= plan.best.unwrap().step.time.0);
    if let Some(other) = slower.other {
        assert!(other.step.time.0 <= slower.time.0);
    }
}

#[test]
fn the_best_layout_as_a_job_file_is_predicted_the_same() {
    for run in [
        "global_batch = 192\nsteps = 10",
        "framework = 'deepspeed'\nglobal_batch = 192",
        "framework = 'fsdp'\nglobal_batch = 96",
    ] {
        let text = text("llama-3-8b", "A100-40GB", 4, run);
        let job = Job::read(&text).unwrap();
        let best = best(&job).unwrap();
        let again = Job::read(&JobFile::read(&text).unwrap().with(&best.run)).unwrap();
        assert_eq!(again.run, said_by_files(&best.run));
        let calibration = Calibration::published();
        let step = Predictor::new(&calibration, &again.model, &again.cluster).step(&again.run).unwrap();
        assert_eq!(step, best.step);
    }
}

#[test]
fn another_layout_runs_with_the_same_software() {
    // Without flash attention, Megatron with ZeRO is read as Megatron-DeepSpeed, which waits for each kernel.
    let run = "tp = 8\nglobal_batch = 256\nmicro_batch = 2\nflash_attention = false\nrecompute = 'full'";
    let text = text("llama-2-7b", "A100-80GB", 4, run);
    let job = Job::read(&text).unwrap();
    let calibration = Calibration::published();
    let time =
        |job: &Job| Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap().time.0;
    let sharded = job.with("zero=1").unwrap();
    assert!(time(&sharded) < 1.05 * time(&job), "{} {}", time(&sharded), time(&job));
    let read = Job::read(&format!("{text}zero = 1\n")).unwrap();
    assert!(time(&read) > 1.1 * time(&job), "{} {}", time(&read), time(&job));
    // The written file says what would be read otherwise.
    for run in [sharded.run, read.with("zero=0").unwrap().run] {
        let again = Job::read(&JobFile::read(&text).unwrap().with(&run)).unwrap();
        assert!(time(&again).total_cmp(&time(&Job { run, ..job.clone() })).is_eq(), "{run:?}");
    }
}

#[test]
fn a_hundred_thousand_gpus_are_searched() {
    let job = job("llama-3.1-405b", "H100-80GB", 12_500, "global_batch = 100000\nseq = 8192");
    let plan = plan(&job, &Fixed::default());
    assert!(plan.best.is_some() && plan.searched > 1_000, "{}", plan.searched);
}

#[test]
fn what_does_not_fit_is_said_with_the_least_memory() {
    let job = job("llama-3.1-405b", "A100-40GB", 1, "global_batch = 8");
    let plan = plan(&job, &Fixed::default());
    assert!(plan.best.is_none() && plan.fitting == 0 && plan.front.is_empty());
    assert!(plan.least.unwrap().step.memory.total().0 > 40.0);
}

#[test]
fn huge_numbers_are_no_crash() {
    let most = u32::MAX;
    for key in ["layers", "heads", "kv_heads", "ffn", "hidden", "vocab", "experts"] {
        let text = format!(
            "[model]\nname = 'llama-3-8b'\n{key} = {most}\nhead_width = 128\n[cluster]\ninstance = 'p5.48xlarge'\nnodes = {most}\n[run]\nseq = {most}\nglobal_batch = {most}\n"
        );
        if let Ok(job) = Job::read(&text)
            && let Ok(space) = Space::new(&job, &Fixed::default(), None)
        {
            assert!(space.layouts() > 0);
        }
    }
}
