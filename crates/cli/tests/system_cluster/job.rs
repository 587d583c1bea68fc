//! Ranks of `plumb bench`, by hand or by a launcher, and what they say.

use std::process::{Command, Output};

use serde_json::Value;
use testbed::{Host, LIMIT, Running, output};

pub(crate) const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Ranks started by hand.
pub(crate) struct Job(Vec<Running>);

impl Job {
    /// One rank per entry of `hosts`; a host with several ranks is listed several times.
    pub(crate) fn start(hosts: &[&Host], rendezvous: &str, arguments: &[&str]) -> Self {
        let rank = |(rank, host): (usize, &&Host)| {
            let mut command = host.command(PLUMB);
            command.arg("bench").args(arguments);
            command.env("PLUMB_RANK", rank.to_string()).env("PLUMB_SIZE", hosts.len().to_string());
            command.env("PLUMB_RENDEZVOUS", rendezvous).env("PLUMB_TOKEN", "of-this-test");
            Running::start(&mut command)
        };
        Self(hosts.iter().enumerate().map(rank).collect())
    }

    /// The same of a launcher's command.
    #[track_caller]
    pub(crate) fn running(mut command: Command) -> Self {
        Self(vec![Running::start(&mut command)]).in_the_middle()
    }

    /// When rank 0 has shown the first row of its table.
    #[track_caller]
    pub(crate) fn in_the_middle(self) -> Self {
        self.0[0].line(|it| it.contains("float") && it.contains("sum"));
        self
    }

    /// What each rank said, when all have ended.
    pub(crate) fn end(self) -> Vec<Output> {
        self.0.into_iter().map(|it| it.finish(LIMIT)).collect()
    }

    /// The JSON of rank 0, when all have ended well.
    #[track_caller]
    pub(crate) fn answer(self) -> Value {
        let outputs = self.end();
        for (rank, output) in outputs.iter().enumerate() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "rank {rank}: {said}");
        }
        json(&outputs[0])
    }
}

/// What a launcher's command answers, which succeeds.
#[track_caller]
pub(crate) fn answer(command: &mut Command) -> Value {
    let output = output(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{command:?}: {said}");
    json(&output)
}

#[track_caller]
fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON: {error}: {text}"))
}

/// Every result was checked and right, in so many rows, on these hosts by rank.
#[track_caller]
pub(crate) fn check(answer: &Value, rows: usize, hosts: &[&str]) {
    let devices = answer["devices"].as_array().expect("devices");
    let found: Vec<&str> = devices.iter().filter_map(|it| it["host"].as_str()).collect();
    assert_eq!(found, hosts);
    let results = answer["results"].as_array().expect("results");
    assert_eq!(results.len(), rows, "{answer}");
    for row in results {
        for kind in ["out_of_place", "in_place"] {
            let timing = &row[kind];
            assert!(timing.is_null() && kind == "in_place" || timing["wrong"] == 0, "{row}");
        }
    }
}
