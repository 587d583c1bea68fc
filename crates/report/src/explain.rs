//! `plumb explain`: a rule, a variable, a word, a machine or a line of a log, in plain text.

use std::fmt::Write as _;

use evidence::prefix::Anchor;
use evidence::{nccl, signals};
use fabric::{glossary, instance, variable};

use crate::text::wrap;

/// What is known about `asked`, or `None`.
///
/// A rule's id is tried first, then a variable, an instance type, a word, and
/// last a line of a log.
pub fn explain(asked: &str) -> Option<String> {
    let asked = asked.trim();
    rule(asked)
        .or_else(|| of_variable(asked))
        .or_else(|| machine(asked))
        .or_else(|| word(asked))
        .or_else(|| line(asked))
}

/// Names close to what was asked, for a hint.
pub fn similar(asked: &str) -> Vec<String> {
    let asked = asked.trim().to_ascii_lowercase();
    if asked.len() < 3 {
        return Vec::new();
    }
    let rules = rules::all().into_iter().map(|it| it.id.to_owned());
    let words = glossary::all().iter().map(|it| it.name.to_owned());
    let family = asked.split('.').next().unwrap_or(&asked).to_owned();
    let machines = instance::all()
        .iter()
        .filter(|it| it.name.split('.').next() == Some(&family))
        .map(|it| it.name.clone());
    let named = rules.chain(words).filter(|it| it.to_ascii_lowercase().contains(&asked));
    let mut found: Vec<String> = named.chain(machines).take(6).collect();
    found.extend(variable::suggest(&asked.to_ascii_uppercase()).map(|it| it.name.clone()));
    found
}

fn rule(id: &str) -> Option<String> {
    let rule = rules::find(id)?;
    let mut out = String::new();
    let _ = writeln!(out, "{}: {} (rule, {})", rule.id, rule.title, rule.severity.name());
    section(&mut out, "why", rule.why);
    section(&mut out, "fix", rule.fix);
    let needs: Vec<&str> = rule.needs.iter().map(|it| it.how_to_get()).collect();
    section(&mut out, "reads", &needs.join("\n"));
    section(&mut out, "sources", &rule.references.join("\n"));
    Some(out)
}

fn of_variable(name: &str) -> Option<String> {
    // `NCCL_DEBUG=INFO` asks for the variable.
    let name = name.split('=').next().unwrap_or(name).trim_start_matches("export ").trim();
    let it = variable::find(name).or_else(|| variable::find(&name.to_ascii_uppercase()))?;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{} (variable{})",
        it.name,
        if it.read_by.is_empty() { String::new() } else { format!(", read by {}", it.read_by) }
    );
    section(&mut out, "meaning", &it.effect);
    section(&mut out, "values", &it.kind);
    let history = if it.default_history.is_empty() {
        String::new()
    } else {
        format!(" (by release: {})", it.default_history)
    };
    section(&mut out, "default", &format!("{}{history}", it.default));
    let seen = if it.since.is_empty() { String::new() } else { format!("since {}", it.since) };
    section(
        &mut out,
        "status",
        [it.status.as_str(), &seen]
            .iter()
            .filter(|it| !it.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(", ")
            .as_str(),
    );
    if let Some(instead) = &it.instead {
        section(&mut out, "instead", instead);
    }
    for advice in &it.advice {
        let versions: Vec<String> = advice.versions.iter().map(ToString::to_string).collect();
        let versions =
            if versions.is_empty() { String::new() } else { format!(" [{}]", versions.join(", ")) };
        section(&mut out, "advice", &format!("{}{versions} ({})", advice.when_not_to_set, advice.source));
    }
    section(&mut out, "source", &it.source);
    Some(out)
}

fn machine(name: &str) -> Option<String> {
    let it = instance::find(name)?;
    let mut out = String::new();
    let _ = writeln!(out, "{} (instance type)", it.name);
    let memory = it.gpu_mem_gib.map(|it| format!(", {it} each")).unwrap_or_default();
    section(&mut out, "GPUs", &format!("{} x {}{memory}", it.gpus, it.gpu));
    let nvlink = match (it.nvlink, it.nvlink_per_gpu_bidir) {
        (Some(true), Some(rate)) => format!("yes, {rate} a GPU, both directions together"),
        (Some(true), None) => "yes".to_owned(),
        (Some(false), _) => "no".to_owned(),
        (None, _) => "unknown".to_owned(),
    };
    section(&mut out, "NVLink", &nvlink);
    let efa = match (it.nics, it.nic_gbps_each) {
        (0, _) => format!("none; network {}", it.net_gbps_total),
        (n, Some(rate)) => format!("{n} x {rate}, {} in all", it.net_gbps_total),
        (n, None) => format!("{n}, {} in all", it.net_gbps_total),
    };
    section(&mut out, "EFA", &efa);
    section(
        &mut out,
        "GPUDirect RDMA",
        match it.gpudirect_rdma {
            Some(true) => "yes",
            Some(false) => "no: bytes between nodes are copied through host memory",
            None => "unknown",
        },
    );
    section(&mut out, "host", &format!("{} vCPU, {}", it.vcpus, it.mem_gib));
    section(&mut out, "notes", &it.notes.join("\n"));
    section(&mut out, "sources", &it.source.join("\n"));
    Some(out)
}

fn word(word: &str) -> Option<String> {
    let term = glossary::find(word)?;
    let also =
        if term.aliases.is_empty() { String::new() } else { format!(" (also: {})", term.aliases.join(", ")) };
    Some(format!("{}{also}\n\n{}\n", term.name, wrap(term.text, 98).join("\n")))
}

fn line(asked: &str) -> Option<String> {
    let split = Anchor::default().split(asked.as_bytes());
    let message = split.map_or(asked.as_bytes(), |it| it.message);
    let mut out = String::new();
    if let Some(kind) = nccl::describe(message) {
        let writer = if kind.example.starts_with("NET/OFI ") { "aws-ofi-nccl" } else { "NCCL" };
        let _ = writeln!(out, "a line of {writer}");
        section(&mut out, "printed", kind.since);
        section(&mut out, "like", kind.example);
        section(&mut out, "meaning", kind.meaning);
    }
    for found in signals::book().find(asked.as_bytes()) {
        let _ = writeln!(
            out,
            "{}a line that plumb looks for: {}",
            if out.is_empty() { "" } else { "\n" },
            found.signal.name
        );
        section(&mut out, "printed by", found.signal.source);
        section(&mut out, "meaning", found.signal.meaning);
        for (name, value) in &found.captures {
            section(&mut out, name, &String::from_utf8_lossy(value));
        }
    }
    // The rules say what it means for a job.
    let case = evidence::read_texts([("line", asked.as_bytes())]);
    let diagnosis = rules::diagnose(&case);
    let ids: Vec<String> = diagnosis
        .findings
        .iter()
        .filter(|it| it.rule.id != "unexplained-warning")
        .map(|it| format!("{} ({}, {})", it.rule.id, it.severity().name(), it.finding.confidence.name()))
        .collect();
    if !ids.is_empty() {
        section(&mut out, "alone in a log it gives", &ids.join("\n"));
    }
    (!out.is_empty()).then_some(out)
}

fn section(out: &mut String, name: &str, text: &str) {
    if text.trim().is_empty() {
        return;
    }
    let lines = wrap(text.trim(), 96 - name.len());
    for (i, line) in lines.iter().enumerate() {
        let head = if i == 0 { format!("{name}:") } else { " ".repeat(name.len() + 1) };
        let _ = writeln!(out, "  {head} {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::{explain, similar};

    #[test]
    fn explains_every_sort_of_thing() {
        for (asked, want) in [
            ("duplicate-gpu", "two ranks use the same GPU"),
            ("NCCL_BUFFSIZE", "variable"),
            ("p4d.24xlarge", "8 x"),
            ("PXN", "PXN"),
            ("h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read", "no fault"),
            ("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000", "duplicate-gpu"),
        ] {
            let text = explain(asked).unwrap_or_else(|| panic!("{asked} is not known"));
            assert!(text.contains(want), "{asked}: {text}");
        }
        assert_eq!(explain("the moon"), None);
    }

    #[test]
    fn hints_at_similar_names() {
        assert!(similar("duplicate").contains(&"duplicate-gpu".to_owned()));
    }
}
