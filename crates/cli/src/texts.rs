//! Texts of the inputs as they are, beside the facts of [`crate::input::read`].

use std::io::{self, Read};
use std::path::PathBuf;

use answer::archive;
use answer::read::is_beside_the_point;

use crate::input;

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
            if !is_beside_the_point(&it.name) {
                let name = format!("{whole}:{}", it.name);
                match answer::whole(Box::new(it.content)).and_then(|it| read(it, most)) {
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
