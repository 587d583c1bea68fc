//! Suggestions for unknown names.

use fabric::{catalogue, glossary, gpu, variable};

/// At most this many names are suggested.
const MOST: usize = 6;

/// The minimum similarity of two names, from 0 to 1: below it, names match only by their common prefix.
const ALIKE: f64 = 0.9;

/// Names similar to `asked`, nearest first.
pub fn similar(asked: &str) -> Vec<String> {
    let asked = asked.trim().to_ascii_lowercase();
    if asked.len() < 3 {
        return Vec::new();
    }
    let rules = rules::all().iter().map(|it| it.id);
    let terms = glossary::all().iter().map(|it| it.name);
    let models = gpu::all().iter().map(|it| it.name.as_str());
    let mut named: Vec<(f64, &str)> = rules
        .chain(terms)
        .chain(models)
        .filter_map(|name| {
            let lower = name.to_ascii_lowercase();
            let alike = strsim::jaro_winkler(&asked, &lower);
            (lower.contains(&asked) || alike >= ALIKE).then_some((alike, name))
        })
        .collect();
    named.sort_by(|a, b| b.0.total_cmp(&a.0));
    let machines = catalogue::suggest(&asked);
    let mut found: Vec<String> =
        named.into_iter().map(|it| it.1).chain(machines).take(MOST).map(str::to_owned).collect();
    found.extend(variable::suggest(&asked.to_ascii_uppercase()).map(|it| it.name.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn hints_at_similar_names() {
        for (asked, want) in [
            ("duplicate", "duplicate-gpu"),
            ("duplicat-gpu", "duplicate-gpu"),
            ("socket-falback", "socket-fallback"),
            ("p5.24xlarge", "p5.48xlarge"),
            ("a100", "A100-PCIE-40GB"),
            ("dgx-h10", "dgx-h100"),
            ("NCCL_DEBUGG", "NCCL_DEBUG"),
        ] {
            assert!(similar(asked).contains(&want.to_owned()), "{asked}: {:?}", similar(asked));
        }
        assert!(similar("the moon").is_empty() && similar("x").is_empty());
    }
}
