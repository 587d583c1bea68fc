//! Which nodes are unlike the others: by what they should have, where that is known, else by majority.

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
    /// What the nodes have that are as the catalogue or the user says; where none is, what more than half of the nodes have. `None` where
    /// no value has a majority.
    pub usual: Option<Group>,
    /// The nodes that have something else; all of them, where nothing is usual.
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
    /// What the node should have, where the catalogue or the user says it.
    pub(super) expected: Option<fn(&NodeState) -> Option<Value>>,
}

/// A value of one node.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// Compared as it is.
    Text(String),
    /// Equal within [`SAME`]; more than the others have does no harm.
    Amount(f64, String),
    /// A number of devices, compared exactly, and a remark such as which of them are down.
    Count(usize, String),
}

/// What was seen of one node.
struct Seen<'a> {
    host: &'a str,
    value: Value,
    expected: Option<Value>,
}

impl Seen<'_> {
    fn is_right(&self) -> bool {
        self.expected.as_ref().is_some_and(|it| it.is_like(&self.value))
    }
}

/// A value with the nodes that have it.
type Having = (Value, Vec<String>);

/// Sizes of memory and of /dev/shm differ a little between machines of one type.
const SAME: f64 = 0.05;

impl Value {
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts are given as they come")]
    pub(super) fn text(text: impl ToString) -> Self {
        Self::Text(text.to_string())
    }

    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Count(a, _), Self::Count(b, _)) => a == b,
            (Self::Amount(a, _), Self::Amount(b, _)) => {
                // Nothing is near to unlimited.
                a.total_cmp(b).is_eq()
                    || (a.is_finite() && b.is_finite() && (a - b).abs() <= SAME * a.abs().max(b.abs()))
            }
            _ => false,
        }
    }

    fn said(&self) -> String {
        match self {
            Self::Text(text) | Self::Amount(_, text) => text.clone(),
            Self::Count(count, remark) if remark.is_empty() => count.to_string(),
            Self::Count(count, remark) => format!("{count} ({remark})"),
        }
    }

    /// Drops a remark that is not true of another node with the same count.
    fn share(&mut self, other: &Self) {
        if let (Self::Count(_, remark), Self::Count(_, of_other)) = (self, other)
            && remark != of_other
        {
            remark.clear();
        }
    }

    /// Whether it is more of something than is usual, which harms nobody.
    fn is_more(&self, usual: Option<&Self>) -> bool {
        matches!((usual, self), (Some(Self::Amount(usual, _)), Self::Amount(amount, _)) if amount > usual)
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
    attributes.iter().flat_map(|it| Compared::new(rule, it, &states).odd()).collect()
}

/// One attribute of all nodes.
struct Compared<'a> {
    rule: &'static Rule,
    attribute: &'a Attribute,
    seen: Vec<Seen<'a>>,
    not_seen: Vec<String>,
}

impl<'a> Compared<'a> {
    fn new(rule: &'static Rule, attribute: &'a Attribute, states: &[&'a NodeState]) -> Self {
        let (mut seen, mut not_seen) = (Vec::new(), Vec::new());
        for state in states {
            let expected = attribute.expected.and_then(|it| it(state));
            match (attribute.value)(state) {
                Some(value) => seen.push(Seen { host: &state.host, value, expected }),
                None => not_seen.push(state.host.clone()),
            }
        }
        Self { rule, attribute, seen, not_seen }
    }

    /// A node that is as it should be is right, however many others are not. Where none is, the majority is.
    fn odd(&self) -> Vec<Odd> {
        let (right, others): (Vec<&Seen<'_>>, Vec<&Seen<'_>>) =
            self.seen.iter().partition(|it| it.is_right());
        if right.is_empty() {
            return self.by_majority(&others, self.attribute.severity).into_iter().collect();
        }
        // Machines of several types are each as they should be: that is worth a warning, but none of them is broken.
        let unlike = self.by_majority(&right, self.attribute.severity.min(Severity::Warning));
        // Of a node of which nothing is known, any value that is right elsewhere may be.
        let may_be =
            |it: &Seen<'_>| it.expected.is_none() && right.iter().any(|right| right.value.is_like(&it.value));
        let (alike, wrong): (Vec<&Seen<'_>>, Vec<&Seen<'_>>) = others.into_iter().partition(|it| may_be(it));
        let alike: Vec<&Seen<'_>> = right.into_iter().chain(alike).collect();
        self.against(&grouped(&alike), grouped(&wrong), self.attribute.severity)
            .into_iter()
            .chain(unlike)
            .collect()
    }

    fn by_majority(&self, seen: &[&Seen<'_>], severity: Severity) -> Option<Odd> {
        let mut groups = grouped(seen);
        if groups.len() < 2 {
            return None;
        }
        let has_majority = groups.first().is_some_and(|it| it.1.len() * 2 > seen.len());
        let rest = groups.split_off(usize::from(has_majority));
        self.against(&groups, rest, severity)
    }

    /// The rest beside what is usual, which has several values only where machines are of several types.
    fn against(&self, usual: &[Having], mut rest: Vec<Having>, mut severity: Severity) -> Option<Odd> {
        let first = usual.first().map(|it| &it.0);
        if rest.iter().all(|it| it.0.is_more(first)) {
            severity = Severity::Info;
        } else {
            rest.retain(|it| !it.0.is_more(first));
        }
        if rest.is_empty() {
            return None;
        }
        let values: Vec<String> = usual.iter().map(|it| it.0.said()).collect();
        let usual = first.map(|_| Group {
            value: values.join(" or "),
            hosts: usual.iter().flat_map(|it| it.1.clone()).collect(),
        });
        let odd = rest.into_iter().map(|it| Group { value: it.0.said(), hosts: it.1 }).collect();
        let (what, not_seen) = (self.attribute.what, self.not_seen.clone());
        Some(Odd { what, rule: self.rule, severity, usual, odd, not_seen })
    }
}

/// Nodes with the same value together, the largest group first.
fn grouped(seen: &[&Seen<'_>]) -> Vec<Having> {
    let mut groups: Vec<Having> = Vec::new();
    for it in seen {
        match groups.iter_mut().find(|group| group.0.is_like(&it.value)) {
            Some(group) => {
                group.0.share(&it.value);
                group.1.push(it.host.to_owned());
            }
            None => groups.push((it.value.clone(), vec![it.host.to_owned()])),
        }
    }
    // The sort is stable: of equal groups the first in the input comes first.
    groups.sort_by_key(|it| Reverse(it.1.len()));
    groups
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
        // Where nothing is usual, none of them is known to be the wrong one.
        self.hosts().filter(|_| self.usual.is_some()).fold(finding, Finding::about_host)
    }
}
