//! Lines of an input as they are: around one line, and those that contain a text.

use std::io::{self, BufRead as _, BufReader, Read, Seek as _, SeekFrom};

use evidence::encoding;

use crate::packed::{self, decompress};
use crate::read::{each_member, is_beside_the_point};
use crate::{Files, archive, whole};

/// The most characters of a line that are shown.
const WIDEST: usize = 2_000;
/// The most bytes of a line that are kept in memory.
const LONGEST: u64 = 1 << 16;

/// A line of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: u64,
    /// Without its end.
    pub text: String,
}

/// The lines around a line. `near` is a line that begins at this byte of the file.
pub fn around(
    files: &dyn Files,
    name: &str,
    line: u64,
    count: u64,
    near: Option<(u64, u64)>,
) -> io::Result<Vec<Line>> {
    let (first, last) = (line.saturating_sub(count).max(1), line.saturating_add(count));
    let mut found = Vec::new();
    let mut keep = |it: Line| {
        if it.number >= first {
            found.push(it);
        }
        found.last().is_none_or(|it| it.number < last)
    };
    each_text(files, name, near.filter(|it| it.0 <= first), &mut |source, from| {
        each_line(source, from, &mut keep)
    })?;
    Ok(found)
}

/// The lines of an input that contain a text, whatever its case, at most `most` of them. `text` is in lower case.
pub fn search(files: &dyn Files, name: &str, text: &str, most: usize) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    let read = |name: &str, source: &mut dyn Read, found: &mut Vec<Found>| {
        each_line(source, 1, &mut |it| {
            if it.text.to_lowercase().contains(text) {
                found.push(Found { file: name.to_owned(), line: it });
            }
            found.len() < most
        })
    };
    let mut file = files.open(name)?;
    let mut members = |it: archive::Member<'_>| {
        if found.len() < most && !is_beside_the_point(&it.name) {
            let inside = format!("{name}:{}", it.name);
            let _ = whole(Box::new(it.content)).and_then(|mut it| read(&inside, &mut it, &mut found));
        }
    };
    if let Some(result) = each_member(&mut *file, &mut members) {
        return result.map(|()| found);
    }
    file.seek(SeekFrom::Start(0))?;
    read(name, &mut whole(Box::new(file))?, &mut found)?;
    Ok(found)
}

/// A line that contains what was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The input.
    pub file: String,
    /// The line of it.
    pub line: Line,
}

/// Gives the text of an input, or of a file in an archive, from its beginning or from a line that begins at a known byte.
fn each_text(
    files: &dyn Files,
    name: &str,
    near: Option<(u64, u64)>,
    visit: &mut dyn FnMut(&mut dyn Read, u64) -> io::Result<()>,
) -> io::Result<()> {
    let Ok(mut file) = files.open(name) else {
        let parts = name.match_indices(':').map(|(at, _)| (&name[..at], &name[at + 1..]));
        let found = parts.into_iter().find_map(|it| Some((files.open(it.0).ok()?, it.1)));
        let Some((mut archive, member)) = found else {
            return Err(io::Error::other("there is no such input"));
        };
        let mut outcome = Err(io::Error::other("is not in the archive"));
        let mut look = |it: archive::Member<'_>| {
            if it.name == member {
                outcome = whole(Box::new(it.content)).and_then(|mut it| visit(&mut it, 1));
            }
        };
        return match each_member(&mut *archive, &mut look) {
            Some(Err(error)) if outcome.is_err() => Err(error),
            _ => outcome,
        };
    };
    let mut magic = Vec::new();
    (&mut file).take(packed::MAGIC as u64).read_to_end(&mut magic)?;
    if let Some((line, byte)) = near.filter(|it| it.1 > 0 && !packed::is_compressed(&magic)) {
        file.seek(SeekFrom::Start(byte - 1))?;
        let mut before = [0];
        file.read_exact(&mut before)?;
        // A file in another encoding has its lines elsewhere.
        if before == *b"\n" {
            return visit(&mut file, line);
        }
    }
    file.seek(SeekFrom::Start(0))?;
    visit(&mut encoding::text(decompress(Box::new(file))?)?, 1)
}

/// Gives every line until `keep` refuses the next.
fn each_line(source: &mut dyn Read, from: u64, keep: &mut dyn FnMut(Line) -> bool) -> io::Result<()> {
    let mut source = BufReader::with_capacity(1 << 18, source);
    let mut bytes = Vec::new();
    for number in from.. {
        bytes.clear();
        if (&mut source).take(LONGEST).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        if !bytes.ends_with(b"\n") && bytes.len() as u64 == LONGEST {
            source.skip_until(b'\n')?;
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end_matches(['\n', '\r']).chars().take(WIDEST).collect();
        if !keep(Line { number, text }) {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::Source;

    struct Memory(Vec<(&'static str, Vec<u8>)>);

    impl Files for Memory {
        fn open(&self, name: &str) -> io::Result<Box<dyn Source + '_>> {
            let found = self.0.iter().find(|it| it.0 == name);
            found.map_or(Err(io::ErrorKind::NotFound.into()), |it| Ok(Box::new(Cursor::new(&it.1)) as _))
        }
    }

    fn numbered(lines: u64) -> Vec<u8> {
        (1..=lines).flat_map(|it| format!("line {it}\n").into_bytes()).collect()
    }

    fn numbers(lines: &[Line]) -> Vec<u64> {
        assert!(lines.iter().all(|it| it.text == format!("line {}", it.number)), "{lines:?}");
        lines.iter().map(|it| it.number).collect()
    }

    #[test]
    fn lines_around_a_line() {
        let text = numbered(1000);
        let near = text.windows(9).position(|it| it == b"\nline 500").unwrap() as u64 + 1;
        let wide: Vec<u8> =
            String::from_utf8(text.clone()).unwrap().encode_utf16().flat_map(u16::to_le_bytes).collect();
        let files = Memory(vec![("a.log", text), ("wide.log", wide)]);
        for near in [None, Some((500, near)), Some((700, 1)), Some((500, near + 3))] {
            assert_eq!(numbers(&around(&files, "a.log", 600, 2, near).unwrap()), [598, 599, 600, 601, 602]);
        }
        assert_eq!(numbers(&around(&files, "wide.log", 600, 1, Some((500, near))).unwrap()), [599, 600, 601]);
        assert_eq!(numbers(&around(&files, "a.log", 1, 1, None).unwrap()), [1, 2]);
        assert_eq!(numbers(&around(&files, "a.log", 1001, 1, None).unwrap()), [1000]);
        assert!(around(&files, "b.log", 1, 1, None).is_err());
    }

    #[test]
    fn lines_that_contain_a_text() {
        let files = Memory(vec![("a.log", numbered(100)), ("b.gz", b"x <B>Line 7</b>\n".to_vec())]);
        let found = search(&files, "a.log", "line 9", 5).unwrap();
        assert_eq!(found.iter().map(|it| it.line.number).collect::<Vec<_>>(), [9, 90, 91, 92, 93]);
        assert_eq!(search(&files, "b.gz", "line 7", 5).unwrap()[0].line.text, "x <B>Line 7</b>");
        assert!(search(&files, "a.log", "nothing", 5).unwrap().is_empty());
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let mut text = vec![b'x'; 300_000];
        text.extend_from_slice(b"\nlast\n");
        let files = Memory(vec![("a.log", text)]);
        let found = around(&files, "a.log", 2, 1, None).unwrap();
        assert_eq!((found[0].text.len(), found[1].number, &*found[1].text), (WIDEST, 2, "last"));
    }
}
