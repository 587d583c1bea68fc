//! The ways to reach hosts.

mod here;
mod inside;
mod kubernetes;
mod srun;
mod ssh;
mod ssh_obstacle;

use std::ffi::OsStr;

pub use here::Here;
pub use inside::{Inside, Joined};
pub use kubernetes::{Kubernetes, KubernetesOptions};
pub use srun::{Srun, SrunOptions};
pub use ssh::{Ssh, SshOptions};

use crate::{Program, Task, quote};

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
