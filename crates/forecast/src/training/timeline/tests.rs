use super::{Timeline, chosen};
use crate::training::{Calibration, Job, Kind, Predictor, Step};

const ZERO3: &str = "[model]\nname = 'llama-3-8b'\n[cluster]\ninstance = 'g6e.12xlarge'\nnodes = 4\n[run]\nframework = 'deepspeed'\n\
                     zero = 3\noffload = { params = true, optimizer = true }\nseq = 512\nmicro_batch = 4\nglobal_batch = 256\n";

fn megatron(pp: u32, vpp: u32, global_batch: u32, more: &str) -> String {
    format!(
        "[model]\nlayers = 48\nhidden = 6144\nheads = 48\nvocab = 51200\n[cluster]\ngpu = 'A100-80GB'\ngpus_per_node = 8\nnodes = 8\n\
         intra = 'nvlink3'\ninter = {{ kind = 'infiniband', nics = 8, gbps = 200 }}\n[run]\ntp = 4\npp = {pp}\nvpp = {vpp}\nzero = 1\n\
         global_batch = {global_batch}\n{more}\n"
    )
}

fn drawn(text: &str) -> (Job, Step, Timeline) {
    let job = Job::read(text).unwrap();
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap();
    let timeline = Timeline::new(&job, &step).unwrap();
    (job, step, timeline)
}

fn jobs() -> Vec<String> {
    let mut all = vec![
        ZERO3.to_owned(),
        ZERO3.replace("zero = 3", "zero = 2").replace("params = true", "params = false"),
        ZERO3.replace("'deepspeed'", "'fsdp'").replace("params = true, optimizer = true", ""),
    ];
    for (pp, vpp, batch) in
        [(1, 1, 64), (2, 1, 128), (4, 1, 4), (8, 1, 128), (16, 1, 512), (4, 2, 64), (8, 3, 128)]
    {
        for more in ["", "recompute = 'full'", "sequence_parallel = true\nrecompute = 'selective'"] {
            all.push(megatron(pp, vpp, batch, more));
        }
    }
    all
}

#[test]
fn ends_with_the_step_and_never_goes_back() {
    for text in jobs() {
        let (_, step, timeline) = drawn(&text);
        let whole = step.time.0;
        assert!((timeline.end.0 - whole).abs() < 1e-12, "{text}");
        let mut last: f64 = 0.0;
        for stage in &timeline.stages {
            let mut free = 0.0;
            for pass in &stage.passes {
                assert!(
                    pass.length.0 > 0.0 && pass.start.0 >= free - whole * 1e-9,
                    "{text}: {pass:?} at {free}"
                );
                free = pass.start.0 + pass.length.0;
            }
            for span in &stage.spans {
                let end = span.start.0 + span.length.0;
                assert!(span.length.0 > 0.0 && span.start.0 >= 0.0, "{text}: {span:?}");
                assert!(end <= whole * (1.0 + 1e-9), "{text}: {span:?} of {whole}");
                last = last.max(end);
            }
        }
        assert!((last / whole - 1.0).abs() < 1e-9, "{text}: {last} of {whole}");
    }
}

#[test]
fn nothing_that_adds_to_the_step_overlaps() {
    for text in jobs() {
        let (_, step, timeline) = drawn(&text);
        for stage in &timeline.stages {
            let mut spans: Vec<_> = stage.spans.iter().filter(|it| !it.hidden).collect();
            spans.sort_by(|a, b| a.start.0.total_cmp(&b.start.0));
            for pair in spans.windows(2) {
                let end = pair[0].start.0 + pair[0].length.0;
                assert!(end <= pair[1].start.0 + step.time.0 * 1e-9, "{text}: {pair:?}");
            }
        }
    }
}

#[test]
fn sums_are_those_of_the_prediction() {
    for text in jobs() {
        let (job, step, timeline) = drawn(&text);
        let stage = timeline.stages.iter().find(|it| it.slowest).unwrap();
        let sum = |kind: Kind, hidden: bool| -> f64 {
            let some = stage.spans.iter().filter(|it| it.kind == kind && it.hidden == hidden);
            some.map(|it| it.length.0).sum()
        };
        // Without a pipeline to the last digit; in one, stages wait for each other a little longer or shorter.
        let most = if job.run.pp == 1 { 1e-9 } else { 0.03 };
        for kind in Kind::ALL.into_iter().filter(|it| !matches!(it, Kind::Bubble | Kind::Pipeline)) {
            let part = step.breakdown[kind];
            let off = (sum(kind, false) - part.exposed.0).abs().max((sum(kind, true) - part.hidden.0).abs());
            assert!(off <= most * step.time.0, "{text}: {kind:?} {off} of {}", step.time);
        }
        let sends = step.breakdown[Kind::Pipeline].exposed.0;
        assert!(sum(Kind::Pipeline, false) <= sends * (1.0 + most), "{text}");
    }
}

#[test]
fn every_micro_batch_goes_both_ways_through_every_piece() {
    for (pp, vpp, batch) in [(4, 1, 64), (4, 2, 64)] {
        let (job, _, timeline) = drawn(&megatron(pp, vpp, batch, ""));
        assert_eq!(timeline.stages.len(), pp as usize);
        // 64 GPUs are 4 x 4 x 4: sixteen micro-batches of each data-parallel rank.
        let micro_batches = u64::from(job.run.global_batch) / 4;
        for stage in &timeline.stages {
            assert_eq!(stage.passes.len() as u64, 2 * micro_batches * u64::from(vpp));
            assert_eq!(
                stage.passes.iter().filter(|it| it.backward).count() as u64,
                micro_batches * u64::from(vpp)
            );
        }
        // The first stage begins, the last one waits.
        assert!(timeline.stages[0].passes[0].start.0 < timeline.stages[3].passes[0].start.0);
    }
}

#[test]
fn long_steps_show_some_stages_or_none() {
    assert_eq!(chosen(4, 8, 3), [0, 1, 2, 3]);
    assert_eq!(chosen(16, 3, 15), [0, 7, 15]);
    assert_eq!(chosen(16, 1, 15), [15]);
    assert_eq!(chosen(64, 4, 31), [0, 31, 42, 63]);
    let (_, _, timeline) = drawn(&megatron(16, 1, 2048, ""));
    assert!(timeline.stages.len() < 16 && timeline.stages_there == 16);
    let mut job = Job::read(&megatron(16, 1, 64, "")).unwrap();
    let calibration = Calibration::published();
    let step = Predictor::new(&calibration, &job.model, &job.cluster).step(&job.run).unwrap();
    job.run.global_batch = u32::MAX;
    let error = Timeline::new(&job, &step).unwrap_err().to_string();
    assert!(error.contains("global_batch"), "{error}");
}
