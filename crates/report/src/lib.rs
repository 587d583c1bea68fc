//! One result, written for a person or a program.
//!
//! The whole answer of a command is one struct with owned texts, such as [`Doctor`]; every format is written from it, and [`redact`]
//! changes it once for all formats.

#![forbid(unsafe_code)]

mod assemble;
pub mod bench;
pub mod bind;
mod compare;
pub mod decide;
mod env;
mod expect;
mod explanation;
mod hosts;
pub mod html;
mod json;
mod junit;
pub mod lint;
mod machines;
mod markup;
mod model;
mod node;
mod picture;
pub mod plan;
mod predict;
mod price;
mod redact;
mod sarif;
mod text;
pub mod topo;
mod validate;
pub mod written;

pub use compare::Compare;
pub use env::Env;
pub use expect::Expect;
pub use explanation::explanations;
pub use hosts::compact;
pub use json::json;
pub use junit::junit;
pub use machines::Machines;
pub use model::{
    Check, Children, Communicator, Cost, Doctor, Edge, Entity, Environment, Event, Evidence, Excerpt, Facts,
    Finding, FirstFailure, Input, Job, Moment, NodePair, NotChecked, Options, OtherRank, Outcome, Rank, Ring,
    SetBy, Setup, Span, Stack, Test, Training, TreePlace, Verdict,
};
pub use node::{Nagios, Node, Nodes, Shape as NodeFinding, health_line};
pub use predict::{Drawing, FromLog, Predict, Undrawn};
pub use price::{Price, charge};
pub use redact::{Redactor, mask, redact};
pub use sarif::sarif;
pub use text::{Style, clean, text};
pub use validate::{Beside, Gpus, Normal, Unfit, Validate, launched, quoted};

use std::io::{self, Write};

/// Writes the list of all rules, by the command that checks them.
pub fn rules(as_json: bool, width: usize, out: &mut impl Write) -> io::Result<()> {
    let doctor = rules::all().iter().filter(|it| it.log().is_some());
    let lint = rules::all().iter().filter(|it| it.submission().is_some());
    let node = rules::all().iter().filter(|it| it.node().is_some() || it.nodes().is_some());
    if as_json {
        let entry = |command: &str, it: &rules::Rule| {
            let text = it.text();
            serde_json::json!({
                "id": it.id, "command": command, "title": text.title, "severity": it.severity,
                "why": text.why, "fix": text.fix, "references": it.references,
            })
        };
        let all = doctor.map(|it| entry("doctor", it)).chain(lint.map(|it| entry("lint", it)));
        let all: Vec<serde_json::Value> = all.chain(node.map(|it| entry("node", it))).collect();
        return crate::json::write_json(&serde_json::json!({ "schema": "plumb.rules/1", "rules": all }), out);
    }
    let row = |rule: &rules::Rule, out: &mut dyn Write| {
        let (severity, title) = (rule.severity.name(), rule.text().title);
        let head = format!("  {severity:<8} {:<36} ", rule.id);
        // Titles are a column of their own, or in a narrow terminal stand below the id.
        let room = width.saturating_sub(text::width(&head));
        let indent = if room < 28 { 13 } else { text::width(&head) };
        let mut lines = text::wrap(title, width.saturating_sub(indent)).into_iter();
        match lines.next().filter(|_| room >= 28) {
            Some(first) => writeln!(out, "{head}{first}")?,
            None => {
                writeln!(out, "{}", head.trim_end())?;
                lines = text::wrap(title, width.saturating_sub(indent)).into_iter();
            }
        }
        lines.try_for_each(|it| writeln!(out, "{:indent$}{it}", ""))
    };
    writeln!(out, "plumb doctor")?;
    for rule in doctor {
        row(rule, out)?;
    }
    writeln!(out, "\nplumb lint")?;
    for rule in lint {
        row(rule, out)?;
    }
    writeln!(out, "\nplumb node")?;
    for rule in node {
        row(rule, out)?;
    }
    Ok(())
}
