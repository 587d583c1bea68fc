//! Words for a POSIX shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// A word that a POSIX shell reads as exactly these bytes. It is left as it is where nothing in it is special.
pub fn quote(word: impl AsRef<OsStr>) -> String {
    String::from_utf8_lossy(&quoted(word.as_ref().as_bytes())).into_owned()
}

/// The same for any bytes but zero.
pub(crate) fn quoted(word: &[u8]) -> Vec<u8> {
    // A word with `=` could be an assignment; an option cannot.
    let option = word.first() == Some(&b'-');
    let plain = |it: &u8| it.is_ascii_alphanumeric() || b"_-./:,+@%^".contains(it) || (option && *it == b'=');
    if !word.is_empty() && word.iter().all(plain) {
        return word.to_vec();
    }
    let mut text = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

/// A name that a shell takes for that of a variable.
pub(crate) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_')
        && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words() {
        for (word, text) in [
            ("a-b/c.d:e,f", "a-b/c.d:e,f"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$(x)`y`", "'$(x)`y`'"),
            ("a=b", "'a=b'"),
            ("--a=b", "--a=b"),
            ("~", "'~'"),
            ("#", "'#'"),
        ] {
            assert_eq!(quote(word), text);
        }
        assert!(is_name("NCCL_DEBUG") && is_name("_x1"));
        assert!(!is_name("") && !is_name("1x") && !is_name("a=b") && !is_name("a b") && !is_name("é"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn a_shell_reads_it_back(word in proptest::collection::vec(1_u8.., 0..60)) {
            let mut script = b"printf %s ".to_vec();
            script.extend(quoted(&word));
            let output = testbed::output(testbed::program("sh").arg("-c").arg(std::ffi::OsString::from_vec(script)));
            prop_assert_eq!(output.stdout, word);
        }
    }
}
