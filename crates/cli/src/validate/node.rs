//! Stage 1: what machines say about themselves, each against the catalogue and all against each other.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ::validate::live::{Engine, Node, Run};
use evidence::node::NodeState;
use report::{Gpus, Unfit};
use rules::Severity;
use rules::node::{Group, Odd};

#[cfg(target_os = "linux")]
use super::args::Validate;

/// Asks machines about themselves.
#[cfg(target_os = "linux")]
pub(super) fn request(hosts: &[(String, launch::Host)], timeout_s: u64, args: &Validate) -> launch::Request {
    let mut words = vec!["node".to_owned(), "--format".to_owned(), "json".to_owned()];
    // What machines should be is recorded with what they are.
    words.extend(args.instance.map(|it| format!("--instance={}", it.name)));
    words.extend(args.health.gpus.map(|it| format!("--gpus={it}")));
    let tasks = hosts.iter().map(|it| launch::Task::plumb(it.1.clone(), &words)).collect();
    launch::Request::new("node probe", tasks, std::time::Duration::from_secs(timeout_s))
}

/// The answer of one. Its exit code says whether it found something, not whether it could look.
#[cfg(target_os = "linux")]
pub(super) fn answer(host: &str, ended: &launch::Ended) -> Node {
    let facts = serde_json::from_slice(&ended.stdout).ok();
    let failed = facts.is_none().then(|| match &ended.how {
        launch::How::Code(_) if !ended.last_words().is_empty() => ended.last_words(),
        how => how.to_string(),
    });
    Node { host: host.to_owned(), facts, failed }
}

/// The state of a machine, under the name that the user gave it.
pub(super) fn state(node: &Node) -> Option<NodeState> {
    Some(NodeState { host: node.host.clone(), ..as_it_says(node)? })
}

/// The state of a machine, under its own name.
fn as_it_says(node: &Node) -> Option<NodeState> {
    let facts = node.facts.as_ref()?;
    let state = facts.get("state").unwrap_or(facts).clone();
    serde_json::from_value(state).ok()
}

/// Names of machines that have another name before it, with that.
pub(super) fn doubles(run: &Run) -> Vec<(&str, &str)> {
    let mut first: BTreeMap<(String, String), &str> = BTreeMap::new();
    let mut doubles = Vec::new();
    for node in run.plan().hosts.iter().filter_map(|it| run.nodes().get(it)) {
        // By its own name, as NCCL and the bench tell machines apart: the user's is what is in doubt.
        let Some(NodeState { host, system, .. }) = as_it_says(node) else { continue };
        let Some(boot) = system.boot else { continue };
        match first.entry((host, boot)) {
            Entry::Vacant(it) => drop(it.insert(&node.host)),
            Entry::Occupied(it) => doubles.push((&*node.host, *it.get())),
        }
    }
    doubles
}

/// What stands in the way of a job, and notes.
pub(super) fn judge(run: &Run) -> Vec<Unfit> {
    let mut all: Vec<Unfit> = run
        .nodes()
        .values()
        .filter_map(|it| {
            let text = format!("`plumb node` failed there: {}", it.failed.as_ref()?);
            Some(unfit(&it.host, None, text, "look at the machine: its state could not be read", true))
        })
        .collect();
    let doubles = doubles(run);
    for (name, known) in &doubles {
        let text =
            format!("it is {known} under another name (same host name, boot id and network namespace)");
        let action = format!(
            "take {name} or {known} out of the list; if it should be another machine, correct its name in DNS or the ssh configuration"
        );
        all.push(unfit(name, None, text, &action, true));
    }
    let is_double = |it: &&Node| doubles.iter().any(|(name, _)| *name == it.host);
    let states: Vec<NodeState> = run.nodes().values().filter(|it| !is_double(it)).filter_map(state).collect();
    // What all machines share is said once.
    let mut alike: BTreeMap<(&str, String), Vec<&str>> = BTreeMap::new();
    for state in &states {
        let judged = rules::node::judge(state);
        if judged.expects_nothing() {
            let text =
                "no NVIDIA GPU was seen, and nothing says how many there should be (--gpus N; 0 for none)";
            alike.entry(("node-gpu-missing", text.to_owned())).or_default().push(&state.host);
        }
        for found in judged.findings {
            let message = found.finding.message.clone();
            let fix = found.finding.fix.as_deref().unwrap_or(found.rule.fix);
            match found.severity() {
                Severity::Error => all.push(unfit(&state.host, Some(found.rule.id), message, fix, true)),
                Severity::Warning => alike.entry((found.rule.id, message)).or_default().push(&state.host),
                Severity::Info => {}
            }
        }
    }
    for odd in rules::node::compare(&states) {
        all.extend(differing(&odd));
    }
    for ((rule, message), hosts) in alike {
        let named = if hosts.len() == states.len() && hosts.len() > 1 {
            format!("all {} machines", hosts.len())
        } else {
            hosts.join(", ")
        };
        all.push(unfit(&named, Some(rule), message, "", false));
    }
    merge(all)
}

/// Whether machines that have no GPU are to have none (`--gpus 0`).
pub(super) fn gpus(run: &Run) -> Gpus {
    let mut states = run.nodes().values().filter_map(state).peekable();
    if states.peek().is_some() && states.all(|it| it.machine.expected_gpus == Some(0)) {
        Gpus::None
    } else {
        Gpus::Unknown
    }
}

/// GPUs that are there, and that plumb could not use.
pub(super) fn unmeasured(run: &Run) -> Option<String> {
    run.chosen().filter(|it| it.engine == Engine::Host)?;
    let blind = |state: &NodeState| {
        let shown = state.kernel_gpus.as_ref().is_some_and(|it| !it.is_empty());
        state.gpus.is_none() && (shown || state.pci.gpus.is_some_and(|it| it > 0))
    };
    let states: Vec<NodeState> = run.nodes().values().filter_map(state).filter(blind).collect();
    let first = states.first()?;
    let problem = first.driver.as_ref().and_then(|it| it.problem.as_deref());
    let others = match states.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let problem = problem.unwrap_or("NVML does not answer");
    Some(format!("the GPUs of {}{others}: they could not be used ({problem})", first.host))
}

fn unfit(host: &str, rule: Option<&str>, text: String, action: &str, blocks: bool) -> Unfit {
    Unfit { host: host.to_owned(), rule: rule.map(str::to_owned), text, action: action.to_owned(), blocks }
}

/// Machines that have something else than most.
fn differing(odd: &Odd) -> Vec<Unfit> {
    let blocks = odd.severity == Severity::Error && odd.usual.is_some();
    if odd.severity < Severity::Warning {
        return Vec::new();
    }
    let others = match &odd.usual {
        Some(Group { value, hosts }) => format!("{value} on the other {}", hosts.len()),
        None => "the others have something else, and nothing has a majority".to_owned(),
    };
    let one = |group: &Group, host: &String| {
        let text = format!("{} is {}; {others}", odd.what, group.value);
        unfit(host, Some(odd.rule.id), text, odd.rule.fix, blocks)
    };
    odd.odd
        .iter()
        .flat_map(|group| group.hosts.iter().map(|host| one(group, host)).collect::<Vec<_>>())
        .collect()
}

/// One entry for the differences of a machine that one rule reports.
fn merge(all: Vec<Unfit>) -> Vec<Unfit> {
    let mut merged: Vec<Unfit> = Vec::new();
    for it in all {
        let same =
            |known: &&mut Unfit| known.host == it.host && known.blocks == it.blocks && known.rule == it.rule;
        match merged.iter_mut().find(same) {
            Some(known) => known.text = format!("{}, {}", known.text, it.text),
            None => merged.push(it),
        }
    }
    merged
}
