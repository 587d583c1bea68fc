//! A folder of this process for the sockets of shared ssh connections, and those that killed processes left.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::rendezvous::random_token;

const PREFIX: &str = "plumb-ssh-";

/// Held as long as its process lives.
const LOCK: &str = "lock";

/// A younger folder may be one that is being made.
const YOUNG: Duration = Duration::from_secs(60);

/// Removed when it is dropped. Only its user can enter it.
pub(super) struct SocketFolder {
    pub(super) path: PathBuf,
    _lock: Option<File>,
}

impl SocketFolder {
    /// Also removes folders of processes that were killed.
    pub(super) fn new() -> Result<Self, Error> {
        let token = random_token()?;
        let name = format!("{PREFIX}{}", token.get(..12).unwrap_or_default());
        let usual = std::env::temp_dir();
        // A path of a socket has at most 107 bytes, and ssh adds 17 while it creates one.
        let parent = if usual.as_os_str().len() > 35 { Path::new("/tmp") } else { &usual };
        remove_abandoned(parent, YOUNG);
        let path = parent.join(name);
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| Error::start(&format!("cannot create {}", path.display()), error))?;
        // Where locks do not work, nobody takes the folder for abandoned either.
        let lock = File::create(path.join(LOCK)).ok().filter(|it| it.lock().is_ok());
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of this user whose processes are gone: nobody holds their lock.
fn remove_abandoned(parent: &Path, young: Duration) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Of the entry itself: not of what a link leads to.
        let Ok(about) = entry.metadata() else { continue };
        let ours = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
        let old = about.modified().is_ok_and(|it| it.elapsed().is_ok_and(|it| it >= young));
        if named && ours && old && File::open(path.join(LOCK)).is_ok_and(|it| it.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let parent = std::env::temp_dir().join(format!("plumb-folders-{}", std::process::id()));
        let make = |name: &str, lock: bool| {
            let path = parent.join(name);
            fs::create_dir_all(&path).expect("a folder");
            lock.then(|| File::create(path.join(LOCK)).expect("a lock"))
        };
        let held = make("plumb-ssh-held", true).expect("a lock");
        held.lock().expect("it is ours");
        drop(make("plumb-ssh-left", true));
        drop(make("plumb-ssh-unlocked", false));
        drop(make("another", true));
        remove_abandoned(&parent, Duration::from_secs(60));
        assert!(parent.join("plumb-ssh-left").exists(), "it may be one that is being made");
        remove_abandoned(&parent, Duration::ZERO);
        let mut left: Vec<String> = fs::read_dir(&parent)
            .expect("a folder")
            .map(|it| it.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        fs::remove_dir_all(&parent).expect("it is ours");
        assert_eq!(left, ["another", "plumb-ssh-held", "plumb-ssh-unlocked"]);
    }
}
