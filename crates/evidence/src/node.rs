//! What a machine reports about itself, as plain data.
//!
//! The crate `node` reads it on the machine, `plumb node --format json` stores it, rules judge it. A field is `None` (or absent in JSON)
//! where the fact could not be seen; [`NodeState::not_seen`] says why and how to let plumb see it.

mod kernel_log;
mod state;

pub use kernel_log::{Aer, AerSeverity, KernelLog, Xid};
pub use state::{
    Cgroup, ClockSync, Cpu, Driver, Ecc, Gpu, Hardware, Hugepages, Interface, Library, LibraryKind, Limit,
    Limits, LinkWidth, Memory, Module, NodeState, NotSeen, NumaNode, NvLinks, Pci, RdmaPort, RemappedRows,
    Service, System,
};

/// The schema of the answer that holds a [`NodeState`].
pub const SCHEMA: &str = "plumb.node/1";

/// The largest answer that is read: a machine with a thousand devices is far smaller.
const MOST_BYTES: usize = 16 << 20;

impl NodeState {
    /// Reads a state from JSON: the answer of `plumb node --format json`, or the state alone.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        if text.len() > MOST_BYTES {
            return Err("too large for the state of a node".to_owned());
        }
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|it| format!("not JSON: {it}"))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_str);
        if let Some(other) = schema.filter(|it| *it != SCHEMA) {
            return Err(format!("its schema is {other}, not {SCHEMA}"));
        }
        let state = match value.get("state") {
            Some(state) => state.clone(),
            None if value.get("host").is_some() => value,
            None => return Err(format!("not an answer of `plumb node --format json` ({SCHEMA})")),
        };
        let state: Self =
            serde_json::from_value(state).map_err(|it| format!("not the state of a node: {it}"))?;
        if state.host.is_empty() {
            return Err("the state has no host name".to_owned());
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Gpu, NodeState, SCHEMA};

    fn sample() -> NodeState {
        let gpu = Gpu { index: 0, name: Some("H200".to_owned()), temperature_c: Some(31), ..Gpu::default() };
        NodeState { host: "node-a".to_owned(), gpus: Some(vec![gpu]), ..NodeState::default() }
    }

    #[test]
    fn an_answer_and_a_bare_state_are_read() {
        let state = serde_json::to_value(sample()).unwrap();
        let answer = serde_json::json!({ "schema": SCHEMA, "verdict": "fit", "state": state });
        assert_eq!(NodeState::read(answer.to_string().as_bytes()), Ok(sample()));
        assert_eq!(NodeState::read(state.to_string().as_bytes()), Ok(sample()));
        // A newer plumb may add fields.
        let newer = br#"{"schema":"plumb.node/1","state":{"host":"a","later":[1],"cpu":{"later":{}}}}"#;
        assert_eq!(NodeState::read(newer).map(|it| it.host), Ok("a".to_owned()));
    }

    #[test]
    fn what_is_not_a_state_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "not JSON"),
            ("[]", "not an answer of"),
            (r#"{"schema":"plumb.doctor/1"}"#, "its schema is plumb.doctor/1"),
            (r#"{"schema":"plumb.node/1","state":{"host":7}}"#, "not the state of a node"),
            (r#"{"schema":"plumb.node/1","state":{}}"#, "no host name"),
        ] {
            let error = NodeState::read(text.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn a_state_cut_or_changed_anywhere_never_panics(at in 0usize..2000, byte: u8) {
            let mut text = serde_json::to_vec(&sample()).unwrap();
            let at = at % text.len();
            let _ = NodeState::read(&text[..at]);
            text[at] = byte;
            let _ = NodeState::read(&text);
        }
    }
}
