//! Folders that end with their test.

use std::path::PathBuf;

/// A folder of one test, removed at its end.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new folder. The name is one that no other test of the same program uses.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("plumb-{name}-{}", std::process::id()));
        // An earlier program may have had the same number, and may have been killed.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for temporary files");
        Self { path }
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Its path.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
