//! Which nodes are unlike the others, by majority.

use std::cmp::Reverse;

use evidence::node::NodeState;
use evidence::{Missing, Source};

use super::facts::list;
use super::unlike;
use crate::{Checked, Confidence, Finding, Rule, Severity};

/// Something in which nodes differ.
#[derive(Debug, Clone)]
pub struct Odd {
    /// `GPUs`, `driver`, `/dev/shm`
    pub what: &'static str,
    /// The rule that reports it.
    pub rule: &'static Rule,
    /// How much it matters.
    pub severity: Severity,
    /// What more than half of the nodes have; `None` where no value has a majority.
    pub usual: Option<Group>,
    /// The nodes that have something else; all of them, where no value has a majority.
    pub odd: Vec<Group>,
    /// Nodes where it could not be seen.
    pub not_seen: Vec<String>,
}

/// Nodes with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// `570.133.20`
    pub value: String,
    /// Their host names, in the order of the input.
    pub hosts: Vec<String>,
}

/// Something to compare.
pub(super) struct Attribute {
    pub(super) what: &'static str,
    pub(super) severity: Severity,
    pub(super) value: fn(&NodeState) -> Option<Value>,
}

/// A value of one node.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Compared as it is.
    Text(String),
    /// Equal within [`SAME`]; more than the others have does no harm.
    Amount(f64, String),
}

/// Sizes of memory and of /dev/shm differ a little between machines of one type.
const SAME: f64 = 0.05;

impl Value {
    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Amount(a, _), Self::Amount(b, _)) => {
                // Nothing is near to unlimited.
                a == b || (a.is_finite() && b.is_finite() && (a - b).abs() <= SAME * a.abs().max(b.abs()))
            }
            _ => false,
        }
    }

    fn said(&self) -> &str {
        match self {
            Self::Text(text) | Self::Amount(_, text) => text,
        }
    }
}

/// Everything in which these nodes differ. A host that was recorded several times counts with its last state.
pub fn compare(states: &[NodeState]) -> Vec<Odd> {
    unlike::FAMILIES.iter().flat_map(|(rule, attributes)| of_rule(rule, attributes, states)).collect()
}

/// The check of one rule.
pub(super) fn check(rule: &'static Rule, attributes: &[Attribute], states: &[NodeState]) -> Checked {
    if last_states(states).len() < 2 {
        return Err(Missing(Source::SeveralNodes));
    }
    Ok(of_rule(rule, attributes, states).iter().map(Odd::finding).collect())
}

fn last_states(states: &[NodeState]) -> Vec<&NodeState> {
    let later =
        |at: usize, host: &str| states.get(at + 1..).unwrap_or_default().iter().any(|it| it.host == host);
    states.iter().enumerate().filter(|(at, it)| !later(*at, &it.host)).map(|it| it.1).collect()
}

fn of_rule(rule: &'static Rule, attributes: &[Attribute], states: &[NodeState]) -> Vec<Odd> {
    let states = last_states(states);
    attributes.iter().filter_map(|it| of_attribute(rule, it, &states)).collect()
}

fn of_attribute(rule: &'static Rule, attribute: &Attribute, states: &[&NodeState]) -> Option<Odd> {
    let mut groups: Vec<(Value, Vec<String>)> = Vec::new();
    let mut not_seen = Vec::new();
    for state in states {
        let Some(value) = (attribute.value)(state) else {
            not_seen.push(state.host.clone());
            continue;
        };
        match groups.iter_mut().find(|it| it.0.is_like(&value)) {
            Some(group) => group.1.push(state.host.clone()),
            None => groups.push((value, vec![state.host.clone()])),
        }
    }
    if groups.len() < 2 {
        return None;
    }
    let seen: usize = groups.iter().map(|it| it.1.len()).sum();
    // The sort is stable: of equal groups the first in the input comes first.
    groups.sort_by_key(|it| Reverse(it.1.len()));
    let majority = groups.first().filter(|it| it.1.len() * 2 > seen).map(|it| it.0.clone());
    let harmless = |value: &Value| match (&majority, value) {
        (Some(Value::Amount(usual, _)), Value::Amount(amount, _)) => amount > usual,
        _ => false,
    };
    let skipped = usize::from(majority.is_some());
    let all_harmless = groups.iter().skip(skipped).all(|it| harmless(&it.0));
    let severity = if all_harmless { Severity::Info } else { attribute.severity };
    let mut at = 0;
    groups.retain(|it| {
        at += 1;
        at <= skipped || all_harmless || !harmless(&it.0)
    });
    let group = |it: (Value, Vec<String>)| Group { value: it.0.said().to_owned(), hosts: it.1 };
    let mut groups = groups.into_iter().map(group);
    let usual = if majority.is_some() { groups.next() } else { None };
    Some(Odd { what: attribute.what, rule, severity, usual, odd: groups.collect(), not_seen })
}

impl Odd {
    /// The sentence that says who differs, and how.
    pub fn sentence(&self) -> String {
        let said = |it: &Group| format!("{} on {}", it.value, list(&it.hosts, 6));
        let odd = self.odd.iter().take(4).map(said).collect::<Vec<_>>().join("; ");
        let more = match self.odd.len().saturating_sub(4) {
            0 => String::new(),
            more => format!("; {more} more values"),
        };
        match &self.usual {
            Some(usual) if usual.hosts.len() == 1 => format!("{}: {odd}{more}; {}", self.what, said(usual)),
            Some(usual) => format!(
                "{}: {odd}{more}; {} on the other {} nodes",
                self.what,
                usual.value,
                usual.hosts.len()
            ),
            None => format!("{}: {odd}{more}; no value has a majority", self.what),
        }
    }

    /// The hosts that differ.
    pub fn hosts(&self) -> impl Iterator<Item = &String> {
        self.odd.iter().flat_map(|it| &it.hosts)
    }

    fn finding(&self) -> Finding {
        let finding = Finding::new(Confidence::Certain, self.sentence()).severity(self.severity);
        self.hosts().fold(finding, Finding::about_host)
    }
}
