//! Names of programs in Xid messages of the NVIDIA driver.

use super::names::{Hit, Kind};
use super::scan::is_number;

/// The longest process name that the kernel stores.
const LONGEST: usize = 15;

/// `python3` of `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, ...`. A name may hold blanks.
pub(super) fn program(text: &str, at: usize) -> Option<Hit> {
    let before = text.get(..at)?.strip_suffix("name=")?;
    let announced =
        before.contains("Xid") || before.trim_end_matches([',', ' ']).rsplit(' ').next()?.starts_with("pid=");
    let rest = text.get(at..)?;
    let end = rest
        .find(',')
        .filter(|it| *it <= LONGEST)
        .or_else(|| rest.find(char::is_whitespace))
        .unwrap_or(rest.len());
    let name = rest.get(..end)?.trim_end_matches(['.', ')', '"', '\'']);
    let known = name.starts_with('<') || name.strip_prefix("program-").is_some_and(is_number);
    (announced && !name.is_empty() && !known).then(|| Hit {
        kind: Kind::Program,
        key: name.to_owned(),
        end: at + name.len(),
    })
}
