use serde_json::{Value, json};

use super::{Comparison, Quantity, Run, Unexplained};
use crate::Log;
use crate::testing::read;

/// Two p4d over EFA: what the trainer and NCCL print.
fn log(network: &str, runtime: u32, variables: &str) -> Log {
    read(&format!(
        "a:1:2 [0] NCCL INFO NET/OFI Running on p4d.24xlarge platform, topology file /x/p4d.xml\n{variables}\
         a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId 1000 commId 0x9 - Init START\n\
         a:1:2 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n\
         a:1:2 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM/read\n\
         a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/{network}\n\
         Stage 3 initialize beginning\n***** Running training *****\n  Instantaneous batch size per device = 4\n\
         \x20 Total train batch size (w. parallel, distributed & accumulation) = 256\n  Gradient Accumulation steps = 4\n\
         \x20 Total optimization steps = 50\n  Number of trainable parameters = 8,030,261,248\n\
         {{'train_runtime': {runtime}.0, 'train_samples_per_second': 1.0}}\n"
    ))
}

fn compare(logs: &[&Log], job_file: &Value) -> Comparison {
    let names = ["efa", "eni", "again"];
    let runs: Vec<Run<'_>> = logs
        .iter()
        .zip(names)
        .map(|(log, name)| Run { name, log, job_file, measured: &[], took: None })
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
    let explained: f64 = causes.parts.iter().map(|it| it.seconds).sum();
    assert_eq!(causes.rest, Unexplained::Seconds(90.0 - explained));
    assert!(explained > 5.0, "{causes:?}");
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
