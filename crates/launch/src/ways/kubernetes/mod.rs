//! Pods of an Indexed Job, through `kubectl`.

mod pods;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use self::pods::Pod;
use super::shown_locally;
use crate::request::one_line;
use crate::supervise::connection::Connection;
use crate::supervise::keeper::{self, Binary, Keepers};
use crate::supervise::short::{self, Answer};
use crate::supervise::tasks::{self, Transport};
use crate::{Ended, Error, Host, Obstacle, ObstacleKind, Placed, Request, Shown, Stop, Way, quote};

/// How long one question to the API server may take.
const QUESTION: Duration = Duration::from_secs(60);

/// The job and how `kubectl` is called.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
    /// `kubectl`.
    pub program: OsString,
    /// More arguments, such as `--context=NAME`.
    pub arguments: Vec<OsString>,
    /// The manifest of an Indexed Job whose pods wait, and of what it needs.
    pub manifest: String,
    /// Its name in the manifest.
    pub name: String,
    /// Its namespace, if it is not the current one.
    pub namespace: Option<String>,
    /// How many pods it has.
    pub pods: usize,
    /// The container of a pod in which tasks run.
    pub container: String,
    /// How long pods may take until they run: an image may have to be pulled, nodes may have to be started.
    pub wait: Duration,
    /// How many tasks that do not need each other run at a time.
    pub parallel: usize,
    /// The program that is placed in pods. `None`: this one.
    pub plumb: Option<PathBuf>,
}

/// Tasks in the pods of an Indexed Job, with `kubectl exec`. The pods only wait.
///
/// The job is created by [`Self::start`] and deleted by [`Way::clean`]. If this process is killed, its tasks and its copy of
/// plumb are removed at once, and the pods when the job reaches its `activeDeadlineSeconds`: the manifest needs that and
/// `ttlSecondsAfterFinished`. The user needs the right to create jobs and `pods/exec`.
pub struct Kubernetes {
    options: KubernetesOptions,
    binary: Binary,
    created: bool,
    pods: BTreeMap<Host, Pod>,
    keepers: Keepers,
}

impl Kubernetes {
    /// Asks nothing yet. The name and the namespace must be names of Kubernetes.
    pub fn new(options: KubernetesOptions) -> Result<Self, Error> {
        for name in
            [Some(&options.name), options.namespace.as_ref(), Some(&options.container)].into_iter().flatten()
        {
            let fine = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(fine) {
                return Err(Error::Start { detail: format!("{name:?} is not a name in Kubernetes") });
            }
        }
        let binary = match &options.plumb {
            Some(path) => Binary::read(path.clone().into_os_string())?,
            None => Binary::own()?,
        };
        Ok(Self { options, binary, created: false, pods: BTreeMap::new(), keepers: Keepers::default() })
    }

    /// Creates the job and waits until its pods run. Pods that cannot run, or do not in time, are returned with the
    /// reason; the others are [`Self::hosts`].
    pub fn start(&mut self, stop: &Stop) -> Result<Vec<(String, Obstacle)>, Error> {
        // From here on there may be something to delete.
        self.created = true;
        self.ask(&["create", "-f", "-"], &self.options.manifest)?;
        let until = Instant::now() + self.options.wait;
        let pods = loop {
            let selector = format!("job-name={}", self.options.name);
            let answer = self.ask(&["get", "pods", "-l", &selector, "-o", pods::TEMPLATE], "")?;
            let pods = pods::read(&answer.stdout);
            let settled = |it: &Pod| it.phase == "Running" || it.obstacle().is_some();
            if (pods.len() >= self.options.pods && pods.iter().all(settled))
                || Instant::now() >= until
                || stop.is_set()
            {
                break pods;
            }
            // Short, so that an interrupt is noticed.
            std::thread::sleep(Duration::from_millis(500));
        };
        let mut failed = Vec::new();
        for index in 0..self.options.pods {
            match pods.iter().find(|it| it.index == index) {
                None => failed.push((
                    format!("{}-{index}", self.options.name),
                    Obstacle::new(ObstacleKind::NoAnswer, "the pod was not created"),
                )),
                Some(pod) if pod.phase == "Running" => {}
                Some(pod) => {
                    let waits = || Obstacle::new(ObstacleKind::NoAnswer, &pod.describe());
                    let name = pod.node.clone().unwrap_or_else(|| pod.name.clone());
                    failed.push((name, pod.obstacle().unwrap_or_else(waits)));
                }
            }
        }
        let running: Vec<Pod> = pods.into_iter().filter(|it| it.phase == "Running").collect();
        let mut nodes: Vec<&str> = running.iter().filter_map(|it| it.node.as_deref()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        // By their nodes, as people know them, unless two pods share one.
        let by_node = nodes.len() == running.len();
        for pod in &running {
            let name = if by_node { pod.node.as_deref().unwrap_or(&pod.name) } else { &pod.name };
            self.pods.insert(Host::parse(name)?, pod.clone());
        }
        Ok(failed)
    }

    /// The pods that run, by the names of their nodes. Before the start: all pods, by the names they will begin with.
    pub fn hosts(&self) -> Vec<Host> {
        if self.created {
            let mut all: Vec<(&Host, &Pod)> = self.pods.iter().collect();
            all.sort_by_key(|(_, pod)| pod.index);
            return all.into_iter().map(|(host, _)| host.clone()).collect();
        }
        (0..self.options.pods)
            .filter_map(|it| Host::parse(&format!("{}-{it}", self.options.name)).ok())
            .collect()
    }

    /// What is run before and after all tasks, for a POSIX shell; the manifest is on standard input.
    pub fn shown_around(&self) -> Vec<String> {
        let selector = format!("job-name={}", self.options.name);
        let lines = [
            vec!["create", "-f", "-"],
            vec!["get", "pods", "-l", &selector],
            vec!["delete", "-f", "-", "--ignore-not-found"],
        ];
        let line = |words: &Vec<&str>| {
            let own = self.words();
            own.iter().map(quote).chain(words.iter().map(quote)).collect::<Vec<_>>().join(" ")
        };
        lines.iter().map(line).collect()
    }

    fn words(&self) -> Vec<OsString> {
        let mut words = vec![self.options.program.clone()];
        words.extend(self.options.arguments.iter().cloned());
        if let Some(namespace) = &self.options.namespace {
            words.push(format!("--namespace={namespace}").into());
        }
        words
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let words = self.words();
        let mut command = Command::new(words.first().unwrap_or(&self.options.program));
        command.args(words.iter().skip(1)).args(arguments);
        command
    }

    fn ask(&self, arguments: &[&str], input: &str) -> Result<Answer, Error> {
        let answer = short::output(self.command(arguments), input, QUESTION)?;
        if answer.code == Some(0) {
            return Ok(answer);
        }
        let why = answer.stderr.lines().find(|it| !it.trim().is_empty()).unwrap_or("failed");
        let what = format!("kubectl {}", arguments.first().unwrap_or(&""));
        Err(Error::start(&what, one_line(why)))
    }
}

impl Way for Kubernetes {
    fn name(&self) -> &'static str {
        "kubectl"
    }

    fn place(&mut self, hosts: &[Host], stop: &Stop, each: &mut dyn FnMut(&Placed)) -> Result<(), Error> {
        let mut keepers = std::mem::take(&mut self.keepers);
        let addresses: BTreeMap<Host, Option<String>> =
            self.pods.iter().map(|(host, pod)| (host.clone(), pod.address.clone())).collect();
        let mut with_address = |placed: &Placed| {
            let mut placed = placed.clone();
            if let (Ok(place), Some(address)) = (&mut placed.outcome, addresses.get(&placed.host)) {
                place.address.clone_from(address);
            }
            each(&placed);
        };
        let result = keeper::place(self, &mut keepers, &self.binary, hosts, stop, &mut with_address);
        self.keepers = keepers;
        result
    }

    fn shown(&self, request: &Request) -> Vec<Shown> {
        let shown = |task: &crate::Task| {
            let plumb = self.keepers.path(&task.host).unwrap_or_else(|| self.binary.path.clone());
            let pod = self.pods.get(&task.host).map_or(task.host.name(), |it| it.name.as_str());
            let mut words: Vec<String> = self.words().iter().map(quote).collect();
            words.extend(["exec", "-i", pod, "-c", &self.options.container, "--"].map(quote));
            words.extend((!task.variables.is_empty()).then(|| "env".to_owned()));
            words.push(shown_locally(task, &plumb));
            Shown { host: task.host.clone(), command: words.join(" ") }
        };
        request.tasks.iter().map(shown).collect()
    }

    fn run(&mut self, request: &Request, stop: &Stop, each: &mut dyn FnMut(&Ended)) -> Result<(), Error> {
        tasks::run(self, request, stop, each)
    }

    /// Deletes the job as well. If the API server does not confirm that, all hosts are returned.
    fn clean(&mut self) -> Vec<Host> {
        let left = self.keepers.clean();
        if !self.created {
            return left;
        }
        self.created = false;
        let deleted =
            self.ask(&["delete", "-f", "-", "--ignore-not-found", "--wait=false"], &self.options.manifest);
        let pods = std::mem::take(&mut self.pods);
        // The pods go, and what is in them.
        if deleted.is_ok() { Vec::new() } else { pods.into_keys().collect() }
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.clean();
    }
}

impl Transport for Kubernetes {
    fn plumb(&mut self, host: &Host) -> Result<OsString, Obstacle> {
        self.keepers.plumb(host)
    }

    fn open(
        &self,
        host: &Host,
        bootstrap: &str,
        mark: &str,
        script: Vec<u8>,
    ) -> Result<Connection, Obstacle> {
        let unknown = || Obstacle::new(ObstacleKind::NameUnknown, "no pod of the job runs there");
        let pod = self.pods.get(host).ok_or_else(unknown)?;
        let words = ["exec", "-i", &pod.name, "-c", &self.options.container, "--", "sh", "-c", bootstrap];
        tasks::process(self.command(&words), mark, script)
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        pods::obstacle(printed)
    }

    fn last_words(&mut self, host: &Host) -> Option<String> {
        self.keepers.last_words(host)
    }

    fn login(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn parallel(&self) -> usize {
        self.options.parallel
    }

    fn others(&mut self) -> Vec<&mut Connection> {
        self.keepers.connections()
    }
}
