//! Requests to `plumb manifest`.

use std::fs;
use std::path::{Path, PathBuf};

use manifest::{Kind, Request};

/// Words that would leave their place if they were pasted.
pub(crate) const HOSTILE: [&str; 9] =
    ["train.py", "a b", "$(id)", "$HOME", "`id`", "it's", "\"", "#SBATCH --nodes=9", "\n---\nkind: Pod\n"];

pub(crate) fn request(kind: Kind, machine: &str, nodes: u32) -> Request {
    let machine = fabric::catalogue::find(machine).expect("a machine of the catalogue");
    Request {
        image: Some("nvcr.io/nvidia/pytorch:25.06-py3".to_owned()),
        command: HOSTILE.map(str::to_owned).to_vec(),
        ..Request::new(kind, machine, nodes)
    }
}

pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a folder under target");
    folder
}
