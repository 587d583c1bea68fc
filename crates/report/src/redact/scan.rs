//! Functions that scan the bytes of a text. All patterns are ASCII, so a match begins and ends between characters.

pub(super) fn byte(text: &str, at: usize) -> Option<u8> {
    text.as_bytes().get(at).copied()
}

/// The byte before `at`. A colour code counts as one byte: `ESC[36mnode-0`.
pub(super) fn before(text: &str, at: usize) -> Option<u8> {
    let last = at.checked_sub(1)?;
    let code = || {
        text.get(..last).is_some_and(|it| {
            it.trim_end_matches(|it: char| it.is_ascii_digit() || it == ';').ends_with("\u{1b}[")
        })
    };
    byte(text, last).map(|it| if it == b'm' && code() { 0x1b } else { it })
}

/// The end of the run of such bytes that begins at `at`.
pub(super) fn run(text: &str, at: usize, is_part: impl Fn(u8) -> bool) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    at + rest.iter().take_while(|it| is_part(**it)).count()
}

/// Whether a list of words has this one.
pub(super) fn listed(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|it| it == word)
}

/// The start of the text after the last such character.
pub(super) fn after_last(text: &str, is_limit: impl Fn(char) -> bool) -> usize {
    text.char_indices().rev().find(|it| is_limit(it.1)).map_or(0, |(at, it)| at + it.len_utf8())
}

pub(super) fn is_word(it: Option<u8>) -> bool {
    it.is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_')
}

pub(super) fn is_label(it: u8) -> bool {
    it.is_ascii_alphanumeric() || it == b'-' || it == b'_'
}

pub(super) fn is_name(it: u8) -> bool {
    is_label(it) || it == b'.'
}

pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// `:29500` or `<29500>` at the beginning.
pub(super) fn begins_with_port(text: &str) -> bool {
    matches!(text.as_bytes(), [b':' | b'<', digit, ..] if digit.is_ascii_digit())
}
