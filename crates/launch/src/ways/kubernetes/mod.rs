//! Pods of an Indexed Job, through `kubectl`.

mod pods;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::{Duration, Instant};

use self::pods::Pod;
use super::supervised::{Client, Opening, Supervised, Words, command};
use crate::request::one_line;
use crate::supervise::short::{self, Answer};
use crate::supervise::tasks::Purpose;
use crate::{Error, Host, Obstacle, ObstacleKind, Stop, quote};

/// How long one question to the API server may take.
const QUESTION: Duration = Duration::from_secs(60);

/// The job.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
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
}

/// Tasks in the pods of an Indexed Job, with `kubectl exec`. The pods only wait.
///
/// The job is created by `start` and deleted by [`Way::clean`](crate::Way::clean). If this process is killed, its tasks and its
/// copy of plumb are removed at once, and the pods when the job reaches its `activeDeadlineSeconds`: the manifest needs that and
/// `ttlSecondsAfterFinished`. The user needs the right to create jobs and `pods/exec`.
pub type Kubernetes = Supervised<Pods>;

/// The pods of a job.
pub struct Pods {
    options: KubernetesOptions,
    created: bool,
    running: BTreeMap<Host, Pod>,
}

impl Kubernetes {
    /// Asks nothing yet. The name and the namespace must be names of Kubernetes.
    pub fn new(client: Client, options: KubernetesOptions) -> Result<Self, Error> {
        for name in
            [Some(&options.name), options.namespace.as_ref(), Some(&options.container)].into_iter().flatten()
        {
            let fine = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
            if name.is_empty() || name.starts_with('-') || !name.bytes().all(fine) {
                return Err(Error::Start { detail: format!("{name:?} is not a name in Kubernetes") });
            }
        }
        Self::with(client, Pods { options, created: false, running: BTreeMap::new() })
    }

    /// Creates the job and waits until its pods run. Pods that cannot run, or do not in time, are returned with the
    /// reason; the others are [`Self::hosts`].
    pub fn start(&mut self, stop: &Stop) -> Result<Vec<(String, Obstacle)>, Error> {
        // From here on there may be something to delete.
        self.opening.created = true;
        let created = self.opening.ask(&self.client, &["create", "-f", "-"], &self.opening.options.manifest);
        if let Err(error) = created {
            // What has this name is another's: it stays.
            self.opening.created = !error.to_string().contains("AlreadyExists");
            return Err(error);
        }
        let until = Instant::now() + self.opening.options.wait;
        let pods = loop {
            let selector = format!("job-name={}", self.opening.options.name);
            let answer = self.opening.ask(
                &self.client,
                &["get", "pods", "-l", &selector, "-o", pods::TEMPLATE],
                "",
            )?;
            let pods = pods::read(&answer.stdout);
            let settled = |it: &Pod| it.phase == "Running" || it.obstacle().is_some();
            if (pods.len() >= self.opening.options.pods && pods.iter().all(settled))
                || Instant::now() >= until
                || stop.is_set()
            {
                break pods;
            }
            // Short, so that an interrupt is noticed.
            std::thread::sleep(Duration::from_millis(500));
        };
        let mut failed = Vec::new();
        for index in 0..self.opening.options.pods {
            match pods.iter().find(|it| it.index == index) {
                None => failed.push((
                    format!("{}-{index}", self.opening.options.name),
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
            self.opening.running.insert(Host::parse(name)?, pod.clone());
        }
        Ok(failed)
    }

    /// The pods that run, by the names of their nodes. Before the start: all pods, by the names they will begin with.
    pub fn hosts(&self) -> Vec<Host> {
        if self.opening.created {
            let mut all: Vec<(&Host, &Pod)> = self.opening.running.iter().collect();
            all.sort_by_key(|(_, pod)| pod.index);
            return all.into_iter().map(|(host, _)| host.clone()).collect();
        }
        (0..self.opening.options.pods)
            .filter_map(|it| Host::parse(&format!("{}-{it}", self.opening.options.name)).ok())
            .collect()
    }

    /// What is run before and after all tasks, for a POSIX shell; the manifest is on standard input.
    pub fn shown_around(&self) -> Vec<String> {
        let selector = format!("job-name={}", self.opening.options.name);
        let lines = [
            vec!["create", "-f", "-"],
            vec!["get", "pods", "-l", &selector],
            vec!["delete", "-f", "-", "--ignore-not-found"],
        ];
        let line = |words: &Vec<&str>| {
            let own = self.opening.kubectl(&self.client, &[]);
            own.iter().map(quote).chain(words.iter().map(quote)).collect::<Vec<_>>().join(" ")
        };
        lines.iter().map(line).collect()
    }
}

impl Pods {
    /// `kubectl` with these arguments.
    fn kubectl(&self, client: &Client, arguments: &[&str]) -> Vec<OsString> {
        let mut words = client.words();
        words.extend(self.options.namespace.as_ref().map(|it| format!("--namespace={it}").into()));
        words.extend(arguments.iter().map(OsString::from));
        words
    }

    fn ask(&self, client: &Client, arguments: &[&str], input: &str) -> Result<Answer, Error> {
        let answer = short::output(command(client, &self.kubectl(client, arguments)), input, QUESTION)?;
        if answer.code == Some(0) {
            return Ok(answer);
        }
        let why = answer.stderr.lines().find(|it| !it.trim().is_empty()).unwrap_or("failed");
        let what = format!("kubectl {}", arguments.first().unwrap_or(&""));
        Err(Error::start(&what, one_line(why)))
    }
}

impl Opening for Pods {
    const NAME: &'static str = "kubectl";

    fn prepare(&mut self, _client: &Client, _hosts: &[Host]) {}

    fn words(&self, client: &Client, host: &Host, bootstrap: &str, _purpose: Purpose) -> Words {
        let unknown = || Obstacle::new(ObstacleKind::NameUnknown, "no pod of the job runs there");
        let pod = match self.running.get(host) {
            Some(pod) => pod.name.as_str(),
            // Commands are shown before there are pods: their names begin with this.
            None if !self.created => host.name(),
            None => return Err(unknown()),
        };
        let container = &self.options.container;
        Ok(self.kubectl(client, &["exec", "-i", pod, "-c", container, "--", "sh", "-c", bootstrap]))
    }

    fn obstacle(&self, _code: Option<i32>, printed: &str) -> Obstacle {
        pods::obstacle(printed)
    }

    fn address(&self, host: &Host) -> Option<String> {
        self.running.get(host)?.address.clone()
    }

    /// Deletes the job. If the API server does not confirm that, all hosts are left.
    fn close(&mut self, client: &Client, left: Vec<Host>) -> Vec<Host> {
        if !std::mem::take(&mut self.created) {
            return left;
        }
        let delete = ["delete", "-f", "-", "--ignore-not-found", "--wait=false"];
        let deleted = self.ask(client, &delete, &self.options.manifest);
        let pods = std::mem::take(&mut self.running);
        // The pods go, and what is in them.
        if deleted.is_ok() { Vec::new() } else { pods.into_keys().collect() }
    }
}
