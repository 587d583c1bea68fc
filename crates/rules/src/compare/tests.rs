use serde_json::{Value, json};

use super::{Comparison, Price, Quantity, Recorded, Run, Unexplained};
use crate::Log;
use crate::testing::read;

/// Two p4d: what the trainer and NCCL print.
const LOG: &str = "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\nVARIABLES\
         a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
         a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n\
         a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
         a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/NETWORK\n\
         Stage 3 initialize beginning\n***** Running training *****\n  Instantaneous batch size per device = 4\n\
         \x20 Total train batch size (w. parallel, distributed & accumulation) = 256\n  Gradient Accumulation steps = 4\n\
         \x20 Total optimization steps = 50\n  Number of trainable parameters = 8,030,261,248\n\
         {'train_runtime': 5000.0, 'train_samples_per_second': 1.0}\n";

fn log(network: &str, runtime: u32, variables: &str) -> Log {
    let text = LOG.replace("NETWORK", network).replace("VARIABLES", variables);
    read(&text.replace("5000.0", &format!("{runtime}.0")))
}

fn compare(logs: &[&Log], job_file: &Value) -> Comparison {
    let names = ["efa", "eni", "again"];
    let recorded = &Recorded::default();
    let runs: Vec<Run<'_>> = logs
        .iter()
        .zip(names)
        .map(|(log, name)| Run { name, log, job_file, measured: &[], took: None, recorded })
        .collect();
    Comparison::of(&runs, 0)
}

#[test]
fn the_network_explains_the_difference() {
    let (efa, eni) = (log("Libfabric/0/GDRDMA", 500, ""), log("Socket/0", 5000, ""));
    let compared = compare(&[&efa, &eni], &json!({ "run": { "seq": 512 } }));
    let differing: Vec<&str> = compared.facts.iter().filter(|it| it.differs).map(|it| &*it.name).collect();
    assert_eq!(differing, ["between nodes"], "{:?}", compared.facts);
    let step = compared.figures.iter().find(|it| it.quantity == Quantity::Step).unwrap();
    let values: Vec<f64> = step.amounts.iter().flatten().map(|it| it.value).collect();
    assert_eq!(values, [10.0, 100.0]);
    let [causes] = compared.causes.as_slice() else { panic!("{:?}", compared.causes) };
    assert_eq!((causes.run, causes.seconds), (1, 90.0));
    assert!(causes.parts[0].what.contains(" of TCP instead of 4 x 100 Gbps of EFA"), "{:?}", causes.parts);
    let sum: f64 = causes.parts.iter().map(|it| it.seconds).sum();
    let Unexplained::Seconds(explained) = &causes.rest else { panic!("{causes:?}") };
    assert!((explained.seconds - sum).abs() < 0.02 && explained.seconds > 5.0, "{causes:?}");
    assert!((explained.seconds + explained.rest - 90.0).abs() < 1e-9, "{causes:?}");
    assert!(explained.interval.0 < explained.seconds && explained.seconds < explained.interval.1);
    assert!(!explained.is_too_much());
    // One difference alone is what it is together with nothing else.
    assert!((causes.parts[0].alone - causes.parts[0].seconds).abs() < 1e-9, "{causes:?}");
}

#[test]
fn a_prediction_beyond_what_was_measured_is_too_much() {
    // The network alone would cost more than these runs differ by, and in the other direction.
    for (runtime, too_much) in [(505, true), (400, true), (5000, false)] {
        let (efa, eni) = (log("Libfabric/0/GDRDMA", 500, ""), log("Socket/0", runtime, ""));
        let compared = compare(&[&efa, &eni], &json!({ "run": { "seq": 512 } }));
        let Unexplained::Seconds(explained) = &compared.causes[0].rest else { panic!("{compared:?}") };
        assert_eq!(explained.is_too_much(), too_much, "{runtime}: {explained:?}");
    }
}

#[test]
fn differences_are_predicted_one_at_a_time_and_together() {
    let efa = log("Libfabric/0/GDRDMA", 500, "");
    let other = read(&LOG.replace("NETWORK", "Socket/0").replace("VARIABLES", "").replace("= 256", "= 512"));
    let compared = compare(&[&efa, &other], &json!({ "run": { "seq": 512 } }));
    let parts = &compared.causes[0].parts;
    assert!(parts.len() >= 2, "{parts:?}");
    // TCP costs a step of twice the batch as much as one of the old batch: gradients are as large.
    assert!(parts.iter().all(|it| it.alone > 0.0 && it.seconds > 0.0), "{parts:?}");
    let Unexplained::Seconds(explained) = &compared.causes[0].rest else { panic!("{compared:?}") };
    let sum: f64 = parts.iter().map(|it| it.seconds).sum();
    assert!((explained.seconds - sum).abs() < 0.02 * sum, "{parts:?}");
}

#[test]
fn what_is_missing_for_a_prediction_is_said() {
    let (efa, eni) = (log("Libfabric/0/GDRDMA", 500, ""), log("Socket/0", 5000, ""));
    let compared = compare(&[&efa, &eni], &Value::Null);
    let Unexplained::All(reason) = &compared.causes[0].rest else { panic!("{:?}", compared.causes) };
    assert_eq!(reason, "efa does not say the tokens of a sequence; --job JOB adds it");
}

#[test]
fn a_variable_that_one_run_sets_is_not_set_in_the_other() {
    let set = |name: &str| format!("a:1:2 [0] NCCL INFO {name} set by environment to 1\n");
    let one = log("Socket/0", 500, &set("NCCL_ALGO_X"));
    let two = log("Socket/0", 500, &(set("NCCL_ALGO_X") + &set("NCCL_IB_DISABLE")));
    let silent = log("Socket/0", 500, "");
    let compared = compare(&[&one, &two, &silent], &Value::Null);
    let fact = compared.facts.iter().find(|it| it.name == "NCCL_IB_DISABLE").expect("it differs");
    assert_eq!(fact.values, [Some("not set".to_owned()), Some("1".to_owned()), None]);
    assert!(!compared.facts.iter().any(|it| it.name == "NCCL_ALGO_X"));
}

#[test]
fn runs_with_nothing_in_common_are_not_comparable() {
    let (train, other) = (log("Socket/0", 500, ""), read("hello\n"));
    assert!(!compare(&[&train, &other], &Value::Null).is_comparable());
    assert!(compare(&[&train, &train], &Value::Null).is_comparable());
}

#[test]
fn settings_that_differ_are_possible_causes() {
    let set = |name: &str, value: &str| format!("a:1:2 [0] NCCL INFO {name} set by environment to {value}\n");
    let one = log("Libfabric/0/GDRDMA", 500, &set("NCCL_DEBUG", "INFO"));
    let variables = set("NCCL_PROTO", "LL") + &set("NCCL_MAX_NCHANNELS", "1") + &set("NCCL_DEBUG", "WARN");
    let two = log("Libfabric/0/GDRDMA", 900, &variables);
    let compared = compare(&[&one, &two], &Value::Null);
    let found: Vec<(&str, &str, &str)> =
        compared.settings.iter().map(|it| (&*it.name, &*it.value, &*it.baseline)).collect();
    assert_eq!(found, [("NCCL_MAX_NCHANNELS", "1", "not set"), ("NCCL_PROTO", "LL", "not set")]);
    // The model knows what a protocol costs, and not what channels do.
    assert!(matches!(compared.settings[0].price, Price::None(_)), "{:?}", compared.settings);
    assert!(
        matches!(compared.settings[1].price, Price::Bandwidth(it) if it < 0.5),
        "{:?}",
        compared.settings
    );
}

#[test]
fn an_answer_stands_for_a_run() {
    let silent = read("hello\n");
    let (mut fast, mut slow) = (Recorded::default(), Recorded::default());
    for (it, seconds, nodes) in [(&mut fast, 1.0, "2"), (&mut slow, 3.0, "4")] {
        it.figures.push((Quantity::Step, seconds, Some("mean of the steps".to_owned())));
        it.facts.push(("nodes".to_owned(), nodes.to_owned()));
        it.variables.push(("NCCL_ALGO".to_owned(), format!("A{nodes}")));
    }
    let run = |name, recorded| Run {
        name,
        log: &silent,
        job_file: &Value::Null,
        measured: &[],
        took: None,
        recorded,
    };
    let compared = Comparison::of(&[run("fast", &fast), run("slow", &slow)], 0);
    assert!(compared.is_comparable());
    let differs: Vec<&str> = compared.facts.iter().filter(|it| it.differs).map(|it| &*it.name).collect();
    assert_eq!(differs, ["nodes", "NCCL_ALGO"]);
    assert_eq!(
        compared.figures[0].amounts.iter().flatten().map(|it| it.value).collect::<Vec<_>>(),
        [1.0, 3.0]
    );
    assert_eq!(compared.settings.len(), 1);
}

/// A trainer that prints the time of each step, and one that does not.
#[test]
fn steps_are_measured_alike() {
    let steps = |seconds: f64| -> String {
        let one = |it: i32| {
            let epoch = f64::from(it) / 50.0;
            format!("{{'loss': 1.0, 'epoch': {epoch}, 'step_time': {seconds}}}")
        };
        (1..=50).map(one).collect::<Vec<_>>().join("\n") + "\n"
    };
    let text = LOG.replace("NETWORK", "Socket/0").replace("VARIABLES", "");
    let [one, other] = [5000, 4900].map(|it| text.replace("5000.0", &format!("{it}.0")));
    let step = |logs: [&Log; 2]| {
        let compared = compare(&logs, &Value::Null);
        let figure = compared.figures.into_iter().find(|it| it.quantity == Quantity::Step).unwrap();
        figure.amounts.into_iter().flatten().map(|it| (it.value, it.how.unwrap())).collect::<Vec<_>>()
    };
    let (printed, faster) =
        (read(&format!("{}{one}", steps(80.0))), read(&format!("{}{other}", steps(70.0))));
    let (run, alike) = (read(&other), step([&printed, &read(&other)]));
    assert_eq!(alike.iter().map(|it| it.0).collect::<Vec<_>>(), [100.0, 98.0], "{alike:?}");
    assert!(alike[0].1.contains("which not every run has") && !alike[1].1.contains("not every"), "{alike:?}");
    assert_eq!(step([&printed, &faster]).iter().map(|it| it.0).collect::<Vec<_>>(), [80.0, 70.0]);
    assert_eq!(step([&run, &read(&one)]).iter().map(|it| it.0).collect::<Vec<_>>(), [98.0, 100.0]);
}

/// Steps of Megatron, each with its batch and milliseconds.
fn megatron(steps: &[(u32, u32)]) -> Log {
    let line = |(at, (batch, took)): (usize, &(u32, u32))| {
        format!(
            " [2024-01-01 00:00:11] iteration {at:8}/     100 | consumed samples: {:12} | elapsed time per iteration (ms): {took}.0 | learning rate: 1.000000E-05 | global batch size: {batch:5} | lm loss: 1.1E+01 |\n",
            u64::from(*batch) * at as u64,
        )
    };
    read(&(1..).zip(steps).map(line).collect::<String>())
}

#[test]
fn the_batch_that_steps_print_counts_more_than_the_file() {
    let half = megatron(&[64, 64, 64, 64, 64].map(|it| (it, 500)));
    let whole = megatron(&[(128, 9000), (128, 1000), (128, 1000), (128, 1000), (128, 1000)]);
    for file in [Value::Null, json!({ "run": { "global_batch": 128, "seq": 4096 } })] {
        let compared = compare(&[&whole, &half], &file);
        let batch = compared.facts.iter().find(|it| it.name == "batch").expect("both print it");
        assert_eq!((batch.differs, &*batch.values), (true, &["128", "64"].map(|it| Some(it.to_owned()))[..]));
        for quantity in [Quantity::Tokens, Quantity::Samples] {
            let Some(figure) = compared.figures.iter().find(|it| it.quantity == quantity) else {
                assert!(quantity == Quantity::Tokens && file.is_null(), "{compared:?}");
                continue;
            };
            let rates: Vec<f64> = figure.amounts.iter().flatten().map(|it| it.value).collect();
            let of_sample = if quantity == Quantity::Tokens { 4096.0 } else { 1.0 };
            assert_eq!(rates, [128.0 * of_sample; 2], "{file}");
        }
        let Unexplained::All(reason) = &compared.causes[0].rest else { panic!("{:?}", compared.causes) };
        assert!(!reason.contains("the sequences of a step"), "{reason}");
    }
}

#[test]
fn a_batch_that_grows_is_that_of_the_steps_that_count() {
    let batch = |steps: &[(u32, u32)]| {
        let compared = compare(
            &[&megatron(steps), &megatron(&[(64, 500); 5])],
            &json!({ "run": { "global_batch": 64 } }),
        );
        let fact = compared.facts.into_iter().find(|it| it.name == "batch").expect("one prints it");
        (fact.values[0].clone(), compared.causes[0].rest.clone())
    };
    assert_eq!(batch(&[(16, 9000), (64, 500), (64, 500), (64, 500), (64, 500)]).0.as_deref(), Some("64"));
    let (none, why) = batch(&[(16, 9000), (32, 300), (32, 300), (64, 500), (64, 500)]);
    assert_eq!(none, None);
    assert_eq!(why, Unexplained::All("the batch of efa changes from step to step".to_owned()));
}

/// A log that begins with a step, and a run that takes as long as its steps.
#[test]
fn what_takes_no_time_was_not_measured() {
    let lines = |begin: &str| {
        let steps = (1..=50).map(|it| {
            format!(
                "2026-01-01 10:{:02}:{:02} iter {it}: loss 2.1, time 2000.00ms\n",
                it * 2 / 60,
                it * 2 % 60
            )
        });
        let end = "  Total optimization steps = 50\n{'train_runtime': 100.0, 'epoch': 1.0}\n";
        read(&format!("{begin}{}{end}", steps.collect::<String>()))
    };
    let cut = lines("");
    let whole = lines("2026-01-01 09:59:00 starting\n");
    let names = |log: &Log| -> Vec<Quantity> {
        compare(&[log, log], &Value::Null).figures.iter().map(|it| it.quantity).collect()
    };
    assert!(names(&whole).contains(&Quantity::ToFirst), "{:?}", names(&whole));
    assert!(!names(&cut).contains(&Quantity::ToFirst), "{:?}", names(&cut));
    assert!(!names(&cut).contains(&Quantity::Startup), "{:?}", names(&cut));
}
