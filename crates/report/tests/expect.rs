//! The JSON of `plumb expect` is what `docs/expect.schema.json` says, and the schema says all of it.

use std::path::Path;

use fabric::{Collective, Settings, catalogue};
use forecast::Cluster;
use report::Expect;
use serde_json::Value;

fn answer(measured: Option<f64>) -> Value {
    let machine = catalogue::machine("p5.48xlarge").expect("in the catalogue");
    let cluster = Cluster::of_machine(&machine, 2, &Settings::default()).expect("a cluster");
    let expected = forecast::expect(Collective::AllReduce, &cluster, 1 << 30, measured).expect("two nodes");
    let mut json = Vec::new();
    Expect::new(&cluster, expected).json(&mut json).expect("memory takes all");
    serde_json::from_slice(&json).expect("JSON")
}

#[test]
fn the_schema_describes_every_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/expect.schema.json");
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("the schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for (measured, verdict) in [
        (None, Value::Null),
        (Some(437.0), "normal".into()),
        (Some(40.0), "low".into()),
        (Some(800.0), "too_good".into()),
    ] {
        let answer = answer(measured);
        assert!(validator.is_valid(&answer), "{answer:#}");
        assert_eq!(answer["verdict"], verdict);
        for key in answer.as_object().expect("an object").keys() {
            assert!(schema["properties"].get(key).is_some(), "the schema does not describe {key}");
        }
    }
}
