//! Small steps over bytes. Each takes what it wants from the front, or nothing.

/// The rest of `text` after `prefix`.
pub(crate) fn after<'a>(text: &'a [u8], prefix: &str) -> Option<&'a [u8]> {
    text.strip_prefix(prefix.as_bytes())
}

/// A decimal number and the rest.
pub(crate) fn number(text: &[u8]) -> Option<(u32, &[u8])> {
    let mut value: u32 = 0;
    let mut length = 0;
    while let Some(digit) = text.get(length).filter(|it| it.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
        length += 1;
    }
    (length > 0).then(|| (value, text.get(length..).unwrap_or_default()))
}

/// A decimal number that may be negative, and the rest.
pub(crate) fn signed(text: &[u8]) -> Option<(i64, &[u8])> {
    match text.strip_prefix(b"-") {
        Some(rest) => number(rest).map(|(value, rest)| (-i64::from(value), rest)),
        None => number(text).map(|(value, rest)| (i64::from(value), rest)),
    }
}

/// A hexadecimal number without `0x`, and the rest.
pub(crate) fn hex(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().take_while(|it| it.is_ascii_hexdigit()).count();
    if length == 0 || length > 16 {
        return None;
    }
    let digits = str::from_utf8(text.get(..length)?).ok()?;
    Some((u64::from_str_radix(digits, 16).ok()?, text.get(length..)?))
}

/// Text as a string, with replacement characters where it is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Box<str> {
    String::from_utf8_lossy(bytes).trim().into()
}

/// The text between `left` and `right`, both required.
pub(crate) fn between<'a>(text: &'a str, left: &str, right: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(left)?;
    Some(rest.split_once(right)?.0)
}

/// The word after `left`, up to white space, a comma or a closing bracket.
pub(crate) fn word_after<'a>(text: &'a str, left: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(left)?;
    let rest = rest.trim_start();
    let end = rest.find([' ', '\t', ',', ')', ']', ';']).unwrap_or(rest.len());
    rest.get(..end).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{hex, number, signed, word_after};

    #[test]
    fn numbers_end_where_they_end() {
        assert_eq!(number(b"12[3]"), Some((12, &b"[3]"[..])));
        assert_eq!(number(b"99999999999"), None);
        assert_eq!(number(b"x"), None);
        assert_eq!(signed(b"-1/2"), Some((-1, &b"/2"[..])));
        assert_eq!(hex(b"7f00 "), Some((0x7f00, &b" "[..])));
        assert_eq!(hex(b"11112222333344445"), None);
    }

    #[test]
    fn words() {
        assert_eq!(word_after("a total 24.41 (x", "total "), Some("24.41"));
        assert_eq!(word_after("a", "b"), None);
    }
}
