//! NCCL's own log, kept in a file beside the result, so that a slow result comes with its reason.
//!
//! NCCL takes these settings from its environment alone, when it starts. Whoever starts the ranks gives them what
//! [`settings`] says; a process that is a rank already calls [`apply`] before it has a second thread.
#![allow(unsafe_code, reason = "NCCL reads its settings from the environment, and changing that is unsafe")]

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustix::fs::{Access, access};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::failure::{Cause, Failure};

const LEVEL: &str = "NCCL_DEBUG";
const PARTS: &str = "NCCL_DEBUG_SUBSYS";
const FILE: &str = "NCCL_DEBUG_FILE";

/// What the log speaks of. Not of `TUNING` and `COLL`, which write a line for every collective and so slow them.
const WANTED: &str = "INIT,BOOTSTRAP,ENV,NET,GRAPH";

/// The variables that make NCCL write its log into a folder, one file per process: none if the user has set `NCCL_DEBUG`.
pub fn settings(folder: &Path) -> Vec<(&'static str, OsString)> {
    settings_where(folder, |it| env::var_os(it).is_some())
}

/// Sets variables in this process.
///
/// Refuses if it has other threads, which might be reading the environment.
pub fn apply(settings: Vec<(&'static str, OsString)>) -> Result<(), Failure> {
    if settings.is_empty() {
        return Ok(());
    }
    let threads = fs::read_dir("/proc/self/task").map(Iterator::count);
    if !matches!(threads, Ok(1)) {
        return Err(Cause::SeveralThreads.into());
    }
    for (name, value) in settings {
        // SAFETY: this is the only thread, as was just seen: nobody else reads or writes the environment.
        unsafe { env::set_var(name, value) };
    }
    Ok(())
}

/// The file this process' NCCL writes to, if it writes to one.
pub fn file() -> Option<PathBuf> {
    env::var_os(LEVEL)?;
    let pattern = env::var(FILE).ok()?;
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(expanded(&pattern, host.trim(), std::process::id()))
}

/// A name for a folder below the one for temporary files, which nobody can foresee; none where nothing can be written there.
///
/// NCCL's settings need the name before the engine is known, the folder itself only once NCCL is: see [`create`].
pub fn folder() -> Option<PathBuf> {
    let parent = env::temp_dir();
    access(&parent, Access::WRITE_OK | Access::EXEC_OK).ok()?;
    let mut random = [0_u8; 8];
    getrandom(&mut random, GetRandomFlags::empty()).ok().filter(|it| *it == random.len())?;
    Some(parent.join(format!("plumb-nccl-{:016x}", u64::from_ne_bytes(random))))
}

/// Makes a folder that nobody else can write into. One that is there already is someone else's: an error.
pub fn create(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(folder)
}

fn settings_where(folder: &Path, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, OsString)> {
    if is_set(LEVEL) {
        return Vec::new();
    }
    let file = folder.join("nccl.%h.%p.log").into_os_string();
    [(LEVEL, OsString::from("INFO")), (PARTS, OsString::from(WANTED)), (FILE, file)]
        .into_iter()
        .filter(|(name, _)| !is_set(name))
        .collect()
}

/// NCCL's `%h` is the host's name up to a dot, `%p` the process, `%%` a percent sign; others stay.
fn expanded(pattern: &str, host: &str, process: u32) -> PathBuf {
    let mut text = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match (letter, if letter == '%' { letters.next() } else { None }) {
            ('%', Some('%')) => text.push('%'),
            ('%', Some('h')) => text.push_str(host.split('.').next().unwrap_or(host)),
            ('%', Some('p')) => text.push_str(&process.to_string()),
            (_, Some(other)) => text.extend(['%', other]),
            (letter, None) => text.push(letter),
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_the_user_requested_stays_as_it_is() {
        assert!(settings_where(Path::new("/x"), |it| it == LEVEL).is_empty());
        let names = |set: &'static str| {
            settings_where(Path::new("/x"), |it| it == set).into_iter().map(|it| it.0).collect::<Vec<_>>()
        };
        assert_eq!(names(FILE), [LEVEL, PARTS]);
        assert_eq!(names(PARTS), [LEVEL, FILE]);
        assert_eq!(
            settings_where(Path::new("/x"), |_| false).last(),
            Some(&(FILE, OsString::from("/x/nccl.%h.%p.log")))
        );
    }

    #[test]
    fn names_of_files_are_made_as_nccl_makes_them() {
        let path = |pattern| expanded(pattern, "node-1.example.org", 42).display().to_string();
        assert_eq!(path("/tmp/nccl.%h.%p.log"), "/tmp/nccl.node-1.42.log");
        assert_eq!(path("a%%b%q%"), "a%b%q%");
    }

    #[test]
    fn threads_forbid_changing_the_environment() {
        // The test harness itself runs several.
        let failure = std::thread::scope(|it| it.spawn(|| apply(vec![(PARTS, "INIT".into())])).join())
            .expect("no panic");
        assert_eq!(failure.expect_err("there are two threads").cause, Cause::SeveralThreads);
    }

    #[test]
    fn folders_are_new_and_private() {
        use std::os::unix::fs::PermissionsExt;

        let (one, two) = (folder().expect("a name"), folder().expect("another"));
        assert_ne!(one, two);
        assert!(!one.exists(), "a name alone leaves nothing behind");
        create(&one).expect("it is new");
        let mode = fs::metadata(&one).expect("it is there").permissions().mode() & 0o777;
        let again = create(&one);
        fs::remove_dir(&one).expect("it is empty");
        assert_eq!(mode, 0o700);
        assert_eq!(again.expect_err("it was there").kind(), io::ErrorKind::AlreadyExists);
    }
}
