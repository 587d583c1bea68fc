//! A request over connections: starts its tasks, waits for them and says how each ended.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Connection, allow_many_files, serve};
use super::script::{self, Shell};
use crate::rendezvous::random_token;
use crate::request::one_line;
use crate::{Ended, Error, Host, How, Obstacle, ObstacleKind, Request, Stop, Task};

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It stays open and keeps the folder with plumb.
    Keep,
    /// A task.
    Task,
}

/// How a way leads to its hosts.
pub(crate) trait Transport {
    /// The path of plumb on a host, or why there is none.
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle>;

    /// Starts a shell on a host, and sends it its script.
    fn open(&self, host: &Host, shell: Shell<'_>, purpose: Purpose) -> Result<Connection, Obstacle>;

    /// Why there was no shell, from how the command of this machine ended and what it printed.
    fn obstacle(&self, code: Option<i32>, printed: &str) -> Obstacle;

    /// More about a connection that broke, if the way knows it.
    fn last_words(&mut self, _host: &Host) -> Option<String> {
        None
    }

    /// How long the first answer of a host may take.
    fn login(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// How many tasks run at a time that do not need each other.
    fn parallel(&self) -> usize;

    /// Connections that have to be served meanwhile.
    fn others(&mut self) -> Vec<&mut Connection> {
        Vec::new()
    }
}

/// Starts a process that leads to the shell.
pub(crate) fn process(command: std::process::Command, shell: Shell<'_>) -> Result<Connection, Obstacle> {
    Connection::start(command, shell)
        .map_err(|error| Obstacle::new(ObstacleKind::Launcher, &error.to_string()))
}

/// How long a task may take to end after it was told to.
const LEAVE: Duration = Duration::from_secs(6);

/// A task under way.
struct Running {
    index: usize,
    connection: Connection,
    input: Option<Arc<[u8]>>,
    /// It has been told to end.
    leaving: Option<(How, Instant)>,
    /// When the last mark came.
    complete: Option<Instant>,
}

pub(crate) fn run(
    transport: &mut dyn Transport,
    request: &Request,
    stop: &Stop,
    each: &mut dyn FnMut(&Ended),
) -> Result<(), Error> {
    allow_many_files();
    let parallel = if request.at_once { usize::MAX } else { transport.parallel().max(1) };
    let mark = format!("plumb-{}", random_token()?);
    // An invalid request starts nothing.
    for task in &request.tasks {
        script::task(task, "plumb".as_ref(), &mark, request.limit)?;
    }
    let mut next = 0;
    let mut running: Vec<Running> = Vec::new();
    // Connections whose tasks are over; their processes end by themselves in a moment.
    let mut closing: Vec<(Connection, Instant)> = Vec::new();
    while next < request.tasks.len() || !running.is_empty() {
        let stopped = stop.is_set();
        while next < request.tasks.len() && (stopped || running.len() < parallel) {
            let index = next;
            next += 1;
            let how = if stopped {
                How::Cancelled
            } else {
                match begin(transport, request, index, &mark) {
                    Ok(it) => {
                        running.push(it);
                        continue;
                    }
                    Err(obstacle) => How::Unreachable(obstacle),
                }
            };
            each(&never_ran(request, index, how));
        }
        let mut all: Vec<&mut Connection> = running.iter_mut().map(|it| &mut it.connection).collect();
        all.extend(closing.iter_mut().map(|(it, _)| it));
        all.extend(transport.others());
        serve(&mut all, Duration::from_millis(50));
        let now = Instant::now();
        let mut at = 0;
        while let Some(it) = running.get_mut(at) {
            match look(it, transport, request, stopped, now) {
                None => at += 1,
                Some(how) => {
                    let Running { index, mut connection, .. } = running.swap_remove(at);
                    let host = request.tasks.get(index).map_or_else(Host::here, |it| it.host.clone());
                    let took = connection.begun.unwrap_or(connection.started).elapsed();
                    let cut = connection.out.is_cut() || connection.err.is_cut();
                    let empty = || super::frame::Frame::new("", 0);
                    let stdout = std::mem::replace(&mut connection.out, empty()).into_answer();
                    let stderr = std::mem::replace(&mut connection.err, empty()).into_answer();
                    connection.close_input();
                    closing.push((connection, now + Duration::from_secs(2)));
                    each(&Ended { task: index, host, how, stdout, stderr, cut, took });
                }
            }
        }
        closing.retain_mut(|(it, until)| it.exit().is_none() && !it.has_exited() && *until > now);
    }
    // Their processes end now or are killed.
    let until = Instant::now() + Duration::from_millis(500);
    while !closing.is_empty() && Instant::now() < until {
        let mut all: Vec<&mut Connection> = closing.iter_mut().map(|(it, _)| it).collect();
        serve(&mut all, Duration::from_millis(20));
        closing.retain_mut(|(it, _)| !it.has_exited());
    }
    Ok(())
}

/// What the shell of a task is started with. Marks all have one length.
pub(crate) fn bootstrap(task: &Task, plumb: &OsStr, limit: Duration) -> String {
    let program = match &task.program {
        crate::Program::Plumb => plumb,
        crate::Program::Other(program) => program.as_os_str(),
    };
    let mark = format!("plumb-{}", random_token().unwrap_or_default());
    // A task that cannot be written is refused when it is to run.
    let script = script::task(task, program, &mark, limit).unwrap_or_default();
    Shell { mark: &mark, script }.bootstrap()
}

fn never_ran(request: &Request, index: usize, how: How) -> Ended {
    let host = request.tasks.get(index).map_or_else(Host::here, |it| it.host.clone());
    Ended { task: index, host, how, stdout: Vec::new(), stderr: Vec::new(), cut: false, took: Duration::ZERO }
}

fn begin(
    transport: &mut dyn Transport,
    request: &Request,
    index: usize,
    mark: &str,
) -> Result<Running, Obstacle> {
    let failed = |error: Error| Obstacle::new(ObstacleKind::Launcher, &error.to_string());
    let Some(task) = request.tasks.get(index) else {
        return Err(Obstacle::new(ObstacleKind::Other, "no such task"));
    };
    let program = match &task.program {
        crate::Program::Plumb => transport.plumb(&task.host)?,
        crate::Program::Other(program) => program.clone(),
    };
    let script = script::task(task, &program, mark, request.limit).map_err(failed)?;
    let connection = transport.open(&task.host, Shell { mark, script }, Purpose::Task)?;
    let input = task.input.as_ref().filter(|it| !it.is_empty()).map(|it| Arc::from(it.as_slice()));
    Ok(Running { index, connection, input, leaving: None, complete: None })
}

/// How a task ended, if it has.
fn look(
    it: &mut Running,
    transport: &mut dyn Transport,
    request: &Request,
    stopped: bool,
    now: Instant,
) -> Option<How> {
    let connection = &mut it.connection;
    let exit = connection.exit();
    let exited = connection.has_exited();
    if let Some(code) = connection.out.ended().map(str::to_owned) {
        // The last bytes of the standard error are on their way.
        let since = *it.complete.get_or_insert(now);
        if connection.err.ended().is_some() || exit.is_some() || now - since > Duration::from_secs(1) {
            return Some(match &it.leaving {
                Some((how, _)) => how.clone(),
                None => finished(&code),
            });
        }
        return None;
    }
    if let Some((how, until)) = &it.leaving {
        return (exited || *until <= now).then(|| {
            let how = how.clone();
            connection.kill();
            how
        });
    }
    if let Some(status) = exit {
        let host = request.tasks.get(it.index).map_or_else(Host::here, |it| it.host.clone());
        if connection.begun.is_some() {
            let own = lines_of(&connection.err.last(2048));
            let detail = transport.last_words(&host).or(own).unwrap_or_default();
            return Some(How::Lost { detail: one_line(&detail) });
        }
        let printed = [connection.err.before(), b"\n", connection.out.before()].concat();
        return Some(How::Unreachable(transport.obstacle(status.code, &String::from_utf8_lossy(&printed))));
    }
    if stopped {
        connection.close_input();
        it.leaving = Some((How::Cancelled, now + LEAVE));
        return None;
    }
    match connection.begun {
        None if now - connection.started > transport.login() => {
            connection.kill();
            let detail = format!("no answer to the login in {} s", transport.login().as_secs());
            Some(How::Unreachable(Obstacle::new(ObstacleKind::NoAnswer, &detail)))
        }
        Some(begun) if now - begun > request.limit => {
            connection.close_input();
            it.leaving = Some((How::TimedOut, now + LEAVE));
            None
        }
        None => None,
        Some(_) => {
            if let Some(input) = it.input.take() {
                connection.send(input);
            }
            None
        }
    }
}

fn finished(code: &str) -> How {
    match code.parse::<i32>() {
        Ok(code @ 129..160) => How::Signal(code - 128),
        Ok(code) => How::Code(code),
        Err(_) => How::Unreachable(Obstacle::new(ObstacleKind::NoProgram, "")),
    }
}

/// The last line that says something.
fn lines_of(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().map(str::trim).find(|it| !it.is_empty()).map(str::to_owned)
}
