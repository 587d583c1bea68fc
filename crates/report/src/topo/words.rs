//! Numbers and lists of names as people write them.

use nccl::Between;

use crate::expect::shown;
use crate::text::{clean, counted};

/// `450`, `12.5`, `0.35`: as many digits as mean something.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value.abs() >= 1e9 {
        return format!("{value:.1e}");
    }
    let text = shown(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `450 GB/s`.
pub(crate) fn bandwidth(value: f64) -> String {
    format!("{} GB/s", number(value))
}

/// `85 us`, `1.2 ms`.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        it if it < 1000.0 => format!("{} us", number(it)),
        it if it < 1e6 => format!("{} ms", number(it / 1e3)),
        it => format!("{} s", number(it / 1e6)),
    }
}

/// Which ranks a transport joins.
pub(crate) fn between(it: Between) -> &'static str {
    match it {
        Between::InsidePod => "inside a pod",
        Between::Pods => "between pods of a machine",
        Between::Machines => "between machines",
    }
}

/// `GPU0-3, GPU6`: three or more in a row are joined.
pub(crate) fn names(list: &[&str]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = list;
    while let Some((first, _)) = rest.split_first() {
        let run = 1 + rest.windows(2).take_while(|it| follows(it[0], it[1])).count();
        let (now, later) = rest.split_at(run);
        match now.last().and_then(|it| numbered(it)) {
            Some((_, end)) if run > 2 => parts.push(clean(&format!("{first}-{end}"))),
            _ => parts.extend(now.iter().map(|it| clean(it))),
        }
        rest = later;
    }
    parts.join(", ")
}

/// `names`, but no more than some of them: `mlx5_0, mlx5_4 and 6 more`.
pub(super) fn some_names(list: &[&str], most: usize) -> String {
    let all = names(list);
    if all.split(", ").count() <= most {
        return all;
    }
    let shown: Vec<String> = list.iter().take(most).map(|it| clean(it)).collect();
    format!("{} and {} more", shown.join(", "), list.len() - most)
}

/// `shared by 2 GPUs`; nothing for one.
pub(crate) fn shared(gpus: u32) -> Option<String> {
    (gpus > 1).then(|| format!("shared by {}", counted(gpus as usize, "GPU")))
}

/// `GPU12` is `GPU` and 12.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let stem = name.trim_end_matches(|it: char| it.is_ascii_digit());
    let number = name.get(stem.len()..)?.parse().ok()?;
    (!stem.is_empty()).then_some((stem, number))
}

fn follows(one: &str, next: &str) -> bool {
    match (numbered(one), numbered(next)) {
        (Some((stem, n)), Some((other, m))) => stem == other && n.checked_add(1) == Some(m),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{names, number, some_names, time};

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (450.0, "450"),
            (12.5, "12.5"),
            (12.04, "12"),
            (6.25, "6.25"),
            (0.352, "0.35"),
            (0.0, "0"),
            (f64::NAN, "?"),
            (1e308, "1.0e308"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!([time(85.2), time(1200.0), time(2.5e6)], ["85.2 us", "1.2 ms", "2.5 s"]);
    }

    #[test]
    fn names_in_a_row_are_joined() {
        assert_eq!(names(&["GPU0", "GPU1", "GPU2", "GPU6", "GPU7"]), "GPU0-2, GPU6, GPU7");
        assert_eq!(names(&["rdmap16s27", "rdmap32s27"]), "rdmap16s27, rdmap32s27");
        assert_eq!(names(&["a", "99999999999999999999999"]), "a, 99999999999999999999999");
        assert_eq!(some_names(&["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(some_names(&["GPU0", "GPU1", "GPU2", "GPU3"], 2), "GPU0-3");
    }
}
