//! The words of a shell's commands.

use std::ops::Range;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Without quotes.
    pub text: Box<str>,
    /// Where it is in the file.
    pub range: Range<usize>,
}

/// Cuts a part of a shell text into commands of words. It is not a shell: it knows quotes, comments, `\` at line ends, `;`, `&&`, `||`,
/// `|`, and leaves `$` and all else as it is.
pub fn words(text: &str, base: usize) -> Vec<Vec<Word>> {
    let mut commands = vec![Vec::new()];
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b' ' | b'\t' | b'\r' => at += 1,
            b'\\' if matches!(bytes.get(at + 1), Some(b'\n')) => at += 2,
            b'\\' if bytes.get(at + 1) == Some(&b'\r') && bytes.get(at + 2) == Some(&b'\n') => at += 3,
            b'\n' | b';' | b'|' | b'&' => {
                if commands.last().is_some_and(|it: &Vec<Word>| !it.is_empty()) {
                    commands.push(Vec::new());
                }
                at += 1;
            }
            b'#' => {
                at += bytes[at..].iter().position(|it| *it == b'\n').unwrap_or(bytes.len() - at);
            }
            _ => {
                let (word, end) = word(text, at);
                let range = base + at..base + end;
                if let Some(command) = commands.last_mut() {
                    command.push(Word { text: word.into(), range });
                }
                at = end;
            }
        }
    }
    commands.retain(|it| !it.is_empty());
    commands
}

fn word(text: &str, start: usize) -> (String, usize) {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = start;
    let mut quote = None;
    while let Some(&byte) = bytes.get(at) {
        match (quote, byte) {
            (None, b' ' | b'\t' | b'\n' | b'\r' | b';' | b'|' | b'&') => break,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), _) if byte == open => quote = None,
            (None | Some(b'"'), b'\\') if at + 1 < bytes.len() => {
                at += 1;
                if bytes[at] != b'\n' {
                    out.push(bytes[at]);
                }
            }
            _ => out.push(byte),
        }
        at += 1;
    }
    (String::from_utf8_lossy(&out).into_owned(), at)
}

/// The last part of a path.
pub(super) fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or_default()
}

/// Without the quotes around a word of a shell.
pub(super) fn unquoted(source: &str, base: usize) -> (String, usize) {
    match source.as_bytes().first() {
        Some(b'"' | b'\'') if source.len() >= 2 => {
            (source.get(1..source.len() - 1).unwrap_or_default().replace("\\\"", " \""), base + 1)
        }
        _ => (source.to_owned(), base),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn a_shell_text_is_commands_of_words() {
        let text =
            "export A=1 # note\nmpirun -np 16 \\\n  -N 8 ./all_reduce_perf -b \"8\" && echo 'a b'; x | y";
        let all: Vec<Vec<String>> =
            words(text, 0).into_iter().map(|it| it.into_iter().map(|it| it.text.into()).collect()).collect();
        assert_eq!(all[0], ["export", "A=1"]);
        assert_eq!(all[1], ["mpirun", "-np", "16", "-N", "8", "./all_reduce_perf", "-b", "8"]);
        assert_eq!((all[2].len(), all[3].len(), all[4].len()), (2, 1, 1));
    }
}
