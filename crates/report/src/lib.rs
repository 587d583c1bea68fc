//! One result, written for a person or a program.
//!
//! Everything is put into [`Doctor`] first, with owned texts; every format is
//! written from that, and [`redact`] changes it once for all of them.

#![forbid(unsafe_code)]

mod assemble;
pub mod bench;
mod env;
mod expect;
pub mod explain;
mod json;
mod junit;
pub mod lint;
mod model;
mod picture;
mod redact;
mod sarif;
mod text;
pub mod topo;

pub use env::Env;
pub use expect::Expect;
pub use json::json;
pub use junit::junit;
pub use model::{
    Check, Communicator, Doctor, Edge, Entity, Environment, Evidence, Facts, Finding, FirstFailure, Input,
    Job, NodePair, NotChecked, Options, Rank, Ring, Stack, Test, Training, TreePlace, Verdict,
};
pub use redact::{Redactor, redact};
pub use sarif::sarif;
pub use text::{Style, clean, text};

use std::io::{self, Write};

/// Writes the list of all rules, those of `doctor` and those of `lint`.
pub fn rules(as_json: bool, out: &mut impl Write) -> io::Result<()> {
    if as_json {
        let doctor = rules::all().into_iter().map(|it| {
            serde_json::json!({
                "id": it.id, "command": "doctor", "title": it.title, "severity": it.severity.name(),
                "why": it.why, "fix": it.fix, "references": it.references,
            })
        });
        let lint = rules::lint::all().into_iter().map(|it| {
            serde_json::json!({
                "id": it.id, "command": "lint", "title": it.title, "severity": it.severity.name(),
                "why": it.why, "fix": it.fix, "references": it.references,
            })
        });
        let all: Vec<serde_json::Value> = doctor.chain(lint).collect();
        return crate::json::write_json(&serde_json::json!({ "schema": "plumb.rules/1", "rules": all }), out);
    }
    writeln!(out, "plumb doctor")?;
    for rule in rules::all() {
        writeln!(out, "  {:<8} {:<36} {}", rule.severity.name(), rule.id, rule.title)?;
    }
    writeln!(out, "\nplumb lint")?;
    for rule in rules::lint::all() {
        writeln!(out, "  {:<8} {:<36} {}", rule.severity.name(), rule.id, rule.title)?;
    }
    Ok(())
}
