//! Names of machines in few words.

use std::collections::{BTreeMap, BTreeSet};

/// A name that ends in a number, perhaps with something behind it: `node`, `007`, `-ib`.
struct Numbered<'a> {
    before: &'a str,
    digits: &'a str,
    after: &'a str,
}

impl<'a> Numbered<'a> {
    fn read(name: &'a str) -> Option<Self> {
        // The first number of a name with a domain; of rack2-node07 the last one.
        let own = name.split('.').next().unwrap_or(name);
        let end = own.rfind(|it: char| it.is_ascii_digit())? + 1;
        let start = own[..end].trim_end_matches(|it: char| it.is_ascii_digit()).len();
        let digits = &name[start..end];
        (digits.len() <= 9).then_some(Self { before: &name[..start], digits, after: &name[end..] })
    }
}

/// As Slurm, `--hosts` and people write lists: `node[016-018,020], login`. In the order of the first of each kind.
pub fn compact(names: &[impl AsRef<str>]) -> String {
    type Kind<'a> = (&'a str, &'a str, usize);
    let mut order: Vec<Result<Kind<'_>, &str>> = Vec::new();
    let mut kinds: BTreeMap<Kind<'_>, Vec<u32>> = BTreeMap::new();
    let numbered = || names.iter().filter_map(|it| Numbered::read(it.as_ref()));
    let padded: BTreeSet<(&str, &str)> = numbered()
        .filter(|it| it.digits.starts_with('0') && it.digits.len() > 1)
        .map(|it| (it.before, it.after))
        .collect();
    for name in names.iter().map(AsRef::as_ref) {
        let Some(it) = Numbered::read(name) else {
            order.push(Err(name));
            continue;
        };
        let Ok(number) = it.digits.parse() else { continue };
        let width = if padded.contains(&(it.before, it.after)) { it.digits.len() } else { 0 };
        let kind = (it.before, it.after, width);
        let numbers = kinds.entry(kind).or_default();
        if numbers.is_empty() {
            order.push(Ok(kind));
        }
        numbers.push(number);
    }
    let shown = |kind: &Kind<'_>| {
        let (before, after, width) = *kind;
        let mut numbers = kinds[kind].clone();
        numbers.sort_unstable();
        numbers.dedup();
        if let [one] = numbers[..] {
            return format!("{before}{one:0width$}{after}");
        }
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for it in numbers {
            match parts.last_mut() {
                Some(last) if last.1 + 1 == it => last.1 = it,
                _ => parts.push((it, it)),
            }
        }
        let part = |&(first, last): &(u32, u32)| match last - first {
            0 => format!("{first:0width$}"),
            1 => format!("{first:0width$},{last:0width$}"),
            _ => format!("{first:0width$}-{last:0width$}"),
        };
        format!("{before}[{}]{after}", parts.iter().map(part).collect::<Vec<_>>().join(","))
    };
    let all = order.iter().map(|it| match it {
        Ok(kind) => shown(kind),
        Err(name) => (*name).to_owned(),
    });
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::compact;

    #[test]
    fn names_become_lists() {
        for (names, wanted) in [
            ("", ""),
            ("a", "a"),
            ("node07", "node07"),
            ("h1 h2 h3 h10", "h[1-3,10]"),
            ("node016 node017 node018 node020 login", "node[016-018,020], login"),
            ("r1-n01 r2-n01 r1-n02", "r1-n[01,02], r2-n01"),
            ("n9.cluster n10.cluster n11.cluster", "n[9-11].cluster"),
            ("10.99.0.20 10.99.0.21", "10.99.0.20, 10.99.0.21"),
            ("é1 é2 é3 é5 節6", "é[1-3,5], 節6"),
        ] {
            let all: Vec<&str> = names.split_whitespace().collect();
            assert_eq!(compact(&all), wanted, "{names}");
        }
    }
}
