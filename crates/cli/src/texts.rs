//! Texts of the inputs as they are, beside the facts of [`crate::input::read`]: whole ones, and beginnings that are read
//! again.

use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use evidence::encoding;

use crate::{archive, input};

/// The text of every file under `paths`, of archives of every file in them, each with its name and at most `most` bytes of it. The
/// error names what cannot be read.
pub(crate) fn all(paths: &[PathBuf], most: u64) -> Result<Vec<(String, Vec<u8>)>, String> {
    let named = |name: &str, error: &dyn std::fmt::Display| format!("{name}: {error}");
    for path in paths.iter().filter(|it| it.as_os_str() != "-") {
        std::fs::metadata(path).map_err(|error| named(&input::name(path), &error))?;
    }
    let mut all = Vec::new();
    for path in &input::files(paths) {
        let whole = input::name(path);
        let mut trouble = None;
        let mut keep = |it: archive::Member<'_>| {
            if !input::is_beside_the_point(Path::new(&it.name)) {
                let name = format!("{whole}:{}", it.name);
                match input::decompress(Box::new(it.content))
                    .and_then(encoding::text)
                    .and_then(|it| read(it, most))
                {
                    Ok(text) => all.push((name, text)),
                    Err(error) => trouble = Some(named(&name, &error)),
                }
            }
        };
        match input::each_member(path, &mut keep) {
            Some(result) => result.map_err(|error| named(&whole, &error))?,
            None => {
                let text = input::open_whole(path).and_then(|it| read(it, most));
                all.push((whole.clone(), text.map_err(|error| named(&whole, &error))?));
            }
        }
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
    }
    Ok(all)
}

fn read(source: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    source.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The beginning of an input of this name up to a line, if that is at most `most` bytes. A file in an archive is named
/// `ARCHIVE:FILE`.
pub(crate) fn beginning(name: &str, last: u64, most: u64) -> Option<Vec<u8>> {
    let path = Path::new(name);
    if path.is_file() {
        return lines(input::open_whole(path).ok()?, last, most);
    }
    let parts = name.match_indices(':').map(|(at, _)| (&name[..at], &name[at + 1..]));
    let (archive, member) = parts.into_iter().find(|it| Path::new(it.0).is_file())?;
    let mut found = None;
    let mut look = |it: archive::Member<'_>| {
        if it.name == member && found.is_none() {
            let source = input::decompress(Box::new(it.content)).and_then(encoding::text);
            found = Some(source.ok().and_then(|it| lines(it, last, most)));
        }
    };
    input::each_member(Path::new(archive), &mut look)?.ok()?;
    found.flatten()
}

/// The first lines of a text, if there are as many in at most `most` bytes.
pub(crate) fn lines(source: impl Read, count: u64, most: u64) -> Option<Vec<u8>> {
    let mut source = BufReader::with_capacity(1 << 16, source.take(most));
    let mut text = Vec::new();
    for _ in 0..count {
        if source.read_until(b'\n', &mut text).ok()? == 0 {
            return None;
        }
    }
    Some(text)
}
