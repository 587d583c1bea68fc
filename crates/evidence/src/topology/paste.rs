//! The words of a line that was copied from a terminal into an issue, a comment, a table or a string.
//!
//! ```text
//! [4mGPU0    GPU1 [0m          lost escape bytes
//! | **GPU0** | X | NV12 |      Markdown and grid tables
//! # GPU0   X   NV12  ...       comments, quotes, and a row that ends early
//! 0: GPU0\t X \tNV12           labels of a launcher, escaped tabs
//! ```

/// What one word of a matrix says about a pair of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// `X`, `SYS`, `NV12`
    Path(Box<str>),
    /// `OK`, `GNS`: a cell of `topo -p2p`.
    Peer(Box<str>),
    /// `N/A`, `?`
    Unknown,
    /// `...`
    Elided,
}

/// The words of a line without colours, table lines and emphasis.
pub(super) fn words(line: &str) -> Vec<String> {
    let line = without_colours(line);
    let line = line.replace("\\t", " ").replace("\\_", "_").replace("&nbsp;", " ");
    let between =
        |it: char| it.is_whitespace() || matches!(it, '|' | '│' | '┃' | '║' | '¦' | '\u{200b}' | '\u{feff}');
    let around = ['*', '`', '"', '\'', ';', '\u{201c}', '\u{201d}'];
    let trimmed = |it: &str| {
        let it = it.trim_start_matches(around);
        let is_list = it.starts_with(|it: char| it.is_ascii_digit());
        it.trim_end_matches(|it| around.contains(&it) || it == ',' && !is_list).to_owned()
    };
    let mut words: Vec<String> = Vec::new();
    for word in line.split(between).map(trimmed).filter(|it| !it.is_empty()) {
        match words.last_mut() {
            // A list of CPUs with blanks in it.
            Some(last) if last.ends_with(',') && is_list(&word) && is_list(last.trim_end_matches(',')) => {
                last.push_str(&word);
            }
            _ => words.push(word),
        }
    }
    if words.iter().all(|it| it.chars().all(|it| matches!(it, '-' | '=' | '+' | ':' | '─'))) {
        return Vec::new();
    }
    words
}

/// `0-23,48-71`
fn is_list(word: &str) -> bool {
    word.starts_with(|it: char| it.is_ascii_digit())
        && word.chars().all(|it| it.is_ascii_digit() || matches!(it, '-' | ','))
}

/// Without `ESC[4m`, also where the escape byte is gone or written out.
fn without_colours(line: &str) -> String {
    static ESCAPES: &[&str] = &["\\x1b", "\\u001b", "\\033", "^[", "\u{1b}", "\u{241b}", "\u{fffd}"];
    let has = ESCAPES.iter().any(|it| line.contains(it));
    let line = if has {
        ESCAPES.iter().fold(line.to_owned(), |line, escape| line.replace(escape, ""))
    } else {
        line.to_owned()
    };
    let mut out = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(at) = rest.find('[') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let code = after.get(1..).unwrap_or_default();
        let end = code.find(|it: char| !it.is_ascii_digit() && it != ';').unwrap_or(code.len());
        rest = code;
        match code.get(end..).and_then(|it| it.chars().next()) {
            Some('m' | 'K') if end <= 8 => {
                out.push(' ');
                rest = code.get(end + 1..).unwrap_or_default();
            }
            _ => out.push('['),
        }
    }
    out.push_str(rest);
    out
}

/// What a word says in the place of a path.
pub(super) fn cell(word: &str) -> Option<Cell> {
    let upper = word.to_ascii_uppercase();
    let links = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    match &*upper {
        "X" | "SYS" | "NODE" | "PHB" | "PXB" | "PIX" | "PSB" | "SOC" => Some(Cell::Path(upper.into())),
        "OK" | "CNS" | "GNS" | "TNS" | "NS" | "DR" | "U" => Some(Cell::Peer(upper.into())),
        "N/A" | "?" | "-" | "--" => Some(Cell::Unknown),
        "…" | "⋯" => Some(Cell::Elided),
        it if it.len() > 1 && it.bytes().all(|it| it == b'.') => Some(Cell::Elided),
        it if it.strip_prefix("NV").is_some_and(links) => Some(Cell::Path(upper.into())),
        _ => None,
    }
}

/// The device that a word names, without what a launcher put before it: `[1,0]<stdout>:GPU0`.
pub(super) fn device(word: &str) -> Option<&str> {
    let inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.');
    let tail = word
        .rfind(|it: char| !inner(it))
        .map_or(word, |at| word.get(at..).map_or(word, |it| it.trim_start_matches(|it: char| !inner(it))));
    // `4mGPU0`: what remains of a colour.
    let tail = match tail.find("GPU") {
        Some(at @ 2..=3)
            if tail
                .get(..at)
                .is_some_and(|it| it.trim_start_matches(|it: char| it.is_ascii_digit()) == "m") =>
        {
            tail.get(at..).unwrap_or(tail)
        }
        _ => tail,
    };
    crate::plain::is_matrix_device(tail).then_some(tail)
}

#[cfg(test)]
mod tests {
    use super::{Cell, cell, device, words};

    #[test]
    fn lines_as_they_are_pasted() {
        for (line, want) in [
            ("\t\u{1b}[4mGPU0\tGPU1\u{1b}[0m", "GPU0 GPU1"),
            ("[4mGPU0 GPU1 [0m", "GPU0 GPU1"),
            ("\\x1b[4mGPU0\\tGPU1\\x1b[0m", "GPU0 GPU1"),
            ("^[[4mGPU0^[[0m", "GPU0"),
            ("| **GPU0** | X | `NV12` |", "GPU0 X NV12"),
            ("|------|:----:|", ""),
            ("+------+------+", ""),
            ("GPU0 X mlx5\\_0 0-23, 48-71 0", "GPU0 X mlx5_0 0-23,48-71 0"),
            ("GPU0, X, NV12", "GPU0 X NV12"),
            ("GPU1 NV12 X\"\"\",", "GPU1 NV12 X"),
        ] {
            assert_eq!(words(line).join(" "), want, "{line}");
        }
    }

    #[test]
    fn devices_and_cells() {
        for (word, want) in [
            ("GPU0", Some("GPU0")),
            ("[1,0]<stdout>:GPU0", Some("GPU0")),
            ("0:GPU7", Some("GPU7")),
            ("4mGPU0", Some("GPU0")),
            ("GPUs", None),
            ("mlx5_bond_0", Some("mlx5_bond_0")),
        ] {
            assert_eq!(device(word), want, "{word}");
        }
        assert_eq!(
            (cell("nv12"), cell("N/A"), cell("..."), cell("0-23")),
            (Some(Cell::Path("NV12".into())), Some(Cell::Unknown), Some(Cell::Elided), None)
        );
        assert_eq!(cell("GNS"), Some(Cell::Peer("GNS".into())));
    }
}
