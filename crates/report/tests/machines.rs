//! The JSON of `plumb machines` is what `docs/machines.schema.json` says, and the schema says all of it.

use std::collections::BTreeSet;
use std::path::Path;

use report::Machines;
use serde_json::Value;

#[test]
fn the_schema_describes_the_answer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/machines.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut out = Vec::new();
    Machines::of_catalogue().json(&mut out).unwrap();
    let answer: Value = serde_json::from_slice(&out).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&answer).map(|it| it.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");

    // Fields may be added; those of today are all described, and what they hold is checked.
    let mut wrong = answer.clone();
    wrong["machines"][0]["gpus"] = 0.into();
    assert!(!validator.is_valid(&wrong));
    let described = &schema["properties"]["machines"]["items"]["properties"];
    let names: BTreeSet<&String> = described.as_object().unwrap().keys().collect();
    let written: BTreeSet<&String> = answer["machines"][0].as_object().unwrap().keys().collect();
    assert_eq!(names, written);
}
