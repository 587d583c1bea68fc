//! Exceptions: a class name, a colon and a text, as Python, C++ and Java print what nothing caught.

use super::{Found, Kind};

/// The endings of class names.
static SUFFIXES: &[&str] = &[
    "Error",
    "Exception",
    "Interrupt",
    "Exit",
    "Failure",
    "Fault",
    "Expired",
    "Crashed",
    "Died",
    "Aborted",
    "Killed",
    "Timeout",
    "NotFound",
    "Terminated",
];

/// Reads `torch.distributed.DistBackendError: NCCL error in: ...`.
pub(super) fn read(line: &str) -> Option<Found<'_>> {
    let mut from = 0;
    while let Some((start, end)) = next_name(line, from) {
        from = end;
        let name = line.get(start..end)?;
        if is_class(name) && begins(line, start) && ends(line, end) && !is_benign(name) {
            return Some(Found::new(Kind::Exception, line.get(start..)?.trim_end()));
        }
    }
    None
}

/// Lines of source that a traceback shows, and its frames.
pub(super) fn is_code(line: &str) -> bool {
    let inner = line.rsplit("]: ").next().unwrap_or(line).trim_start();
    let inner = inner.trim_start_matches(['|', '>', '#']).trim_start();
    [
        "raise ", "File \"", "except ", "return ", "assert ", "if ", "elif ", "frame #", "^", "~", "import ",
        "from ", "def ", "class ", "try:", "at org.", "at java.",
    ]
    .iter()
    .any(|it| inner.starts_with(it))
        || inner.starts_with("# ") && !inner.contains("Test ")
}

/// The next run of letters, digits, dots and underscores.
fn next_name(line: &str, from: usize) -> Option<(usize, usize)> {
    let part = |it: char| it.is_ascii_alphanumeric() || it == '_' || it == '.';
    let start = from + line.get(from..)?.find(part)?;
    let rest = line.get(start..)?;
    let end = start + rest.find(|it| !part(it)).unwrap_or(rest.len());
    Some((start, end))
}

/// `ValueError`, `jaxlib.xla_extension.XlaRuntimeError`, `_queue.Empty` is not.
fn is_class(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    let class = name.rsplit('.').next().unwrap_or(name);
    class.starts_with(|it: char| it.is_ascii_uppercase() || it == '_')
        && class.len() > 4
        && SUFFIXES.iter().any(|it| class.ends_with(it))
        && class.chars().any(|it| it.is_ascii_lowercase())
        // `Error` alone is an exception only with a module or as a word of its own.
        && (class != "Error" || name.contains('.'))
        && !matches!(class, "Exit" | "Timeout" | "Failure" | "Fault" | "Expired" | "Aborted" | "Killed" | "Terminated" | "Died" | "Crashed")
}

/// What stands before an uncaught exception: nothing, or what a launcher or logger puts there.
fn begins(line: &str, start: usize) -> bool {
    let before = line.get(..start).unwrap_or_default();
    let trimmed = before.trim_end();
    if trimmed.is_empty() {
        return true;
    }
    // `[rank0]: `, `ERROR:root:`, `(pid=3) `, `2025-05-05 10:11:12,3 - `, `E   `, `error: `, `'c10::`
    let spaced = trimmed.len() < before.len();
    let last = trimmed.chars().next_back();
    let word = trimmed.rsplit(|it: char| it.is_whitespace()).next().unwrap_or_default();
    last.is_some_and(|it| matches!(it, ':' | ']' | ')' | '|' | '-' | '>' | '\'' | '"' | '*'))
        || (spaced
            && matches!(
                word,
                "E" | "ERROR"
                    | "CRITICAL"
                    | "FATAL"
                    | "Exception"
                    | "Unhandled"
                    | "Uncaught"
                    | "Caused"
                    | "by"
                    | "of"
                    | "with"
                    | "stderr"
                    | "F"
            ))
        || (spaced && word.starts_with(|it: char| it.is_ascii_digit()))
}

/// What follows the class: a colon, a cause in parentheses, a quote, or nothing.
fn ends(line: &str, end: usize) -> bool {
    let after = line.get(end..).unwrap_or_default();
    after.trim().is_empty()
        || after.starts_with(": ")
        || after.starts_with(":\n")
        || after.trim_end() == ":"
        || after.starts_with('(') && (after.contains("): ") || after.ends_with(')') || after.ends_with("):"))
        || after.starts_with('\'')
        || after.starts_with(" (")
        || after.starts_with(':')
}

/// Ends that are not failures.
fn is_benign(name: &str) -> bool {
    let class = name.rsplit('.').next().unwrap_or(name);
    matches!(class, "StopIteration" | "GeneratorExit" | "ExitStack" | "OnExit" | "AtExit")
}
