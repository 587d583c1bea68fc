//! The ways to reach hosts.

mod here;
mod inside;
mod kubernetes;
mod srun;
mod ssh;
mod ssh_folder;
mod ssh_obstacle;
mod supervised;

use std::ffi::{OsStr, OsString};
use std::time::Duration;

pub use here::Here;
pub use inside::{Inside, Joined};
pub use kubernetes::{Kubernetes, KubernetesOptions};
pub use srun::Srun;
pub use ssh::Ssh;
pub use supervised::Client;

use crate::supervise::tasks;
use crate::{Obstacle, ObstacleKind, Program, Shown, Task, quote};

/// A task as one line for a POSIX shell, with this program as plumb.
fn shown_locally(task: &Task, plumb: &OsStr) -> String {
    let mut words: Vec<String> = Vec::new();
    for (name, value) in &task.variables {
        let value = if name == "PLUMB_TOKEN" { OsStr::new("TOKEN") } else { value.as_os_str() };
        words.push(format!("{name}={}", quote(value)));
    }
    words.push(match &task.program {
        Program::Plumb => quote(plumb),
        Program::Other(program) => quote(program),
    });
    words.extend(task.arguments.iter().map(quote));
    words.join(" ")
}

/// These words as one line for a POSIX shell.
fn line(words: &[OsString]) -> String {
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The words of a shell that reads its script, as it is started on a host of this program.
fn shell_words(bootstrap: &str) -> [OsString; 3] {
    ["sh", "-c", bootstrap].map(OsString::from)
}

/// What a shell of a task is started with, and the task.
fn shown_under_shell(task: &Task, plumb: &OsStr, limit: Duration) -> Shown {
    let command = line(&shell_words(&tasks::bootstrap(task, plumb, limit)));
    Shown { host: task.host.clone(), command, task: Some(shown_locally(task, plumb)) }
}

/// The first of these texts that a line has, from the most telling to the least, and that line.
fn first_of<'a>(
    texts: &[(&str, ObstacleKind)],
    lines: &(impl Iterator<Item = &'a str> + Clone),
) -> Option<Obstacle> {
    texts.iter().find_map(|(text, kind)| {
        let line = lines.clone().find(|it| it.contains(text))?;
        Some(Obstacle::new(*kind, line))
    })
}

fn last_line(kind: ObstacleKind, printed: &str) -> Obstacle {
    let last = printed.lines().rev().find(|it| !it.trim().is_empty()).unwrap_or_default();
    Obstacle::new(kind, last)
}
