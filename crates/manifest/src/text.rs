//! Quoting of user input for YAML and shell.

use std::fmt::Write as _;

/// A scalar of YAML that reads back as this text, on one line.
pub(crate) fn yaml(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(letter),
            // Letters of all languages are kept; invisible and bidirectional characters are escaped.
            _ if letter.is_alphanumeric() => out.push(letter),
            _ => {
                let number = u32::from(letter);
                // Writing into a text cannot fail.
                let _ = if number > 0xffff {
                    write!(out, "\\U{number:08x}")
                } else {
                    write!(out, "\\u{number:04x}")
                };
            }
        }
    }
    out.push('"');
    out
}

/// Whether every YAML version reads it as this text without quotes. Strict on purpose.
fn is_plain(text: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let head = text.strip_prefix("--").or_else(|| text.strip_prefix('-')).unwrap_or(text);
    let first = head.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/');
    let letters = text.bytes().all(|it| it.is_ascii_alphanumeric() || b"._/:@=+-".contains(&it));
    first && letters && !text.ends_with(':') && !words.contains(&text.to_ascii_lowercase().as_str())
}

/// Kubernetes replaces `$(X)` and `$$` in commands; this is the text that becomes the given one.
pub(crate) fn unexpanded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        out.push(letter);
        if letter == '$' && matches!(letters.peek(), Some('(' | '$')) {
            out.push('$');
        }
    }
    out
}

/// One shell word.
pub(crate) fn shell(text: &str) -> String {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"._/:@%+=,-".contains(&it);
    // `a=b` at the head of a command would be an assignment; quoted it is a word.
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Words as a YAML list, one per line.
pub(crate) fn list<S: AsRef<str>>(words: &[S]) -> String {
    let mut out = String::new();
    for word in words {
        out.push_str("- ");
        out.push_str(&yaml(word.as_ref()));
        out.push('\n');
    }
    out
}

/// Indents every line.
pub(crate) fn indent(text: &str, by: usize) -> String {
    let line = |it: &str| if it.trim().is_empty() { it.to_owned() } else { format!("{:by$}{it}", "") };
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use evidence::yaml::Tree;

    use super::{indent, list, shell, unexpanded, yaml};

    /// Texts that someone could use to get out of their place.
    const HOSTILE: &[&str] = &[
        "",
        " ",
        "-",
        "--",
        "---",
        "-1",
        "8",
        "1.0",
        "0x10",
        "1e3",
        "true",
        "No",
        "~",
        "null",
        "a: b",
        "a #b",
        "#",
        "*a",
        "&a",
        "!a",
        "{a}",
        "[a]",
        "a:",
        "'",
        "\"",
        "\\",
        "a\nb: c",
        "\n---\nkind: Pod",
        "a\r\nb",
        "\t",
        "\u{85}",
        "\u{2028}",
        "\u{feff}x",
        "\u{7}",
        "\u{1b}[31m",
        "\u{202e}abc",
        "\u{1f600}",
        "h\u{e9}",
        "$(X)",
        "$$(X)",
        "`id`",
        "$HOME",
        "a'b'c",
        "%a",
        "@a",
        "=",
        "? a",
        "| x",
        "> x",
        "2001-01-01",
        "1:30",
        "<<",
    ];

    #[test]
    fn yaml_reads_back_what_was_meant() {
        for text in HOSTILE {
            let document = format!("a:\n{}b: 1\n", indent(&list(&[text]), 2));
            let tree = Tree::read(&document).unwrap_or_else(|it| panic!("{text:?}: {it:?}"));
            let root = tree.documents[0];
            let item = tree.items(tree.get(root, "a").unwrap())[0];
            assert_eq!(tree.text(item), Some(*text), "{document}");
            assert_eq!(tree.documents.len(), 1, "{text:?}");
            assert_eq!(document.lines().count(), 3, "{text:?}");
        }
        assert_eq!((yaml("--nnodes=4"), yaml("train.py")), ("--nnodes=4".to_owned(), "train.py".to_owned()));
    }

    /// As the kubelet does it (`third_party/forked/golang/expansion`), for a container without variables.
    fn expand(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
            } else if let Some(end) = rest.strip_prefix('(').and_then(|it| it.find(')')) {
                out.push_str("EXPANDED");
                rest = &rest[end + 2..];
            } else {
                out.push('$');
            }
        }
        out + rest
    }

    #[test]
    fn kubernetes_expands_nothing() {
        for text in HOSTILE.iter().chain(&["$$", "a$", "$$$(X)$", "$($(X))", "$x$(y"]) {
            assert_eq!(expand(&unexpanded(text)), **text);
        }
        assert_eq!(unexpanded("$HOME"), "$HOME");
    }

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        for text in HOSTILE.iter().filter(|it| !it.contains('\0')) {
            let script = format!("printf %s {}", shell(text));
            let output = testbed::output(testbed::program("sh").arg("-c").arg(&script));
            assert_eq!(String::from_utf8(output.stdout).unwrap(), **text, "{script}");
        }
    }
}
