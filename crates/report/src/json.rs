//! JSON: the model as it is.

use std::io::{self, Write};

use serde::Serialize;

use crate::Doctor;
use crate::text::is_unprintable;

/// Writes the answer as JSON, indented, with a final newline.
pub fn json(doctor: &Doctor, out: &mut impl Write) -> io::Result<()> {
    write_json(doctor, out)
}

/// Writes a value as JSON, indented, with a final newline. JSON often goes to a terminal too, and `serde_json` escapes only the
/// control characters of ASCII.
pub(crate) fn write_json(value: &impl Serialize, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(Escaping(&mut *out), value)?;
    out.write_all(b"\n")
}

/// Escapes what is written as [`escaped`] does. `serde_json` writes whole characters at a time.
struct Escaping<W>(W);

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|it| matches!(it, b' '..=b'~' | b'\n')) {
            self.0.write_all(bytes)?;
        } else {
            self.0.write_all(escaped(&String::from_utf8_lossy(bytes)).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The byte order mark and noncharacters, which are printable, but not in YAML.
pub(crate) const NOT_IN_YAML: [char; 3] = ['\u{feff}', '\u{fffe}', '\u{ffff}'];

/// JSON with every control character escaped as `\u....`. Outside of strings JSON has none except line ends.
pub(crate) fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for it in json.chars() {
        if (is_unprintable(it) && it != '\n') || NOT_IN_YAML.contains(&it) {
            out.push_str(&format!("\\u{:04x}", u32::from(it)));
        } else {
            out.push(it);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::write_json;

    #[test]
    fn nothing_commands_a_terminal() {
        let text = "\u{1b}[31m \u{7f} \u{9b}0m \u{85} \u{202e} \u{2028} \n é";
        let mut out = Vec::new();
        write_json(&[text], &mut out).unwrap();
        let json = String::from_utf8(out).unwrap();
        assert_eq!(json, "[\n  \"\\u001b[31m \\u007f \\u009b0m \\u0085 \\u202e \\u2028 \\n é\"\n]\n");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
    }
}
