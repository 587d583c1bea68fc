//! This machine.

use std::ffi::OsString;
use std::process::Command;

use super::{shell_words, shown_under_shell};
use crate::supervise::connection::Connection;
use crate::supervise::script::Shell;
use crate::supervise::tasks::{self, Purpose, Transport};
use crate::{Clock, Ended, Error, Host, Obstacle, ObstacleKind, Place, Placed, Request, Shown, Stop, Way};

/// Tasks on this machine, as processes of this one. Hosts are not told apart: all are this machine.
#[derive(Debug)]
pub struct Here {
    plumb: OsString,
}

impl Here {
    /// With this program as `plumb`.
    pub fn new() -> Result<Self, Error> {
        let path =
            std::env::current_exe().map_err(|error| Error::start("cannot find this program", error))?;
        Ok(Self::with(path))
    }

    /// With another program as `plumb`.
    pub fn with(plumb: impl Into<OsString>) -> Self {
        Self { plumb: plumb.into() }
    }
}

impl Way for Here {
    fn name(&self) -> &'static str {
        "this machine"
    }

    fn place(&mut self, hosts: &[Host], _stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        for host in hosts {
            let place = Place {
                path: self.plumb.to_string_lossy().into_owned(),
                copied: false,
                installed: None,
                hostname: hostname.trim().to_owned(),
                address: Some("127.0.0.1".to_owned()),
                clock: Some(Clock { ahead: 0.0, within: 0.0 }),
            };
            each(&Placed { host: host.clone(), outcome: Ok(place) });
        }
        Ok(())
    }

    fn shown_placing(&mut self, _hosts: &[Host]) -> Vec<Shown> {
        Vec::new()
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        request.tasks.iter().map(|it| shown_under_shell(it, &self.plumb, request.limit)).collect()
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    fn clean(&mut self) -> Vec<Host> {
        Vec::new()
    }
}

impl Transport for Here {
    fn plumb(&mut self, _host: &Host) -> Result<OsString, Obstacle> {
        Ok(self.plumb.clone())
    }

    fn open(&self, _host: &Host, shell: Shell<'_>, _purpose: Purpose) -> Result<Connection, Obstacle> {
        let [program, arguments @ ..] = shell_words(&shell.bootstrap());
        let mut command = Command::new(program);
        command.args(arguments);
        tasks::process(command, shell)
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        Obstacle::new(ObstacleKind::NoShell, printed)
    }

    fn parallel(&self) -> usize {
        std::thread::available_parallelism().map_or(1, Into::into)
    }
}
