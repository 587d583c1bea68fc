//! What the tests of ways to other hosts share: a small program in the place of plumb, and what a way reported.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use launch::{Ended, Host, Place, Placed, Program, Request, Stop, Task, Way};
use testbed::{Hosts, until};

/// A program that answers `--version`, and otherwise runs its argument as a script.
pub(crate) fn small_plumb(path: PathBuf, version: &str) -> PathBuf {
    // Larger than a pipe holds, and than the disk of a host that is full.
    let padding = "#".repeat(300_000);
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo plumb {version}; exit; fi\nexec sh -c \"$@\"\n{padding}\n"
    );
    fs::write(&path, script).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

pub(crate) fn host(name: &str) -> Host {
    Host::parse(name).expect("a host")
}

/// A script in a shell of each host.
pub(crate) fn scripts(hosts: &[Host], script: &str, limit: Duration) -> Request {
    let task = |host: &Host| Task {
        program: Program::Other("sh".into()),
        arguments: vec!["-c".into(), script.into()],
        ..Task::plumb(host.clone(), [""])
    };
    Request::new("a script", hosts.iter().map(task).collect(), limit)
}

/// The same as an argument of the program that was placed.
pub(crate) fn placed_scripts(hosts: &[Host], script: &str, limit: Duration) -> Request {
    Request::new("plumb", hosts.iter().map(|it| Task::plumb(it.clone(), [script])).collect(), limit)
}

/// What became of every host, each once.
pub(crate) fn place(way: &mut dyn Way, hosts: &[Host]) -> BTreeMap<String, Result<Place, launch::Obstacle>> {
    let mut all = BTreeMap::new();
    way.place(hosts, &Stop::new(), &mut |Placed { host, outcome }| {
        assert!(all.insert(host.to_string(), outcome.clone()).is_none(), "{host} twice");
    })
    .expect("it begins");
    assert_eq!(all.len(), hosts.len());
    all
}

pub(crate) fn run(way: &mut dyn Way, request: &Request) -> Vec<Ended> {
    let mut all: Vec<Option<Ended>> = vec![None; request.tasks.len()];
    way.run(request, &Stop::new(), &mut |it| {
        assert!(all[it.task].replace(it.clone()).is_none(), "{} twice", it.host);
    })
    .expect("it begins");
    all.into_iter().map(|it| it.expect("every task ends")).collect()
}

/// Nothing but what was there before remains on any host: no process and no file.
#[track_caller]
pub(crate) fn nothing_remains(hosts: &Hosts, before: &BTreeMap<usize, usize>) {
    for (number, host) in hosts.iter() {
        let names = || -> Vec<String> {
            let pids = host.all_processes();
            pids.iter().filter_map(|it| fs::read_to_string(format!("/proc/{it}/comm")).ok()).collect()
        };
        until(&format!("nothing runs on {}", host.name), || names().len() <= before[&number]);
        until(&format!("no file is left on {}", host.name), || hosts.temporary_files(number).is_empty());
    }
}

/// The number of processes of each host.
pub(crate) fn processes(hosts: &Hosts) -> BTreeMap<usize, usize> {
    hosts.iter().map(|(number, host)| (number, host.all_processes().len())).collect()
}
