//! The JSON of `plumb env` is what `docs/env.schema.json` says, and the schema says all of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

use fabric::{Version, catalogue};
use manifest::environment::{Action, Recommendation, recommend};
use report::Env;
use serde_json::Value;

fn answer(instance: Option<&str>, plugin: Option<Version>, remove: Vec<Recommendation>) -> Value {
    let machine = instance.and_then(catalogue::find);
    let advice = recommend(machine, None, plugin, remove);
    let mut json = Vec::new();
    Env::new(instance, None, plugin, &advice).json(&mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

fn names(object: &Value) -> BTreeSet<&String> {
    object.as_object().unwrap().keys().collect()
}

#[test]
fn the_schema_describes_every_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/env.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let objection = Recommendation {
        name: "NCCL_P2P_DISABLE".into(),
        value: Some("1".into()),
        action: Action::Remove,
        reason: "turns P2P off".into(),
        source: "NCCL".into(),
    };
    let mut actions = BTreeSet::new();
    for answer in [
        answer(None, None, vec![]),
        answer(Some("p4d.24xlarge"), Some(Version::new(1, 5, 0)), vec![]),
        answer(None, None, vec![objection]),
    ] {
        let errors: Vec<String> = validator.iter_errors(&answer).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:#?}");
        assert_eq!(names(&answer), names(&schema["properties"]));
        for variable in answer["variables"].as_array().unwrap() {
            assert_eq!(names(variable), names(&schema["$defs"]["variable"]["properties"]));
            actions.insert(variable["action"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(actions, BTreeSet::from(["leave".into(), "remove".into(), "set".into()]));
}

#[test]
fn what_does_not_fit_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/env.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let good = answer(None, None, vec![]);
    for (pointer, wrong) in
        [("/schema", Value::from("plumb.env/2")), ("/variables/0/action", Value::from("keep"))]
    {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(validator.is_valid(&good) && !validator.is_valid(&bad), "{pointer}");
    }
}
