//! Conditions: `[ a = b ]`, `[[ $A -gt 1 && -z "$B" ]]`, `(( A > 1 ))`.

use super::lex::Raw;
use super::{Shell, arithmetic, joined};

impl Shell<'_, '_> {
    /// Whether a condition holds; none where that depends on what the script does not say.
    pub(super) fn test(&self, raw: &[Raw]) -> Option<bool> {
        if let [only] = raw
            && let Some(inner) = only.text.strip_prefix("((").and_then(|it| it.strip_suffix("))"))
        {
            return self.compared(inner);
        }
        let words: Vec<String> = raw.iter().map(|it| self.expand_text(it).text).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).filter(|it| *it != "]").collect();
        any(&words, 0)
    }

    fn compared(&self, text: &str) -> Option<bool> {
        let value = |text: &str| {
            let plain = text.replace('$', "");
            arithmetic::evaluate(&plain, &|name| self.variables.get(name).map(|it| joined(it).text))
        };
        for operator in ["==", "!=", "<=", ">=", "<", ">"] {
            if let Some((one, other)) = text.split_once(operator) {
                let (one, other) = (value(one)?, value(other)?);
                return Some(match operator {
                    "==" => one == other,
                    "!=" => one != other,
                    "<=" => one <= other,
                    ">=" => one >= other,
                    "<" => one < other,
                    _ => one > other,
                });
            }
        }
        value(text).map(|it| it != 0)
    }
}

fn any(words: &[&str], depth: usize) -> Option<bool> {
    if depth > 50 {
        return None;
    }
    if let Some(at) = words.iter().position(|it| matches!(*it, "||" | "-o")) {
        let (one, other) = (any(words.get(..at)?, depth + 1), any(words.get(at + 1..)?, depth + 1));
        return match (one, other) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
    }
    if let Some(at) = words.iter().position(|it| matches!(*it, "&&" | "-a")) {
        let (one, other) = (any(words.get(..at)?, depth + 1), any(words.get(at + 1..)?, depth + 1));
        return match (one, other) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        };
    }
    one(words)
}

fn one(words: &[&str]) -> Option<bool> {
    let open = |it: &str| it.contains(['$', '`']);
    match words {
        ["!", rest @ ..] => one(rest).map(|it| !it),
        ["(", rest @ .., ")"] => one(rest),
        // What neither the script nor its user sets is taken as not set.
        ["-z", text] if is_variable(text) => Some(true),
        ["-n", text] if is_variable(text) => Some(false),
        ["-z", text] => (!open(text)).then_some(text.is_empty()),
        ["-n", text] | [text] => (!open(text)).then_some(!text.is_empty()),
        [a, operator, b] => {
            if open(a) || open(b) {
                return None;
            }
            let numbers = || Some((a.trim().parse::<i64>().ok()?, b.trim().parse::<i64>().ok()?));
            match *operator {
                "=" | "==" => Some(matches(b, a)),
                "!=" => Some(!matches(b, a)),
                "-eq" => numbers().map(|(a, b)| a == b),
                "-ne" => numbers().map(|(a, b)| a != b),
                "-lt" => numbers().map(|(a, b)| a < b),
                "-le" => numbers().map(|(a, b)| a <= b),
                "-gt" => numbers().map(|(a, b)| a > b),
                "-ge" => numbers().map(|(a, b)| a >= b),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `$NAME` or `${NAME}` and nothing else, but for arguments of the script.
fn is_variable(text: &str) -> bool {
    let inner =
        text.strip_prefix("${").and_then(|it| it.strip_suffix('}')).or_else(|| text.strip_prefix('$'));
    inner.is_some_and(super::is_name)
}

/// Whether a text has the form of a pattern with `*`.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(first) = parts.next() else { return false };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    match last {
        None => rest.is_empty(),
        Some(part) => part.is_empty() || text.ends_with(part),
    }
}
