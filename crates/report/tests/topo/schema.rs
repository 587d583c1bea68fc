//! The JSON is what `docs/topo.schema.json` says, and the schema says all of it.

use std::fs;
use std::path::Path;

use report::topo::{Topo, json};
use serde_json::Value;

use crate::samples;

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/topo.schema.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn value(topo: &Topo) -> Value {
    let mut out = Vec::new();
    json(topo, &mut out).unwrap();
    assert!(out.ends_with(b"}\n"));
    serde_json::from_slice(&out).unwrap()
}

fn check(schema: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap();
    for (name, topo) in samples::all() {
        let value = value(&topo);
        let errors: Vec<String> =
            validator.iter_errors(&value).take(5).map(|it| format!("{}: {it}", it.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn every_answer_fits() {
    assert!(jsonschema::meta::is_valid(&schema()));
    check(&schema());
}

/// A new field fails here until the schema describes it.
#[test]
fn every_field_is_described() {
    let mut strict = schema();
    close(&mut strict);
    for it in strict["$defs"].as_object_mut().unwrap().values_mut() {
        close(it);
    }
    check(&strict);
}

/// Nothing but what is described, and all of it.
fn close(schema: &mut Value) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let names: Vec<Value> = properties.keys().cloned().map(Value::from).collect();
    let required = schema["required"].as_array().unwrap();
    assert_eq!(required.len(), names.len(), "what is always written is promised: {names:?}");
    schema["required"] = Value::from(names);
    schema["additionalProperties"] = Value::from(false);
}

#[test]
fn what_does_not_fit_is_refused() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let good = value(&samples::p4d());
    for (pointer, wrong) in [
        ("/schema", Value::from("plumb.topo/2")),
        ("/sockets/0/children/0/kind", Value::from("tree")),
        ("/normal/0/low_GBps", Value::Null),
        ("/job/transports/0/example", Value::from(vec![1])),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(!validator.is_valid(&bad), "{pointer}");
    }
}
