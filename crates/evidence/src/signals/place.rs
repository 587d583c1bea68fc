//! Warnings that were cut so early that only the place which printed them is left.
//!
//! `node-a:1:2 [0] misc/shmutils.cc:88 NCCL WARN Err`: all warnings of that file that begin so are about one thing.

use memchr::memmem;
use messages::values::{self, Table};

use super::cuda::CUDA_FAILURE;
use super::limits::SHM_FULL;
use super::topology_file::ATTRIBUTE_MISSING;
use super::{Found, Signal};

struct Place {
    /// The end of the path of the source file.
    file: &'static str,
    /// How its warnings about this begin.
    begins: &'static str,
    signal: &'static Signal,
}

/// NCCL src/misc/shmutils.cc and src/graph/xml.h, 2.10 to 2.30: a warning of these files that begins so has no other meaning.
static PLACES: &[Place] = &[
    Place { file: "misc/shmutils.cc", begins: "Error", signal: &SHM_FULL },
    Place { file: "graph/xml.h", begins: "Attribute", signal: &ATTRIBUTE_MISSING },
];

/// The signal of a warning whose text was cut before it says anything.
pub(crate) fn find(line: &[u8]) -> Option<Found<'_>> {
    let line = line.strip_suffix("…".as_bytes()).unwrap_or(line);
    let at = memmem::find(line, b" NCCL W")?;
    let (before, rest) = line.split_at_checked(at)?;
    let text = rest.strip_prefix(b" NCCL WARN ").unwrap_or_default().trim_ascii();
    // The line may end inside the level.
    if text.is_empty() && !b" NCCL WARN ".starts_with(rest) {
        return None;
    }
    let word = before.rsplit(|it| *it == b' ').find(|it| !it.is_empty() && !it.starts_with(b"("))?;
    let file = word.get(..word.iter().rposition(|it| *it == b':')?)?;
    let here = |it: &&Place| {
        let begins = it.begins.as_bytes();
        let length = begins.len().min(text.len());
        file.ends_with(it.file.as_bytes())
            && begins
                .get(..length)
                .is_some_and(|it| text.get(..length).is_some_and(|text| it.eq_ignore_ascii_case(text)))
    };
    let place = PLACES.iter().find(here)?;
    Some(Found { signal: place.signal, captures: Vec::new() })
}

/// Whether what was found leaves the matter open: nothing, or only that some CUDA call failed.
pub(crate) fn says_little(found: &[Found<'_>]) -> bool {
    found.iter().all(|it| *it.signal == CUDA_FAILURE)
}

/// The texts of system errors that begin so.
pub(super) fn errors_with(begin: &[u8]) -> impl Iterator<Item = &'static [u8]> {
    let texts = values::of_table(Table::Errno).map(|it| it.text.as_bytes());
    texts.filter(move |it| {
        it.len() > begin.len() && it.get(..begin.len()).is_some_and(|it| it.eq_ignore_ascii_case(begin))
    })
}

/// A part of which only the beginning is left is completed, if just one error of the system begins so: `No route to`.
pub(crate) fn with_whole_errors(mut found: Found<'_>) -> Found<'_> {
    if let Some(last) = found.captures.last_mut().filter(|it| it.text.len() >= 5) {
        let mut whole = errors_with(last.text);
        if let (Some(only), None) = (whole.next(), whole.next()) {
            last.text = only;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{find, with_whole_errors};
    use crate::signals::book;

    #[test]
    fn an_error_without_its_end_is_completed() {
        let reason = |line: &str| {
            let found = with_whole_errors(book().find_cut(line.as_bytes(), true).unwrap());
            String::from_utf8_lossy(found.captures.last().unwrap().text).into_owned()
        };
        assert_eq!(
            reason("NCCL WARN socketPollConnect: Connect to 10.0.0.4<5> returned 113(No route to"),
            "No route to host"
        );
        assert_eq!(
            reason("NCCL WARN socketPollConnect: Connect to 10.0.0.4<5> returned 101(Network is"),
            "Network is"
        );
    }

    #[test]
    fn the_file_decides_where_the_text_is_cut() {
        let name = |line: &str| find(line.as_bytes()).map(|it| it.signal.name);
        assert_eq!(name("n:1:2 [0] misc/shmutils.cc:88 NCCL WARN Err"), Some("shm-full"));
        assert_eq!(name("n:1:2 [0] misc/shmutils.cc:132 NCCL WAR"), Some("shm-full"));
        assert_eq!(name("n:1:2 [0] graph/xml.h:101 NCCL WARN Attrib"), Some("topology-attribute-missing"));
        assert_eq!(name("n:1:2 [0] misc/shmutils.cc:88 NCCL WARN munm"), None);
        assert_eq!(name("n:1:2 [0] misc/socket.cc:88 NCCL WARN Err"), None);
    }
}
